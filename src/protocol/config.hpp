#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <syncguard/result.hpp>

namespace syncguard::protocol {

inline constexpr std::string_view default_prefix = "syncguard";

// A longer prefix leaves no room for a single lock: index and fence keys would have to be hashed, and the hashed form
// would not fit either.
inline constexpr std::size_t prefix_max_bytes = 951;

// A hundred days, the longest time that timers of this library cover.
inline constexpr std::int64_t ttl_max_ms = std::int64_t{100} * 24 * 60 * 60 * 1000;

// A prefix as it stands in front of every key: trailing colons dropped; empty means no prefix.
//
// Lifetime: the result is a view of `prefix`.
// Errors: InvalidArgument: not UTF-8, longer than prefix_max_bytes, or one that could make lock data and fence
//   counters overlap (contains `fence:` or ends with `fence`).
// Allocates: never.
result<std::string_view> validate_prefix(std::string_view prefix) noexcept;

// Errors: InvalidArgument: not between 1 and ttl_max_ms.
// Allocates: never.
result<void> validate_ttl_ms(std::int64_t ttl_ms) noexcept;

}  // namespace syncguard::protocol
