// The keeper in a world where the links hold: heartbeats, validity, loss, extending and releasing by hand.

#include "engine/lock_keeper.hpp"

#include "lock_fixture.hpp"

namespace {

using namespace syncguard::testing;
using syncguard::error_code;

// How long it takes until something is sent; -1: longer than that.
std::int64_t ms_until_sent(lock_world& world, std::int64_t max_ms) {
  world.take_sent();
  for (std::int64_t ms = 0; ms <= max_ms; ++ms) {
    world.run_ms(ms == 0 ? 0 : 1);
    if (!world.take_sent().empty()) return ms;
  }
  return -1;
}

// A third of the time to live, up to a fifteenth less, and what the server cuts off its milliseconds.
void assert_about_a_third(std::int64_t ms, std::int64_t ttl_ms) {
  assert_true(ms >= ttl_ms / 3 - ttl_ms / 15 - 1);
  assert_true(ms <= ttl_ms / 3);
}

// Heartbeats

void heartbeat_comes_at_a_third_of_the_ttl(void** state) {
  auto& world = lock_world_of(state);
  for (const std::int64_t ttl_ms : {10, 100, 3000, 30'000, 600'000}) {
    world.hold("a", {.ttl_ms = ttl_ms});
    for (int beats = 0; beats < 5; ++beats) assert_about_a_third(ms_until_sent(world, ttl_ms), ttl_ms);
    assert_true(world.valid("a"));
    world.drop("a");
    world.run_ms(10);  // who has just released a lock lets others go first
  }
  assert_text_equal(world.take_told(), "");
}

void heartbeats_of_locks_acquired_together_part_company(void** state) {
  auto& world = lock_world_of(state);
  world.hold_many(100);
  std::size_t times = 0;
  for (int ms = 0; ms <= 10'000; ++ms) {
    world.run_ms(1);
    if (!world.take_sent().empty()) ++times;
  }
  assert_true(times > 80);
  assert_int_equal(world.stats().heartbeats, 100);
}

void heartbeats_go_on_for_ever_and_keep_the_lock(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a", {.ttl_ms = 3000});
  world.run_ms(600'000);
  assert_true(world.valid("a"));
  assert_true(world.server.held("a"));
  assert_text_equal(world.take_told(), "");
  assert_in_range(world.stats().heartbeats, 600, 750);
  assert_false(world.hot);
}

void heartbeat_of_a_late_answer_counts_from_when_it_was_sent(void** state) {
  auto& world = lock_world_of(state);
  world.watched.arrival = answers::never_come;
  world.ask("a");
  world.run_ms(3000);
  world.watched.arrival = answers::come;
  world.settle_down();
  assert_text_equal(world.take_told(), "a=lock");
  assert_int_equal(world.valid_for_ms("a"), 26'000);
  assert_about_a_third(ms_until_sent(world, 30'000) + 3000, 30'000);
}

void heartbeat_counts_from_the_servers_time_where_that_is_known(void** state) {
  auto& world = lock_world_of(state);
  world.hold("known");
  world.drop("known");
  world.run_ms(0);
  world.watched.server_reads = false;
  world.ask("a");
  world.run_ms(3000);
  world.watched.server_reads = true;
  world.settle_down();
  assert_int_equal(world.valid_for_ms("a"), 26'000);
  const std::int64_t ms = ms_until_sent(world, 30'000);
  assert_in_range(ms, 7990, 10'000);
}

void heartbeat_survives_a_server_whose_clock_jumps(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a");
  world.server.let_linger("a");
  world.run_ms(20'000);
  world.server.offset_us -= std::int64_t{3600} * 1'000'000;
  world.run_ms(60'000);
  world.server.offset_us += std::int64_t{20} * 1'000'000;
  world.run_ms(60'000);
  assert_true(world.valid("a"));
  assert_text_equal(world.take_told(), "");
  assert_in_range(world.stats().heartbeats, 14, 20);
}

void lock_without_heartbeat_ends_with_its_validity(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a", {.heartbeat = false});
  world.run_ms(28'999);
  assert_true(world.valid("a"));
  world.run_ms(1);
  assert_text_equal(world.take_told(), "a-unconfirmed");
  assert_text_equal(world.take_sent(), "");
  assert_int_equal(world.server.extends, 0);
}

// Validity

void validity_is_what_the_margin_leaves_of_the_ttl(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a", {.ttl_ms = 30'000});
  world.hold("b", {.ttl_ms = 5000});
  world.hold("c", {.ttl_ms = 5000, .margin_ms = 0});
  world.hold("d", {.ttl_ms = 5000, .margin_ms = 4999});
  world.hold("e", {.ttl_ms = 10});
  assert_int_equal(world.valid_for_ms("a"), 29'000);
  assert_int_equal(world.valid_for_ms("b"), 4500);
  assert_int_equal(world.valid_for_ms("c"), 5000);
  assert_int_equal(world.valid_for_ms("d"), 1);
  assert_int_equal(world.valid_for_ms("e"), 9);
}

void validity_counts_from_before_the_extend_was_sent(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a");
  world.watched.arrival = answers::never_come;
  const std::int64_t at_ms = ms_until_sent(world, 30'000);
  const std::int64_t left_ms = world.valid_for_ms("a");
  assert_int_equal(left_ms, 29'000 - at_ms);
  world.run_ms(2000);
  assert_int_equal(world.valid_for_ms("a"), left_ms - 2000);
  world.watched.arrival = answers::come;
  world.settle_down();
  assert_int_equal(world.valid_for_ms("a"), 27'000);
}

void validity_ends_by_the_clock_before_any_timer_has_run(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a");
  world.stall_ms(28'999);
  assert_true(world.valid("a"));
  world.stall_ms(1);
  assert_false(world.valid("a"));
  assert_text_equal(world.take_told(), "");
  world.run_ms(0);
  assert_text_equal(world.take_told(), "a-unconfirmed");
}

// Loss, as the server tells it

void lock_that_is_gone_is_told_with_the_answer(void** state) {
  auto& world = lock_world_of(state);
  for (const auto* name : {"vanished", "taken"}) world.hold(name);
  world.watched.arrival = answers::never_come;
  world.server.remove("vanished");
  world.server.take("taken", 60'000);
  world.run_ms(5);
  assert_text_equal(world.take_told(), "");
  world.watched.arrival = answers::come;
  world.run_ms(0);
  assert_text_equal(world.take_told(), "vanished-vanished taken-taken");
  assert_false(world.valid("vanished"));
  world.run_ms(100'000);
  assert_text_equal(world.take_told(), "");
  assert_int_equal(world.stats().held, 0);
  assert_int_equal(world.stats().lost, 2);
}

void record_that_outlived_its_time_is_told_as_expired(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a");
  world.server.let_linger("a");
  world.server.offset_us += std::int64_t{40} * 1'000'000;
  world.run_ms(10'000);
  assert_text_equal(world.take_told(), "a-expired");
}

void server_clock_that_leaps_ahead_is_told_as_vanished(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a");
  world.server.offset_us += std::int64_t{40} * 1'000'000;
  world.run_ms(10'000);
  assert_text_equal(world.take_told(), "a-vanished");
}

void loss_that_nobody_listens_to_is_told_to_who_comes_later(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a");
  world.locks.at("a").on_lost(nullptr);
  world.server.remove("a");
  world.run_ms(1000);
  assert_false(world.valid("a"));
  world.watch_loss("a");
  assert_text_equal(world.take_told(), "");
  world.run_ms(0);
  assert_text_equal(world.take_told(), "a-vanished");
  world.watch_loss("a");
  world.run_ms(100'000);
  assert_text_equal(world.take_told(), "");
}

void late_listener_may_be_replaced_or_leave_before_it_is_told(void** state) {
  auto& world = lock_world_of(state);
  for (const auto* name : {"a", "b"}) world.hold(name);
  for (const auto* name : {"a", "b"}) world.locks.at(name).on_lost(nullptr);
  for (const auto* name : {"a", "b"}) world.server.remove(name);
  world.run_ms(1000);
  int told = 0;
  for (const auto* name : {"a", "b"}) world.locks.at(name).on_lost([&told](syncguard::lost) { ++told; });
  world.watch_loss("a");
  world.drop("b");
  world.run_ms(1000);
  assert_text_equal(world.take_told(), "a-vanished");
  assert_int_equal(told, 0);
}

void listener_that_is_replaced_is_not_told(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a");
  int told = 0;
  world.locks.at("a").on_lost([&told](syncguard::lost) { told += 100; });
  world.locks.at("a").on_lost([&told](syncguard::lost) { ++told; });
  world.server.remove("a");
  world.run_ms(1000);
  assert_int_equal(told, 1);
  assert_text_equal(world.take_told(), "");
}

// Extending by hand

void longer_extend_counts_when_it_is_confirmed(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a");
  world.watched.arrival = answers::never_come;
  world.extend("a", 60'000);
  world.run_ms(10);
  assert_int_equal(world.valid_for_ms("a"), 28'990);
  world.watched.arrival = answers::come;
  world.run_ms(0);
  assert_text_equal(world.take_told(), "a:extended");
  assert_int_equal(world.valid_for_ms("a"), 58'990);
  assert_about_a_third(ms_until_sent(world, 60'000) + 10, 60'000);
}

void shorter_extend_counts_at_once(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a");
  world.watched.arrival = answers::never_come;
  world.extend("a", 5000);
  assert_int_equal(world.valid_for_ms("a"), 4500);
  world.run_ms(4499);
  assert_true(world.valid("a"));
  assert_text_equal(world.take_told(), "");
  world.run_ms(1);
  assert_text_equal(world.take_told(), "a-unconfirmed");
}

void shorter_extend_sets_the_pace_of_heartbeats(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a");
  world.extend("a", 5000);
  world.run_ms(0);
  assert_text_equal(world.take_told(), "a:extended");
  assert_int_equal(world.valid_for_ms("a"), 4500);
  for (int beats = 0; beats < 3; ++beats) assert_about_a_third(ms_until_sent(world, 5000), 5000);
}

void heartbeat_confirmed_after_a_shorter_extend_left_counts_no_more_than_that(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a");
  world.watched.server_reads = false;
  ms_until_sent(world, 30'000);
  world.watched.carry_out();
  world.extend("a", 3000);
  world.end_turn();
  world.watched.deliver();
  assert_int_equal(world.valid_for_ms("a"), 2700);
  world.run_ms(2700);
  assert_text_equal(world.take_told(), "a-unconfirmed");
}

// The margin that goes with the new time to live is longer than the old time to live.
void heartbeat_confirmed_after_a_longer_extend_left_loses_nothing(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a", {.ttl_ms = 300});
  world.watched.server_reads = false;
  ms_until_sent(world, 300);
  world.watched.carry_out();
  world.extend("a", 60'000);
  world.end_turn();
  world.watched.deliver();
  assert_true(world.valid("a"));
  world.watched.server_reads = true;
  world.run_ms(250);
  assert_text_equal(world.take_told(), "a:extended");
  assert_int_equal(world.valid_for_ms("a"), 58'750);
}

// The answer to a heartbeat from long ago must not be counted with the time to live of an extend that has just left.
void heartbeat_confirmed_late_after_a_shorter_extend_left_loses_nothing(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a");
  world.watched.server_reads = false;
  ms_until_sent(world, 30'000);
  world.run_ms(4000);
  world.watched.carry_out();
  world.extend("a", 3000);
  world.end_turn();
  world.watched.deliver();
  assert_int_equal(world.valid_for_ms("a"), 2700);
  world.watched.server_reads = true;
  world.run_ms(0);
  assert_text_equal(world.take_told(), "a:extended");
  assert_int_equal(world.valid_for_ms("a"), 2700);
}

// Long, short, long: whether the last one is carried out is not known yet.
void extend_confirmed_in_front_of_a_shorter_one_counts_no_more_than_that(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a");
  world.watched.server_reads = false;
  world.extend("a", 60'000);
  world.end_turn();
  world.watched.carry_out();
  for (const std::int64_t ttl_ms : {3000, 60'000}) {
    world.extend("a", ttl_ms);
    world.end_turn();
  }
  world.watched.deliver();
  assert_text_equal(world.take_told(), "a:extended");
  assert_int_equal(world.valid_for_ms("a"), 2700);
}

void lock_confirmed_when_its_time_was_over_is_told_lost_in_the_same_millisecond(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a", {.ttl_ms = 300});
  world.watched.arrival = answers::never_come;
  ms_until_sent(world, 300);
  world.stall_ms(400);
  world.watched.arrival = answers::come;
  world.run_ms(0);
  assert_false(world.valid("a"));
  assert_text_equal(world.take_told(), "a-unconfirmed");
}

void extend_of_a_lock_without_heartbeat_keeps_it(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a", {.ttl_ms = 1000, .heartbeat = false});
  for (int times = 0; times < 10; ++times) {
    world.run_ms(800);
    world.extend("a", 1000);
  }
  world.run_ms(800);
  assert_true(world.valid("a"));
  world.run_ms(100);
  assert_text_equal(world.take_told(),
                    "a:extended a:extended a:extended a:extended a:extended a:extended a:extended a:extended "
                    "a:extended a:extended a-unconfirmed");
  assert_int_equal(world.server.extends, 10);
}

void extend_that_finds_nothing_tells_the_loss_first(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a", {.heartbeat = false});
  world.run_ms(10);
  world.plain.arrival = answers::never_come;  // of the look that the change leads to
  world.server.remove("a");
  world.extend("a", 5000);
  world.run_ms(0);
  assert_text_equal(world.take_told(), "a-vanished a:gone");
}

void extend_that_is_too_short_is_refused(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a");
  world.hold("b", {.margin_ms = 2000});
  world.extend("a", 9);
  world.extend("b", 2000);
  world.run_ms(0);
  assert_text_equal(world.take_told(), "a!InvalidArgument b!InvalidArgument");
  assert_int_equal(world.valid_for_ms("a"), 29'000);
  world.extend("b", 2001);
  world.run_ms(0);
  assert_text_equal(world.take_told(), "b:extended");
  assert_int_equal(world.valid_for_ms("b"), 1);
}

void lost_lock_can_be_neither_extended_nor_released(void** state) {
  auto& world = lock_world_of(state);
  for (const auto* name : {"a", "b"}) world.hold(name);
  world.locks.at("b").on_lost(nullptr);
  for (const auto* name : {"a", "b"}) world.server.remove(name);
  world.run_ms(0);
  world.take_sent();
  for (const auto* name : {"a", "b"}) world.extend(name, 5000);
  for (const auto* name : {"a", "b"}) world.release(name);
  world.run_ms(0);
  assert_text_equal(world.take_told(), "a-vanished a!Aborted b!Aborted a!Aborted b!Aborted");
  assert_text_equal(world.take_sent(), "");
}

// Releasing

void release_by_hand_goes_by_the_plain_lane(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a");
  world.release("a");
  assert_false(world.valid("a"));
  assert_text_equal(world.take_told(), "");
  world.run_ms(0);
  assert_text_equal(world.take_told(), "a:released");
  assert_text_equal(world.take_sent(), "P[release:a]");
  assert_false(world.server.held("a"));
  world.release("a");
  world.run_ms(100'000);
  assert_text_equal(world.take_told(), "a!Aborted");
  world.drop("a");
  world.run_ms(0);
  assert_text_equal(world.take_sent(), "");
}

void release_of_what_is_gone_says_so_and_tells_no_loss(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a");
  world.watched.arrival = answers::never_come;
  world.server.remove("a");
  world.release("a");
  world.run_ms(100);
  world.watched.arrival = answers::come;
  world.run_ms(100'000);
  assert_text_equal(world.take_told(), "a:gone");
}

void released_with_a_heartbeat_on_its_way_ignores_its_answer(void** state) {
  auto& world = lock_world_of(state);
  for (const auto* name : {"a", "b"}) world.hold(name);
  world.watched.arrival = answers::never_come;
  world.run_ms(10'000);
  world.release("a");
  world.drop("b");
  world.run_ms(10);
  world.ask("c");
  world.watched.arrival = answers::come;
  world.run_ms(0);
  assert_text_equal(world.take_told(), "a:released c=lock");
  assert_int_equal(world.stats().held, 1);
  world.run_ms(60'000);
  assert_true(world.valid("c"));
}

void lock_that_ends_is_released_by_the_plain_lane(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a");
  world.drop("a");
  assert_int_equal(world.stats().held, 0);
  world.run_ms(0);
  assert_text_equal(world.take_sent(), "P[release:a]");
  assert_false(world.server.held("a"));
  assert_text_equal(world.last_release_error, "");
}

void failed_release_of_a_lock_that_ended_reaches_the_observer(void** state) {
  auto& world = lock_world_of(state);
  for (const auto* name : {"a", "b"}) world.hold(name);
  world.server.fault = [](const operation&) { return syncguard::error{error_code::rate_limited, "out of memory"}; };
  world.drop("a");
  world.run_ms(0);
  assert_text_equal(world.last_release_error, "!RateLimited");
  world.link_down(world.plain);
  world.drop("b");
  world.run_ms(4999);
  assert_text_equal(world.last_release_error, "!RateLimited");
  world.run_ms(1);
  assert_text_equal(world.last_release_error, "!ServiceUnavailable");
}

void lock_object_can_be_moved(void** state) {
  auto& world = lock_world_of(state);
  for (const auto* name : {"a", "b"}) world.hold(name);
  world.locks.at("a") = std::move(world.locks.at("b"));
  world.run_ms(0);
  assert_text_equal(world.take_sent(), "P[release:a]");
  assert_text_equal(world.locks.at("a").key(), "b");
  assert_false(static_cast<bool>(world.locks.at("b")));
  assert_false(world.valid("b"));
  world.server.remove("b");
  world.run_ms(0);
  assert_text_equal(world.take_told(), "b-vanished");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      lock_test(heartbeat_comes_at_a_third_of_the_ttl),
      lock_test(heartbeats_of_locks_acquired_together_part_company),
      lock_test(heartbeats_go_on_for_ever_and_keep_the_lock),
      lock_test(heartbeat_of_a_late_answer_counts_from_when_it_was_sent),
      lock_test(heartbeat_counts_from_the_servers_time_where_that_is_known),
      lock_test(heartbeat_survives_a_server_whose_clock_jumps),
      lock_test(lock_without_heartbeat_ends_with_its_validity),
      lock_test(validity_is_what_the_margin_leaves_of_the_ttl),
      lock_test(validity_counts_from_before_the_extend_was_sent),
      lock_test(validity_ends_by_the_clock_before_any_timer_has_run),
      lock_test(lock_that_is_gone_is_told_with_the_answer),
      lock_test(record_that_outlived_its_time_is_told_as_expired),
      lock_test(server_clock_that_leaps_ahead_is_told_as_vanished),
      lock_test(loss_that_nobody_listens_to_is_told_to_who_comes_later),
      lock_test(late_listener_may_be_replaced_or_leave_before_it_is_told),
      lock_test(listener_that_is_replaced_is_not_told),
      lock_test(longer_extend_counts_when_it_is_confirmed),
      lock_test(shorter_extend_counts_at_once),
      lock_test(shorter_extend_sets_the_pace_of_heartbeats),
      lock_test(heartbeat_confirmed_after_a_shorter_extend_left_counts_no_more_than_that),
      lock_test(heartbeat_confirmed_after_a_longer_extend_left_loses_nothing),
      lock_test(heartbeat_confirmed_late_after_a_shorter_extend_left_loses_nothing),
      lock_test(extend_confirmed_in_front_of_a_shorter_one_counts_no_more_than_that),
      lock_test(lock_confirmed_when_its_time_was_over_is_told_lost_in_the_same_millisecond),
      lock_test(extend_of_a_lock_without_heartbeat_keeps_it),
      lock_test(extend_that_finds_nothing_tells_the_loss_first),
      lock_test(extend_that_is_too_short_is_refused),
      lock_test(lost_lock_can_be_neither_extended_nor_released),
      lock_test(release_by_hand_goes_by_the_plain_lane),
      lock_test(release_of_what_is_gone_says_so_and_tells_no_loss),
      lock_test(released_with_a_heartbeat_on_its_way_ignores_its_answer),
      lock_test(lock_that_ends_is_released_by_the_plain_lane),
      lock_test(failed_release_of_a_lock_that_ended_reaches_the_observer),
      lock_test(lock_object_can_be_moved),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
