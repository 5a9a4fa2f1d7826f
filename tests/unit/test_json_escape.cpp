#include "protocol/json_escape.hpp"

#include <string>

#include "support/cmocka.hpp"

namespace {

using syncguard::protocol::append_json_escaped;
using syncguard::protocol::inline_string;

std::string escaped(std::string_view text) {
  inline_string<64> out;
  assert_true(append_json_escaped(out, text));
  return std::string{out.view()};
}

void plain_text_stays_as_it_is(void**) {
  assert_text_equal(escaped("match:42/\u00e9\u9375 \x7f'"), "match:42/\u00e9\u9375 \x7f'");
  assert_text_equal(escaped(""), "");
}

void quotes_and_backslashes_are_escaped(void**) { assert_text_equal(escaped(R"(a"b\c)"), R"(a\"b\\c)"); }

void every_control_character_is_escaped(void**) {
  assert_text_equal(escaped("\b\f\n\r\t"), R"(\b\f\n\r\t)");
  assert_text_equal(escaped(std::string_view("\0\x01\x1f", 3)), R"(\u0000\u0001\u001f)");
  for (char character = 0; character < 0x20; ++character) assert_true(escaped({&character, 1}).front() == '\\');
}

void text_that_does_not_fit_is_reported(void**) {
  inline_string<5> out;
  assert_false(append_json_escaped(out, "\x01"));
  assert_false(append_json_escaped(out, "abcdef"));
  assert_false(append_json_escaped(out, "abcdef\n"));
  assert_true(append_json_escaped(out, "abc\n"));
  assert_text_equal(out.view(), "abc\\n");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(plain_text_stays_as_it_is),
      cmocka_unit_test(quotes_and_backslashes_are_escaped),
      cmocka_unit_test(every_control_character_is_escaped),
      cmocka_unit_test(text_that_does_not_fit_is_reported),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
