#include "protocol/storage_key.hpp"

#include <string>

#include "protocol/config.hpp"
#include "support/cmocka.hpp"

namespace {

using namespace syncguard::protocol;
using syncguard::error_code;
using syncguard::lock_id;

storage_key_buffer out;

lock_id some_id() { return *lock_id::parse("AAAAAAAAAAAAAAAAAAAAAA"); }

void three_keys_of_a_lock(void**) {
  const auto keys = key_space::make("syncguard");
  assert_text_equal(keys->lock_key("match:42", out), "syncguard:match:42");
  storage_key_buffer fence_out;
  assert_text_equal(keys->fence_key(out.view(), fence_out), "syncguard:fence:syncguard:match:42");
  assert_text_equal(keys->index_key(some_id(), out), "syncguard:id:AAAAAAAAAAAAAAAAAAAAAA");
}

void trailing_colons_of_the_prefix_are_dropped(void**) {
  assert_text_equal(key_space::make("app:::")->lock_key("k", out), "app:k");
  assert_text_equal(key_space::make("a:b")->lock_key("k", out), "a:b:k");
}

void empty_prefix_means_no_prefix(void**) {
  for (const std::string_view prefix : {"", ":", ":::"}) {
    const auto keys = key_space::make(prefix);
    assert_text_equal(keys->lock_key("k", out), "k");
    assert_text_equal(keys->index_key(some_id(), out), "id:AAAAAAAAAAAAAAAAAAAAAA");
    assert_text_equal(keys->fence_key("k", out), "fence:k");
  }
}

void key_is_hashed_exactly_when_it_would_exceed_the_budget(void**) {
  const std::string prefix(500, 'p');
  assert_int_equal(make_storage_key(prefix, std::string(473, 'k'), out)->size(), 974);
  const auto hashed = make_storage_key(prefix, std::string(474, 'k'), out);
  assert_int_equal(hashed->size(), 500 + 1 + 22);
  assert_true(lock_id::is_valid(hashed->substr(501)));
}

void hashed_keys_differ_with_prefix_and_key(void**) {
  const std::string long_key(512, 'k');
  storage_key_buffer other_out;
  const auto one = make_storage_key(std::string(500, 'p'), long_key, out);
  const auto two = make_storage_key(std::string(500, 'p'), long_key.substr(1) + "x", other_out);
  assert_true(one->substr(0, 501) == two->substr(0, 501));
  assert_true(one->substr(501) != two->substr(501));
}

void prefix_without_room_for_a_hash_is_refused(void**) {
  assert_true(make_storage_key(std::string(951, 'p'), std::string(30, 'k'), out).has_value());
  assert_failed_with(make_storage_key(std::string(952, 'p'), std::string(30, 'k'), out), error_code::invalid_argument);
  assert_true(make_storage_key(std::string(952, 'p'), "k", out).has_value());
  assert_failed_with(make_storage_key(std::string(973, 'p'), "k", out), error_code::invalid_argument);
  assert_failed_with(make_storage_key(std::string(974, 'p'), "", out), error_code::invalid_argument);
  assert_failed_with(make_storage_key(std::string(1'000'000, 'p'), "k", out), error_code::invalid_argument);
}

void key_space_that_was_made_never_fails(void**) {
  for (std::size_t length = 0; length <= prefix_max_bytes; ++length) {
    const auto keys = key_space::make(std::string(length, 'p'));
    for (const std::size_t key_length : {1U, 21U, 22U, 23U, 512U}) {
      storage_key_buffer fence_out;
      assert_true(keys->fence_key(keys->lock_key(std::string(key_length, 'k'), out), fence_out).size() <= 974);
    }
    assert_true(keys->index_key(some_id(), out).size() <= 974);
  }
}

void unusable_prefixes_are_refused(void**) {
  assert_failed_with(key_space::make(std::string(952, 'p')), error_code::invalid_argument);
  assert_failed_with(key_space::make("a\xff"), error_code::invalid_argument);
  assert_failed_with(key_space::make("myfence"), error_code::invalid_argument);
  assert_true(key_space::make(std::string(951, 'p') + ":::").has_value());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(three_keys_of_a_lock),
      cmocka_unit_test(trailing_colons_of_the_prefix_are_dropped),
      cmocka_unit_test(empty_prefix_means_no_prefix),
      cmocka_unit_test(key_is_hashed_exactly_when_it_would_exceed_the_budget),
      cmocka_unit_test(hashed_keys_differ_with_prefix_and_key),
      cmocka_unit_test(prefix_without_room_for_a_hash_is_refused),
      cmocka_unit_test(key_space_that_was_made_never_fails),
      cmocka_unit_test(unusable_prefixes_are_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
