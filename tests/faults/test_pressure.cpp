// Servers and machines that run out of something: memory, rights, descriptors, scripts. Built for each loop.

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "contract/locks.hpp"

namespace syncguard::testing {

namespace {

// --- memory ----------------------------------------------------------------------------------------------------------

constexpr std::size_t evictable_locks = 200;

void locks_that_were_evicted_are_told_lost(void**) {
  assert_true(server().config_set("maxmemory-policy", "allkeys-lru"));
  make_ready_subject(watched_options());
  assert_text_equal(only_event(telemetry_type::unsafe_policy).detail, "allkeys-lru");
  warm_up();
  std::vector<started_lock> asked;
  for (std::size_t index = 0; index < evictable_locks; ++index)
    asked.push_back(start_lock("evictable " + std::to_string(index)));
  std::vector<syncguard::lock> held;
  std::vector<shared_loss> losses;
  for (const started_lock& each : asked) {
    held.push_back(await_lock(each));
    losses.push_back(record_loss(held.back()));
  }
  run_for(50ms);

  // Somebody else fills the memory up, until some of the locks have to go.
  const long long used =
      std::stoll(redis({"INFO", "memory"}).text.substr(redis({"INFO", "memory"}).text.find("used_memory:") + 12));
  assert_true(server().config_set("maxmemory", std::to_string(used + (2 << 20))));
  const auto records = [&] {
    std::vector<std::string> command{"EXISTS"};
    for (const syncguard::lock& each : held) command.push_back(lock_key(each.key()));
    return static_cast<std::size_t>(redis(command).integer);
  };
  for (int filler = 0; filler < 5000 && records() > evictable_locks * 3 / 4; ++filler)
    redis({"SET", "filler " + std::to_string(filler), std::string(50'000, 'x')});
  server().config_set("maxmemory", "0");
  const std::size_t gone = evictable_locks - records();
  note("%zu of %zu locks were evicted", gone, evictable_locks);
  assert_true(gone > 0);
  assert_true(run_until([&] {
    return static_cast<std::size_t>(
               std::count_if(losses.begin(), losses.end(), [](const auto& each) { return each->told(); })) == gone;
  }));
  for (std::size_t index = 0; index < held.size(); ++index) {
    const bool there = exists(lock_key(held[index].key()));
    assert_true(there == held[index].valid());
    if (!there) assert_true(losses[index]->why == lost::vanished);
  }
}

void held_locks_live_through_out_of_memory(void**) {
  syncguard::lock held = hold_lock("held", {.ttl = 3s, .wait = 60s});
  await_watching();
  const auto gone = record_loss(held);
  assert_true(server().config_set("maxmemory", "1"));
  must_fail(await_acquire("another", 60s), error_code::rate_limited);
  const std::uint64_t beats = subject().stats().heartbeats;
  assert_true(run_until([&] { return subject().stats().heartbeats >= beats + 3; }));
  assert_true(held.valid());
  assert_false(gone->told());
  assert_true(must(await(start_release(held))));
  assert_false(exists(lock_key("held")));

  // Who waits for a lock has it as soon as there is memory again.
  const auto waiting = start_lock("later");
  run_for(300ms);
  assert_false(waiting.done());
  assert_true(server().config_set("maxmemory", "0"));
  assert_true(await_lock(waiting).valid());
}

// --- rights ----------------------------------------------------------------------------------------------------------

long long connections_received() {
  const std::string info = redis({"INFO", "stats"}).text;
  return std::stoll(info.substr(info.find("total_connections_received:") + 27));
}

void rights_revoked_while_holding_are_told_in_time(void**) {
  const std::vector<std::string> granted{"ACL", "SETUSER", "guest", "reset", "on", ">secret", "~*", "+@all"};
  assert_true(redis(granted).is_text("OK"));
  client_options options = base_options();
  options.url = tcp_url("guest:secret@");
  options.reconnect_min = 20ms;
  options.reconnect_max = 100ms;
  make_ready_subject(std::move(options));
  syncguard::lock held = hold_lock("k", {.ttl = 1500ms, .wait = 60s});
  await_watching();
  const auto gone = record_loss(held);

  assert_true(redis({"ACL", "SETUSER", "guest", "-@all"}).is_text("OK"));
  const long long connections = connections_received();
  const std::int64_t begun_us = now_us();
  await_loss(gone, lost::unconfirmed);
  // The record ends by itself at the same moment, or later.
  assert_false(held.valid());
  must_fail(await_acquire("other", 60s), error_code::auth_failed);
  run_for(300ms);
  const auto tries = static_cast<double>(connections_received() - connections);
  const double seconds = static_cast<double>(now_us() - begun_us) / 1e6;
  note("%.0f connections in %.1f s without rights", tries, seconds);
  // Two connections, each at most every 50 ms, and those that look.
  assert_true(tries <= 20 + 40 * seconds);

  assert_true(redis(granted).is_text("OK"));
  assert_true(run_until([] { return subject().state() == connection_state::ready; }));
  assert_true(hold_lock("k").valid());
}

// --- descriptors -----------------------------------------------------------------------------------------------------

// Takes every descriptor that the process may still open.
class descriptor_hog {
 public:
  descriptor_hog() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit few = before_;
    few.rlim_cur = 128;
    setrlimit(RLIMIT_NOFILE, &few);
    take_more();
  }

  ~descriptor_hog() {
    for (const int each : taken_) close(each);
    setrlimit(RLIMIT_NOFILE, &before_);
  }
  descriptor_hog(const descriptor_hog&) = delete;
  descriptor_hog& operator=(const descriptor_hog&) = delete;

  void take_more() {
    for (int next = 0; (next = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) taken_.push_back(next);
  }

 private:
  rlimit before_{};
  std::vector<int> taken_;
};

std::unique_ptr<descriptor_hog> hog;
std::unique_ptr<watching_connection> looking;

int tear_down_hog(void** state) {
  hog.reset();
  looking.reset();
  return tear_down(state);
}

// The connection for single operations; the other speaks RESP3.
std::string plain_connection_id() {
  const std::string list = looking->command({"CLIENT", "LIST"}).text;
  for (std::size_t line = 0; line < list.size(); line = list.find('\n', line) + 1) {
    const std::string text = list.substr(line, list.find('\n', line) - line);
    if (text.find(" name=syncguard ") != std::string::npos && text.find(" resp=2") != std::string::npos)
      return text.substr(3, text.find(' ') - 3);
  }
  return "";
}

void heartbeats_go_on_without_a_descriptor_to_reconnect_with(void**) {
  client_options options = base_options();
  options.timeout = 500ms;
  // What the lost connection had is taken, too, before the client can use it again.
  options.on_connection = [](connection_state state, const error*) {
    if (state == connection_state::connecting && hog != nullptr) hog->take_more();
  };
  make_ready_subject(std::move(options));
  syncguard::lock held = hold_lock("k", {.ttl = 3s, .wait = 60s});
  await_watching();
  const auto gone = record_loss(held);
  looking = std::make_unique<watching_connection>(server());
  const std::string id = plain_connection_id();
  assert_false(id.empty());

  hog = std::make_unique<descriptor_hog>();
  assert_int_equal(looking->command({"CLIENT", "KILL", "ID", id}).integer, 1);
  assert_true(run_until([] { return subject().state() == connection_state::connecting; }));
  const error failure = must_fail(await_acquire("other", 60s), error_code::service_unavailable);
  note("%s", describe(failure).c_str());
  const std::uint64_t beats = subject().stats().heartbeats;
  const int turns = count_turns_during(4000ms);
  assert_true(subject().stats().heartbeats > beats);
  assert_true(held.valid());
  assert_false(gone->told());
  assert_true(subject().state() == connection_state::connecting);
  // Pauses of at least 25 ms, and a few turns for each attempt and each heartbeat.
  note("%d turns of the loop in 4 s without descriptors", turns);
  assert_true(turns < 4000);

  hog.reset();
  assert_true(run_until([] { return subject().state() == connection_state::ready; }));
  assert_true(must(await_acquire("other", 60s)).has_value());
  assert_true(must(await(start_release(held))));
}

// With no connection at all the loss is told on time, and the client comes back by itself.
void loss_is_told_without_a_descriptor_to_reconnect_with(void**) {
  client_options options = base_options();
  options.timeout = 500ms;
  make_ready_subject(std::move(options));
  syncguard::lock held = hold_lock("k", {.ttl = 3s, .wait = 60s});
  await_watching();
  const auto gone = record_loss(held);
  hog = std::make_unique<descriptor_hog>();
  server().kill_hard();
  run_for(20ms);
  hog->take_more();
  await_loss(gone, lost::unconfirmed);
  must_fail(await_acquire("other", 60s), error_code::service_unavailable);
  hog.reset();
  assert_true(server().start());
  assert_true(run_until([] { return subject().state() == connection_state::ready; }));
  assert_true(hold_lock("k").valid());
}

// --- scripts ---------------------------------------------------------------------------------------------------------

pid_t flusher = -1;

int tear_down_flusher(void** state) {
  if (flusher > 0) {
    kill(flusher, SIGKILL);
    waitpid(flusher, nullptr, 0);
  }
  flusher = -1;
  return tear_down(state);
}

// Somebody flushes the scripts as fast as the server lets them.
void start_flusher() {
  const pid_t parent = getpid();
  flusher = fork();
  if (flusher != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  watching_connection own{server()};
  while (own.command({"SCRIPT", "FLUSH"}).is_text("OK")) usleep(200);
  _exit(0);
}

void flushes_without_end_leave_every_operation_right(void**) {
  const lock_options beating{.ttl = 3s, .wait = 60s};
  std::vector<syncguard::lock> held;
  std::vector<shared_loss> losses;
  for (int index = 0; index < 50; ++index) {
    held.push_back(hold_lock("held " + std::to_string(index), beating));
    losses.push_back(record_loss(held.back()));
  }
  start_flusher();
  assert_true(flusher > 0);
  std::uint64_t rounds = 0;
  const std::int64_t end_us = now_us() + 3'000'000;
  while (now_us() < end_us) {
    // All in one turn, each right only in this order.
    const grant mine = hold("k");
    const auto extended = start_extend(mine.id, 60s);
    const auto released = start_release(mine.id);
    const auto again = start_acquire("k", 60s);
    const auto refused = start_acquire("k", 60s);
    const auto locked = start_is_locked("k");
    const auto unknown = start_lookup_by_id(mine.id);
    must_have(await(extended));
    assert_true(must(await(released)));
    const grant next = must_have(await(again));
    assert_int_equal(next.fence.number(), mine.fence.number() + 1);
    assert_false(must(await(refused)).has_value());
    assert_true(must(await(locked)));
    assert_false(must(await(unknown)).has_value());
    assert_true(must(await_owns(next.id)));
    assert_true(must(await_release(next.id)));
    ++rounds;
  }
  for (std::size_t index = 0; index < held.size(); ++index) {
    assert_false(losses[index]->told());
    assert_true(held[index].valid());
  }
  note("%llu rounds of operations, %llu heartbeats; the scripts were loaded again %llu times",
       static_cast<unsigned long long>(rounds), static_cast<unsigned long long>(subject().stats().heartbeats),
       static_cast<unsigned long long>(subject().stats().scripts_reloaded));
  assert_true(subject().stats().heartbeats > 0);
  assert_true(subject().stats().scripts_reloaded > 10);
}

}  // namespace

}  // namespace syncguard::testing

int main(int count, char** arguments) {
  using namespace syncguard::testing;
  std::signal(SIGPIPE, SIG_IGN);
  if (count > 1) cmocka_set_test_filter(arguments[1]);
  const CMUnitTest tests[] = {
      contract_case_alone(locks_that_were_evicted_are_told_lost),
      contract_case(held_locks_live_through_out_of_memory),
      contract_case_alone(rights_revoked_while_holding_are_told_in_time),
      cmocka_unit_test_setup_teardown(heartbeats_go_on_without_a_descriptor_to_reconnect_with, set_up, tear_down_hog),
      cmocka_unit_test_setup_teardown(loss_is_told_without_a_descriptor_to_reconnect_with, set_up, tear_down_hog),
      cmocka_unit_test_setup_teardown(flushes_without_end_leave_every_operation_right, set_up_with_client,
                                      tear_down_flusher),
  };
  return cmocka_run_group_tests_name("pressure", tests, start_world, stop_world);
}
