// Stalls, retries and cancels at awkward moments: what an operation or a client must come back from.

#include <unistd.h>

#include <string>
#include <vector>

#include "contract/cases.hpp"
#include "contract/operations.hpp"
#include "contract/stored.hpp"
#include "redis/event_loop.hpp"

namespace syncguard::testing {

namespace {

std::int64_t now_ms() { return redis::now_us() / 1000; }

void recovery_operation_started_at_the_end_of_another_clients_turn_is_sent(void**) {
  rival();
  run_for(50ms);
  static bool answered;
  answered = false;
  // Refused, hence told at the end of this turn.
  subject().acquire("", 1s, [](const result<std::optional<grant>>&) {
    rival().acquire("b", 1s, [](const result<std::optional<grant>>&) { answered = true; });
  });
  assert_true(run_until([] { return answered; }));
}

void recovery_closed_client_stays_closed_with_work_of_its_own_left(void**) {
  client_options options = base_options();
  options.timeout = 300ms;
  options.cleanup_in_is_locked = true;
  make_ready_subject(std::move(options));
  store_expiring(own_id, -10s);
  static int closed;
  closed = 0;
  subject().is_locked("k", [](const result<bool>&) { subject().close([](const result<void>&) { ++closed; }); });
  assert_true(run_until([] { return closed == 1; }));
  states().clear();
  run_for(1500ms);
  assert_true(states().empty());
  assert_true(subject().state() == connection_state::closed);
}

void recovery_close_ends_with_the_last_operation_that_timed_out(void**) {
  client_options options = base_options();
  options.url = "unix:///nowhere/redis.sock";
  options.timeout = 100ms;
  options.reconnect_min = options.reconnect_max = std::chrono::hours{1};
  make_subject(std::move(options));
  run_for(20ms);
  const auto got = start_acquire("k", 60s);
  const auto closed = start_close();
  must_fail(await(got), error_code::service_unavailable);
  must(await(closed));
}

void recovery_close_ends_though_the_server_fell_silent(void**) {
  client_options options = base_options();
  options.timeout = 1000ms;
  options.on_connection = [](connection_state state, const error*) {
    if (state == connection_state::ready) server().pause();
  };
  server().kill_hard();
  make_subject(std::move(options));
  const std::int64_t begun = now_ms();
  const auto got = start_acquire("k", 60s);
  const auto closed = start_close();
  while (now_ms() - begun < 600) run_for(10ms);
  assert_true(server().start());
  (void)await(got);
  must(await(closed));
  server().resume();
}

void recovery_sink_may_cancel_what_it_is_told_of(void**) {
  static std::vector<operation_handle> handles;
  handles.clear();
  client_options options = base_options();
  options.timeout = 200ms;
  options.url = "unix:///nowhere/redis.sock";
  options.telemetry = [](const telemetry_event&) {
    for (const auto& each : handles) subject().cancel(each);
  };
  make_subject(std::move(options));
  std::vector<started_acquire> all;
  for (int index = 0; index < 5; ++index) {
    all.push_back(start_acquire("k" + std::to_string(index), 1s));
    handles.push_back(all.back().handle);
  }
  await_all(all);
  run_for(50ms);
  assert_int_equal(subject().stats().pending, 0);
}

void recovery_sink_that_cancels_a_grant_comes_too_late(void**) {
  static operation_handle handle;
  client_options options = base_options();
  options.telemetry = [](const telemetry_event& event) {
    if (event.type == telemetry_type::acquire) subject().cancel(handle);
  };
  make_ready_subject(std::move(options));
  const auto got = start_acquire("k", 60s);
  handle = got.handle;
  assert_true(must(await(got)).has_value());
  assert_true(exists(lock_key("k")));
}

void recovery_deadline_counts_from_the_call_not_from_the_turn(void**) {
  client_options options = base_options();
  options.timeout = 500ms;
  make_ready_subject(std::move(options));
  static std::string outcome;
  outcome.clear();
  subject().lookup("k", [](const result<std::optional<lock_info>>&) {
    usleep(800'000);
    subject().acquire(
        "k", 1s, [](const result<std::optional<grant>>& got) { outcome = got ? "granted" : describe(got.error()); });
  });
  assert_true(run_until([] { return !outcome.empty(); }));
  assert_text_equal(outcome, "granted");
}

void recovery_reads_after_a_lost_link_know_the_servers_time(void**) {
  redis({"REPLICAOF", "127.0.0.1", "1"});
  static int good;
  static int bad;
  static bool refused;
  good = bad = 0;
  refused = false;
  subject().acquire("k", 60s, [](const result<std::optional<grant>>&) {
    refused = true;
    for (int index = 0; index < 64; ++index)
      subject().lookup("k", [](const result<std::optional<lock_info>>& found) { ++(found ? good : bad); });
  });
  assert_true(run_until([] { return refused; }));
  redis({"REPLICAOF", "NO", "ONE"});
  assert_true(run_until([] { return good + bad == 64; }));
  assert_int_equal(good, 64);
}

void recovery_connection_is_not_dropped_before_a_deadline(void**) {
  const grant got = hold("k");
  // The wheel of timers sorts itself at multiples of 4096: one of them lies within the silence.
  while ((now_ms() + 5000) % 4096 != 2000) turn();
  states().clear();
  server().pause();
  const std::int64_t begun = now_ms();
  const auto released = start_release(got.id);
  while (now_ms() - begun < 3300) run_for(50ms);
  server().resume();
  assert_true(must(await(released)));
  assert_false(saw_state(connection_state::connecting));
}

void recovery_dead_connection_is_dropped_though_callers_give_up_early(void**) {
  client_options options = base_options();
  options.timeout = 400ms;
  make_ready_subject(std::move(options));
  server().pause();
  states().clear();
  const std::int64_t begun = now_ms();
  while (now_ms() - begun < 20'000 && !saw_state(connection_state::connecting)) {
    const auto got = start_acquire("k", 60s);
    run_for(20ms);
    subject().cancel(got.handle);
    run_for(180ms);
  }
  server().resume();
  assert_true(saw_state(connection_state::connecting));
}

// Retries until it is accepted.
struct stubborn {
  int* tries;
  bool* done;
  void operator()(const result<std::optional<grant>>& got) const {
    const bool full = !got && got.error().code() == error_code::rate_limited;
    if (!full || ++*tries == 200'000) {
      *done = true;
      return;
    }
    subject().acquire("b", 1s, stubborn{*this});
  }
};

void recovery_retry_in_a_callback_leaves_the_loop_to_others(void**) {
  client_options options = base_options();
  options.max_pending = 1;
  make_ready_subject(std::move(options));
  static int tries;
  static bool done;
  tries = 0;
  done = false;
  const auto first = start_acquire("a", 1s);
  subject().acquire("b", 1s, stubborn{&tries, &done});
  assert_true(run_until([] { return done; }));
  assert_true(tries < 200'000);
  (void)await(first);
}

void recovery_record_with_line_breaks_shifts_no_answer(void**) {
  const grant theirs = hold("held", 60s, rival());
  redis({"SET", lock_key("odd"),
         "{\"lockId\":\"AAAAAAAAAAAAAAAAAAAAAA\",\"expiresAtMs\":2\n           ,\"acquiredAtMs\":1,\"key\":\"odd\","
         "\"fence\":\"000000000000001\"}",
         "PX", "60000"});
  const auto odd = start_acquire("odd", 60s);
  const auto mine = start_acquire("mine", 60s);
  const auto held = start_acquire("held", 60s);
  await_all(std::vector{odd, mine, held});
  assert_true(must(mine.outcome()).has_value());
  assert_false(must(held.outcome()).has_value());
  assert_true(must(await_owns(theirs.id, rival())));
}

void recovery_read_that_kills_its_link_is_given_up(void**) {
  redis({"SET", lock_key("huge"), std::string(std::size_t{17} << 20, 'x'), "PX", "60000"});
  states().clear();
  must_fail(await_lookup("huge"), error_code::service_unavailable);
  int lost = 0;
  for (const auto& each : states()) lost += each.state == connection_state::connecting ? 1 : 0;
  assert_int_equal(lost, 3);
  assert_true(must(await_acquire("other", 60s)).has_value());
}

}  // namespace

cases recovery_cases() {
  static const CMUnitTest all[] = {
      contract_case(recovery_operation_started_at_the_end_of_another_clients_turn_is_sent),
      contract_case_alone(recovery_closed_client_stays_closed_with_work_of_its_own_left),
      contract_case_alone(recovery_close_ends_with_the_last_operation_that_timed_out),
      contract_case_alone(recovery_close_ends_though_the_server_fell_silent),
      contract_case_alone(recovery_sink_may_cancel_what_it_is_told_of),
      contract_case_alone(recovery_sink_that_cancels_a_grant_comes_too_late),
      contract_case_alone(recovery_deadline_counts_from_the_call_not_from_the_turn),
      contract_case(recovery_reads_after_a_lost_link_know_the_servers_time),
      contract_case(recovery_connection_is_not_dropped_before_a_deadline),
      contract_case_alone(recovery_dead_connection_is_dropped_though_callers_give_up_early),
      contract_case_alone(recovery_retry_in_a_callback_leaves_the_loop_to_others),
      contract_case(recovery_record_with_line_breaks_shifts_no_answer),
      contract_case(recovery_read_that_kills_its_link_is_given_up),
  };
  return all;
}

}  // namespace syncguard::testing
