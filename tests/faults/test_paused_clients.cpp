// Processes that hold locks and are stopped for longer than the locks live, a hundred times. Built for each loop.
//
// Meanwhile somebody else takes the locks. Whoever wakes up finds its locks invalid at once, is told of each loss once,
// and does not have them back behind its own back.

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "contract/locks.hpp"
#include "faults/other_processes.hpp"

namespace syncguard::testing {

namespace {

constexpr std::size_t sleepers = 10;
constexpr int rounds = 10;
constexpr std::size_t locks_each = 4;
constexpr milliseconds ttl = 500ms;

std::string key_of(std::size_t who, std::size_t which) {
  return "sleeper " + std::to_string(who) + ", lock " + std::to_string(which);
}

struct sleeper_report {
  std::atomic<int> holding;  // the round that it holds all of its locks for
  std::atomic<int> over;     // the round whose losses it was told of
  std::array<std::uint64_t, locks_each> fences;
  std::uint64_t told;
  std::uint64_t told_twice;
  std::uint64_t still_valid;  // after it woke up
  std::uint64_t revived;      // valid again later
};

struct dormitory {
  std::atomic<int> round;  // that may begin
  std::array<sleeper_report, sleepers> each;
};
dormitory* shared = nullptr;

// --- a sleeper -------------------------------------------------------------------------------------------------------

struct sleeper {
  test_loop& where;
  client& own;
  sleeper_report& report;
  std::size_t number;
  std::array<syncguard::lock, locks_each> held{};
  std::array<int, locks_each> told{};

  bool turn_until(const std::function<bool()>& holds, milliseconds at_most) {
    const std::int64_t end_us = now_us() + at_most.count() * 1000;
    while (!holds()) {
      if (now_us() >= end_us) return false;
      where.turn(5ms);
    }
    return true;
  }

  bool is_told(std::size_t index) const { return told[index] > 0; }

  // Takes all locks, however often one of them is lost before the last is there.
  bool take_all() {
    told = {};
    std::array<bool, locks_each> asking{};
    const auto ask = [&](std::size_t index) {
      asking[index] = true;
      own.lock(key_of(number, index), {.ttl = ttl, .wait = 60s}, [this, index, &asking](result<syncguard::lock> got) {
        asking[index] = false;
        if (!got) return;
        held[index] = *std::move(got);
        told[index] = 0;
        held[index].on_lost([this, index](lost) {
          ++told[index];
          if (held[index].valid()) ++report.still_valid;
        });
      });
    };
    return turn_until(
        [&] {
          bool all = true;
          for (std::size_t index = 0; index < locks_each; ++index) {
            if (held[index].valid()) continue;
            all = false;
            if (!asking[index]) ask(index);
          }
          return all;
        },
        60s);
  }

  bool live_through(int round) {
    if (!take_all()) return false;
    for (std::size_t index = 0; index < locks_each; ++index) report.fences[index] = held[index].fence().number();
    report.holding = round;
    // Until it has slept for longer than a lock lives: mostly outside of the loop, which then knows nothing of it yet.
    const std::int64_t end_us = now_us() + 60'000'000;
    for (std::int64_t before_us = now_us(); now_us() - before_us < ttl.count() * 1000;) {
      if (now_us() > end_us) return false;
      before_us = now_us();
      where.turn(0ms);
      if (now_us() - before_us >= ttl.count() * 1000) break;
      before_us = now_us();
      usleep(5000);
    }
    for (const syncguard::lock& each : held) report.still_valid += each.valid() ? 1 : 0;
    if (!turn_until([&] { return std::all_of(told.begin(), told.end(), [](int count) { return count > 0; }); }, 20s))
      return false;
    turn_until([] { return false; }, 50ms);
    for (std::size_t index = 0; index < locks_each; ++index) {
      report.revived += held[index].valid() ? 1 : 0;
      report.told += told[index] > 0 ? 1 : 0;
      report.told_twice += told[index] > 1 ? 1 : 0;
      held[index] = {};
    }
    report.over = round;
    return true;
  }
};

int be_sleeper(const std::string& url, const std::string& path, std::size_t number) {
  shared = map_shared<dormitory>(path, false);
  if (shared == nullptr || number >= sleepers) return 2;
  const auto where = make_test_loop();
  client_options options;
  options.url = url;
  client own{where->for_client(), options};
  sleeper me{*where, own, shared->each[number], number};
  for (int round = 1; round <= rounds; ++round) {
    if (!me.turn_until([&] { return shared->round >= round; }, 120s)) return 3;
    if (!me.live_through(round)) return 4;
  }
  me.turn_until([] { return false; }, 60s);
  return 0;
}

// --- the one who is awake --------------------------------------------------------------------------------------------

std::unique_ptr<other_processes> others;

int set_up_sleepers(void** state) {
  if (set_up_with_client(state) != 0) return -1;
  const std::string path = server().folder() + "/dormitory";
  shared = map_shared<dormitory>(path, true);
  others = std::make_unique<other_processes>();
  for (std::size_t number = 0; shared != nullptr && number < sleepers; ++number)
    if (!others->start({"sleeper", unix_url(), path, std::to_string(number)})) return -1;
  return shared != nullptr ? 0 : -1;
}

int tear_down_sleepers(void** state) {
  others.reset();
  return tear_down(state);
}

bool all_are(int round, std::atomic<int> sleeper_report::*where) {
  return std::all_of(shared->each.begin(), shared->each.end(),
                     [&](const sleeper_report& one) { return (one.*where) >= round; });
}

struct taken_lock {
  std::size_t who;
  std::size_t which;
  std::optional<grant> got;
};

// Everything that the sleepers held, once it has run out.
void take_everything(std::vector<taken_lock>& all) {
  const auto take = [](taken_lock& one) {
    const auto outcome = must(await_acquire(key_of(one.who, one.which), 60s));
    if (outcome) one.got = *outcome;
    return outcome.has_value();
  };
  assert_true(run_until([&] {
    for (taken_lock& each : all)
      if (!each.got && !take(each)) return false;
    return true;
  }));
}

void locks_of_stopped_processes_are_lost_once_and_for_all(void**) {
  for (int round = 1; round <= rounds; ++round) {
    shared->round = round;
    assert_true(run_until([&] { return all_are(round, &sleeper_report::holding); }, 60s));
    for (const pid_t each : others->pids()) other_processes::pause(each);
    const std::int64_t stopped_us = now_us();
    std::vector<taken_lock> all;
    for (std::size_t who = 0; who < sleepers; ++who)
      for (std::size_t which = 0; which < locks_each; ++which) all.push_back({who, which, {}});
    take_everything(all);
    for (const taken_lock& each : all)
      assert_true(each.got->fence.number() > shared->each[each.who].fences[each.which]);
    const auto slept = milliseconds{(now_us() - stopped_us) / 1000};
    if (slept < ttl + 50ms) run_for(ttl + 50ms - slept);

    for (const pid_t each : others->pids()) other_processes::resume(each);
    assert_true(run_until([&] { return all_are(round, &sleeper_report::over); }, 60s));
    // Nothing that the sleepers did when they woke up has touched what is ours.
    for (const taken_lock& each : all) assert_true(must(await_owns(each.got->id)));
    for (const taken_lock& each : all) assert_true(must(await_release(each.got->id)));
  }
  std::uint64_t told = 0;
  for (const sleeper_report& one : shared->each) {
    assert_int_equal(one.still_valid, 0);
    assert_int_equal(one.revived, 0);
    assert_int_equal(one.told_twice, 0);
    told += one.told;
  }
  note("%zu stops of processes, %llu locks: each was invalid at once, told once, and never came back",
       sleepers * rounds, static_cast<unsigned long long>(told));
  assert_int_equal(told, sleepers * rounds * locks_each);
}

}  // namespace

}  // namespace syncguard::testing

int main(int count, char** arguments) {
  using namespace syncguard::testing;
  std::signal(SIGPIPE, SIG_IGN);
  if (count == 5 && std::string_view{arguments[1]} == "sleeper")
    return be_sleeper(arguments[2], arguments[3], static_cast<std::size_t>(std::atoi(arguments[4])));
  const CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(locks_of_stopped_processes_are_lost_once_and_for_all, set_up_sleepers,
                                      tear_down_sleepers),
  };
  return cmocka_run_group_tests_name("paused_clients", tests, start_world, stop_world);
}
