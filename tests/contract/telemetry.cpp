// Telemetry: one event for each operation, with the outcome, the reason and hashes.

#include <string>

#include "contract/cases.hpp"
#include "contract/operations.hpp"
#include "contract/stored.hpp"

namespace syncguard::testing {

namespace {

using type = telemetry_type;
using reason = telemetry_reason;

int set_up_watched(void** state) {
  if (set_up(state) != 0) return -1;
  make_subject(watched_options());
  return run_until([] { return subject().state() == connection_state::ready; }) ? 0 : -1;
}

// Runs nothing; looks at the only event of this type and forgets all that came.
seen_event take(type wanted) {
  const seen_event event = only_event(wanted);
  events().clear();
  return event;
}

void check_fail(const seen_event& event, reason wanted) {
  assert_false(event.ok);
  assert_text_equal(to_string(event.reason), to_string(wanted));
}

void check_ok(const seen_event& event) {
  assert_true(event.ok);
  assert_true(event.reason == reason::none);
}

void acquire_granted_is_told_with_both_hashes(void**) {
  const grant got = hold("k");
  const auto event = take(type::acquire);
  check_ok(event);
  assert_true(event.key == hash_key("k"));
  assert_true(event.id == hash_key(got.id));
}

void acquire_contended_is_told_as_locked(void**) {
  hold("k", 60s, rival());
  assert_false(must(await_acquire("k", 60s)).has_value());
  const auto event = take(type::acquire);
  check_fail(event, reason::locked);
  assert_true(event.key == hash_key("k"));
}

void acquire_that_fails_is_told_as_failed(void**) {
  redis({"LPUSH", lock_key("k"), "x"});
  must_fail(await_acquire("k", 60s), error_code::invalid_argument);
  check_fail(take(type::acquire), reason::failed);
}

void release_done_is_told_with_the_hash_of_the_id(void**) {
  const grant got = hold("k");
  assert_true(must(await_release(got.id)));
  const auto event = take(type::release);
  check_ok(event);
  assert_true(event.id == hash_key(got.id));
}

void release_of_the_absent_is_told_as_not_found(void**) {
  assert_false(must(await_release(own_id)));
  const auto event = take(type::release);
  check_fail(event, reason::not_found);
  assert_true(event.id == hash_key(own_id));
}

void release_of_another_owners_is_told_as_not_found(void**) {
  store(own_id, record_of(other_id, server_now_ms() + 60'000));
  assert_false(must(await_release(own_id)));
  check_fail(take(type::release), reason::not_found);
}

void release_of_the_expired_is_told_as_expired(void**) {
  store_expiring(own_id, -1500ms);
  assert_false(must(await_release(own_id)));
  check_fail(take(type::release), reason::expired);
}

void extend_is_told_with_every_reason(void**) {
  const grant got = hold("k");
  must_have(await_extend(got.id, 60s));
  const auto done = take(type::extend);
  check_ok(done);
  assert_true(done.id == hash_key(got.id));

  assert_false(must(await_extend(other_id, 60s)).has_value());
  check_fail(take(type::extend), reason::not_found);

  store_expiring(own_id, -1500ms, "old");
  assert_false(must(await_extend(own_id, 60s)).has_value());
  check_fail(take(type::extend), reason::expired);

  redis({"LPUSH", index_key(own_id), "x"});
  must_fail(await_extend(own_id, 60s), error_code::invalid_argument);
  check_fail(take(type::extend), reason::failed);
}

void is_locked_is_told_with_the_hash_of_the_key(void**) {
  hold("k");
  assert_true(must(await_is_locked("k")));
  const auto held = take(type::is_locked);
  check_ok(held);
  assert_true(held.key == hash_key("k"));

  assert_false(must(await_is_locked("free")));
  const auto open = take(type::is_locked);
  check_fail(open, reason::not_found);
  assert_true(open.key == hash_key("free"));
}

void is_locked_of_the_expired_is_told_as_expired(void**) {
  store_expiring(own_id, -1500ms);
  assert_false(must(await_is_locked("k")));
  check_fail(take(type::is_locked), reason::expired);
}

void lookup_by_key_is_told_with_the_hash_of_the_key(void**) {
  hold("k");
  must_have(await_lookup("k"));
  const auto found = take(type::lookup);
  check_ok(found);
  assert_true(found.key == hash_key("k"));

  assert_false(must(await_lookup("free")).has_value());
  check_fail(take(type::lookup), reason::not_found);

  store_expiring(own_id, -1500ms, "old");
  assert_false(must(await_lookup("old")).has_value());
  check_fail(take(type::lookup), reason::expired);
}

void lookup_by_id_is_told_with_the_hash_of_the_id(void**) {
  const grant got = hold("k");
  must_have(await_lookup_by_id(got.id));
  const auto found = take(type::lookup);
  check_ok(found);
  assert_true(found.id == hash_key(got.id));

  assert_false(must(await_lookup_raw_by_id(other_id)).has_value());
  const auto absent = take(type::lookup);
  check_fail(absent, reason::not_found);
  assert_true(absent.id == hash_key(other_id));
}

void argument_refused_is_told_as_failed_or_not_at_all(void**) {
  must_fail(await_acquire("fence:x", 60s), error_code::invalid_argument);
  for (const seen_event& event : events()) check_fail(event, reason::failed);
  assert_true(events().size() <= 1);
}

void hash_is_of_the_normal_form_of_the_key(void**) {
  hold("e\u0301");
  assert_true(take(type::acquire).key == hash_key("\u00e9"));
}

void every_operation_is_told_once(void**) {
  const grant got = hold("k");
  events().clear();
  std::vector<started_bool> all;
  for (int index = 0; index < 50; ++index) all.push_back(start_is_locked("k"));
  for (int index = 0; index < 50; ++index) all.push_back(start_release(index == 0 ? got.id : *lock_id::parse(own_id)));
  await_all(all);
  run_for(10ms);
  assert_int_equal(events().size(), 100);
}

#define watched_case(name) cmocka_unit_test_setup_teardown(name, set_up_watched, tear_down)

}  // namespace

cases telemetry_cases() {
  static const CMUnitTest all[] = {
      watched_case(acquire_granted_is_told_with_both_hashes),
      watched_case(acquire_contended_is_told_as_locked),
      watched_case(acquire_that_fails_is_told_as_failed),
      watched_case(release_done_is_told_with_the_hash_of_the_id),
      watched_case(release_of_the_absent_is_told_as_not_found),
      watched_case(release_of_another_owners_is_told_as_not_found),
      watched_case(release_of_the_expired_is_told_as_expired),
      watched_case(extend_is_told_with_every_reason),
      watched_case(is_locked_is_told_with_the_hash_of_the_key),
      watched_case(is_locked_of_the_expired_is_told_as_expired),
      watched_case(lookup_by_key_is_told_with_the_hash_of_the_key),
      watched_case(lookup_by_id_is_told_with_the_hash_of_the_id),
      watched_case(argument_refused_is_told_as_failed_or_not_at_all),
      watched_case(hash_is_of_the_normal_form_of_the_key),
      watched_case(every_operation_is_told_once),
  };
  return all;
}

}  // namespace syncguard::testing
