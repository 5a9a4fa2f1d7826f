#include "engine/timer_wheel.hpp"

#include <algorithm>
#include <bit>

namespace syncguard::engine {

namespace {

// The bits of a time that make up the digits below that of a level.
constexpr std::int64_t below_level(unsigned level) noexcept {
  return (std::int64_t{1} << (level * timer_wheel::level_bits)) - 1;
}

}  // namespace

namespace detail {

void timer_list::push_back(timer_link& link) noexcept {
  link.next = &head_;
  link.prev = head_.prev;
  head_.prev->next = &link;
  head_.prev = &link;
}

void timer_list::append(timer_list& other) noexcept {
  if (other.empty()) return;
  head_.prev->next = other.head_.next;
  other.head_.next->prev = head_.prev;
  other.head_.prev->next = &head_;
  head_.prev = other.head_.prev;
  other.head_.next = other.head_.prev = &other.head_;
}

void timer_list::unlink(timer_link& link) noexcept {
  link.prev->next = link.next;
  link.next->prev = link.prev;
  link.next = link.prev = nullptr;
}

}  // namespace detail

timer::~timer() {
  if (wheel_ != nullptr) wheel_->cancel(*this);
}

timer_wheel::~timer_wheel() {
  if (destroyed_ != nullptr) *destroyed_ = true;
  for (auto& list : lists_) unschedule_all(list);
  unschedule_all(moving_);
  unschedule_all(firing_);
}

void timer_wheel::unschedule_all(detail::timer_list& list) noexcept {
  while (!list.empty()) {
    auto& what = static_cast<timer&>(list.front());
    detail::timer_list::unlink(what);
    what.wheel_ = nullptr;
    --size_;
  }
}

void timer_wheel::schedule(timer& what, std::int64_t deadline_ms) noexcept {
  if (what.wheel_ != nullptr) what.wheel_->cancel(what);
  what.wheel_ = this;
  what.deadline_ms_ = std::max(deadline_ms, now_ms_);
  ++size_;
  link(what);
}

void timer_wheel::cancel(timer& what) noexcept {
  if (what.wheel_ != this) return;
  detail::timer_list::unlink(what);
  what.wheel_ = nullptr;
  --size_;
  const std::size_t list = list_of(what.deadline_ms_);
  if (lists_[list].empty()) set_occupied(list, false);
}

std::size_t timer_wheel::list_of(std::int64_t deadline_ms) const noexcept {
  if (deadline_ms <= now_ms_) return due_list;
  const auto deadline = static_cast<std::uint64_t>(deadline_ms);
  const auto differing = deadline ^ static_cast<std::uint64_t>(now_ms_);
  const unsigned level = static_cast<unsigned>(std::bit_width(differing) - 1) / level_bits;
  if (level >= level_count) return far_list;
  return level * slots_per_level + ((deadline >> (level * level_bits)) & (slots_per_level - 1));
}

void timer_wheel::link(timer& what) noexcept {
  const std::size_t list = list_of(what.deadline_ms_);
  lists_[list].push_back(what);
  set_occupied(list, true);
}

void timer_wheel::set_occupied(std::size_t list, bool occupied) noexcept {
  const std::uint64_t bit = std::uint64_t{1} << (list % slots_per_level);
  auto& word = occupied_[list / slots_per_level];
  word = occupied ? word | bit : word & ~bit;
}

bool timer_wheel::is_occupied(std::size_t list) const noexcept {
  return ((occupied_[list / slots_per_level] >> (list % slots_per_level)) & 1) != 0;
}

std::optional<std::int64_t> timer_wheel::next_wake_ms() const noexcept {
  if (is_occupied(due_list) || !moving_.empty() || !firing_.empty()) return now_ms_;
  const auto next = next_event();
  return next ? std::optional{next->at_ms} : std::nullopt;
}

std::optional<timer_wheel::event> timer_wheel::next_event() const noexcept {
  for (unsigned level = 0; level < level_count; ++level) {
    if (occupied_[level] == 0) continue;
    const auto slot = static_cast<unsigned>(std::countr_zero(occupied_[level]));
    const std::int64_t block_ms = now_ms_ & ~below_level(level + 1);
    return event{level * slots_per_level + slot, block_ms + (std::int64_t{slot} << (level * level_bits))};
  }
  if (!is_occupied(far_list)) return std::nullopt;
  return event{far_list, (now_ms_ | below_level(level_count)) + 1};  // a far deadline proves that this exists
}

void timer_wheel::collect(std::int64_t now_ms, std::size_t max_moved) noexcept {
  cascade(max_moved);
  for (auto next = next_event(); moving_.empty() && next && next->at_ms <= now_ms; next = next_event()) {
    // Where nothing else is left, spans of 795 days without a timer are skipped.
    if (next->list == far_list) next->at_ms = std::min(earliest_far_ms(), now_ms) & ~below_level(level_count);
    now_ms_ = next->at_ms;
    empty_slot(next->list);
    cascade(max_moved);
  }
  if (moving_.empty()) now_ms_ = std::max(now_ms_, now_ms);
}

void timer_wheel::empty_slot(std::size_t list) noexcept {
  set_occupied(list, false);
  if (list >= slots_per_level) return moving_.append(lists_[list]);
  // A slot of the lowest level is one millisecond: all are due.
  lists_[due_list].append(lists_[list]);
  set_occupied(due_list, true);
}

void timer_wheel::cascade(std::size_t& max_moved) noexcept {
  for (; max_moved > 0 && !moving_.empty(); --max_moved) {
    auto& what = static_cast<timer&>(moving_.front());
    detail::timer_list::unlink(what);
    link(what);
  }
}

std::int64_t timer_wheel::earliest_far_ms() const noexcept {
  std::int64_t earliest_ms = std::numeric_limits<std::int64_t>::max();
  const auto& list = lists_[far_list];
  for (const auto* at = list.begin(); at != list.end(); at = at->next) {
    earliest_ms = std::min(earliest_ms, static_cast<const timer*>(at)->deadline_ms_);
  }
  return earliest_ms;
}

timer_wheel::round::round(timer_wheel& wheel) noexcept : wheel_(wheel) {
  wheel_.destroyed_ = &destroyed_;
  wheel_.firing_.append(wheel_.lists_[due_list]);
  wheel_.set_occupied(due_list, false);
}

timer_wheel::round::~round() {
  if (destroyed_) return;
  wheel_.destroyed_ = nullptr;
  // What is left goes before what became due meanwhile.
  auto& due = wheel_.lists_[due_list];
  wheel_.firing_.append(due);
  due.append(wheel_.firing_);
  wheel_.set_occupied(due_list, !due.empty());
}

timer* timer_wheel::round::take() noexcept {
  if (destroyed_ || wheel_.firing_.empty()) return nullptr;
  auto& due = static_cast<timer&>(wheel_.firing_.front());
  detail::timer_list::unlink(due);
  due.wheel_ = nullptr;
  --wheel_.size_;
  return &due;
}

bool timer_wheel::valid() const noexcept {
  auto total = count_valid(firing_, due_list);
  for (const auto* at = moving_.begin(); at != moving_.end() && total; at = at->next) ++*total;
  for (std::size_t list = 0; list < list_count && total; ++list) {
    if (is_occupied(list) == lists_[list].empty()) return false;
    const auto count = count_valid(lists_[list], list);
    total = count ? std::optional{*total + *count} : std::nullopt;
  }
  return total == size_;
}

// How many timers a list has; nothing where one of them does not belong there.
std::optional<std::size_t> timer_wheel::count_valid(const detail::timer_list& list, std::size_t place) const noexcept {
  std::size_t count = 0;
  std::int64_t last_ms = std::numeric_limits<std::int64_t>::min();
  for (const auto* at = list.begin(); at != list.end(); at = at->next) {
    const auto& what = *static_cast<const timer*>(at);
    if (++count > size_ || at->next->prev != at || at->prev->next != at) return std::nullopt;
    if (what.wheel_ != this || list_of(what.deadline_ms_) != place) return std::nullopt;
    if (place == due_list && what.deadline_ms_ < last_ms) return std::nullopt;
    last_ms = what.deadline_ms_;
  }
  return count;
}

}  // namespace syncguard::engine
