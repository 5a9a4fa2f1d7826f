#include <syncguard/fence.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "support/cmocka.hpp"

namespace {

using syncguard::error_code;
using syncguard::fence;

static_assert(!std::is_constructible_v<fence, int>, "a number becomes a fence through from_number() only");
static_assert(!std::is_default_constructible_v<fence>, "there is no fence without a grant");
static_assert(sizeof(fence) == 8 && std::is_trivially_copyable_v<fence>);

fence number(std::int64_t value) { return *fence::from_number(value); }

void parse_reads_back_what_was_written(void**) {
  for (const std::int64_t value : {0L, 1L, 9L, 10L, 42L, 899'999'999'999'999L, 999'999'999'999'999L}) {
    const auto written = number(value).to_text();
    assert_int_equal(written.view().size(), 15);
    const auto read = fence::parse(written);
    assert_true(read.has_value());
    assert_int_equal(read->number(), value);
  }
}

void parse_refuses_everything_but_15_digits(void**) {
  for (const std::string_view bad :
       {"", "1", "00000000000001", "0000000000000001", "00000000000000a", " 00000000000001", "00000000000001 ",
        "+00000000000001", "-00000000000001", "0000000000000.1", "00000000000001\n", "0x0000000000001",
        "0000000000000000000000000000000000000000000000001"})
    assert_failed_with(fence::parse(bad), error_code::invalid_argument);
  assert_failed_with(fence::parse(std::string(10'000'000, '9')), error_code::invalid_argument);
  assert_failed_with(fence::parse(std::string_view("00000000000001\0", 15)), error_code::invalid_argument);
}

void numbers_outside_the_text_form_are_refused(void**) {
  assert_failed_with(fence::from_number(-1), error_code::invalid_argument);
  assert_failed_with(fence::from_number(1'000'000'000'000'000), error_code::invalid_argument);
  assert_failed_with(fence::from_number(std::numeric_limits<std::int64_t>::max()), error_code::invalid_argument);
  assert_failed_with(fence::from_number(std::numeric_limits<std::int64_t>::min()), error_code::invalid_argument);
}

void order_is_the_same_as_text_and_as_number(void**) {
  const std::int64_t values[] = {0, 1, 2, 9, 10, 99, 100, 12'345, 899'999'999'999'999, 900'000'000'000'001};
  for (const auto left : values) {
    for (const auto right : values) {
      const fence a = number(left);
      const fence b = number(right);
      assert_true((a < b) == (left < right));
      assert_true((a == b) == (left == right));
      assert_true((a.to_text().view() < b.to_text().view()) == (left < right));
    }
  }
}

void bounds_are_inclusive(void**) {
  assert_true(number(900'000'000'000'000).grantable());
  assert_false(number(900'000'000'000'001).grantable());
  assert_false(number(90'000'000'000'000).near_exhaustion());
  assert_true(number(90'000'000'000'001).near_exhaustion());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(parse_reads_back_what_was_written),
      cmocka_unit_test(parse_refuses_everything_but_15_digits),
      cmocka_unit_test(numbers_outside_the_text_form_are_refused),
      cmocka_unit_test(order_is_the_same_as_text_and_as_number),
      cmocka_unit_test(bounds_are_inclusive),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
