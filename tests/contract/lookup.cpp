// lookup, by key and by id, plain and raw.

#include <string>

#include "contract/cases.hpp"
#include "contract/operations.hpp"
#include "contract/stored.hpp"

namespace syncguard::testing {

namespace {

void check_info(const lock_info& seen, const grant& got, std::string_view key) {
  assert_true(seen.key_hash == *hash_key(key));
  assert_true(seen.lock_id_hash == *hash_key(got.id));
  assert_true(seen.fence == got.fence);
  assert_true(seen.expires_at == got.expires_at);
  assert_int_equal(to_ms(seen.expires_at) - to_ms(seen.acquired_at), 10'000);
}

void lookup_held_key_tells_hashes_times_and_fence(void**) {
  const grant got = hold("k", 10s, rival());
  check_info(must_have(await_lookup("k")), got, "k");
}

void lookup_held_id_tells_hashes_times_and_fence(void**) {
  const grant got = hold("k", 10s, rival());
  check_info(must_have(await_lookup_by_id(got.id)), got, "k");
}

void lookup_raw_held_key_tells_key_and_id(void**) {
  const grant got = hold("k", 10s, rival());
  const auto seen = must_have(await_lookup_raw("k"));
  assert_text_equal(seen.key(), "k");
  assert_text_equal(seen.id(), got.id);
  check_info(seen.info(), got, "k");
}

void lookup_raw_held_id_tells_key_and_id(void**) {
  const grant got = hold("k", 10s, rival());
  const auto seen = must_have(await_lookup_raw_by_id(got.id));
  assert_text_equal(seen.key(), "k");
  assert_text_equal(seen.id(), got.id);
  check_info(seen.info(), got, "k");
}

void lookup_absent_answers_nothing_in_every_variant(void**) {
  assert_false(must(await_lookup("k")).has_value());
  assert_false(must(await_lookup_by_id(own_id)).has_value());
  assert_false(must(await_lookup_raw("k")).has_value());
  assert_false(must(await_lookup_raw_by_id(own_id)).has_value());
}

void lookup_expired_answers_nothing_in_every_variant(void**) {
  store_expiring(own_id, -1500ms);
  assert_false(must(await_lookup("k")).has_value());
  assert_false(must(await_lookup_by_id(own_id)).has_value());
  assert_false(must(await_lookup_raw("k")).has_value());
  assert_false(must(await_lookup_raw_by_id(own_id)).has_value());
  assert_int_equal(key_count(), 2);
}

void lookup_released_answers_nothing_in_every_variant(void**) {
  const grant got = hold("k");
  assert_true(must(await_release(got.id)));
  assert_false(must(await_lookup("k")).has_value());
  assert_false(must(await_lookup_by_id(got.id)).has_value());
}

void lookup_by_id_with_the_index_at_another_owners_record_answers_nothing(void**) {
  store(own_id, record_of(other_id, server_now_ms() + 60'000));
  assert_false(must(await_lookup_by_id(own_id)).has_value());
  assert_false(must(await_lookup_raw_by_id(own_id)).has_value());
}

void lookup_by_id_is_not_misled_by_what_a_key_contains(void**) {
  const std::string key = R"(","lockId":")" + std::string{own_id} + R"(","expiresAtMs":9999999999999,)";
  store(own_id, record_of(other_id, server_now_ms() + 60'000, key));
  assert_false(must(await_lookup_by_id(own_id)).has_value());
}

void lookup_raw_tells_the_normal_form_of_the_key(void**) {
  hold("caf\u0065\u0301");
  assert_text_equal(must_have(await_lookup_raw("caf\u0065\u0301")).key(), "caf\u00e9");
}

void lookup_raw_tells_the_longest_key_in_full(void**) {
  const std::string key(512, 'x');
  const grant got = hold(key);
  assert_text_equal(must_have(await_lookup_raw(key)).key(), key);
  assert_text_equal(must_have(await_lookup_raw_by_id(got.id)).key(), key);
}

void lookup_raw_tells_a_key_of_nothing_but_control_characters(void**) {
  const std::string key(512, '\x01');
  const grant got = hold(key);
  assert_text_equal(must_have(await_lookup_raw(key)).key(), key);
  assert_text_equal(must_have(await_lookup_raw_by_id(got.id)).key(), key);
}

void lookup_of_one_key_many_times_in_one_turn_answers_each(void**) {
  const grant got = hold("k", 10s);
  std::vector<started_lookup> all;
  for (int index = 0; index < 100; ++index) all.push_back(start_lookup("k"));
  await_all(all);
  for (const auto& one : all) check_info(must_have(one.outcome()), got, "k");
}

void lookup_of_many_keys_in_one_turn_answers_each_with_its_own(void**) {
  std::vector<started_acquire> held;
  for (int index = 0; index < 150; index += 2) held.push_back(start_acquire("k" + std::to_string(index), 60s));
  await_all(held);
  std::vector<started_raw_lookup> all;
  for (int index = 0; index < 150; ++index) all.push_back(start_lookup_raw("k" + std::to_string(index)));
  await_all(all);
  for (std::size_t index = 0; index < all.size(); ++index) {
    const auto seen = must(all[index].outcome());
    assert_int_equal(seen.has_value(), index % 2 == 0);
    if (seen) assert_text_equal(seen->key(), "k" + std::to_string(index));
    if (seen) assert_true(seen->id() == must_have(held[index / 2].outcome()).id);
  }
}

void lookup_of_many_ids_in_one_turn_answers_each_with_its_own(void**) {
  std::vector<started_acquire> held;
  for (int index = 0; index < 100; ++index) held.push_back(start_acquire("k" + std::to_string(index), 60s));
  await_all(held);
  std::vector<started_raw_lookup> all;
  for (const auto& one : held) all.push_back(start_lookup_raw_by_id(must_have(one.outcome()).id));
  await_all(all);
  for (std::size_t index = 0; index < all.size(); ++index)
    assert_text_equal(must_have(all[index].outcome()).key(), "k" + std::to_string(index));
}

void lookup_unreadable_never_invents_a_lock(void**) {
  for (const char* bad : {"nonsense", "", "[]", "7", "{}", R"({"expiresAtMs":9999999999999})"}) {
    store(own_id, bad);
    for (const auto& outcome : {await_lookup("k"), await_lookup_by_id(own_id)})
      assert_true(outcome ? !outcome->has_value() : outcome.error().code() == error_code::internal);
  }
}

void lookup_unreadable_without_ttl_is_internal_and_names_the_key(void**) {
  redis({"SET", lock_key("k"), "nonsense"});
  assert_text_equal(must_fail(await_lookup("k"), error_code::internal).key(), "k");
}

void lookup_by_id_with_a_wrong_type_at_the_index_key_is_invalid(void**) {
  redis({"LPUSH", index_key(own_id), "x"});
  must_fail(await_lookup_by_id(own_id), error_code::invalid_argument);
}

void lookup_wrong_type_is_never_found(void**) {
  redis({"LPUSH", lock_key("k"), "x"});
  const auto outcome = await_lookup("k");
  assert_true(outcome ? !outcome->has_value() : outcome.error().code() == error_code::invalid_argument);
}

}  // namespace

cases lookup_cases() {
  static const CMUnitTest all[] = {
      contract_case(lookup_held_key_tells_hashes_times_and_fence),
      contract_case(lookup_held_id_tells_hashes_times_and_fence),
      contract_case(lookup_raw_held_key_tells_key_and_id),
      contract_case(lookup_raw_held_id_tells_key_and_id),
      contract_case(lookup_absent_answers_nothing_in_every_variant),
      contract_case(lookup_expired_answers_nothing_in_every_variant),
      contract_case(lookup_released_answers_nothing_in_every_variant),
      contract_case(lookup_by_id_with_the_index_at_another_owners_record_answers_nothing),
      contract_case(lookup_by_id_is_not_misled_by_what_a_key_contains),
      contract_case(lookup_raw_tells_the_normal_form_of_the_key),
      contract_case(lookup_raw_tells_the_longest_key_in_full),
      contract_case(lookup_raw_tells_a_key_of_nothing_but_control_characters),
      contract_case(lookup_of_one_key_many_times_in_one_turn_answers_each),
      contract_case(lookup_of_many_keys_in_one_turn_answers_each_with_its_own),
      contract_case(lookup_of_many_ids_in_one_turn_answers_each_with_its_own),
      contract_case(lookup_unreadable_never_invents_a_lock),
      contract_case(lookup_unreadable_without_ttl_is_internal_and_names_the_key),
      contract_case(lookup_by_id_with_a_wrong_type_at_the_index_key_is_invalid),
      contract_case(lookup_wrong_type_is_never_found),
  };
  return all;
}

}  // namespace syncguard::testing
