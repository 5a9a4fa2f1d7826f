#pragma once

// A connection must not be used by two processes. In a child that fork() made, each socket of this library is replaced
// by one that leads nowhere before the child's own code runs, so nothing it does can reach the parent's server.

#include <cstdint>

namespace syncguard::redis {

// Ownership: of nothing; the socket stays its connection's.
// Lifetime: registered as long as it lives.
class watched_socket {
 public:
  explicit watched_socket(int descriptor) noexcept;
  ~watched_socket();
  watched_socket(const watched_socket&) = delete;
  watched_socket& operator=(const watched_socket&) = delete;

 private:
  friend void replace_all_sockets() noexcept;

  int descriptor_;
  watched_socket* previous_ = nullptr;
  watched_socket* next_ = nullptr;
};

// How many forks lie between the first process and this one. Changes in the child alone.
std::uint32_t fork_count() noexcept;

}  // namespace syncguard::redis
