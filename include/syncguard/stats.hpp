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

  histogram batch_sizes{};  // operations per command
  histogram latency_us{};   // from start to completion
};

}  // namespace syncguard
