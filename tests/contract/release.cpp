// release: by whoever knows the id, of a lock that is still held under it.

#include <string>

#include "contract/cases.hpp"
#include "contract/operations.hpp"
#include "contract/stored.hpp"

namespace syncguard::testing {

namespace {

void release_held_lock_deletes_record_and_index(void**) {
  const grant got = hold("k");
  assert_true(must(await_release(got.id)));
  assert_false(exists(lock_key("k")));
  assert_false(exists(index_key(got.id)));
  assert_int_equal(key_count(), 1);  // the fence counter stays
}

void release_twice_is_done_once(void**) {
  const grant got = hold("k");
  assert_true(must(await_release(got.id)));
  assert_false(must(await_release(got.id)));
}

void release_twice_in_one_turn_is_done_once(void**) {
  const grant got = hold("k");
  const auto first = start_release(got.id);
  const auto second = start_release(got.id);
  assert_true(must(await(first)));
  assert_false(must(await(second)));
}

void release_unknown_id_is_not_released(void**) {
  hold("k");
  assert_false(must(await_release(own_id)));
  assert_true(exists(lock_key("k")));
}

void release_by_another_client_that_knows_the_id_is_done(void**) {
  const grant got = hold("k");
  assert_true(must(await_release(got.id, rival())));
}

void release_after_redis_expired_it_is_not_released(void**) {
  const grant got = hold("k", 20ms);
  assert_true(run_until([] { return !exists(lock_key("k")); }));
  assert_false(must(await_release(got.id)));
}

void release_of_a_seen_expired_lock_is_not_released_and_deletes_both_keys(void**) {
  store_expiring(own_id, -1500ms);
  assert_false(must(await_release(own_id)));
  assert_int_equal(key_count(), 0);
}

void release_with_the_index_at_another_owners_record_leaves_it(void**) {
  const std::string record = record_of(other_id, server_now_ms() + 60'000);
  store(own_id, record);
  assert_false(must(await_release(own_id)));
  assert_text_equal(text_at(lock_key("k")), record);
  assert_true(pttl(lock_key("k")) > 0);
}

void release_with_the_index_at_an_expired_record_of_another_owner_leaves_it(void**) {
  const std::string record = record_of(other_id, server_now_ms() - 5000);
  store(own_id, record);
  assert_false(must(await_release(own_id)));
  assert_text_equal(text_at(lock_key("k")), record);
}

void release_with_the_index_at_nothing_is_not_released(void**) {
  redis({"SET", index_key(own_id), lock_key("gone"), "PX", "60000"});
  assert_false(must(await_release(own_id)));
}

void release_with_the_old_id_leaves_the_next_holders_lock(void**) {
  const grant first = hold("k", 20ms);
  assert_true(run_until([] { return !exists(lock_key("k")); }));
  const grant second = hold("k", 60s, rival());
  assert_false(must(await_release(first.id)));
  assert_true(must(await_owns(second.id)));
}

void release_with_a_wrong_type_at_the_index_key_is_invalid(void**) {
  redis({"LPUSH", index_key(own_id), "x"});
  const error failure = must_fail(await_release(own_id), error_code::invalid_argument);
  assert_text_equal(failure.lock_id(), own_id);
}

void release_with_a_wrong_type_at_the_lock_key_is_invalid(void**) {
  redis({"LPUSH", lock_key("k"), "x"});
  redis({"SET", index_key(own_id), lock_key("k")});
  must_fail(await_release(own_id), error_code::invalid_argument);
  assert_int_equal(redis({"LLEN", lock_key("k")}).integer, 1);
}

void release_of_a_legacy_record_is_done(void**) {
  store(own_id, R"({"lockId":")" + std::string{own_id} + R"(","expiresAt":)" +
                    std::to_string(server_now_ms() + 60'000) + R"(,"createdAt":1,"key":"k"})");
  assert_true(must(await_release(own_id)));
  assert_int_equal(key_count(), 0);
}

void release_of_an_unreadable_record_leaves_it(void**) {
  store(own_id, "nonsense");
  const auto outcome = await_release(own_id);
  assert_true(!outcome || !*outcome);
  assert_text_equal(text_at(lock_key("k")), "nonsense");
}

}  // namespace

cases release_cases() {
  static const CMUnitTest all[] = {
      contract_case(release_held_lock_deletes_record_and_index),
      contract_case(release_twice_is_done_once),
      contract_case(release_twice_in_one_turn_is_done_once),
      contract_case(release_unknown_id_is_not_released),
      contract_case(release_by_another_client_that_knows_the_id_is_done),
      contract_case(release_after_redis_expired_it_is_not_released),
      contract_case(release_of_a_seen_expired_lock_is_not_released_and_deletes_both_keys),
      contract_case(release_with_the_index_at_another_owners_record_leaves_it),
      contract_case(release_with_the_index_at_an_expired_record_of_another_owner_leaves_it),
      contract_case(release_with_the_index_at_nothing_is_not_released),
      contract_case(release_with_the_old_id_leaves_the_next_holders_lock),
      contract_case(release_with_a_wrong_type_at_the_index_key_is_invalid),
      contract_case(release_with_a_wrong_type_at_the_lock_key_is_invalid),
      contract_case(release_of_a_legacy_record_is_done),
      contract_case(release_of_an_unreadable_record_leaves_it),
  };
  return all;
}

}  // namespace syncguard::testing
