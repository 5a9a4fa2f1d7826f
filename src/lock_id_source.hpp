#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <sodium.h>

#include <syncguard/lock_id.hpp>

namespace syncguard {

// Fresh lock ids. The system is asked for randomness once for many of them, because asking costs more than all the rest
// of starting an operation.
//
// Lifetime: not to be used in a child process, which would give out its parent's ids.
// Allocates: never.
class lock_id_source {
 public:
  lock_id next() noexcept {
    if (used_ == bytes_.size()) {
      randombytes_buf(bytes_.data(), bytes_.size());
      used_ = 0;
    }
    const auto taken = std::span{bytes_}.subspan(used_).first<lock_id::random_bytes>();
    used_ += lock_id::random_bytes;
    const lock_id id = lock_id::from_bytes(taken);
    sodium_memzero(taken.data(), taken.size());
    return id;
  }

 private:
  std::array<std::uint8_t, 64 * lock_id::random_bytes> bytes_;
  std::size_t used_ = 64 * lock_id::random_bytes;
};

}  // namespace syncguard
