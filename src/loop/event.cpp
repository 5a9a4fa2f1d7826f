// A client's life in a libevent base: one timer, an event that is made active for the end of a turn, hiredis' adapter
// for the socket, evdns for names.
//
// An event that is made active runs after those that are active already, and before the base sleeps again. Made active
// inside its own callback it would run before the base looks at any socket, for ever if each run wants another: then it
// is a time-out of zero.

#include <syncguard/event.hpp>

#include <event2/dns.h>
#include <event2/util.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <hiredis.h>

#include "loop/addresses.hpp"
#include "redis/event_loop.hpp"

// The adapter is C, and not written for our warnings.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wpragmas"
#include <adapters/libevent.h>
#pragma GCC diagnostic pop

namespace syncguard {

namespace {

struct event_deleter {
  void operator()(::event* what) const noexcept { event_free(what); }
};
using event_pointer = std::unique_ptr<::event, event_deleter>;

class libevent_event_loop;

// The resolver. Answers that evdns has put off, those to cancelled lookups too, reach into it: it must not end before
// the last of them was given.
class resolver {
 public:
  explicit resolver(event_base* base) : base_(base) {
    names_ = evdns_base_new(base, EVDNS_BASE_INITIALIZE_NAMESERVERS | EVDNS_BASE_DISABLE_WHEN_INACTIVE);
    // Without a usable resolv.conf there is still the hosts file.
    if (names_ == nullptr) names_ = evdns_base_new(base, EVDNS_BASE_DISABLE_WHEN_INACTIVE);
  }
  ~resolver() {
    if (names_ != nullptr) evdns_base_free(names_, 1);
  }
  resolver(const resolver&) = delete;
  resolver& operator=(const resolver&) = delete;

  evdns_base* names() const noexcept { return names_; }

  void begin_lookup() noexcept { ++lookups_; }
  void end_lookup() {
    if (--lookups_ == 0 && orphaned_) end_later();
  }

  // Nobody asks any more.
  void orphan() {
    orphaned_ = true;
    if (lookups_ == 0) delete this;
  }

 private:
  // evdns is still on the stack.
  void end_later() {
    constexpr timeval at_once{};
    const auto end = [](evutil_socket_t, short, void* self) { delete static_cast<resolver*>(self); };
    event_base_once(base_, -1, EV_TIMEOUT, end, this, &at_once);
  }

  event_base* base_;
  evdns_base* names_;
  int lookups_ = 0;
  bool orphaned_ = false;
};

// A name being resolved. Belongs to evdns until it calls back, cancelled or not.
struct lookup {
  libevent_event_loop* asker;  // null: cancelled
  resolver* by;
  evdns_getaddrinfo_request* request;
};

class libevent_event_loop final : public redis::event_loop {
 public:
  explicit libevent_event_loop(event_base* base) : base_(base) {}

  ~libevent_event_loop() override {
    if (gone_ != nullptr) *gone_ = true;
    forget_lookup();
    if (resolver_ != nullptr) resolver_->orphan();
  }

  libevent_event_loop(const libevent_event_loop&) = delete;
  libevent_event_loop& operator=(const libevent_event_loop&) = delete;

  void open(redis::loop_sink& sink) override {
    sink_ = &sink;
    timer_.reset(event_new(
        base_, -1, 0, [](evutil_socket_t, short, void* self) { told(self).on_timer(); }, this));
    turn_end_.reset(event_new(base_, -1, 0, end_turn, this));
    answered_.reset(event_new(
        base_, -1, 0,
        [](evutil_socket_t, short, void* data) {
          auto& self = *static_cast<libevent_event_loop*>(data);
          self.waiting_ = 0;
          self.sink_->on_resolved(std::exchange(self.addresses_, {}), std::exchange(self.why_, ""));
        },
        this));
  }

  bool attach(redisAsyncContext& connection) override { return redisLibeventAttach(&connection, base_) == REDIS_OK; }

  void arm(std::int64_t delay_ms) override {
    if (delay_ms < 0) delay_ms = 0;
    const timeval delay{.tv_sec = delay_ms / 1000, .tv_usec = delay_ms % 1000 * 1000};
    event_base_update_cache_time(base_);  // the delay counts from now, not from when the turn began
    event_add(timer_.get(), &delay);
  }

  void disarm() override { event_del(timer_.get()); }

  void want_turn_end() override {
    constexpr timeval at_once{};
    if (gone_ != nullptr) {
      event_add(turn_end_.get(), &at_once);
    } else {
      event_active(turn_end_.get(), EV_TIMEOUT, 0);
    }
  }

  void resolve(const std::string& host) override {
    if (waiting_ > 0) {
      ++waiting_;
      return;
    }
    if (resolver_ == nullptr) resolver_ = new resolver{base_};
    evdns_base* const names = resolver_->names();
    if (names == nullptr) return;            // nothing will be told, and the connection's own time-out ends the attempt
    evdns_base_clear_host_addresses(names);  // loading adds to what was loaded before
    evdns_base_load_hosts(names, "/etc/hosts");
    evutil_addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    auto* asked = new lookup{this, resolver_, nullptr};
    lookup_ = asked;
    waiting_ = 1;
    resolver_->begin_lookup();
    // May call back before it returns, and then returns nothing.
    evdns_getaddrinfo_request* request = evdns_getaddrinfo(names, host.c_str(), nullptr, &hints, resolved, asked);
    if (request != nullptr && lookup_ == asked) asked->request = request;
  }

  void cancel_resolve() override {
    if (waiting_ > 0 && --waiting_ == 0) forget_lookup();
  }

 private:
  static redis::loop_sink& told(void* self) { return *static_cast<libevent_event_loop*>(self)->sink_; }

  void forget_lookup() {
    if (answered_ != nullptr) event_del(answered_.get());
    lookup* asked = std::exchange(lookup_, nullptr);
    if (asked == nullptr) return;
    asked->asker = nullptr;
    if (asked->request != nullptr) evdns_getaddrinfo_cancel(asked->request);
  }

  static void end_turn(evutil_socket_t, short, void* data) {
    auto& self = *static_cast<libevent_event_loop*>(data);
    bool gone = false;
    self.gone_ = &gone;
    self.sink_->on_turn_end();
    if (!gone) self.gone_ = nullptr;
  }

  // Told by an event of its own, because evdns may know the answer at once.
  static void resolved(int status, evutil_addrinfo* found, void* data) {
    const std::unique_ptr<lookup> asked{static_cast<lookup*>(data)};
    auto addresses = numeric_addresses(found);
    if (found != nullptr) evutil_freeaddrinfo(found);
    asked->by->end_lookup();
    libevent_event_loop* asker = asked->asker;
    if (asker == nullptr) return;
    asker->lookup_ = nullptr;
    asker->addresses_ = std::move(addresses);
    asker->why_ = status != 0 ? evutil_gai_strerror(status) : "";
    event_active(asker->answered_.get(), EV_TIMEOUT, 0);
  }

  event_base* base_;
  redis::loop_sink* sink_ = nullptr;
  bool* gone_ = nullptr;  // a flag on the stack of end_turn(), while that runs
  event_pointer timer_;
  event_pointer turn_end_;
  event_pointer answered_;
  resolver* resolver_ = nullptr;  // ends by itself
  lookup* lookup_ = nullptr;
  int waiting_ = 0;  // for the lookup, or for its answer to be told
  std::vector<std::string> addresses_;
  const char* why_ = "";
};

}  // namespace

loop event(event_base* where) { return loop{std::make_unique<libevent_event_loop>(where)}; }

}  // namespace syncguard
