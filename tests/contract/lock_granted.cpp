// A lock that is granted: what it says of itself, and what is stored.

#include <string>

#include "contract/cases.hpp"
#include "contract/locks.hpp"

namespace syncguard::testing {

namespace {

void lock_granted_tells_what_was_stored(void**) {
  warm_up();  // when the second connection comes up, locks are looked at again, and extended
  const std::int64_t before_ms = server_now_ms();
  const syncguard::lock held = hold_lock("k", {.ttl = 30s});
  const std::int64_t after_ms = server_now_ms();
  assert_true(static_cast<bool>(held));
  assert_text_equal(held.key(), "k");
  assert_int_equal(held.fence().number(), 1);
  assert_true(to_ms(held.expires_at()) >= before_ms + 30'000 && to_ms(held.expires_at()) <= after_ms + 30'000);

  const auto stored = must_have(await_lookup_raw("k"));
  assert_true(stored.id() == held.id());
  assert_true(stored.info().fence == held.fence());
  assert_true(stored.info().expires_at == held.expires_at());
  assert_text_equal(stored.key(), "k");
  assert_text_equal(text_at(index_key(held.id())), lock_key("k"));
}

void lock_granted_lives_as_long_as_was_asked(void**) {
  const syncguard::lock held = hold_lock("k", {.ttl = 30s});
  const long long left_ms = pttl(lock_key("k"));
  assert_true(left_ms > 5'000 && left_ms <= 30'000);
}

void lock_granted_is_valid_for_less_than_the_server_keeps_it(void**) {
  const syncguard::lock held = hold_lock("k", {.ttl = 30s});
  assert_true(held.valid());
  assert_true(held.valid_for() > 5s);
  // The default margin is a second.
  assert_true(held.valid_for() <= 29s);
  assert_true(held.valid_for() < std::chrono::milliseconds{pttl(lock_key("k"))});
}

void lock_margin_of_the_callers_own_counts(void**) {
  const syncguard::lock narrow = hold_lock("narrow", {.ttl = 30s, .margin = 0ms});
  const syncguard::lock wide = hold_lock("wide", {.ttl = 30s, .margin = 20s});
  assert_true(narrow.valid_for() <= 30s && narrow.valid_for() > wide.valid_for() + 15s);
  assert_true(wide.valid_for() <= 10s && wide.valid());
}

void lock_default_margin_is_a_tenth_of_a_short_life(void**) {
  const syncguard::lock held = hold_lock("k", {.ttl = 5s, .heartbeat = false});
  assert_true(held.valid_for() <= 4500ms);
}

void lock_key_is_told_in_its_normal_form(void**) {
  const syncguard::lock held = hold_lock("e\u0301");
  assert_text_equal(held.key(), "\u00e9");
}

void lock_fences_rise_with_each_grant(void**) {
  std::uint64_t last = 0;
  for (int round = 0; round < 20; ++round) {
    const syncguard::lock held = hold_lock("k");
    assert_true(held.fence().number() > last);
    last = held.fence().number();
  }
  assert_int_equal(last, 20);
}

void lock_of_an_expired_record_is_granted_at_once(void**) {
  store_expiring(other_id, -1500ms);
  const syncguard::lock held = hold_lock("k");
  assert_true(held.valid());
  assert_false(exists(index_key(other_id)));
}

void lock_excludes_a_single_acquire(void**) {
  const syncguard::lock held = hold_lock("k");
  assert_false(must(await_acquire("k", 60s)).has_value());
  assert_false(must(await_acquire("k", 60s, rival())).has_value());
}

void lock_empty_is_harmless(void**) {
  syncguard::lock nothing;
  assert_false(static_cast<bool>(nothing));
  assert_false(nothing.valid());
  assert_true(nothing.valid_for() <= 0us);
  assert_text_equal(nothing.key(), "");
  nothing.on_lost([](lost) { breach("an empty lock was lost"); });
  nothing.release([](const result<bool>&) { breach("an empty lock was released"); });
  nothing.extend(60s, [](const result<std::optional<server_time>>&) { breach("an empty lock was extended"); });
  run_for(5ms);
}

void lock_moved_goes_on_in_its_new_place(void**) {
  syncguard::lock first = hold_lock("k");
  const auto gone = record_loss(first);
  syncguard::lock second = std::move(first);
  assert_false(static_cast<bool>(first));  // NOLINT(bugprone-use-after-move)
  assert_true(second.valid());
  syncguard::lock third;
  third = std::move(second);
  syncguard::lock& self = third;
  third = std::move(self);
  assert_true(third.valid());
  assert_text_equal(third.key(), "k");
  run_for(20ms);
  assert_true(exists(lock_key("k")));
  assert_false(gone->told());
}

void lock_assigned_over_is_given_back(void**) {
  syncguard::lock mine = hold_lock("a");
  mine = hold_lock("b");
  assert_true(run_until([] { return !exists(lock_key("a")); }));
  assert_true(exists(lock_key("b")));
  assert_text_equal(mine.key(), "b");
}

void lock_whose_callback_is_empty_is_given_back(void**) {
  subject().lock("k", steady, nullptr);
  assert_true(run_until([] { return exists(fence_key("k")) && !exists(lock_key("k")); }));
  assert_int_equal(subject().stats().held, 0);
}

void locks_of_two_clients_in_one_loop_stand_side_by_side(void**) {
  const syncguard::lock mine = hold_lock("a", brief);
  const syncguard::lock theirs = hold_lock("b", brief, rival());
  run_for(800ms);
  assert_true(mine.valid() && theirs.valid());
  assert_int_equal(subject().stats().held, 1);
  assert_int_equal(rival().stats().held, 1);
}

}  // namespace

cases lock_granted_cases() {
  static const CMUnitTest all[] = {
      contract_case(lock_granted_tells_what_was_stored),
      contract_case(lock_granted_lives_as_long_as_was_asked),
      contract_case(lock_granted_is_valid_for_less_than_the_server_keeps_it),
      contract_case(lock_margin_of_the_callers_own_counts),
      contract_case(lock_default_margin_is_a_tenth_of_a_short_life),
      contract_case(lock_key_is_told_in_its_normal_form),
      contract_case(lock_fences_rise_with_each_grant),
      contract_case(lock_of_an_expired_record_is_granted_at_once),
      contract_case(lock_excludes_a_single_acquire),
      contract_case(lock_empty_is_harmless),
      contract_case(lock_moved_goes_on_in_its_new_place),
      contract_case(lock_assigned_over_is_given_back),
      contract_case(lock_whose_callback_is_empty_is_given_back),
      contract_case(locks_of_two_clients_in_one_loop_stand_side_by_side),
  };
  return all;
}

}  // namespace syncguard::testing
