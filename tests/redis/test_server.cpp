// The private redis-server that all tests lean on: it starts, disappears and comes back in every way, and nothing of
// it outlives the test.

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>

#include "support/cmocka.hpp"
#include "support/redis_server.hpp"

namespace {

using namespace std::chrono_literals;
using syncguard::testing::redis_options;
using syncguard::testing::redis_reply;
using syncguard::testing::redis_server;

std::unique_ptr<redis_server> server;

int start(void**) {
  server = std::make_unique<redis_server>();
  return server->start() ? 0 : -1;
}

int start_append_only(void**) {
  server = std::make_unique<redis_server>(redis_options{.append_only = true, .config_lines = {}});
  return server->start() ? 0 : -1;
}

int stop(void**) {
  server.reset();
  return 0;
}

bool eventually(const std::function<bool()>& holds) {
  const auto deadline = std::chrono::steady_clock::now() + 30s;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

// Gone, or dead and waiting for a parent that does not care, as in a container whose first process reaps nothing.
bool process_is_gone(pid_t pid) {
  std::ifstream status{"/proc/" + std::to_string(pid) + "/stat"};
  const std::string text{std::istreambuf_iterator<char>{status}, {}};
  return text.empty() || text.find(") Z ") != std::string::npos;
}

void server_answers_on_its_socket_alone(void**) {
  assert_true(server->command({"SET", "k", "v"}).is_text("OK"));
  assert_true(server->command({"GET", "k"}).is_text("v"));
  assert_true(server->command({"CONFIG", "GET", "port"}).elements.at(1).is_text("0"));
  assert_true(server->command({"CONFIG", "GET", "save"}).elements.at(1).is_text(""));
}

void answers_of_every_kind_are_copied(void**) {
  assert_int_equal(server->command({"INCR", "n"}).integer, 1);
  assert_true(server->command({"GET", "absent"}).type == redis_reply::kind::nil);
  assert_true(server->command({"NONSENSE"}).type == redis_reply::kind::error);
  assert_int_equal(server->command({"TIME"}).elements.size(), 2);
}

void config_can_be_changed(void**) {
  assert_true(server->config_set("maxmemory-policy", "allkeys-lru"));
  assert_true(server->command({"CONFIG", "GET", "maxmemory-policy"}).elements.at(1).is_text("allkeys-lru"));
  assert_false(server->config_set("no-such-thing", "1"));
}

void restart_without_persistence_loses_the_data(void**) {
  server->command({"SET", "k", "v"});
  const pid_t before = server->pid();
  assert_true(server->restart());
  assert_int_not_equal(server->pid(), before);
  assert_true(server->command({"GET", "k"}).type == redis_reply::kind::nil);
}

void restart_with_persistence_keeps_the_data(void**) {
  server->command({"SET", "k", "v"});
  assert_true(server->restart());
  assert_true(server->command({"GET", "k"}).is_text("v"));
}

void kill_hard_with_persistence_keeps_acknowledged_writes(void**) {
  for (int i = 0; i < 100; ++i) assert_int_equal(server->command({"INCR", "n"}).integer, i + 1);
  server->kill_hard();
  assert_true(server->command({"PING"}, 1s).type == redis_reply::kind::none);
  assert_true(server->start());
  assert_true(server->command({"GET", "n"}).is_text("100"));
}

void paused_server_is_silent_until_resumed(void**) {
  server->pause();
  assert_true(server->command({"PING"}, 200ms).type == redis_reply::kind::none);
  server->resume();
  assert_true(server->command({"PING"}).is_text("PONG"));
}

void paused_server_can_be_restarted(void**) {
  server->pause();
  assert_true(server->restart());
  assert_true(server->command({"PING"}).is_text("PONG"));
}

void server_that_cannot_start_says_so(void**) {
  redis_server broken{{.append_only = false, .config_lines = {"nonsense yes"}}};
  assert_false(broken.start());
}

void nothing_is_left_after_the_test_ends(void**) {
  const pid_t pid = server->pid();
  const std::string folder = server->folder();
  server.reset();
  assert_true(process_is_gone(pid));
  assert_false(std::filesystem::exists(folder));
}

// A test that is killed in the middle: its server is paused, too, which must not save it.
void nothing_is_left_after_the_test_is_killed(void**) {
  int ends[2];
  assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
  const pid_t victim = fork();
  if (victim == 0) {
    redis_server own;
    if (!own.start()) _exit(1);
    own.pause();
    const std::string message = std::to_string(own.pid()) + " " + own.folder();
    if (write(ends[1], message.data(), message.size()) < 0) _exit(1);
    for (;;) ::pause();
  }
  close(ends[1]);
  char message[512] = {};
  assert_true(read(ends[0], message, sizeof message - 1) > 0);
  close(ends[0]);
  const auto pid = static_cast<pid_t>(std::strtol(message, nullptr, 10));
  const std::string folder = std::strchr(message, ' ') + 1;
  assert_true(std::filesystem::exists(folder));
  assert_false(process_is_gone(pid));

  kill(victim, SIGKILL);
  waitpid(victim, nullptr, 0);
  assert_true(eventually([&] { return process_is_gone(pid); }));
  assert_true(eventually([&] { return !std::filesystem::exists(folder); }));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(server_answers_on_its_socket_alone, start, stop),
      cmocka_unit_test_setup_teardown(answers_of_every_kind_are_copied, start, stop),
      cmocka_unit_test_setup_teardown(config_can_be_changed, start, stop),
      cmocka_unit_test_setup_teardown(restart_without_persistence_loses_the_data, start, stop),
      cmocka_unit_test_setup_teardown(restart_with_persistence_keeps_the_data, start_append_only, stop),
      cmocka_unit_test_setup_teardown(kill_hard_with_persistence_keeps_acknowledged_writes, start_append_only, stop),
      cmocka_unit_test_setup_teardown(paused_server_is_silent_until_resumed, start, stop),
      cmocka_unit_test_setup_teardown(paused_server_can_be_restarted, start, stop),
      cmocka_unit_test(server_that_cannot_start_says_so),
      cmocka_unit_test_setup_teardown(nothing_is_left_after_the_test_ends, start, stop),
      cmocka_unit_test(nothing_is_left_after_the_test_is_killed),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
