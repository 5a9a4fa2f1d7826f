// close: refuses what is new, completes what was started, then disconnects.

#include <string>

#include "contract/cases.hpp"
#include "contract/operations.hpp"
#include "contract/stored.hpp"

namespace syncguard::testing {

namespace {

void close_idle_client_disconnects_and_calls_back(void**) {
  must(await(start_close()));
  assert_true(subject().state() == connection_state::closed);
  assert_true(saw_state(connection_state::closed));
  assert_true(run_until([] { return !is_connected("syncguard"); }));
}

void close_lets_pending_operations_complete_first(void**) {
  std::vector<started_acquire> all;
  for (int index = 0; index < 100; ++index) all.push_back(start_acquire("k" + std::to_string(index), 60s));
  const auto closed = start_close();
  must(await(closed));
  for (const auto& one : all) {
    assert_true(one.done());
    must_have(one.outcome());
  }
}

void close_makes_later_operations_aborted(void**) {
  const auto before = start_acquire("a", 60s);
  const auto closed = start_close();
  const auto after = start_acquire("b", 60s);
  must_fail(await(after), error_code::aborted);
  must_have(await(before));
  must(await(closed));
  must_fail(await_acquire("c", 60s), error_code::aborted);
  must_fail(await_lookup("c"), error_code::aborted);
  must_fail(await_release(own_id), error_code::aborted);
  assert_false(exists(lock_key("b")));
}

void close_twice_calls_back_twice(void**) {
  const auto first = start_close();
  const auto second = start_close();
  (void)await(first);
  (void)await(second);
  (void)await(start_close());
}

void close_without_a_connection_completes_when_operations_end(void**) {
  client_options options = base_options();
  options.url = "unix:///nowhere/redis.sock";
  options.timeout = 200ms;
  make_subject(std::move(options));
  const auto got = start_acquire("k", 60s);
  const auto closed = start_close();
  (void)await(closed);
  assert_true(got.done());
  assert_false(got.outcome().has_value());
}

void close_while_connecting_completes(void**) {
  make_subject(base_options());
  (void)await(start_close());
  assert_true(subject().state() == connection_state::closed);
}

void close_with_a_silent_server_completes_after_the_time_outs(void**) {
  client_options options = base_options();
  options.timeout = 200ms;
  make_ready_subject(std::move(options));
  server().pause();
  const auto got = start_acquire("k", 60s);
  run_for(20ms);
  (void)await(start_close());
  assert_true(got.done());
  must_fail(got.outcome(), error_code::network_timeout);
}

void close_lets_pending_operations_be_cancelled(void**) {
  server().pause();
  const auto got = start_acquire("k", 60s);
  run_for(20ms);
  const auto closed = start_close();
  assert_true(subject().cancel(got.handle));
  must_fail(await(got), error_code::aborted);
  server().resume();
  (void)await(closed);
}

void close_does_not_connect_again(void**) {
  must(await(start_close()));
  run_for(150ms);
  assert_false(is_connected("syncguard"));
  assert_true(subject().state() == connection_state::closed);
}

}  // namespace

cases close_cases() {
  static const CMUnitTest all[] = {
      contract_case(close_idle_client_disconnects_and_calls_back),
      contract_case(close_lets_pending_operations_complete_first),
      contract_case(close_makes_later_operations_aborted),
      contract_case(close_twice_calls_back_twice),
      contract_case_alone(close_without_a_connection_completes_when_operations_end),
      contract_case_alone(close_while_connecting_completes),
      contract_case_alone(close_with_a_silent_server_completes_after_the_time_outs),
      contract_case(close_lets_pending_operations_be_cancelled),
      contract_case(close_does_not_connect_again),
  };
  return all;
}

}  // namespace syncguard::testing
