// The keeper with very many locks, as they end, and inside callbacks: bounds per turn, memory, closing, being
// abandoned.

#include <algorithm>

#include "engine/lock_keeper.hpp"

#include "lock_fixture.hpp"
#include "support/allocation_counter.hpp"

namespace {

using namespace syncguard::testing;
using syncguard::lost;

constexpr std::int64_t heartbeat_sent_ms = 10'000;

static_assert(sizeof(syncguard::engine::held_lock) <= 224);

// Inside callbacks; a sanitizer watches.

void two_locks_that_end_together(lock_world& world) {
  for (const auto* name : {"a", "b"}) world.hold(name, {.heartbeat = false});
  world.link_down(world.plain);
  world.link_down(world.watched);
}

void lock_may_be_destroyed_as_its_loss_is_told(void** state) {
  auto& world = lock_world_of(state);
  two_locks_that_end_together(world);
  world.inside_lost = [&](const std::string& name) { world.drop(name); };
  world.run_ms(100'000);
  assert_text_equal(world.take_told(), "a-unconfirmed b-unconfirmed");
  assert_true(world.locks.empty());
}

void lock_may_be_released_and_extended_as_its_loss_is_told(void** state) {
  auto& world = lock_world_of(state);
  two_locks_that_end_together(world);
  world.inside_lost = [&](const std::string& name) {
    world.release(name);
    world.extend(name, 5000);
    world.watch_loss(name);
  };
  world.run_ms(100'000);
  assert_text_equal(world.take_told(), "a-unconfirmed b-unconfirmed a!Aborted a!Aborted b!Aborted b!Aborted");
}

void lock_may_be_moved_as_its_loss_is_told(void** state) {
  auto& world = lock_world_of(state);
  two_locks_that_end_together(world);
  world.inside_lost = [&](const std::string& name) {
    world.locks["moved " + name] = std::move(world.locks.at(name));
    world.locks.erase(name);
  };
  world.run_ms(100'000);
  assert_text_equal(world.take_told(), "a-unconfirmed b-unconfirmed");
  assert_int_equal(world.locks.size(), 2);
}

void other_lock_may_be_destroyed_as_a_loss_is_told(void** state) {
  auto& world = lock_world_of(state);
  two_locks_that_end_together(world);
  world.inside_lost = [&](const std::string&) { world.locks.clear(); };
  world.run_ms(100'000);
  assert_text_equal(world.take_told(), "a-unconfirmed");
  assert_int_equal(world.stats().held, 0);
}

void other_lock_may_be_destroyed_as_a_loss_is_told_by_an_answer(void** state) {
  auto& world = lock_world_of(state);
  for (const auto* name : {"a", "b", "c"}) world.hold(name);
  for (const auto* name : {"a", "b"}) world.server.remove(name);
  world.inside_lost = [&](const std::string&) { world.locks.clear(); };
  world.run_ms(0);
  assert_text_equal(world.take_told(), "a-vanished");
  world.run_ms(100'000);
  assert_false(world.server.held("c"));
}

void lock_may_be_held_by_its_own_callback(void** state) {
  auto& world = lock_world_of(state);
  for (const auto* name : {"a", "b", "c"}) world.hold(name);
  world.locks.at("a").on_lost([other = std::move(world.locks.at("b"))](lost) {});
  world.drop("a");  // and with it the callback, and b
  world.locks.at("c").on_lost([](lost) {});
  world.run_ms(0);
  assert_false(world.server.held("a"));
  assert_false(world.server.held("b"));
  assert_int_equal(world.stats().held, 1);
}

void new_lock_may_be_asked_for_as_a_loss_is_told(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a");
  world.server.remove("a");
  world.inside_lost = [&](const std::string& name) {
    world.drop(name);
    world.ask(name);
  };
  world.run_ms(0);
  assert_text_equal(world.take_told(), "a-vanished a=lock");
  assert_true(world.valid("a"));
}

void abandoned_inside(lock_world& world) {
  world.inside_lost = [&world](const std::string&) { world.abandon(); };
}

void keeper_may_be_abandoned_as_time_is_up(void** state) {
  auto& world = lock_world_of(state);
  two_locks_that_end_together(world);
  abandoned_inside(world);
  world.run_ms(100'000);
  assert_text_equal(world.take_told(), "a-unconfirmed");
  assert_false(world.valid("b"));
  world.locks.clear();
}

void keeper_may_be_abandoned_by_an_answer(void** state) {
  auto& world = lock_world_of(state);
  for (const auto* name : {"a", "b"}) world.hold(name);
  for (const auto* name : {"a", "b"}) world.server.remove(name);
  abandoned_inside(world);
  world.run_ms(0);
  assert_text_equal(world.take_told(), "a-vanished");
}

void keeper_may_be_abandoned_by_an_answer_that_was_polled_for(void** state) {
  auto& world = lock_world_of(state);
  for (const auto* name : {"a", "b"}) world.hold(name, {.ttl_ms = 3000, .heartbeat = false});
  world.watched.arrival = answers::by_poll;
  world.plain.arrival = answers::never_come;
  for (const auto* name : {"a", "b"}) world.extend(name, 3000);
  for (const auto* name : {"a", "b"}) world.server.remove(name);
  world.settle_down();
  abandoned_inside(world);
  world.stall_ms(2700);
  world.run_timers();
  assert_text_equal(world.take_told(), "a-vanished");
}

void keeper_may_be_abandoned_as_it_closes(void** state) {
  auto& world = lock_world_of(state);
  for (const auto* name : {"a", "b"}) world.hold(name);
  abandoned_inside(world);
  world.close();
  world.run_ms(1000);
  assert_text_equal(world.take_told(), "a-closed");
}

// Closing

void closing_tells_and_releases_a_bounded_number_per_turn(void** state) {
  auto& world = lock_world_of(state);
  world.hold_many(600);
  world.close();
  for (const std::size_t told : {256U, 512U, 600U, 600U}) {
    world.end_turn();
    assert_int_equal(world.many_lost, told);
  }
  world.run_ms(0);
  assert_int_equal(world.stats().held, 0);
  for (int index = 0; index < 600; ++index) assert_false(world.server.held("m" + std::to_string(index)));
  assert_text_equal(world.last_release_error, "");
}

void closing_tells_each_lock_once_and_releases_by_the_plain_lane(void** state) {
  auto& world = lock_world_of(state);
  for (const auto* name : {"a", "b", "c"}) world.hold(name);
  world.locks.at("b").on_lost(nullptr);
  world.drop("c");
  world.close();
  assert_text_equal(world.take_told(), "");
  world.run_ms(0);
  assert_text_equal(world.take_told(), "a-closed");
  assert_text_equal(world.take_sent(), "P[release:c release:a release:b]");
  world.watch_loss("b");
  world.run_ms(100'000);
  assert_text_equal(world.take_told(), "b-closed");
}

void failed_release_of_closing_reaches_the_observer(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a");
  world.link_down(world.plain);
  world.close();
  world.run_ms(5000);
  assert_text_equal(world.take_told(), "a-closed");
  assert_text_equal(world.last_release_error, "!ServiceUnavailable");
}

// Many

void due_heartbeats_leave_in_full_batches_and_few_per_turn(void** state) {
  auto& world = lock_world_of(state);
  world.hold_many(1000);
  world.watched.server_reads = false;
  world.stall_ms(heartbeat_sent_ms);
  for (int rounds = 0; rounds < 4; ++rounds) world.run_timers();
  world.batch_sizes.clear();
  for (int turn = 1; turn <= 4; ++turn) {
    world.end_turn();
    assert_int_equal(world.stats().heartbeats, std::min(turn * 256, 1000));
  }
  assert_int_equal(world.batch_sizes.size(), 32);
  assert_int_equal(std::count(world.batch_sizes.begin(), world.batch_sizes.end(), 32), 31);
  assert_int_equal(world.batch_sizes.back(), 8);
  world.watched.server_reads = true;
  world.run_ms(100'000);
  assert_int_equal(world.many_lost, 0);
}

void heartbeats_on_their_way_are_bounded(void** state) {
  auto& world = lock_world_of(state);
  world.hold_many(5000);
  world.watched.arrival = answers::never_come;
  world.run_ms(heartbeat_sent_ms + 5);
  assert_int_equal(world.stats().heartbeats, 2048);
  world.watched.arrival = answers::come;
  world.run_ms(0);
  assert_int_equal(world.stats().heartbeats, 5000);
  world.run_ms(60'000);
  assert_int_equal(world.many_lost, 0);
  assert_int_equal(world.stats().held, 5000);
}

void bound_is_free_again_after_an_outage(void** state) {
  auto& world = lock_world_of(state);
  world.hold_many(5000);
  world.watched.arrival = answers::never_come;
  world.run_ms(40'000);
  assert_int_equal(world.many_lost, 5000);
  world.many.clear();
  world.link_down(world.watched);
  world.watched.arrival = answers::come;
  world.link_up(world.watched);
  world.run_ms(60'000);
  world.many_lost = 0;
  world.hold_many(3000);
  world.run_ms(100'000);
  assert_int_equal(world.many.size(), 3000);
  assert_int_equal(world.many_lost, 0);
}

void hundred_thousand_locks_are_kept_without_allocating(void** state) {
  constexpr std::size_t count = 100'000;
  auto& world = lock_world_of(state);
  world.keeps_log = false;
  world.hold_many(count);
  assert_int_equal(world.stats().held, count);
  world.run_ms(25'000);  // the heartbeats spread out
  const std::uint64_t before = world.stats().heartbeats;
  const allocation_counter counter;
  world.run_ms(20'000);
  if (allocation_counter::available()) assert_int_equal(counter.count(), 0);
  assert_in_range(world.stats().heartbeats - before, count * 2, count * 5 / 2);
  assert_int_equal(world.many_lost, 0);
  assert_false(world.hot);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      lock_test(lock_may_be_destroyed_as_its_loss_is_told),
      lock_test(lock_may_be_released_and_extended_as_its_loss_is_told),
      lock_test(lock_may_be_moved_as_its_loss_is_told),
      lock_test(other_lock_may_be_destroyed_as_a_loss_is_told),
      lock_test(other_lock_may_be_destroyed_as_a_loss_is_told_by_an_answer),
      lock_test(lock_may_be_held_by_its_own_callback),
      lock_test(new_lock_may_be_asked_for_as_a_loss_is_told),
      lock_test(keeper_may_be_abandoned_as_time_is_up),
      lock_test(keeper_may_be_abandoned_by_an_answer),
      lock_test(keeper_may_be_abandoned_by_an_answer_that_was_polled_for),
      lock_test(keeper_may_be_abandoned_as_it_closes),
      lock_test(closing_tells_and_releases_a_bounded_number_per_turn),
      lock_test(closing_tells_each_lock_once_and_releases_by_the_plain_lane),
      lock_test(failed_release_of_closing_reaches_the_observer),
      lock_test(due_heartbeats_leave_in_full_batches_and_few_per_turn),
      lock_test(heartbeats_on_their_way_are_bounded),
      lock_test(bound_is_free_again_after_an_outage),
      lock_test(hundred_thousand_locks_are_kept_without_allocating),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
