#include <syncguard/lock_id.hpp>

#include <array>
#include <set>
#include <string>
#include <type_traits>

#include "support/cmocka.hpp"

namespace {

using syncguard::error_code;
using syncguard::lock_id;

static_assert(!std::is_default_constructible_v<lock_id>);
static_assert(std::is_trivially_copyable_v<lock_id> && sizeof(lock_id) == 22);

void generated_ids_are_valid_and_differ(void**) {
  std::set<std::string> seen;
  for (int i = 0; i < 10'000; ++i) {
    const lock_id id = lock_id::generate();
    assert_true(lock_id::is_valid(id.view()));
    assert_true(seen.insert(std::string{id.view()}).second);
  }
}

void bytes_become_base64url_without_padding(void**) {
  std::array<std::uint8_t, 16> bytes{};
  assert_text_equal(lock_id::from_bytes(bytes).view(), "AAAAAAAAAAAAAAAAAAAAAA");
  bytes.fill(0xff);
  assert_text_equal(lock_id::from_bytes(bytes).view(), "_____________________w");
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 17);
  assert_text_equal(lock_id::from_bytes(bytes).view(), "ABEiM0RVZneImaq7zN3u_w");
}

void parse_keeps_what_it_read(void**) {
  const auto id = lock_id::parse("abcdefghijklmnopqrst-_");
  assert_true(id.has_value());
  assert_text_equal(id->view(), "abcdefghijklmnopqrst-_");
  assert_true(*id == *lock_id::parse("abcdefghijklmnopqrst-_"));
  assert_false(*id == *lock_id::parse("abcdefghijklmnopqrst_-"));
}

void wrong_lengths_are_refused(void**) {
  for (std::size_t length = 0; length <= 64; ++length)
    if (length != 22) assert_failed_with(lock_id::parse(std::string(length, 'A')), error_code::invalid_argument);
  assert_failed_with(lock_id::parse(std::string(1'000'000, 'A')), error_code::invalid_argument);
}

void every_byte_outside_the_alphabet_is_refused_everywhere(void**) {
  const std::string alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  for (int byte = 0; byte < 256; ++byte) {
    for (std::size_t at = 0; at < 22; ++at) {
      std::string text(22, 'A');
      text[at] = static_cast<char>(byte);
      const bool allowed = alphabet.find(static_cast<char>(byte)) != std::string::npos;
      assert_int_equal(lock_id::parse(text).has_value(), allowed);
    }
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(generated_ids_are_valid_and_differ),
      cmocka_unit_test(bytes_become_base64url_without_padding),
      cmocka_unit_test(parse_keeps_what_it_read),
      cmocka_unit_test(wrong_lengths_are_refused),
      cmocka_unit_test(every_byte_outside_the_alphabet_is_refused_everywhere),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
