#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace syncguard {

// Counters of one client since it was made.
struct client_stats {
  // Bucket n counts values of at least 2^n and below 2^(n+1); bucket 0 also counts 0.
  using histogram = std::array<std::uint64_t, 32>;

  std::uint64_t started = 0;    // operations that the caller started
  std::uint64_t completed = 0;  // callbacks that were run
  std::uint64_t failed = 0;     // of these, with an error
  std::uint64_t resent = 0;     // operations sent again after a lost connection or a lost script
  std::uint64_t batches = 0;    // commands that carried them
  std::uint64_t connects = 0;   // connections that became usable; the first is not a reconnect
  std::uint64_t disconnects = 0;
  std::uint64_t scripts_reloaded = 0;
  std::size_t pending = 0;  // operations started and not completed

  std::size_t held = 0;          // locks that are held
  std::size_t waiting = 0;       // calls of lock() that are not over
  std::uint64_t attempts = 0;    // acquires that were sent for them
  std::uint64_t wakes = 0;       // of these, after the server said that the lock's record had changed
  std::uint64_t heartbeats = 0;  // extends that were sent to keep locks alive
  std::uint64_t lost = 0;        // locks that were lost
  bool watching = false;         // whether the connection that is told of changes is there

  histogram batch_sizes{};  // operations per command
  histogram latency_us{};   // from start to completion
};

}  // namespace syncguard
