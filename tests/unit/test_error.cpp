#include <syncguard/error.hpp>

#include <set>
#include <string>
#include <type_traits>

#include "support/cmocka.hpp"

namespace {

using syncguard::describe;
using syncguard::error;
using syncguard::error_code;

// A message must live for ever: only a literal will do.
static_assert(!std::is_convertible_v<std::string, syncguard::static_text>);
static_assert(!std::is_convertible_v<const char*, syncguard::static_text>);
static_assert(!std::is_convertible_v<std::string_view, syncguard::static_text>);
static_assert(std::is_nothrow_move_constructible_v<error> && std::is_nothrow_copy_constructible_v<error>);

void codes_each_have_a_name_of_their_own(void**) {
  std::set<std::string_view> names;
  for (std::size_t index = 0; index < syncguard::error_code_count; ++index)
    names.insert(to_string(static_cast<error_code>(index)));
  assert_int_equal(names.size(), syncguard::error_code_count);
  assert_text_equal(to_string(error_code::service_unavailable), "ServiceUnavailable");
  assert_text_equal(to_string(error_code::internal), "Internal");
}

void code_from_a_newer_library_is_survived(void**) {
  const auto unknown = static_cast<error_code>(200);
  assert_text_equal(to_string(unknown), "Unknown");
  assert_false((error{unknown, "what is this"}.retryable()));
}

void retry_helps_only_where_time_can_heal(void**) {
  const auto retryable = [](error_code code) { return error{code, "x"}.retryable(); };
  assert_true(retryable(error_code::service_unavailable));
  assert_true(retryable(error_code::rate_limited));
  assert_true(retryable(error_code::network_timeout));
  assert_true(retryable(error_code::acquisition_timeout));
  assert_false(retryable(error_code::auth_failed));
  assert_false(retryable(error_code::invalid_argument));
  assert_false(retryable(error_code::aborted));
  assert_false(retryable(error_code::internal));
}

void context_is_empty_until_given(void**) {
  const error bare{error_code::aborted, "cancelled"};
  assert_text_equal(bare.message(), "cancelled");
  assert_text_equal(bare.key(), "");
  assert_text_equal(bare.lock_id(), "");
  assert_text_equal(bare.cause(), "");
  assert_false(bare.outcome_unknown());
}

void context_keeps_zero_bytes_and_replaces_the_old(void**) {
  error what{error_code::internal, "broken"};
  what.with_context(std::string_view{"a\0b", 3}, "AAAAAAAAAAAAAAAAAAAAAA", "because");
  assert_text_equal(what.key(), std::string_view("a\0b", 3));
  assert_text_equal(what.lock_id(), "AAAAAAAAAAAAAAAAAAAAAA");
  assert_text_equal(what.cause(), "because");
  what.with_context("", "", "other");
  assert_text_equal(what.key(), "");
  assert_text_equal(what.cause(), "other");
  what.with_context("", "", "");
  assert_text_equal(what.cause(), "");
}

void context_too_long_is_cut_off(void**) {
  error what{error_code::internal, "broken"};
  const std::string huge(100'000, 'x');
  what.with_context(huge, huge, huge);
  assert_int_equal(what.key().size(), error::key_max_bytes);
  assert_int_equal(what.lock_id().size(), error::lock_id_max_bytes);
  assert_int_equal(what.cause().size(), error::cause_max_bytes);
}

void copy_is_independent_and_move_leaves_nothing(void**) {
  error original{error_code::network_timeout, "late"};
  original.with_context("k", "", "c").with_outcome_unknown();
  error copy{original};
  original.with_context("other", "", "");
  assert_text_equal(copy.key(), "k");
  assert_text_equal(copy.cause(), "c");
  assert_true(copy.outcome_unknown());

  error assigned{error_code::aborted, "x"};
  assigned = copy;
  const error& same = assigned;
  assigned = same;
  assert_text_equal(assigned.key(), "k");
  assert_true(assigned.code() == error_code::network_timeout);

  const error moved{std::move(assigned)};
  assert_text_equal(moved.key(), "k");
}

void describe_shows_what_is_known_on_one_line(void**) {
  error what{error_code::service_unavailable, "the server refused the connection"};
  assert_text_equal(describe(what), "ServiceUnavailable: the server refused the connection");
  what.with_context("match:42", "", "Connection refused");
  assert_text_equal(
      describe(what),
      "ServiceUnavailable: the server refused the connection (key \"match:42\", cause: Connection refused)");
  what.with_context("a\nb\x7f", "AAAAAAAAAAAAAAAAAAAAAA", "").with_outcome_unknown();
  assert_text_equal(describe(what),
                    "ServiceUnavailable: the server refused the connection (key \"a\\x0ab\\x7f\", "
                    "lock id AAAAAAAAAAAAAAAAAAAAAA, outcome unknown)");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(codes_each_have_a_name_of_their_own),
      cmocka_unit_test(code_from_a_newer_library_is_survived),
      cmocka_unit_test(retry_helps_only_where_time_can_heal),
      cmocka_unit_test(context_is_empty_until_given),
      cmocka_unit_test(context_keeps_zero_bytes_and_replaces_the_old),
      cmocka_unit_test(context_too_long_is_cut_off),
      cmocka_unit_test(copy_is_independent_and_move_leaves_nothing),
      cmocka_unit_test(describe_shows_what_is_known_on_one_line),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
