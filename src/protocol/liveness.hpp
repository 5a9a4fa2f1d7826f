#pragma once

#include <cstdint>

namespace syncguard::protocol {

// How long after its expiry a record still counts as held. Every process that shares locks must use the same value,
// so it is a constant of the protocol and not an option.
inline constexpr std::int64_t liveness_tolerance_ms = 1000;

// How long after its expiry a record may be deleted by a mere look at it (is_locked with cleanup switched on).
inline constexpr std::int64_t cleanup_guard_ms = 2000;

// Whether a record is held at the server's time `now_ms`. The only place that decides this.
constexpr bool is_live(std::int64_t expires_at_ms, std::int64_t now_ms) noexcept {
  return expires_at_ms > now_ms - liveness_tolerance_ms;
}

// Whether a record has been expired for long enough to be deleted by a mere look at it.
constexpr bool is_cleanable(std::int64_t expires_at_ms, std::int64_t now_ms) noexcept {
  return expires_at_ms < now_ms - cleanup_guard_ms;
}

}  // namespace syncguard::protocol
