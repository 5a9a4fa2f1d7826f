// The suite's loop, by libevent.

#include <memory>

#include <event2/event.h>

#include <syncguard/event.hpp>

#include "contract/test_loop.hpp"

namespace syncguard::testing {

namespace {

class event_test_loop final : public test_loop {
 public:
  event_test_loop()
      : base_(event_base_new()),
        alarm_(evtimer_new(
            base_, [](evutil_socket_t, short, void*) {}, nullptr)) {}

  ~event_test_loop() override {
    event_free(alarm_);
    event_base_free(base_);
  }

  event_test_loop(const event_test_loop&) = delete;
  event_test_loop& operator=(const event_test_loop&) = delete;

  loop for_client() override { return event(base_); }

  void turn(std::chrono::milliseconds wait_max) override {
    if (wait_max.count() == 0) {
      event_base_loop(base_, EVLOOP_NONBLOCK);
      return;
    }
    const timeval time{.tv_sec = wait_max.count() / 1000, .tv_usec = wait_max.count() % 1000 * 1000};
    evtimer_add(alarm_, &time);
    event_base_loop(base_, EVLOOP_ONCE);
    evtimer_del(alarm_);
  }

  bool empty() const override {
    return event_base_get_num_events(base_, EVENT_BASE_COUNT_ADDED | EVENT_BASE_COUNT_ACTIVE) == 0;
  }

 private:
  event_base* base_;
  ::event* alarm_;
};

}  // namespace

std::unique_ptr<test_loop> make_test_loop() { return std::make_unique<event_test_loop>(); }

}  // namespace syncguard::testing
