#pragma once

// Keeps locks that are held: sends their heartbeats, and notices when one is gone.
//
// One timer per lock does both: it is set for the next heartbeat, and while that is on its way, for the end of the
// lock's validity. Heartbeats that are due wait in a list, from which a bounded number leaves in a turn and a bounded
// number is on its way: however many fall due at once, a turn stays short, and an outage does not fill the memory.
//
// Validity counts from before the extend that was confirmed last was sent, and ends a margin before the server lets
// anybody else have the lock. It does not depend on the server's clock; the heartbeat's time does, because what the
// server says of the expiry is also true of an acquire that was answered late.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <syncguard/callback.hpp>
#include <syncguard/fence.hpp>
#include <syncguard/lock.hpp>
#include <syncguard/stats.hpp>

#include "engine/engine.hpp"
#include "engine/held_lock.hpp"
#include "engine/jitter.hpp"
#include "engine/linked_list.hpp"
#include "engine/patron.hpp"
#include "engine/place_table.hpp"
#include "engine/server_clock.hpp"
#include "engine/slot_pool.hpp"
#include "engine/surroundings.hpp"
#include "engine/timer_wheel.hpp"

namespace syncguard::engine {

struct keeper_options {
  std::size_t watch_max = 10'000;
  std::int64_t release_timeout_ms = 5000;
  std::uint64_t seed = 0;
};

// Ownership: owns its locks; the engines and the surroundings are the caller's. The engines may end first, after
//   abandon().
// Lifetime: must outlive the user's lock objects, and not end inside a callback.
// Reentrancy: callbacks run inside over(), run_timers() and close_some(); anything may be called from them, abandon()
//   included.
// Allocates: when more locks are held than ever before, and for keys longer than their slot has seen.
class lock_keeper final : public patron {
 public:
  lock_keeper(engine& plain, engine& watched, surroundings& around, const keeper_options& options, std::int64_t now_us);
  ~lock_keeper() = default;
  lock_keeper(const lock_keeper&) = delete;
  lock_keeper& operator=(const lock_keeper&) = delete;

  struct acquisition {
    std::string_view key;
    std::uint64_t place;
    lock_id id;
    fence token;
    std::int64_t expires_at_ms;
    std::int64_t ttl_ms;
    std::optional<std::int64_t> margin_ms;
    bool heartbeats;
    bool on_watched_lane;
    std::int64_t sent_us;  // no later than when the acquire was first sent
  };

  // Takes care of a lock that was acquired. Quiet. Null: it is not valid any more, or memory cannot be had.
  held_lock* keep(const acquisition& what, std::int64_t now_us) noexcept;

  // What the user's lock objects ask for. Quiet.
  void set_on_lost(held_lock& held, callback<lost> told, std::int64_t now_us);
  void extend(held_lock& held, std::int64_t ttl_ms, completion&& done, std::int64_t now_us);
  void release(held_lock& held, completion&& done, std::int64_t now_us);
  void let_go(held_lock& held, std::int64_t now_us) noexcept;

  // The record at this place was changed by somebody else; all records may have been, also while nobody watched. Quiet.
  void invalidated(std::uint64_t place) noexcept;
  void invalidated_all() noexcept;

  void run_timers(std::int64_t now_us);
  std::optional<std::int64_t> next_wake_ms() const noexcept { return wheel_.next_wake_ms(); }

  // Sends heartbeats that are due, as many as one turn bears. Quiet.
  void end_turn(std::int64_t now_us);

  // Tells some of those who still hold a lock that it is lost, and gives those locks back. Returns whether there are
  // more.
  bool close_some(std::int64_t now_us);

  // The engines are about to end, and nobody is told anything any more.
  void abandon() noexcept;

  std::size_t size() const noexcept { return size_; }

  // When a lock at this place was last given back by its holder here; nothing where that was long ago.
  std::optional<std::int64_t> released_ms(std::uint64_t place) const noexcept;

  // The server's time, as far as it is known, and what an answer says of it. Quiet.
  const server_clock& clock() const noexcept { return clock_; }
  void learn_time(const ended_operation& which, const outcome& what, std::int64_t now_us) noexcept;

  void count_in(client_stats& stats) const noexcept;

  // patron
  void over(const ended_operation& which, const outcome& what, std::int64_t now_us) override;

  // The shortest time to live of a lock that is kept.
  static constexpr std::int64_t ttl_min_ms = 10;

  static std::int64_t margin_of(std::int64_t ttl_ms, std::optional<std::int64_t> wanted_ms) noexcept;

 private:
  void fire(held_lock& held);
  void make_due(held_lock& held) noexcept;
  bool send_heartbeat(held_lock& held);
  engine* lane_for(const held_lock& held) noexcept;
  bool start_extend(held_lock& held, engine& lane, engine::request what, completion&& done);
  void confirm(held_lock& held, const ended_operation& which, const outcome& what);
  void go_on(held_lock& held) noexcept;
  void schedule_next(held_lock& held) noexcept;
  void retry_later(held_lock& held) noexcept;
  void verify(held_lock& held) noexcept;
  void watch(held_lock& held) noexcept;
  void detach(held_lock& held) noexcept;
  void note_release(const held_lock& held) noexcept;
  void lose(held_lock& held, lost why);
  void tell(held_lock& held);
  std::int64_t now_ms() const noexcept { return now_us_ / 1000; }

  engine& plain_;
  engine& watched_;
  surroundings& around_;
  keeper_options options_;
  timer_wheel wheel_;
  slot_pool<held_lock> pool_;
  place_table<held_lock> watched_locks_;
  linked_list<held_lock> due_;
  server_clock clock_;
  jitter jitter_;

  // The last releases. Places may share an entry, and then the older one is forgotten.
  struct release_note {
    std::uint32_t place = 0;
    std::int64_t at_ms = 0;
  };
  std::array<release_note, 256> releases_{};

  std::int64_t now_us_;
  std::size_t size_ = 0;
  std::size_t in_flight_ = 0;  // heartbeats
  std::size_t close_cursor_ = 0;
  std::uint64_t heartbeats_ = 0;
  std::uint64_t lost_ = 0;
  bool polled_ = false;     // answers that have arrived are known
  bool want_poll_ = false;  // a lock seems lost, and its answer may have arrived
  bool abandoned_ = false;
};

}  // namespace syncguard::engine
