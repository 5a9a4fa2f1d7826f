#pragma once

#include <chrono>
#include <memory>

#include <syncguard/loop.hpp>

namespace syncguard::testing {

// The loop that the suite runs in. The suite is compiled once; each executable brings one of these.
class test_loop {
 public:
  virtual ~test_loop() = default;

  // For a client's constructor.
  virtual loop for_client() = 0;

  // One turn: handles what is ready, after waiting for it no longer than this.
  virtual void turn(std::chrono::milliseconds wait_max) = 0;

  // Whether clients have left nothing behind: no handle, no event, no request.
  virtual bool empty() const = 0;
};

std::unique_ptr<test_loop> make_test_loop();

}  // namespace syncguard::testing
