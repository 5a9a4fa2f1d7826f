#include "protocol/config.hpp"

#include <limits>
#include <string>

#include "support/cmocka.hpp"

namespace {

using namespace syncguard::protocol;
using syncguard::error_code;

void default_prefix_is_valid(void**) { assert_text_equal(*validate_prefix(default_prefix), "syncguard"); }

void prefixes_that_endanger_fence_counters_are_refused(void**) {
  for (const std::string_view bad :
       {"fence", "myfence", "a:fence", "fence:a", "x:fence:y", "afence:b", "fence:", "fence::"})
    assert_failed_with(validate_prefix(bad), error_code::invalid_argument);
}

void prefixes_that_merely_look_alike_are_allowed(void**) {
  for (const std::string_view fine : {"fences", "Fence", "fenc", "fencer:a", "my-fence-post", "\u00e9", "a b", ""})
    assert_true(validate_prefix(fine).has_value());
}

void length_counts_without_trailing_colons(void**) {
  assert_int_equal(validate_prefix(std::string(951, 'p') + "::")->size(), 951);
  assert_failed_with(validate_prefix(std::string(952, 'p')), error_code::invalid_argument);
  assert_failed_with(validate_prefix(std::string(10'000'000, 'p')), error_code::invalid_argument);
}

void malformed_utf8_is_refused(void**) { assert_failed_with(validate_prefix("a\xff"), error_code::invalid_argument); }

void time_to_live_has_bounds(void**) {
  assert_true(validate_ttl_ms(1).has_value());
  assert_true(validate_ttl_ms(8'640'000'000).has_value());
  for (const std::int64_t bad : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{8'640'000'001},
                                 std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()})
    assert_failed_with(validate_ttl_ms(bad), error_code::invalid_argument);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(default_prefix_is_valid),
      cmocka_unit_test(prefixes_that_endanger_fence_counters_are_refused),
      cmocka_unit_test(prefixes_that_merely_look_alike_are_allowed),
      cmocka_unit_test(length_counts_without_trailing_colons),
      cmocka_unit_test(malformed_utf8_is_refused),
      cmocka_unit_test(time_to_live_has_bounds),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
