#include <syncguard/key_hash.hpp>

#include <string>

#include "support/cmocka.hpp"

namespace {

using syncguard::hash_key;

std::string repeat(std::string_view text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

void empty_text_has_a_hash(void**) { assert_text_equal(hash_key("")->view(), "000000000000000000000000"); }

void one_character_by_hand(void**) {
  // 0x79, 3 * 0x79, 7 * 0x79
  assert_text_equal(hash_key("y")->view(), "000000790000016b0000034f");
}

void two_characters_by_hand(void**) {
  // 'a' then 'b': 31 * 97 + 98, 127 * 291 + 294, 2047 * 679 + 686
  assert_text_equal(hash_key("ab")->view(), "00000c210000918300153807");
}

void characters_beyond_16_bits_count_as_surrogate_pairs(void**) {
  // U+1F512 is d83d dd12: 31 * d83d + dd12; 127 * 3 * d83d + 3 * dd12; 2047 * 7 * d83d + 7 * dd12
  assert_text_equal(hash_key("\U0001f512")->view(), "001b0c75014469ff2f4d79d3");
}

void equivalent_texts_have_the_same_hash(void**) {
  assert_true(*hash_key("e\u0301") == *hash_key("\u00e9"));
  assert_false(*hash_key("e") == *hash_key("\u00e9"));
}

void long_texts_hash_like_short_ones(void**) {
  // Both sides of the size up to which a buffer on the stack is used.
  for (const int times : {511, 512, 513, 1024, 1025, 100'000})
    assert_true(*hash_key(repeat("e\u0301", times)) == *hash_key(repeat("\u00e9", times)));
  assert_true(hash_key(std::string(10'000'000, 'x')).has_value());
}

void malformed_utf8_has_no_hash(void**) {
  assert_false(hash_key("\xff").has_value());
  assert_false(hash_key(std::string(5000, '\xc3')).has_value());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(empty_text_has_a_hash),
      cmocka_unit_test(one_character_by_hand),
      cmocka_unit_test(two_characters_by_hand),
      cmocka_unit_test(characters_beyond_16_bits_count_as_surrogate_pairs),
      cmocka_unit_test(equivalent_texts_have_the_same_hash),
      cmocka_unit_test(long_texts_hash_like_short_ones),
      cmocka_unit_test(malformed_utf8_has_no_hash),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
