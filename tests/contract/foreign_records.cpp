// Records that somebody else wrote, in every order and state of repair.

#include <string>
#include <vector>

#include "contract/cases.hpp"
#include "contract/operations.hpp"
#include "contract/stored.hpp"

namespace syncguard::testing {

namespace {

std::string in_ms(int from_now) { return std::to_string(server_now_ms() + from_now); }

// As SyncGuard's own scripts write it; the order of fields is cjson's.
void store_by_cjson(int expires_in_ms) {
  redis({"EVAL",
         "redis.call('SET', KEYS[1], cjson.encode({lockId=ARGV[1], expiresAtMs=tonumber(ARGV[2]), "
         "acquiredAtMs=tonumber(ARGV[2])-30000, key='k', fence='000000000000007'}), 'PX', 60000) "
         "redis.call('SET', KEYS[2], KEYS[1], 'PX', 60000)",
         "2", lock_key("k"), index_key(own_id), std::string{own_id}, in_ms(expires_in_ms)});
}

std::string legacy_record(int expires_in_ms) {
  return R"({"lockId":")" + std::string{own_id} + R"(","expiresAt":)" + in_ms(expires_in_ms) +
         R"(,"createdAt":1,"key":"k"})";
}

// The record at "k" counts as held, for whoever asks, and stays as it is.
void is_held_and_untouched() {
  const std::string before = text_at(lock_key("k"));
  assert_false(must(await_acquire("k", 60s)).has_value());
  assert_true(must(await_is_locked("k")));
  assert_text_equal(text_at(lock_key("k")), before);
  assert_false(exists(fence_key("k")));
}

void cjson_record_is_contended_looked_up_and_released(void**) {
  store_by_cjson(30'000);
  is_held_and_untouched();
  for (const auto& seen : {must_have(await_lookup_raw("k")), must_have(await_lookup_raw_by_id(own_id))}) {
    assert_text_equal(seen.id(), own_id);
    assert_text_equal(seen.key(), "k");
    assert_int_equal(seen.info().fence.number(), 7);
    assert_int_equal(to_ms(seen.info().expires_at) - to_ms(seen.info().acquired_at), 30'000);
  }
  assert_true(must(await_owns(own_id)));
  assert_true(must(await_release(own_id)));
  assert_int_equal(key_count(), 0);
}

void cjson_record_expired_is_taken_over(void**) {
  store_by_cjson(-1500);
  hold("k");
  assert_false(exists(index_key(own_id)));
}

void record_with_whitespace_and_further_fields_is_read(void**) {
  store(own_id, R"( { "more" : {"expiresAtMs":1,"lockId":"x"} , "key" : "\u006b", "fence" : "000000000000003" ,
    "acquiredAtMs" : 1 , "expiresAtMs" : )" +
                    in_ms(30'000) + R"( , "lockId" : ")" + std::string{own_id} + "\" } ");
  is_held_and_untouched();
  assert_text_equal(must_have(await_lookup_raw("k")).key(), "k");
  assert_int_equal(must_have(await_lookup_by_id(own_id)).fence.number(), 3);
  assert_true(must(await_release(own_id)));
}

void legacy_record_live_is_contended(void**) {
  store(own_id, legacy_record(30'000));
  is_held_and_untouched();
}

void legacy_record_expired_is_taken_over(void**) {
  store(own_id, legacy_record(-1500));
  assert_false(must(await_is_locked("k")));
  const grant got = hold("k");
  assert_true(must(await_owns(got.id)));
  assert_false(exists(index_key(own_id)));
}

void legacy_record_within_the_tolerance_is_contended(void**) {
  store(own_id, legacy_record(-300));
  is_held_and_untouched();
}

void unreadable_with_ttl_is_contended(void**) {
  for (const std::string& bad : std::vector<std::string>{
           "nonsense", "", "[]", "7", "null", "{}", R"({"lockId":"abcdefghijklmnopqrst-_"})",
           R"({"lockId":"abcdefghijklmnopqrst-_","expiresAtMs":"1"})",
           R"({"lockId":"abcdefghijklmnopqrst-_","expiresAtMs":null})",
           R"({"lockId":"abcdefghijklmnopqrst-_","expiresAtMs":1)", std::string(3, '\0'), "\xff\xfe"}) {
    redis({"SET", lock_key("k"), bad, "PX", "60000"});
    is_held_and_untouched();
  }
}

void unreadable_with_ttl_tells_telemetry_that_it_is_corrupt(void**) {
  make_ready_subject(watched_options());
  redis({"SET", lock_key("k"), "nonsense", "PX", "60000"});
  assert_false(must(await_acquire("k", 60s)).has_value());
  const auto event = only_event(telemetry_type::acquire);
  assert_false(event.ok);
  assert_true(event.reason == telemetry_reason::corrupt);
  assert_true(event.key == hash_key("k"));
}

void unreadable_without_ttl_is_internal_and_names_the_key(void**) {
  for (const char* bad : {"nonsense", "", "{}", "[]"}) {
    redis({"SET", lock_key("k"), bad});
    const error failure = must_fail(await_acquire("k", 60s), error_code::internal);
    assert_text_equal(failure.key(), "k");
    assert_false(failure.outcome_unknown());
    assert_text_equal(text_at(lock_key("k")), bad);
    assert_int_equal(key_count(), 1);
  }
}

void unreadable_once_gone_leaves_the_key_free(void**) {
  redis({"SET", lock_key("k"), "nonsense", "PX", "30"});
  assert_true(run_until([] { return !exists(lock_key("k")); }));
  hold("k");
}

void deeply_nested_json_is_contended(void**) {
  for (const std::string& bad : {std::string(1000, '['), std::string(1000, '[') + std::string(1000, ']'),
                                 R"({"lockId":"x","more":)" + std::string(1000, '[') + std::string(1000, ']') + "}"}) {
    redis({"SET", lock_key("k"), bad, "PX", "60000"});
    is_held_and_untouched();
  }
}

void record_of_a_megabyte_is_contended(void**) {
  redis({"SET", lock_key("k"), std::string(1 << 20, 'x'), "PX", "60000"});
  is_held_and_untouched();
}

void wrong_type_at_the_lock_key_is_invalid_and_untouched(void**) {
  redis({"HSET", lock_key("k"), "field", "value"});
  const error failure = must_fail(await_acquire("k", 60s), error_code::invalid_argument);
  assert_text_equal(failure.key(), "k");
  assert_false(failure.outcome_unknown());
  assert_int_equal(redis({"HLEN", lock_key("k")}).integer, 1);
  // The fence counter may have moved on; nothing else is there.
  assert_int_equal(key_count(), exists(fence_key("k")) ? 2 : 1);
}

void key_that_looks_like_fields_does_not_mislead(void**) {
  const std::string key = R"(","expiresAtMs":1,"lockId":"AAAAAAAAAAAAAAAAAAAAAA","key":"k)";
  const grant got = hold(key);
  assert_false(must(await_acquire(key, 60s)).has_value());
  assert_true(must(await_is_locked(key)));
  assert_text_equal(must_have(await_lookup_raw_by_id(got.id)).key(), key);
  assert_true(must(await_release(got.id)));
}

void expired_record_by_hand_is_taken_over_with_its_old_index(void**) {
  store_expiring(own_id, -1500ms);
  const grant got = hold("k");
  assert_false(exists(index_key(own_id)));
  assert_true(exists(index_key(got.id)));
  assert_text_equal(must_have(await_lookup_raw("k")).id(), got.id);
  assert_int_equal(key_count(), 3);
}

}  // namespace

cases foreign_record_cases() {
  static const CMUnitTest all[] = {
      contract_case(cjson_record_is_contended_looked_up_and_released),
      contract_case(cjson_record_expired_is_taken_over),
      contract_case(record_with_whitespace_and_further_fields_is_read),
      contract_case(legacy_record_live_is_contended),
      contract_case(legacy_record_expired_is_taken_over),
      contract_case(legacy_record_within_the_tolerance_is_contended),
      contract_case(unreadable_with_ttl_is_contended),
      contract_case_alone(unreadable_with_ttl_tells_telemetry_that_it_is_corrupt),
      contract_case(unreadable_without_ttl_is_internal_and_names_the_key),
      contract_case(unreadable_once_gone_leaves_the_key_free),
      contract_case(deeply_nested_json_is_contended),
      contract_case(record_of_a_megabyte_is_contended),
      contract_case(wrong_type_at_the_lock_key_is_invalid_and_untouched),
      contract_case(key_that_looks_like_fields_does_not_mislead),
      contract_case(expired_record_by_hand_is_taken_over_with_its_old_index),
  };
  return all;
}

}  // namespace syncguard::testing
