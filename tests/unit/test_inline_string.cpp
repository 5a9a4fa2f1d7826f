#include "protocol/inline_string.hpp"

#include "support/cmocka.hpp"

namespace {

using syncguard::protocol::inline_string;

void appending_beyond_the_capacity_changes_nothing(void**) {
  inline_string<4> text;
  assert_text_equal(text.view(), "");
  assert_true(text.append("abc"));
  assert_false(text.append("de"));
  assert_text_equal(text.view(), "abc");
  assert_true(text.append("d"));
  assert_false(text.append("e"));
  assert_true(text.append(""));
  assert_text_equal(text.view(), "abcd");
}

void clearing_starts_again(void**) {
  inline_string<4> text;
  text.append("abcd");
  text.clear();
  assert_int_equal(text.size(), 0);
  assert_true(text.append("xy"));
  assert_text_equal(text.view(), "xy");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(appending_beyond_the_capacity_changes_nothing),
      cmocka_unit_test(clearing_starts_again),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
