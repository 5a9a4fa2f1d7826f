// Locks that outlive their client, clients that move, and processes that fork.

#include <string>

#include "contract/cases.hpp"
#include "contract/locks.hpp"
#include "support/in_child.hpp"

namespace syncguard::testing {

namespace {

void lock_that_outlives_its_client_is_readable_and_not_valid(void**) {
  syncguard::lock held = hold_lock("k");
  const auto gone = record_loss(held);
  const std::string id{held.id().view()};
  const server_time until = held.expires_at();
  destroy_subject();
  assert_true(static_cast<bool>(held));
  assert_false(held.valid());
  assert_true(held.valid_for() <= 0us);
  assert_text_equal(held.key(), "k");
  assert_text_equal(held.id().view(), id);
  assert_int_equal(held.fence().number(), 1);
  assert_true(held.expires_at() == until);
  run_for(20ms);
  assert_false(gone->told());
  assert_int_equal(gone.use_count(), 1);
}

void lock_that_outlives_its_client_does_nothing(void**) {
  syncguard::lock held = hold_lock("k");
  destroy_subject();
  held.on_lost([](lost) { breach("told by a client that is gone"); });
  held.extend(60s, [](const result<std::optional<server_time>>&) { breach("told by a client that is gone"); });
  held.release([](const result<bool>&) { breach("told by a client that is gone"); });
  syncguard::lock moved = std::move(held);
  moved = {};
  run_for(50ms);
  // It ends when its time is over, as after a crash.
  assert_true(exists(lock_key("k")));
}

void lock_that_outlives_its_client_and_loop_turns_is_harmless(void**) {
  std::vector<syncguard::lock> held;
  for (int index = 0; index < 50; ++index) held.push_back(hold_lock("k" + std::to_string(index), brief));
  destroy_subject();
  turn();
  assert_true(run_until(loop_is_empty));
  run_for(500ms);
  held.resize(25);
  for (const syncguard::lock& each : held) assert_false(each.valid());
  held.clear();
}

void lock_stays_with_its_client_when_that_is_moved(void**) {
  syncguard::lock held = hold_lock("k", brief);
  const auto gone = record_loss(held);
  subject_owner() = std::make_unique<client>(std::move(subject()));
  run_for(1s);
  assert_true(held.valid());
  assert_true(must(await(start_release(held))));
  assert_false(gone->told());
}

// Only the connection that is told of changes.
void kill_watching_connection() {
  const std::string clients = redis({"CLIENT", "LIST"}).text;
  const auto line = clients.rfind('\n', clients.find(" flags=t"));
  const auto id = clients.find("id=", line == std::string::npos ? 0 : line) + 3;
  assert_int_equal(redis({"CLIENT", "KILL", "ID", clients.substr(id, clients.find(' ', id) - id)}).integer, 1);
}

// The extend is lost with its connection and waits for another; everything else ends at once.
void close_waits_for_a_lock_that_is_extended_by_hand(void**) {
  client_options options = base_options();
  options.reconnect_min = options.reconnect_max = 600ms;
  make_ready_subject(std::move(options));
  warm_up();
  syncguard::lock held = hold_lock("k");
  kill_watching_connection();
  const auto extended = start_extend(held, 30s);
  const auto released = start_release(held);
  must(await(start_close()));
  assert_true(released.done());
  assert_true(extended.done());
}

void loss_by_close_is_told_to_one_who_asks_afterwards(void**) {
  syncguard::lock held = hold_lock("k");
  must(await(start_close()));
  await_loss(record_loss(held), lost::closed);
}

void client_destroyed_with_waiters_never_calls_them(void**) {
  const syncguard::lock theirs = hold_lock("k", steady, rival());
  const auto waiting = start_waiting("k");
  const auto refused = start_lock("");
  const auto fresh = start_lock("fresh");
  destroy_subject();
  run_for(50ms);
  assert_false(waiting.done() || refused.done() || fresh.done());
  assert_int_equal(waiting.got.use_count(), 1);
}

// What the callback holds is the last lock: its end leads back into the client.
void callback_that_owns_its_lock_ends_with_it(void**) {
  const auto held = std::make_shared<syncguard::lock>(hold_lock("k"));
  held->on_lost([held](lost) {});
  *held = {};
  assert_true(run_until([] { return !exists(lock_key("k")); }));
  assert_int_equal(held.use_count(), 1);
}

void lock_in_a_child_is_not_valid_and_releases_nothing(void**) {
  syncguard::lock held = hold_lock("k", brief);
  const auto gone = record_loss(held);
  await_watching();
  const int verdict = in_child([&] {
    if (held.valid()) return 2;
    if (held.valid_for() > 0us) return 3;
    if (held.key() != "k" || held.fence().number() != 1) return 4;
    held = {};
    return 0;
  });
  assert_int_equal(verdict, 0);
  assert_true(held.valid());
  run_for(900ms);
  assert_true(held.valid());
  assert_false(gone->told());
  assert_true(must(await_owns(held.id())));
  assert_int_equal(subject().stats().connects, 1);
}

void lock_released_by_hand_in_a_child_stays_held(void**) {
  syncguard::lock held = hold_lock("k", brief);
  await_watching();
  const int verdict = in_child([&] {
    held.extend(60s, {});
    held.release({});
    held = {};
    destroy_subject();
    return 0;
  });
  assert_int_equal(verdict, 0);
  run_for(900ms);
  assert_true(held.valid());
  assert_true(pttl(lock_key("k")) <= 500);
}

void waiter_is_served_in_the_parent_after_a_fork(void**) {
  auto theirs = std::make_unique<syncguard::lock>(hold_lock("k", steady, rival()));
  const auto waiting = start_waiting("k");
  const int verdict = in_child([&] {
    subject().cancel(waiting.handle);
    destroy_subject();
    return 0;
  });
  assert_int_equal(verdict, 0);
  theirs.reset();
  assert_true(await_lock(waiting).valid());
}

}  // namespace

cases lock_lifetime_cases() {
  static const CMUnitTest all[] = {
      contract_case(lock_that_outlives_its_client_is_readable_and_not_valid),
      contract_case(lock_that_outlives_its_client_does_nothing),
      contract_case(lock_that_outlives_its_client_and_loop_turns_is_harmless),
      contract_case(lock_stays_with_its_client_when_that_is_moved),
      contract_case(close_waits_for_a_lock_that_is_extended_by_hand),
      contract_case(loss_by_close_is_told_to_one_who_asks_afterwards),
      contract_case(client_destroyed_with_waiters_never_calls_them),
      contract_case(callback_that_owns_its_lock_ends_with_it),
      contract_case(lock_in_a_child_is_not_valid_and_releases_nothing),
      contract_case(lock_released_by_hand_in_a_child_stays_held),
      contract_case(waiter_is_served_in_the_parent_after_a_fork),
  };
  return all;
}

}  // namespace syncguard::testing
