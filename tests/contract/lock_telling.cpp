// What held and wanted locks leave in telemetry and in the counters.

#include <algorithm>
#include <string>

#include "contract/cases.hpp"
#include "contract/locks.hpp"

namespace syncguard::testing {

namespace {

int set_up_watched(void** state) {
  if (set_up(state) != 0) return -1;
  make_subject(watched_options(true));
  return run_until([] { return subject().state() == connection_state::ready; }) ? 0 : -1;
}

auto count_events(telemetry_type type, bool ok, telemetry_reason reason = telemetry_reason::none) {
  return std::count_if(events().begin(), events().end(), [&](const seen_event& event) {
    return event.type == type && event.ok == ok && event.reason == reason;
  });
}

void attempt_that_is_granted_is_told_as_acquire(void**) {
  const syncguard::lock held = hold_lock("k");
  const seen_event event = only_event(telemetry_type::acquire);
  assert_true(event.ok);
  assert_true(event.key == hash_key("k"));
  assert_true(event.id == hash_key(held.id()));
  assert_text_equal(event.raw_key, "k");
  assert_text_equal(event.raw_id, held.id().view());
}

void attempt_that_is_contended_is_told_as_locked(void**) {
  auto theirs = std::make_unique<syncguard::lock>(hold_lock("k", steady, rival()));
  warm_up();
  events().clear();
  const auto waiting = start_lock("k");
  assert_true(run_until([] { return count_events(telemetry_type::acquire, false, telemetry_reason::locked) == 1; }));
  // Something of the warm-up may still be told.
  const auto contended = std::find_if(events().begin(), events().end(), [](const seen_event& event) {
    return event.type == telemetry_type::acquire && event.reason == telemetry_reason::locked;
  });
  assert_text_equal(contended->raw_key, "k");
  assert_text_equal(contended->raw_id, "");
  theirs.reset();
  assert_true(run_until([&] { return waiting.granted(); }));
  assert_int_equal(count_events(telemetry_type::acquire, true), 1);
}

void heartbeats_are_told_as_extends(void**) {
  const syncguard::lock held = hold_lock("k", brief);
  run_for(1s);
  const auto beats = count_events(telemetry_type::extend, true);
  assert_true(beats >= 3);
  assert_true(std::abs(static_cast<long>(beats) - static_cast<long>(subject().stats().heartbeats)) <= 1);
  for (const seen_event& event : events())
    if (event.type == telemetry_type::extend) assert_true(event.id == hash_key(held.id()));
}

void heartbeat_of_a_vanished_lock_is_told_as_not_found(void**) {
  warm_up();
  syncguard::lock held = hold_lock("k");
  run_for(10ms);
  const auto gone = record_loss(held);
  redis({"FLUSHALL"});
  await_loss(gone, lost::vanished);
  assert_int_equal(count_events(telemetry_type::extend, false, telemetry_reason::not_found), 1);
}

void destructor_is_told_as_release(void**) {
  std::string id;
  {
    const syncguard::lock held = hold_lock("k");
    id = held.id().view();
  }
  const seen_event event = only_event(telemetry_type::release);
  assert_true(event.ok);
  assert_text_equal(event.raw_id, id);
}

void counters_follow_the_locks(void**) {
  const client_stats fresh = subject().stats();
  assert_int_equal(fresh.held + fresh.waiting + fresh.attempts + fresh.wakes + fresh.heartbeats + fresh.lost, 0);
  assert_false(fresh.watching);

  std::vector<syncguard::lock> held;
  for (int index = 0; index < 5; ++index) held.push_back(hold_lock("k" + std::to_string(index)));
  assert_int_equal(subject().stats().held, 5);
  assert_true(subject().stats().attempts >= 5);
  assert_int_equal(subject().stats().waiting, 0);
  await_watching();

  held.pop_back();
  assert_int_equal(subject().stats().held, 4);
  assert_true(must(await(start_release(held[0]))));
  assert_int_equal(subject().stats().held, 3);
  redis({"FLUSHALL"});
  assert_true(run_until([] { return subject().stats().lost == 3; }));
  assert_int_equal(subject().stats().held, 0);
}

void counter_of_waiting_follows_the_waiters(void**) {
  const syncguard::lock theirs = hold_lock("k", steady, rival());
  std::vector<started_lock> waiting;
  for (int index = 0; index < 4; ++index) waiting.push_back(start_lock("k"));
  assert_int_equal(subject().stats().waiting, 4);
  run_for(20ms);
  assert_int_equal(subject().stats().waiting, 4);
  subject().cancel(waiting[2].handle);
  await_failure(waiting[2], error_code::aborted);
  assert_int_equal(subject().stats().waiting, 3);
}

// Heartbeats and attempts are the client's own; nobody started them by hand.
void counters_of_operations_leave_out_what_nobody_started(void**) {
  const syncguard::lock held = hold_lock("k", brief);
  run_for(800ms);
  assert_true(subject().stats().heartbeats > 0);
  assert_int_equal(subject().stats().started, 0);
  assert_int_equal(subject().stats().completed, 0);
  assert_int_equal(subject().stats().pending, 0);
}

void client_that_never_locks_makes_one_connection(void**) {
  hold("k");
  run_for(50ms);
  assert_false(subject().stats().watching);
  assert_true(redis({"INFO", "clients"}).text.find("connected_clients:2\r\n") != std::string::npos);
  const syncguard::lock held = hold_lock("other");
  await_watching();
  assert_true(redis({"INFO", "clients"}).text.find("connected_clients:3\r\n") != std::string::npos);
}

#define watched_case(name) cmocka_unit_test_setup_teardown(name, set_up_watched, tear_down)

}  // namespace

cases lock_telling_cases() {
  static const CMUnitTest all[] = {
      watched_case(attempt_that_is_granted_is_told_as_acquire),
      watched_case(attempt_that_is_contended_is_told_as_locked),
      watched_case(heartbeats_are_told_as_extends),
      watched_case(heartbeat_of_a_vanished_lock_is_told_as_not_found),
      watched_case(destructor_is_told_as_release),
      contract_case(counters_follow_the_locks),
      contract_case(counter_of_waiting_follows_the_waiters),
      contract_case(counters_of_operations_leave_out_what_nobody_started),
      contract_case(client_that_never_locks_makes_one_connection),
  };
  return all;
}

}  // namespace syncguard::testing
