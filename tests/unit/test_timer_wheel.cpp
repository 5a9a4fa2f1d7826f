// The wheel at its edges, and a million random steps of it against a sorted set. SYNCGUARD_SEED repeats a run.

#include "engine/timer_wheel.hpp"

#include <algorithm>
#include <array>
#include <compare>
#include <cstdlib>
#include <memory>
#include <random>
#include <set>
#include <stdexcept>

#include "support/allocation_counter.hpp"
#include "support/cmocka.hpp"

namespace {

using syncguard::engine::timer;
using syncguard::engine::timer_wheel;
using syncguard::testing::allocation_counter;

constexpr std::int64_t day_ms = 86'400'000;
constexpr std::int64_t span_ms = std::int64_t{1} << (timer_wheel::level_bits * timer_wheel::level_count);
const auto nothing = [](timer&) {};

// A wheel at 0 and timers with the names a, b, c …
struct wheel_fixture {
  std::unique_ptr<timer_wheel> wheel = std::make_unique<timer_wheel>(0);  // a sanitizer sees any use after its end
  std::array<std::optional<timer>, 8> timers;
  std::string fired;

  wheel_fixture() {
    for (auto& each : timers) each.emplace();
  }
  std::optional<timer>& at(char name) { return timers.at(static_cast<std::size_t>(name - 'a')); }
  void schedule(char name, std::int64_t deadline_ms) { wheel->schedule(*at(name), deadline_ms); }
  void cancel(char name) { wheel->cancel(*at(name)); }

  // Calls inside(name) as each timer fires.
  template <class Inside>
  void advance_with(std::int64_t now_ms, Inside inside, std::size_t max_fired = timer_wheel::unlimited) {
    wheel->advance(
        now_ms,
        [&](timer& what) {
          char name = 'a';
          while (!at(name) || &*at(name) != &what) ++name;
          fired += name;
          if (what.scheduled()) fired += '!';
          inside(name);
        },
        max_fired);
  }
  std::string advance(std::int64_t now_ms, std::size_t max_fired = timer_wheel::unlimited) {
    fired.clear();
    advance_with(
        now_ms, [](char) {}, max_fired);
    return wheel->valid() ? fired : "invalid";
  }
};

int set_up(void** state) {
  *state = new wheel_fixture;
  return 0;
}

int tear_down(void** state) {
  delete static_cast<wheel_fixture*>(*state);
  return 0;
}

wheel_fixture& fixture_of(void** state) { return *static_cast<wheel_fixture*>(*state); }

void idle_wheel_never_wakes(void** state) {
  auto& f = fixture_of(state);
  assert_true(f.wheel->empty() && f.wheel->valid());
  assert_false(f.wheel->next_wake_ms().has_value());
  assert_text_equal(f.advance(1000), "");
  f.schedule('a', 5000);
  assert_int_equal(f.wheel->size(), 1);
  f.cancel('a');
  f.cancel('a');
  assert_false(f.at('a')->scheduled());
  assert_true(f.wheel->empty() && f.wheel->valid());
  assert_false(f.wheel->next_wake_ms().has_value());
}

void deadline_of_now_or_before_is_due_at_the_next_advance(void** state) {
  auto& f = fixture_of(state);
  f.schedule('a', 0);
  assert_int_equal(*f.wheel->next_wake_ms(), 0);
  assert_text_equal(f.advance(0), "a");
  f.advance(100);
  f.schedule('b', 100);
  f.schedule('c', -7);
  f.schedule('d', std::numeric_limits<std::int64_t>::min());
  assert_int_equal(f.at('c')->deadline_ms(), 100);
  assert_int_equal(*f.wheel->next_wake_ms(), 100);
  assert_text_equal(f.advance(100), "bcd");
}

void one_tick_is_neither_early_nor_late(void** state) {
  auto& f = fixture_of(state);
  for (std::int64_t now_ms = 0; now_ms < 10'000; ++now_ms) {
    f.schedule('a', now_ms + 1);
    assert_text_equal(f.advance(now_ms), "");
    assert_int_equal(*f.wheel->next_wake_ms(), now_ms + 1);
    assert_text_equal(f.advance(now_ms + 1), "a");
  }
}

// Whether a timer fires when its deadline is there, not a millisecond before.
bool fires_exactly(std::int64_t start_ms, std::int64_t deadline_ms) {
  int fired = 0;
  const auto count = [&](timer&) { ++fired; };
  timer_wheel wheel{start_ms};
  timer one;
  wheel.schedule(one, deadline_ms);
  wheel.advance(deadline_ms - 1, count);
  if (fired != 0 || !wheel.valid() || wheel.next_wake_ms() != deadline_ms) return false;
  wheel.advance(deadline_ms, count);
  return fired == 1 && wheel.valid() && wheel.empty();
}

void every_level_boundary_is_exact(void**) {
  for (unsigned level = 0; level <= timer_wheel::level_count; ++level) {
    const std::int64_t step_ms = std::int64_t{1} << (level * timer_wheel::level_bits);
    for (const std::int64_t start_ms : {std::int64_t{0}, std::int64_t{1}, step_ms - 1, step_ms, -step_ms, -step_ms - 1,
                                        span_ms - step_ms, span_ms - 1, std::int64_t{1'700'000'000'000}}) {
      if (level > 0) assert_true(fires_exactly(start_ms, start_ms + step_ms - 1));
      assert_true(fires_exactly(start_ms, start_ms + step_ms));
      assert_true(fires_exactly(start_ms, start_ms + step_ms + 1));
    }
  }
}

void deadlines_beyond_all_levels_are_exact(void**) {
  constexpr auto last_ms = std::numeric_limits<std::int64_t>::max();
  constexpr auto first_ms = std::numeric_limits<std::int64_t>::min();
  for (const std::int64_t deadline_ms : {span_ms - 1, span_ms, span_ms + 1, 1000 * span_ms + 12'345, last_ms}) {
    assert_true(fires_exactly(0, deadline_ms));
    assert_true(fires_exactly(-1, deadline_ms));
    assert_true(fires_exactly(first_ms, deadline_ms));
  }
}

void equal_deadlines_fire_in_the_order_they_were_scheduled(void** state) {
  auto& f = fixture_of(state);
  for (const char name : {'c', 'a', 'd', 'b'}) f.schedule(name, 777);
  f.schedule('e', 776);
  f.schedule('c', 777);  // anew: now the last
  assert_text_equal(f.advance(1000), "eadbc");
}

void equal_deadlines_scheduled_from_different_distances_stay_in_order(void** state) {
  auto& f = fixture_of(state);
  for (const std::int64_t deadline_ms : {std::int64_t{20'000'000'000}, 2 * span_ms + 70, 3 * span_ms - 1}) {
    char name = 'a';
    for (const std::int64_t ahead_ms : {100 * day_ms, 20 * day_ms, day_ms, std::int64_t{300'000}, std::int64_t{4097},
                                        std::int64_t{65}, std::int64_t{3}, std::int64_t{1}}) {
      assert_text_equal(f.advance(deadline_ms - ahead_ms), "");
      f.schedule(name++, deadline_ms);
    }
    assert_text_equal(f.advance(deadline_ms), "abcdefgh");
  }
}

void clock_far_ahead_fires_all_in_order_at_once(void** state) {
  auto& f = fixture_of(state);
  f.schedule('a', 100 * day_ms);
  f.schedule('b', 1);
  f.schedule('c', 3 * day_ms);
  f.schedule('d', 100 * day_ms - 1);
  f.schedule('e', 100 * day_ms + 1);
  f.schedule('f', 64);
  f.schedule('g', 4096 * span_ms);
  f.schedule('h', 1'000'000 * span_ms);
  assert_text_equal(f.advance(100 * day_ms), "bfcda");
  assert_text_equal(f.advance(10'000'000 * span_ms), "egh");
}

void clock_that_goes_backwards_does_not_advance(void** state) {
  auto& f = fixture_of(state);
  f.advance(5000);
  f.schedule('a', 6000);
  f.schedule('b', 4000);
  assert_text_equal(f.advance(-1), "b");
  assert_text_equal(f.advance(4999), "");
  f.schedule('c', 5001);
  assert_int_equal(*f.wheel->next_wake_ms(), 5001);
  assert_text_equal(f.advance(6000), "ca");
}

void early_wakes_are_at_most_one_per_level(void**) {
  unsigned most = 0;
  for (std::int64_t start_ms = 0; start_ms < 2 * span_ms; start_ms += span_ms / 997 + 12'345) {
    const std::int64_t deadline_ms = start_ms + 100 * day_ms;
    bool fired = false;
    timer_wheel wheel{start_ms};
    timer one;
    wheel.schedule(one, deadline_ms);
    for (unsigned early = 0; !fired; ++early) {
      most = std::max(most, early);
      assert_true(early <= timer_wheel::level_count);
      const std::int64_t wake_ms = *wheel.next_wake_ms();
      assert_true(wake_ms <= deadline_ms);
      wheel.advance(wake_ms, [&](timer&) { fired = true; });
      assert_true(fired == (wake_ms == deadline_ms));
    }
  }
  note("a timer of 100 days wakes early %u times at most", most);
}

void timer_may_schedule_itself_and_others_inside_fire(void** state) {
  auto& f = fixture_of(state);
  for (const char name : {'a', 'b', 'c', 'd'}) f.schedule(name, 10);
  f.advance_with(10, [&](char name) {
    if (name != 'a') return;
    f.fired += f.wheel->valid() && f.wheel->size() == 3 && f.wheel->next_wake_ms() == 10 ? '+' : '-';
    f.schedule('a', 10);  // due again: in the next advance
    f.schedule('b', 10);  // was due: in the next advance
    f.schedule('c', 500);
    f.schedule('e', 0);
    f.fired += f.wheel->valid() && f.wheel->size() == 5 && f.wheel->next_wake_ms() == 10 ? '+' : '-';
  });
  assert_text_equal(f.fired, "a++d");
  assert_int_equal(*f.wheel->next_wake_ms(), 10);
  assert_text_equal(f.advance(10), "abe");
  assert_text_equal(f.advance(499), "");
  assert_text_equal(f.advance(500), "c");
}

void timers_may_be_cancelled_or_destroyed_inside_fire(void** state) {
  auto& f = fixture_of(state);
  for (const bool destroy : {false, true}) {
    f.fired.clear();
    for (const char name : {'a', 'b', 'c', 'd', 'e'}) f.schedule(name, 10);
    f.schedule('e', 20);
    f.advance_with(10, [&](char name) {
      for (const char other : {name, 'b', 'd', 'e'}) destroy ? f.at(other).reset() : f.cancel(other);
    });
    assert_text_equal(f.fired, "ac");
    assert_true(f.wheel->valid() && f.wheel->empty());
  }
}

void wheel_may_be_destroyed_inside_fire(void** state) {
  auto& f = fixture_of(state);
  for (const char name : {'a', 'b', 'c'}) f.schedule(name, 10);
  f.schedule('d', 20);
  f.advance_with(10, [&](char name) {
    f.schedule('a', 10);
    if (name == 'b') f.wheel.reset();
  });
  assert_text_equal(f.fired, "ab");
  for (const char name : {'a', 'b', 'c', 'd'}) assert_false(f.at(name)->scheduled());
}

void advance_inside_fire_does_nothing(void** state) {
  auto& f = fixture_of(state);
  for (const char name : {'a', 'b'}) f.schedule(name, 10);
  f.schedule('c', 20);
  f.advance_with(10, [&](char) { f.wheel->advance(20, [&](timer&) { f.fired += '!'; }); });
  assert_text_equal(f.fired, "ab");
  assert_text_equal(f.advance(20), "c");
}

void fire_that_throws_leaves_the_others_due(void** state) {
  auto& f = fixture_of(state);
  for (const char name : {'a', 'b', 'c'}) f.schedule(name, 10);
  bool caught = false;
  try {
    f.advance_with(10, [](char) { throw std::runtime_error("thrown by a test"); });
  } catch (const std::runtime_error&) {
    caught = true;
  }
  assert_true(caught && f.wheel->valid());
  assert_text_equal(f.advance(10), "bc");
}

void max_fired_leaves_the_others_first_in_line(void** state) {
  auto& f = fixture_of(state);
  for (const char name : {'a', 'b', 'c', 'd'}) f.schedule(name, 10);
  f.schedule('e', 30);
  assert_text_equal(f.advance(20, 0), "");
  f.advance_with(
      20, [&](char) { f.schedule('f', 0); }, 2);
  assert_text_equal(f.fired, "ab");
  assert_int_equal(*f.wheel->next_wake_ms(), 20);
  assert_int_equal(f.wheel->size(), 4);
  f.cancel('d');
  assert_text_equal(f.advance(30, 1), "c");
  assert_text_equal(f.advance(30, 5), "fe");
  assert_true(f.wheel->empty());
}

void destructors_unschedule(void** state) {
  auto& f = fixture_of(state);
  f.schedule('a', 10);
  f.schedule('b', 100 * day_ms);
  f.schedule('c', -1);
  f.schedule('d', 2 * span_ms);
  for (const char name : {'b', 'c', 'd'}) f.at(name).reset();
  assert_true(f.wheel->valid());
  assert_int_equal(f.wheel->size(), 1);
  for (const std::int64_t deadline_ms : {std::int64_t{-1}, 5 * day_ms, 2 * span_ms}) {
    timer_wheel other{0};
    other.schedule(*f.at('a'), deadline_ms);  // moves over from the first wheel
    assert_true(f.wheel->empty() && f.wheel->valid() && other.valid());
    f.cancel('a');  // not there any more
    assert_int_equal(other.size(), 1);
  }
  assert_false(f.at('a')->scheduled());
}

void wheel_allocates_nothing(void**) {
  if (!allocation_counter::available()) {
    note("a sanitizer has replaced the allocator, there is nothing to count with");
    return;
  }
  const allocation_counter counter;
  timer_wheel wheel{0};
  std::array<timer, 1000> timers;
  std::int64_t now_ms = 0;
  for (int round = 0; round < 100; ++round, now_ms += day_ms) {
    for (timer& each : timers) wheel.schedule(each, now_ms + (&each - timers.data()) * 271'828);
    wheel.cancel(timers[500]);
    wheel.advance(now_ms + day_ms, nothing, 100);
  }
  assert_int_equal(counter.count(), 0);
}

// The wheel and what it should do, side by side. What differs is recorded, and judged by the test.
class comparison {
 public:
  explicit comparison(std::uint64_t seed) : random_(seed), now_ms_(some_start_ms()), wheel_(now_ms_) {}

  void step() {
    if (below(10) < 7) return change();
    const std::int64_t to_ms = below(10) == 0 ? now_ms_ - some_distance_ms() : now_ms_ + some_way_ms();
    advance(to_ms, below(4) == 0 ? below(20) : timer_wheel::unlimited);
  }

  bool agrees() const {
    const auto wake_ms = wheel_.next_wake_ms();
    if (!agrees_ || wheel_.size() != waiting_.size() || wake_ms.has_value() == waiting_.empty()) return false;
    if (waiting_.empty()) return true;
    const std::int64_t earliest_ms = std::max(waiting_.begin()->deadline_ms, now_ms_);
    return *wake_ms <= earliest_ms && *wake_ms >= now_ms_;
  }
  bool valid() const { return wheel_.valid(); }
  std::size_t fired() const { return fired_; }

 private:
  struct entry {
    std::int64_t deadline_ms;
    std::uint64_t sequence;
    std::size_t index;
    auto operator<=>(const entry&) const = default;
  };

  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(random_() % bound); }
  std::int64_t some_distance_ms() { return static_cast<std::int64_t>(below(std::size_t{1} << below(38))); }
  std::int64_t some_start_ms() { return (static_cast<std::int64_t>(below(7)) - 3) * span_ms - some_distance_ms(); }

  std::int64_t some_way_ms() {
    if (below(200) == 0) return some_distance_ms();
    if (below(3) == 0) return wheel_.next_wake_ms().value_or(now_ms_) - now_ms_;
    return static_cast<std::int64_t>(below(std::size_t{1} << below(14)));
  }

  std::int64_t some_deadline_ms() {
    switch (below(8)) {
      case 0: return now_ms_ - some_distance_ms();
      case 1:
      case 2: return timers_[below(timers_.size())].deadline_ms();
      case 3: return (now_ms_ + some_distance_ms()) | 0xfff;
      default: return now_ms_ + some_distance_ms();
    }
  }

  void change() {
    const std::size_t index = below(timers_.size());
    if (timers_[index].scheduled()) waiting_.erase(entries_[index]);
    if (below(4) == 0) return wheel_.cancel(timers_[index]);
    const std::int64_t deadline_ms = some_deadline_ms();
    wheel_.schedule(timers_[index], deadline_ms);
    entries_[index] = {std::max(deadline_ms, now_ms_), ++sequence_, index};
    waiting_.insert(entries_[index]);
  }

  // Whether the model would fire another one in an advance that began when `last` was the last one scheduled.
  bool is_due(std::uint64_t last) const {
    return !waiting_.empty() && waiting_.begin()->deadline_ms <= now_ms_ && waiting_.begin()->sequence <= last;
  }

  void advance(std::int64_t to_ms, std::size_t max_fired) {
    const std::uint64_t last = sequence_;
    std::size_t count = 0;
    now_ms_ = std::max(now_ms_, to_ms);
    const auto fire = [&](timer& what) {
      const auto index = static_cast<std::size_t>(&what - timers_.data());
      agrees_ = agrees_ && is_due(last) && *waiting_.begin() == entries_[index] && !what.scheduled();
      waiting_.erase(entries_[index]);
      ++count;
      for (std::size_t changes = below(3); changes > 0; --changes) change();
    };
    wheel_.advance(to_ms, fire, max_fired);
    agrees_ = agrees_ && (count == max_fired || (count < max_fired && !is_due(last)));
    fired_ += count;
  }

  std::mt19937_64 random_;
  std::int64_t now_ms_;
  timer_wheel wheel_;
  std::array<timer, 500> timers_;
  std::array<entry, 500> entries_{};
  std::set<entry> waiting_;
  std::uint64_t sequence_ = 0;
  std::size_t fired_ = 0;
  bool agrees_ = true;
};

void random_steps_agree_with_a_sorted_set(void**) {
  constexpr std::uint64_t seed_count = 20;
  const int steps = allocation_counter::available() ? 1'000'000 : 50'000;  // sanitizers are slow
  const char* given = std::getenv("SYNCGUARD_SEED");
  const std::uint64_t first = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  note("SYNCGUARD_SEED=%llu, %d steps each", static_cast<unsigned long long>(first), steps);
  for (std::uint64_t seed = first; seed < first + seed_count; ++seed) {
    const auto run = std::make_unique<comparison>(seed);
    int done = 0;
    while (done < steps && run->agrees() && (done % 1000 != 0 || run->valid())) {
      run->step();
      ++done;
    }
    note("seed %llu: %d steps, %zu fired", static_cast<unsigned long long>(seed), done, run->fired());
    assert_int_equal(done, steps);
    assert_true(run->agrees() && run->valid());
    assert_true(run->fired() > static_cast<std::size_t>(steps) / 10);
  }
}

}  // namespace

#define wheel_test(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main() {
  const CMUnitTest tests[] = {
      wheel_test(idle_wheel_never_wakes),
      wheel_test(deadline_of_now_or_before_is_due_at_the_next_advance),
      wheel_test(one_tick_is_neither_early_nor_late),
      cmocka_unit_test(every_level_boundary_is_exact),
      cmocka_unit_test(deadlines_beyond_all_levels_are_exact),
      wheel_test(equal_deadlines_fire_in_the_order_they_were_scheduled),
      wheel_test(equal_deadlines_scheduled_from_different_distances_stay_in_order),
      wheel_test(clock_far_ahead_fires_all_in_order_at_once),
      wheel_test(clock_that_goes_backwards_does_not_advance),
      cmocka_unit_test(early_wakes_are_at_most_one_per_level),
      wheel_test(timer_may_schedule_itself_and_others_inside_fire),
      wheel_test(timers_may_be_cancelled_or_destroyed_inside_fire),
      wheel_test(wheel_may_be_destroyed_inside_fire),
      wheel_test(advance_inside_fire_does_nothing),
      wheel_test(fire_that_throws_leaves_the_others_due),
      wheel_test(max_fired_leaves_the_others_first_in_line),
      wheel_test(destructors_unschedule),
      cmocka_unit_test(wheel_allocates_nothing),
      cmocka_unit_test(random_steps_agree_with_a_sorted_set),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
