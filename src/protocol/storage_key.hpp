#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include <syncguard/result.hpp>

#include <syncguard/lock_id.hpp>
#include "protocol/inline_string.hpp"

namespace syncguard::protocol {

// A storage key and what may be derived from it (`:id:` and a lock id) stay within 1000 bytes.
inline constexpr std::size_t storage_key_budget_bytes = 1000;
inline constexpr std::size_t storage_key_reserve_bytes = 4 + lock_id::length;
inline constexpr std::size_t storage_key_max_bytes = storage_key_budget_bytes - storage_key_reserve_bytes;

using storage_key_buffer = inline_string<storage_key_max_bytes>;

// `prefix:key`, or `prefix:` and a hash of both where that would be too long.
//
// Requires: the prefix has no trailing colon.
// Lifetime: the result is a view of `out`.
// Errors: InvalidArgument: the prefix leaves no room even for the hashed form.
// Allocates: never.
result<std::string_view> make_storage_key(std::string_view prefix, std::string_view key,
                                          storage_key_buffer& out) noexcept;

// The keys that locks under one prefix use. A prefix that made it in here never fails for any valid key.
//
// Ownership: owns its copy of the prefix.
// Lifetime: each view lives as long as the buffer that was passed for it.
// Allocates: at construction only.
class key_space {
 public:
  // Errors: as validate_prefix().
  static result<key_space> make(std::string_view prefix);

  std::string_view prefix() const noexcept { return prefix_; }

  // Where the record of a lock is. `user_key` is in its normal form.
  std::string_view lock_key(std::string_view user_key, storage_key_buffer& out) const noexcept;

  // Where the lock key of an acquisition is.
  std::string_view index_key(const lock_id& id, storage_key_buffer& out) const noexcept;

  // Where the fence counter of a lock is; made from the lock key, so that two user keys whose lock keys differ never
  // share a counter.
  std::string_view fence_key(std::string_view lock_key, storage_key_buffer& out) const noexcept;

 private:
  explicit key_space(std::string prefix) noexcept : prefix_(std::move(prefix)) {}

  std::string prefix_;
};

}  // namespace syncguard::protocol
