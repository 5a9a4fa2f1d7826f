// A lock that is gone: every reason is told, once, and nothing brings it back.

#include <unistd.h>

#include <string>

#include "contract/cases.hpp"
#include "contract/locks.hpp"

namespace syncguard::testing {

namespace {

// Lives long, so that no heartbeat is due: it is the server who tells.
syncguard::lock hold_watched(std::string_view key) {
  warm_up();
  syncguard::lock held = hold_lock(key, {.ttl = 10min, .wait = 60s});
  run_for(10ms);
  return held;
}

void lock_deleted_by_somebody_is_told_as_vanished_at_once(void**) {
  syncguard::lock held = hold_watched("k");
  const auto gone = record_loss(held);
  redis({"DEL", lock_key("k"), index_key(held.id())});
  await_loss(gone, lost::vanished);
  assert_false(held.valid());
  assert_int_equal(subject().stats().held, 0);
  assert_int_equal(subject().stats().lost, 1);
}

void lock_flushed_away_is_told_as_vanished_at_once(void**) {
  syncguard::lock held = hold_watched("k");
  const auto gone = record_loss(held);
  redis({"FLUSHALL"});
  await_loss(gone, lost::vanished);
  assert_false(exists(lock_key("k")));
}

void lock_overwritten_by_another_owner_is_told_as_taken_at_once(void**) {
  syncguard::lock held = hold_watched("k");
  const auto gone = record_loss(held);
  redis({"SET", lock_key("k"), record_of(other_id, server_now_ms() + 60'000), "PX", "60000"});
  await_loss(gone, lost::taken);
  assert_false(held.valid());
  run_for(30ms);
  assert_true(text_at(lock_key("k")).find(other_id) != std::string::npos);
}

void lock_whose_record_says_expired_is_told_as_expired(void**) {
  syncguard::lock held = hold_watched("k");
  const auto gone = record_loss(held);
  redis({"SET", lock_key("k"), record_of(held.id(), server_now_ms() - 5'000), "PX", "60000"});
  await_loss(gone, lost::expired);
}

void lock_without_heartbeats_is_watched_too(void**) {
  warm_up();
  syncguard::lock held = hold_lock("k", {.ttl = 10min, .heartbeat = false});
  run_for(10ms);
  const auto gone = record_loss(held);
  redis({"DEL", lock_key("k"), index_key(held.id())});
  await_loss(gone, lost::vanished);
}

void lock_touched_but_still_ours_is_kept(void**) {
  syncguard::lock held = hold_watched("k");
  const auto gone = record_loss(held);
  for (int round = 0; round < 5; ++round) {
    redis({"SET", lock_key("k"), text_at(lock_key("k")), "KEEPTTL"});
    run_for(20ms);
  }
  assert_false(gone->told());
  assert_true(held.valid());
}

void lock_beyond_watch_max_is_told_by_its_heartbeat(void**) {
  client_options options = base_options();
  options.watch_max = 0;
  make_ready_subject(std::move(options));
  syncguard::lock held = hold_lock("k", {.ttl = 1s});
  const auto gone = record_loss(held);
  redis({"DEL", lock_key("k"), index_key(held.id())});
  await_loss(gone, lost::vanished);
}

void lock_of_a_silent_server_is_told_as_unconfirmed_in_time(void**) {
  syncguard::lock held = hold_lock("k", {.ttl = 1s});
  const auto gone = record_loss(held);
  run_for(100ms);
  const std::int64_t valid_until_us = now_us() + held.valid_for().count();
  server().pause();
  await_loss(gone, lost::unconfirmed);
  assert_true(gone->at_us >= valid_until_us - 1'000);
  assert_false(held.valid());
  server().resume();
  // An extend that was on its way may have been done: nothing is kept for nobody.
  assert_true(run_until([] { return !exists(lock_key("k")); }));
  assert_int_equal(gone->calls, 1);
}

void lock_of_a_dead_server_is_told_as_unconfirmed(void**) {
  syncguard::lock held = hold_lock("k", {.ttl = 500ms});
  const auto gone = record_loss(held);
  server().kill_hard();
  await_loss(gone, lost::unconfirmed);
  assert_false(held.valid());
}

void lock_of_a_server_that_restarted_empty_is_told_as_vanished(void**) {
  syncguard::lock held = hold_watched("k");
  const auto gone = record_loss(held);
  server().kill_hard();
  assert_true(server().start());
  await_loss(gone, lost::vanished);
}

void lock_of_a_closed_client_is_told_and_given_back(void**) {
  syncguard::lock held = hold_lock("k");
  const auto gone = record_loss(held);
  const auto closed = start_close();
  must(await(closed));
  assert_true(gone->why == lost::closed);
  assert_false(held.valid());
  assert_false(exists(lock_key("k")));
  assert_text_equal(held.key(), "k");
}

void close_aborts_those_who_wait(void**) {
  const syncguard::lock theirs = hold_lock("k", steady, rival());
  const auto waiting = start_waiting("k");
  must(await(start_close()));
  await_failure(waiting, error_code::aborted);
  run_for(20ms);
  assert_true(theirs.valid() && exists(lock_key("k")));
}

void close_gives_back_a_thousand_locks(void**) {
  std::vector<started_lock> all;
  for (int index = 0; index < 1000; ++index) all.push_back(start_lock("k" + std::to_string(index)));
  for (const auto& each : all) assert_true(run_until([&] { return each.granted(); }));
  const auto told = std::make_shared<int>(0);
  for (const auto& each : all)
    each.got->held.on_lost([told](lost why) {
      if (why == lost::closed) ++*told;
    });
  must(await(start_close()));
  assert_int_equal(*told, 1000);
  assert_int_equal(key_count(), 1000);  // the fence counters
}

// The loop stands still for longer than the lock lives. Whatever user code comes first afterwards knows.
void loop_that_stood_still_finds_its_lock_invalid(void**) {
  syncguard::lock held = hold_lock("k", brief);
  const auto gone = record_loss(held);
  const auto valid_afterwards = std::make_shared<std::optional<bool>>();
  const auto* asked = &held;
  subject().is_locked("k", [valid_afterwards, asked](const result<bool>&) {
    usleep(700'000);
    *valid_afterwards = asked->valid();
  });
  assert_true(run_until([&] { return valid_afterwards->has_value(); }));
  assert_false(**valid_afterwards);
  assert_false(held.valid());
  await_loss(gone, lost::unconfirmed);
  run_for(200ms);
  assert_int_equal(gone->calls, 1);
  assert_false(held.valid());
  assert_false(exists(lock_key("k")));
}

void loop_that_stood_still_outside_callbacks_finds_its_lock_invalid(void**) {
  syncguard::lock held = hold_lock("k", brief);
  const auto gone = record_loss(held);
  run_for(200ms);
  usleep(700'000);
  assert_false(held.valid());
  assert_true(run_until([&] { return gone->told(); }));
  run_for(100ms);
  assert_int_equal(gone->calls, 1);
}

// Shorter than its life: the heartbeat is late, and still in time.
void loop_that_stood_still_for_less_keeps_its_lock(void**) {
  syncguard::lock held = hold_lock("k", {.ttl = 2s});
  const auto gone = record_loss(held);
  usleep(1'000'000);
  assert_true(held.valid());
  run_for(1500ms);
  assert_true(held.valid());
  assert_false(gone->told());
}

}  // namespace

cases lock_loss_cases() {
  static const CMUnitTest all[] = {
      contract_case(lock_deleted_by_somebody_is_told_as_vanished_at_once),
      contract_case(lock_flushed_away_is_told_as_vanished_at_once),
      contract_case(lock_overwritten_by_another_owner_is_told_as_taken_at_once),
      contract_case(lock_whose_record_says_expired_is_told_as_expired),
      contract_case(lock_without_heartbeats_is_watched_too),
      contract_case(lock_touched_but_still_ours_is_kept),
      contract_case_alone(lock_beyond_watch_max_is_told_by_its_heartbeat),
      contract_case(lock_of_a_silent_server_is_told_as_unconfirmed_in_time),
      contract_case(lock_of_a_dead_server_is_told_as_unconfirmed),
      contract_case(lock_of_a_server_that_restarted_empty_is_told_as_vanished),
      contract_case(lock_of_a_closed_client_is_told_and_given_back),
      contract_case(close_aborts_those_who_wait),
      contract_case(close_gives_back_a_thousand_locks),
      contract_case(loop_that_stood_still_finds_its_lock_invalid),
      contract_case(loop_that_stood_still_outside_callbacks_finds_its_lock_invalid),
      contract_case(loop_that_stood_still_for_less_keeps_its_lock),
  };
  return all;
}

}  // namespace syncguard::testing
