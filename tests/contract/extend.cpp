// extend: replaces the time to live of a lock that is held; never brings one back.

#include <string>

#include "contract/cases.hpp"
#include "contract/operations.hpp"
#include "contract/stored.hpp"

namespace syncguard::testing {

namespace {

void extend_replaces_the_expiry_and_does_not_add(void**) {
  const grant got = hold("k", 60s);
  const std::int64_t before = server_now_ms();
  const auto expiry = to_ms(must_have(await_extend(got.id, 5s)));
  assert_true(before + 5000 <= expiry && expiry <= server_now_ms() + 5000);
  assert_true(pttl(lock_key("k")) <= 5000);
  assert_true(pttl(index_key(got.id)) <= 5000);
}

void extend_to_a_longer_time_moves_both_keys(void**) {
  const grant got = hold("k", 5s);
  must_have(await_extend(got.id, 60s));
  assert_true(pttl(lock_key("k")) > 50'000);
  assert_true(pttl(index_key(got.id)) > 50'000);
}

void extend_answers_the_expiry_that_the_record_holds(void**) {
  const grant got = hold("k");
  const auto expiry = must_have(await_extend(got.id, 7777ms));
  assert_true(must_have(await_lookup("k")).expires_at == expiry);
}

void extend_keeps_everything_but_the_expiry(void**) {
  const grant got = hold("k", 10s);
  const auto before = must_have(await_lookup_raw("k"));
  must_have(await_extend(got.id, 60s));
  const auto after = must_have(await_lookup_raw("k"));
  assert_true(after.id() == before.id());
  assert_text_equal(after.key(), before.key());
  assert_true(after.info().fence == before.info().fence);
  assert_true(after.info().acquired_at == before.info().acquired_at);
  assert_true(after.info().expires_at > before.info().expires_at);
  assert_text_equal(text_at(fence_key("k")), "1");
}

void extend_unknown_id_answers_nothing(void**) {
  hold("k");
  assert_false(must(await_extend(own_id, 10s)).has_value());
}

void extend_after_release_answers_nothing_and_stores_nothing(void**) {
  const grant got = hold("k");
  assert_true(must(await_release(got.id)));
  assert_false(must(await_extend(got.id, 10s)).has_value());
  assert_int_equal(key_count(), 1);
}

void extend_of_a_seen_expired_lock_answers_nothing_and_deletes_both_keys(void**) {
  store_expiring(own_id, -1500ms);
  assert_false(must(await_extend(own_id, 60s)).has_value());
  assert_int_equal(key_count(), 0);
}

void extend_with_the_index_at_another_owners_record_leaves_it(void**) {
  const std::string record = record_of(other_id, server_now_ms() + 60'000);
  store(own_id, record);
  assert_false(must(await_extend(own_id, 500s)).has_value());
  assert_text_equal(text_at(lock_key("k")), record);
  assert_true(pttl(lock_key("k")) <= 60'000);
}

void extend_by_another_client_that_knows_the_id_is_done(void**) {
  const grant got = hold("k");
  must_have(await_extend(got.id, 10s, rival()));
}

void extend_with_a_wrong_type_at_the_lock_key_is_invalid(void**) {
  redis({"LPUSH", lock_key("k"), "x"});
  redis({"SET", index_key(own_id), lock_key("k")});
  must_fail(await_extend(own_id, 10s), error_code::invalid_argument);
}

void extend_of_a_record_that_cjson_wrote_is_done(void**) {
  redis({"EVAL",
         "redis.call('SET', KEYS[1], cjson.encode({lockId=ARGV[1], expiresAtMs=tonumber(ARGV[2]), acquiredAtMs=1, "
         "key='k', fence='000000000000007'}), 'PX', 60000) redis.call('SET', KEYS[2], KEYS[1], 'PX', 60000)",
         "2", lock_key("k"), index_key(own_id), std::string{own_id}, std::to_string(server_now_ms() + 5000)});
  const auto expiry = must_have(await_extend(own_id, 30s));
  const auto seen = must_have(await_lookup("k"));
  assert_true(seen.expires_at == expiry);
  assert_int_equal(seen.fence.number(), 7);
  assert_int_equal(seen.acquired_at.time_since_epoch().count(), 1);
}

void extend_keeps_a_key_that_needs_escapes(void**) {
  const std::string key = "a\"b\\c\n%d%s{\"lockId\":\"x\",\"expiresAtMs\":1,";
  const grant got = hold(key);
  const auto expiry = must_have(await_extend(got.id, 30s));
  const auto seen = must_have(await_lookup_raw(key));
  assert_text_equal(seen.key(), key);
  assert_true(seen.info().expires_at == expiry);
}

void extend_again_and_again_keeps_the_lock(void**) {
  const grant got = hold("k", 2s);
  for (int round = 0; round < 10; ++round) {
    run_for(10ms);
    must_have(await_extend(got.id, 2s));
  }
  assert_true(must(await_owns(got.id)));
}

}  // namespace

cases extend_cases() {
  static const CMUnitTest all[] = {
      contract_case(extend_replaces_the_expiry_and_does_not_add),
      contract_case(extend_to_a_longer_time_moves_both_keys),
      contract_case(extend_answers_the_expiry_that_the_record_holds),
      contract_case(extend_keeps_everything_but_the_expiry),
      contract_case(extend_unknown_id_answers_nothing),
      contract_case(extend_after_release_answers_nothing_and_stores_nothing),
      contract_case(extend_of_a_seen_expired_lock_answers_nothing_and_deletes_both_keys),
      contract_case(extend_with_the_index_at_another_owners_record_leaves_it),
      contract_case(extend_by_another_client_that_knows_the_id_is_done),
      contract_case(extend_with_a_wrong_type_at_the_lock_key_is_invalid),
      contract_case(extend_of_a_record_that_cjson_wrote_is_done),
      contract_case(extend_keeps_a_key_that_needs_escapes),
      contract_case(extend_again_and_again_keeps_the_lock),
  };
  return all;
}

}  // namespace syncguard::testing
