// The least rights that suffice, each shown to be needed; and every way to be refused. Built for each loop.

#include <algorithm>
#include <csignal>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "contract/operations.hpp"
#include "contract/stored.hpp"

namespace syncguard::testing {

namespace {

// What the documentation tells an administrator to grant. AUTH needs no right.
const std::vector<std::string> needed_rights{"+evalsha", "+script|load", "+get",  "+mget",    "+time",
                                             "+pttl",    "+set",         "+incr", "+pexpire", "+del"};

// Without these something is not told, and everything works all the same.
const std::vector<std::string> optional_rights{"+client|setname", "+role", "+config|get", "+client|tracking",
                                               "+client|caching"};

constexpr const char* key_pattern = "~syncguard:*";

using rights = std::vector<std::string>;

rights without(const rights& all, const std::string& one) {
  rights rest;
  std::copy_if(all.begin(), all.end(), std::back_inserter(rest), [&](const auto& right) { return right != one; });
  return rest;
}

rights with(rights all, const rights& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

void set_user(const rights& granted, const std::string& keys = key_pattern) {
  const rights fixed{"ACL", "SETUSER", "guest", "reset", "on", ">secret", keys};
  const auto answer = redis(with(fixed, granted));
  if (!answer.is_text("OK")) print_error("%s\n", answer.text.c_str());
  assert_true(answer.is_text("OK"));
}

client_options guest_options(std::string_view credentials = "guest:secret@") {
  client_options options = base_options();
  options.url = tcp_url(credentials);
  options.timeout = 1h;  // what is refused must fail before that
  options.reconnect_max = 10s;
  return options;
}

bool is_refused() { return subject().state() == connection_state::refused; }

error is_auth_failed_at_connect(client_options options, std::string_view what = "") {
  states().clear();
  make_subject(std::move(options));
  const auto outcome = await_acquire("k", 60s);
  if (outcome) print_error("connected without %s\n", std::string{what}.c_str());
  const error failure = must_fail(outcome, error_code::auth_failed);
  note("without %s: %s", std::string{what}.c_str(), describe(failure).c_str());
  assert_false(failure.cause().empty());
  assert_false(failure.outcome_unknown());
  assert_true(run_until(is_refused));
  assert_true(states().back().cause && states().back().cause->code() == error_code::auth_failed);
  assert_int_equal(subject().stats().connects, 0);
  assert_int_equal(key_count(), 0);
  return failure;
}

// Every operation, and every way through the scripts.
void everything_works() {
  const grant held = hold("k");
  assert_false(must(await_acquire("k", 60s)).has_value());
  must_have(await_extend(held.id, 60s));
  assert_true(must(await_is_locked("k")));
  must_have(await_lookup("k"));
  must_have(await_lookup_by_id(held.id));
  must_have(await_lookup_raw("k"));
  must_have(await_lookup_raw_by_id(held.id));
  assert_true(must(await_owns(held.id)));
  assert_true(must(await_release(held.id)));
  assert_false(must(await_release(held.id)));
  assert_false(must(await_extend(held.id, 60s)).has_value());

  store_expiring(other_id, -1500ms, "expired");
  assert_false(must(await_release(other_id)));
  store_expiring(other_id, -1500ms, "expired");
  assert_false(must(await_extend(other_id, 60s)).has_value());
  store_expiring(other_id, -1500ms, "expired");
  hold("expired");
  assert_false(exists(index_key(other_id)));

  redis({"SET", lock_key("unreadable"), "nonsense", "PX", "60000"});
  assert_false(must(await_acquire("unreadable", 60s)).has_value());
  assert_true(must(await_is_locked("unreadable")));

  store_expiring(other_id, -3000ms, "old");
  assert_false(must(await_is_locked("old")));
  assert_true(run_until([] { return !exists(lock_key("old")); }));

  redis({"SCRIPT", "FLUSH"});
  assert_true(must(await_release(hold("after the flush").id)));
}

client_options cleaning_options() {
  client_options options = guest_options();
  options.cleanup_in_is_locked = true;
  return options;
}

void needed_rights_suffice_for_everything(void**) {
  set_user(needed_rights);
  make_ready_subject(cleaning_options());
  everything_works();
}

void needed_and_optional_rights_are_denied_nothing(void**) {
  redis({"ACL", "LOG", "RESET"});
  set_user(with(needed_rights, optional_rights));
  make_ready_subject(cleaning_options());
  everything_works();
  assert_true(is_connected("syncguard"));
  assert_int_equal(redis({"ACL", "LOG"}).elements.size(), 0);
}

void each_needed_right_is_missed_at_connect(void**) {
  for (const std::string& right : needed_rights) {
    set_user(with(without(needed_rights, right), optional_rights));
    is_auth_failed_at_connect(guest_options(), right);
  }
}

void other_keys_are_missed_at_connect(void**) {
  for (const char* keys : {"~elsewhere:*", "~syncguard:id:*", "~syncguard:fence:*", "%R~syncguard:*"}) {
    set_user(needed_rights, keys);
    is_auth_failed_at_connect(guest_options(), "all keys but " + std::string{keys});
  }
}

void keys_of_another_prefix_can_be_granted(void**) {
  set_user(needed_rights, "~mine:*");
  client_options options = guest_options();
  options.prefix = "mine";
  make_ready_subject(std::move(options));
  assert_true(must(await_release(hold("k").id)));
}

void each_optional_right_can_be_missing(void**) {
  for (const std::string& right : optional_rights) {
    set_user(with(needed_rights, without(optional_rights, right)));
    make_ready_subject(guest_options());
    assert_true(must(await_release(hold("k").id)));
    assert_true(is_connected("syncguard") == (right != "+client|setname"));
  }
}

void eviction_policy_is_told_where_config_can_be_read(void**) {
  assert_true(server().config_set("maxmemory-policy", "allkeys-lru"));
  const auto options = [] {
    client_options watched = watched_options();
    watched.url = tcp_url("guest:secret@");
    return watched;
  };
  set_user(with(needed_rights, without(optional_rights, "+config|get")));
  make_ready_subject(options());
  hold("k");
  for (const auto& event : events()) assert_false(event.type == telemetry_type::unsafe_policy);
  set_user(with(needed_rights, optional_rights));
  make_ready_subject(options());
  assert_text_equal(only_event(telemetry_type::unsafe_policy).detail, "allkeys-lru");
}

void replica_is_recognised_where_role_can_be_asked(void**) {
  set_user(with(needed_rights, optional_rights));
  redis({"REPLICAOF", "127.0.0.1", "1"});
  client_options options = guest_options();
  options.timeout = 300ms;
  make_subject(std::move(options));
  must_fail(await_is_locked("k"), error_code::service_unavailable);
}

// Then reads are answered by what has become a replica, and only writes fail.
void replica_is_recognised_by_writes_where_role_cannot_be_asked(void**) {
  set_user(needed_rights);
  redis({"REPLICAOF", "127.0.0.1", "1"});
  client_options options = guest_options();
  options.timeout = 300ms;
  make_subject(std::move(options));
  must_fail(await_acquire("k", 60s), error_code::service_unavailable);
}

// The name may lead to the new master by now, and only a new connection finds that out.
void write_refused_by_a_replica_ends_the_connection(void**) {
  set_user(needed_rights);
  make_ready_subject(guest_options());
  hold("k");
  assert_int_equal(subject().stats().disconnects, 0);
  redis({"REPLICAOF", "127.0.0.1", "1"});
  must_fail(await_acquire("other", 60s), error_code::service_unavailable);
  assert_true(run_until([] { return subject().stats().disconnects > 0; }));
}

void database_needs_the_right_to_select(void**) {
  set_user(needed_rights);
  client_options options = guest_options();
  options.url += "/3";
  is_auth_failed_at_connect(options, "+select");
  set_user(with(needed_rights, {"+select"}));
  make_ready_subject(options);
  assert_true(must(await_release(hold("k").id)));
}

void wrong_password_is_auth_failed(void**) {
  set_user(needed_rights);
  is_auth_failed_at_connect(guest_options("guest:wrong@"), "the right password");
}

void disabled_user_is_auth_failed(void**) {
  set_user(with(needed_rights, {"off"}));
  is_auth_failed_at_connect(guest_options(), "a user that is on");
}

// The default user of the private server belongs to the tests themselves, so this one has a server of its own.
std::unique_ptr<redis_server> locked_server;

int set_up_locked(void** state) {
  locked_server = std::make_unique<redis_server>(redis_options{.password = "default-secret"});
  return locked_server->start() && set_up(state) == 0 ? 0 : -1;
}

int tear_down_locked(void** state) {
  const int outcome = tear_down(state);
  locked_server.reset();
  return outcome;
}

client_options locked_options(std::string_view credentials) {
  client_options options = guest_options();
  options.url = "unix://" + std::string{credentials} + locked_server->socket_path();
  return options;
}

void no_password_where_one_is_needed_is_auth_failed(void**) {
  is_auth_failed_at_connect(locked_options(""), "a password");
}

void password_of_the_default_user_suffices(void**) {
  make_ready_subject(locked_options(":default-secret@"));
  assert_true(must(await_release(hold("k").id)));
}

void rights_revoked_while_connected_are_auth_failed(void**) {
  set_user(with(needed_rights, optional_rights));
  client_options options = guest_options();
  options.reconnect_max = 50ms;
  make_ready_subject(std::move(options));
  const grant held = hold("k");
  assert_true(redis({"ACL", "SETUSER", "guest", "-@all"}).is_text("OK"));
  must_fail(await_acquire("other", 60s), error_code::auth_failed);
  must_fail(await_extend(held.id, 60s), error_code::auth_failed);
  must_fail(await_release(held.id), error_code::auth_failed);
  must_fail(await_is_locked("k"), error_code::auth_failed);
  must_fail(await_lookup("k"), error_code::auth_failed);
  must_fail(await_lookup_by_id(held.id), error_code::auth_failed);

  set_user(with(needed_rights, optional_rights));
  assert_true(run_until([] { return subject().state() == connection_state::ready; }));
  assert_true(must(await_release(held.id)));
}

void one_right_revoked_while_connected_fails_what_needs_it(void**) {
  set_user(needed_rights);
  make_ready_subject(guest_options());
  const grant held = hold("k");
  redis({"ACL", "SETUSER", "guest", "-incr"});
  must_fail(await_acquire("other", 60s), error_code::auth_failed);
  assert_false(exists(lock_key("other")));
  must_have(await_extend(held.id, 60s));
  redis({"ACL", "SETUSER", "guest", "-del"});
  must_fail(await_release(held.id), error_code::auth_failed);
  assert_true(must(await_owns(held.id)));
}

// Redis ends the connections of a user that it deletes.
void user_deleted_while_connected_is_refused(void**) {
  set_user(needed_rights);
  make_ready_subject(guest_options());
  redis({"ACL", "DELUSER", "guest"});
  assert_true(run_until(is_refused));
  must_fail(await_acquire("k", 60s), error_code::auth_failed);
}

}  // namespace

}  // namespace syncguard::testing

int main() {
  using namespace syncguard::testing;
  std::signal(SIGPIPE, SIG_IGN);
  const CMUnitTest tests[] = {
      contract_case_alone(needed_rights_suffice_for_everything),
      contract_case_alone(needed_and_optional_rights_are_denied_nothing),
      contract_case_alone(each_needed_right_is_missed_at_connect),
      contract_case_alone(other_keys_are_missed_at_connect),
      contract_case_alone(keys_of_another_prefix_can_be_granted),
      contract_case_alone(each_optional_right_can_be_missing),
      contract_case_alone(eviction_policy_is_told_where_config_can_be_read),
      contract_case_alone(replica_is_recognised_where_role_can_be_asked),
      contract_case_alone(replica_is_recognised_by_writes_where_role_cannot_be_asked),
      contract_case_alone(write_refused_by_a_replica_ends_the_connection),
      contract_case_alone(database_needs_the_right_to_select),
      contract_case_alone(wrong_password_is_auth_failed),
      contract_case_alone(disabled_user_is_auth_failed),
      cmocka_unit_test_setup_teardown(no_password_where_one_is_needed_is_auth_failed, set_up_locked, tear_down_locked),
      cmocka_unit_test_setup_teardown(password_of_the_default_user_suffices, set_up_locked, tear_down_locked),
      contract_case_alone(rights_revoked_while_connected_are_auth_failed),
      contract_case_alone(one_right_revoked_while_connected_fails_what_needs_it),
      contract_case_alone(user_deleted_while_connected_is_refused),
  };
  return cmocka_run_group_tests_name("acl", tests, start_world, stop_world);
}
