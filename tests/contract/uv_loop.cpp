// The suite's loop, by libuv.

#include <cstdint>
#include <memory>

#include <uv.h>

#include <syncguard/uv.hpp>

#include "contract/test_loop.hpp"

namespace syncguard::testing {

namespace {

class uv_test_loop final : public test_loop {
 public:
  uv_test_loop() {
    uv_loop_init(&loop_);
    uv_timer_init(&loop_, &alarm_);
  }

  ~uv_test_loop() override {
    uv_close(reinterpret_cast<uv_handle_t*>(&alarm_), nullptr);
    uv_run(&loop_, UV_RUN_NOWAIT);
    uv_loop_close(&loop_);
  }

  uv_test_loop(const uv_test_loop&) = delete;
  uv_test_loop& operator=(const uv_test_loop&) = delete;

  loop for_client() override { return uv(&loop_); }

  void turn(std::chrono::milliseconds wait_max) override {
    if (wait_max.count() == 0) {
      uv_run(&loop_, UV_RUN_NOWAIT);
      return;
    }
    // Repeating: the loop's clock may lag behind, and an alarm that rings before the poll must ring again to end it.
    const auto time_ms = static_cast<std::uint64_t>(wait_max.count());
    uv_timer_start(
        &alarm_, [](uv_timer_t*) {}, time_ms, time_ms);
    uv_run(&loop_, UV_RUN_ONCE);
    uv_timer_stop(&alarm_);
  }

  bool empty() const override {
    struct walk {
      const void* own;
      int others;
    } seen{&alarm_, 0};
    auto* where = const_cast<uv_loop_t*>(&loop_);  // uv_walk() changes nothing, but does not say so
    const auto count = [](uv_handle_t* handle, void* data) {
      auto* counted = static_cast<walk*>(data);
      if (handle != counted->own) ++counted->others;
    };
    uv_walk(where, count, &seen);
    return seen.others == 0 && uv_loop_alive(where) == 0;
  }

 private:
  uv_loop_t loop_{};
  uv_timer_t alarm_{};
};

}  // namespace

std::unique_ptr<test_loop> make_test_loop() { return std::make_unique<uv_test_loop>(); }

}  // namespace syncguard::testing
