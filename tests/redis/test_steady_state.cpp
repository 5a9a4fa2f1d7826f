// What a client costs once it runs: no allocation per operation, nothing left behind by a closed one, no wake-up of an
// idle one, nothing in a child process. Built for each loop.

#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <alloc.h>

#include "contract/operations.hpp"
#include "contract/stored.hpp"
#include "support/allocation_counter.hpp"
#include "support/in_child.hpp"

#if SYNCGUARD_TEST_LOOP_UV
#include <uv.h>

#include <syncguard/uv.hpp>
#else
#include <event2/event.h>

#include <syncguard/event.hpp>
#endif

// The C library's own allocator, which allocation_counter does not see.
// NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp,readability-identifier-naming)
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* block, std::size_t bytes);
void __libc_free(void* block);
}
// NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp,readability-identifier-naming)

namespace syncguard::testing {

namespace {

// hiredis' allocations, told apart from all others.
std::uint64_t hiredis_allocations = 0;

void tell_hiredis_apart() {
  hiredisAllocFuncs counting{};
  counting.mallocFn = [](std::size_t bytes) {
    ++hiredis_allocations;
    return __libc_malloc(bytes);
  };
  counting.callocFn = [](std::size_t count, std::size_t bytes) {
    ++hiredis_allocations;
    return __libc_calloc(count, bytes);
  };
  counting.reallocFn = [](void* block, std::size_t bytes) {
    ++hiredis_allocations;
    return __libc_realloc(block, bytes);
  };
  counting.strdupFn = [](const char* text) {
    ++hiredis_allocations;
    const std::size_t bytes = std::strlen(text) + 1;
    void* copy = __libc_malloc(bytes);
    return copy == nullptr ? nullptr : static_cast<char*>(std::memcpy(copy, text, bytes));
  };
  counting.freeFn = __libc_free;
  hiredisSetAllocators(&counting);
}

constexpr std::size_t in_flight = 256;
constexpr std::uint64_t warm_up_operations = 20'000;
constexpr std::uint64_t counted_operations = 100'000;

enum class work : std::uint8_t { pairs, extend, is_locked, lookup, lookup_by_id };

// Keeps as many operations in flight as there are workers, each with a key of its own, and allocates nothing itself.
class load {
 public:
  load() {
    for (std::size_t index = 0; index < in_flight; ++index) {
      workers_[index].owner = this;
      workers_[index].key = "worker:" + std::to_string(index);
    }
  }

  // All workers get a lock, which reads and extends are about.
  void take_locks() {
    for (worker& each : workers_) each.id = hold(each.key, 10min).id;
  }

  // Returns whether every operation went as it should.
  bool run(work what, std::uint64_t operations) {
    what_ = what;
    left_ = operations;
    active_ = 0;
    wrong_ = 0;
    for (worker& each : workers_) next(each);
    return run_until([this] { return active_ == 0; }, 120s) && wrong_ == 0 && left_ == 0;
  }

 private:
  struct worker {
    load* owner;
    std::string key;
    std::optional<lock_id> id;
  };

  void next(worker& by) {
    if (left_ == 0) return;
    --left_;
    ++active_;
    client& with = subject();
    switch (what_) {
      case work::pairs:
        if (by.id) {
          with.release(by.id->view(), [&by](result<bool> done) {
            by.id.reset();
            by.owner->ended(by, done && *done);
          });
        } else {
          with.acquire(by.key, 10min, [&by](result<std::optional<grant>> done) {
            const bool granted = done && done->has_value();
            if (granted) by.id = (*done)->id;
            by.owner->ended(by, granted);
          });
        }
        return;
      case work::extend:
        with.extend(by.id->view(), 10min,
                    [&by](result<std::optional<server_time>> done) { by.owner->ended(by, done && done->has_value()); });
        return;
      case work::is_locked:
        with.is_locked(by.key, [&by](result<bool> done) { by.owner->ended(by, done && *done); });
        return;
      case work::lookup:
        with.lookup(by.key,
                    [&by](result<std::optional<lock_info>> done) { by.owner->ended(by, done && done->has_value()); });
        return;
      case work::lookup_by_id:
        with.lookup_by_id(by.id->view(), [&by](result<std::optional<lock_info>> done) {
          by.owner->ended(by, done && done->has_value());
        });
        return;
    }
  }

  void ended(worker& by, bool well) {
    --active_;
    if (!well) ++wrong_;
    next(by);
  }

  std::array<worker, in_flight> workers_;
  work what_ = work::pairs;
  std::uint64_t left_ = 0;
  std::uint64_t active_ = 0;
  std::uint64_t wrong_ = 0;
};

std::unique_ptr<load> running;

int set_up_load(void** state) {
  running = std::make_unique<load>();
  return set_up_with_client(state);
}

int tear_down_load(void** state) {
  const int outcome = tear_down(state);
  running.reset();
  return outcome;
}

void allocates_nothing_of_its_own(const char* name, work what) {
  if (what != work::pairs) running->take_locks();
  assert_true(running->run(what, warm_up_operations));
  const std::uint64_t hiredis_before = hiredis_allocations;
  const allocation_counter counter;
  const bool well = running->run(what, counted_operations);
  const std::uint64_t others = counter.count();
  const std::uint64_t hiredis = hiredis_allocations - hiredis_before;
  assert_true(well);
  const double per_operation = static_cast<double>(others + hiredis) / static_cast<double>(counted_operations);
  note("%s: %llu operations, %llu allocations by hiredis, %llu by all others: %.4f per operation", name,
       static_cast<unsigned long long>(counted_operations), static_cast<unsigned long long>(hiredis),
       static_cast<unsigned long long>(others), per_operation);
  assert_int_equal(others, 0);
  assert_true(hiredis > 0);  // else they are not told apart
  assert_true(per_operation <= 0.15);
}

void pairs_allocate_nothing(void**) { allocates_nothing_of_its_own("acquire and release", work::pairs); }
void extend_allocates_nothing(void**) { allocates_nothing_of_its_own("extend", work::extend); }
void is_locked_allocates_nothing(void**) { allocates_nothing_of_its_own("is_locked", work::is_locked); }
void lookup_allocates_nothing(void**) { allocates_nothing_of_its_own("lookup", work::lookup); }
void lookup_by_id_allocates_nothing(void**) { allocates_nothing_of_its_own("lookup by id", work::lookup_by_id); }

struct usage {
  long descriptors;
  std::size_t heap_bytes;
};

usage usage_now() {
  const auto open = std::distance(std::filesystem::directory_iterator{"/proc/self/fd"}, {});
  return {open, mallinfo2().uordblks};
}

// The ways in which a client's life can end, in turn: closed, destroyed while ready, with operations in flight, while
// connecting, never connected at all; by socket, address and name.
void live_and_die(int cycle) {
  client_options options = base_options();
  options.on_connection = nullptr;
  if (cycle % 5 == 4) options.url = tcp_url("nobody:secret@");
  if (cycle % 3 == 1) options.url = tcp_url();
  if (cycle % 7 == 1) options.url = tcp_url("", "localhost");
  make_subject(std::move(options));
  if (cycle % 4 != 3) assert_true(run_until([] { return subject().state() != connection_state::connecting; }));
  if (cycle % 4 == 1)
    for (int index = 0; index < 10; ++index) subject().acquire("k", 60s, {});
  if (cycle % 4 == 0) must(await(start_close()));
  destroy_subject();
  assert_true(run_until(loop_is_empty));
}

void connect_and_close_cycles_leave_nothing_behind(void**) {
  usage early{};
  for (int cycle = 1; cycle <= 1000; ++cycle) {
    live_and_die(cycle);
    if (cycle == 100) early = usage_now();
  }
  const usage late = usage_now();
  note("descriptors %ld -> %ld, heap %zu -> %zu bytes", early.descriptors, late.descriptors, early.heap_bytes,
       late.heap_bytes);
  assert_int_equal(late.descriptors, early.descriptors);
  assert_true(late.heap_bytes < early.heap_bytes + 16'384);
  const std::string clients = redis({"INFO", "clients"}).text;
  assert_true(clients.find("connected_clients:1\r\n") != std::string::npos);  // the one that asks
}

// The same client loses its connection over and over.
void reconnects_leave_nothing_behind(void**) {
  usage early{};
  for (std::uint64_t cycle = 1; cycle <= 300; ++cycle) {
    redis({"CLIENT", "KILL", "TYPE", "normal"});
    assert_true(run_until([&] { return subject().stats().connects == cycle + 1; }));
    assert_true(must(await_release(hold("k").id)));
    states().clear();
    if (cycle == 100) early = usage_now();
  }
  const usage late = usage_now();
  note("descriptors %ld -> %ld, heap %zu -> %zu bytes", early.descriptors, late.descriptors, early.heap_bytes,
       late.heap_bytes);
  assert_int_equal(late.descriptors, early.descriptors);
  assert_true(late.heap_bytes < early.heap_bytes + 16'384);
}

// One turn is the test's own timer.
void idle_client_never_wakes_the_loop(void**) {
  assert_true(must(await_release(hold("k").id)));
  run_for(50ms);
  const int turns = count_turns_during(1s);
  note("%d turns in one second, of which the test's timer is one", turns);
  assert_int_equal(turns, 1);
}

void client_that_holds_locks_never_wakes_the_loop(void**) {
  for (int index = 0; index < 100; ++index) hold("k" + std::to_string(index));
  run_for(50ms);
  assert_int_equal(count_turns_during(1s), 1);
}

// A loop that a child may go on with, as its library says how.
#if SYNCGUARD_TEST_LOOP_UV
class forkable_loop {
 public:
  forkable_loop() { uv_loop_init(&loop_); }
  ~forkable_loop() {
    turn();
    uv_loop_close(&loop_);
  }
  forkable_loop(const forkable_loop&) = delete;
  forkable_loop& operator=(const forkable_loop&) = delete;

  loop for_client() { return uv(&loop_); }
  void turn() { uv_run(&loop_, UV_RUN_NOWAIT); }
  bool go_on_in_child() { return uv_loop_fork(&loop_) == 0; }

 private:
  uv_loop_t loop_{};
};
#else
class forkable_loop {
 public:
  forkable_loop() : base_(event_base_new()) {}
  ~forkable_loop() { event_base_free(base_); }
  forkable_loop(const forkable_loop&) = delete;
  forkable_loop& operator=(const forkable_loop&) = delete;

  loop for_client() { return event(base_); }
  void turn() { event_base_loop(base_, EVLOOP_NONBLOCK); }
  bool go_on_in_child() { return event_reinit(base_) == 0; }

 private:
  event_base* base_;
};
#endif

struct family {
  forkable_loop where;
  std::unique_ptr<client> shared;

  bool run_until(const std::function<bool()>& holds) {
    for (int round = 0; round < 20'000; ++round) {
      if (holds()) return true;
      where.turn();
      usleep(1000);
    }
    return false;
  }

  // The answer to "is this key locked?"; nothing where none came.
  std::optional<result<bool>> ask(std::string_view key) {
    std::optional<result<bool>> answer;
    shared->is_locked(key, [&answer](result<bool> told) { answer.emplace(std::move(told)); });
    return run_until([&] { return answer.has_value(); }) ? std::move(answer) : std::nullopt;
  }
};

std::unique_ptr<family> here;

int set_up_family(void** state) {
  if (set_up(state) != 0) return -1;
  here = std::make_unique<family>();
  client_options options = base_options();
  options.client_name = "parent";
  here->shared = std::make_unique<client>(here->where.for_client(), std::move(options));
  return here->run_until([] { return here->shared->state() == connection_state::ready; }) ? 0 : -1;
}

int tear_down_family(void** state) {
  here->shared.reset();
  here.reset();
  return tear_down(state);
}

// The number under which the server knows the parent's connection.
std::string connection_id() {
  const std::string list = redis({"CLIENT", "LIST"}).text;
  const auto name = list.find(" name=parent ");
  if (name == std::string::npos) return "";
  const auto line = list.rfind("id=", name);
  return list.substr(line, list.find(' ', line) - line);
}

void parent_is_undisturbed(const std::string& id_before) {
  for (int round = 0; round < 20; ++round) here->where.turn();
  const auto answer = here->ask("k");
  assert_true(answer && *answer && !**answer);
  assert_text_equal(connection_id(), id_before);
  assert_int_equal(here->shared->stats().connects, 1);
  assert_true(here->shared->state() == connection_state::ready);
}

void operations_in_a_child_that_goes_on_with_the_loop_fail(void**) {
  const std::string id = connection_id();
  assert_false(id.empty());
  const int verdict = in_child([] {
    if (!here->where.go_on_in_child()) return 2;
    for (int round = 0; round < 3; ++round) {
      const auto answer = here->ask("k");
      if (!answer) return 3;
      if (*answer) return 4;
      if (answer->error().code() != error_code::service_unavailable) return 5;
    }
    return 0;
  });
  parent_is_undisturbed(id);
  assert_int_equal(verdict, 0);
}

void client_destroyed_in_a_child_leaves_the_parent_alone(void**) {
  const std::string id = connection_id();
  const int verdict = in_child([] {
    here->shared->is_locked("k", {});
    here->shared.reset();
    return 0;
  });
  parent_is_undisturbed(id);
  assert_int_equal(verdict, 0);
}

void child_can_have_a_client_of_its_own(void**) {
  const std::string id = connection_id();
  const int verdict = in_child([] {
    family own;
    client_options options = base_options();
    options.client_name = "child";
    own.shared = std::make_unique<client>(own.where.for_client(), std::move(options));
    const auto answer = own.ask("k");
    own.shared.reset();
    return answer && *answer ? 0 : 1;
  });
  parent_is_undisturbed(id);
  assert_int_equal(verdict, 0);
}

void operations_in_flight_at_the_fork_complete_in_the_parent_alone(void**) {
  const std::string id = connection_id();
  int completed = 0;
  for (int index = 0; index < 100; ++index)
    here->shared->acquire("in flight " + std::to_string(index), 60s, [&completed](const auto& outcome) {
      if (outcome && outcome->has_value()) ++completed;
    });
  const int verdict = in_child([] {
    if (!here->where.go_on_in_child()) return 2;
    for (int round = 0; round < 50; ++round) {
      here->where.turn();
      usleep(1000);
    }
    return 0;
  });
  assert_true(here->run_until([&] { return completed == 100; }));
  parent_is_undisturbed(id);
  assert_int_equal(verdict, 0);
}

#define load_case(name) cmocka_unit_test_setup_teardown(name, set_up_load, tear_down_load)
#define family_case(name) cmocka_unit_test_setup_teardown(name, set_up_family, tear_down_family)

}  // namespace

}  // namespace syncguard::testing

int main() {
  using namespace syncguard::testing;
  std::signal(SIGPIPE, SIG_IGN);
  const CMUnitTest counting[] = {
      load_case(pairs_allocate_nothing),         load_case(extend_allocates_nothing),
      load_case(is_locked_allocates_nothing),    load_case(lookup_allocates_nothing),
      load_case(lookup_by_id_allocates_nothing),
  };
  const CMUnitTest others[] = {
      contract_case_alone(connect_and_close_cycles_leave_nothing_behind),
      contract_case(reconnects_leave_nothing_behind),
      contract_case(idle_client_never_wakes_the_loop),
      contract_case(client_that_holds_locks_never_wakes_the_loop),
      family_case(operations_in_a_child_that_goes_on_with_the_loop_fail),
      family_case(client_destroyed_in_a_child_leaves_the_parent_alone),
      family_case(child_can_have_a_client_of_its_own),
      family_case(operations_in_flight_at_the_fork_complete_in_the_parent_alone),
  };
  std::vector<CMUnitTest> all{std::begin(others), std::end(others)};
  if (allocation_counter::available()) {
    tell_hiredis_apart();
    all.insert(all.begin(), std::begin(counting), std::end(counting));
  } else {
    note("allocations: skipped, a sanitizer has replaced the allocator, there is nothing to count with");
  }
  return _cmocka_run_group_tests("steady_state", all.data(), all.size(), start_world, stop_world);
}
