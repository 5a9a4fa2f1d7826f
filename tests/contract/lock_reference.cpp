// A lock held through the reference rendering of the protocol, which knows nothing of this library: our waiter is woken
// by the server all the same.

#include <memory>

#include "contract/cases.hpp"
#include "contract/locks.hpp"
#include "support/reference/reference.hpp"

namespace syncguard::testing {

namespace {

std::unique_ptr<reference::reference_client> other_side;

int set_up_other_side(void** state) {
  if (set_up_with_client(state) != 0) return -1;
  other_side = std::make_unique<reference::reference_client>();
  return other_side->connect(server().socket_path()) ? 0 : -1;
}

int tear_down_other_side(void** state) {
  other_side.reset();
  return tear_down(state);
}

void reference_release_wakes_the_waiter(void**) {
  assert_true(other_side->acquire("k", other_id, 60'000).has_value());
  const auto waiting = start_waiting("k");
  const std::uint64_t attempts = subject().stats().attempts;
  assert_int_equal(other_side->release(other_id), reference::done);
  const syncguard::lock mine = await_lock(waiting);
  assert_int_equal(mine.fence().number(), 2);
  assert_true(subject().stats().wakes > 0);
  assert_int_equal(subject().stats().attempts, attempts + 1);
}

void reference_lock_that_expires_wakes_the_waiter(void**) {
  assert_true(other_side->acquire("k", other_id, 600).has_value());
  const auto waiting = start_waiting("k");
  const std::uint64_t attempts = subject().stats().attempts;
  const syncguard::lock mine = await_lock(waiting);
  assert_true(mine.valid());
  // The server's notice and the holder's known expiry come at about the same time.
  note("%llu wakes, %llu attempts", static_cast<unsigned long long>(subject().stats().wakes),
       static_cast<unsigned long long>(subject().stats().attempts - attempts));
  assert_true(subject().stats().attempts - attempts <= 5);
}

// The key's time to live in Redis is cut short by somebody: only the server can tell.
void reference_lock_that_vanishes_early_wakes_the_waiter(void**) {
  assert_true(other_side->acquire("k", other_id, 60'000).has_value());
  const auto waiting = start_waiting("k");
  const std::uint64_t attempts = subject().stats().attempts;
  redis({"PEXPIRE", lock_key("k"), "100"});
  assert_true(await_lock(waiting).valid());
  assert_true(subject().stats().wakes > 0);
  assert_true(subject().stats().attempts - attempts <= 5);
}

void reference_extend_keeps_the_waiter_waiting(void**) {
  assert_true(other_side->acquire("k", other_id, 500).has_value());
  const auto waiting = start_waiting("k");
  assert_int_equal(other_side->extend(other_id, 60'000).code, reference::done);
  run_for(1s);
  assert_false(waiting.done());
  assert_int_equal(other_side->release(other_id), reference::done);
  assert_true(await_lock(waiting).valid());
}

void reference_finds_our_lock_held_and_then_free(void**) {
  {
    const syncguard::lock held = hold_lock("k");
    assert_true(other_side->is_locked("k"));
    assert_false(other_side->acquire("k", other_id, 60'000).has_value());
  }
  assert_true(run_until([] { return !exists(lock_key("k")); }));
  assert_true(other_side->acquire("k", other_id, 60'000).has_value());
}

void reference_release_of_our_lock_is_told_as_vanished(void**) {
  warm_up();
  syncguard::lock held = hold_lock("k");
  const auto gone = record_loss(held);
  assert_int_equal(other_side->release(held.id()), reference::done);
  await_loss(gone, lost::vanished);
  assert_false(held.valid());
}

#define reference_case(name) cmocka_unit_test_setup_teardown(name, set_up_other_side, tear_down_other_side)

}  // namespace

cases lock_reference_cases() {
  static const CMUnitTest all[] = {
      reference_case(reference_release_wakes_the_waiter),
      reference_case(reference_lock_that_expires_wakes_the_waiter),
      reference_case(reference_lock_that_vanishes_early_wakes_the_waiter),
      reference_case(reference_extend_keeps_the_waiter_waiting),
      reference_case(reference_finds_our_lock_held_and_then_free),
      reference_case(reference_release_of_our_lock_is_told_as_vanished),
  };
  return all;
}

}  // namespace syncguard::testing
