#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include <syncguard/export.hpp>
#include <syncguard/key_hash.hpp>

namespace syncguard {

enum class telemetry_type : std::uint8_t {
  acquire,
  release,
  extend,
  is_locked,
  lookup,
  fence_near_exhaustion,  // a fence counter is above 90000000000000: it will run out some day
  fence_regressed,        // a fence was not above the last one seen for its key: the server has lost data
  unsafe_policy,          // the server's maxmemory-policy may evict locks or fence counters; detail names it
};

enum class telemetry_reason : std::uint8_t {
  none,
  locked,     // somebody else holds it
  corrupt,    // what is stored there cannot be read, and counts as held
  expired,    // it was there, and had expired
  not_found,  // it is not there, or belongs to another lock id
  failed,     // the operation ended in an error
};

// The protocol's names: "isLocked", "not-found" and so on.
SYNCGUARD_API std::string_view to_string(telemetry_type type) noexcept;
SYNCGUARD_API std::string_view to_string(telemetry_reason reason) noexcept;

// One operation, or one thing worth knowing.
//
// Lifetime: the views live until the sink returns.
struct telemetry_event {
  telemetry_type type{};
  bool ok = false;  // done, held, found: the answer that was hoped for
  telemetry_reason reason = telemetry_reason::none;
  std::optional<syncguard::key_hash> key_hash{};
  std::optional<syncguard::key_hash> lock_id_hash{};
  std::string_view raw_key{};      // empty unless include_raw
  std::string_view raw_lock_id{};  // empty unless include_raw
  std::string_view detail{};       // of the last three types
};

// Errors: what the sink throws is swallowed; a failing sink never disturbs a lock.
// Reentrancy: may start and cancel operations, but must not destroy or close the client.
using telemetry_sink = std::function<void(const telemetry_event&)>;

}  // namespace syncguard
