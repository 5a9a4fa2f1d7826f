#include "protocol/utf8.hpp"

#include <array>
#include <string>
#include <vector>

#include "support/cmocka.hpp"

namespace {

using namespace syncguard::protocol;

void ascii_is_told_at_every_length_and_place(void**) {
  for (std::size_t length = 0; length <= 40; ++length) {
    std::string text(length, 'a');
    assert_true(is_ascii(text));
    for (std::size_t at = 0; at < length; ++at) {
      text[at] = '\x80';
      assert_false(is_ascii(text));
      text[at] = 'a';
    }
  }
}

void utf8_is_checked_to_the_end(void**) {
  assert_true(is_utf8(""));
  assert_true(is_utf8("a\u00e9\u9375\U0001f512"));
  assert_false(is_utf8("abc\xc3"));
  assert_false(is_utf8("\xed\xa0\x80"));
}

void normalisation_never_needs_more_room_than_said(void**) {
  for (std::int32_t code_point = 0; code_point < 0x110000; ++code_point) {
    if (code_point >= 0xd800 && code_point < 0xe000) continue;
    char encoded[4];
    const std::size_t bytes = encode_utf8(code_point, encoded);
    std::vector<std::int32_t> work(decomposed_max(bytes));
    if (normalize_nfc({encoded, bytes}, work) <= 0) fail_msg("U+%04X does not fit", static_cast<unsigned>(code_point));
  }
}

void normalisation_without_room_is_refused(void**) {
  std::array<std::int32_t, 2> work{};
  assert_int_equal(normalize_nfc("abc", work), -1);
  assert_int_equal(normalize_nfc("\xff", work), -1);
  assert_int_equal(normalize_nfc("", work), 0);
}

void encoding_stops_at_the_end_of_the_buffer(void**) {
  std::array<char, 2> out{};
  assert_int_equal(encode_utf8(0xe9, out), 2);
  assert_int_equal(encode_utf8(0x9375, out), 0);
  assert_int_equal(encode_utf8('a', std::span<char>{}), 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(ascii_is_told_at_every_length_and_place),
      cmocka_unit_test(utf8_is_checked_to_the_end),
      cmocka_unit_test(normalisation_never_needs_more_room_than_said),
      cmocka_unit_test(normalisation_without_room_is_refused),
      cmocka_unit_test(encoding_stops_at_the_end_of_the_buffer),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
