// Very many who wait for one key: in one process, and in several that know nothing of each other. SYNCGUARD_SEED
// repeats a run.

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/waiting_room.hpp"

#include "lock_fixture.hpp"

namespace {

using namespace syncguard::testing;

constexpr std::int64_t for_ever_ms = std::int64_t{86'400'000} * 50;

std::uint64_t seed() {
  const char* given = std::getenv("SYNCGUARD_SEED");
  const std::uint64_t chosen = given != nullptr ? std::strtoull(given, nullptr, 10) : 1;
  note("SYNCGUARD_SEED=%llu", static_cast<unsigned long long>(chosen));
  return chosen;
}

void ten_thousand_are_served_in_order_while_some_leave(void** state) {
  constexpr int count = 10'000;
  constexpr int leavers = 1000;
  auto& world = lock_world_of(state);
  world.keeps_log = false;
  std::mt19937_64 random{seed()};
  std::vector<int> leaving(count - 1);
  std::iota(leaving.begin(), leaving.end(), 1);
  std::shuffle(leaving.begin(), leaving.end(), random);
  leaving.resize(leavers);

  std::vector<int> served;
  std::size_t refused = 0;
  world.inside_got = [&](const std::string& name) { served.push_back(std::stoi(name)); };
  world.inside_refused = [&](const std::string&) { ++refused; };
  for (int index = 0; index < count; ++index) world.ask_for(std::to_string(index), "k", {.wait_ms = for_ever_ms});
  world.run_ms(0);

  std::size_t left = 0;
  for (std::size_t handed = 0; handed < served.size(); ++handed) {
    // Some leave while everybody sleeps, some while the attempt for them is on its way.
    for (std::size_t more = random() % 3; more > 0 && !leaving.empty(); --more) {
      left += world.cancel(std::to_string(leaving.back())) ? 1U : 0U;
      leaving.pop_back();
    }
    world.drop(std::to_string(served[handed]));
    world.end_turn();
    world.plain.exchange();
    world.watched.exchange();
    world.end_turn();
    const int next = served[handed] + 1;
    if (!leaving.empty() && random() % 8 == 0) {
      left += world.cancel(std::to_string(next)) ? 1U : 0U;
      std::erase(leaving, next);
    }
    world.run_ms(0);
  }
  assert_int_equal(served.size() + left, count);
  assert_int_equal(refused, left);
  assert_true(std::is_sorted(served.begin(), served.end()));
  assert_int_equal(world.attempts_in_flight_max, 1);
  assert_int_equal(world.attempts_in_flight, 0);
  assert_int_equal(world.stats().waiting, 0);
  assert_false(world.server.held("k"));
  assert_false(world.hot);
  note("%d waited, %zu left, %zu were served by %llu attempts", count, left, served.size(),
       static_cast<unsigned long long>(world.stats().attempts));
}

// Loses the race for the lock so many times before it gets it.
void win_after(lock_world& world, int races_lost) {
  world.server.take("k", for_ever_ms);
  world.ask_for("a", "k", {.wait_ms = for_ever_ms});
  world.run_ms(100);
  for (int races = 0; races < races_lost; ++races) {
    world.server.take("k", for_ever_ms);
    world.run_ms(100);
  }
  world.server.remove("k");
}

void crowd_makes_newcomers_hold_back_a_little(void** state) {
  auto& world = lock_world_of(state);
  for (int times = 0; times < 10; ++times) {
    win_after(world, 20);
    world.run_ms(20);
    world.drop("a");
  }
  int held_back = 0;
  for (int times = 0; times < 20; ++times) {
    win_after(world, 0);
    const std::int64_t free_ms = world.now_ms();
    world.run_ms(50);
    assert_in_range(world.told_ms - free_ms, 0, 11);
    held_back += world.told_ms > free_ms ? 1 : 0;
    world.drop("a");
    win_after(world, 20);
    world.run_ms(20);
    world.drop("a");
  }
  assert_true(held_back > 10);
}

void crowd_that_is_gone_is_forgotten(void** state) {
  auto& world = lock_world_of(state);
  for (int times = 0; times < 10; ++times) {
    win_after(world, 20);
    world.run_ms(20);
    world.drop("a");
  }
  for (int times = 0; times < 100; ++times) {
    win_after(world, 0);
    const std::int64_t free_ms = world.now_ms();
    world.run_ms(50);
    if (times >= 50) assert_int_equal(world.told_ms, free_ms);
    world.drop("a");
  }
}

// Processes whose users hold one lock for a moment, and ask for it again after a while.
class herd {
 public:
  static constexpr std::int64_t hold_ms = 3;

  herd(std::size_t processes, int users_each, std::int64_t rest_ms, std::uint64_t seed)
      : rest_ms_(rest_ms), random_(seed) {
    for (std::size_t index = 0; index < processes; ++index) {
      lock_world_options options{.keeper = {.seed = random_()}, .room_seed = random_()};
      options.client = static_cast<std::uint8_t>(index + 1);
      worlds_.push_back(std::make_unique<lock_world>(options, server_));
      lock_world& world = *worlds_.back();
      world.keeps_log = false;
      for (model_lane* lane : {&world.plain, &world.watched})
        lane->delay_us = [this] { return 50 + static_cast<std::int64_t>(random_() % 450); };
      world.inside_got = [this, &world](const std::string& name) { got({&world, name}); };
      world.links_up();
      all_.push_back(&world);
    }
    for (int number = 0; number < users_each; ++number)
      for (lock_world* world : all_) ask({world, std::to_string(number)});
  }

  void run_ms(std::int64_t ms) {
    for (; ms > 0; --ms) {
      lock_world::run_together(all_, 1);
      const std::int64_t now_ms = all_.front()->now_ms();
      if (holder_ && now_ms >= held_ms_ + hold_ms) {
        const user last = *std::exchange(holder_, std::nullopt);
        last.first->take_told();
        last.first->drop(last.second);
        resting_.emplace(now_ms + rest_ms_, last);
      }
      while (!resting_.empty() && resting_.begin()->first <= now_ms) {
        ask(resting_.begin()->second);
        resting_.erase(resting_.begin());
      }
    }
  }

  // Those who wait now are counted with what they have waited so far.
  std::vector<std::int64_t> take_waits_ms() {
    std::vector<std::int64_t> waits = std::exchange(waits_ms_, {});
    for (const auto& [who, asked_ms] : asked_ms_) waits.push_back(who.first->now_ms() - asked_ms);
    return waits;
  }
  std::size_t hand_overs() const { return waits_ms_.size(); }
  std::uint64_t attempts() const { return server_->acquires; }
  bool overlapped() const { return overlapped_; }

 private:
  using user = std::pair<lock_world*, std::string>;

  void ask(const user& who) {
    asked_ms_[who] = who.first->now_ms();
    who.first->ask_for(who.second, "k", {.wait_ms = for_ever_ms});
  }
  void got(const user& who) {
    overlapped_ = overlapped_ || holder_.has_value();
    holder_ = who;
    held_ms_ = who.first->now_ms();
    waits_ms_.push_back(held_ms_ - asked_ms_.at(who));
    asked_ms_.erase(who);
  }

  std::int64_t rest_ms_;
  std::mt19937_64 random_;
  std::shared_ptr<model_server> server_ = std::make_shared<model_server>();
  std::vector<std::unique_ptr<lock_world>> worlds_;
  std::vector<lock_world*> all_;
  std::map<user, std::int64_t> asked_ms_;
  std::multimap<std::int64_t, user> resting_;
  std::vector<std::int64_t> waits_ms_;
  std::optional<user> holder_;
  std::int64_t held_ms_ = 0;
  bool overlapped_ = false;
};

struct waits {
  double mean_ms;
  double longest_ms;
};

waits take_waits(herd& crowd) {
  const std::vector<std::int64_t> all = crowd.take_waits_ms();
  const auto sum_ms = static_cast<double>(std::accumulate(all.begin(), all.end(), std::int64_t{0}));
  return {sum_ms / static_cast<double>(all.size()), static_cast<double>(*std::max_element(all.begin(), all.end()))};
}

void assert_herd_is_fair(void** state, std::size_t processes, int users_each, std::int64_t rest_ms,
                         double longest_to_mean = 10) {
  constexpr std::int64_t run_ms = 20'000;
  auto* crowd = new herd{processes, users_each, rest_ms, seed()};
  *state = crowd;
  crowd->run_ms(run_ms / 10);  // until it is known how crowded the key is
  take_waits(*crowd);
  const std::uint64_t attempts_before = crowd->attempts();
  crowd->run_ms(run_ms);
  const auto hand_overs = static_cast<double>(crowd->hand_overs());
  const auto attempts = static_cast<double>(crowd->attempts() - attempts_before);
  const waits seen = take_waits(*crowd);
  note(
      "%zu processes of %d, %lld ms of rest: %.0f hand-overs, %.2f attempts and %.2f ms each; waits: mean %.1f ms, "
      "longest %.0f ms",
      processes, users_each, static_cast<long long>(rest_ms), hand_overs, attempts / hand_overs,
      static_cast<double>(run_ms) / hand_overs, seen.mean_ms, seen.longest_ms);
  assert_false(crowd->overlapped());
  assert_true(hand_overs > 500);
  assert_true(seen.longest_ms <= longest_to_mean * seen.mean_ms);
}

int end_herd(void** state) {
  delete static_cast<herd*>(*state);
  return 0;
}

void eight_processes_with_one_user_each_share_a_key(void** state) { assert_herd_is_fair(state, 8, 1, 5); }
void eight_processes_with_many_users_each_share_a_key(void** state) { assert_herd_is_fair(state, 8, 8, 5); }
void eight_processes_that_take_no_rest_share_a_key(void** state) { assert_herd_is_fair(state, 8, 1, 0); }

// Of two, one wins several times in a row by chance: the waits are short, and their spread is wide.
void two_processes_that_take_no_rest_share_a_key(void** state) { assert_herd_is_fair(state, 2, 1, 0, 40); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      lock_test(ten_thousand_are_served_in_order_while_some_leave),
      lock_test(crowd_makes_newcomers_hold_back_a_little),
      lock_test(crowd_that_is_gone_is_forgotten),
      cmocka_unit_test_teardown(eight_processes_with_one_user_each_share_a_key, end_herd),
      cmocka_unit_test_teardown(eight_processes_with_many_users_each_share_a_key, end_herd),
      cmocka_unit_test_teardown(eight_processes_that_take_no_rest_share_a_key, end_herd),
      cmocka_unit_test_teardown(two_processes_that_take_no_rest_share_a_key, end_herd),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
