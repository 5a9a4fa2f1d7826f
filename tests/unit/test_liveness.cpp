#include "protocol/liveness.hpp"

#include "protocol/server_time.hpp"
#include "support/cmocka.hpp"

namespace {

using namespace syncguard::protocol;

void record_is_held_until_a_second_after_its_expiry(void**) {
  constexpr std::int64_t now = 1'700'000'000'000;
  assert_true(is_live(now + 1, now));
  assert_true(is_live(now, now));
  assert_true(is_live(now - 999, now));
  assert_false(is_live(now - 1000, now));
  assert_false(is_live(0, now));
}

void cleanup_waits_longer_than_liveness(void**) {
  constexpr std::int64_t now = 1'700'000'000'000;
  assert_false(is_cleanable(now - 1000, now));
  assert_false(is_cleanable(now - 2000, now));
  assert_true(is_cleanable(now - 2001, now));
}

void server_time_drops_the_rest_of_a_millisecond(void**) {
  assert_int_equal(server_time_ms(1'700'000'000, 0), 1'700'000'000'000);
  assert_int_equal(server_time_ms(1'700'000'000, 999), 1'700'000'000'000);
  assert_int_equal(server_time_ms(1'700'000'000, 999'999), 1'700'000'000'999);
}

void server_time_is_read_from_texts(void**) {
  assert_true(parse_server_time_ms("1700000000", "123456") == 1'700'000'000'123);
  assert_true(parse_server_time_ms("0", "0") == 0);
}

void nonsense_is_no_time(void**) {
  const std::string_view bad[] = {"", " 1", "1 ", "-1", "+1", "1.5", "abc", "0x10", "99999999999999999999"};
  for (const std::string_view text : bad) {
    assert_false(parse_server_time_ms(text, "0").has_value());
    assert_false(parse_server_time_ms("1700000000", text).has_value());
  }
  assert_false(parse_server_time_ms("1700000000", "1000000").has_value());
  assert_false(parse_server_time_ms("1000000000001", "0").has_value());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(record_is_held_until_a_second_after_its_expiry),
      cmocka_unit_test(cleanup_waits_longer_than_liveness),
      cmocka_unit_test(server_time_drops_the_rest_of_a_millisecond),
      cmocka_unit_test(server_time_is_read_from_texts),
      cmocka_unit_test(nonsense_is_no_time),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
