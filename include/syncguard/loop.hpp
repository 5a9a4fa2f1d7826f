#pragma once

#include <memory>

#include <syncguard/export.hpp>

namespace syncguard {

namespace redis {
class event_loop;
}

// The event loop that a client lives in. Made by uv() in <syncguard/uv.hpp> or event() in <syncguard/event.hpp>, and
// given to a client's constructor.
//
// Ownership: the loop itself stays the caller's.
// Lifetime: the loop must outlive the client, and turn once more after the client is destroyed, because libuv frees
//   its handles only then.
class SYNCGUARD_API loop {
 public:
  explicit loop(std::unique_ptr<redis::event_loop> made) noexcept;
  loop(loop&&) noexcept;
  loop& operator=(loop&&) noexcept;
  loop(const loop&) = delete;
  loop& operator=(const loop&) = delete;
  ~loop();

  // For the client.
  std::unique_ptr<redis::event_loop> take() noexcept;

 private:
  std::unique_ptr<redis::event_loop> made_;
};

}  // namespace syncguard
