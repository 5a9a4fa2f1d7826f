// A herd of processes on one lock: never two at once, nobody starves. Built for each loop.
//
// Each process is this program again, with an argument. They meet in a piece of shared memory: whoever holds the lock
// enters it and must find it empty, with a fence above the last one. Nothing of that goes through Redis, so an error of
// the lock cannot hide itself.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "contract/locks.hpp"

namespace syncguard::testing {

namespace {

constexpr std::size_t herd_size = 32;
constexpr auto hold_time = 1ms;

// The longest wait against the mean one, asserted over 20 seconds (SYNCGUARD_LONG_TESTS=1) only: on a machine that
// other work shares, a process that the scheduler left out for a moment looks just like one that starved. The short run
// asserts what starving means: not to be served at all, although there were turns enough for everybody.
constexpr double starvation_factor = 10;
constexpr std::uint64_t enough_grants = 20 * herd_size;

struct member_report {
  std::uint64_t grants;
  std::uint64_t failures;
  std::uint64_t invalid;  // locks that were not valid any more when they were given back
  std::uint64_t attempts;
  std::uint64_t wakes;
  std::int64_t waited_us;
  std::int64_t longest_us;
  std::int64_t unserved_us;  // how long the last call had waited when the time was over
  int finished;
};

struct meadow {
  bool confirm_release;
  std::atomic<int> ready;
  std::atomic<std::int64_t> end_us;  // 0: not begun
  std::atomic<int> inside;
  std::atomic<std::uint64_t> last_fence;
  std::atomic<std::uint64_t> together;   // times that somebody found it occupied
  std::atomic<std::uint64_t> backwards;  // times that a fence was not above the last one
  std::array<member_report, herd_size> members;
};

meadow* shared = nullptr;

bool map_meadow(const std::string& path, bool make) {
  const int file = open(path.c_str(), make ? O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC : O_RDWR | O_CLOEXEC, 0600);
  if (file < 0 || (make && ftruncate(file, sizeof(meadow)) != 0)) return false;
  void* mapped = mmap(nullptr, sizeof(meadow), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (mapped == MAP_FAILED) return false;
  shared = static_cast<meadow*>(mapped);
  return true;
}

// --- one of the herd
// --------------------------------------------------------------------------------------------------

struct member {
  test_loop& where;
  client& own;
  member_report& report;
  syncguard::lock held{};
  bool answered = false;
  bool leaving = false;

  bool turn_until(const std::function<bool()>& holds, std::int64_t end_us) {
    while (!holds()) {
      if (now_us() >= end_us) return false;
      where.turn(5ms);
    }
    return true;
  }

  void stay_inside() {
    if (shared->inside.fetch_add(1) != 0) ++shared->together;
    const std::uint64_t fence = held.fence().number();
    if (shared->last_fence.exchange(fence) >= fence) ++shared->backwards;
    const std::int64_t until_us = now_us() + std::chrono::microseconds{hold_time}.count();
    while (now_us() < until_us) where.turn(1ms);
    if (!held.valid()) ++report.invalid;
    shared->inside.fetch_sub(1);
  }

  // Either lets go and asks again in the same breath, or waits until the server has confirmed the release.
  void give_back() {
    if (!shared->confirm_release) {
      held = {};
      return;
    }
    bool released = false;
    held.release([&released](const result<bool>& done) { released = done && *done; });
    if (!turn_until([&] { return released; }, now_us() + 20'000'000)) ++report.failures;
    held = {};
  }

  void graze(std::int64_t end_us) {
    while (now_us() < end_us) {
      answered = false;
      const std::int64_t asked_us = now_us();
      const auto handle = own.lock("the meadow", {.ttl = 30s, .wait = 120s}, [this](result<syncguard::lock> got) {
        answered = true;
        if (got) held = *std::move(got);
        else if (!leaving) ++report.failures;
      });
      const bool served = turn_until([this] { return answered; }, end_us);
      const std::int64_t waited_us = now_us() - asked_us;
      if (!served) {
        report.unserved_us = waited_us;
        leaving = true;
        own.cancel(handle);
        return;
      }
      if (!held) continue;
      ++report.grants;
      report.waited_us += waited_us;
      report.longest_us = std::max(report.longest_us, waited_us);
      stay_inside();
      give_back();
    }
  }
};

int be_member(const std::string& url, const std::string& path, std::size_t number) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (!map_meadow(path, false) || number >= herd_size) return 2;
  const auto where = make_test_loop();
  client_options options;
  options.url = url;
  client own{where->for_client(), options};
  member one{*where, own, shared->members[number]};
  const std::int64_t patience_us = now_us() + 60'000'000;

  // Both connections are there before it begins.
  own.lock("warm-up " + std::to_string(number), {.ttl = 10s}, [](result<syncguard::lock>) {});
  if (!one.turn_until([&] { return own.stats().watching; }, patience_us)) return 3;
  ++shared->ready;
  if (!one.turn_until([] { return shared->end_us > 0; }, patience_us)) return 4;
  const client_stats before = own.stats();
  one.graze(shared->end_us);
  const client_stats after = own.stats();
  one.report.attempts = after.attempts - before.attempts;
  one.report.wakes = after.wakes - before.wakes;
  own.close([&one](const result<void>&) { one.report.finished = 1; });
  one.turn_until([&] { return one.report.finished != 0; }, now_us() + 20'000'000);
  return 0;
}

// --- the herd
// ---------------------------------------------------------------------------------------------------------

std::vector<pid_t> herd;

int set_up_herd(void** state, bool confirm_release) {
  if (set_up(state) != 0) return -1;
  const std::string path = server().folder() + "/meadow";
  if (!map_meadow(path, true)) return -1;
  shared->confirm_release = confirm_release;
  const std::string url = unix_url();
  for (std::size_t number = 0; number < herd_size; ++number) {
    const std::string text = std::to_string(number);
    const pid_t child = fork();
    if (child == 0) {
      execl("/proc/self/exe", "test_herd", "member", url.c_str(), path.c_str(), text.c_str(), nullptr);
      _exit(127);
    }
    if (child < 0) return -1;
    herd.push_back(child);
  }
  return 0;
}

int set_up_hasty(void** state) { return set_up_herd(state, false); }
int set_up_orderly(void** state) { return set_up_herd(state, true); }

int tear_down_herd(void** state) {
  for (const pid_t each : herd) {
    kill(each, SIGKILL);
    waitpid(each, nullptr, 0);
  }
  herd.clear();
  munmap(shared, sizeof(meadow));
  return tear_down(state);
}

void exclude_each_other_and_nobody_starves() {
  assert_true(run_until([] { return shared->ready == static_cast<int>(herd_size); }, 60s));
  const bool for_long = std::getenv("SYNCGUARD_LONG_TESTS") != nullptr;
  const std::chrono::seconds time{for_long ? 20 : 5};
  shared->end_us = now_us() + std::chrono::microseconds{time}.count();
  run_for(time);
  const auto all_done = [] {
    return std::all_of(shared->members.begin(), shared->members.end(), [](const auto& one) { return one.finished; });
  };
  assert_true(run_until(all_done, 60s));

  member_report sum{};
  std::uint64_t fewest = ~std::uint64_t{0};
  std::uint64_t most = 0;
  for (const member_report& one : shared->members) {
    sum.grants += one.grants;
    sum.failures += one.failures;
    sum.invalid += one.invalid;
    sum.attempts += one.attempts;
    sum.wakes += one.wakes;
    sum.waited_us += one.waited_us;
    sum.longest_us = std::max({sum.longest_us, one.longest_us, one.unserved_us});
    fewest = std::min(fewest, one.grants);
    most = std::max(most, one.grants);
  }
  std::string each;
  for (const member_report& one : shared->members) each += " " + std::to_string(one.grants);
  note("hand-overs of each:%s", each.c_str());
  assert_true(sum.grants > 0);
  const double mean_us = static_cast<double>(sum.waited_us) / static_cast<double>(sum.grants);
  const double ratio = static_cast<double>(sum.longest_us) / mean_us;
  note(
      "%zu processes, %lld s: %llu hand-overs, %llu to %llu for each; wait %.1f ms in the mean, %.1f ms at most: "
      "%.1f times; %.2f attempts and %.2f wakes for each hand-over",
      herd_size, static_cast<long long>(time.count()), static_cast<unsigned long long>(sum.grants),
      static_cast<unsigned long long>(fewest), static_cast<unsigned long long>(most), mean_us / 1000,
      static_cast<double>(sum.longest_us) / 1000, ratio,
      static_cast<double>(sum.attempts) / static_cast<double>(sum.grants),
      static_cast<double>(sum.wakes) / static_cast<double>(sum.grants));
  assert_int_equal(shared->together, 0);
  assert_int_equal(shared->backwards, 0);
  assert_int_equal(sum.failures, 0);
  assert_int_equal(sum.invalid, 0);
  assert_true(shared->last_fence >= sum.grants);
  assert_true(fewest > 0 || sum.grants < enough_grants);
  if (for_long) assert_true(ratio <= starvation_factor);
}

void herd_that_waits_for_each_release_is_served_fairly(void**) { exclude_each_other_and_nobody_starves(); }
void herd_that_asks_again_at_once_is_served_fairly(void**) { exclude_each_other_and_nobody_starves(); }

}  // namespace

}  // namespace syncguard::testing

int main(int count, char** arguments) {
  using namespace syncguard::testing;
  std::signal(SIGPIPE, SIG_IGN);
  if (count == 5 && std::string_view{arguments[1]} == "member")
    return be_member(arguments[2], arguments[3], static_cast<std::size_t>(std::atoi(arguments[4])));
  const CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(herd_that_waits_for_each_release_is_served_fairly, set_up_orderly,
                                      tear_down_herd),
      cmocka_unit_test_setup_teardown(herd_that_asks_again_at_once_is_served_fairly, set_up_hasty, tear_down_herd),
  };
  return cmocka_run_group_tests_name("herd", tests, start_world, stop_world);
}
