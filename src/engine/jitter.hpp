#pragma once

#include <cstdint>

namespace syncguard::engine {

// Numbers without a pattern, from a seed: to spread what many processes would otherwise do at once. Not for secrets.
class jitter {
 public:
  explicit jitter(std::uint64_t seed) noexcept : state_(seed) {}

  // From 0 up to and without `bound`; 0 where that is not positive.
  std::int64_t below(std::int64_t bound) noexcept {
    if (bound <= 0) return 0;
    // A Weyl sequence, well mixed (splitmix64).
    std::uint64_t mixed = state_ += 0x9e3779b97f4a7c15;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    mixed ^= mixed >> 31;
    return static_cast<std::int64_t>(mixed % static_cast<std::uint64_t>(bound));
  }

 private:
  std::uint64_t state_;
};

}  // namespace syncguard::engine
