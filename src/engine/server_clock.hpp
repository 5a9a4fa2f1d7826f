#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace syncguard::engine {

// How the server's clock stands to ours. Each answer narrows it down: the server read its clock after we sent and
// before we received, so the difference of the two clocks lies between two bounds.
//
// The clocks need not run at the same speed: bounds from earlier answers widen with time. Where they contradict a new
// answer, somebody has set a clock, and only the new answer counts.
//
// Allocates: never.
class server_clock {
 public:
  void learn(std::int64_t sent_us, std::int64_t received_us, std::int64_t server_ms) noexcept {
    // The server's milliseconds are cut off.
    const std::int64_t low = server_ms * 1000 - received_us;
    const std::int64_t high = server_ms * 1000 + 999 - sent_us;
    if (known_) {
      const std::int64_t drift = (received_us - learned_us_) / drift_divisor + 1;
      low_us_ = std::max(low_us_ - drift, low);
      high_us_ = std::min(high_us_ + drift, high);
    }
    if (!known_ || low_us_ > high_us_) {
      low_us_ = low;
      high_us_ = high;
    }
    known_ = true;
    learned_us_ = received_us;
  }

  bool known() const noexcept { return known_; }

  // When it is `server_ms` at the server, by our clock: not before the one, not after the other.
  //
  // Requires: known().
  std::int64_t earliest_us(std::int64_t server_ms) const noexcept { return server_ms * 1000 - high_us_; }
  std::int64_t latest_us(std::int64_t server_ms) const noexcept { return server_ms * 1000 - low_us_; }

 private:
  // 500 parts per million: as far as two clocks that are kept by quartz drift apart.
  static constexpr std::int64_t drift_divisor = 2000;

  bool known_ = false;
  std::int64_t low_us_ = 0;
  std::int64_t high_us_ = 0;
  std::int64_t learned_us_ = 0;
};

}  // namespace syncguard::engine
