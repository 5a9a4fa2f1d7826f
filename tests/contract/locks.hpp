#pragma once

// Held locks for cases: start a call of lock() and look at it later, or wait for it; and what on_lost was told.
//
// What callbacks record lives on the heap and is shared, as in operations.hpp. A lock that was granted stays in the
// record until the case takes it.

#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/operations.hpp"
#include "contract/stored.hpp"
#include "redis/event_loop.hpp"

namespace syncguard::testing {

inline std::int64_t now_us() { return redis::now_us(); }

struct lock_answer {
  int calls = 0;
  std::optional<error> failure;
  syncguard::lock held;
};

struct started_lock {
  std::shared_ptr<lock_answer> got;
  operation_handle handle;

  bool done() const { return got->calls > 0; }
  bool granted() const { return static_cast<bool>(got->held); }
};

// Patient and long-lived, so that nothing but the case itself ends the waiting or the lock.
inline constexpr lock_options steady{.ttl = 60s, .wait = 60s};

// Lives for so short a time that a case can wait for several of it.
inline constexpr lock_options brief{.ttl = 500ms, .wait = 60s};

inline started_lock start_lock(std::string_view key, const lock_options& options = steady, client& by = subject()) {
  started_lock it{std::make_shared<lock_answer>(), {}};
  it.handle = by.lock(key, options, [got = it.got](result<syncguard::lock> outcome) {
    if (++got->calls > 1) breach("a call of lock() completed twice");
    if (outcome) got->held = *std::move(outcome);
    else got->failure = outcome.error();
  });
  if (it.done()) breach("a callback ran inside the call that started its operation");
  return it;
}

// The lock of a call that must get it.
inline syncguard::lock await_lock(const started_lock& it, call_place at = call_place::current()) {
  const bool came = run_until([&] { return it.done(); });
  if (!came || !it.granted()) {
    print_error("%s\n", came ? describe(*it.got->failure).c_str() : "nothing came of a call of lock()");
    _fail(at.file, at.line);
  }
  return std::move(it.got->held);
}

inline syncguard::lock hold_lock(std::string_view key, const lock_options& options = steady, client& by = subject(),
                                 call_place at = call_place::current()) {
  return await_lock(start_lock(key, options, by), at);
}

// The error of a call that must end with one, of this code.
inline error await_failure(const started_lock& it, error_code wanted, call_place at = call_place::current()) {
  const bool came = run_until([&] { return it.done(); });
  if (!came || it.granted() || it.got->failure->code() != wanted || it.got->failure->message().empty()) {
    print_error("wanted %s: %s\n", to_string(wanted).data(),
                !came          ? "nothing came"
                : it.granted() ? "granted"
                               : describe(*it.got->failure).c_str());
    _fail(at.file, at.line);
  }
  return *it.got->failure;
}

struct loss {
  int calls = 0;
  std::optional<lost> why;
  std::int64_t at_us = 0;
  std::int64_t server_ttl_ms = 0;  // what was left of the record; -2: it was gone

  bool told() const { return calls > 0; }
};

using shared_loss = std::shared_ptr<loss>;

inline shared_loss record_loss(syncguard::lock& of) {
  auto seen = std::make_shared<loss>();
  of.on_lost([seen](lost why) {
    if (++seen->calls > 1) breach("on_lost was told twice");
    seen->why = why;
    seen->at_us = now_us();
  });
  if (seen->told()) breach("on_lost ran inside the call that set it");
  return seen;
}

inline void await_loss(const shared_loss& of, lost wanted, call_place at = call_place::current()) {
  const bool told = run_until([&] { return of->told(); });
  if (told && of->why == wanted) return;
  print_error("seen %s, wanted %s\n", told ? to_string(*of->why).data() : "nothing", to_string(wanted).data());
  _fail(at.file, at.line);
}

inline started_extend start_extend(syncguard::lock& of, milliseconds ttl) {
  return start<std::optional<server_time>>([&](auto done) {
    of.extend(ttl, std::move(done));
    return operation_handle{};
  });
}

inline started_bool start_release(syncguard::lock& of) {
  return start<bool>([&](auto done) {
    of.release(std::move(done));
    return operation_handle{};
  });
}

// Whether the connection that is told of changes is there: from then on waiting does not poll.
inline void await_watching(client& by = subject(), call_place at = call_place::current()) {
  if (run_until([&] { return by.stats().watching; })) return;
  print_error("the connection that is told of changes did not come up\n");
  _fail(at.file, at.line);
}

// Brings that connection up before the case begins in earnest.
inline void warm_up(client& by = subject(), call_place at = call_place::current()) {
  if (by.stats().watching) return;
  { const syncguard::lock first = hold_lock("warm-up", steady, by, at); }
  await_watching(by, at);
  if (run_until([&] { return by.stats().pending == 0; })) return;
  print_error("the lock of the warm-up was not given back\n");
  _fail(at.file, at.line);
}

// A call that waits, and whose waiting rests on the server's notice.
inline started_lock start_waiting(std::string_view key, const lock_options& options = steady, client& by = subject(),
                                  call_place at = call_place::current()) {
  warm_up(by, at);
  const std::uint64_t before = by.stats().attempts;
  auto waiting = start_lock(key, options, by);
  const bool tried = run_until([&] { return by.stats().attempts > before; });
  run_for(30ms);
  if (!tried || waiting.done()) {
    print_error("the lock was not held by others\n");
    _fail(at.file, at.line);
  }
  return waiting;
}

}  // namespace syncguard::testing
