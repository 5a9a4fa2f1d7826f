#pragma once

// A lock that is held, in a slot of the keeper's pool. There may be a million of them, so bytes count.
//
//   held  valid until its time, kept alive by heartbeats
//   lost  gone, and nobody has been told yet
//   over  gone and told, or released; the slot stays as long as the user's lock object does

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

#include <syncguard/callback.hpp>
#include <syncguard/fence.hpp>
#include <syncguard/lock.hpp>
#include <syncguard/lock_id.hpp>

#include "engine/timer_wheel.hpp"

namespace syncguard::engine {

enum class hold : std::uint8_t { free, held, lost, over };

// Where its heartbeat is.
enum class beat : std::uint8_t { none, due, sent };

struct held_lock : timer {
  callback<lost> on_lost;

  std::int64_t ttl_ms = 0;
  std::int64_t valid_until_ms = 0;  // by our clock
  std::int64_t expires_at_ms = 0;   // by the server's
  fence token = *fence::from_number(0);

  held_lock* next_at_place = nullptr;
  held_lock* previous = nullptr;
  held_lock* next = nullptr;

  std::uint32_t place = 0;  // the lower half of it: who shares that is looked at once too often
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  std::uint32_t margin_ms = 0;
  std::optional<lock_id> id;

  hold phase = hold::free;
  beat heart = beat::none;
  lost why = lost::unconfirmed;
  std::uint8_t in_flight = 0;  // extends without an answer yet
  bool heartbeats : 1 = false;
  bool own_margin : 1 = false;       // given by the caller, not a part of the time to live
  bool watched : 1 = false;          // changes by others are told by the server
  bool on_watched_lane : 1 = false;  // where the extends in flight are
  bool recheck : 1 = false;          // changed by somebody while an extend was on its way
  bool maybe_extended : 1 = false;   // an extend was sent, and its answer has not come
  bool several_ttls : 1 = false;     // the extends in flight have different times to live

  held_lock() noexcept = default;
  ~held_lock() { std::free(key_); }
  held_lock(const held_lock&) = delete;
  held_lock& operator=(const held_lock&) = delete;

  bool in_use() const noexcept { return phase != hold::free; }
  std::string_view key() const noexcept { return {key_, key_bytes_}; }

  // Errors: false where memory cannot be had.
  bool set_key(std::string_view key) noexcept {
    if (key.size() > key_capacity_) {
      auto* bigger = static_cast<char*>(std::realloc(key_, key.size()));
      if (bigger == nullptr) return false;
      key_ = bigger;
      key_capacity_ = static_cast<std::uint16_t>(key.size());
    }
    if (!key.empty()) std::memcpy(key_, key.data(), key.size());
    key_bytes_ = static_cast<std::uint16_t>(key.size());
    return true;
  }

  // Keeps the memory of the key for the next lock in this slot.
  void clear() noexcept {
    on_lost.reset();
    id.reset();
    phase = hold::free;
    heart = beat::none;
    in_flight = 0;
    watched = on_watched_lane = recheck = maybe_extended = several_ttls = false;
    previous = next = nullptr;
    key_bytes_ = 0;
  }

 private:
  std::uint16_t key_bytes_ = 0;
  std::uint16_t key_capacity_ = 0;
  char* key_ = nullptr;
};

static_assert(sizeof(held_lock) <= 208);

}  // namespace syncguard::engine
