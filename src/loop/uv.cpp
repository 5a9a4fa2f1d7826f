// A client's life in a libuv loop: one timer, a prepare handle for the end of a turn, hiredis' adapter for the socket.
//
// Prepare callbacks run right before the loop polls, so whatever was started in this turn leaves with it. A wish that
// comes up inside such a callback, ours or anybody's, would have to wait for the next event: hence an idle handle,
// which keeps the loop from sleeping until ours has run.

#include <syncguard/uv.hpp>

#include <memory>
#include <string>
#include <utility>

#include <hiredis.h>

#include "loop/addresses.hpp"
#include "redis/event_loop.hpp"

// The adapter is C, and not written for our warnings.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wpragmas"
#include <adapters/libuv.h>
#pragma GCC diagnostic pop

namespace syncguard {

namespace {

// libuv frees handles in its own time, so they live apart from the loop object and outlive it.
struct handles {
  uv_prepare_t turn_end;
  uv_idle_t awake;
  uv_timer_t timer;
  redis::loop_sink* sink = nullptr;  // null: closed
  int open = 3;

  template <class Handle>
  static handles& of(Handle* handle) noexcept {
    return *static_cast<handles*>(handle->data);
  }

  template <class Handle>
  void close(Handle& handle) noexcept {
    uv_close(reinterpret_cast<uv_handle_t*>(&handle), [](uv_handle_t* closed) {
      handles& self = of(closed);
      if (--self.open == 0) delete &self;
    });
  }
};

// How hiredis' adapter watches its socket, with one thing mended: libuv stops watching a socket that has an error, and
// the adapter does not notice. What arrived before a reset was still read then, and the reset itself never seen.
struct socket_watch {
  template <int Event, bool Wanted>
  static void want(void* adapter) {
    auto& self = *static_cast<redisLibuvEvents*>(adapter);
    const int events = Wanted ? self.events | Event : self.events & ~Event;
    if (events == self.events) return;
    self.events = events;
    watch(self);
  }

  static void watch(redisLibuvEvents& self) {
    if (self.events != 0) uv_poll_start(&self.handle, self.events, ready);
    else uv_poll_stop(&self.handle);
  }

  static void ready(uv_poll_t* handle, int status, int events) {
    redisLibuvPoll(handle, status, events);
    auto& self = *static_cast<redisLibuvEvents*>(handle->data);
    if (status != 0 && self.context != nullptr) watch(self);
  }

  static void attach(redisAsyncContext& connection) {
    connection.ev.addRead = want<UV_READABLE, true>;
    connection.ev.delRead = want<UV_READABLE, false>;
    connection.ev.addWrite = want<UV_WRITABLE, true>;
    connection.ev.delWrite = want<UV_WRITABLE, false>;
  }
};

class uv_event_loop;

// A name being resolved. The request belongs to libuv until it calls back, cancelled or not.
struct lookup {
  uv_getaddrinfo_t request;
  uv_event_loop* asker;  // null: cancelled
};

class uv_event_loop final : public redis::event_loop {
 public:
  explicit uv_event_loop(uv_loop_t* loop) : loop_(loop) {}

  ~uv_event_loop() override {
    forget_lookup();
    if (handles_ == nullptr) return;
    handles_->sink = nullptr;
    handles_->close(handles_->turn_end);
    handles_->close(handles_->awake);
    handles_->close(handles_->timer);
  }

  uv_event_loop(const uv_event_loop&) = delete;
  uv_event_loop& operator=(const uv_event_loop&) = delete;

  void open(redis::loop_sink& sink) override {
    handles_ = new handles;
    handles_->sink = &sink;
    uv_prepare_init(loop_, &handles_->turn_end);
    uv_idle_init(loop_, &handles_->awake);
    uv_timer_init(loop_, &handles_->timer);
    handles_->turn_end.data = handles_->awake.data = handles_->timer.data = handles_;
  }

  bool attach(redisAsyncContext& connection) override {
    if (redisLibuvAttach(&connection, loop_) == REDIS_OK) {
      socket_watch::attach(connection);
      return true;
    }
    connection.ev = {};  // the adapter leaves its functions behind, and they would follow a null pointer
    return false;
  }

  void arm(std::int64_t delay_ms) override {
    uv_update_time(loop_);  // the delay counts from now, not from when the turn began
    uv_timer_start(
        &handles_->timer,
        [](uv_timer_t* timer) {
          if (auto* sink = handles::of(timer).sink) sink->on_timer();
        },
        static_cast<std::uint64_t>(delay_ms > 0 ? delay_ms : 1), 0);  // before 1.45 one of 0 ms runs in the same turn
  }

  void disarm() override { uv_timer_stop(&handles_->timer); }

  void want_turn_end() override {
    if (uv_is_active(reinterpret_cast<uv_handle_t*>(&handles_->turn_end)) != 0) return;
    uv_prepare_start(&handles_->turn_end, end_turn);
    uv_idle_start(&handles_->awake, [](uv_idle_t*) {});
  }

  void resolve(const std::string& host) override {
    if (lookup_ != nullptr) {
      ++waiting_;
      return;
    }
    auto* asked = new lookup{{}, this};
    asked->request.data = asked;
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    if (uv_getaddrinfo(loop_, &asked->request, resolved, host.c_str(), nullptr, &hints) == 0) {
      lookup_ = asked;
      waiting_ = 1;
    } else {
      delete asked;  // out of memory: nothing will be told, and the connection's own time-out ends the attempt
    }
  }

  void cancel_resolve() override {
    if (lookup_ != nullptr && --waiting_ == 0) forget_lookup();
  }

 private:
  void forget_lookup() {
    lookup* asked = std::exchange(lookup_, nullptr);
    if (asked == nullptr) return;
    asked->asker = nullptr;
    uv_cancel(reinterpret_cast<uv_req_t*>(&asked->request));  // may fail; then its answer is dropped
  }

  static void end_turn(uv_prepare_t* handle) {
    handles& self = handles::of(handle);
    uv_prepare_stop(handle);
    uv_idle_stop(&self.awake);
    if (self.sink != nullptr) self.sink->on_turn_end();
  }

  static void resolved(uv_getaddrinfo_t* request, int status, addrinfo* found) {
    const std::unique_ptr<lookup> asked{static_cast<lookup*>(request->data)};
    auto addresses = numeric_addresses(found);
    uv_freeaddrinfo(found);
    uv_event_loop* asker = asked->asker;
    if (asker == nullptr) return;
    asker->lookup_ = nullptr;
    asker->handles_->sink->on_resolved(std::move(addresses), status != 0 ? uv_strerror(status) : "");
  }

  uv_loop_t* loop_;
  handles* handles_ = nullptr;
  lookup* lookup_ = nullptr;
  int waiting_ = 0;  // for the lookup
};

}  // namespace

loop uv(uv_loop_t* where) { return loop{std::make_unique<uv_event_loop>(where)}; }

}  // namespace syncguard
