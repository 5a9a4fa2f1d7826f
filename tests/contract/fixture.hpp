#pragma once

// What every case of the contract suite finds: one private redis-server for all, emptied before each case; a loop and
// clients of the case's own, destroyed after it. The tear-down also fails the case where a callback ran inside the
// call that started its operation, where one ran twice, or where the clients left something behind in the loop.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <syncguard/client.hpp>

#include "contract/test_loop.hpp"
#include "support/cmocka.hpp"
#include "support/redis_server.hpp"

namespace syncguard::testing {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

// How long something may take that should happen soon. Only a failing case ever waits for so long.
inline constexpr auto patience = 20s;

int start_world(void**);
int stop_world(void**);
int set_up(void**);              // without a client
int set_up_with_client(void**);  // with one that is connected
int tear_down(void**);

// A case with a connected client, and one that makes its own.
#define contract_case(name) \
  cmocka_unit_test_setup_teardown(name, ::syncguard::testing::set_up_with_client, ::syncguard::testing::tear_down)
#define contract_case_alone(name) \
  cmocka_unit_test_setup_teardown(name, ::syncguard::testing::set_up, ::syncguard::testing::tear_down)

redis_server& server();
std::string unix_url();
std::string tcp_url(std::string_view credentials = "", std::string_view host = "127.0.0.1");

// Options for the private server, with short pauses between attempts to connect. Every change of the connection's
// state is kept in states().
client_options base_options();

// The same, and every telemetry event is kept in events().
client_options watched_options(bool include_raw = false);

client& subject();
client& make_subject(client_options options);
client& make_ready_subject(client_options options = base_options());
void destroy_subject();
bool subject_exists();

// For cases that move clients.
std::unique_ptr<client>& subject_owner();

// A second client, connected at its first use.
client& rival();

void turn();  // once, without waiting
void run_for(milliseconds time);
[[nodiscard]] bool run_until(const std::function<bool()>& holds, milliseconds at_most = patience);
bool loop_is_empty();
loop loop_for_client();

// Returns how often the loop woke up meanwhile.
int count_turns_during(milliseconds time);

struct seen_state {
  connection_state state;
  std::optional<error> cause;
};
std::vector<seen_state>& states();
bool saw_state(connection_state state);

struct seen_event {
  telemetry_type type;
  bool ok;
  telemetry_reason reason;
  std::optional<key_hash> key;
  std::optional<key_hash> id;
  std::string raw_key;
  std::string raw_id;
  std::string detail;
};
std::vector<seen_event>& events();

// The only event of this type that came, waiting for it. Fails the case where there is none, or more than one.
seen_event only_event(telemetry_type type);

// Notes that a promise was broken, where failing at once is not possible: inside callbacks.
void breach(const char* what);

}  // namespace syncguard::testing
