#pragma once

// The heart of the client, without a clock, a socket or a random source: operations come in, batches go out through
// the port, answers and the state of the link come back as calls, outcomes are told to the observer.
//
// Three rules carry the rest:
//   - Operations that may have taken effect without an answer are sent again with the same lock id, in their order,
//     in front of everything younger. The scripts make that harmless.
//   - A caller is told exactly once. One who gives up is told at once, and what remains is the engine's own business:
//     a lock that turns out to be acquired for nobody is released.
//   - Nothing is told inside the call that started or cancelled an operation.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <syncguard/error.hpp>
#include <syncguard/stats.hpp>

#include "engine/operation.hpp"
#include "engine/port.hpp"
#include "engine/slot_pool.hpp"
#include "engine/timer_wheel.hpp"

namespace syncguard::engine {

struct engine_options {
  std::int64_t timeout_ms = 5000;
  std::size_t max_pending = 100'000;
  bool cleanup_in_is_locked = false;
};

// Ownership: owns its operations; port and observer are the caller's, and outlive it.
// Reentrancy: every function but the constructor may run callbacks or be called from one, except those marked quiet.
//   The engine may be destroyed inside settle().
// Errors: none of its own; those of operations go to the observer.
// Allocates: when more operations or batches are in flight than ever before.
class engine {
 public:
  engine(const engine_options& options, port& out, observer& told, std::int64_t now_us);
  ~engine();
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;

  // Starts an operation. Quiet. The fields that the kind needs are given; the key is in its normal form.
  //
  // Returns: the slot, for its name; null where memory cannot be had, and then `done` is untouched.
  struct request {
    operation_kind kind;
    std::string_view key;
    std::optional<lock_id> id;
    std::int64_t ttl_ms = 0;
    std::int64_t timeout_ms = 0;  // 0: that of the options
    patron_name patron = {};
    bool exempt = false;   // from max_pending, and from stop_accepting()
    bool fragile = false;  // fails with its link, instead of waiting for another
  };
  operation* start(const request& what, completion&& done, std::int64_t now_us) noexcept;

  // An operation that has failed before it began, and is told so at the end of the turn. Quiet.
  operation* start_failed(const request& what, completion&& done, error failure, std::int64_t now_us) noexcept;

  // Quiet. Returns whether there was anything to cancel.
  bool cancel(std::uint32_t slot, std::uint32_t generation, std::int64_t now_us) noexcept;

  // Releases a lock that nobody wants any more, and tells nobody. Quiet.
  void give_back(const lock_id& id, std::int64_t ttl_ms, std::int64_t now_us) noexcept;

  // Whether what is started now is sent in this turn. Quiet.
  bool up() const noexcept { return up_; }

  // Handles whatever answers have arrived, without waiting.
  void poll() { out_.poll(); }

  // Sends what has been started in this turn, and tells what is known.
  void end_turn(std::int64_t now_us);

  // Ends what is over its time.
  void run_timers(std::int64_t now_us);

  // When run_timers() must be called next. Quiet.
  std::optional<std::int64_t> next_wake_ms() const noexcept { return wheel_.next_wake_ms(); }

  // The link can be used. What waits is sent at the end of this turn. Quiet.
  void link_up() noexcept;

  // The link is gone, and everything sent and not answered with it. Where `refused`, the server does not want us, and
  // operations fail with that error until the link is up.
  void link_down(const error& cause, bool refused, std::int64_t now_us);

  // The answer to a batch. The batch is gone afterwards.
  void answered(batch& which, batch_answer& answer, std::int64_t now_us);

  // The server did not know the script: nothing of this batch was done. Quiet.
  void script_missing(batch& which) noexcept;

  // No more operations are accepted; `pending() == 0` says when the last one is over. Quiet.
  void stop_accepting() noexcept { accepting_ = false; }

  // For the observer: the operation is over, its slot is free. Quiet.
  void forget(operation& over) noexcept;

  // Operations that a caller waits for.
  std::size_t pending() const noexcept { return pending_; }
  client_stats& stats() noexcept { return stats_; }

  // Operations of any kind, its own included. For tests; looks at every slot.
  std::size_t in_use() noexcept;

 private:
  class guard;

  operation* take_slot(const request& what, completion&& done) noexcept;
  void enqueue(operation& item) noexcept;
  void defer(operation& item, error failure) noexcept;
  void flush(travel_class kind);
  void flush_all();
  bool can_send() const noexcept { return up_ && !healing_; }
  operation_list& queue_of(const operation& item) noexcept {
    auto& lists = item.state == operation_state::returned ? returned_ : queues_;
    return lists[static_cast<std::size_t>(class_of(item.kind))];
  }

  void settle(operation& over, outcome& what);
  void settle_failed(operation& over, error failure);
  void tell_deferred(const guard& alive);
  void fail_everything_queued(const guard& alive);
  operation* split_caller(operation& sent) noexcept;
  void expire(operation& late);
  error why_late(const operation& late) const noexcept;

  bool look_closer(operation& asked) noexcept;
  void judge(operation& asked, outcome& what);
  void spawn(operation_kind kind, std::string_view key, const std::optional<lock_id>& id, std::int64_t ttl_ms) noexcept;
  void release_if_maybe_acquired(const operation& given_up) noexcept;
  void drop_if_silent();

  batch* take_batch() noexcept;
  void unlink(batch& which) noexcept;
  void take_back(batch& which, bool maybe_applied) noexcept;
  void requeue_returned() noexcept;
  void fail_fragile() noexcept;
  void take_back_abandoned(operation& nobodys) noexcept;
  void finish_healing_when_quiet() noexcept;

  port& out_;
  observer& told_;
  engine_options options_;
  timer_wheel wheel_;
  slot_pool<operation> pool_;
  std::array<operation_list, travel_class_count> queues_;
  std::array<operation_list, travel_class_count> returned_;  // in the order they were sent
  operation_list deferred_;

  batch* sent_first_ = nullptr;
  batch* sent_last_ = nullptr;
  batch* spare_ = nullptr;
  std::vector<std::unique_ptr<batch>> batches_;

  std::int64_t now_us_;
  std::optional<error> link_error_;
  bool up_ = false;
  bool refused_ = false;
  bool healing_ = false;
  bool accepting_ = true;
  guard* innermost_ = nullptr;
  std::size_t pending_ = 0;
  client_stats stats_;
};

}  // namespace syncguard::engine
