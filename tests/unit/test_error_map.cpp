#include "protocol/error_map.hpp"

#include <string>

#include "support/cmocka.hpp"

namespace {

using syncguard::error_code;
using namespace syncguard::protocol;

struct expectation {
  std::string_view text;
  error_code code;
};

template <std::size_t Count>
void check(const expectation (&cases)[Count]) {
  for (const auto& [text, code] : cases) {
    if (classify_error(text) == code) continue;
    const std::string_view seen = to_string(classify_error(text));
    fail_msg("\"%s\" is taken for %s", std::string{text}.c_str(), std::string{seen}.c_str());
  }
}

void replies_are_known_by_their_code_word(void**) {
  check({
      {"NOAUTH Authentication required.", error_code::auth_failed},
      {"WRONGPASS invalid username-password pair or user is disabled.", error_code::auth_failed},
      {"NOPERM this user has no permissions to run the 'evalsha' command", error_code::auth_failed},
      {"WRONGTYPE Operation against a key holding the wrong kind of value", error_code::invalid_argument},
      {"READONLY You can't write against a read only replica.", error_code::service_unavailable},
      {"LOADING Redis is loading the dataset in memory", error_code::service_unavailable},
      {"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
       error_code::service_unavailable},
      {"CLUSTERDOWN The cluster is down", error_code::service_unavailable},
      {"TRYAGAIN Multiple keys request during rehashing of slot", error_code::service_unavailable},
      {"NOREPLICAS Not enough good replicas to write.", error_code::service_unavailable},
      {"BUSY Redis is busy running a script.", error_code::service_unavailable},
      {"MISCONF Redis is configured to save RDB snapshots", error_code::service_unavailable},
      {"OOM command not allowed when used memory > 'maxmemory'.", error_code::rate_limited},
      {"OOM", error_code::rate_limited},
      {"NOSCRIPT No matching script. Please use EVAL.", error_code::internal},
      {"BUSYGROUP Consumer Group name already exists", error_code::internal},
      {"OOMPH is not a code", error_code::internal},
      {"ERR", error_code::internal},
      {"ERR unknown command 'FOO', with args beginning with: 'timeout' 'NOAUTH' ", error_code::internal},
  });
}

void plain_errors_are_known_by_how_they_go_on(void**) {
  check({
      {"ERR syntax error", error_code::invalid_argument},
      {"ERR invalid expire time in 'set' command", error_code::invalid_argument},
      {"ERR DB index is out of range", error_code::invalid_argument},
      {"ERR invalid DB index", error_code::invalid_argument},
      {"ERR invalid password", error_code::auth_failed},
      {"ERR Client sent AUTH, but no password is set", error_code::auth_failed},
      {"ERR AUTH <password> called without any password configured for the default user.", error_code::auth_failed},
      {"ERR max number of clients reached", error_code::service_unavailable},
      {"ERR max number of clients + cluster connections reached", error_code::service_unavailable},
      {"ERR something about a timeout", error_code::internal},
      {"ERR The user executing the script can't run this command or subcommand script: 5f1c, on @user_script:1.",
       error_code::auth_failed},
      {"ERR The user executing the script can't access at least one of the keys mentioned in the command arguments",
       error_code::auth_failed},
  });
}

void codes_are_found_inside_script_errors(void**) {
  constexpr std::string_view wrapped =
      "ERR Error running script (call to f_5f1cbd7e0e2a7e34e9f2e1a2a6b1f0a1c8d6a4b2): @user_script:7: @user_script: 7: "
      "-READONLY You can't write against a read only replica.";
  assert_text_equal(reply_code_word(wrapped), "READONLY");
  assert_text_equal(reply_code_word("READONLY You can't write. script: 5f1c, on @user_script:1."), "READONLY");
  assert_text_equal(reply_code_word("ERR Error running script (call to f_5f1c): @user_script:3: bad argument"), "ERR");
  assert_text_equal(reply_code_word("NOSCRIPT No matching script."), "NOSCRIPT");
  check({
      {wrapped, error_code::service_unavailable},
      {"READONLY You can't write against a read only replica. script: 5f1c, on @user_script:1.",
       error_code::service_unavailable},
      {"ERR Error running script (call to f_5f1c): @user_script:3: -OOM command not allowed", error_code::rate_limited},
      {"ERR Error running script (call to f_5f1c): @user_script:3: -NOPERM this user", error_code::auth_failed},
      {"ERR Error running script (call to f_5f1c): @user_script:3: -ERR invalid expire time in 'set' command",
       error_code::invalid_argument},
      {"ERR Error running script (call to f_5f1c): @user_script:3: attempt to index nil", error_code::internal},
      {"OOM command not allowed when used memory > 'maxmemory'. script: 5f1c, on @user_script:9.",
       error_code::rate_limited},
  });
}

void system_texts_are_known_by_word_or_phrase(void**) {
  check({
      {"connect ECONNREFUSED 127.0.0.1:6379", error_code::service_unavailable},
      {"read ECONNRESET", error_code::service_unavailable},
      {"getaddrinfo ENOTFOUND redis", error_code::service_unavailable},
      {"getaddrinfo EAI_AGAIN redis", error_code::service_unavailable},
      {"ECONNRESET", error_code::service_unavailable},
      {"connect ETIMEDOUT", error_code::network_timeout},
      {"Connection refused", error_code::service_unavailable},
      {"Connection reset by peer", error_code::service_unavailable},
      {"Broken pipe", error_code::service_unavailable},
      {"Server closed the connection", error_code::service_unavailable},
      {"Name or service not known", error_code::service_unavailable},
      {"Temporary failure in name resolution", error_code::service_unavailable},
      {"No such file or directory", error_code::service_unavailable},
      {"No route to host", error_code::service_unavailable},
      {"Network is unreachable", error_code::service_unavailable},
      {"unknown node or service", error_code::service_unavailable},
      {"temporary failure", error_code::service_unavailable},
      {"nodename nor servname provided, or not known", error_code::service_unavailable},
      {"getaddrinfo EAI_NONAME", error_code::service_unavailable},
      {"software caused connection abort", error_code::service_unavailable},
      {"socket is not connected", error_code::service_unavailable},
      {"host is down", error_code::service_unavailable},
      {"Can't open socket: Too many open files", error_code::service_unavailable},
      {"Connection timeout", error_code::network_timeout},
      {"Connection timed out", error_code::network_timeout},
      {"Timeout", error_code::network_timeout},
      {"ReplyError: NOAUTH Authentication required.", error_code::auth_failed},
      {"something else", error_code::internal},
      {"", error_code::internal},
      {" ", error_code::internal},
  });
  assert_text_equal(reply_code_word("Connection refused"), "");
  assert_text_equal(reply_code_word("A single letter"), "");
  assert_text_equal(reply_code_word(""), "");
}

void hostile_texts_are_survived(void**) {
  for (const char filler : {'A', ' ', '-', ':', '\0', '\xff'}) {
    const std::string text(100'000, filler);
    assert_true(classify_error(text) == error_code::internal);
    assert_true(classify_error("ERR Error running script " + text + ": -") == error_code::internal);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(replies_are_known_by_their_code_word),
      cmocka_unit_test(plain_errors_are_known_by_how_they_go_on),
      cmocka_unit_test(codes_are_found_inside_script_errors),
      cmocka_unit_test(system_texts_are_known_by_word_or_phrase),
      cmocka_unit_test(hostile_texts_are_survived),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
