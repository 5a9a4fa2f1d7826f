#include "engine/server_clock.hpp"

#include "support/cmocka.hpp"

namespace {

using syncguard::engine::server_clock;

void clock_knows_nothing_at_first(void**) {
  const server_clock clock;
  assert_false(clock.known());
}

void answer_bounds_the_difference_by_its_way(void**) {
  server_clock clock;
  clock.learn(1'000'000, 1'010'000, 5000);
  assert_true(clock.known());
  // The server read 5.000000 to 5.000999 s between 1.000 and 1.010 s of ours.
  assert_int_equal(clock.earliest_us(5000), 1'000'000 - 999);
  assert_int_equal(clock.latest_us(5000), 1'010'000);
  assert_int_equal(clock.earliest_us(6000), 2'000'000 - 999);
}

void faster_answer_narrows_the_bounds(void**) {
  server_clock clock;
  clock.learn(1'000'000, 1'500'000, 5000);
  clock.learn(2'000'000, 2'001'000, 6000);
  assert_true(clock.earliest_us(6000) >= 2'000'000 - 999);
  assert_int_equal(clock.latest_us(6000), 2'001'000);
}

void slower_answer_does_not_widen_them_beyond_the_drift(void**) {
  server_clock clock;
  clock.learn(1'000'000, 1'001'000, 5000);
  clock.learn(2'000'000, 3'001'000, 7000);
  const std::int64_t drift_us = 2'000'000 / 2000 + 1;
  assert_int_equal(clock.latest_us(7000), 3'001'000);
  assert_int_equal(clock.earliest_us(7000), 3'000'000 - 999 - drift_us);
}

void bounds_widen_with_time(void**) {
  server_clock clock;
  clock.learn(0, 0, 0);
  const std::int64_t day_us = std::int64_t{86'400} * 1'000'000;
  clock.learn(0, day_us, 86'400'000 / 2);  // an answer that took a day says nothing by itself
  assert_in_range(clock.latest_us(0) - clock.earliest_us(0), 2 * day_us / 2000, 2 * day_us / 2000 + 2000);
}

void contradiction_forgets_what_was_known(void**) {
  for (const std::int64_t jump_ms : {-3'600'000, -10, 10, 3'600'000}) {
    server_clock clock;
    clock.learn(1'000'000, 1'001'000, 10'000'000);
    clock.learn(2'000'000, 2'001'000, 10'001'000 + jump_ms);
    assert_int_equal(clock.earliest_us(10'001'000 + jump_ms), 2'000'000 - 999);
    assert_int_equal(clock.latest_us(10'001'000 + jump_ms), 2'001'000);
  }
}

void earliest_is_never_after_latest(void**) {
  server_clock clock;
  std::int64_t now_us = 0;
  for (std::int64_t round = 0; round < 100'000; ++round) {
    const std::int64_t way_us = round * 7919 % 50'000;
    const std::int64_t skew_ms = round * 104'729 % 5 - 2;
    clock.learn(now_us, now_us + way_us, (now_us + way_us / 2) / 1000 + skew_ms);
    if (clock.earliest_us(0) > clock.latest_us(0)) fail();
    now_us += 10'000;
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(clock_knows_nothing_at_first),
      cmocka_unit_test(answer_bounds_the_difference_by_its_way),
      cmocka_unit_test(faster_answer_narrows_the_bounds),
      cmocka_unit_test(slower_answer_does_not_widen_them_beyond_the_drift),
      cmocka_unit_test(bounds_widen_with_time),
      cmocka_unit_test(contradiction_forgets_what_was_known),
      cmocka_unit_test(earliest_is_never_after_latest),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
