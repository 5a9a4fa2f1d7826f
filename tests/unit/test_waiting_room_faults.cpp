// The waiting room where the watched lane comes and goes, attempts fail, and answers come too late.

#include "engine/waiting_room.hpp"

#include "lock_fixture.hpp"

namespace {

using namespace syncguard::testing;
using syncguard::error;
using syncguard::error_code;

constexpr std::int64_t long_ms = 10'000'000;

void fail_everything(lock_world& world, error_code code) {
  world.server.fault = [code](const operation&) { return error{code, "the server does not want to"}; };
}

// Pauses double from 100 ms up to 5 s; half of each is fixed, half by chance.
void assert_pauses(const std::vector<std::int64_t>& times_ms) {
  std::int64_t pause_ms = 100;
  for (std::size_t index = 1; index < times_ms.size(); ++index) {
    assert_in_range(times_ms[index] - times_ms[index - 1], pause_ms / 2, pause_ms);
    pause_ms = std::min<std::int64_t>(pause_ms * 2, 5000);
  }
}

// The watched lane

void without_the_watched_lane_pauses_grow(void** state) {
  auto& world = lock_world_of(state);
  world.link_up(world.plain);
  world.server.take("a", long_ms);
  world.ask("a", {.wait_ms = 60'000});
  world.run_ms(59'000);
  assert_in_range(world.attempt_times_ms.size(), 16, 30);
  assert_pauses(world.attempt_times_ms);
  assert_true(world.take_sent().find('W') == std::string::npos);
}

void without_the_watched_lane_pauses_vary_by_chance(void** state) {
  std::vector<std::int64_t> first_ms;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    delete static_cast<lock_world*>(*state);
    auto* world = new lock_world{{.room_seed = seed}};
    *state = world;
    world->link_up(world->plain);
    world->server.take("a", long_ms);
    world->ask("a");
    world->run_ms(110);
    first_ms.push_back(world->attempt_times_ms.at(1));
  }
  std::sort(first_ms.begin(), first_ms.end());
  assert_true(std::unique(first_ms.begin(), first_ms.end()) - first_ms.begin() > 10);
}

void without_the_watched_lane_the_holders_end_still_wakes(void** state) {
  auto& world = lock_world_of(state);
  world.link_up(world.plain);
  world.server.take("a", 20'000);
  world.ask("a", {.wait_ms = 60'000});
  world.run_ms(20'005);
  assert_text_equal(world.take_told(), "a=lock");
}

void watched_lane_that_comes_up_is_used_at_once(void** state) {
  auto& world = lock_world_of(state);
  world.link_up(world.plain);
  world.server.take("a", long_ms);
  for (const auto* name : {"1", "2"}) world.ask_for(name, "a", {.wait_ms = 60'000});
  world.run_ms(3000);
  world.take_sent();
  world.link_up(world.watched);
  world.run_ms(0);
  assert_text_equal(world.take_sent(), "W[acquire:a]");
  world.server.remove("a");
  world.run_ms(0);
  assert_text_equal(world.take_told(), "1=lock");
}

void watched_lane_that_comes_up_during_an_attempt_is_used_next(void** state) {
  auto& world = lock_world_of(state);
  world.link_up(world.plain);
  world.server.take("a", long_ms);
  world.plain.arrival = answers::never_come;
  world.ask("a");
  world.run_ms(0);
  world.link_up(world.watched);
  world.run_ms(10);
  assert_text_equal(world.take_sent(), "P[acquire:a]");
  world.plain.arrival = answers::come;
  world.run_ms(0);
  assert_text_equal(world.take_sent(), "W[acquire:a]");
}

void watched_lane_lost_while_they_sleep_leads_to_pauses(void** state) {
  auto& world = lock_world_of(state);
  world.links_up();
  world.server.take("a", long_ms);
  world.ask("a", {.wait_ms = 60'000});
  world.run_ms(1000);
  world.link_down(world.watched);
  world.attempt_times_ms = {world.now_ms()};
  world.take_sent();
  world.run_ms(3000);
  assert_in_range(world.attempt_times_ms.size(), 5, 8);
  assert_pauses(world.attempt_times_ms);
  assert_text_equal(world.take_sent().substr(0, 12), "P[acquire:a]");
  world.link_up(world.watched);
  world.run_ms(0);
  assert_text_equal(world.take_sent(), "W[acquire:a]");
  world.run_ms(2000);
  assert_text_equal(world.take_sent(), "");
}

void attempt_on_a_watched_lane_that_is_lost_is_made_by_the_plain_one_at_once(void** state) {
  auto& world = lock_world_of(state);
  world.links_up();
  world.watched.server_reads = false;
  world.ask("a", {.wait_ms = 60'000});
  world.run_ms(100);
  world.link_down(world.watched);
  world.run_ms(0);
  assert_text_equal(world.take_told(), "a=lock");
  assert_true(world.take_sent().ends_with(" acquire:a]"));
}

// What the lost lane has acquired is given back first, or it would be in the way until its time to live ends.
void attempt_that_succeeded_on_a_lost_watched_lane_is_in_nobodys_way(void** state) {
  auto& world = lock_world_of(state);
  world.links_up();
  world.watched.arrival = answers::never_come;
  world.ask("a");
  world.run_ms(100);
  assert_true(world.server.held("a"));
  world.link_down(world.watched);
  world.run_ms(0);
  assert_text_equal(world.take_told(), "a=lock");
  assert_int_equal(world.valid_for_ms("a"), 29'000);
  world.watched.arrival = answers::come;
  world.link_up(world.watched);
  world.run_ms(100);
  assert_true(world.valid("a"));
  assert_true(world.server.held("a"));
}

void watched_lane_that_is_refused_leaves_the_plain_one(void** state) {
  auto& world = lock_world_of(state);
  world.links_up();
  world.server.take("a", long_ms);
  world.ask("a", {.wait_ms = 60'000});
  world.watched.server_reads = false;
  world.run_ms(0);
  world.link_down(world.watched, error_code::auth_failed, true);
  world.run_ms(0);
  world.server.remove("a");
  world.run_ms(1000);
  assert_text_equal(world.take_told(), "a=lock");
  assert_false(world.hot);
}

// Failures

void failure_that_may_pass_is_waited_out(void** state) {
  auto& world = lock_world_of(state);
  world.links_up();
  fail_everything(world, error_code::service_unavailable);
  world.ask("a", {.wait_ms = 60'000});
  world.run_ms(10'000);
  assert_text_equal(world.take_told(), "");
  assert_pauses(world.attempt_times_ms);
  world.server.fault = nullptr;
  world.run_ms(5000);
  assert_text_equal(world.take_told(), "a=lock");
}

void failure_that_does_not_pass_is_told_when_patience_ends(void** state) {
  auto& world = lock_world_of(state);
  world.links_up();
  fail_everything(world, error_code::rate_limited);
  world.ask_for("1", "a", {.wait_ms = 3000});
  world.ask_for("2", "a", {.wait_ms = 0});
  world.run_ms(0);
  assert_text_equal(world.take_told(), "2!RateLimited");
  world.run_ms(2999);
  assert_text_equal(world.take_told(), "");
  world.run_ms(1);
  assert_text_equal(world.take_told(), "1!RateLimited");
}

void failure_that_was_followed_by_an_answer_is_not_told(void** state) {
  auto& world = lock_world_of(state);
  world.links_up();
  world.server.take("a", long_ms);
  fail_everything(world, error_code::service_unavailable);
  world.ask("a", {.wait_ms = 3000});
  world.run_ms(10);
  world.server.fault = nullptr;
  world.run_ms(3000);
  assert_text_equal(world.take_told(), "a!AcquisitionTimeout");
}

void failure_for_good_is_told_at_once_and_the_next_tries(void** state) {
  auto& world = lock_world_of(state);
  world.links_up();
  world.server.fault = [](const operation& asked) {
    return asked.ttl_ms == 77 ? std::optional{error{error_code::invalid_argument, "the server does not like it"}}
                              : std::nullopt;
  };
  world.ask_for("1", "a", {.ttl_ms = 77});
  world.ask_for("2", "a");
  world.ask_for("3", "a", {.ttl_ms = 77});
  world.run_ms(0);
  assert_text_equal(world.take_told(), "1!InvalidArgument 2=lock");
  world.drop("2");
  world.run_ms(0);
  assert_text_equal(world.take_told(), "3!InvalidArgument");
  assert_int_equal(world.stats().attempts, 3);
}

void refused_links_tell_everybody_and_do_not_spin(void** state) {
  auto& world = lock_world_of(state);
  world.link_down(world.watched, error_code::auth_failed, true);
  world.link_down(world.plain, error_code::auth_failed, true);
  for (const auto* name : {"1", "2", "3"}) world.ask_for(name, "a");
  world.run_ms(0);
  assert_text_equal(world.take_told(), "1!AuthFailed 2!AuthFailed 3!AuthFailed");
  assert_false(world.hot);
  assert_int_equal(world.stats().waiting, 0);
}

void without_any_link_the_attempt_ends_with_its_own_time(void** state) {
  auto& world = lock_world_of(state);
  world.link_down(world.plain);
  world.ask("a", {.wait_ms = 0});
  world.run_ms(4999);
  assert_text_equal(world.take_told(), "");
  world.run_ms(1);
  assert_text_equal(world.take_told(), "a!ServiceUnavailable");
}

// Too late

void grant_that_comes_too_late_is_given_back_and_not_told(void** state) {
  auto& world = lock_world_of(state);
  world.links_up();
  int grants = 0;
  world.server.granted = [&](std::string_view, const operation&) { ++grants; };
  world.watched.arrival = answers::never_come;
  world.ask("a", {.ttl_ms = 1000});
  world.run_ms(899);
  world.stall_ms(1);
  world.watched.arrival = answers::come;
  world.run_ms(0);
  assert_text_equal(world.take_told(), "");
  assert_text_equal(world.take_sent(), "W[acquire:a] W[release:a]");
  assert_false(world.server.held("a"));
  world.run_ms(100);
  assert_text_equal(world.take_told(), "a=lock");
  assert_int_equal(world.valid_for_ms("a") > 799, true);
  assert_int_equal(grants, 2);
}

void grant_that_is_just_in_time_is_told(void** state) {
  auto& world = lock_world_of(state);
  world.links_up();
  world.watched.arrival = answers::never_come;
  world.ask("a", {.ttl_ms = 1000, .wait_ms = 0});
  world.run_ms(899);
  world.watched.arrival = answers::come;
  world.run_ms(0);
  assert_text_equal(world.take_told(), "a=lock");
  assert_int_equal(world.valid_for_ms("a"), 1);
}

void grant_that_comes_too_late_for_the_impatient_is_an_error(void** state) {
  auto& world = lock_world_of(state);
  world.links_up();
  world.watched.arrival = answers::never_come;
  world.ask("a", {.ttl_ms = 1000, .wait_ms = 10});
  world.run_ms(950);
  world.watched.arrival = answers::come;
  world.run_ms(0);
  assert_text_equal(world.take_told(), "a!NetworkTimeout");
  assert_false(world.server.held("a"));
}

void grant_of_a_resent_attempt_counts_from_the_first_sending(void** state) {
  auto& world = lock_world_of(state);
  world.link_up(world.plain);
  world.plain.server_reads = false;
  world.ask("a", {.ttl_ms = 3000});
  world.run_ms(500);
  world.link_down(world.plain);
  world.run_ms(500);
  world.plain.server_reads = true;
  world.link_up(world.plain);
  world.run_ms(0);
  assert_text_equal(world.take_told(), "a=lock");
  assert_int_equal(world.valid_for_ms("a"), 1700);
}

void silent_server_is_an_error_after_one_attempt(void** state) {
  auto& world = lock_world_of(state);
  world.links_up();
  world.watched.arrival = answers::never_come;
  world.ask("a", {.wait_ms = 0});
  world.run_ms(4999);
  assert_text_equal(world.take_told(), "");
  world.run_ms(1);
  assert_text_equal(world.take_told(), "a!NetworkTimeout");
  world.watched.arrival = answers::come;
  world.run_ms(0);
  assert_false(world.server.held("a"));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      lock_test_without_links(without_the_watched_lane_pauses_grow),
      lock_test_without_links(without_the_watched_lane_pauses_vary_by_chance),
      lock_test_without_links(without_the_watched_lane_the_holders_end_still_wakes),
      lock_test_without_links(watched_lane_that_comes_up_is_used_at_once),
      lock_test_without_links(watched_lane_that_comes_up_during_an_attempt_is_used_next),
      lock_test_without_links(watched_lane_lost_while_they_sleep_leads_to_pauses),
      lock_test_without_links(attempt_on_a_watched_lane_that_is_lost_is_made_by_the_plain_one_at_once),
      lock_test_without_links(attempt_that_succeeded_on_a_lost_watched_lane_is_in_nobodys_way),
      lock_test_without_links(watched_lane_that_is_refused_leaves_the_plain_one),
      lock_test_without_links(failure_that_may_pass_is_waited_out),
      lock_test_without_links(failure_that_does_not_pass_is_told_when_patience_ends),
      lock_test_without_links(failure_that_was_followed_by_an_answer_is_not_told),
      lock_test_without_links(failure_for_good_is_told_at_once_and_the_next_tries),
      lock_test_without_links(refused_links_tell_everybody_and_do_not_spin),
      lock_test_without_links(without_any_link_the_attempt_ends_with_its_own_time),
      lock_test_without_links(grant_that_comes_too_late_is_given_back_and_not_told),
      lock_test_without_links(grant_that_is_just_in_time_is_told),
      lock_test_without_links(grant_that_comes_too_late_for_the_impatient_is_an_error),
      lock_test_without_links(grant_of_a_resent_attempt_counts_from_the_first_sending),
      lock_test_without_links(silent_server_is_an_error_after_one_attempt),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
