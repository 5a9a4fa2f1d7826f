#pragma once

// One operation from its start to its completion, in a slot of the pool.
//
//   queued    waits in one of the engine's queues to be sent
//   returned  was sent, and came back undone or unanswered; waits in front of the queued ones to be sent again
//   sent      travels in a batch, and waits for its answer
//   deferred  its outcome is known, and is told at the end of the turn
//
// An operation whose caller has given up (time-out, cancel) while it was sent stays in its batch as `abandoned`: its
// answer must still be looked at, because it may have acquired a lock that nobody wants.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>

#include <syncguard/callback.hpp>
#include <syncguard/lock_id.hpp>
#include <syncguard/lock_info.hpp>
#include <syncguard/result.hpp>

#include "engine/linked_list.hpp"
#include "engine/patron.hpp"
#include "engine/retained_text.hpp"
#include "engine/timer_wheel.hpp"

namespace syncguard::engine {

enum class operation_kind : std::uint8_t {
  acquire,
  release,
  extend,
  clean_up,
  inspect,  // is_locked, of a record that could not be read
  is_locked,
  lookup_key,
  lookup_id,
};

// Which kind of command carries an operation. In this order within a turn, so that reads see mutations.
enum class travel_class : std::uint8_t { mutation, key_read, id_read };
inline constexpr std::size_t travel_class_count = 3;

constexpr travel_class class_of(operation_kind kind) noexcept {
  if (kind <= operation_kind::inspect) return travel_class::mutation;
  return kind == operation_kind::lookup_id ? travel_class::id_read : travel_class::key_read;
}

enum class operation_state : std::uint8_t { free, queued, returned, sent, deferred };

// The caller that is told. Nobody: an operation of the library's own.
using completion =
    std::variant<std::monostate, callback<result<std::optional<grant>>>, callback<result<bool>>,
                 callback<result<std::optional<server_time>>>, callback<result<std::optional<lock_info>>>,
                 callback<result<std::optional<raw_lock_info>>>>;

struct operation : timer {
  operation_kind kind = operation_kind::acquire;
  operation_state state = operation_state::free;
  bool abandoned = false;       // the caller has been told already
  bool fragile = false;         // fails with its link
  bool maybe_applied = false;   // was sent and lost: it may have taken effect
  bool careful = false;         // the server is to look closer: what it saw at first made no sense
  std::uint8_t links_lost = 0;  // while it was on its way
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  std::optional<lock_id> id;
  std::int64_t ttl_ms = 0;
  std::int64_t started_us = 0;
  std::int64_t first_sent_us = 0;  // no later than when it was first sent; 0: it was not
  std::int64_t last_sent_us = 0;
  retained_text key;
  patron_name patron;
  completion done;
  std::optional<error> failure;  // of a deferred one

  operation* previous = nullptr;
  operation* next = nullptr;

  bool in_use() const noexcept { return state != operation_state::free; }

  void clear() noexcept {
    state = operation_state::free;
    abandoned = false;
    fragile = false;
    maybe_applied = false;
    careful = false;
    links_lost = 0;
    id.reset();
    first_sent_us = last_sent_us = 0;
    key.clear();
    patron = {};
    done.emplace<std::monostate>();
    failure.reset();
    previous = next = nullptr;
  }
};

using operation_list = linked_list<operation>;

}  // namespace syncguard::engine
