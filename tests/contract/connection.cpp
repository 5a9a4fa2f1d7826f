// Connecting: by every kind of URL, and what the state callback tells.

#include <filesystem>
#include <memory>
#include <set>
#include <string>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contract/cases.hpp"
#include "contract/operations.hpp"
#include "contract/stored.hpp"

namespace syncguard::testing {

namespace {

void connect_to(std::string url) {
  client_options options = base_options();
  options.url = std::move(url);
  make_ready_subject(std::move(options));
  assert_true(must(await_release(hold("k").id)));
}

void client_begins_connecting_and_becomes_ready(void**) {
  make_subject(base_options());
  assert_true(subject().state() == connection_state::connecting);
  assert_true(run_until([] { return saw_state(connection_state::ready); }));
  assert_true(subject().state() == connection_state::ready);
  assert_true(states().back().state == connection_state::ready);
  assert_false(states().back().cause.has_value());
}

void state_callback_never_runs_inside_the_constructor(void**) {
  make_subject(base_options());
  assert_int_equal(states().size(), 0);
  assert_true(run_until([] { return saw_state(connection_state::ready); }));
}

void operations_started_before_the_connection_complete(void**) {
  make_subject(base_options());
  const auto acquired = start_acquire("k", 60s);
  const auto locked = start_is_locked("k");
  must_have(await(acquired));
  assert_true(must(await(locked)));
}

void unix_url_connects(void**) { connect_to(unix_url()); }

void unix_url_with_percent_encoding_connects(void**) {
  const std::string link = server().folder() + "/a b%.sock";
  std::filesystem::create_symlink(server().socket_path(), link);
  connect_to("unix://" + server().folder() + "/a%20b%25.sock");
  std::filesystem::remove(link);
}

void unix_url_with_a_database_uses_it(void**) {
  connect_to(unix_url() + "?db=3");
  assert_true(redis({"INFO", "keyspace"}).text.find("db3:keys=1,") != std::string::npos);
  assert_int_equal(key_count(), 0);
}

void tcp_url_connects(void**) { connect_to(tcp_url()); }

void tcp_url_with_a_name_connects(void**) { connect_to(tcp_url("", "localhost")); }

void tcp_url_with_a_database_uses_it(void**) {
  connect_to(tcp_url() + "/5");
  assert_true(redis({"INFO", "keyspace"}).text.find("db5:keys=1,") != std::string::npos);
}

void url_with_user_and_password_connects(void**) {
  redis({"ACL", "SETUSER", "guest", "on", ">p@ss:word", "~*", "+@all"});
  connect_to(tcp_url("guest:p%40ss%3Aword@"));
  assert_true(redis({"CLIENT", "LIST"}).text.find("user=guest") != std::string::npos);
}

void connection_lost_while_idle_is_made_again(void**) {
  states().clear();
  redis({"CLIENT", "KILL", "TYPE", "normal"});
  assert_true(run_until([] { return saw_state(connection_state::ready); }));
  assert_true(states().front().state == connection_state::connecting);
  hold("k");
  assert_int_equal(subject().stats().connects, 2);
  assert_int_equal(subject().stats().disconnects, 1);
}

void connection_made_again_keeps_name_and_database(void**) {
  client_options options = base_options();
  options.url = unix_url() + "?db=3";
  options.client_name = "keeper";
  make_ready_subject(std::move(options));
  states().clear();
  redis({"CLIENT", "KILL", "TYPE", "normal"});
  assert_true(run_until([] { return saw_state(connection_state::ready); }));
  assert_true(is_connected("keeper"));
  hold("k");
  assert_int_equal(key_count(), 0);
}

void idle_client_never_wakes_the_loop(void**) {
  hold("k");
  run_for(20ms);
  assert_true(count_turns_during(300ms) <= 2);
}

void many_clients_in_one_loop_do_not_disturb_each_other(void**) {
  std::vector<std::unique_ptr<client>> others;
  for (int index = 0; index < 20; ++index)
    others.push_back(std::make_unique<client>(loop_for_client(), base_options()));
  std::vector<started_acquire> all;
  for (const auto& other : others) all.push_back(start_acquire("k", 60s, *other));
  for (const auto& one : all) {
    if (!run_until([&] { return one.done(); })) breach("a callback did not run");
  }
  others.clear();
  int granted = 0;
  for (const auto& one : all) granted += one.done() && one.outcome() && one.outcome()->has_value() ? 1 : 0;
  assert_int_equal(granted, 1);
}

std::set<int> open_descriptors() {
  std::set<int> open;
  for (const auto& each : std::filesystem::directory_iterator{"/proc/self/fd"})
    open.insert(std::stoi(each.path().filename().string()));
  std::erase_if(open, [](int number) { return fcntl(number, F_GETFD) < 0; });  // that of the look itself
  return open;
}

// Programs that the process starts must not inherit its connections: they would keep them open.
void connections_are_closed_on_exec(void**) {
  const std::set<int> before = open_descriptors();
  for (const std::string& url : {unix_url(), tcp_url()}) {
    client_options options = base_options();
    options.url = url;
    make_ready_subject(std::move(options));
    const auto got = std::make_shared<bool>(false);
    subject().lock("k", {}, [got](const result<lock>& outcome) { *got = outcome.has_value(); });
    assert_true(run_until([&] { return *got && subject().stats().watching; }));
    std::set<int> connections = open_descriptors();
    std::erase_if(connections, [&](int number) { return before.contains(number); });
    assert_true(connections.size() >= 2);
    for (const int connection : connections) assert_true((fcntl(connection, F_GETFD) & FD_CLOEXEC) != 0);
    destroy_subject();
    turn();
  }
}

// The child only starts an operation: it must not run its parent's loop.
void child_process_leaves_the_parents_connection_alone(void**) {
  hold("k");
  const long long before = commands_processed();
  const pid_t child = fork();
  if (child == 0) {
    subject().acquire("child", 60s, {});
    subject().is_locked("child", {});
    for (int index = 0; index < 100; ++index) subject().acquire("child" + std::to_string(index), 60s, {});
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  run_for(5ms);
  assert_int_equal(commands_processed() - before, 1);
  assert_true(must(await_is_locked("k")));
  assert_false(must(await_is_locked("child")));
}

}  // namespace

cases connection_cases() {
  static const CMUnitTest all[] = {
      contract_case_alone(client_begins_connecting_and_becomes_ready),
      contract_case_alone(state_callback_never_runs_inside_the_constructor),
      contract_case_alone(operations_started_before_the_connection_complete),
      contract_case_alone(unix_url_connects),
      contract_case_alone(unix_url_with_percent_encoding_connects),
      contract_case_alone(unix_url_with_a_database_uses_it),
      contract_case_alone(tcp_url_connects),
      contract_case_alone(tcp_url_with_a_name_connects),
      contract_case_alone(tcp_url_with_a_database_uses_it),
      contract_case_alone(url_with_user_and_password_connects),
      contract_case(connection_lost_while_idle_is_made_again),
      contract_case_alone(connection_made_again_keeps_name_and_database),
      contract_case(idle_client_never_wakes_the_loop),
      contract_case_alone(many_clients_in_one_loop_do_not_disturb_each_other),
      contract_case_alone(connections_are_closed_on_exec),
      contract_case(child_process_leaves_the_parents_connection_alone),
  };
  return all;
}

}  // namespace syncguard::testing
