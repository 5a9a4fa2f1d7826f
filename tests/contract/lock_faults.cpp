// Held and wanted locks while scripts vanish, connections die, or the server does not let itself be watched.

#include <string>

#include "contract/cases.hpp"
#include "contract/locks.hpp"

namespace syncguard::testing {

namespace {

void scripts_flushed_while_holding_cost_nothing(void**) {
  syncguard::lock held = hold_lock("k", {.ttl = 1s});
  const auto gone = record_loss(held);
  for (int round = 0; round < 12; ++round) {
    assert_true(redis({"SCRIPT", "FLUSH"}).is_text("OK"));
    run_for(100ms);
  }
  assert_true(held.valid());
  assert_false(gone->told());
  assert_true(subject().stats().scripts_reloaded > 0);
}

void scripts_flushed_while_waiting_cost_nothing(void**) {
  auto theirs = std::make_unique<syncguard::lock>(hold_lock("k", steady, rival()));
  const auto waiting = start_waiting("k");
  redis({"SCRIPT", "FLUSH"});
  theirs.reset();
  assert_true(await_lock(waiting).valid());
  redis({"SCRIPT", "FLUSH"});
  assert_true(hold_lock("other").valid());
}

void connections_killed_while_holding_keep_the_lock(void**) {
  syncguard::lock held = hold_lock("k", {.ttl = 2s});
  const auto gone = record_loss(held);
  await_watching();
  for (int round = 0; round < 7; ++round) {
    redis({"CLIENT", "KILL", "TYPE", "normal"});
    run_for(400ms);
  }
  assert_true(held.valid());
  assert_false(gone->told());
  assert_int_equal(held.fence().number(), 1);
  assert_true(subject().stats().connects > 4);
}

// Changes that nobody was told of are found when the connection is there again.
void lock_deleted_while_no_connection_was_there_is_told_afterwards(void**) {
  warm_up();
  syncguard::lock held = hold_lock("k", {.ttl = 10min});
  run_for(20ms);
  const auto gone = record_loss(held);
  redis({"CLIENT", "KILL", "TYPE", "normal"});
  redis({"DEL", lock_key("k"), index_key(held.id())});
  await_loss(gone, lost::vanished);
}

void connections_killed_while_waiting_do_not_lose_the_waiter(void**) {
  auto theirs = std::make_unique<syncguard::lock>(hold_lock("k", steady, rival()));
  const auto waiting = start_waiting("k");
  redis({"CLIENT", "KILL", "TYPE", "normal"});
  assert_true(run_until([] { return subject().stats().connects >= 2; }));
  assert_true(run_until([] { return rival().stats().connects >= 2; }));
  theirs.reset();
  assert_true(await_lock(waiting).valid());
}

void lock_released_while_the_waiter_had_no_connection_is_had_soon(void**) {
  const grant theirs = hold("k", 10min, rival());
  const auto waiting = start_waiting("k");
  redis({"CLIENT", "KILL", "TYPE", "normal"});
  redis({"DEL", lock_key("k"), index_key(theirs.id)});
  assert_true(await_lock(waiting).valid());
}

void watching_comes_back_with_the_connection(void**) {
  auto theirs = std::make_unique<syncguard::lock>(hold_lock("k", steady, rival()));
  const auto waiting = start_waiting("k");
  redis({"CLIENT", "KILL", "TYPE", "normal"});
  assert_true(run_until([] { return !subject().stats().watching; }));
  await_watching();
  run_for(100ms);
  const std::uint64_t wakes = subject().stats().wakes;
  theirs.reset();
  assert_true(await_lock(waiting).valid());
  assert_true(subject().stats().wakes > wakes);
}

void server_stopped_for_a_while_keeps_lock_and_waiter(void**) {
  syncguard::lock mine = hold_lock("mine", {.ttl = 5s});
  auto theirs = std::make_unique<syncguard::lock>(hold_lock("k", {.ttl = 5s}, rival()));
  const auto waiting = start_waiting("k");
  server().pause();
  run_for(1s);
  server().resume();
  run_for(200ms);
  assert_true(mine.valid());
  theirs.reset();
  assert_true(await_lock(waiting).valid());
}

void lock_wanted_before_there_is_a_server_is_had_when_it_comes(void**) {
  server().kill_hard();
  make_subject(base_options());
  const auto waiting = start_lock("k");
  run_for(200ms);
  assert_false(waiting.done());
  assert_true(server().start());
  assert_true(await_lock(waiting).valid());
}

void lock_wanted_without_a_server_fails_when_patience_ends(void**) {
  server().kill_hard();
  client_options options = base_options();
  options.timeout = 300ms;
  make_subject(std::move(options));
  const auto waiting = start_lock("k", {.ttl = 60s, .wait = 500ms});
  assert_true(run_until([&] { return waiting.done(); }));
  assert_false(waiting.granted());
  const error_code seen = waiting.got->failure->code();
  assert_true(seen == error_code::service_unavailable || seen == error_code::network_timeout);
}

client_options guest_options() {
  client_options options = base_options();
  options.url = tcp_url("guest:secret@");
  return options;
}

// Everything is allowed but to be told of changes.
void waiting_without_the_right_to_track_works_by_asking_again(void**) {
  assert_true(
      redis({"ACL", "SETUSER", "guest", "reset", "on", ">secret", "~*", "+@all", "-client|tracking"}).is_text("OK"));
  make_ready_subject(guest_options());
  auto theirs = std::make_unique<syncguard::lock>(hold_lock("k", steady, rival()));
  const auto waiting = start_lock("k");
  run_for(700ms);
  assert_false(waiting.done());
  assert_false(subject().stats().watching);
  const std::uint64_t attempts = subject().stats().attempts;
  assert_true(attempts >= 2 && attempts <= 100);
  theirs.reset();
  assert_true(await_lock(waiting).valid());
  assert_int_equal(subject().stats().wakes, 0);
  assert_true(subject().state() == connection_state::ready);
}

void holding_without_the_right_to_track_finds_out_by_heartbeat(void**) {
  assert_true(
      redis({"ACL", "SETUSER", "guest", "reset", "on", ">secret", "~*", "+@all", "-client|tracking"}).is_text("OK"));
  make_ready_subject(guest_options());
  syncguard::lock held = hold_lock("k", {.ttl = 1s});
  const auto gone = record_loss(held);
  run_for(1200ms);
  assert_true(held.valid());
  redis({"DEL", lock_key("k"), index_key(held.id())});
  await_loss(gone, lost::vanished);
}

}  // namespace

cases lock_fault_cases() {
  static const CMUnitTest all[] = {
      contract_case(scripts_flushed_while_holding_cost_nothing),
      contract_case(scripts_flushed_while_waiting_cost_nothing),
      contract_case(connections_killed_while_holding_keep_the_lock),
      contract_case(lock_deleted_while_no_connection_was_there_is_told_afterwards),
      contract_case(connections_killed_while_waiting_do_not_lose_the_waiter),
      contract_case(lock_released_while_the_waiter_had_no_connection_is_had_soon),
      contract_case(watching_comes_back_with_the_connection),
      contract_case(server_stopped_for_a_while_keeps_lock_and_waiter),
      contract_case_alone(lock_wanted_before_there_is_a_server_is_had_when_it_comes),
      contract_case_alone(lock_wanted_without_a_server_fails_when_patience_ends),
      contract_case_alone(waiting_without_the_right_to_track_works_by_asking_again),
      contract_case_alone(holding_without_the_right_to_track_finds_out_by_heartbeat),
  };
  return all;
}

}  // namespace syncguard::testing
