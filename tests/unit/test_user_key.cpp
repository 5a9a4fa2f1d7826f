#include "protocol/user_key.hpp"

#include <string>

#include "support/cmocka.hpp"

namespace {

using namespace std::string_view_literals;
using syncguard::error_code;
using syncguard::result;
using syncguard::protocol::normalize_user_key;
using syncguard::protocol::user_key_buffer;

user_key_buffer buffer;

result<std::string_view> normalize(std::string_view raw) { return normalize_user_key(raw, buffer); }

std::string repeat(std::string_view text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

void ascii_key_is_not_copied(void**) {
  const std::string_view raw = "match:42";
  const auto key = normalize(raw);
  assert_true(key.has_value());
  assert_ptr_equal(key->data(), raw.data());
}

void decomposed_key_is_composed(void**) {
  assert_text_equal(*normalize("e\u0301"), "\u00e9");
  assert_text_equal(*normalize("\u212b"), "\u00c5");
  assert_text_equal(*normalize("\u1112\u1161\u11ab"), "\ud55c");
  assert_text_equal(*normalize("\u0958"), "\u0915\u093c");
  assert_text_equal(*normalize("a\u0323\u0307"), *normalize("a\u0307\u0323"));
}

void control_characters_and_zero_bytes_are_allowed(void**) {
  assert_text_equal(*normalize("a\0b\n"sv), "a\0b\n"sv);
  assert_text_equal(*normalize("\u00e9\0"sv), "\u00e9\0"sv);
}

void length_is_counted_after_normalisation(void**) {
  assert_true(normalize(std::string(512, 'k')).has_value());
  assert_failed_with(normalize(std::string(513, 'k')), error_code::invalid_argument);
  assert_true(normalize(repeat("e\u0301", 256)).has_value());
  assert_int_equal(normalize(repeat("e\u0301", 256))->size(), 512);
  assert_failed_with(normalize(repeat("e\u0301", 257)), error_code::invalid_argument);
  // U+0344 grows: two bytes become four.
  assert_int_equal(normalize(repeat("\u0344", 128))->size(), 512);
  assert_failed_with(normalize(repeat("\u0344", 129)), error_code::invalid_argument);
}

void longest_raw_form_of_a_valid_key_is_accepted(void**) {
  // Seven bytes that become two: nothing shrinks more.
  const auto key = normalize(repeat("\u1fbe\u0308\u0301", 256));
  assert_true(key.has_value());
  assert_text_equal(*key, repeat("\u0390", 256));
  assert_failed_with(normalize(repeat("\u1fbe\u0308\u0301", 257)), error_code::invalid_argument);
}

void huge_keys_are_refused(void**) {
  assert_failed_with(normalize(std::string(10'000'000, 'k')), error_code::invalid_argument);
  assert_failed_with(normalize(repeat("\u00e9", 5'000'000)), error_code::invalid_argument);
  // The most code points that fit the working buffer.
  assert_failed_with(normalize(repeat("\u03b0", 1024)), error_code::invalid_argument);
  // Combining marks in the worst order for the sort that normalisation does.
  assert_failed_with(normalize("a" + repeat("\u0301\u0323", 500)), error_code::invalid_argument);
}

void empty_key_is_refused(void**) { assert_failed_with(normalize(""), error_code::invalid_argument); }

void malformed_utf8_is_refused(void**) {
  for (const std::string_view bad :
       {"\x80", "\xff", "a\xc3", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80", "\xed\xbf\xbf", "\xf4\x90\x80\x80",
        "\xf8\x88\x80\x80\x80", "\xe2\x82", "\xf0\x9f\x94", "abc\xfe"})
    assert_failed_with(normalize(bad), error_code::invalid_argument);
}

void reserved_namespaces_are_refused(void**) {
  assert_failed_with(normalize("fence:syncguard:foo"), error_code::invalid_argument);
  assert_failed_with(normalize("fence:"), error_code::invalid_argument);
  assert_failed_with(normalize("fence:\u00e9"), error_code::invalid_argument);
  assert_failed_with(normalize("id:AAAAAAAAAAAAAAAAAAAAAA"), error_code::invalid_argument);
  assert_failed_with(normalize("id:abcdefghijklmnopqrst-_"), error_code::invalid_argument);
}

void neighbours_of_reserved_namespaces_are_allowed(void**) {
  for (const std::string_view fine :
       {"fence", "fences:a", "Fence:a", "a:fence:b", "id:", "id:42", "id:AAAAAAAAAAAAAAAAAAAAA",
        "id:AAAAAAAAAAAAAAAAAAAAAAA", "id:AAAAAAAAAAAAAAAAAAAAA!", "ID:AAAAAAAAAAAAAAAAAAAAAA"})
    assert_true(normalize(fine).has_value());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(ascii_key_is_not_copied),
      cmocka_unit_test(decomposed_key_is_composed),
      cmocka_unit_test(control_characters_and_zero_bytes_are_allowed),
      cmocka_unit_test(length_is_counted_after_normalisation),
      cmocka_unit_test(longest_raw_form_of_a_valid_key_is_accepted),
      cmocka_unit_test(huge_keys_are_refused),
      cmocka_unit_test(empty_key_is_refused),
      cmocka_unit_test(malformed_utf8_is_refused),
      cmocka_unit_test(reserved_namespaces_are_refused),
      cmocka_unit_test(neighbours_of_reserved_namespaces_are_allowed),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
