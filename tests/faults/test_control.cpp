// The control experiment: what the fence is for. Built for each loop.
//
// Several processes increment two counters under one lock: read both, make sure that the lock is valid, write both.
// Some are stopped between the last two steps, for longer than the lock lives; meanwhile others go on. The store of one
// counter looks at the fence, as a store should; that of the other does not. The first must lose no update that it has
// acknowledged. The second must lose some, or the stops were harmless and the first result proves nothing.

#include <hiredis.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "contract/locks.hpp"
#include "faults/other_processes.hpp"
#include "support/mutations.hpp"

namespace syncguard::testing {

namespace {

constexpr std::size_t writers = 5;
constexpr int stops_wanted = 12;
constexpr milliseconds ttl = 400ms;
constexpr unsigned one_in = 6;  // critical sections that are stopped

// KEYS: the counter, the highest fence that wrote it. ARGV: the fence, the new value.
constexpr const char* fenced_write =
    "if (tonumber(redis.call('GET', KEYS[2])) or 0) >= tonumber(ARGV[1]) then return 0 end "
    "redis.call('MSET', KEYS[1], ARGV[2], KEYS[2], ARGV[1]) return 1";

struct ledger {
  std::atomic<bool> finish;
  std::atomic<std::uint64_t> acknowledged_fenced;
  std::atomic<std::uint64_t> acknowledged_unfenced;
  std::atomic<std::uint64_t> refused;
  std::atomic<int> finished;
};
ledger* shared = nullptr;

// --- a writer --------------------------------------------------------------------------------------------------------

// The store is no part of the lock: a connection of its own.
class store_connection {
 public:
  explicit store_connection(const std::string& path) : context_(redisConnectUnix(path.c_str())) {}
  ~store_connection() { redisFree(context_); }
  store_connection(const store_connection&) = delete;
  store_connection& operator=(const store_connection&) = delete;

  long long read(const char* key) {
    const auto answer = run("GET %s", key);
    return answer != nullptr && answer->str != nullptr ? std::atoll(answer->str) : 0;
  }

  bool write_fenced(std::uint64_t fence, long long value) {
    const auto answer =
        run("EVAL %s 2 fenced fenced:fence %llu %lld", fenced_write, static_cast<unsigned long long>(fence), value);
    return answer != nullptr && answer->type == REDIS_REPLY_INTEGER && answer->integer == 1;
  }

  bool write_unfenced(long long value) {
    const auto answer = run("SET unfenced %lld", value);
    return answer != nullptr && answer->type == REDIS_REPLY_STATUS;
  }

 private:
  struct reply_deleter {
    void operator()(redisReply* reply) const noexcept { freeReplyObject(reply); }
  };

  template <class... Arguments>
  std::unique_ptr<redisReply, reply_deleter> run(const char* format, Arguments... arguments) {
    return std::unique_ptr<redisReply, reply_deleter>{
        static_cast<redisReply*>(redisCommand(context_, format, arguments...))};
  }

  redisContext* context_;
};

struct writer {
  test_loop& where;
  client& own;
  store_connection& store;
  std::mt19937_64 random;

  void increment(const syncguard::lock& held) {
    const long long fenced = store.read("fenced");
    const long long unfenced = store.read("unfenced");
    where.turn(1ms);
    if (!held.valid()) return;
    // The worst moment: everything has been checked.
    if (random() % one_in == 0 && !shared->finish) raise(SIGSTOP);
    if (store.write_fenced(held.fence().number(), fenced + 1)) ++shared->acknowledged_fenced;
    else ++shared->refused;
    if (store.write_unfenced(unfenced + 1)) ++shared->acknowledged_unfenced;
  }

  void work() {
    while (!shared->finish) {
      bool answered = false;
      syncguard::lock held;
      own.lock("counter", {.ttl = ttl, .wait = 60s}, [&](result<syncguard::lock> got) {
        answered = true;
        if (got) held = *std::move(got);
      });
      while (!answered) where.turn(5ms);
      if (held) increment(held);
    }
  }
};

int be_writer(const std::string& socket, const std::string& path, std::uint64_t seed) {
  shared = map_shared<ledger>(path, false);
  if (shared == nullptr) return 2;
  const auto where = make_test_loop();
  client_options options;
  options.url = "unix://" + socket;
  client own{where->for_client(), options};
  store_connection store{socket};
  writer me{*where, own, store, std::mt19937_64{seed}};
  me.work();
  ++shared->finished;
  return 0;
}

// --- the one who looks on --------------------------------------------------------------------------------------------

std::unique_ptr<other_processes> others;

int set_up_writers(void** state) {
  if (set_up(state) != 0) return -1;
  const std::string path = server().folder() + "/ledger";
  shared = map_shared<ledger>(path, true);
  if (shared == nullptr) return -1;
  others = std::make_unique<other_processes>();
  const std::uint64_t seed = random_seed();
  for (std::size_t number = 0; number < writers; ++number)
    if (!others->start({"writer", server().socket_path(), path, std::to_string(seed + number)})) return -1;
  return 0;
}

int tear_down_writers(void** state) {
  others.reset();
  return tear_down(state);
}

struct stop {
  bool under_way = false;
  std::int64_t since_us = 0;
  std::uint64_t updates_before = 0;
};

// Lets a stopped writer go on when its lock is over and somebody else has written since; returns whether it did. Where
// nobody is left who could write, it goes on all the same.
bool wake_when_due(pid_t which, stop& of) {
  const std::int64_t slept_us = now_us() - of.since_us;
  const bool overtaken = shared->acknowledged_fenced > of.updates_before;
  if (slept_us < (ttl + 100ms).count() * 1000 || (!overtaken && slept_us < 3'000'000)) return false;
  of.under_way = false;
  other_processes::resume(which);
  return overtaken;
}

void fence_check_keeps_every_update_and_its_absence_does_not(void**) {
  std::array<stop, writers> stops;
  int overtaken = 0;
  const auto watch = [&] {
    for (std::size_t number = 0; number < writers; ++number) {
      const pid_t which = others->pids()[number];
      stop& seen = stops[number];
      int status = 0;
      if (!seen.under_way && waitpid(which, &status, WNOHANG | WUNTRACED) == which && WIFSTOPPED(status))
        seen = {true, now_us(), shared->acknowledged_fenced};
      if (seen.under_way && wake_when_due(which, seen)) ++overtaken;
    }
  };
  assert_true(run_until(
      [&] {
        watch();
        return overtaken >= stops_wanted;
      },
      120s));
  shared->finish = true;
  assert_true(run_until(
      [&] {
        watch();
        return shared->finished == static_cast<int>(writers);
      },
      60s));

  const auto fenced = std::stoull(redis({"GET", "fenced"}).text);
  const auto unfenced = std::stoull(redis({"GET", "unfenced"}).text);
  const std::uint64_t lost_unfenced = shared->acknowledged_unfenced - unfenced;
  note("%d stops in which others went on; with the fence check %llu updates acknowledged, %llu there, %llu refused",
       overtaken, static_cast<unsigned long long>(shared->acknowledged_fenced), fenced,
       static_cast<unsigned long long>(shared->refused));
  note("without it: %llu acknowledged, %llu there, %llu lost",
       static_cast<unsigned long long>(shared->acknowledged_unfenced), unfenced,
       static_cast<unsigned long long>(lost_unfenced));
  assert_int_equal(fenced, shared->acknowledged_fenced);
  assert_true(shared->refused > 0);
  assert_true(unfenced < shared->acknowledged_unfenced);
}

}  // namespace

}  // namespace syncguard::testing

int main(int count, char** arguments) {
  using namespace syncguard::testing;
  std::signal(SIGPIPE, SIG_IGN);
  if (count == 5 && std::string_view{arguments[1]} == "writer")
    return be_writer(arguments[2], arguments[3], std::strtoull(arguments[4], nullptr, 10));
  const CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(fence_check_keeps_every_update_and_its_absence_does_not, set_up_writers,
                                      tear_down_writers),
  };
  return cmocka_run_group_tests_name("control", tests, start_world, stop_world);
}
