#include "reporter.hpp"

#include <array>
#include <functional>
#include <utility>

#include <syncguard/client.hpp>
#include <syncguard/key_hash.hpp>

namespace syncguard {

namespace {

using engine::operation;
using engine::operation_kind;
using engine::outcome;
using engine::verdict;

telemetry_type type_of(operation_kind kind) noexcept {
  switch (kind) {
    case operation_kind::acquire: return telemetry_type::acquire;
    case operation_kind::release: return telemetry_type::release;
    case operation_kind::extend: return telemetry_type::extend;
    case operation_kind::is_locked:
    case operation_kind::inspect:
    case operation_kind::clean_up: return telemetry_type::is_locked;
    default: return telemetry_type::lookup;
  }
}

struct judgement {
  bool ok;
  telemetry_reason reason;
};

judgement judge(const operation& over, verdict what) noexcept {
  const bool asks_whether_held = over.kind == operation_kind::is_locked || over.kind == operation_kind::inspect;
  switch (what) {
    case verdict::acquired:
    case verdict::released:
    case verdict::extended:
    case verdict::held:
    case verdict::found: return {true, telemetry_reason::none};
    case verdict::contended: return {false, telemetry_reason::locked};
    case verdict::corrupt: return {asks_whether_held, telemetry_reason::corrupt};
    case verdict::expired: return {false, telemetry_reason::expired};
    case verdict::absent:
    case verdict::free:
    case verdict::not_owner: return {false, telemetry_reason::not_found};
    case verdict::unreadable:
    case verdict::failed: break;
  }
  return {false, telemetry_reason::failed};
}

}  // namespace

std::string_view to_string(telemetry_type type) noexcept {
  static constexpr std::array<std::string_view, 8> names{
      "acquire", "release", "extend", "isLocked", "lookup", "fenceNearExhaustion", "fenceRegressed", "unsafePolicy"};
  const auto index = static_cast<std::size_t>(type);
  return index < names.size() ? names[index] : "unknown";
}

std::string_view to_string(telemetry_reason reason) noexcept {
  static constexpr std::array<std::string_view, 6> names{"none", "locked", "corrupt", "expired", "not-found", "failed"};
  const auto index = static_cast<std::size_t>(reason);
  return index < names.size() ? names[index] : "unknown";
}

reporter::reporter(telemetry_sink sink, bool include_raw) : sink_(std::move(sink)), include_raw_(include_raw) {
  if (sink_) seen_ = std::make_unique<seen_fence[]>(seen_places);
}

telemetry_event reporter::event_of(const operation& over, telemetry_type type) const noexcept {
  telemetry_event event{.type = type, .ok = false};
  const std::string_view key = over.key.view();
  if (!key.empty()) event.key_hash = hash_key(key.substr(0, 512));
  if (over.id) event.lock_id_hash = hash_key(over.id->view());
  if (include_raw_) {
    event.raw_key = key;
    if (over.id) event.raw_lock_id = over.id->view();
  }
  return event;
}

void reporter::report(const operation& over, const outcome& what) noexcept {
  const judgement judged = judge(over, what.what);
  telemetry_event event = event_of(over, type_of(over.kind));
  event.ok = judged.ok;
  event.reason = judged.reason;
  // An acquire that failed has a lock id of its own, but it names nothing.
  if (over.kind == operation_kind::acquire && !judged.ok) {
    event.lock_id_hash.reset();
    event.raw_lock_id = {};
  }
  emit(event);
  if (what.what == verdict::acquired && what.token) watch_fence(over, *what.token);
}

void reporter::watch_fence(const operation& acquired, fence token) noexcept {
  if (token.near_exhaustion()) {
    telemetry_event event = event_of(acquired, telemetry_type::fence_near_exhaustion);
    const auto text = token.to_text();
    event.detail = text;
    emit(event);
  }
  const std::uint64_t key = std::hash<std::string_view>{}(acquired.key.view());
  seen_fence& place = seen_[key % seen_places];
  const bool regressed = place.key == key && token.number() <= place.fence;
  place = {key, token.number()};
  if (!regressed) return;
  telemetry_event event = event_of(acquired, telemetry_type::fence_regressed);
  const auto text = token.to_text();
  event.detail = text;
  emit(event);
}

void reporter::unsafe_policy(std::string_view policy) noexcept {
  if (!on()) return;
  telemetry_event event{.type = telemetry_type::unsafe_policy, .ok = false};
  event.detail = policy;
  emit(event);
}

void reporter::emit(const telemetry_event& event) noexcept {
  try {
    sink_(event);
  } catch (...) {  // NOLINT(bugprone-empty-catch): a failing sink never disturbs a lock
  }
}

}  // namespace syncguard
