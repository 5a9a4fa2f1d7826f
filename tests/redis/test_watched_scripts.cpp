// Batches of a client that wants to be told when its locks change: what they answer, and what is told afterwards.

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "protocol/record.hpp"
#include "support/cmocka.hpp"
#include "support/redis_server.hpp"
#include "syncguard_scripts.hpp"

namespace {

using namespace std::chrono_literals;
using namespace syncguard::protocol;
using syncguard::fence;
using syncguard::lock_id;
using syncguard::testing::redis_reply;
using syncguard::testing::redis_server;
using syncguard::testing::watching_connection;

using texts = std::vector<std::string>;

const std::string own_id = "abcdefghijklmnopqrst-_";
const std::string other_id = "AAAAAAAAAAAAAAAAAAAAAA";
const std::string lock_key = "syncguard:k";
const std::string second_key = "syncguard:l";
const std::string no_fence(fence::digits, '0');

std::unique_ptr<redis_server> server;
std::unique_ptr<watching_connection> watcher;

int start(void**) {
  server = std::make_unique<redis_server>();
  if (!server->start()) return -1;
  const std::string text{syncguard::scripts::mutate.text};
  return server->command({"SCRIPT", "LOAD", text}).is_text(syncguard::scripts::mutate.sha1) ? 0 : -1;
}

int stop(void**) {
  server.reset();
  return 0;
}

int set_up(void**) {
  if (!server->command({"FLUSHALL"}).is_text("OK")) return -1;
  watcher = std::make_unique<watching_connection>(*server);
  return 0;
}

int tear_down(void**) {
  watcher.reset();
  return 0;
}

std::string index_key(const std::string& id) { return "syncguard:id:" + id; }

std::int64_t server_now_ms() {
  const auto time = server->command({"TIME"});
  return std::stoll(time.elements.at(0).text) * 1000 + std::stoll(time.elements.at(1).text) / 1000;
}

// What a letter of lua/mutate.lua brings: i a lock id, t a time to live, k a user key.
std::string arguments_of(const std::string& letter) {
  const std::map<std::string, std::string> known{{"a", "it"}, {"A", "itk"}, {"R", "i"}, {"x", "t"}, {"X", "ti"}};
  const auto found = known.find(letter);
  return found != known.end() ? found->second : "";
}

// `operations` are letters, each with its arguments behind it; `mark` is a `w` where the batch is watched.
texts batch_of(const std::string& mark, const texts& keys, const texts& operations) {
  std::string letters;
  std::string ids;
  std::string ttl_names;
  texts ttls;
  texts user_keys;
  for (std::size_t at = 0; at < operations.size();) {
    const std::string& letter = operations[at++];
    letters += letter;
    ttl_names += '0';
    for (const char kind : arguments_of(letter)) {
      const std::string& argument = operations[at++];
      if (kind == 'i') ids += argument;
      if (kind == 'k') user_keys.push_back(argument);
      if (kind != 't') continue;
      ttls.push_back(argument);
      ttl_names.back() = static_cast<char>('0' + ttls.size());
    }
  }
  texts command{"EVALSHA", std::string{syncguard::scripts::mutate.sha1}, std::to_string(keys.size())};
  command.insert(command.end(), keys.begin(), keys.end());
  command.insert(command.end(), {"syncguard:", std::to_string(ttls.size()) + mark, letters, ids, ttl_names});
  command.insert(command.end(), ttls.begin(), ttls.end());
  command.insert(command.end(), user_keys.begin(), user_keys.end());
  return command;
}

// The answers of a batch, without the time in front of them.
texts answers_in(const redis_reply& reply) {
  texts answers;
  if (reply.type != redis_reply::kind::text) print_error("%s\n", reply.text.c_str());
  const std::map<char, std::size_t> bytes{{'A', 29}, {'l', 29}, {'L', 14}, {'X', 14}};
  for (std::size_t at = 13; at < reply.text.size();) {
    const auto found = bytes.find(reply.text[at]);
    std::size_t length = found != bytes.end() ? found->second : 1;
    if (reply.text[at] == '!') length = reply.text.find('\n', at) + 1 - at;
    answers.push_back(reply.text.substr(at, length));
    at += length;
  }
  return answers;
}

texts run_caching(const std::string& mark, const texts& keys, const texts& operations) {
  watcher->command({"CLIENT", "CACHING", "YES"});
  return answers_in(watcher->command(batch_of(mark, keys, operations)));
}

std::string run_one(const texts& keys, const texts& operation) { return run_caching("w", keys, operation).at(0); }

std::string acquire(const std::string& ttl_ms = "60000", const std::string& id = own_id) {
  return run_one({lock_key}, {"a", id, ttl_ms});
}

// By a client that watches nothing.
texts run_elsewhere(const texts& keys, const texts& operation) {
  return answers_in(server->command(batch_of("", keys, operation)));
}

void hold_elsewhere(const std::string& ttl_ms = "60000") {
  assert_int_equal(run_elsewhere({lock_key}, {"a", other_id, ttl_ms}).at(0).front(), 'A');
}

void remove(const std::string& key) { assert_int_equal(server->command({"DEL", key}).integer, 1); }

bool is_told(const std::string& key) {
  const texts told = watcher->take_told();
  return std::find(told.begin(), told.end(), key) != told.end();
}

bool is_told_in_time(const std::string& key) {
  const auto deadline = std::chrono::steady_clock::now() + 30s;
  while (!is_told(key)) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(10ms);
  }
  return true;
}

// What a watched acquire says of a record that somebody else has stored.
std::string fence_told_of(const std::string& record) {
  server->command({"SET", lock_key, record, "PX", "60000"});
  const std::string line = acquire();
  assert_int_equal(line.front(), 'l');
  assert_true(line.size() > 1 + fence::digits);
  return line.substr(1, fence::digits);
}

std::string record_with(const std::string& rest) {
  return R"({"lockId":")" + other_id + R"(","expiresAtMs":)" + std::to_string(server_now_ms() + 30'000) + rest + "}";
}

void contended_tells_the_holders_fence_and_expiry(void**) {
  hold_elsewhere();
  const std::string record = server->command({"GET", lock_key}).text;
  const std::string expiry = record.substr(record.find("expiresAtMs") + 13, 13);
  assert_text_equal(acquire(), "l000000000000001" + expiry);
  assert_text_equal(run_caching("", {lock_key}, {"a", own_id, "60000"}).at(0), "L" + expiry);
}

void contended_inside_the_batch_tells_the_fence_given_there(void**) {
  const texts answers = run_caching("w", {lock_key, lock_key}, {"a", own_id, "60000", "a", other_id, "60000"});
  assert_text_equal(answers.at(0).substr(0, 16), "A000000000000001");
  assert_text_equal(answers.at(1), "l" + answers.at(0).substr(1));
}

void fences_of_other_writers_are_found(void**) {
  const std::string fence_text = "000000000000042";
  assert_text_equal(fence_told_of(record_with(R"(,"acquiredAtMs":1,"key":"k","fence":"000000000000042")")), fence_text);
  assert_text_equal(fence_told_of(record_with(R"(,"fence":"000000000000042","key":"k","acquiredAtMs":1)")), fence_text);
  assert_text_equal(fence_told_of(record_with(R"(, "fence" : "000000000000042" )")), fence_text);
  assert_text_equal(fence_told_of(record_with(R"(,"fence":"000000000000042","more":{"fence":"000000000000007"})")),
                    fence_text);
}

void odd_and_missing_fences_are_zeros(void**) {
  for (const char* rest : {"", R"(,"fence":"42")", R"(,"fence":42)", R"(,"fence":"0000000000000042")", R"(,"fence":"")",
                           R"(,"fence":"00000000000004x")", R"(,"fence":null)", R"(,"fence":{})",
                           R"(,"more":{"fence":"000000000000042"})", R"(,"key":"\"fence\":\"000000000000042\"")"})
    assert_text_equal(fence_told_of(record_with(rest)), no_fence);
  const std::string legacy = R"({"lockId":")" + other_id + R"(","expiresAt":)" +
                             std::to_string(server_now_ms() + 30'000) + R"(,"createdAt":1,"key":"k"})";
  assert_text_equal(fence_told_of(legacy), no_fence);
}

void other_answers_are_those_of_any_batch(void**) {
  assert_text_equal(acquire().substr(0, 16), "A000000000000001");
  const texts keys{lock_key, index_key(own_id), "syncguard:fence:" + lock_key};
  assert_text_equal(run_one(keys, {"A", own_id, "60000", "k"}).substr(0, 16), "A000000000000001");
  assert_int_equal(run_one({index_key(own_id)}, {"x", "60000"}).front(), 'X');
  assert_text_equal(run_one({index_key(other_id)}, {"x", "60000"}), "N");
  assert_text_equal(run_one({lock_key}, {"i"}), "H");
  assert_text_equal(run_one({index_key(own_id)}, {"r"}), "R");
  assert_text_equal(run_one({lock_key}, {"i"}), "F");
  server->command({"SET", lock_key, "nonsense", "PX", "60000"});
  assert_text_equal(acquire(), "C");
  assert_true(run_caching("w", {}, {}).empty());
}

void contended_lock_is_told_of_when_it_is_released(void**) {
  hold_elsewhere();
  acquire();
  assert_false(is_told(lock_key));
  assert_text_equal(run_elsewhere({index_key(other_id)}, {"r"}).at(0), "R");
  assert_true(is_told(lock_key));
}

void contended_lock_is_told_of_when_it_expires(void**) {
  hold_elsewhere("100");
  acquire();
  assert_true(is_told_in_time(lock_key));
}

void acquired_lock_is_told_of_when_it_is_deleted(void**) {
  acquire();
  assert_false(is_told(lock_key));
  remove(lock_key);
  assert_true(is_told(lock_key));
}

void lock_of_all_keys_named_is_told_of_when_it_is_deleted(void**) {
  const texts keys{lock_key, index_key(own_id), "syncguard:fence:" + lock_key};
  assert_int_equal(run_one(keys, {"A", own_id, "60000", "k"}).front(), 'A');
  remove(lock_key);
  assert_true(is_told(lock_key));
}

void acquired_lock_is_told_of_when_it_expires(void**) {
  acquire("100");
  assert_true(is_told_in_time(lock_key));
}

void acquired_lock_is_told_of_when_somebody_extends_it(void**) {
  acquire();
  assert_int_equal(run_elsewhere({index_key(own_id)}, {"x", "60000"}).at(0).front(), 'X');
  assert_true(is_told(lock_key));
}

void extended_lock_is_told_of_when_it_is_deleted(void**) {
  acquire();
  for (const texts& operation : {texts{"x", "60000"}, texts{"X", "60000", own_id}}) {
    assert_int_equal(run_one({index_key(own_id), lock_key}, operation).front(), 'X');
    assert_false(is_told(lock_key));
  }
  remove(lock_key);
  assert_true(is_told(lock_key));
}

void extended_lock_is_told_of_when_it_expires(void**) {
  acquire();
  assert_int_equal(run_one({index_key(own_id), lock_key}, {"x", "100"}).front(), 'X');
  assert_true(is_told_in_time(lock_key));
}

void every_lock_of_a_batch_is_told_of(void**) {
  acquire();
  const texts answers = run_caching("w", {index_key(own_id), second_key, index_key(other_id), lock_key, second_key},
                                    {"x", "60000", "a", other_id, "60000", "x", "50000"});
  assert_int_equal(answers.at(0).front(), 'X');
  assert_int_equal(answers.at(1).front(), 'A');
  assert_int_equal(answers.at(2).front(), 'X');
  remove(lock_key);
  assert_true(is_told(lock_key));
  remove(second_key);
  assert_true(is_told(second_key));
}

void lock_taken_and_released_in_one_batch_leaves_nothing(void**) {
  const texts answers = run_caching("w", {lock_key, index_key(own_id)}, {"a", own_id, "60000", "r"});
  assert_int_equal(answers.at(0).front(), 'A');
  assert_text_equal(answers.at(1), "R");
  assert_int_equal(server->command({"EXISTS", lock_key}).integer, 0);
}

void what_is_done_by_oneself_is_not_told(void**) {
  acquire();
  run_one({index_key(own_id), lock_key}, {"x", "60000"});
  run_one({index_key(own_id)}, {"r"});
  acquire();
  assert_true(watcher->take_told().empty());
}

// Redis forgets with each write who has read a key.
void unwatched_batch_is_not_told_of_what_it_has_written(void**) {
  assert_int_equal(run_caching("", {lock_key}, {"a", own_id, "60000"}).at(0).front(), 'A');
  remove(lock_key);
  assert_false(is_told(lock_key));
}

void watched_batch_without_the_wish_before_it_is_told_nothing(void**) {
  assert_int_equal(answers_in(watcher->command(batch_of("w", {lock_key}, {"a", own_id, "60000"}))).at(0).front(), 'A');
  remove(lock_key);
  assert_true(watcher->take_told().empty());
}

}  // namespace

int main() {
#define watched_case(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const CMUnitTest tests[] = {
      watched_case(contended_tells_the_holders_fence_and_expiry),
      watched_case(contended_inside_the_batch_tells_the_fence_given_there),
      watched_case(fences_of_other_writers_are_found),
      watched_case(odd_and_missing_fences_are_zeros),
      watched_case(other_answers_are_those_of_any_batch),
      watched_case(contended_lock_is_told_of_when_it_is_released),
      watched_case(contended_lock_is_told_of_when_it_expires),
      watched_case(acquired_lock_is_told_of_when_it_is_deleted),
      watched_case(lock_of_all_keys_named_is_told_of_when_it_is_deleted),
      watched_case(acquired_lock_is_told_of_when_it_expires),
      watched_case(acquired_lock_is_told_of_when_somebody_extends_it),
      watched_case(extended_lock_is_told_of_when_it_is_deleted),
      watched_case(extended_lock_is_told_of_when_it_expires),
      watched_case(every_lock_of_a_batch_is_told_of),
      watched_case(lock_taken_and_released_in_one_batch_leaves_nothing),
      watched_case(what_is_done_by_oneself_is_not_told),
      watched_case(unwatched_batch_is_not_told_of_what_it_has_written),
      watched_case(watched_batch_without_the_wish_before_it_is_told_nothing),
  };
  return cmocka_run_group_tests(tests, start, stop);
}
