// The waiting room where the server answers: what wakes those who wait, in which order they are served, how long they
// wait, cancelling, and what callbacks may do.

#include "engine/waiting_room.hpp"

#include "lock_fixture.hpp"

namespace {

using namespace syncguard::testing;
using syncguard::error;
using syncguard::error_code;

constexpr std::int64_t long_ms = 1'000'000;

// Attempts

void free_lock_is_got_by_one_attempt(void** state) {
  auto& world = lock_world_of(state);
  world.ask("a");
  assert_text_equal(world.take_told(), "");
  world.run_ms(0);
  assert_text_equal(world.take_told(), "a=lock");
  assert_text_equal(world.take_sent(), "W[acquire:a]");
  assert_true(world.watching_wanted);
  assert_int_equal(world.stats().waiting, 0);
  world.run_ms(100);
  assert_int_equal(world.stats().attempts, 1);
}

void one_attempt_per_key_is_on_its_way(void** state) {
  auto& world = lock_world_of(state);
  for (const auto* name : {"1", "2", "3"}) world.ask_for(name, "a");
  for (const auto* name : {"4", "5"}) world.ask_for(name, "b");
  world.end_turn();
  assert_text_equal(world.take_sent(), "W[acquire:a acquire:b]");
  world.run_ms(100);
  assert_text_equal(world.take_told(), "1=lock 4=lock");
  assert_text_equal(world.take_sent(), "");
}

void waiters_are_served_in_the_order_of_arrival(void** state) {
  auto& world = lock_world_of(state);
  for (const auto* name : {"1", "2", "3", "4"}) world.ask_for(name, "a");
  world.run_ms(10);
  for (const auto* name : {"1", "2", "3", "4"}) {
    assert_text_equal(world.take_told(), std::string{name} + "=lock");
    world.take_sent();
    world.drop(name);
    world.run_ms(0);
  }
  assert_text_equal(world.take_sent(), "P[release:a]");
  assert_int_equal(world.stats().attempts, 4);
}

// However often the one in front has asked in vain.
void waiters_for_a_lock_of_others_keep_their_order(void** state) {
  auto& world = lock_world_of(state);
  world.server.take("a", long_ms);
  for (const auto* name : {"1", "2", "3"}) world.ask_for(name, "a", {.wait_ms = long_ms});
  world.run_ms(1000);
  world.server.touch("a");
  world.run_ms(1000);
  world.server.remove("a");
  for (const auto* name : {"1", "2", "3"}) {
    world.run_ms(1000);
    assert_text_equal(world.take_told(), std::string{name} + "=lock");
    world.drop(name);
  }
}

void keys_that_share_a_place_have_queues_of_their_own(void** state) {
  auto& world = lock_world_of(state);
  world.one_place = true;
  world.server.take("a", long_ms);
  for (const auto* name : {"a", "b"}) world.ask(name);
  world.run_ms(0);
  assert_text_equal(world.take_told(), "b=lock");
  world.server.remove("a");
  world.run_ms(0);
  assert_text_equal(world.take_told(), "a=lock");
}

// Waking

void change_wakes_at_once(void** state) {
  auto& world = lock_world_of(state);
  world.server.take("a", long_ms);
  world.ask("a");
  world.run_ms(1000);
  assert_text_equal(world.take_sent(), "W[acquire:a]");
  world.server.touch("a");
  world.run_ms(1000);
  assert_text_equal(world.take_sent(), "W[acquire:a]");
  assert_text_equal(world.take_told(), "");
  world.server.remove("a");
  world.run_ms(0);
  assert_text_equal(world.take_told(), "a=lock");
  assert_int_equal(world.stats().wakes, 2);
}

void change_while_the_attempt_is_on_its_way_is_known_to_its_answer(void** state) {
  auto& world = lock_world_of(state);
  world.server.take("a", long_ms);
  world.ask_for("1", "a");
  world.run_ms(0);
  world.server.touch("a");
  world.watched.server_reads = false;
  world.run_ms(0);
  world.server.remove("a");
  world.watched.server_reads = true;
  world.run_ms(0);
  assert_text_equal(world.take_told(), "1=lock");
  assert_int_equal(world.stats().attempts, 2);
}

void end_of_the_holders_time_wakes(void** state) {
  auto& world = lock_world_of(state);
  world.server.take("a", 1500);
  world.ask("a");
  world.run_ms(1499);
  assert_int_equal(world.stats().attempts, 1);
  world.run_ms(3);
  assert_text_equal(world.take_told(), "a=lock");
  assert_int_equal(world.stats().attempts, 2);
}

void record_that_outlives_its_time_is_asked_for_with_pauses(void** state) {
  auto& world = lock_world_of(state);
  world.server.take("a", 100);
  world.server.let_linger("a");
  world.ask("a");
  world.run_ms(1099);
  assert_text_equal(world.take_told(), "");
  assert_in_range(world.stats().attempts, 10, 25);
  world.run_ms(60);
  assert_text_equal(world.take_told(), "a=lock");
}

void lost_notice_is_made_up_for_by_a_poll(void** state) {
  auto& world = lock_world_of(state);
  world.server.take("a", long_ms);
  world.ask("a", {.wait_ms = 60'000});
  world.run_ms(0);
  const std::int64_t asleep_ms = world.now_ms();
  world.server.forget(world.watched);
  world.server.remove("a");
  world.run_ms(5000);
  assert_text_equal(world.take_told(), "a=lock");
  assert_in_range(world.told_ms - asleep_ms, 2500, 5000);
}

void unreadable_record_is_waited_for(void** state) {
  auto& world = lock_world_of(state);
  world.server.spoil("a");
  world.ask("a", {.wait_ms = 60'000});
  world.run_ms(10'000);
  assert_in_range(world.stats().attempts, 3, 5);
  world.server.remove("a");
  world.run_ms(0);
  assert_text_equal(world.take_told(), "a=lock");
}

void flushed_server_wakes_everybody(void** state) {
  auto& world = lock_world_of(state);
  for (const auto* name : {"a", "b"}) world.server.take(name, long_ms);
  for (const auto* name : {"a", "b"}) world.ask(name);
  world.run_ms(100);
  world.server.flush();
  world.run_ms(0);
  const std::string told = world.take_told();
  assert_true(told == "a=lock b=lock" || told == "b=lock a=lock");
}

// Patience

void without_patience_one_attempt_is_made(void** state) {
  auto& world = lock_world_of(state);
  world.ask("free", {.wait_ms = 0});
  world.server.take("a", long_ms);
  world.ask("a", {.wait_ms = 0});
  world.run_ms(100);
  assert_text_equal(world.take_told(), "free=lock a!AcquisitionTimeout");
  assert_text_equal(world.last_failure, "the lock stayed held by others (held by others for 0 ms, 1 attempt)");
  assert_int_equal(world.stats().attempts, 2);
  assert_int_equal(world.stats().waiting, 0);
}

void without_patience_the_answer_is_waited_for(void** state) {
  auto& world = lock_world_of(state);
  world.watched.arrival = answers::never_come;
  world.ask("a", {.wait_ms = 0});
  world.run_ms(4000);
  assert_text_equal(world.take_told(), "");
  world.watched.arrival = answers::come;
  world.run_ms(0);
  assert_text_equal(world.take_told(), "a=lock");
  assert_int_equal(world.stats().attempts, 1);
}

void without_patience_in_line_an_attempt_is_made_for_the_first(void** state) {
  auto& world = lock_world_of(state);
  world.server.take("a", long_ms);
  world.ask_for("1", "a");
  world.run_ms(100);
  world.take_sent();
  world.ask_for("2", "a", {.wait_ms = 0});
  world.run_ms(0);
  assert_text_equal(world.take_sent(), "W[acquire:a]");
  assert_text_equal(world.take_told(), "2!AcquisitionTimeout");
  assert_text_equal(world.last_failure, "the lock stayed held by others (held by others for 0 ms, 1 attempt)");
  assert_int_equal(world.stats().waiting, 1);
}

// The server refuses an attempt and then the lock becomes free, all before the next one asks.
void refused_attempt_whose_answer_is_on_its_way(lock_world& world) {
  world.server.take("a", long_ms);
  world.watched.arrival = answers::never_come;
  world.ask_for("1", "a");
  world.run_ms(10);
  world.server.remove("a");
}

void without_patience_the_attempt_of_one_who_left_does_not_count(void** state) {
  auto& world = lock_world_of(state);
  refused_attempt_whose_answer_is_on_its_way(world);
  world.cancel("1");
  world.ask_for("2", "a", {.wait_ms = 0});
  world.watched.arrival = answers::come;
  world.run_ms(0);
  assert_text_equal(world.take_told(), "1!Aborted 2=lock");
}

void without_patience_an_attempt_made_before_does_not_count(void** state) {
  auto& world = lock_world_of(state);
  refused_attempt_whose_answer_is_on_its_way(world);
  world.ask_for("2", "a", {.wait_ms = 0});
  world.cancel("1");
  world.run_ms(10);
  world.watched.arrival = answers::come;
  world.run_ms(0);
  assert_text_equal(world.take_told(), "1!Aborted 2=lock");
}

void patience_ends_to_the_millisecond(void** state) {
  auto& world = lock_world_of(state);
  world.server.take("a", long_ms);
  const std::int64_t began_ms = world.now_ms();
  world.ask_for("1", "a", {.wait_ms = 300});
  world.run_ms(0);
  world.ask_for("2", "a", {.wait_ms = 200});
  world.run_ms(199);
  assert_text_equal(world.take_told(), "");
  world.run_ms(1);
  assert_text_equal(world.take_told(), "2!AcquisitionTimeout");
  world.run_ms(1000);
  assert_text_equal(world.take_told(), "1!AcquisitionTimeout");
  assert_int_equal(world.told_ms, began_ms + 300);
  assert_text_equal(world.last_failure, "the lock stayed held by others (held by others for 300 ms, 2 attempts)");
  assert_false(world.room->next_wake_ms().has_value());
}

void timeout_counts_the_attempts_of_its_time(void** state) {
  auto& world = lock_world_of(state);
  world.server.take("a", long_ms);
  world.ask_for("1", "a", {.wait_ms = 60'000});
  for (int changes = 0; changes < 3; ++changes) {
    world.run_ms(100);
    world.server.touch("a");
  }
  world.run_ms(100);
  world.ask_for("2", "a", {.wait_ms = 1000});
  for (int changes = 0; changes < 2; ++changes) {
    world.run_ms(100);
    world.server.touch("a");
  }
  world.run_ms(800);
  assert_text_equal(world.take_told(), "2!AcquisitionTimeout");
  assert_text_equal(world.last_failure, "the lock stayed held by others (held by others for 1000 ms, 2 attempts)");
}

// Giving up

void waiter_that_is_cancelled_is_told_at_the_end_of_the_turn(void** state) {
  auto& world = lock_world_of(state);
  world.server.take("a", long_ms);
  for (const auto* name : {"1", "2", "3"}) world.ask_for(name, "a");
  assert_true(world.cancel("2"));
  assert_text_equal(world.take_told(), "");
  assert_false(world.cancel("2"));
  world.run_ms(100);
  assert_true(world.cancel("1"));
  world.run_ms(0);
  assert_text_equal(world.take_told(), "2!Aborted 1!Aborted");
  assert_false(world.cancel("1"));
  world.server.remove("a");
  world.run_ms(0);
  assert_text_equal(world.take_told(), "3=lock");
  assert_false(world.cancel("3"));
}

void cancelled_before_it_was_sent_is_never_sent(void** state) {
  auto& world = lock_world_of(state);
  world.ask("a");
  assert_true(world.cancel("a"));
  world.run_ms(100);
  assert_text_equal(world.take_told(), "a!Aborted");
  assert_text_equal(world.take_sent(), "");
}

void lock_acquired_for_one_who_cancelled_is_given_back(void** state) {
  auto& world = lock_world_of(state);
  world.watched.arrival = answers::never_come;
  world.ask("a");
  world.run_ms(10);
  assert_true(world.cancel("a"));
  world.run_ms(10);
  assert_text_equal(world.take_told(), "a!Aborted");
  assert_true(world.server.held("a"));
  world.watched.arrival = answers::come;
  world.run_ms(0);
  assert_text_equal(world.take_sent(), "W[acquire:a] W[release:a]");
  assert_false(world.server.held("a"));
}

void lock_acquired_for_one_who_cancelled_goes_to_the_next(void** state) {
  auto& world = lock_world_of(state);
  world.watched.arrival = answers::never_come;
  for (const auto* name : {"1", "2"}) world.ask_for(name, "a");
  world.run_ms(10);
  assert_true(world.cancel("1"));
  world.watched.arrival = answers::come;
  world.run_ms(0);
  assert_text_equal(world.take_told(), "1!Aborted 2=lock");
  assert_text_equal(world.take_sent(), "W[acquire:a]");
}

void next_in_line_with_another_ttl_gets_an_attempt_of_its_own(void** state) {
  auto& world = lock_world_of(state);
  world.watched.arrival = answers::never_come;
  world.ask_for("1", "a", {.ttl_ms = 30'000});
  world.ask_for("2", "a", {.ttl_ms = 5000});
  world.run_ms(10);
  world.cancel("1");
  world.watched.arrival = answers::come;
  world.run_ms(0);
  assert_text_equal(world.take_told(), "1!Aborted 2=lock");
  assert_text_equal(world.take_sent(), "W[acquire:a] W[release:a acquire:a]");
  assert_int_equal(world.valid_for_ms("2"), 4500);
  assert_int_equal(world.server.expires_at_ms("a"), world.server.now_ms() + 5000);
}

void each_in_line_gets_its_own_ttl_and_margin(void** state) {
  auto& world = lock_world_of(state);
  world.ask_for("1", "a", {.ttl_ms = 30'000});
  world.ask_for("2", "a", {.ttl_ms = 5000, .margin_ms = 1});
  world.run_ms(10);
  assert_int_equal(world.valid_for_ms("1"), 28'990);
  world.drop("1");
  world.run_ms(0);
  assert_int_equal(world.valid_for_ms("2"), 4999);
}

void closed_room_sends_everybody_away(void** state) {
  auto& world = lock_world_of(state);
  world.server.take("a", long_ms);
  for (const auto* name : {"1", "2"}) world.ask_for(name, "a");
  world.run_ms(10);
  world.ask_for("queued", "c");
  world.watched.arrival = answers::never_come;
  world.ask_for("sent", "b");
  world.end_turn();
  world.watched.carry_out();
  world.close();
  assert_text_equal(world.take_told(), "");
  world.run_ms(0);
  assert_text_equal(world.take_told(), "1!Aborted 2!Aborted queued!Aborted sent!Aborted");
  world.watched.arrival = answers::come;
  world.run_ms(1000);
  assert_false(world.server.held("b"));
  assert_false(world.server.held("c"));
  assert_int_equal(world.stats().waiting, 0);
}

void many_who_leave_are_told_over_several_turns(void** state) {
  auto& world = lock_world_of(state);
  world.server.take("a", long_ms);
  std::size_t refused = 0;
  world.inside_refused = [&](const std::string&) { ++refused; };
  for (int index = 0; index < 1200; ++index) world.ask_for(std::to_string(index), "a");
  world.run_ms(0);
  world.close();
  for (const std::size_t told : {512U, 1024U, 1200U}) {
    world.end_turn();
    assert_int_equal(refused, told);
  }
}

void refused_at_the_door_is_told_at_the_end_of_the_turn(void** state) {
  auto& world = lock_world_of(state);
  std::size_t told = 0;
  world.room->turn_away([&told](const syncguard::result<syncguard::lock>& got) { told += got ? 100 : 1; },
                        {error_code::invalid_argument, "the key is empty"});
  assert_int_equal(told, 0);
  assert_int_equal(world.stats().waiting, 1);
  world.run_ms(0);
  assert_int_equal(told, 1);
  assert_int_equal(world.stats().waiting, 0);
}

// Inside callbacks; a sanitizer watches.

void callback_may_ask_again_and_cancel_others(void** state) {
  auto& world = lock_world_of(state);
  for (const auto* name : {"1", "2", "3"}) world.ask_for(name, "a");
  world.inside_got = [&](const std::string& name) {
    if (name != "1") return;
    world.cancel("2");
    world.ask_for("4", "a");
    world.ask_for("5", "b");
    world.drop("1");
  };
  world.run_ms(0);
  assert_text_equal(world.take_told(), "1=lock 2!Aborted 5=lock 3=lock");
  world.drop("3");
  world.run_ms(0);
  assert_text_equal(world.take_told(), "4=lock");
}

void refused_callback_may_ask_again(void** state) {
  auto& world = lock_world_of(state);
  world.server.take("a", long_ms);
  int times = 0;
  world.inside_refused = [&](const std::string& name) {
    if (++times < 100) world.ask(name, {.wait_ms = 0});
  };
  world.ask("a", {.wait_ms = 0});
  world.run_ms(100);
  assert_int_equal(times, 100);
  assert_int_equal(world.stats().attempts, 100);
  assert_false(world.hot);
}

void room_may_be_abandoned_as_a_lock_is_got(void** state) {
  auto& world = lock_world_of(state);
  for (const auto* name : {"a", "b"}) world.ask(name);
  for (const auto* name : {"3", "4"}) world.ask_for(name, "a");
  world.inside_got = [&](const std::string&) { world.abandon(); };
  world.run_ms(100'000);
  assert_text_equal(world.take_told(), "a=lock");
}

void room_may_be_abandoned_as_somebody_leaves(void** state) {
  auto& world = lock_world_of(state);
  world.server.take("a", long_ms);
  for (const auto* name : {"1", "2", "3"}) world.ask_for(name, "a");
  world.inside_refused = [&](const std::string&) { world.abandon(); };
  world.run_ms(100'000);
  assert_text_equal(world.take_told(), "1!AcquisitionTimeout");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      lock_test(free_lock_is_got_by_one_attempt),
      lock_test(one_attempt_per_key_is_on_its_way),
      lock_test(waiters_are_served_in_the_order_of_arrival),
      lock_test(waiters_for_a_lock_of_others_keep_their_order),
      lock_test(keys_that_share_a_place_have_queues_of_their_own),
      lock_test(change_wakes_at_once),
      lock_test(change_while_the_attempt_is_on_its_way_is_known_to_its_answer),
      lock_test(end_of_the_holders_time_wakes),
      lock_test(record_that_outlives_its_time_is_asked_for_with_pauses),
      lock_test(lost_notice_is_made_up_for_by_a_poll),
      lock_test(unreadable_record_is_waited_for),
      lock_test(flushed_server_wakes_everybody),
      lock_test(without_patience_one_attempt_is_made),
      lock_test(without_patience_the_answer_is_waited_for),
      lock_test(without_patience_in_line_an_attempt_is_made_for_the_first),
      lock_test(without_patience_the_attempt_of_one_who_left_does_not_count),
      lock_test(without_patience_an_attempt_made_before_does_not_count),
      lock_test(patience_ends_to_the_millisecond),
      lock_test(timeout_counts_the_attempts_of_its_time),
      lock_test(waiter_that_is_cancelled_is_told_at_the_end_of_the_turn),
      lock_test(cancelled_before_it_was_sent_is_never_sent),
      lock_test(lock_acquired_for_one_who_cancelled_is_given_back),
      lock_test(lock_acquired_for_one_who_cancelled_goes_to_the_next),
      lock_test(next_in_line_with_another_ttl_gets_an_attempt_of_its_own),
      lock_test(each_in_line_gets_its_own_ttl_and_margin),
      lock_test(closed_room_sends_everybody_away),
      lock_test(many_who_leave_are_told_over_several_turns),
      lock_test(refused_at_the_door_is_told_at_the_end_of_the_turn),
      lock_test(callback_may_ask_again_and_cancel_others),
      lock_test(refused_callback_may_ask_again),
      lock_test(room_may_be_abandoned_as_a_lock_is_got),
      lock_test(room_may_be_abandoned_as_somebody_leaves),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
