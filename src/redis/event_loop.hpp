#pragma once

// What a connection needs from the loop it lives in. Implemented for libuv and libevent in src/loop/.

#include <time.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

struct redisAsyncContext;

namespace syncguard::redis {

// What the loop tells. Each call comes from the loop itself, never from inside a call to it.
class loop_sink {
 public:
  virtual void on_turn_end() = 0;
  virtual void on_timer() = 0;

  // Numeric addresses in the order to try them; none: `why` says what went wrong.
  virtual void on_resolved(std::vector<std::string> addresses, std::string_view why) = 0;

 protected:
  ~loop_sink() = default;
};

// Ownership: the loop stays its owner's. Destroying this ends everything it has started; nothing is told afterwards.
class event_loop {
 public:
  virtual ~event_loop() = default;

  virtual void open(loop_sink& sink) = 0;

  // Lets hiredis' adapter for this loop watch the connection.
  virtual bool attach(redisAsyncContext& connection) = 0;

  // The one timer: on_timer() after the delay, once.
  virtual void arm(std::int64_t delay_ms) = 0;
  virtual void disarm() = 0;

  // on_turn_end() once, before the loop sleeps again.
  virtual void want_turn_end() = 0;

  // on_resolved() later, unless cancelled. All who use a loop ask for the same host: who asks while an answer is still
  // to come waits for that one, and the sink passes it on to all of them. Each may cancel once before it is told.
  virtual void resolve(const std::string& host) = 0;
  virtual void cancel_resolve() = 0;
};

// Time that goes on while the machine is suspended.
inline std::int64_t now_us() noexcept {
  timespec time{};
  clock_gettime(CLOCK_BOOTTIME, &time);
  return std::int64_t{time.tv_sec} * 1'000'000 + time.tv_nsec / 1000;
}

// Changes every few milliseconds, and is read in a fraction of the time that now_us() takes.
inline std::int64_t clock_tick() noexcept {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace syncguard::redis
