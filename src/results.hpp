#pragma once

// Outcomes as the results that callers get.

#include <optional>
#include <utility>

#include <syncguard/callback.hpp>
#include <syncguard/key_hash.hpp>
#include <syncguard/lock_info.hpp>
#include <syncguard/result.hpp>

#include "engine/port.hpp"

namespace syncguard {

namespace detail {

inline server_time to_server_time(std::int64_t ms) noexcept { return server_time{std::chrono::milliseconds{ms}}; }

// Requires: the outcome is `found`, so its record is complete.
inline lock_info info_of(const engine::outcome& what) {
  const protocol::decoded_record& record = what.record;
  return {*hash_key(record.key.view()), *hash_key(record.id->view()), to_server_time(record.expires_at_ms),
          to_server_time(record.acquired_at_ms),
          // A record of the oldest writers has no fence: one that is below every other.
          record.token ? *record.token : *fence::from_number(0)};
}

template <class Value>
struct maker;

template <>
struct maker<std::optional<grant>> {
  static std::optional<grant> make(const engine::operation& over, const engine::outcome& what) {
    if (what.what != engine::verdict::acquired) return std::nullopt;
    return grant{*over.id, *what.token, to_server_time(what.expires_at_ms)};
  }
};

template <>
struct maker<bool> {
  static bool make(const engine::operation&, const engine::outcome& what) {
    switch (what.what) {
      case engine::verdict::released:
      case engine::verdict::held:
      case engine::verdict::corrupt:
      case engine::verdict::found: return true;
      default: return false;
    }
  }
};

template <>
struct maker<std::optional<server_time>> {
  static std::optional<server_time> make(const engine::operation&, const engine::outcome& what) {
    if (what.what != engine::verdict::extended) return std::nullopt;
    return to_server_time(what.expires_at_ms);
  }
};

template <>
struct maker<std::optional<lock_info>> {
  static std::optional<lock_info> make(const engine::operation&, const engine::outcome& what) {
    if (what.what != engine::verdict::found) return std::nullopt;
    return info_of(what);
  }
};

template <>
struct maker<std::optional<raw_lock_info>> {
  static std::optional<raw_lock_info> make(const engine::operation&, const engine::outcome& what) {
    if (what.what != engine::verdict::found) return std::nullopt;
    return raw_lock_info{info_of(what), *what.record.id, what.record.key.view()};
  }
};

template <class Callback>
struct value_of;
template <class Value>
struct value_of<callback<result<Value>>> {
  using type = Value;
};

}  // namespace detail

// Requires: a failed outcome has its failure. Takes that out of it.
template <class Callback>
result<typename detail::value_of<Callback>::type> make_result(const engine::operation& over, engine::outcome& what) {
  if (what.failure) return std::move(*what.failure);
  return detail::maker<typename detail::value_of<Callback>::type>::make(over, what);
}

}  // namespace syncguard
