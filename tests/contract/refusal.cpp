// Servers that do not want us: wrong credentials, missing rights, no such database.

#include <string>

#include "contract/cases.hpp"
#include "contract/operations.hpp"
#include "contract/stored.hpp"

namespace syncguard::testing {

namespace {

bool is_refused() { return subject().state() == connection_state::refused; }

// A client that the server refuses. Its time-out is long: operations must fail before that.
void make_refused_subject(std::string url) {
  client_options options = base_options();
  options.url = std::move(url);
  options.timeout = 1h;
  make_subject(std::move(options));
}

const error& refusal_cause() {
  for (const seen_state& seen : states())
    if (seen.state == connection_state::refused && seen.cause) return *seen.cause;
  print_error("no state callback told why the server refused\n");
  fail();
  return *states().front().cause;
}

void wrong_password_is_auth_failed_at_once(void**) {
  redis({"ACL", "SETUSER", "guest", "on", ">secret", "~*", "+@all"});
  make_refused_subject(tcp_url("guest:wrong@"));
  const error failure = must_fail(await_acquire("k", 60s), error_code::auth_failed);
  assert_false(failure.outcome_unknown());
  assert_false(failure.cause().empty());
  assert_true(run_until(is_refused));
  assert_true(refusal_cause().code() == error_code::auth_failed);
}

void password_is_never_told_by_the_error(void**) {
  redis({"ACL", "SETUSER", "guest", "on", ">secret", "~*", "+@all"});
  make_refused_subject(tcp_url("guest:hunter2@"));
  const error failure = must_fail(await_acquire("k", 60s), error_code::auth_failed);
  assert_true(describe(failure).find("hunter2") == std::string::npos);
}

void unknown_user_is_auth_failed(void**) {
  make_refused_subject(tcp_url("nobody:secret@"));
  must_fail(await_acquire("k", 60s), error_code::auth_failed);
}

void operations_while_refused_fail_at_once(void**) {
  make_refused_subject(tcp_url("nobody:secret@"));
  assert_true(run_until(is_refused));
  for (int round = 0; round < 3; ++round) {
    must_fail(await_acquire("k", 60s), error_code::auth_failed);
    must_fail(await_lookup("k"), error_code::auth_failed);
    must_fail(await_owns(own_id), error_code::auth_failed);
  }
}

void missing_rights_for_scripts_are_found_at_connect(void**) {
  redis({"ACL", "SETUSER", "guest", "on", ">secret", "~*", "+@all", "-evalsha", "-eval", "-script"});
  make_refused_subject(tcp_url("guest:secret@"));
  must_fail(await_acquire("k", 60s), error_code::auth_failed);
}

void rights_taken_away_later_are_auth_failed(void**) {
  redis({"ACL", "SETUSER", "guest", "on", ">secret", "~*", "+@all"});
  client_options options = base_options();
  options.url = tcp_url("guest:secret@");
  make_ready_subject(std::move(options));
  hold("k");
  redis({"ACL", "SETUSER", "guest", "resetkeys", "~elsewhere:*"});
  must_fail(await_acquire("other", 60s), error_code::auth_failed);
}

void wrong_database_is_an_invalid_argument(void**) {
  for (const std::string& url : {unix_url() + "?db=99", tcp_url() + "/99"}) {
    states().clear();
    make_refused_subject(url);
    const error failure = must_fail(await_acquire("k", 60s), error_code::invalid_argument);
    assert_false(failure.cause().empty());
    assert_true(run_until(is_refused));
    assert_true(refusal_cause().code() == error_code::invalid_argument);
  }
}

void refused_client_connects_once_it_is_wanted(void**) {
  redis({"ACL", "SETUSER", "guest", "on", ">other", "~*", "+@all"});
  make_refused_subject(tcp_url("guest:secret@"));
  must_fail(await_acquire("k", 60s), error_code::auth_failed);
  redis({"ACL", "SETUSER", "guest", "resetpass", ">secret"});
  assert_true(run_until([] { return subject().state() == connection_state::ready; }));
  hold("k");
}

void refused_client_does_not_try_in_a_hot_loop(void**) {
  client_options options = base_options();
  options.url = tcp_url("nobody:secret@");
  options.reconnect_min = 1ms;
  options.reconnect_max = 10s;
  make_subject(std::move(options));
  assert_true(run_until(is_refused));
  redis({"CONFIG", "RESETSTAT"});
  run_for(300ms);
  assert_true(calls_of("auth") + calls_of("hello") <= 2);
}

void refused_client_can_be_closed(void**) {
  make_refused_subject(tcp_url("nobody:secret@"));
  assert_true(run_until(is_refused));
  (void)await(start_close());
  assert_true(subject().state() == connection_state::closed);
}

}  // namespace

cases refusal_cases() {
  static const CMUnitTest all[] = {
      contract_case_alone(wrong_password_is_auth_failed_at_once),
      contract_case_alone(password_is_never_told_by_the_error),
      contract_case_alone(unknown_user_is_auth_failed),
      contract_case_alone(operations_while_refused_fail_at_once),
      contract_case_alone(missing_rights_for_scripts_are_found_at_connect),
      contract_case_alone(rights_taken_away_later_are_auth_failed),
      contract_case_alone(wrong_database_is_an_invalid_argument),
      contract_case_alone(refused_client_connects_once_it_is_wanted),
      contract_case_alone(refused_client_does_not_try_in_a_hot_loop),
      contract_case_alone(refused_client_can_be_closed),
  };
  return all;
}

}  // namespace syncguard::testing
