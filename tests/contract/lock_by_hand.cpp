// A held lock that is extended, released or dropped by its owner.

#include <string>

#include "contract/cases.hpp"
#include "contract/locks.hpp"

namespace syncguard::testing {

namespace {

void extend_by_hand_makes_a_life_longer(void**) {
  syncguard::lock held = hold_lock("k", {.ttl = 5s, .heartbeat = false});
  const server_time until = must_have(await(start_extend(held, 50s)));
  assert_true(until == held.expires_at());
  assert_true(held.valid_for() > 10s && held.valid_for() <= 49s);
  assert_true(pttl(lock_key("k")) > 10'000);
}

void extend_by_hand_makes_a_life_shorter(void**) {
  syncguard::lock held = hold_lock("k", {.ttl = 50s, .heartbeat = false});
  must_have(await(start_extend(held, 5s)));
  assert_true(held.valid());
  assert_true(held.valid_for() <= 4500ms);
  assert_true(pttl(lock_key("k")) <= 5'000);
}

// Whether the server does it is not known before the answer, so the shorter life counts at once.
void extend_to_a_shorter_life_counts_from_the_call(void**) {
  syncguard::lock held = hold_lock("k", {.ttl = 50s, .heartbeat = false});
  server().pause();
  const auto extended = start_extend(held, 5s);
  assert_true(held.valid_for() <= 4500ms);
  server().resume();
  must_have(await(extended));
  assert_true(held.valid());
}

void extend_changes_what_heartbeats_keep(void**) {
  syncguard::lock held = hold_lock("k", {.ttl = 600ms});
  must_have(await(start_extend(held, 2s)));
  run_for(1500ms);
  assert_true(held.valid());
  const long long left_ms = pttl(lock_key("k"));
  assert_true(left_ms > 600 && left_ms <= 2'000);
  must_have(await(start_extend(held, 600ms)));
  run_for(1s);
  assert_true(held.valid());
  assert_true(pttl(lock_key("k")) <= 600);
}

void extend_to_too_short_a_life_is_refused_and_changes_nothing(void**) {
  syncguard::lock held = hold_lock("k", {.ttl = 50s, .heartbeat = false});
  for (const milliseconds ttl : {milliseconds{9}, milliseconds{0}, milliseconds{-1}, milliseconds::max()})
    must_fail(await(start_extend(held, ttl)), error_code::invalid_argument);
  assert_true(held.valid_for() > 20s);
  syncguard::lock wide = hold_lock("wide", {.ttl = 50s, .heartbeat = false, .margin = 10s});
  must_fail(await(start_extend(wide, 10s)), error_code::invalid_argument);
  assert_true(wide.valid());
  must_have(await(start_extend(wide, 20s)));
  assert_true(wide.valid_for() <= 10s);
}

void extend_of_a_vanished_lock_is_empty_and_on_lost_is_told(void**) {
  // Nobody watches, so that the extend is the first to find out.
  client_options options = base_options();
  options.watch_max = 0;
  make_ready_subject(std::move(options));
  syncguard::lock held = hold_lock("k");
  const auto gone = record_loss(held);
  redis({"DEL", lock_key("k"), index_key(held.id())});
  assert_false(must(await(start_extend(held, 60s))).has_value());
  await_loss(gone, lost::vanished);
  assert_false(held.valid());
  must_fail(await(start_extend(held, 60s)), error_code::aborted);
  assert_false(exists(lock_key("k")));
}

void extends_in_one_turn_apply_in_their_order(void**) {
  syncguard::lock held = hold_lock("k", {.ttl = 50s, .heartbeat = false});
  std::vector<started_extend> all;
  for (int seconds = 1; seconds <= 40; ++seconds) all.push_back(start_extend(held, std::chrono::seconds{seconds * 10}));
  all.push_back(start_extend(held, 20s));
  await_all(all);
  for (const auto& each : all) must_have(each.outcome());
  const long long left_ms = pttl(lock_key("k"));
  assert_true(left_ms > 5'000 && left_ms <= 20'000);
  assert_true(held.valid() && held.valid_for() <= 19s);
}

void release_by_hand_frees_the_lock(void**) {
  syncguard::lock held = hold_lock("k");
  const auto released = start_release(held);
  assert_false(held.valid());
  assert_true(held.valid_for() <= 0us);
  assert_true(must(await(released)));
  assert_false(exists(lock_key("k")));
  assert_false(exists(index_key(held.id())));
  assert_text_equal(held.key(), "k");
  assert_int_equal(subject().stats().held, 0);
}

void release_twice_is_aborted(void**) {
  syncguard::lock held = hold_lock("k");
  const auto first = start_release(held);
  const auto second = start_release(held);
  assert_true(must(await(first)));
  must_fail(await(second), error_code::aborted);
  must_fail(await(start_release(held)), error_code::aborted);
  must_fail(await(start_extend(held, 60s)), error_code::aborted);
}

void release_then_destroy_releases_once(void**) {
  std::optional<syncguard::lock> held = hold_lock("k");
  const auto released = start_release(*held);
  held.reset();
  assert_true(must(await(released)));
  const syncguard::lock next = hold_lock("k");
  run_for(50ms);
  assert_true(next.valid() && exists(lock_key("k")));
}

void release_of_a_lock_that_is_gone_is_false(void**) {
  client_options options = base_options();
  options.watch_max = 0;
  make_ready_subject(std::move(options));
  syncguard::lock held = hold_lock("k");
  const auto gone = record_loss(held);
  redis({"DEL", lock_key("k"), index_key(held.id())});
  assert_false(must(await(start_release(held))));
  run_for(20ms);
  assert_false(gone->told());
}

void release_leaves_the_lock_of_the_next_holder(void**) {
  syncguard::lock held = hold_lock("k", {.ttl = 300ms, .heartbeat = false});
  const syncguard::lock next = hold_lock("k", steady, rival());
  must_fail(await(start_release(held)), error_code::aborted);
  held = {};
  run_for(50ms);
  assert_true(next.valid() && exists(lock_key("k")));
}

void destructor_gives_the_lock_back(void**) {
  std::optional<syncguard::lock> held = hold_lock("k");
  const std::string index = index_key(held->id());
  held.reset();
  assert_true(run_until([&] { return !exists(lock_key("k")) && !exists(index); }));
  assert_int_equal(subject().stats().held, 0);
}

void destructor_of_many_locks_gives_all_of_them_back(void**) {
  std::vector<syncguard::lock> held;
  for (int index = 0; index < 200; ++index) held.push_back(hold_lock("k" + std::to_string(index)));
  held.clear();
  assert_true(run_until([] { return key_count() == 200; }));  // the fence counters
}

struct seen_release_errors {
  int calls = 0;
  std::string key;
  std::string id;
};

client_options telling_release_errors(const std::shared_ptr<seen_release_errors>& seen) {
  client_options options = base_options();
  options.release_timeout = 300ms;
  options.on_release_error = [seen](const error& why) {
    ++seen->calls;
    seen->key = why.key();
    seen->id = why.lock_id();
  };
  return options;
}

void release_that_fails_is_told_to_on_release_error(void**) {
  const auto seen = std::make_shared<seen_release_errors>();
  make_ready_subject(telling_release_errors(seen));
  std::optional<syncguard::lock> held = hold_lock("k");
  const std::string id{held->id().view()};
  server().kill_hard();
  assert_true(run_until([] { return subject().state() == connection_state::connecting; }));
  held.reset();
  assert_true(run_until([&] { return seen->calls > 0; }));
  run_for(400ms);
  assert_int_equal(seen->calls, 1);
  assert_text_equal(seen->key, "k");
  assert_text_equal(seen->id, id);
}

void release_that_the_silent_server_does_not_answer_is_told(void**) {
  const auto seen = std::make_shared<seen_release_errors>();
  make_ready_subject(telling_release_errors(seen));
  std::optional<syncguard::lock> held = hold_lock("k");
  server().pause();
  held.reset();
  assert_true(run_until([&] { return seen->calls > 0; }));
  server().resume();
  assert_int_equal(seen->calls, 1);
}

void release_that_works_is_not_told_to_on_release_error(void**) {
  const auto seen = std::make_shared<seen_release_errors>();
  make_ready_subject(telling_release_errors(seen));
  { const syncguard::lock held = hold_lock("k"); }
  assert_true(run_until([] { return !exists(lock_key("k")); }));
  // One that is gone already is no failure either.
  syncguard::lock vanished = hold_lock("k");
  redis({"DEL", lock_key("k"), index_key(vanished.id())});
  vanished = {};
  run_for(500ms);
  assert_int_equal(seen->calls, 0);
}

}  // namespace

cases lock_by_hand_cases() {
  static const CMUnitTest all[] = {
      contract_case(extend_by_hand_makes_a_life_longer),
      contract_case(extend_by_hand_makes_a_life_shorter),
      contract_case(extend_to_a_shorter_life_counts_from_the_call),
      contract_case(extend_changes_what_heartbeats_keep),
      contract_case(extend_to_too_short_a_life_is_refused_and_changes_nothing),
      contract_case_alone(extend_of_a_vanished_lock_is_empty_and_on_lost_is_told),
      contract_case(extends_in_one_turn_apply_in_their_order),
      contract_case(release_by_hand_frees_the_lock),
      contract_case(release_twice_is_aborted),
      contract_case(release_then_destroy_releases_once),
      contract_case_alone(release_of_a_lock_that_is_gone_is_false),
      contract_case(release_leaves_the_lock_of_the_next_holder),
      contract_case(destructor_gives_the_lock_back),
      contract_case(destructor_of_many_locks_gives_all_of_them_back),
      contract_case_alone(release_that_fails_is_told_to_on_release_error),
      contract_case_alone(release_that_the_silent_server_does_not_answer_is_told),
      contract_case_alone(release_that_works_is_not_told_to_on_release_error),
  };
  return all;
}

}  // namespace syncguard::testing
