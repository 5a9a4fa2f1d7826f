#pragma once

// Those who wait for locks. Each key has a queue, served in the order of arrival, with at most one attempt on its way
// for the one in front; the others wait for what comes of it.
//
// An attempt goes by the watched lane if that is up, where looking at the record and asking to be told of its changes
// are one step. If the lock is held, the queue sleeps until
//   - the server says that the record has changed,
//   - or the holder's time to live ends,
//   - or a slow safety poll, in case a notice got lost.
// Where there is no watched lane it tries again after pauses that grow.
//
// A crowd of processes wakes up all at once when a lock is released, and one of them gets it. The fences tell how many
// others have had the lock since a queue began to wait, and how many that usually are is remembered: a newcomer of a
// crowded key holds back for some milliseconds, one who has waited as long as it takes does not. So the longest in
// waiting tend to win, however far from the server they are; without a crowd nobody holds back. Who has just released a
// lock lets the others go first.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <syncguard/callback.hpp>
#include <syncguard/lock.hpp>
#include <syncguard/result.hpp>
#include <syncguard/stats.hpp>

#include "engine/engine.hpp"
#include "engine/jitter.hpp"
#include "engine/linked_list.hpp"
#include "engine/lock_keeper.hpp"
#include "engine/patron.hpp"
#include "engine/place_table.hpp"
#include "engine/retained_text.hpp"
#include "engine/slot_pool.hpp"
#include "engine/surroundings.hpp"
#include "engine/timer_wheel.hpp"

namespace syncguard::engine {

struct wait_queue;

// One call of lock(). Its timer is the end of its patience.
struct waiter : timer {
  enum class phase : std::uint8_t { free, waiting, leaving };

  callback<result<lock>> done;
  wait_queue* queue = nullptr;
  std::int64_t ttl_ms = 0;
  std::optional<std::int64_t> margin_ms;
  std::int64_t started_us = 0;
  std::uint64_t attempts_before = 0;  // of its queue, when it came
  std::uint64_t results_before = 0;   //
  bool heartbeats = true;
  bool overdue = false;  // leaves with the next result
  phase where = phase::free;
  std::optional<error> failure;  // of one that leaves
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  waiter* previous = nullptr;
  waiter* next = nullptr;

  bool in_use() const noexcept { return where != phase::free; }
  void clear() noexcept {
    done.reset();
    queue = nullptr;
    overdue = false;
    where = phase::free;
    failure.reset();
    previous = next = nullptr;
  }
};

// Those who wait for one key. Its timer is the next attempt.
struct wait_queue : timer {
  enum class phase : std::uint8_t { free, attempting, sleeping };

  retained_text key;
  linked_list<waiter> waiters;
  phase where = phase::free;
  bool on_watched_lane = false;    // where the last attempt was sent
  bool subscribed = false;         // the server will say when the record changes
  std::uint32_t attempt_slot = 0;  // of the operation
  std::uint32_t attempt_generation = 0;
  std::uint64_t attempts = 0;
  std::uint64_t results = 0;       // answers and failures
  std::uint64_t first_holder = 0;  // the fence of the one who held it when this began to wait; 0: not known
  unsigned pauses = 0;
  unsigned passed_over = 0;  // how many others have had it since
  std::optional<error> last_failure;

  std::uint64_t place = 0;
  wait_queue* next_at_place = nullptr;
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  wait_queue* next = nullptr;

  bool in_use() const noexcept { return where != phase::free; }
  void clear() noexcept {
    key.clear();
    where = phase::free;
    subscribed = false;
    attempts = results = first_holder = 0;
    pauses = passed_over = 0;
    last_failure.reset();
  }
};

// Ownership: owns those who wait; engines, keeper and surroundings are the caller's. The engines may end first, after
//   abandon().
// Lifetime: not to end inside a callback.
// Reentrancy: callbacks run inside over() and end_turn(); anything may be called from them, abandon() included.
// Allocates: when more wait than ever before.
class waiting_room final : public patron {
 public:
  waiting_room(engine& plain, engine& watched, lock_keeper& keeper, surroundings& around, std::uint64_t seed,
               std::int64_t now_us);
  ~waiting_room() = default;
  waiting_room(const waiting_room&) = delete;
  waiting_room& operator=(const waiting_room&) = delete;

  struct request {
    std::string_view key;
    std::uint64_t place;
    std::int64_t ttl_ms;
    std::int64_t wait_ms;
    std::optional<std::int64_t> margin_ms;
    bool heartbeats;
  };

  // Quiet. Returns the slot, for its name; null where memory cannot be had, and then `done` is untouched.
  waiter* enter(const request& what, callback<result<lock>>&& done, std::int64_t now_us) noexcept;

  // One that is refused at the door, and told so at the end of the turn. Quiet.
  waiter* turn_away(callback<result<lock>>&& done, error failure) noexcept;

  // Quiet. Returns whether there was anything to cancel.
  bool cancel(std::uint32_t slot, std::uint32_t generation, std::int64_t now_us) noexcept;

  // Everybody leaves. Quiet.
  void close(std::int64_t now_us) noexcept;

  // The record at this place has changed; all records may have. Quiet.
  void invalidated(std::uint64_t place, std::int64_t now_us) noexcept;
  void invalidated_all(std::int64_t now_us) noexcept;

  // The watched lane is up, or down. Quiet.
  void watching_began(std::int64_t now_us) noexcept;
  void watching_ended(std::int64_t now_us) noexcept;

  void run_timers(std::int64_t now_us);
  std::optional<std::int64_t> next_wake_ms() const noexcept;
  void end_turn(std::int64_t now_us);

  // Nobody is told anything any more.
  void abandon() noexcept;

  std::size_t size() const noexcept { return size_; }
  void count_in(client_stats& stats) const noexcept;

  // patron
  void over(const ended_operation& which, const outcome& what, std::int64_t now_us) override;

 private:
  wait_queue* queue_for(const request& what) noexcept;
  void attempt(wait_queue& queue) noexcept;
  void acquired(wait_queue& queue, const ended_operation& which, const outcome& what);
  void contended(wait_queue& queue, const outcome& what);
  void failed(wait_queue& queue, error why);
  bool dismiss_overdue(wait_queue& queue);
  void sleep(wait_queue& queue, std::int64_t holder_expires_at_ms) noexcept;
  void sleep_after_failure(wait_queue& queue) noexcept;
  void wake(wait_queue& queue) noexcept;
  void patience_ends(waiter& who);
  void leave(waiter& who, error why) noexcept;
  error why_in_vain(const waiter& who) const noexcept;
  void close_if_empty(wait_queue& queue) noexcept;
  void count_hand_overs(wait_queue& queue, const outcome& what) noexcept;
  void remember_crowd(const wait_queue& queue) noexcept;
  std::int64_t hold_back_ms(const wait_queue& queue) noexcept;
  std::int64_t courtesy_ms(const wait_queue& queue) noexcept;
  std::int64_t next_pause_ms(wait_queue& queue) noexcept;
  std::uint8_t& crowd_of(const wait_queue& queue) noexcept { return crowds_[queue.place % crowds_.size()]; }
  engine& lane_of(const wait_queue& queue) noexcept { return queue.on_watched_lane ? watched_ : plain_; }
  std::int64_t now_ms() const noexcept { return now_us_ / 1000; }

  engine& plain_;
  engine& watched_;
  lock_keeper& keeper_;
  surroundings& around_;
  timer_wheel attempts_;
  timer_wheel patience_;
  slot_pool<waiter> waiters_;
  slot_pool<wait_queue> queues_;
  place_table<wait_queue> by_place_;
  linked_list<waiter> leaving_;
  jitter jitter_;

  // How many others have the lock before a queue gets it, per place. Keys may share an entry; it is only a guess.
  std::array<std::uint8_t, 256> crowds_{};

  std::int64_t now_us_;
  std::size_t size_ = 0;
  std::uint64_t attempts_made_ = 0;
  std::uint64_t wakes_ = 0;
  bool abandoned_ = false;
};

}  // namespace syncguard::engine
