// The keeper in a world where links are lost, answers stay away, this process stands still, others meddle with records,
// and callbacks destroy what they like.

#include "engine/lock_keeper.hpp"

#include "lock_fixture.hpp"

namespace {

using namespace syncguard::testing;
using syncguard::error;
using syncguard::error_code;

// Until the heartbeat of each lock with the usual time to live is on its way.
constexpr std::int64_t heartbeat_sent_ms = 10'000;

lock_world& unwatched_world(void** state) {
  delete static_cast<lock_world*>(*state);
  auto* world = new lock_world{{.keeper = {.watch_max = 0, .seed = 1}}};
  *state = world;
  world->links_up();
  return *world;
}

// Loss that nobody confirms

void loss_without_a_link_is_told_when_validity_ends(void** state) {
  auto& world = lock_world_of(state);
  for (const auto* name : {"a", "b"}) world.hold(name);
  const std::int64_t held_ms = world.now_ms();
  world.link_down(world.plain);
  world.link_down(world.watched);
  world.run_ms(28'999);
  assert_true(world.valid("a"));
  assert_text_equal(world.take_told(), "");
  world.run_ms(100'000);
  const std::string told = world.take_told();
  assert_true(told == "a-unconfirmed b-unconfirmed" || told == "b-unconfirmed a-unconfirmed");
  assert_int_equal(world.told_ms, held_ms + 29'000);
  assert_false(world.hot);
}

void loss_without_answers_is_told_when_validity_ends(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a");
  const std::int64_t held_ms = world.now_ms();
  world.watched.server_reads = false;
  world.run_ms(100'000);
  assert_text_equal(world.take_told(), "a-unconfirmed");
  assert_int_equal(world.told_ms, held_ms + 29'000);
}

void lock_lost_with_an_extend_unanswered_is_given_back_behind_it(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a");
  world.watched.arrival = answers::never_come;
  world.run_ms(heartbeat_sent_ms);
  assert_text_equal(world.take_sent(), "W[extend:a]");
  world.run_ms(19'000);
  assert_text_equal(world.take_told(), "a-unconfirmed");
  assert_text_equal(world.take_sent(), "W[release:a]");
  assert_false(world.server.held("a"));
}

void lock_lost_with_an_extend_unanswered_is_given_back_by_the_plain_lane_too(void** state) {
  auto& world = unwatched_world(state);
  world.hold("a");
  world.plain.arrival = answers::never_come;
  world.run_ms(29'000);
  assert_text_equal(world.take_told(), "a-unconfirmed");
  assert_text_equal(world.take_sent(), "P[extend:a] P[release:a]");
}

void lock_lost_with_its_extend_on_a_lost_link_is_given_back_when_that_is_up(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a");
  world.watched.arrival = answers::never_come;
  world.run_ms(heartbeat_sent_ms);
  world.link_down(world.plain);
  world.link_down(world.watched);
  world.run_ms(19'500);
  assert_text_equal(world.take_told(), "a-unconfirmed");
  world.take_sent();
  world.watched.arrival = answers::come;
  world.links_up();
  assert_text_equal(world.take_sent(), "W[release:a]");
  assert_false(world.server.held("a"));
}

void lock_lost_without_an_extend_is_not_given_back(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a");
  world.link_down(world.plain);
  world.link_down(world.watched);
  world.run_ms(29'000);
  world.links_up();
  world.run_ms(1000);
  assert_text_equal(world.take_told(), "a-unconfirmed");
  assert_text_equal(world.take_sent(), "");
}

// Time that nobody noticed

void answer_that_came_while_the_process_stood_still_saves_the_lock(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a", {.ttl_ms = 3000, .heartbeat = false});
  world.run_ms(2000);
  world.watched.arrival = answers::by_poll;
  world.extend("a", 3000);
  world.settle_down();
  world.polls = 0;
  world.stall_ms(1500);
  assert_false(world.valid("a"));
  world.run_timers();
  assert_text_equal(world.take_told(), "a:extended");
  assert_int_equal(world.polls, 2);
  assert_true(world.valid("a"));
  assert_int_equal(world.valid_for_ms("a"), 2700 - 1500);
}

void heartbeat_answered_while_the_process_stood_still_saves_the_lock(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a");
  world.watched.arrival = answers::by_poll;
  world.run_ms(heartbeat_sent_ms);
  world.stall_ms(21'000);
  world.run_timers();
  assert_true(world.valid("a"));
  world.watched.arrival = answers::come;
  world.run_ms(60'000);
  assert_true(world.valid("a"));
  assert_text_equal(world.take_told(), "");
}

void answer_that_is_not_there_when_polled_for_is_too_late(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a", {.ttl_ms = 3000, .heartbeat = false});
  world.run_ms(2000);
  world.watched.arrival = answers::never_come;
  world.extend("a", 3000);
  world.settle_down();
  world.polls = 0;
  world.stall_ms(1500);
  world.run_timers();
  assert_text_equal(world.take_told(), "a-unconfirmed");
  assert_int_equal(world.polls, 2);
  world.watched.arrival = answers::come;
  world.run_ms(0);
  assert_text_equal(world.take_told(), "a:extended");
  assert_false(world.valid("a"));
  assert_false(world.server.held("a"));
}

void answer_too_old_to_be_of_use_does_not_save_the_lock(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a", {.ttl_ms = 3000, .heartbeat = false});
  world.run_ms(2000);
  world.watched.arrival = answers::by_poll;
  world.extend("a", 3000);
  world.settle_down();
  world.stall_ms(2700);
  world.run_timers();
  assert_false(world.valid("a"));
  world.run_ms(1);
  assert_text_equal(world.take_told(), "a:extended a-unconfirmed");
}

void nothing_on_its_way_is_not_polled_for(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a");
  world.stall_ms(40'000);
  world.run_timers();
  assert_text_equal(world.take_told(), "a-unconfirmed");
  assert_int_equal(world.polls, 0);
}

// Failures and lanes

void failed_heartbeats_are_tried_again_with_pauses(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a");
  int asked = 0;
  world.server.fault = [&](const operation&) {
    ++asked;
    return error{error_code::service_unavailable, "the server is busy"};
  };
  world.run_ms(28'999);
  assert_in_range(asked, 19, 45);
  assert_text_equal(world.take_told(), "");
  world.run_ms(1);
  assert_text_equal(world.take_told(), "a-unconfirmed");
  assert_false(world.hot);
}

void heartbeat_that_failed_and_then_succeeds_keeps_the_lock(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a", {.ttl_ms = 10});
  int asked = 0;
  world.server.fault = [&](const operation&) {
    return ++asked % 2 == 1 ? std::optional{error{error_code::service_unavailable, "busy"}} : std::nullopt;
  };
  world.run_ms(2);
  world.hold("b", {.ttl_ms = 30'000});
  world.run_ms(100'000);
  assert_false(world.hot);
  assert_true(world.valid("b"));
}

void refused_lane_does_not_spin(void** state) {
  auto& world = unwatched_world(state);
  world.hold("a");
  world.link_down(world.watched, error_code::auth_failed, true);
  world.link_down(world.plain, error_code::auth_failed, true);
  const std::uint64_t turns = world.turns;
  world.run_ms(29'000);
  assert_text_equal(world.take_told(), "a-unconfirmed");
  assert_true(world.turns - turns < 200);
}

void heartbeats_take_the_lane_that_is_left(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a");
  world.link_down(world.watched);
  world.run_ms(heartbeat_sent_ms);
  assert_text_equal(world.take_sent(), "P[extend:a]");
  world.link_up(world.watched);
  world.run_ms(0);
  assert_text_equal(world.take_sent(), "W[extend:a]");
  world.link_down(world.plain);
  world.run_ms(heartbeat_sent_ms);
  assert_text_equal(world.take_sent(), "W[extend:a]");
  assert_true(world.valid("a"));
}

void heartbeat_on_its_way_by_a_lane_that_is_lost_takes_the_other(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a");
  world.watched.arrival = answers::never_come;
  world.run_ms(heartbeat_sent_ms);
  assert_text_equal(world.take_sent(), "W[extend:a]");
  world.link_down(world.watched);
  world.run_ms(100'000);
  assert_text_equal(world.take_told(), "");
  assert_true(world.valid("a"));
}

void heartbeat_on_its_way_by_a_plain_lane_that_is_lost_takes_the_other(void** state) {
  auto& world = unwatched_world(state);
  world.hold("a");
  world.plain.arrival = answers::never_come;
  world.run_ms(heartbeat_sent_ms);
  assert_text_equal(world.take_sent(), "P[extend:a]");
  world.link_down(world.plain);
  world.run_ms(100'000);
  assert_text_equal(world.take_told(), "");
  assert_true(world.valid("a"));
}

void heartbeat_on_its_way_by_a_lane_that_comes_back_is_sent_again(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a");
  world.watched.arrival = answers::never_come;
  world.run_ms(heartbeat_sent_ms);
  world.link_down(world.watched);
  world.run_ms(5000);
  world.watched.arrival = answers::come;
  world.take_sent();
  world.link_up(world.watched);
  world.run_ms(0);
  assert_true(world.valid_for_ms("a") > 23'000);
  world.run_ms(100'000);
  assert_text_equal(world.take_told(), "");
}

// Changes by others

void change_by_somebody_leads_to_a_heartbeat_at_once(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a");
  for (int times = 0; times < 3; ++times) {
    world.run_ms(100);
    assert_text_equal(world.take_sent(), "");
    world.server.touch("a");
    world.run_ms(0);
    assert_text_equal(world.take_sent(), "W[extend:a]");
    assert_int_equal(world.valid_for_ms("a"), 29'000);
  }
  assert_text_equal(world.take_told(), "");
}

void change_while_the_heartbeat_is_on_its_way_is_known_to_its_answer(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a");
  world.server.touch("a");
  world.watched.server_reads = false;
  world.run_ms(0);
  world.server.touch("a");
  world.watched.server_reads = true;
  world.run_ms(0);
  assert_text_equal(world.take_sent(), "W[extend:a]");
}

void change_while_a_heartbeat_is_on_the_other_lane_leads_to_one_more(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a");
  world.link_down(world.watched);
  world.plain.arrival = answers::never_come;
  world.run_ms(heartbeat_sent_ms);
  assert_text_equal(world.take_sent(), "P[extend:a]");
  world.link_up(world.watched);
  world.run_ms(0);
  world.server.remove("a");
  assert_text_equal(world.take_sent(), "");
  world.plain.arrival = answers::come;
  world.run_ms(0);
  assert_text_equal(world.take_sent(), "W[extend:a]");
  assert_text_equal(world.take_told(), "a-vanished");
}

void change_of_a_lock_without_heartbeat_leads_to_a_look(void** state) {
  auto& world = lock_world_of(state);
  for (const auto* name : {"a", "b"}) world.hold(name, {.heartbeat = false});
  world.run_ms(1000);
  world.server.touch("a");
  world.run_ms(0);
  assert_text_equal(world.take_sent(), "P[lookup_id:a]");
  world.server.remove("b");
  world.run_ms(0);
  assert_text_equal(world.take_sent(), "P[lookup_id:b]");
  assert_text_equal(world.take_told(), "b-vanished");
  assert_int_equal(world.valid_for_ms("a"), 28'000);
  world.run_ms(28'000);
  assert_text_equal(world.take_told(), "a-unconfirmed");
  assert_int_equal(world.server.extends, 0);
}

void change_while_a_look_is_on_its_way_leads_to_another(void** state) {
  auto& world = lock_world_of(state);
  world.hold("a", {.heartbeat = false});
  world.server.touch("a");
  world.plain.arrival = answers::never_come;
  world.run_ms(0);
  assert_text_equal(world.take_sent(), "P[lookup_id:a]");
  world.ask_for("other", "a");  // looks at the record by the watched lane
  world.run_ms(0);
  world.server.remove("a");
  world.run_ms(0);
  world.plain.arrival = answers::come;
  world.run_ms(0);
  assert_text_equal(world.take_told(), "other=lock a-vanished");
}

void flushed_server_is_noticed_for_all_locks_at_once(void** state) {
  auto& world = lock_world_of(state);
  world.hold_many(100);
  world.server.flush();
  world.run_ms(0);
  assert_int_equal(world.many_lost, 100);
}

void keys_that_share_a_place_are_looked_at_together(void** state) {
  auto& world = lock_world_of(state);
  world.one_place = true;
  for (const auto* name : {"a", "b", "c"}) world.hold(name);
  world.server.remove("b");
  world.run_ms(0);
  assert_text_equal(world.take_sent(), "W[extend:c extend:b extend:a]");
  assert_text_equal(world.take_told(), "b-vanished");
}

void no_more_locks_are_watched_than_wanted(void** state) {
  delete static_cast<lock_world*>(*state);
  auto* world = new lock_world{{.keeper = {.watch_max = 2, .seed = 1}}};
  *state = world;
  world->links_up();
  for (const auto* name : {"a", "b", "c"}) world->hold(name);
  for (const auto* name : {"a", "b", "c"}) world->server.touch(name);
  world->run_ms(0);
  assert_text_equal(world->take_sent(), "W[extend:a extend:b]");
  world->drop("a");
  world->run_ms(0);
  world->take_sent();
  world->run_ms(heartbeat_sent_ms);  // c is watched from its next heartbeat on, and that goes by the plain lane
  assert_true(world->take_sent().find("P[extend:c]") != std::string::npos);
  world->run_ms(heartbeat_sent_ms);
  world->take_sent();
  world->server.touch("c");
  world->run_ms(0);
  assert_text_equal(world->take_sent(), "W[extend:c]");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      lock_test(loss_without_a_link_is_told_when_validity_ends),
      lock_test(loss_without_answers_is_told_when_validity_ends),
      lock_test(lock_lost_with_an_extend_unanswered_is_given_back_behind_it),
      lock_test(lock_lost_with_an_extend_unanswered_is_given_back_by_the_plain_lane_too),
      lock_test(lock_lost_with_its_extend_on_a_lost_link_is_given_back_when_that_is_up),
      lock_test(lock_lost_without_an_extend_is_not_given_back),
      lock_test(answer_that_came_while_the_process_stood_still_saves_the_lock),
      lock_test(heartbeat_answered_while_the_process_stood_still_saves_the_lock),
      lock_test(answer_that_is_not_there_when_polled_for_is_too_late),
      lock_test(answer_too_old_to_be_of_use_does_not_save_the_lock),
      lock_test(nothing_on_its_way_is_not_polled_for),
      lock_test(failed_heartbeats_are_tried_again_with_pauses),
      lock_test(heartbeat_that_failed_and_then_succeeds_keeps_the_lock),
      lock_test(refused_lane_does_not_spin),
      lock_test(heartbeats_take_the_lane_that_is_left),
      lock_test(heartbeat_on_its_way_by_a_lane_that_is_lost_takes_the_other),
      lock_test(heartbeat_on_its_way_by_a_plain_lane_that_is_lost_takes_the_other),
      lock_test(heartbeat_on_its_way_by_a_lane_that_comes_back_is_sent_again),
      lock_test(change_by_somebody_leads_to_a_heartbeat_at_once),
      lock_test(change_while_the_heartbeat_is_on_its_way_is_known_to_its_answer),
      lock_test(change_while_a_heartbeat_is_on_the_other_lane_leads_to_one_more),
      lock_test(change_of_a_lock_without_heartbeat_leads_to_a_look),
      lock_test(change_while_a_look_is_on_its_way_leads_to_another),
      lock_test(flushed_server_is_noticed_for_all_locks_at_once),
      lock_test(keys_that_share_a_place_are_looked_at_together),
      lock_test(no_more_locks_are_watched_than_wanted),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
