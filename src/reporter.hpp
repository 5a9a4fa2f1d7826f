#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include <syncguard/telemetry.hpp>

#include "engine/port.hpp"

namespace syncguard {

// Turns outcomes into telemetry events. Without a sink it does nothing but say so.
//
// Errors: what the sink throws is swallowed.
// Allocates: with a sink, once.
class reporter {
 public:
  reporter(telemetry_sink sink, bool include_raw);

  bool on() const noexcept { return static_cast<bool>(sink_); }

  void report(const engine::operation& over, const engine::outcome& what) noexcept;
  void unsafe_policy(std::string_view policy) noexcept;

 private:
  // The last fence seen for a key. Each key has one place, and may lose it to another: a regression is then not
  // noticed, but memory stays bounded.
  struct seen_fence {
    std::uint64_t key = 0;
    std::uint64_t fence = 0;
  };
  static constexpr std::size_t seen_places = 4096;

  void watch_fence(const engine::operation& acquired, fence token) noexcept;
  telemetry_event event_of(const engine::operation& over, telemetry_type type) const noexcept;
  void emit(const telemetry_event& event) noexcept;

  telemetry_sink sink_;
  bool include_raw_;
  std::unique_ptr<seen_fence[]> seen_;
};

}  // namespace syncguard
