// TLS against a real server: who is trusted, who is not, and what a refusal looks like. Built for each loop.

#include <arpa/inet.h>
#include <malloc.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "contract/operations.hpp"
#include "contract/stored.hpp"
#include "support/certificates.hpp"

namespace syncguard::testing {

namespace {

int tls_port = 0;

std::string file(std::string_view name) { return server().folder() + "/" + std::string{name}; }

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

// Which certificate the server shows, and whether it wants to see one.
bool serve(const std::string& name, const std::string& auth_clients = "no") {
  const auto answer = redis({"CONFIG", "SET", "tls-ca-cert-file", file("ca.pem"), "tls-cert-file", file(name + ".pem"),
                             "tls-key-file", file(name + ".key"), "tls-auth-clients", auth_clients});
  if (!answer.is_text("OK")) print_error("CONFIG SET: %s\n", answer.text.c_str());
  return answer.is_text("OK");
}

int start_tls_world(void** state) {
  if (start_world(state) != 0) return -1;
  if (!server().config_set("loglevel", "verbose")) return -1;
  if (!make_certificates(server().folder()) || !serve("server")) return -1;
  for (int attempt = 0; attempt < 3; ++attempt) {
    tls_port = find_free_port();
    if (server().config_set("tls-port", std::to_string(tls_port))) return 0;
  }
  return -1;
}

int set_up_tls(void** state) { return set_up(state) == 0 && serve("server") ? 0 : -1; }

std::string tls_url(std::string_view host = "127.0.0.1", int port = tls_port) {
  return "rediss://" + std::string{host} + ":" + std::to_string(port);
}

client_options tls_client_options(std::string url = tls_url()) {
  client_options options = base_options();
  options.url = std::move(url);
  options.tls.ca_file = file("ca.pem");
  return options;
}

client_options as(std::string_view name) {
  client_options options = tls_client_options();
  options.tls.certificate_file = file(std::string{name} + ".pem");
  options.tls.private_key_file = file(std::string{name} + ".key");
  return options;
}

bool is_refused() { return subject().state() == connection_state::refused; }

void works() {
  const grant held = hold("k");
  assert_true(must(await_is_locked("k")));
  assert_int_equal(must_have(await_lookup("k")).fence.number(), held.fence.number());
  must_have(await_extend(held.id, 60s));
  assert_true(must(await_owns(held.id)));
  assert_true(must(await_release(held.id)));
}

void connects_and_works(client_options options) {
  make_ready_subject(std::move(options));
  works();
}

// Refused for good: operations fail long before their time is up, and the cause is a sentence for a human.
void refuses_certificate(client_options options, std::string_view part_of_cause) {
  options.timeout = 1h;
  options.reconnect_max = 10s;
  make_subject(std::move(options));
  const error failure = must_fail(await_acquire("k", 60s), error_code::auth_failed);
  note("cause: %s", std::string{failure.cause()}.c_str());
  assert_true(failure.cause().find(part_of_cause) != std::string_view::npos);
  assert_false(failure.outcome_unknown());
  assert_true(run_until(is_refused));
  assert_true(states().back().state == connection_state::refused);
  assert_true(states().back().cause && states().back().cause->code() == error_code::auth_failed);
  must_fail(await_is_locked("k"), error_code::auth_failed);
  assert_int_equal(key_count(), 0);
}

// Connections that the server took, and those that ended before they could count: it only logs these.
long long connections_received() {
  const std::string info = redis({"INFO", "stats"}).text;
  const std::string name = "total_connections_received:";
  long long count = std::stoll(info.substr(info.find(name) + name.size()));
  std::ifstream log{file("redis.log")};
  for (std::string line; std::getline(log, line);)
    if (line.find("Error accepting a client connection") != std::string::npos) ++count;
  return count;
}

// Whatever the two do not like about each other: an error before long, nothing stored, and no hot loop meanwhile.
error fails_without_a_hot_loop(client_options options) {
  options.timeout = 600ms;
  options.connect_timeout = 300ms;
  options.reconnect_min = 50ms;
  options.reconnect_max = 5s;
  const long long before = connections_received();
  make_subject(std::move(options));
  const auto outcome = await_acquire("k", 60s);
  assert_false(outcome.has_value());
  note("error: %s", describe(outcome.error()).c_str());
  run_for(1s);
  // The second INFO comes over a connection of its own. Pauses of 50, 100, 200… ms, half of each at least.
  const long long attempts = connections_received() - before - 1;
  note("%lld attempts in about 1.6 s", attempts);
  assert_in_range(attempts, 1, 8);
  assert_false(subject().state() == connection_state::ready);
  assert_int_equal(subject().stats().connects, 0);
  assert_int_equal(key_count(), 0);
  return outcome.error();
}

void fails_as_unavailable(client_options options) {
  const error failure = fails_without_a_hot_loop(std::move(options));
  assert_true(failure.code() == error_code::service_unavailable);
  assert_false(failure.cause().empty());
}

void refuses_options(client_options options) {
  make_subject(std::move(options));
  assert_failed_with(subject().check(), error_code::invalid_argument);
  note("%s", describe(subject().check().error()).c_str());
  must_fail(await_acquire("k", 60s), error_code::invalid_argument);
}

void address_in_the_certificate_is_verified(void**) { connects_and_works(tls_client_options()); }

void name_in_the_certificate_is_verified(void**) { connects_and_works(tls_client_options(tls_url("localhost"))); }

void password_and_database_work(void**) {
  redis({"ACL", "SETUSER", "guest", "on", ">secret", "~*", "+@all"});
  connects_and_works(tls_client_options(tls_url("guest:secret@127.0.0.1") + "/3"));
  assert_true(redis({"CLIENT", "LIST"}).text.find("user=guest") != std::string::npos);
}

void wrong_authority_is_refused(void**) {
  client_options options = tls_client_options();
  options.tls.ca_file = file("other-ca.pem");
  refuses_certificate(std::move(options), "self-signed certificate");
}

void systems_authorities_do_not_know_the_server(void**) {
  client_options options = tls_client_options();
  options.tls.ca_file.clear();
  refuses_certificate(std::move(options), "certificate");
}

void certificate_for_another_name_is_refused(void**) {
  assert_true(serve("wrong-host"));
  refuses_certificate(tls_client_options(tls_url("localhost")), "hostname mismatch");
}

void certificate_for_no_address_is_refused(void**) {
  assert_true(serve("wrong-host"));
  refuses_certificate(tls_client_options(), "IP address mismatch");
}

void expired_certificate_is_refused(void**) {
  assert_true(serve("expired"));
  refuses_certificate(tls_client_options(), "expired");
}

void refused_certificate_is_not_tried_in_a_hot_loop(void**) {
  assert_true(serve("expired"));
  client_options options = tls_client_options();
  options.reconnect_min = 1ms;
  options.reconnect_max = 10s;
  make_subject(std::move(options));
  assert_true(run_until(is_refused));
  const long long before = connections_received();
  run_for(1s);
  assert_in_range(connections_received() - before, 1, 2);
}

void refused_client_connects_once_the_certificate_is_renewed(void**) {
  assert_true(serve("expired"));
  make_subject(tls_client_options());
  assert_true(run_until(is_refused));
  assert_true(serve("server"));
  assert_true(run_until([] { return subject().state() == connection_state::ready; }));
  works();
}

void server_name_replaces_the_name_of_the_url(void**) {
  assert_true(serve("wrong-host"));
  client_options options = tls_client_options();
  options.tls.server_name = "elsewhere.test";
  connects_and_works(std::move(options));
}

void server_name_that_does_not_fit_is_refused(void**) {
  client_options options = tls_client_options();
  options.tls.server_name = "elsewhere.test";
  refuses_certificate(std::move(options), "hostname mismatch");
}

void client_certificate_is_shown_where_wanted(void**) {
  assert_true(serve("server", "yes"));
  connects_and_works(as("client"));
}

void client_certificate_is_harmless_where_not_wanted(void**) { connects_and_works(as("client")); }

void client_without_certificate_fails_where_wanted(void**) {
  assert_true(serve("server", "yes"));
  fails_as_unavailable(tls_client_options());
}

void client_with_a_strangers_certificate_fails(void**) {
  assert_true(serve("server", "yes"));
  fails_as_unavailable(as("stranger"));
}

void missing_ca_file_is_an_invalid_argument(void**) {
  client_options options = tls_client_options();
  options.tls.ca_file = file("nonexistent.pem");
  refuses_options(std::move(options));
}

void ca_file_without_certificates_is_an_invalid_argument(void**) {
  client_options options = tls_client_options();
  options.tls.ca_file = file("redis.conf");
  refuses_options(std::move(options));
}

void missing_certificate_file_is_an_invalid_argument(void**) {
  client_options options = as("client");
  options.tls.certificate_file = file("nonexistent.pem");
  refuses_options(std::move(options));
}

void missing_key_file_is_an_invalid_argument(void**) {
  client_options options = as("client");
  options.tls.private_key_file = file("nonexistent.key");
  refuses_options(std::move(options));
}

void certificate_without_key_is_an_invalid_argument(void**) {
  client_options options = as("client");
  options.tls.private_key_file.clear();
  refuses_options(std::move(options));
}

void key_without_certificate_is_an_invalid_argument(void**) {
  client_options options = as("client");
  options.tls.certificate_file.clear();
  refuses_options(std::move(options));
}

void key_of_another_certificate_is_an_invalid_argument(void**) {
  client_options options = as("client");
  options.tls.private_key_file = file("stranger.key");
  refuses_options(std::move(options));
}

// A plain server may wait for the end of what it takes for a command, so this can end by a time-out.
void tls_to_a_plain_port_is_an_error(void**) {
  const std::string plain = tcp_url();
  const error failure = fails_without_a_hot_loop(tls_client_options("rediss" + plain.substr(plain.find(':'))));
  assert_true(failure.code() == error_code::service_unavailable || failure.code() == error_code::network_timeout);
  assert_false(failure.cause().empty());
}

void plain_to_a_tls_port_is_an_error(void**) {
  client_options options = base_options();
  options.url = "redis://127.0.0.1:" + std::to_string(tls_port);
  fails_as_unavailable(std::move(options));
}

// Something that accepts and says nothing: the attempt ends by its time-out.
void silent_server_is_an_error(void**) {
  server().pause();
  client_options options = tls_client_options();
  options.connect_timeout = 100ms;
  options.timeout = 500ms;
  make_subject(std::move(options));
  const auto outcome = await_acquire("k", 60s);
  server().resume();
  must_fail(outcome, error_code::network_timeout);
  assert_true(run_until([] { return subject().state() == connection_state::ready; }));
  works();
}

void big_turn_is_carried(void**) {
  constexpr int count = 2000;
  make_ready_subject(tls_client_options());
  std::vector<started_acquire> acquired;
  for (int index = 0; index < count; ++index)
    acquired.push_back(start_acquire("key:" + std::to_string(index) + std::string(200, 'x'), 60s));
  await_all(acquired);
  std::vector<started_raw_lookup> found;
  for (const auto& one : acquired) found.push_back(start_lookup_raw_by_id(must_have(one.outcome()).id));
  await_all(found);
  for (std::size_t index = 0; index < found.size(); ++index) {
    const auto seen = must_have(found[index].outcome());
    assert_text_equal(seen.id(), must_have(acquired[index].outcome()).id);
  }
  std::vector<started_bool> released;
  for (const auto& one : acquired) released.push_back(start_release(must_have(one.outcome()).id));
  await_all(released);
  for (const auto& one : released) assert_true(must(one.outcome()));
  assert_int_equal(key_count(), count);  // the fence counters
}

void lost_connection_is_made_again(void**) {
  make_ready_subject(tls_client_options());
  const grant held = hold("k");
  redis({"CLIENT", "KILL", "TYPE", "normal"});
  assert_true(run_until([] { return subject().stats().connects == 2; }));
  assert_true(must(await_owns(held.id)));
}

void destroyed_at_any_point_of_the_handshake(void**) {
  for (int turns = 0; turns < 12; ++turns) {
    make_subject(tls_client_options(turns % 2 == 0 ? tls_url() : tls_url("localhost")));
    for (int done = 0; done < turns; ++done) {
      turn();
      std::this_thread::sleep_for(1ms);
    }
    destroy_subject();
    turn();
  }
  connects_and_works(tls_client_options());
}

struct usage {
  long descriptors;
  std::size_t heap_bytes;
};

usage usage_now() {
  const auto open = std::distance(std::filesystem::directory_iterator{"/proc/self/fd"}, {});
  return {open, mallinfo2().uordblks};
}

void connect_and_close_cycles_leave_nothing_behind(void**) {
  usage early{};
  for (int cycle = 1; cycle <= 300; ++cycle) {
    if (cycle % 10 == 0) assert_true(serve("expired"));
    client_options options = tls_client_options();
    options.on_connection = nullptr;
    make_subject(std::move(options));
    assert_true(run_until([] { return subject().state() != connection_state::connecting; }));
    assert_true(is_refused() == (cycle % 10 == 0));
    if (cycle % 2 == 0) must(await(start_close()));
    destroy_subject();
    assert_true(run_until(loop_is_empty));
    if (cycle % 10 == 0) assert_true(serve("server"));
    if (cycle == 100) early = usage_now();
  }
  const usage late = usage_now();
  note("descriptors %ld -> %ld, heap %zu -> %zu bytes", early.descriptors, late.descriptors, early.heap_bytes,
       late.heap_bytes);
  assert_int_equal(late.descriptors, early.descriptors);
  assert_true(late.heap_bytes < early.heap_bytes + 16'384);
}

#define tls_case(name) cmocka_unit_test_setup_teardown(name, set_up_tls, tear_down)

}  // namespace

}  // namespace syncguard::testing

int main() {
  using namespace syncguard::testing;
  std::signal(SIGPIPE, SIG_IGN);
  const CMUnitTest tests[] = {
      tls_case(address_in_the_certificate_is_verified),
      tls_case(name_in_the_certificate_is_verified),
      tls_case(password_and_database_work),
      tls_case(wrong_authority_is_refused),
      tls_case(systems_authorities_do_not_know_the_server),
      tls_case(certificate_for_another_name_is_refused),
      tls_case(certificate_for_no_address_is_refused),
      tls_case(expired_certificate_is_refused),
      tls_case(refused_certificate_is_not_tried_in_a_hot_loop),
      tls_case(refused_client_connects_once_the_certificate_is_renewed),
      tls_case(server_name_replaces_the_name_of_the_url),
      tls_case(server_name_that_does_not_fit_is_refused),
      tls_case(client_certificate_is_shown_where_wanted),
      tls_case(client_certificate_is_harmless_where_not_wanted),
      tls_case(client_without_certificate_fails_where_wanted),
      tls_case(client_with_a_strangers_certificate_fails),
      tls_case(missing_ca_file_is_an_invalid_argument),
      tls_case(ca_file_without_certificates_is_an_invalid_argument),
      tls_case(missing_certificate_file_is_an_invalid_argument),
      tls_case(missing_key_file_is_an_invalid_argument),
      tls_case(certificate_without_key_is_an_invalid_argument),
      tls_case(key_without_certificate_is_an_invalid_argument),
      tls_case(key_of_another_certificate_is_an_invalid_argument),
      tls_case(tls_to_a_plain_port_is_an_error),
      tls_case(plain_to_a_tls_port_is_an_error),
      tls_case(silent_server_is_an_error),
      tls_case(big_turn_is_carried),
      tls_case(lost_connection_is_made_again),
      tls_case(destroyed_at_any_point_of_the_handshake),
      tls_case(connect_and_close_cycles_leave_nothing_behind),
  };
  return cmocka_run_group_tests_name("tls", tests, start_tls_world, stop_world);
}
