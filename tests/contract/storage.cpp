// What is written to Redis: which keys, which values, for how long.

#include <string>

#include "contract/cases.hpp"
#include "contract/operations.hpp"
#include "contract/stored.hpp"
#include "protocol/record.hpp"
#include "protocol/storage_key.hpp"

namespace syncguard::testing {

namespace {

// What cjson, the other writers' parser, makes of the record: the number of fields, and a field's type and value.
long long field_count(const std::string& key) {
  return redis({"EVAL",
                "local n = 0 for _ in pairs(cjson.decode(redis.call('GET', KEYS[1]))) do n = n + 1 end return n", "1",
                key})
      .integer;
}

std::string field(const std::string& key, const std::string& name) {
  return redis({"EVAL",
                "local v = cjson.decode(redis.call('GET', KEYS[1]))[ARGV[1]] "
                "return type(v) .. ' ' .. (type(v) == 'number' and string.format('%.0f', v) or tostring(v))",
                "1", key, name})
      .text;
}

void grant_stores_exactly_three_keys(void**) {
  const grant got = hold("k");
  assert_true(exists("syncguard:k"));
  assert_true(exists("syncguard:id:" + std::string{got.id.view()}));
  assert_true(exists("syncguard:fence:syncguard:k"));
  assert_int_equal(key_count(), 3);
}

void index_key_holds_the_full_lock_key(void**) {
  const grant got = hold("some:key");
  assert_text_equal(text_at(index_key(got.id)), "syncguard:some:key");
}

// Redis reads its clock for each command of a script, so the same PX can end a tick apart.
void lives_as_long_as_its_index(const grant& got) {
  const auto both = redis({"EVAL", "return {redis.call('PEXPIRETIME', KEYS[1]), redis.call('PEXPIRETIME', KEYS[2])}",
                           "2", lock_key("k"), index_key(got.id)});
  const long long record_end_ms = both.elements.at(0).integer;
  const long long index_end_ms = both.elements.at(1).integer;
  assert_true(record_end_ms > 0 && index_end_ms > 0);
  assert_in_range(record_end_ms - index_end_ms + 1000, 0, 2000);
}

void record_and_index_live_equally_long(void**) { lives_as_long_as_its_index(hold("k", 10s)); }

void record_and_index_live_equally_long_after_an_extension(void**) {
  const grant got = hold("k", 10s);
  must_have(await_extend(got.id, 33s));
  lives_as_long_as_its_index(got);
}

void record_has_exactly_five_fields_of_the_right_types(void**) {
  const grant got = hold("k", 10s);
  const std::string key = lock_key("k");
  assert_int_equal(field_count(key), 5);
  assert_text_equal(field(key, "lockId"), "string " + std::string{got.id.view()});
  assert_text_equal(field(key, "expiresAtMs"), "number " + std::to_string(to_ms(got.expires_at)));
  assert_text_equal(field(key, "acquiredAtMs"), "number " + std::to_string(to_ms(got.expires_at) - 10'000));
  assert_text_equal(field(key, "key"), "string k");
  assert_text_equal(field(key, "fence"), "string 000000000000001");
}

void record_is_what_our_own_encoder_writes(void**) {
  const grant got = hold("k", 10s);
  protocol::record_buffer out;
  const std::int64_t expires = to_ms(got.expires_at);
  assert_text_equal(text_at(lock_key("k")),
                    protocol::encode_record({got.id, expires, expires - 10'000, "k", got.fence}, out));
}

void record_after_an_extension_has_exactly_five_fields(void**) {
  const grant got = hold("k", 10s);
  const auto expiry = must_have(await_extend(got.id, 20s));
  const std::string key = lock_key("k");
  assert_int_equal(field_count(key), 5);
  assert_text_equal(field(key, "expiresAtMs"), "number " + std::to_string(to_ms(expiry)));
  assert_text_equal(field(key, "acquiredAtMs"), "number " + std::to_string(to_ms(got.expires_at) - 10'000));
}

void key_in_the_record_is_escaped_as_json(void**) {
  for (const std::string key : {"quote\"", "back\\slash", "line\nfeed", "tab\t", "bell\x07", "per%cent%%d",
                                "\u00fc\u20ac\U0001f512", "del\x7f", "slash/"}) {
    hold(key);
    assert_text_equal(field(lock_key(key), "key"), "string " + key);
    assert_text_equal(must_have(await_lookup_raw(key)).key(), key);
  }
}

void key_in_the_record_is_the_normal_form(void**) {
  hold("e\u0301");
  assert_text_equal(field(lock_key("\u00e9"), "key"), "string \u00e9");
}

void keys_that_are_too_long_are_hashed(void**) {
  client_options options = base_options();
  options.prefix = std::string(700, 'p');
  make_ready_subject(options);
  const std::string key(400, 'k');
  const grant got = hold(key);

  const auto space = *protocol::key_space::make(options.prefix);
  protocol::storage_key_buffer lock_buffer;
  protocol::storage_key_buffer fence_buffer;
  const std::string lock{space.lock_key(key, lock_buffer)};
  assert_int_equal(lock.size(), 700 + 1 + 22);
  assert_true(exists(lock));
  assert_true(exists(std::string{space.fence_key(lock, fence_buffer)}));
  assert_text_equal(text_at(options.prefix + ":id:" + std::string{got.id.view()}), lock);
  assert_text_equal(field(lock, "key"), "string " + key);

  assert_false(must(await_acquire(key, 60s)).has_value());
  assert_text_equal(must_have(await_lookup_raw(key)).key(), key);
  must_have(await_extend(got.id, 30s));
  assert_true(must(await_release(got.id)));
  assert_int_equal(key_count(), 1);
}

void longest_prefix_serves_every_operation(void**) {
  client_options options = base_options();
  options.prefix = std::string(951, 'p');
  make_ready_subject(std::move(options));
  const grant got = hold("k");
  assert_true(must(await_owns(got.id)));
  must_have(await_extend(got.id, 30s));
  assert_true(must(await_is_locked("k")));
  assert_true(must(await_release(got.id)));
  assert_int_equal(hold("k").fence.number(), 2);
}

void taking_over_deletes_the_old_locks_index_only(void**) {
  store_expiring(own_id, -1500ms);
  redis({"SET", index_key(other_id), "syncguard:elsewhere"});
  const grant got = hold("k");
  assert_false(exists(index_key(own_id)));
  assert_true(exists(index_key(other_id)));
  assert_text_equal(text_at(index_key(got.id)), lock_key("k"));
}

void record_ttl_is_the_ttl_asked_for(void**) {
  hold("k", 10s);
  const long long left = pttl(lock_key("k"));
  assert_true(left > 0 && left <= 10'000);
}

}  // namespace

cases storage_cases() {
  static const CMUnitTest all[] = {
      contract_case(grant_stores_exactly_three_keys),
      contract_case(index_key_holds_the_full_lock_key),
      contract_case(record_and_index_live_equally_long),
      contract_case(record_and_index_live_equally_long_after_an_extension),
      contract_case(record_has_exactly_five_fields_of_the_right_types),
      contract_case(record_is_what_our_own_encoder_writes),
      contract_case(record_after_an_extension_has_exactly_five_fields),
      contract_case(key_in_the_record_is_escaped_as_json),
      contract_case(key_in_the_record_is_the_normal_form),
      contract_case_alone(keys_that_are_too_long_are_hashed),
      contract_case_alone(longest_prefix_serves_every_operation),
      contract_case(taking_over_deletes_the_old_locks_index_only),
      contract_case(record_ttl_is_the_ttl_asked_for),
  };
  return all;
}

}  // namespace syncguard::testing
