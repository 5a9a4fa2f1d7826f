#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/operation.hpp"

namespace syncguard::engine {

// The slots that operations live in. A slot is named by its index and a generation that changes each time it is given
// back, so a name that is kept too long finds nothing.
//
// Lifetime: a slot's address stays the same as long as the pool lives.
// Errors: take() returns null where memory cannot be had.
// Allocates: in chunks, when more slots are in use than ever before.
class operation_pool {
 public:
  operation* take() noexcept;
  void give_back(operation& slot) noexcept;

  // Makes every name of this slot stale, and goes on using it.
  static void rename(operation& slot) noexcept { ++slot.generation; }

  operation* find(std::uint32_t slot, std::uint32_t generation) noexcept;

 private:
  static constexpr std::uint32_t chunk_slots = 256;
  using chunk = std::unique_ptr<operation[]>;

  bool grow() noexcept;

  std::vector<chunk> chunks_;
  operation* free_ = nullptr;
};

}  // namespace syncguard::engine
