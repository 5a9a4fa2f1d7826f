// The embedded scripts, run by a real server.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "protocol/liveness.hpp"
#include "protocol/record.hpp"
#include "protocol/storage_key.hpp"
#include "support/cmocka.hpp"
#include "support/redis_server.hpp"
#include "syncguard_scripts.hpp"

namespace {

using namespace syncguard::protocol;
using syncguard::fence;
using syncguard::lock_id;
using syncguard::testing::redis_reply;
using syncguard::testing::redis_server;

constexpr std::string_view own_id = "abcdefghijklmnopqrst-_";
constexpr std::string_view other_id = "AAAAAAAAAAAAAAAAAAAAAA";

std::unique_ptr<redis_server> server;

int start(void**) {
  server = std::make_unique<redis_server>();
  if (!server->start()) return -1;
  for (const auto& script : syncguard::scripts::all)
    if (server->command({"SCRIPT", "LOAD", std::string{script.text}}).text != script.sha1) return -1;
  return 0;
}

int stop(void**) {
  server.reset();
  return 0;
}

int flush(void**) { return server->command({"FLUSHALL"}).is_text("OK") ? 0 : -1; }

std::int64_t server_now_ms() {
  const auto time = server->command({"TIME"});
  return std::stoll(time.elements.at(0).text) * 1000 + std::stoll(time.elements.at(1).text) / 1000;
}

std::string index_key(std::string_view id) { return "syncguard:id:" + std::string{id}; }

std::string record_of(std::string_view id, std::int64_t expires_at_ms, std::string_view key = "k") {
  record_buffer out;
  return std::string{
      encode_record({*lock_id::parse(id), expires_at_ms, expires_at_ms - 1000, key, *fence::from_number(1)}, out)};
}

void store(std::string_view id, const std::string& record, const std::string& lock_key = "syncguard:k") {
  server->command({"SET", index_key(id), lock_key});
  server->command({"SET", lock_key, record});
}

redis_reply lookup(const std::vector<std::string_view>& ids) {
  std::vector<std::string> command{"EVALSHA", std::string{syncguard::scripts::lookup.sha1}, std::to_string(ids.size())};
  for (const auto id : ids) command.push_back(index_key(id));
  command.insert(command.end(), ids.begin(), ids.end());
  return server->command(command);
}

redis_reply lookup_one(std::string_view id) {
  auto answer = lookup({id});
  assert_int_equal(answer.elements.size(), 2);
  return answer.elements[1];
}

bool is_absent(const redis_reply& reply) { return reply.type == redis_reply::kind::nil; }

void server_agrees_with_every_embedded_sha1(void**) {
  assert_true(!syncguard::scripts::all.empty());
  for (const auto& script : syncguard::scripts::all)
    assert_int_equal(server->command({"SCRIPT", "EXISTS", std::string{script.sha1}}).elements.at(0).integer, 1);
}

void scripts_have_the_constants_of_the_protocol(void**) {
  const auto has = [](std::string_view text, const std::string& line) {
    return text.find(line + "\n") != std::string_view::npos;
  };
  const std::string tolerance = "local tolerance_ms = " + std::to_string(liveness_tolerance_ms);
  assert_true(has(syncguard::scripts::lookup.text, tolerance));
  assert_true(has(syncguard::scripts::mutate.text, tolerance));
  assert_true(has(syncguard::scripts::mutate.text, "local cleanup_ms = " + std::to_string(cleanup_guard_ms)));
  assert_true(has(syncguard::scripts::mutate.text, "local fence_max = " + std::to_string(fence::grant_max)));
}

void lookup_returns_time_and_the_record_as_stored(void**) {
  const std::string record = record_of(own_id, server_now_ms() + 30'000);
  store(own_id, record);
  const std::int64_t before = server_now_ms();
  const auto answer = lookup({own_id});
  const std::int64_t seen = std::stoll(answer.elements.at(0).text);
  assert_true(before <= seen && seen <= server_now_ms());
  assert_true(answer.elements.at(1).is_text(record));
}

void lookup_reads_other_writers_order_and_whitespace(void**) {
  const std::string record = R"({ "key": "k", "fence": "000000000000001", "acquiredAtMs": 1, "expiresAtMs": )" +
                             std::to_string(server_now_ms() + 30'000) + R"(, "lockId": ")" + std::string{own_id} +
                             "\" }";
  store(own_id, record);
  assert_true(lookup_one(own_id).is_text(record));
}

void lookup_reads_what_cjson_writes(void**) {
  server->command({"EVAL",
                   "redis.call('SET', KEYS[1], cjson.encode({lockId=ARGV[1], expiresAtMs=tonumber(ARGV[2]), "
                   "acquiredAtMs=1, key='k', fence='000000000000001'}))",
                   "1", "syncguard:k", std::string{own_id}, std::to_string(server_now_ms() + 30'000)});
  server->command({"SET", index_key(own_id), "syncguard:k"});
  assert_true(lookup_one(own_id).type == redis_reply::kind::text);
}

void lookup_reads_legacy_records(void**) {
  store(own_id, R"({"lockId":")" + std::string{own_id} + R"(","expiresAt":)" +
                    std::to_string(server_now_ms() + 30'000) + R"(,"createdAt":1,"key":"k"})");
  assert_true(lookup_one(own_id).type == redis_reply::kind::text);
}

void lookup_honours_the_tolerance(void**) {
  store(own_id, record_of(own_id, server_now_ms() - 100));
  assert_true(lookup_one(own_id).type == redis_reply::kind::text);
  store(own_id, record_of(own_id, server_now_ms() - 1000));
  assert_true(is_absent(lookup_one(own_id)));
}

void lookup_of_another_owners_lock_finds_nothing(void**) {
  store(own_id, record_of(other_id, server_now_ms() + 30'000));
  assert_true(is_absent(lookup_one(own_id)));
}

void lookup_is_not_misled_by_what_a_key_contains(void**) {
  const std::string key = R"(","lockId":")" + std::string{own_id} + R"(","expiresAtMs":9999999999999,)";
  store(own_id, record_of(other_id, server_now_ms() + 30'000, key));
  assert_true(is_absent(lookup_one(own_id)));
}

void lookup_of_the_absent_finds_nothing(void**) {
  assert_true(is_absent(lookup_one(own_id)));
  server->command({"SET", index_key(own_id), "syncguard:gone"});
  assert_true(is_absent(lookup_one(own_id)));
}

void lookup_of_the_unreadable_finds_nothing(void**) {
  for (const std::string bad : {"nonsense", "", "[]", "7", R"({"lockId":"abcdefghijklmnopqrst-_"})",
                                R"({"lockId":"abcdefghijklmnopqrst-_","expiresAtMs":"9999999999999"})",
                                R"({"lockId":"abcdefghijklmnopqrst-_","expiresAtMs":null})"}) {
    store(own_id, bad);
    assert_true(is_absent(lookup_one(own_id)));
  }
  store(own_id, std::string(1500, '['));
  assert_true(is_absent(lookup_one(own_id)));
}

void one_key_of_a_wrong_type_fails_alone(void**) {
  server->command({"LPUSH", index_key(other_id), "x"});
  const std::string record = record_of(own_id, server_now_ms() + 30'000);
  store(own_id, record);
  const auto answer = lookup({other_id, own_id});
  assert_true(answer.elements.at(1).type == redis_reply::kind::error);
  assert_true(answer.elements.at(2).is_text(record));
}

void lookup_writes_nothing(void**) {
  store(own_id, record_of(own_id, 1));
  lookup({own_id, other_id});
  assert_true(server->command({"GET", index_key(own_id)}).is_text("syncguard:k"));
  assert_true(server->command({"GET", "syncguard:k"}).is_text(record_of(own_id, 1)));
  assert_int_equal(server->command({"DBSIZE"}).integer, 2);
}

// Judged by the time that the answer tells: how long it took to get there does not matter.
void clean_up_deletes_what_expired_two_seconds_ago_and_nothing_else(void**) {
  for (const std::int64_t age_ms : {-60'000, 0, 1100, 1500, 2100, 60'000}) {
    const std::int64_t expires_at_ms = server_now_ms() - age_ms;
    store(own_id, record_of(own_id, expires_at_ms));
    const auto answer = server->command(
        {"EVALSHA", std::string{syncguard::scripts::mutate.sha1}, "1", "syncguard:k", "syncguard:", "0", "c", "", "0"});
    assert_int_equal(answer.text.size(), 14);
    const bool deleted = is_cleanable(expires_at_ms, std::stoll(answer.text.substr(0, 13)));
    assert_text_equal(answer.text.substr(13), deleted ? "E" : "H");
    const long long left = server->command({"EXISTS", "syncguard:k", index_key(own_id)}).integer;
    assert_int_equal(left, deleted ? 0 : 2);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test_setup(server_agrees_with_every_embedded_sha1, flush),
      cmocka_unit_test_setup(scripts_have_the_constants_of_the_protocol, flush),
      cmocka_unit_test_setup(lookup_returns_time_and_the_record_as_stored, flush),
      cmocka_unit_test_setup(lookup_reads_other_writers_order_and_whitespace, flush),
      cmocka_unit_test_setup(lookup_reads_what_cjson_writes, flush),
      cmocka_unit_test_setup(lookup_reads_legacy_records, flush),
      cmocka_unit_test_setup(lookup_honours_the_tolerance, flush),
      cmocka_unit_test_setup(lookup_of_another_owners_lock_finds_nothing, flush),
      cmocka_unit_test_setup(lookup_is_not_misled_by_what_a_key_contains, flush),
      cmocka_unit_test_setup(lookup_of_the_absent_finds_nothing, flush),
      cmocka_unit_test_setup(lookup_of_the_unreadable_finds_nothing, flush),
      cmocka_unit_test_setup(one_key_of_a_wrong_type_fails_alone, flush),
      cmocka_unit_test_setup(lookup_writes_nothing, flush),
      cmocka_unit_test_setup(clean_up_deletes_what_expired_two_seconds_ago_and_nothing_else, flush),
  };
  return cmocka_run_group_tests(tests, start, stop);
}
