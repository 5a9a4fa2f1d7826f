// Heartbeats keep a lock alive; without them it ends on time, and is told so before the server lets it go.

#include "contract/cases.hpp"
#include "contract/locks.hpp"

namespace syncguard::testing {

namespace {

void heartbeats_keep_a_lock_beyond_several_lives(void**) {
  syncguard::lock held = hold_lock("k", brief);
  const auto gone = record_loss(held);
  const server_time first = held.expires_at();
  for (int round = 0; round < 15; ++round) {
    run_for(100ms);
    assert_true(held.valid());
    assert_true(pttl(lock_key("k")) > 0);
  }
  assert_false(gone->told());
  assert_true(held.expires_at() - first >= 800ms);
  // A heartbeat may come in between.
  assert_true(run_until([&] { return held.expires_at() == must_have(await_lookup("k")).expires_at; }));
  assert_int_equal(held.fence().number(), 1);
  // Three in a life, a few more by chance.
  const std::uint64_t beats = subject().stats().heartbeats;
  assert_true(beats >= 5 && beats <= 60);
}

void heartbeats_keep_the_index_alive_too(void**) {
  const syncguard::lock held = hold_lock("k", brief);
  run_for(800ms);
  assert_true(pttl(index_key(held.id())) > 0);
  assert_true(must(await_owns(held.id())));
}

void heartbeats_of_many_locks_keep_all_of_them(void**) {
  std::vector<started_lock> all;
  for (int index = 0; index < 500; ++index)
    all.push_back(start_lock("k" + std::to_string(index), {.ttl = 2s, .wait = 60s}));
  for (const auto& each : all) assert_true(run_until([&] { return each.granted(); }));
  run_for(2500ms);
  for (const auto& each : all) assert_true(each.got->held.valid());
  assert_int_equal(subject().stats().held, 500);
  assert_int_equal(subject().stats().lost, 0);
  assert_true(subject().stats().heartbeats >= 1000);
}

// Asks the server what is left of the record at the moment when on_lost is told.
void lock_without_heartbeats_is_lost_before_the_server_lets_it_go(void**) {
  for (int round = 0; round < 3; ++round) {
    syncguard::lock held = hold_lock("k", {.ttl = 500ms, .heartbeat = false});
    const auto seen = std::make_shared<loss>();
    held.on_lost([seen](lost why) {
      ++seen->calls;
      seen->why = why;
      seen->server_ttl_ms = pttl(lock_key("k"));
    });
    await_loss(seen, lost::unconfirmed);
    assert_false(held.valid());
    // The margin is 50 ms; a machine that has more to do may eat it up.
    note("%lld ms were left at the server", static_cast<long long>(seen->server_ttl_ms));
    if (seen->server_ttl_ms > 0) break;
    assert_true(round < 2);
  }
  assert_int_equal(subject().stats().heartbeats, 0);
}

void lock_without_heartbeats_ends_at_the_server_by_itself(void**) {
  syncguard::lock held = hold_lock("k", {.ttl = 300ms, .heartbeat = false});
  const auto gone = record_loss(held);
  assert_true(run_until([] { return !exists(lock_key("k")); }));
  assert_true(run_until([&] { return gone->told(); }));
  run_for(100ms);
  assert_int_equal(gone->calls, 1);
  assert_int_equal(subject().stats().held, 0);
  assert_int_equal(subject().stats().lost, 1);
}

void lock_without_heartbeats_lives_on_by_extend(void**) {
  syncguard::lock held = hold_lock("k", {.ttl = 1s, .heartbeat = false});
  const auto gone = record_loss(held);
  for (int round = 0; round < 6; ++round) {
    run_for(300ms);
    must_have(await(start_extend(held, 1s)));
    assert_true(held.valid());
  }
  assert_false(gone->told());
  assert_int_equal(subject().stats().heartbeats, 0);
}

void lock_of_the_shortest_life_is_kept_or_told_lost(void**) {
  for (int round = 0; round < 20; ++round) {
    const auto got = start_lock("k" + std::to_string(round), {.ttl = 10ms});
    assert_true(run_until([&] { return got.done(); }));
    if (!got.granted()) continue;  // too late to be of use
    const auto seen = record_loss(got.got->held);
    run_for(30ms);
    if (!got.got->held.valid()) assert_true(run_until([&] { return seen->told(); }));
  }
}

void on_lost_set_on_a_lock_that_is_gone_is_told_later(void**) {
  syncguard::lock held = hold_lock("k", {.ttl = 200ms, .heartbeat = false});
  assert_true(run_until([&] { return !held.valid() && subject().stats().lost == 1; }));
  const auto gone = record_loss(held);  // fails the case where it is told inside
  await_loss(gone, lost::unconfirmed);
  run_for(20ms);
  assert_int_equal(gone->calls, 1);
}

void on_lost_replaces_what_was_set_before(void**) {
  syncguard::lock held = hold_lock("k", {.ttl = 200ms, .heartbeat = false});
  const auto first = record_loss(held);
  const auto second = record_loss(held);
  await_loss(second, lost::unconfirmed);
  run_for(20ms);
  assert_false(first->told());
  assert_int_equal(first.use_count(), 1);
}

void on_lost_that_is_empty_is_legal(void**) {
  syncguard::lock held = hold_lock("k", {.ttl = 200ms, .heartbeat = false});
  held.on_lost([](lost) { breach("what was replaced was told"); });
  held.on_lost(nullptr);
  assert_true(run_until([] { return subject().stats().lost == 1; }));
  run_for(20ms);
  assert_false(held.valid());
}

void lock_released_or_destroyed_is_not_told_lost(void**) {
  const auto seen = std::make_shared<int>(0);
  const auto count = [seen](lost) { ++*seen; };
  syncguard::lock released = hold_lock("a", brief);
  released.on_lost(count);
  {
    syncguard::lock destroyed = hold_lock("b", brief);
    destroyed.on_lost(count);
  }
  assert_true(must(await(start_release(released))));
  run_for(800ms);
  assert_int_equal(*seen, 0);
  assert_int_equal(subject().stats().lost, 0);
}

}  // namespace

cases lock_heartbeat_cases() {
  static const CMUnitTest all[] = {
      contract_case(heartbeats_keep_a_lock_beyond_several_lives),
      contract_case(heartbeats_keep_the_index_alive_too),
      contract_case(heartbeats_of_many_locks_keep_all_of_them),
      contract_case(lock_without_heartbeats_is_lost_before_the_server_lets_it_go),
      contract_case(lock_without_heartbeats_ends_at_the_server_by_itself),
      contract_case(lock_without_heartbeats_lives_on_by_extend),
      contract_case(lock_of_the_shortest_life_is_kept_or_told_lost),
      contract_case(on_lost_set_on_a_lock_that_is_gone_is_told_later),
      contract_case(on_lost_replaces_what_was_set_before),
      contract_case(on_lost_that_is_empty_is_legal),
      contract_case(lock_released_or_destroyed_is_not_told_lost),
  };
  return all;
}

}  // namespace syncguard::testing
