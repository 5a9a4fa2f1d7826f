// Waiting for a lock that somebody else holds, and how it ends.

#include <algorithm>
#include <string>

#include "contract/cases.hpp"
#include "contract/locks.hpp"

namespace syncguard::testing {

namespace {

void waiter_gets_the_lock_that_another_client_releases(void**) {
  syncguard::lock theirs = hold_lock("k", steady, rival());
  const auto waiting = start_waiting("k");
  assert_int_equal(subject().stats().waiting, 1);
  const std::uint64_t attempts = subject().stats().attempts;
  assert_true(must(await(start_release(theirs))));
  const syncguard::lock mine = await_lock(waiting);
  assert_true(mine.fence() > theirs.fence());
  // The server said so: nobody asked again and again.
  assert_int_equal(subject().stats().wakes, 1);
  assert_int_equal(subject().stats().attempts, attempts + 1);
  assert_int_equal(subject().stats().waiting, 0);
}

void waiter_gets_the_lock_that_another_client_destroys(void**) {
  auto theirs = std::make_unique<syncguard::lock>(hold_lock("k", steady, rival()));
  const auto waiting = start_waiting("k");
  theirs.reset();
  const syncguard::lock mine = await_lock(waiting);
  assert_true(mine.valid());
  assert_true(subject().stats().wakes >= 1);
}

void waiter_gets_the_lock_of_its_own_client(void**) {
  auto first = std::make_unique<syncguard::lock>(hold_lock("k"));
  const auto waiting = start_waiting("k");
  first.reset();
  const syncguard::lock second = await_lock(waiting);
  assert_int_equal(second.fence().number(), 2);
  assert_true(subject().stats().wakes >= 1);
}

void waiter_gets_the_lock_of_a_single_acquire(void**) {
  const grant theirs = hold("k", 60s, rival());
  const auto waiting = start_waiting("k");
  assert_true(must(await_release(theirs.id, rival())));
  assert_true(await_lock(waiting).valid());
  assert_true(subject().stats().wakes >= 1);
}

std::unique_ptr<client> crashing;

int tear_down_crashing(void** state) {
  crashing.reset();
  return tear_down(state);
}

// A destroyed client gives nothing back: as far as others can see, its process has crashed.
void waiter_gets_the_lock_of_a_holder_that_crashed(void**) {
  make_ready_subject();
  crashing = std::make_unique<client>(loop_for_client(), base_options());
  const syncguard::lock theirs = hold_lock("k", brief, *crashing);
  const auto waiting = start_waiting("k");
  crashing.reset();
  assert_true(exists(lock_key("k")));
  const syncguard::lock mine = await_lock(waiting);
  assert_int_equal(mine.fence().number(), 2);
  assert_false(theirs.valid());
}

void waiter_sleeps_through_the_heartbeats_of_the_holder(void**) {
  auto theirs = std::make_unique<syncguard::lock>(hold_lock("k", brief, rival()));
  const auto waiting = start_waiting("k");
  run_for(1s);
  assert_false(waiting.done());
  theirs.reset();
  assert_true(await_lock(waiting).valid());
}

void waiter_ends_in_acquisition_timeout(void**) {
  const syncguard::lock theirs = hold_lock("k", steady, rival());
  warm_up();
  const std::int64_t begun_us = now_us();
  const auto waiting = start_lock("k", {.ttl = 60s, .wait = 300ms});
  const error failure = await_failure(waiting, error_code::acquisition_timeout);
  assert_true(now_us() - begun_us >= 299'000);
  assert_text_equal(failure.key(), "k");
  assert_false(failure.outcome_unknown());
  note("%s", describe(failure).c_str());
  assert_true(failure.cause().starts_with("held by others for "));
  assert_true(failure.cause().ends_with(" attempt") || failure.cause().ends_with(" attempts"));
  assert_int_equal(subject().stats().waiting, 0);
  assert_true(theirs.valid());
}

void waiter_in_vain_leaves_nothing_behind(void**) {
  auto theirs = std::make_unique<syncguard::lock>(hold_lock("k", steady, rival()));
  await_failure(start_lock("k", {.ttl = 60s, .wait = 100ms}), error_code::acquisition_timeout);
  theirs.reset();
  assert_true(run_until([] { return !exists(lock_key("k")); }));
  run_for(100ms);
  assert_false(exists(lock_key("k")));
}

void wait_of_nothing_makes_one_attempt(void**) {
  const lock_options impatient{.ttl = 60s, .wait = 0ms};
  warm_up();
  const syncguard::lock free_one = hold_lock("free", impatient);
  assert_true(free_one.valid());
  const syncguard::lock theirs = hold_lock("k", steady, rival());
  const std::uint64_t before = subject().stats().attempts;
  const error failure = await_failure(start_lock("k", impatient), error_code::acquisition_timeout);
  assert_true(failure.cause().ends_with(", 1 attempt"));
  assert_int_equal(subject().stats().attempts, before + 1);
}

void wait_of_nothing_behind_others_ends_without_them(void**) {
  const syncguard::lock theirs = hold_lock("k", steady, rival());
  const auto patient = start_waiting("k");
  await_failure(start_lock("k", {.ttl = 60s, .wait = 0ms}), error_code::acquisition_timeout);
  run_for(20ms);
  assert_false(patient.done());
}

void waiters_with_lives_of_their_own_each_get_theirs(void**) {
  auto theirs = std::make_unique<syncguard::lock>(hold_lock("k", steady, rival()));
  const auto shorter = start_waiting("k", {.ttl = 20s, .wait = 60s});
  const auto longer = start_lock("k", {.ttl = 50s, .wait = 60s});
  theirs.reset();
  {
    const syncguard::lock first = await_lock(shorter);
    assert_true(first.valid_for() <= 19s);
    assert_true(pttl(lock_key("k")) <= 20'000);
  }
  const syncguard::lock second = await_lock(longer);
  assert_true(second.valid_for() > 20s);
  assert_true(pttl(lock_key("k")) > 20'000);
}

void waiter_in_front_that_leaves_makes_room_for_the_next(void**) {
  auto theirs = std::make_unique<syncguard::lock>(hold_lock("k", steady, rival()));
  const auto impatient = start_waiting("k", {.ttl = 20s, .wait = 200ms});
  const auto patient = start_lock("k", {.ttl = 50s, .wait = 60s});
  await_failure(impatient, error_code::acquisition_timeout);
  theirs.reset();
  const syncguard::lock mine = await_lock(patient);
  assert_true(pttl(lock_key("k")) > 20'000);
}

void cancel_of_a_waiter_aborts_it(void**) {
  const syncguard::lock theirs = hold_lock("k", steady, rival());
  const auto waiting = start_waiting("k");
  assert_true(subject().cancel(waiting.handle));
  const error failure = await_failure(waiting, error_code::aborted);
  assert_text_equal(failure.key(), "k");
  assert_false(subject().cancel(waiting.handle));
  assert_int_equal(subject().stats().waiting, 0);
  run_for(20ms);
  assert_int_equal(waiting.got->calls, 1);
}

void cancel_before_the_attempt_was_sent_takes_nothing(void**) {
  const auto waiting = start_lock("k");
  assert_true(subject().cancel(waiting.handle));
  await_failure(waiting, error_code::aborted);
  run_for(50ms);
  assert_false(exists(lock_key("k")));
}

void cancel_of_an_attempt_on_its_way_gives_the_lock_back(void**) {
  warm_up();
  server().pause();
  const auto waiting = start_lock("k");
  run_for(30ms);
  assert_true(subject().cancel(waiting.handle));
  await_failure(waiting, error_code::aborted);
  server().resume();
  assert_true(run_until([] { return exists(fence_key("k")) && !exists(lock_key("k")); }));
  assert_true(hold_lock("k", steady, rival()).valid());
}

void cancel_of_a_granted_lock_does_nothing(void**) {
  const auto got = start_lock("k");
  const syncguard::lock held = await_lock(got);
  assert_false(subject().cancel(got.handle));
  run_for(20ms);
  assert_true(held.valid() && exists(lock_key("k")));
}

void cancel_of_an_old_waiter_leaves_the_next_alone(void**) {
  const auto old = start_lock("k");
  { const syncguard::lock held = await_lock(old); }
  for (int round = 0; round < 10; ++round) {
    const auto next = start_lock("k");
    assert_false(subject().cancel(old.handle));
    assert_true(await_lock(next).valid());
  }
}

void waiters_of_many_keys_do_not_hinder_each_other(void**) {
  std::vector<syncguard::lock> theirs;
  std::vector<started_lock> mine;
  warm_up();
  for (int index = 0; index < 50; ++index) theirs.push_back(hold_lock("k" + std::to_string(index), steady, rival()));
  for (int index = 0; index < 50; ++index) mine.push_back(start_lock("k" + std::to_string(index)));
  run_for(50ms);
  for (std::size_t index = 0; index < theirs.size(); index += 2) theirs[index] = {};
  for (std::size_t index = 0; index < mine.size(); index += 2)
    assert_true(run_until([&] { return mine[index].granted(); }));
  for (std::size_t index = 1; index < mine.size(); index += 2) assert_false(mine[index].done());
  assert_int_equal(subject().stats().waiting, 25);
}

}  // namespace

cases lock_waiting_cases() {
  static const CMUnitTest all[] = {
      contract_case(waiter_gets_the_lock_that_another_client_releases),
      contract_case(waiter_gets_the_lock_that_another_client_destroys),
      contract_case(waiter_gets_the_lock_of_its_own_client),
      contract_case(waiter_gets_the_lock_of_a_single_acquire),
      cmocka_unit_test_setup_teardown(waiter_gets_the_lock_of_a_holder_that_crashed, set_up, tear_down_crashing),
      contract_case(waiter_sleeps_through_the_heartbeats_of_the_holder),
      contract_case(waiter_ends_in_acquisition_timeout),
      contract_case(waiter_in_vain_leaves_nothing_behind),
      contract_case(wait_of_nothing_makes_one_attempt),
      contract_case(wait_of_nothing_behind_others_ends_without_them),
      contract_case(waiters_with_lives_of_their_own_each_get_theirs),
      contract_case(waiter_in_front_that_leaves_makes_room_for_the_next),
      contract_case(cancel_of_a_waiter_aborts_it),
      contract_case(cancel_before_the_attempt_was_sent_takes_nothing),
      contract_case(cancel_of_an_attempt_on_its_way_gives_the_lock_back),
      contract_case(cancel_of_a_granted_lock_does_nothing),
      contract_case(cancel_of_an_old_waiter_leaves_the_next_alone),
      contract_case(waiters_of_many_keys_do_not_hinder_each_other),
  };
  return all;
}

}  // namespace syncguard::testing
