// is_locked: a mere look, unless cleaning up was asked for.

#include <string>

#include "contract/cases.hpp"
#include "contract/operations.hpp"
#include "contract/stored.hpp"

namespace syncguard::testing {

namespace {

client_options cleaning_options() {
  client_options options = base_options();
  options.cleanup_in_is_locked = true;
  return options;
}

// Cleaning up may go on after the answer.
bool both_keys_go() {
  return run_until([] { return !exists(lock_key("k")) && !exists(index_key(own_id)); }, 5s);
}

void is_locked_free_key_is_false(void**) { assert_false(must(await_is_locked("k"))); }

void is_locked_held_key_is_true(void**) {
  hold("k", 60s, rival());
  assert_true(must(await_is_locked("k")));
}

void is_locked_after_release_is_false(void**) {
  const grant got = hold("k");
  assert_true(must(await_release(got.id)));
  assert_false(must(await_is_locked("k")));
}

void is_locked_of_an_equivalent_unicode_key_is_true(void**) {
  hold("e\u0301");
  assert_true(must(await_is_locked("\u00e9")));
}

void is_locked_expired_record_is_false_and_stays(void**) {
  store_expiring(own_id, -10s);
  assert_false(must(await_is_locked("k")));
  run_for(20ms);
  assert_int_equal(key_count(), 2);
}

void is_locked_with_cleanup_deletes_record_and_index_after_two_seconds(void**) {
  make_ready_subject(cleaning_options());
  store_expiring(own_id, -2500ms);
  redis({"SET", fence_key("k"), "5"});
  assert_false(must(await_is_locked("k")));
  assert_true(both_keys_go());
  assert_text_equal(text_at(fence_key("k")), "5");
}

void is_locked_with_cleanup_leaves_what_expired_less_than_two_seconds_ago(void**) {
  make_ready_subject(cleaning_options());
  store_expiring(own_id, -1200ms);
  assert_false(must(await_is_locked("k")));
  run_for(20ms);
  assert_int_equal(key_count(), 2);
}

void is_locked_with_cleanup_leaves_a_held_lock(void**) {
  make_ready_subject(cleaning_options());
  const grant got = hold("k");
  assert_true(must(await_is_locked("k")));
  run_for(20ms);
  assert_true(must(await_owns(got.id)));
}

void is_locked_with_cleanup_leaves_the_unreadable(void**) {
  make_ready_subject(cleaning_options());
  store(own_id, "nonsense");
  assert_true(must(await_is_locked("k")));
  run_for(20ms);
  assert_int_equal(key_count(), 2);
}

void is_locked_unreadable_with_ttl_is_true(void**) {
  redis({"SET", lock_key("k"), "nonsense", "PX", "60000"});
  assert_true(must(await_is_locked("k")));
}

void is_locked_unreadable_without_ttl_is_internal_and_names_the_key(void**) {
  redis({"SET", lock_key("k"), "nonsense"});
  const error failure = must_fail(await_is_locked("k"), error_code::internal);
  assert_text_equal(failure.key(), "k");
}

void is_locked_wrong_type_is_never_true(void**) {
  redis({"LPUSH", lock_key("k"), "x"});
  const auto outcome = await_is_locked("k");
  assert_true(outcome ? !*outcome : outcome.error().code() == error_code::invalid_argument);
}

void is_locked_writes_nothing(void**) {
  hold("k");
  const std::string before = text_at(lock_key("k"));
  const long long ttl_before = pttl(lock_key("k"));
  assert_true(must(await_is_locked("k")));
  assert_false(must(await_is_locked("other")));
  assert_text_equal(text_at(lock_key("k")), before);
  assert_true(pttl(lock_key("k")) <= ttl_before);
  assert_int_equal(key_count(), 3);
}

}  // namespace

cases is_locked_cases() {
  static const CMUnitTest all[] = {
      contract_case(is_locked_free_key_is_false),
      contract_case(is_locked_held_key_is_true),
      contract_case(is_locked_after_release_is_false),
      contract_case(is_locked_of_an_equivalent_unicode_key_is_true),
      contract_case(is_locked_expired_record_is_false_and_stays),
      contract_case_alone(is_locked_with_cleanup_deletes_record_and_index_after_two_seconds),
      contract_case_alone(is_locked_with_cleanup_leaves_what_expired_less_than_two_seconds_ago),
      contract_case_alone(is_locked_with_cleanup_leaves_a_held_lock),
      contract_case_alone(is_locked_with_cleanup_leaves_the_unreadable),
      contract_case(is_locked_unreadable_with_ttl_is_true),
      contract_case(is_locked_unreadable_without_ttl_is_internal_and_names_the_key),
      contract_case(is_locked_wrong_type_is_never_true),
      contract_case(is_locked_writes_nothing),
  };
  return all;
}

}  // namespace syncguard::testing
