#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/jitter.hpp"

namespace syncguard::sim {

// Everything that happens by chance in a history comes from here, so that its seed says it all.
class chance {
 public:
  explicit chance(std::uint64_t seed) noexcept : numbers_(seed * 0x2545f4914f6cdd1d + 1) {}

  std::int64_t below(std::int64_t bound) noexcept { return numbers_.below(bound); }
  std::int64_t between(std::int64_t low, std::int64_t high) noexcept { return low + below(high - low + 1); }
  bool percent(std::int64_t wanted) noexcept { return below(100) < wanted; }
  bool permille(std::int64_t wanted) noexcept { return below(1000) < wanted; }
  std::size_t index(std::size_t size) noexcept {
    return static_cast<std::size_t>(below(static_cast<std::int64_t>(size)));
  }
  template <class Value, std::size_t Size>
  const Value& pick(const std::array<Value, Size>& from) noexcept {
    return from[index(Size)];
  }

 private:
  engine::jitter numbers_;
};

}  // namespace syncguard::sim
