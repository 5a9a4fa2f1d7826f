#pragma once

// A relay between a client and the private server, in a process of its own, so that the one can be cut off while the
// other goes on: stopped, it is a connection on which nothing moves; ended, it is one that was reset.

#include <sys/types.h>

#include <string>

namespace syncguard::testing {

// Errors: start() says on standard error what went wrong.
class relay {
 public:
  relay(std::string listens_at, std::string leads_to);
  ~relay();
  relay(const relay&) = delete;
  relay& operator=(const relay&) = delete;

  [[nodiscard]] bool start();

  void pause();
  void resume();

  // Every connection through it is cut, and no new one is accepted.
  void end();

 private:
  std::string listens_at_;
  std::string leads_to_;
  pid_t pid_ = -1;
};

}  // namespace syncguard::testing
