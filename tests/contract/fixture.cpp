#include "contract/fixture.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

namespace syncguard::testing {

namespace {

struct world {
  std::unique_ptr<redis_server> server;
  int port = 0;
  std::unique_ptr<test_loop> loop;
  std::unique_ptr<client> subject;
  std::unique_ptr<client> rival;
  std::vector<seen_state> states;
  std::vector<seen_event> events;
  std::vector<const char*> breaches;
};

world& here() {
  static world the_world;
  return the_world;
}

// A port that was free a moment ago.
int find_free_port() {
  const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* where = reinterpret_cast<sockaddr*>(&address);
  const bool bound = bind(probe, where, length) == 0 && getsockname(probe, where, &length) == 0;
  close(probe);
  return bound ? ntohs(address.sin_port) : 0;
}

// Whatever the case before has done to the server, also where it failed half-way.
bool restore_server() {
  redis_server& it = *here().server;
  it.resume();
  if (!it.start()) return false;
  // A script is killed only some time after Redis said so.
  it.command({"SCRIPT", "KILL"});
  for (int wait = 0; wait < 1000 && !it.command({"PING"}).is_text("PONG"); ++wait) std::this_thread::sleep_for(5ms);
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"REPLICAOF", "NO", "ONE"},
           {"CONFIG", "SET", "maxmemory", "0", "maxmemory-policy", "noeviction", "min-replicas-to-write", "0",
            "busy-reply-threshold", "5000", "client-output-buffer-limit", "normal 0 0 0"},
           {"ACL", "DELUSER", "guest"},
           {"CONFIG", "RESETSTAT"}})
    it.command(command);
  return it.command({"FLUSHALL"}).is_text("OK");
}

void record_event(const telemetry_event& event) {
  here().events.push_back({event.type, event.ok, event.reason, event.key_hash, event.lock_id_hash,
                           std::string{event.raw_key}, std::string{event.raw_lock_id}, std::string{event.detail}});
}

}  // namespace

int start_world(void**) {
  for (int attempt = 0; attempt < 3; ++attempt) {
    here().port = find_free_port();
    here().server = std::make_unique<redis_server>(
        redis_options{.config_lines = {"port " + std::to_string(here().port), "bind 127.0.0.1"}});
    if (here().server->start()) return 0;
  }
  return -1;
}

int stop_world(void**) {
  here().server.reset();
  return 0;
}

int set_up(void**) {
  here().states.clear();
  here().events.clear();
  here().breaches.clear();
  if (!restore_server()) return -1;
  here().loop = make_test_loop();
  return 0;
}

int set_up_with_client(void** state) {
  if (set_up(state) != 0) return -1;
  make_subject(base_options());
  return run_until([] { return subject().state() == connection_state::ready; }) ? 0 : -1;
}

int tear_down(void**) {
  here().server->resume();
  here().rival.reset();
  here().subject.reset();
  turn();
  // A name that is being resolved cannot be called back at once.
  if (!run_until(loop_is_empty)) breach("the clients left something behind in the loop");
  here().loop.reset();
  for (const char* what : here().breaches) print_error("%s\n", what);
  return here().breaches.empty() ? 0 : -1;
}

redis_server& server() { return *here().server; }

std::string unix_url() { return "unix://" + server().socket_path(); }

std::string tcp_url(std::string_view credentials, std::string_view host) {
  return "redis://" + std::string{credentials} + std::string{host} + ":" + std::to_string(here().port);
}

client_options base_options() {
  client_options options;
  options.url = unix_url();
  options.timeout = 10s;
  options.reconnect_min = 10ms;
  options.reconnect_max = 50ms;
  options.on_connection = [](connection_state state, const error* cause) {
    here().states.push_back({state, cause != nullptr ? std::optional{*cause} : std::nullopt});
  };
  return options;
}

client_options watched_options(bool include_raw) {
  client_options options = base_options();
  options.telemetry = record_event;
  options.telemetry_include_raw = include_raw;
  return options;
}

client& subject() { return *here().subject; }

client& make_subject(client_options options) {
  here().subject.reset();
  here().subject = std::make_unique<client>(here().loop->for_client(), std::move(options));
  return subject();
}

client& make_ready_subject(client_options options) {
  make_subject(std::move(options));
  assert_true(run_until([] { return subject().state() == connection_state::ready; }));
  return subject();
}

void destroy_subject() { here().subject.reset(); }

bool subject_exists() { return here().subject != nullptr; }

std::unique_ptr<client>& subject_owner() { return here().subject; }

client& rival() {
  if (here().rival == nullptr) {
    client_options options = base_options();
    options.on_connection = nullptr;
    options.client_name = "rival";
    here().rival = std::make_unique<client>(here().loop->for_client(), std::move(options));
    assert_true(run_until([] { return here().rival->state() == connection_state::ready; }));
  }
  return *here().rival;
}

void turn() { here().loop->turn(0ms); }

int count_turns_during(milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  int turns = 0;
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(end - std::chrono::steady_clock::now());
    if (left <= 0ms) return turns;
    here().loop->turn(left);
    ++turns;
  }
}

void run_for(milliseconds time) { count_turns_during(time); }

bool run_until(const std::function<bool()>& holds, milliseconds at_most) {
  const auto end = std::chrono::steady_clock::now() + at_most;
  while (!holds()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    here().loop->turn(10ms);
  }
  return true;
}

bool loop_is_empty() { return here().loop->empty(); }

loop loop_for_client() { return here().loop->for_client(); }

std::vector<seen_state>& states() { return here().states; }

bool saw_state(connection_state state) {
  return std::any_of(states().begin(), states().end(), [&](const seen_state& seen) { return seen.state == state; });
}

std::vector<seen_event>& events() { return here().events; }

seen_event only_event(telemetry_type type) {
  const auto is_it = [&](const seen_event& event) { return event.type == type; };
  const auto count = [&] { return std::count_if(events().begin(), events().end(), is_it); };
  assert_true(run_until([&] { return count() > 0; }, 2s));
  assert_int_equal(count(), 1);
  return *std::find_if(events().begin(), events().end(), is_it);
}

void breach(const char* what) { here().breaches.push_back(what); }

}  // namespace syncguard::testing
