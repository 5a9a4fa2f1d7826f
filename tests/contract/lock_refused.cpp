// Calls of lock() that are refused at the door: before any I/O, and never inside the call.

#include <string>

#include "contract/cases.hpp"
#include "contract/locks.hpp"

namespace syncguard::testing {

namespace {

void is_refused(std::string_view key, const lock_options& options, call_place at = call_place::current()) {
  const long long before = commands_processed();
  const auto got = start_lock(key, options);
  const error failure = await_failure(got, error_code::invalid_argument, at);
  if (failure.outcome_unknown() || failure.retryable() || commands_processed() - before != 1) {
    print_error("something was sent\n");
    _fail(at.file, at.line);
  }
}

void lock_refuses_bad_keys(void**) {
  is_refused("", steady);
  is_refused("fence:k", steady);
  is_refused("id:" + std::string{own_id}, steady);
  is_refused(std::string(513, 'k'), steady);
  is_refused("\xff\xfe", steady);
  is_refused("\xed\xa0\x80", steady);
  assert_int_equal(key_count(), 0);
}

void lock_refuses_lives_that_are_too_short_or_too_long(void**) {
  is_refused("k", {.ttl = 9ms});
  is_refused("k", {.ttl = 0ms});
  is_refused("k", {.ttl = -1ms});
  is_refused("k", {.ttl = milliseconds::min()});
  is_refused("k", {.ttl = std::chrono::hours{24 * 100} + 1ms});
  is_refused("k", {.ttl = milliseconds::max()});
}

void lock_takes_the_longest_life(void**) {
  const syncguard::lock held = hold_lock("k", {.ttl = std::chrono::hours{24 * 100}});
  assert_true(held.valid_for() > std::chrono::hours{24 * 99});
}

void lock_refuses_times_to_wait_that_make_no_sense(void**) {
  is_refused("k", {.wait = -1ms});
  is_refused("k", {.wait = milliseconds::min()});
  is_refused("k", {.wait = milliseconds::max()});
}

void lock_refuses_margins_that_leave_nothing(void**) {
  is_refused("k", {.ttl = 1s, .margin = 1s});
  is_refused("k", {.ttl = 1s, .margin = 2s});
  is_refused("k", {.ttl = 1s, .margin = -1ms});
  is_refused("k", {.ttl = 1s, .margin = milliseconds::max()});
  const syncguard::lock held = hold_lock("k", {.ttl = 60s, .margin = 50s});
  assert_true(held.valid());
}

void lock_refused_names_the_key(void**) {
  assert_text_equal(await_failure(start_lock("k", {.ttl = 1ms}), error_code::invalid_argument).key(), "k");
}

void lock_refused_can_be_cancelled_and_ends_once(void**) {
  const auto got = start_lock("");
  subject().cancel(got.handle);
  assert_true(run_until([&] { return got.done(); }));
  run_for(10ms);
  assert_int_equal(got.got->calls, 1);
  assert_false(got.granted());
}

void lock_of_a_closed_client_is_aborted(void**) {
  const auto closed = start_close();
  await_failure(start_lock("k"), error_code::aborted);
  must(await(closed));
  await_failure(start_lock("k"), error_code::aborted);
  assert_false(exists(lock_key("k")));
}

void lock_of_a_client_with_bad_options_fails_with_their_error(void**) {
  client_options options = base_options();
  options.url = "nonsense://";
  make_subject(std::move(options));
  await_failure(start_lock("k"), error_code::invalid_argument);
}

void lock_beyond_max_pending_is_rate_limited(void**) {
  client_options options = base_options();
  options.max_pending = 3;
  make_ready_subject(std::move(options));
  auto theirs = std::make_unique<syncguard::lock>(hold_lock("k", steady, rival()));
  std::vector<started_lock> waiting;
  for (int index = 0; index < 3; ++index) waiting.push_back(start_lock("k"));
  run_for(30ms);
  const error failure = await_failure(start_lock("k"), error_code::rate_limited);
  assert_true(failure.retryable());
  await_failure(start_lock("other"), error_code::rate_limited);
  // The others are not disturbed, and there is room again when they are done.
  theirs.reset();
  for (const auto& each : waiting) assert_true(await_lock(each).valid());
  assert_true(hold_lock("other").valid());
}

void lock_that_is_held_does_not_count_as_pending(void**) {
  client_options options = base_options();
  options.max_pending = 2;
  make_ready_subject(std::move(options));
  std::vector<syncguard::lock> held;
  for (int index = 0; index < 10; ++index) held.push_back(hold_lock("k" + std::to_string(index), brief));
  run_for(800ms);
  for (const syncguard::lock& each : held) assert_true(each.valid());
  held.clear();
  assert_true(run_until([] { return !exists(lock_key("k0")) && !exists(lock_key("k9")); }));
}

// What is stored there is no lock's: waiting would not help.
void lock_of_a_key_of_another_type_fails_at_once(void**) {
  redis({"LPUSH", lock_key("k"), "x"});
  const error failure = await_failure(start_lock("k"), error_code::invalid_argument);
  assert_text_equal(failure.key(), "k");
}

void lock_of_an_unreadable_record_waits_for_its_end(void**) {
  redis({"SET", lock_key("k"), "nonsense", "PX", "600"});
  const syncguard::lock held = hold_lock("k");
  assert_true(held.valid());
}

}  // namespace

cases lock_refused_cases() {
  static const CMUnitTest all[] = {
      contract_case(lock_refuses_bad_keys),
      contract_case(lock_refuses_lives_that_are_too_short_or_too_long),
      contract_case(lock_takes_the_longest_life),
      contract_case(lock_refuses_times_to_wait_that_make_no_sense),
      contract_case(lock_refuses_margins_that_leave_nothing),
      contract_case(lock_refused_names_the_key),
      contract_case(lock_refused_can_be_cancelled_and_ends_once),
      contract_case(lock_of_a_closed_client_is_aborted),
      contract_case_alone(lock_of_a_client_with_bad_options_fails_with_their_error),
      contract_case_alone(lock_beyond_max_pending_is_rate_limited),
      contract_case_alone(lock_that_is_held_does_not_count_as_pending),
      contract_case(lock_of_a_key_of_another_type_fails_at_once),
      contract_case(lock_of_an_unreadable_record_waits_for_its_end),
  };
  return all;
}

}  // namespace syncguard::testing
