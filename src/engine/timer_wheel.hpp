#pragma once

// Timers for very many deadlines, most of which are cancelled before they come: a hierarchical timer wheel.
//
// Structure. Read a time in milliseconds as a number in base 64. A timer waits at the level of the highest digit in
// which its deadline differs from the wheel's now, in the slot that this digit names. So level 0 holds what comes
// within the current 64 ms, one slot per millisecond; level 1 what comes within the current 4096 ms, one slot per
// 64 ms; and so on. When now reaches the beginning of a slot above level 0, the timers in it no longer differ from now
// in that digit, and each moves down to the level of the next digit that differs: a cascade. A timer moves at most once
// per level in its whole life, and one that is cancelled early never moves at all.
//
// Finding the next. The digit of a waiting timer is always greater than that of now, so slots are never used in a
// circle: every timer of a level is earlier than every timer of the levels above it. The lowest bit that is set in the
// lowest bitmap that is not zero is what comes next, however far away that is. Time is never walked through tick by
// tick: the wheel jumps from one used slot to the next, and a clock that leaps ahead by months costs no more than the
// timers that it passes.
//
// Tick and levels. A tick is a millisecond, the unit of every time in the protocol; nothing is rounded, so a timer is
// due exactly at its deadline. Six bits make a level's bitmap one machine word. Six levels span 64^6 ms, 795 days, more
// than the hundred days that the library allows, in 6 KiB of list heads. A deadline beyond the current 795 days, be it
// far away or just across the boundary, waits in one more list, which is looked through when now gets there.
//
// Order. Where a timer waits depends on its deadline and on now, on nothing else: not on when it was scheduled, nor
// from how far. Timers of equal deadlines are therefore always in the same list. A timer is appended to its list when
// it is scheduled, and a cascade takes a list from front to back and appends again; so they stay in the order in which
// they were scheduled. Slots become due in the order of time, hence all due timers are in the order of their deadlines.

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

namespace syncguard::engine {

class timer_wheel;

namespace detail {

struct timer_link {
  timer_link* next = nullptr;
  timer_link* prev = nullptr;
};

// A ring of links through a head of its own.
class timer_list {
 public:
  timer_list() noexcept : head_{&head_, &head_} {}
  ~timer_list() = default;

  timer_list(const timer_list&) = delete;
  timer_list& operator=(const timer_list&) = delete;

  bool empty() const noexcept { return head_.next == &head_; }
  timer_link& front() noexcept { return *head_.next; }
  const timer_link* begin() const noexcept { return head_.next; }
  const timer_link* end() const noexcept { return &head_; }

  void push_back(timer_link& link) noexcept;
  void append(timer_list& other) noexcept;  // leaves the other empty
  static void unlink(timer_link& link) noexcept;

 private:
  timer_link head_;
};

}  // namespace detail

// A deadline that something waits for. Made to be a member or a base of what it is for.
//
// Ownership: the user's; a wheel only links it.
// Lifetime: its end unschedules it. Its address is its identity, hence neither copied nor moved.
// Allocates: never.
class timer : private detail::timer_link {
 public:
  timer() noexcept = default;
  ~timer();

  timer(const timer&) = delete;
  timer& operator=(const timer&) = delete;

  bool scheduled() const noexcept { return wheel_ != nullptr; }

  // The deadline it was last scheduled for; it stays readable after it fired. 0 where it never was scheduled.
  std::int64_t deadline_ms() const noexcept { return deadline_ms_; }

 private:
  friend class timer_wheel;

  timer_wheel* wheel_ = nullptr;
  std::int64_t deadline_ms_ = 0;
};

static_assert(sizeof(timer) <= 32);

// Ownership: owns no timer.
// Lifetime: its end unschedules all timers; timers and wheel may end in any order. May end inside `fire`.
// Reentrancy: inside `fire` everything is allowed, see advance().
// Allocates: never.
class timer_wheel {
 public:
  static constexpr unsigned level_bits = 6;
  static constexpr unsigned level_count = 6;
  static constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

  explicit timer_wheel(std::int64_t now_ms) noexcept : now_ms_(now_ms) {}
  ~timer_wheel();

  timer_wheel(const timer_wheel&) = delete;
  timer_wheel& operator=(const timer_wheel&) = delete;

  // Schedules a timer, or schedules it anew, in which case it comes after others of the same deadline. A deadline
  // before the wheel's now counts as now: the timer is due at the next advance(), after all that were due before it.
  // The wheel's now is that of the last advance().
  void schedule(timer& what, std::int64_t deadline_ms) noexcept;

  // Harmless where the timer is not scheduled here.
  void cancel(timer& what) noexcept;

  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }

  // When advance() must be called next: never after the earliest deadline, and now where a timer is due already. It can
  // be before the earliest deadline, for a cascade; that happens to a timer at most level_count times within its last
  // 795 days, and before those once in 795 days. Nothing where no timer is scheduled.
  std::optional<std::int64_t> next_wake_ms() const noexcept;

  // Moves now forward, and calls fire(timer&) for each timer whose deadline is then not after now: in the order of the
  // deadlines, equal ones in the order in which they were scheduled. A `now_ms` before the wheel's now counts as the
  // wheel's now. What is still due after `max_fired` timers stays first in line for the next call. A cascade that is
  // longer than `max_moved` timers goes on in the next calls: until it is over, the wheel's now stands still, and
  // next_wake_ms() says that they are wanted at once.
  //
  // Reentrancy: a timer is unscheduled before it is fired. Inside `fire` any timer may be scheduled, cancelled or
  // destroyed, the one that fires and those that are due with it included; one that is cancelled or scheduled anew does
  // not fire in this call, nor does one that is scheduled for now. The wheel may be destroyed. advance() does nothing.
  // Errors: where `fire` throws, the timers that are left stay due.
  template <class Fire>
  void advance(std::int64_t now_ms, Fire&& fire, std::size_t max_fired = unlimited, std::size_t max_moved = unlimited) {
    if (destroyed_ != nullptr) return;
    collect(now_ms, max_moved);
    round current{*this};
    for (; max_fired > 0; --max_fired) {
      timer* const due = current.take();
      if (due == nullptr) return;
      fire(*due);
    }
  }

  // Whether links, bitmaps, places, order and count are what they must be. For tests; looks at every timer.
  bool valid() const noexcept;

 private:
  // One advance(): what is due when it begins, and the flag on the stack that tells when the wheel is no more.
  class round {
   public:
    explicit round(timer_wheel& wheel) noexcept;
    ~round();

    round(const round&) = delete;
    round& operator=(const round&) = delete;

    timer* take() noexcept;

   private:
    timer_wheel& wheel_;
    bool destroyed_ = false;
  };

  // A list that must be looked at again, and when.
  struct event {
    std::size_t list;
    std::int64_t at_ms;
  };

  // The slots of all levels from the lowest up, and the two lists of what is in none.
  static constexpr std::size_t slots_per_level = std::size_t{1} << level_bits;
  static constexpr std::size_t far_list = level_count * slots_per_level;
  static constexpr std::size_t due_list = far_list + 1;
  static constexpr std::size_t list_count = due_list + 1;

  std::size_t list_of(std::int64_t deadline_ms) const noexcept;
  void link(timer& what) noexcept;
  void set_occupied(std::size_t list, bool occupied) noexcept;
  bool is_occupied(std::size_t list) const noexcept;

  std::optional<event> next_event() const noexcept;
  void collect(std::int64_t now_ms, std::size_t max_moved) noexcept;
  void empty_slot(std::size_t list) noexcept;
  void cascade(std::size_t& max_moved) noexcept;
  std::int64_t earliest_far_ms() const noexcept;
  void unschedule_all(detail::timer_list& list) noexcept;

  std::optional<std::size_t> count_valid(const detail::timer_list& list, std::size_t place) const noexcept;

  std::int64_t now_ms_;
  std::size_t size_ = 0;
  std::array<std::uint64_t, level_count + 1> occupied_{};  // a word per level, and one for the two lists
  std::array<detail::timer_list, list_count> lists_;
  detail::timer_list moving_;  // what a cascade that goes on has still to move
  detail::timer_list firing_;  // what the advance() under way has still to fire
  bool* destroyed_ = nullptr;  // the flag of the advance() under way
};

}  // namespace syncguard::engine
