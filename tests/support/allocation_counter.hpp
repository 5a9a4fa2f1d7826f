#pragma once

#include <cstdint>

namespace syncguard::testing {

// Counts every allocation of the process, whoever makes it: malloc and its kin are replaced in each executable that
// links this. Sanitizers bring an allocator of their own, and then there is nothing to count with.
class allocation_counter {
 public:
  static bool available() noexcept;

  // Allocations since the counter was made.
  std::uint64_t count() const noexcept;

 private:
  static std::uint64_t total() noexcept;

  std::uint64_t before_ = total();
};

}  // namespace syncguard::testing
