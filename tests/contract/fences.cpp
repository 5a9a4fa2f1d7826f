// Fences: 15 digits, strictly increasing, kept for ever.

#include <string>

#include "contract/cases.hpp"
#include "contract/operations.hpp"
#include "contract/stored.hpp"

namespace syncguard::testing {

namespace {

bool warned() {
  for (const seen_event& event : events())
    if (event.type == telemetry_type::fence_near_exhaustion) return true;
  return false;
}

void fence_has_15_digits_in_the_record(void**) {
  const grant got = hold("k");
  assert_text_equal(got.fence.to_text(), "000000000000001");
  assert_true(text_at(lock_key("k")).find(R"("fence":"000000000000001")") != std::string::npos);
}

void fence_increases_with_every_grant(void**) {
  for (std::uint64_t round = 1; round <= 10; ++round) {
    const grant got = hold("k", 60s, round % 2 == 0 ? subject() : rival());
    assert_int_equal(got.fence.number(), round);
    assert_true(must(await_release(got.id)));
  }
}

void fence_survives_expiry(void**) {
  const grant first = hold("k", 20ms);
  assert_true(run_until([] { return !exists(lock_key("k")); }));
  assert_true(hold("k").fence > first.fence);
}

void fence_survives_takeover_of_an_expired_record(void**) {
  redis({"SET", fence_key("k"), "41"});
  store_expiring(own_id, -1500ms);
  assert_int_equal(hold("k").fence.number(), 42);
}

void fence_of_each_key_counts_for_itself(void**) {
  for (int round = 0; round < 3; ++round) must(await_release(hold("a").id));
  assert_int_equal(hold("b").fence.number(), 1);
  assert_int_equal(hold("a").fence.number(), 4);
}

void fence_counter_has_no_ttl_and_survives_release(void**) {
  const grant got = hold("k", 10s);
  assert_int_equal(pttl(fence_key("k")), -1);
  must_have(await_extend(got.id, 20s));
  assert_int_equal(pttl(fence_key("k")), -1);
  assert_true(must(await_release(got.id)));
  assert_int_equal(pttl(fence_key("k")), -1);
  assert_text_equal(text_at(fence_key("k")), "1");
}

void fence_above_the_bound_is_internal_and_stores_no_lock(void**) {
  redis({"SET", fence_key("k"), "900000000000000"});
  const error failure = must_fail(await_acquire("k", 60s), error_code::internal);
  assert_text_equal(failure.key(), "k");
  assert_int_equal(key_count(), 1);
  must_fail(await_acquire("k", 60s), error_code::internal);
  assert_int_equal(key_count(), 1);
}

void fence_far_above_the_bound_is_internal(void**) {
  for (const char* counter : {"999999999999999", "9007199254740993", "9223372036854775806", "9223372036854775807"}) {
    redis({"SET", fence_key("k"), counter});
    must_fail(await_acquire("k", 60s), error_code::internal);
    assert_int_equal(key_count(), 1);
  }
}

void fence_at_the_bound_is_granted(void**) {
  redis({"SET", fence_key("k"), "899999999999999"});
  const grant got = hold("k");
  assert_text_equal(got.fence.to_text(), "900000000000000");
  assert_true(must_have(await_lookup("k")).fence == got.fence);
}

void fence_near_exhaustion_is_granted_and_told(void**) {
  make_ready_subject(watched_options());
  redis({"SET", fence_key("k"), "90000000000000"});
  assert_text_equal(hold("k").fence.to_text(), "090000000000001");
  const auto event = only_event(telemetry_type::fence_near_exhaustion);
  assert_true(event.key == hash_key("k"));
}

void fence_just_below_the_warning_is_not_told(void**) {
  make_ready_subject(watched_options());
  redis({"SET", fence_key("k"), "89999999999999"});
  hold("k");
  run_for(10ms);
  assert_false(warned());
}

void fence_counter_that_is_no_number_is_an_error_and_stores_no_lock(void**) {
  redis({"SET", fence_key("k"), "nonsense"});
  must_fail(await_acquire("k", 60s), error_code::internal);
  assert_int_equal(key_count(), 1);
}

void fence_counter_of_a_wrong_type_is_invalid_and_stores_no_lock(void**) {
  redis({"LPUSH", fence_key("k"), "x"});
  must_fail(await_acquire("k", 60s), error_code::invalid_argument);
  assert_int_equal(key_count(), 1);
}

void fence_is_not_used_up_by_contention(void**) {
  const grant first = hold("k");
  for (int round = 0; round < 5; ++round) assert_false(must(await_acquire("k", 60s, rival())).has_value());
  assert_true(must(await_release(first.id)));
  assert_int_equal(hold("k").fence.number(), 2);
}

}  // namespace

cases fence_cases() {
  static const CMUnitTest all[] = {
      contract_case(fence_has_15_digits_in_the_record),
      contract_case(fence_increases_with_every_grant),
      contract_case(fence_survives_expiry),
      contract_case(fence_survives_takeover_of_an_expired_record),
      contract_case(fence_of_each_key_counts_for_itself),
      contract_case(fence_counter_has_no_ttl_and_survives_release),
      contract_case(fence_above_the_bound_is_internal_and_stores_no_lock),
      contract_case(fence_far_above_the_bound_is_internal),
      contract_case(fence_at_the_bound_is_granted),
      contract_case_alone(fence_near_exhaustion_is_granted_and_told),
      contract_case_alone(fence_just_below_the_warning_is_not_told),
      contract_case(fence_counter_that_is_no_number_is_an_error_and_stores_no_lock),
      contract_case(fence_counter_of_a_wrong_type_is_invalid_and_stores_no_lock),
      contract_case(fence_is_not_used_up_by_contention),
  };
  return all;
}

}  // namespace syncguard::testing
