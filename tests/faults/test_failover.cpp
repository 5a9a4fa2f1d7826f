// A server that is replaced by another: a replica that never saw the last writes, a master that was demoted, a name
// that leads elsewhere. Built for each loop.

#include <csignal>
#include <memory>
#include <string>

#include "contract/locks.hpp"
#include "faults/cutting_proxy.hpp"
#include "faults/moving_name.hpp"

namespace syncguard::testing {

namespace {

std::unique_ptr<redis_server> second;
std::unique_ptr<cutting_proxy> proxy;
gate* way = nullptr;

std::string port_of_first() { return tcp_url().substr(tcp_url().rfind(':') + 1); }

int set_up_replica(void** state) {
  if (set_up(state) != 0 || !server().config_set("repl-diskless-sync-delay", "0")) return -1;
  second = std::make_unique<redis_server>(redis_options{.config_lines = {"replicaof 127.0.0.1 " + port_of_first()}});
  if (!second->start()) return -1;
  proxy = std::make_unique<cutting_proxy>(server().socket_path());
  way = proxy->make_gate();
  return way != nullptr ? 0 : -1;
}

int tear_down_replica(void** state) {
  const int outcome = tear_down(state);
  proxy.reset();
  second.reset();
  return outcome;
}

bool follows() {
  return second->command({"INFO", "replication"}).text.find("master_link_status:up") != std::string::npos;
}

client_options proxied_options() {
  client_options options = watched_options(true);
  options.url = way->url();
  return options;
}

std::size_t told_of(telemetry_type type) {
  std::size_t count = 0;
  for (const seen_event& each : events()) count += each.type == type ? 1 : 0;
  return count;
}

// The promise does not hold across a failover that loses writes; that it happened must be seen.
void failover_that_loses_writes_is_noticed(void**) {
  assert_true(run_until(follows, 60s));
  make_ready_subject(proxied_options());
  { const syncguard::lock early = hold_lock("k"); }
  assert_true(run_until([] { return subject().stats().pending == 0; }));
  assert_true(run_until([] { return second->command({"GET", fence_key("k")}).is_text("1"); }));

  assert_true(second->command({"REPLICAOF", "NO", "ONE"}).is_text("OK"));
  // Nobody has told the client: it goes on with the old master, whose writes are lost.
  for (int round = 0; round < 3; ++round) {
    { const syncguard::lock unseen = hold_lock("k"); }
    assert_true(run_until([] { return subject().stats().pending == 0; }));
  }
  syncguard::lock held = hold_lock("k", {.ttl = 2s, .wait = 60s});
  assert_int_equal(held.fence().number(), 5);
  const auto gone = record_loss(held);
  assert_text_equal(second->command({"GET", fence_key("k")}).text, "1");
  assert_int_equal(told_of(telemetry_type::fence_regressed), 0);

  way->lead_to(second->socket_path());
  await_loss(gone, lost::vanished);
  assert_false(held.valid());
  assert_int_equal(told_of(telemetry_type::fence_regressed), 0);

  const syncguard::lock again = hold_lock("k");
  assert_int_equal(again.fence().number(), 2);
  assert_text_equal(only_event(telemetry_type::fence_regressed).raw_key, "k");
}

// No write was lost: then nothing is noticed at all.
void failover_that_loses_nothing_keeps_the_lock(void**) {
  assert_true(run_until(follows, 60s));
  make_ready_subject(proxied_options());
  syncguard::lock held = hold_lock("k", {.ttl = 5s, .wait = 60s});
  const auto gone = record_loss(held);
  assert_true(run_until([] { return !second->command({"GET", lock_key("k")}).text.empty(); }));
  assert_true(second->command({"REPLICAOF", "NO", "ONE"}).is_text("OK"));
  way->lead_to(second->socket_path());
  assert_true(run_until([] { return subject().stats().connects == 2; }));
  run_for(2500ms);  // a heartbeat
  assert_true(held.valid());
  assert_false(gone->told());
  assert_true(must(await(start_release(held))));
  assert_int_equal(hold_lock("k").fence().number(), 2);
  assert_int_equal(told_of(telemetry_type::fence_regressed), 0);
}

// A replica takes no heartbeats.
void demotion_while_holding_is_told_in_time(void**) {
  make_ready_subject(base_options());
  syncguard::lock held = hold_lock("k", {.ttl = 1s, .wait = 60s});
  await_watching();
  const auto gone = record_loss(held);
  redis({"REPLICAOF", "127.0.0.1", "1"});
  await_loss(gone, lost::unconfirmed);
  assert_false(held.valid());
  redis({"REPLICAOF", "NO", "ONE"});
  assert_true(hold_lock("k").valid());
}

// --- names -----------------------------------------------------------------------------------------------------------

// At the same port of another address of this machine.
int set_up_second_address(void** state) {
  if (set_up(state) != 0) return -1;
  second = std::make_unique<redis_server>(
      redis_options{.config_lines = {"bind 127.0.0.2", "protected-mode no", "port " + port_of_first()}});
  if (second->start()) return 0;
  second.reset();
  return -1;
}

int tear_down_second_address(void** state) {
  const int outcome = tear_down(state);
  second.reset();
  return outcome;
}

void name_that_changes_its_address_is_followed(void**) {
  move_name("127.0.0.1");
  client_options options = base_options();
  options.url = tcp_url("", moving_name);
  make_ready_subject(std::move(options));
  assert_true(must(await_acquire("k", 60s)).has_value());
  assert_true(exists(lock_key("k")));
  const int asked = times_resolved();

  move_name("127.0.0.2");
  redis({"CLIENT", "KILL", "TYPE", "normal"});
  assert_true(run_until([] { return subject().stats().connects == 2; }));
  assert_true(times_resolved() > asked);
  assert_int_equal(hold("k").fence.number(), 1);  // a server that has never heard of it
  assert_false(second->command({"GET", lock_key("k")}).text.empty());
}

// Not there for a while: it is asked for again, at a pace that slows down.
void name_that_is_not_found_for_a_while_is_asked_for_again(void**) {
  move_name("");
  client_options options = base_options();
  options.url = tcp_url("", moving_name);
  const int asked = times_resolved();
  make_subject(std::move(options));
  const auto waiting = start_acquire("k", 60s);
  run_for(400ms);
  assert_false(waiting.done());
  const int tries = times_resolved() - asked;
  note("asked for the name %d times in 400 ms", tries);
  assert_true(tries >= 2 && tries <= 60);
  move_name("127.0.0.1");
  assert_true(must(await(waiting)).has_value());
}

#define replica_case(name) cmocka_unit_test_setup_teardown(name, set_up_replica, tear_down_replica)

}  // namespace

}  // namespace syncguard::testing

int main(int count, char** arguments) {
  using namespace syncguard::testing;
  std::signal(SIGPIPE, SIG_IGN);
  if (count > 1) cmocka_set_test_filter(arguments[1]);
  const CMUnitTest tests[] = {
      replica_case(failover_that_loses_writes_is_noticed),
      replica_case(failover_that_loses_nothing_keeps_the_lock),
      contract_case_alone(demotion_while_holding_is_told_in_time),
      cmocka_unit_test_setup_teardown(name_that_changes_its_address_is_followed, set_up_second_address,
                                      tear_down_second_address),
      contract_case_alone(name_that_is_not_found_for_a_while_is_asked_for_again),
  };
  return cmocka_run_group_tests_name("failover", tests, start_world, stop_world);
}
