#pragma once

// Outcomes as the results that callers get, and how they get them.

#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include <syncguard/callback.hpp>
#include <syncguard/key_hash.hpp>
#include <syncguard/lock_info.hpp>
#include <syncguard/result.hpp>

#include "engine/engine.hpp"
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

// Says in the failure of an operation which one it was.
inline void name_failure(const engine::operation& over, engine::outcome& what) {
  if (!what.failure) return;
  what.what = engine::verdict::failed;
  // The lock id of an acquire that has failed names nothing, unless it may have succeeded all the same.
  const bool named = over.id && (over.kind != engine::operation_kind::acquire || what.failure->outcome_unknown());
  const std::string_view id = named ? over.id->view() : std::string_view{};
  what.failure->with_context(over.key.view(), id, what.failure->cause());
}

// Ends an operation: gives its slot back, tells its patron, then its caller.
//
// Lifetime: a patron may destroy everything; `dead` stays readable, and says whether it did.
inline void complete(engine::engine& from, engine::operation& over, engine::outcome& what, std::int64_t now_us,
                     const bool& dead) {
  engine::patron* const patron = over.patron.who;
  const engine::ended_operation ended{over.patron.slot,      over.patron.generation, over.id,
                                      over.ttl_ms,           over.first_sent_us,     over.last_sent_us,
                                      over.done.index() != 0};
  std::visit(
      [&](auto& done) {
        using held = std::remove_cvref_t<decltype(done)>;
        if constexpr (std::is_same_v<held, std::monostate>) {
          from.forget(over);
          if (patron != nullptr) patron->over(ended, what, now_us);
        } else {
          held told = std::move(done);
          std::optional<error> failure;
          if (patron != nullptr) failure = what.failure;
          auto made = make_result<held>(over, what);
          from.forget(over);
          if (patron != nullptr) {
            what.failure = std::move(failure);
            patron->over(ended, what, now_us);
            if (dead) return;
          }
          told(std::move(made));
        }
      },
      over.done);
}

}  // namespace syncguard
