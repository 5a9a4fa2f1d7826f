// Servers that are not there, go away, fall silent, and come back.

#include <string>
#include <thread>

#include "contract/cases.hpp"
#include "contract/operations.hpp"
#include "contract/stored.hpp"

namespace syncguard::testing {

namespace {

client_options impatient_options(milliseconds timeout = 300ms) {
  client_options options = base_options();
  options.timeout = timeout;
  return options;
}

void unreachable(std::string url) {
  client_options options = impatient_options();
  options.url = std::move(url);
  make_subject(std::move(options));
  const error failure = must_fail(await_acquire("k", 60s), error_code::service_unavailable);
  assert_true(failure.retryable());
  assert_false(failure.outcome_unknown());
  assert_false(failure.cause().empty());
  assert_text_equal(failure.key(), "k");
  assert_true(subject().state() == connection_state::connecting);
}

void socket_that_is_not_there_is_unavailable(void**) { unreachable("unix://" + server().folder() + "/none.sock"); }

void port_that_nobody_listens_at_is_unavailable(void**) { unreachable("redis://127.0.0.1:1"); }

void name_that_does_not_exist_is_unavailable(void**) { unreachable("redis://no-such-host.invalid:6379"); }

// Each attempt that fails is told. The pauses double, so few fit into any time.
void attempts_to_connect_become_rarer(void**) {
  client_options options = impatient_options();
  options.url = "unix://" + server().folder() + "/none.sock";
  options.reconnect_min = 1ms;
  options.reconnect_max = 1h;
  make_subject(std::move(options));
  run_for(500ms);
  assert_in_range(states().size(), 2, 20);
}

void every_kind_of_operation_is_unavailable_without_a_server(void**) {
  client_options options = impatient_options();
  options.url = "unix://" + server().folder() + "/none.sock";
  make_subject(std::move(options));
  const auto failed = std::make_shared<int>(0);
  for (const kind which : all_kinds) {
    start_any(which, subject(), "k", own_id, [failed](const error* failure) {
      if (failure != nullptr && failure->code() == error_code::service_unavailable) ++*failed;
    });
  }
  assert_true(run_until([] { return subject().stats().pending == 0; }));
  assert_int_equal(*failed, 9);
}

void server_that_comes_back_completes_what_waited(void**) {
  server().kill_hard();
  std::vector<started_acquire> all;
  for (int index = 0; index < 100; ++index) all.push_back(start_acquire("k" + std::to_string(index), 60s));
  run_for(30ms);
  assert_true(server().start());
  await_all(all);
  for (const auto& one : all) must_have(one.outcome());
  assert_true(saw_state(connection_state::connecting));
}

void server_that_starts_after_the_client_is_found(void**) {
  server().kill_hard();
  make_subject(base_options());
  const auto got = start_acquire("k", 60s);
  run_for(50ms);
  assert_true(server().start());
  must_have(await(got));
}

void loss_of_the_connection_is_told_with_its_cause(void**) {
  states().clear();
  server().kill_hard();
  assert_true(run_until([] { return saw_state(connection_state::connecting); }));
  assert_true(states().front().cause.has_value());
  assert_true(states().front().cause->code() == error_code::service_unavailable);
}

// Written to a server that died before it read them: sent again, the callers see nothing.
void operations_lost_with_the_connection_are_sent_again(void**) {
  server().pause();
  std::vector<started_acquire> all;
  for (int index = 0; index < 50; ++index) all.push_back(start_acquire("k" + std::to_string(index), 60s));
  const auto locked = start_is_locked("k49");
  run_for(30ms);
  server().kill_hard();
  assert_true(server().start());
  await_all(all);
  for (const auto& one : all) assert_int_equal(must_have(one.outcome()).fence.number(), 1);
  assert_true(must(await(locked)));
  assert_int_equal(subject().stats().resent, 51);
}

void order_survives_the_loss_of_the_connection(void**) {
  server().pause();
  const auto acquired = start_acquire("k", 60s);
  run_for(20ms);
  const auto refused = start_acquire("k", 60s);
  const auto locked = start_is_locked("k");
  run_for(20ms);
  server().kill_hard();
  assert_true(server().start());
  must_have(await(acquired));
  assert_false(must(await(refused)).has_value());
  assert_true(must(await(locked)));
}

// Whether an answer was lost or not, nothing is granted twice, and the key's own counter shows it.
void connection_killed_with_operations_in_flight_grants_each_once(void**) {
  std::vector<started_acquire> all;
  for (int round = 0; round < 10; ++round) {
    for (int index = 0; index < 100; ++index)
      all.push_back(start_acquire("k" + std::to_string(round * 100 + index), 60s));
    turn();
    redis({"CLIENT", "KILL", "TYPE", "normal"});
    run_for(5ms);
  }
  await_all(all);
  for (std::size_t index = 0; index < all.size(); ++index) {
    const grant got = must_have(all[index].outcome());
    assert_int_equal(got.fence.number(), 1);
    assert_text_equal(text_at(fence_key("k" + std::to_string(index))), "1");
  }
}

void restart_in_the_middle_completes_each_once(void**) {
  std::vector<started_acquire> all;
  for (int round = 0; round < 4; ++round) {
    for (int index = 0; index < 100; ++index)
      all.push_back(start_acquire("k" + std::to_string(round * 100 + index), 60s));
    turn();
    if (round == 1) assert_true(server().restart());
    turn();
  }
  await_all(all);
  for (const auto& one : all) must_have(one.outcome());
}

void silent_server_is_a_time_out_with_unknown_outcome(void**) {
  make_ready_subject(impatient_options());
  server().pause();
  const auto got = start_acquire("k", 60s);
  const error failure = must_fail(await(got), error_code::network_timeout);
  assert_true(failure.outcome_unknown());
  assert_true(failure.retryable());
  assert_text_equal(failure.key(), "k");
}

void silent_server_that_recovers_gives_the_lock_back(void**) {
  make_ready_subject(impatient_options());
  server().pause();
  must_fail(await_acquire("k", 60s), error_code::network_timeout);
  server().resume();
  assert_true(run_until([] { return exists(fence_key("k")) && !exists(lock_key("k")); }));
  assert_true(run_until([] { return subject().state() == connection_state::ready; }));
  hold("k");
}

void silent_server_times_out_every_kind_of_operation(void**) {
  make_ready_subject(impatient_options());
  server().pause();
  const auto timed_out = std::make_shared<int>(0);
  for (const kind which : all_kinds) {
    start_any(which, subject(), "k", own_id, [timed_out](const error* failure) {
      if (failure != nullptr && failure->code() == error_code::network_timeout) ++*timed_out;
    });
  }
  assert_true(run_until([] { return subject().stats().pending == 0; }));
  assert_int_equal(*timed_out, 9);
  server().resume();
}

// Steady sending must not push the deadline of what was sent before.
void silent_server_times_out_the_first_while_others_are_sent(void**) {
  make_ready_subject(impatient_options());
  server().pause();
  const auto first = start_is_locked("k");
  std::vector<started_bool> more;
  for (int round = 0; round < 200 && !first.done(); ++round) {
    more.push_back(start_is_locked("k"));
    run_for(10ms);
  }
  assert_true(first.done());
  must_fail(first.outcome(), error_code::network_timeout);
  server().resume();
  await_all(more);
}

void server_that_never_answers_the_handshake_times_operations_out(void**) {
  server().pause();
  make_subject(impatient_options());
  const auto outcome = await_acquire("k", 60s);
  assert_false(outcome.has_value());
  assert_true(outcome.error().code() == error_code::network_timeout ||
              outcome.error().code() == error_code::service_unavailable);
  assert_false(outcome.error().outcome_unknown());
}

// The loop was busy elsewhere, the answer lies in the socket: it counts.
void answer_that_waits_behind_a_stalled_loop_is_taken(void**) {
  make_ready_subject(impatient_options(200ms));
  server().pause();
  const auto got = start_acquire("k", 60s);
  turn();
  server().resume();
  // Until the server has answered; nothing turns the loop meanwhile.
  for (int wait = 0; wait < 5000 && !exists(lock_key("k")); ++wait) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(400ms);
  must_have(await(got));
}

}  // namespace

cases outage_cases() {
  static const CMUnitTest all[] = {
      contract_case_alone(socket_that_is_not_there_is_unavailable),
      contract_case_alone(port_that_nobody_listens_at_is_unavailable),
      contract_case_alone(name_that_does_not_exist_is_unavailable),
      contract_case_alone(attempts_to_connect_become_rarer),
      contract_case_alone(every_kind_of_operation_is_unavailable_without_a_server),
      contract_case(server_that_comes_back_completes_what_waited),
      contract_case_alone(server_that_starts_after_the_client_is_found),
      contract_case(loss_of_the_connection_is_told_with_its_cause),
      contract_case(operations_lost_with_the_connection_are_sent_again),
      contract_case(order_survives_the_loss_of_the_connection),
      contract_case(connection_killed_with_operations_in_flight_grants_each_once),
      contract_case(restart_in_the_middle_completes_each_once),
      contract_case_alone(silent_server_is_a_time_out_with_unknown_outcome),
      contract_case_alone(silent_server_that_recovers_gives_the_lock_back),
      contract_case_alone(silent_server_times_out_every_kind_of_operation),
      contract_case_alone(silent_server_times_out_the_first_while_others_are_sent),
      contract_case_alone(server_that_never_answers_the_handshake_times_operations_out),
      contract_case_alone(answer_that_waits_behind_a_stalled_loop_is_taken),
  };
  return all;
}

}  // namespace syncguard::testing
