// A server that says what no server should, when a connection introduces itself and in answer to each operation. Built
// for each loop.
//
// Each time: the operation ends with a clear error, the memory of the process stays bounded, and as soon as the server
// talks sense the client works again. What is said to the connection that is told of changes: test_watching.cpp.

#include <malloc.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "contract/operations.hpp"
#include "contract/stored.hpp"
#include "support/fake_server.hpp"

namespace syncguard::testing {

namespace {

// What one connection may hold of a reply that makes no sense, with room for the rest of the process.
constexpr std::size_t memory_max_bytes = std::size_t{64} << 20;

std::unique_ptr<fake_server> fake;

std::string bulk(const std::string& text) { return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n"; }

std::string repeated(const std::string& text, std::size_t times) {
  std::string all;
  all.reserve(text.size() * times);
  for (std::size_t time = 0; time < times; ++time) all += text;
  return all;
}

// What a healthy server would say; time and records are made up.
std::string sense(const fake_server::command& asked) {
  if (asked[0] == "ROLE") return "*1\r\n$6\r\nmaster\r\n";
  if (asked[0] == "TIME") return "*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n";
  if (asked[0] == "CONFIG") return "*2\r\n$16\r\nmaxmemory-policy\r\n$10\r\nnoeviction\r\n";
  if (asked[0] == "MGET")
    return "*" + std::to_string(asked.size() - 1) + "\r\n" + repeated("$-1\r\n", asked.size() - 1);
  if (asked[0] != "EVALSHA") return "+OK\r\n";
  if (asked.size() == 5) return "*2\r\n$13\r\n1700000000000\r\n$-1\r\n";  // lookup by id
  // Behind the keys: the prefix, the times to live, then a letter for each operation.
  const std::string& letters = asked.at(3 + std::stoul(asked.at(2)) + 2);
  std::string answer = "1700000000000";
  for (const char letter : letters)
    answer += letter == 't' ? "T" : letter == 'a' || letter == 'A' ? "L1700000060000" : "N";
  return bulk(answer);
}

// Something that is said instead of an answer.
struct nonsense {
  const char* name;
  std::string said;
};

const std::vector<nonsense>& all_nonsense() {
  static const std::vector<nonsense> all{
      {"a bulk of 512 MB that never comes", "$536870912\r\n"},
      {"a bulk of 2^62 bytes", "$4611686018427387904\r\n"},
      {"a bulk of negative length", "$-77\r\n"},
      {"an array of 2^31 elements", "*2147483648\r\n"},
      {"an array of 4 million elements", "*4000000\r\n"},
      {"an array of negative length", "*-5\r\n"},
      {"arrays a thousand levels deep", repeated("*1\r\n", 1000) + ":1\r\n"},
      {"eight levels of arrays", repeated("*1\r\n", 8) + ":1\r\n"},
      {"arrays that multiply", repeated("*4096\r\n", 6)},
      {"an integer", ":42\r\n"},
      {"an integer of 30 digits", ":123456789012345678901234567890\r\n"},
      {"a status", "+PONG\r\n"},
      {"a nil", "$-1\r\n"},
      {"an empty text", "$0\r\n\r\n"},
      {"an empty array", "*0\r\n"},
      {"an array of integers", "*3\r\n:1\r\n:2\r\n:3\r\n"},
      {"an error without a code", "-\r\n"},
      {"an error of 100 000 bytes", "-ERR " + std::string(100'000, 'x') + "\r\n"},
      {"a text that is no answer", bulk("what a nice day")},
      {"an answer that is cut short", bulk("1700000000000A0000")},
      {"an answer of letters", bulk("1700000000000" + std::string(1000, 'A'))},
      {"types that nobody asked for", "%1\r\n+a\r\n~1\r\n#t\r\n"},
      {"garbage", std::string("\x00\xff\x7f HTTP/1.1 400 Bad Request\r\n\r\n", 31)},
      {"garbage without a line's end", std::string(3000, '\x01')},
      {"a line that never ends", "+" + std::string(200'000, 'y')},
  };
  return all;
}

int set_up_fake(void** state) {
  if (set_up(state) != 0) return -1;
  fake = std::make_unique<fake_server>(server().folder() + "/fake.sock", sense);
  return 0;
}

int tear_down_fake(void** state) {
  const int outcome = tear_down(state);
  fake.reset();
  return outcome;
}

bool run_serving_until(const std::function<bool()>& holds, milliseconds at_most = patience) {
  return run_until(
      [&] {
        fake->serve();
        turn();
        return holds();
      },
      at_most);
}

client_options fake_options() {
  client_options options = base_options();
  options.url = "unix://" + fake->path();
  options.timeout = 50ms;
  options.connect_timeout = 50ms;
  options.reconnect_min = 1ms;
  options.reconnect_max = 2ms;
  return options;
}

void restart_fake(fake_server::answers answer) {
  fake.reset();
  fake = std::make_unique<fake_server>(server().folder() + "/fake.sock", std::move(answer));
}

std::size_t memory_in_use() { return mallinfo2().uordblks + mallinfo2().hblkhd; }

void is_bounded(std::size_t before, const char* name) {
  const std::size_t now = memory_in_use();
  if (now < before + memory_max_bytes) return;
  fail_msg("%s: %zu MB are in use, %zu MB were before", name, now >> 20, before >> 20);
}

// The steps of an introduction that a command belongs to.
struct occasion {
  const char* name;
  const char* command;
};

// With a server that talks sense an operation succeeds.
void recovers(const char* name) {
  restart_fake(sense);
  std::optional<result<bool>> last;
  const bool well = run_serving_until([&, asked = false]() mutable {
    if (last && *last) return true;
    if (last) asked = false;
    if (!std::exchange(asked, true)) {
      last.reset();
      subject().is_locked("k", [&last](result<bool> told) { last.emplace(std::move(told)); });
    }
    return false;
  });
  if (!well) fail_msg("%s: the client did not recover", name);
}

void nonsense_at_the_introduction_is_survived(void**) {
  const std::size_t before = memory_in_use();
  std::size_t cases = 0;
  for (const occasion& when : {occasion{"the name", "CLIENT"},
                               {"the scripts", "SCRIPT"},
                               {"the role", "ROLE"},
                               {"the policy", "CONFIG"},
                               {"the self-test", "EVALSHA"}}) {
    for (const nonsense& each : all_nonsense()) {
      restart_fake(
          [&](const fake_server::command& asked) { return asked[0] == when.command ? each.said : sense(asked); });
      make_subject(fake_options());
      const auto got = start_is_locked("k");
      if (!run_serving_until([&] { return got.done(); }))
        fail_msg("%s at %s: the operation did not end", each.name, when.name);
      if (!got.outcome() && got.outcome().error().message().empty())
        fail_msg("%s at %s: the error says nothing", each.name, when.name);
      is_bounded(before, each.name);
      recovers(each.name);
      ++cases;
    }
  }
  note("%zu cases", cases);
}

// Nothing that makes no sense may look like a lock.
void nonsense_in_answer_to_an_operation_is_an_error(void**) {
  const std::size_t before = memory_in_use();
  std::size_t cases = 0;
  for (const kind which : all_kinds) {
    for (const nonsense& each : all_nonsense()) {
      bool hostile = false;
      restart_fake([&](const fake_server::command& asked) {
        const bool answers = asked[0] == "MGET" || asked[0] == "EVALSHA";
        return hostile && answers ? each.said : sense(asked);
      });
      make_subject(fake_options());
      assert_true(run_serving_until([] { return subject().state() == connection_state::ready; }));
      hostile = true;
      const auto calls = std::make_shared<int>(0);
      const auto failure = std::make_shared<std::optional<error>>();
      start_any(which, subject(), "k", own_id, [calls, failure](const error* told) {
        ++*calls;
        if (told != nullptr) *failure = *told;
      });
      if (!run_serving_until([&] { return *calls > 0; })) fail_msg("%s: the operation did not end", each.name);
      assert_int_equal(*calls, 1);
      if (!*failure) fail_msg("%s was taken for an answer to operation %d", each.name, static_cast<int>(which));
      assert_false((*failure)->message().empty());
      is_bounded(before, each.name);
      hostile = false;
      recovers(each.name);
      ++cases;
    }
  }
  note("%zu cases", cases);
}

// More than any reply may have, of one that says it is long and of one that does not say when it ends.
void reply_without_an_end_is_given_up(void**) {
  const std::size_t before = memory_in_use();
  for (const char* begins : {"$536870912\r\n", "*4096\r\n$536870912\r\n", "+", "-ERR "}) {
    bool hostile = false;
    bool begun = false;
    restart_fake([&](const fake_server::command& asked) {
      if (!hostile || asked[0] != "EVALSHA") return sense(asked);
      begun = true;
      return std::string{begins};
    });
    client_options options = fake_options();
    options.timeout = 20s;
    make_subject(std::move(options));
    assert_true(run_serving_until([] { return subject().state() == connection_state::ready; }));
    hostile = true;
    states().clear();
    const auto got = start_acquire("k", 60s);
    const std::string more(64 << 10, 'x');
    std::size_t said = 0;
    std::size_t most = 0;
    const bool given_up = run_serving_until(
        [&] {
          if (begun) {
            fake->say(more);
            said += more.size();
          }
          most = std::max(most, memory_in_use());
          return saw_state(connection_state::connecting);
        },
        60s);
    if (!given_up) fail_msg("%s: still listening after %zu MB", begins, said >> 20);
    note("given up after at most %zu MB; %zu MB more than before were in use", said >> 20, (most - before) >> 20);
    assert_true(begun && said > 0);
    assert_true(most < before + memory_max_bytes);
    hostile = false;
    restart_fake(sense);
    assert_true(run_serving_until([&] { return got.done(); }));
    recovers("a reply without an end");
  }
}

void answers_that_nobody_asked_for_do_not_shift_the_others(void**) {
  for (const char* unasked :
       {"+OK\r\n", ":1\r\n", "$-1\r\n", "*0\r\n", "-ERR who asked?\r\n", ">2\r\n+a\r\n+b\r\n",
        "$42\r\n1700000000000A0000000000000011700000060000\r\n", ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n"}) {
    restart_fake(sense);
    make_subject(fake_options());
    assert_true(run_serving_until([] { return subject().state() == connection_state::ready; }));
    fake->say(unasked);
    for (int round = 0; round < 5; ++round) turn();
    // Whatever became of the connection: an answer to nothing is not taken for one to this.
    const auto got = start_acquire("k", 60s);
    assert_true(run_serving_until([&] { return got.done(); }));
    if (got.outcome() && got.outcome()->has_value()) fail_msg("%s was taken for a lock", unasked);
    recovers(unasked);
  }
}

// Each byte in a turn of its own: slow, but right.
void answer_in_single_bytes_is_an_answer(void**) {
  std::string dripping;
  restart_fake([&](const fake_server::command& asked) {
    dripping += sense(asked);
    return std::string{};
  });
  client_options options = fake_options();
  options.timeout = options.connect_timeout = 20s;
  make_subject(std::move(options));
  const auto drip = [&] {
    if (dripping.empty()) return;
    const std::string next = dripping.substr(0, 1);
    dripping.erase(0, 1);
    fake->say(next);
  };
  const auto released = start_release(own_id);
  const auto locked = start_is_locked("k");
  const auto found = start_lookup_by_id(own_id);
  std::size_t turns = 0;
  assert_true(run_serving_until([&] {
    drip();
    ++turns;
    return released.done() && locked.done() && found.done();
  }));
  assert_false(must(released.outcome()));
  assert_false(must(locked.outcome()));
  assert_int_equal(subject().stats().connects, 1);
  note("%zu turns", turns);
}

// One that drips for longer than anybody waits does not keep an operation alive.
void answer_that_drips_for_ever_ends_with_the_deadline(void**) {
  bool hostile = false;
  bool begun = false;
  restart_fake([&](const fake_server::command& asked) {
    if (!hostile || asked[0] != "EVALSHA") return sense(asked);
    begun = true;
    return std::string{"$1000000\r\n"};
  });
  make_subject(fake_options());
  assert_true(run_serving_until([] { return subject().state() == connection_state::ready; }));
  hostile = true;
  const auto got = start_acquire("k", 60s);
  assert_true(run_serving_until([&] {
    if (begun) fake->say("x");
    return got.done();
  }));
  assert_true(begun);
  assert_true(must_fail(got.outcome(), error_code::network_timeout).outcome_unknown());
  hostile = false;
  recovers("a drip");
}

#define hostile_case(name) cmocka_unit_test_setup_teardown(name, set_up_fake, tear_down_fake)

}  // namespace

}  // namespace syncguard::testing

int main(int count, char** arguments) {
  using namespace syncguard::testing;
  std::signal(SIGPIPE, SIG_IGN);
  if (count > 1) cmocka_set_test_filter(arguments[1]);
  const CMUnitTest tests[] = {
      hostile_case(nonsense_at_the_introduction_is_survived),
      hostile_case(nonsense_in_answer_to_an_operation_is_an_error),
      hostile_case(reply_without_an_end_is_given_up),
      hostile_case(answers_that_nobody_asked_for_do_not_shift_the_others),
      hostile_case(answer_in_single_bytes_is_an_answer),
      hostile_case(answer_that_drips_for_ever_ends_with_the_deadline),
  };
  return cmocka_run_group_tests_name("hostile_server", tests, start_world, stop_world);
}
