#include "engine/waiting_room.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "protocol/inline_string.hpp"

namespace syncguard::engine {

namespace {

// What one turn bears.
constexpr std::size_t turn_max = 512;

// Pauses where nobody tells of changes: as SyncGuard's, and no longer than the last.
constexpr std::int64_t pause_first_ms = 100;
constexpr std::int64_t pause_last_ms = 5000;

constexpr std::int64_t safety_poll_ms = 5000;

// A record whose time is over and which still counts as held is looked at again after this.
constexpr std::int64_t stale_pause_ms = 50;

constexpr unsigned crowd_max = 64;

// A notice and the attempt that it leads to take less than this in one data centre.
constexpr std::int64_t others_first_ms = 2;

using in_vain_text = protocol::inline_string<96>;

void describe_in_vain(in_vain_text& out, std::int64_t waited_ms, std::uint64_t attempts) noexcept {
  const auto add_number = [&](auto number) {
    std::array<char, 20> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
    out.append({digits.data(), static_cast<std::size_t>(end - digits.data())});
  };
  out.append("held by others for ");
  add_number(waited_ms);
  out.append(" ms, ");
  add_number(attempts);
  out.append(attempts == 1 ? " attempt" : " attempts");
}

}  // namespace

waiting_room::waiting_room(engine& plain, engine& watched, lock_keeper& keeper, surroundings& around,
                           std::uint64_t seed, std::int64_t now_us)
    : plain_(plain),
      watched_(watched),
      keeper_(keeper),
      around_(around),
      attempts_(now_us / 1000),
      patience_(now_us / 1000),
      jitter_(seed),
      now_us_(now_us) {}

waiter* waiting_room::enter(const request& what, callback<result<lock>>&& done, std::int64_t now_us) noexcept {
  now_us_ = now_us;
  waiter* who = waiters_.take();
  if (who == nullptr) return nullptr;
  wait_queue* queue = queue_for(what);
  if (queue == nullptr) {
    waiters_.give_back(*who);
    return nullptr;
  }
  who->where = waiter::phase::waiting;
  who->done = std::move(done);
  who->queue = queue;
  who->ttl_ms = what.ttl_ms;
  who->margin_ms = what.margin_ms;
  who->heartbeats = what.heartbeats;
  who->started_us = now_us;
  who->attempts_before = queue->attempts;
  // The answer that is on its way was given before this one came.
  who->results_before = queue->results + (queue->where == wait_queue::phase::attempting ? 1 : 0);
  queue->waiters.push_back(*who);
  ++size_;
  patience_.schedule(*who, now_ms() + what.wait_ms);
  around_.want_watching();
  around_.want_turn_end();
  if (queue->waiters.size() > 1) return who;
  const std::int64_t pause_ms = what.wait_ms > 0 ? courtesy_ms(*queue) : 0;
  if (pause_ms <= 0) {
    attempt(*queue);
  } else {
    attempts_.schedule(*queue, now_ms() + pause_ms);
  }
  return who;
}

waiter* waiting_room::turn_away(callback<result<lock>>&& done, error failure) noexcept {
  waiter* who = waiters_.take();
  if (who == nullptr) return nullptr;
  who->where = waiter::phase::leaving;
  who->done = std::move(done);
  who->failure = std::move(failure);
  ++size_;
  leaving_.push_back(*who);
  around_.want_turn_end();
  return who;
}

wait_queue* waiting_room::queue_for(const request& what) noexcept {
  wait_queue* found = by_place_.find(what.place, [&](const wait_queue& each) { return each.key.view() == what.key; });
  if (found != nullptr) return found;
  wait_queue* fresh = queues_.take();
  if (fresh == nullptr) return nullptr;
  if (!fresh->key.assign(what.key)) {
    queues_.give_back(*fresh);
    return nullptr;
  }
  fresh->where = wait_queue::phase::sleeping;
  fresh->place = what.place;
  by_place_.insert(*fresh);
  return fresh;
}

void waiting_room::attempt(wait_queue& queue) noexcept {
  attempts_.cancel(queue);
  queue.on_watched_lane = watched_.up();
  queue.subscribed = false;
  engine::request what{operation_kind::acquire, queue.key.view(), around_.fresh_id(), queue.waiters.front()->ttl_ms};
  what.patron = {this, queue.slot, queue.generation};
  what.exempt = true;  // it was let in
  what.fragile = queue.on_watched_lane;
  const operation* started = lane_of(queue).start(what, {}, now_us_);
  if (started == nullptr) return sleep_after_failure(queue);
  queue.where = wait_queue::phase::attempting;
  queue.attempt_slot = started->slot;
  queue.attempt_generation = started->generation;
  ++queue.attempts;
  ++attempts_made_;
}

void waiting_room::over(const ended_operation& which, const outcome& what, std::int64_t now_us) {
  if (abandoned_) return;
  now_us_ = now_us;
  keeper_.learn_time(which, what, now_us);
  wait_queue* queue = queues_.find(which.slot, which.generation);
  if (queue == nullptr) {
    // Nobody is left who wants it.
    if (what.what == verdict::acquired) plain_.give_back(*which.id, which.ttl_ms, now_us);
    return;
  }
  queue->where = wait_queue::phase::sleeping;
  ++queue->results;
  if (what.what == verdict::acquired) return acquired(*queue, which, what);
  if (what.what == verdict::contended || what.what == verdict::corrupt) return contended(*queue, what);
  if (queue->on_watched_lane && !watched_.up()) {
    // There is the other lane. What this one may have acquired is in the way there.
    plain_.give_back(*which.id, which.ttl_ms, now_us);
    return attempt(*queue);
  }
  failed(*queue, what.failure ? *what.failure : error{error_code::internal, "the server's answer makes no sense"});
}

void waiting_room::acquired(wait_queue& queue, const ended_operation& which, const outcome& what) {
  waiter& who = *queue.waiters.front();
  held_lock* held = nullptr;
  // The one in front may be another than when the attempt was made, with another time to live.
  if (who.ttl_ms == which.ttl_ms)
    held = keeper_.keep({queue.key.view(), queue.place, *which.id, *what.token, what.expires_at_ms, which.ttl_ms,
                         who.margin_ms, who.heartbeats, queue.on_watched_lane, which.first_sent_us},
                        now_us_);
  if (held == nullptr) {
    lane_of(queue).give_back(*which.id, which.ttl_ms, now_us_);
    if (who.ttl_ms != which.ttl_ms) return attempt(queue);
    return failed(queue, {error_code::network_timeout, "the lock was acquired too late to be of use"});
  }
  remember_crowd(queue);
  queue.last_failure.reset();
  queue.passed_over = 0;
  queue.pauses = 0;
  queue.first_holder = what.token->number();
  callback<result<lock>> done = std::move(who.done);
  queue.waiters.remove(who);
  patience_.cancel(who);
  waiters_.give_back(who);
  --size_;
  if (queue.waiters.empty()) {
    close_if_empty(queue);
  } else {
    const bool in_a_hurry = dismiss_overdue(queue);
    if (in_a_hurry) {
      attempt(queue);
    } else if (!queue.waiters.empty()) {
      sleep(queue, what.expires_at_ms);
    }
  }
  done(around_.wrap(*held));
}

void waiting_room::contended(wait_queue& queue, const outcome& what) {
  count_hand_overs(queue, what);
  queue.last_failure.reset();
  if (dismiss_overdue(queue)) return attempt(queue);
  if (!queue.in_use()) return;
  sleep(queue, what.what == verdict::contended ? what.expires_at_ms : 0);
}

// Each hand-over raises the fence by one, so what has been missed between two attempts counts, too.
void waiting_room::count_hand_overs(wait_queue& queue, const outcome& what) noexcept {
  if (!what.token) return;
  const std::uint64_t holder = what.token->number();
  if (queue.first_holder == 0) queue.first_holder = holder;
  if (holder <= queue.first_holder) return;
  queue.passed_over = static_cast<unsigned>(std::min<std::uint64_t>(holder - queue.first_holder, crowd_max));
  std::uint8_t& crowd = crowd_of(queue);
  crowd = std::max(crowd, static_cast<std::uint8_t>(queue.passed_over));
}

// A crowd that is gone is forgotten step by step.
void waiting_room::remember_crowd(const wait_queue& queue) noexcept {
  std::uint8_t& crowd = crowd_of(queue);
  crowd = static_cast<std::uint8_t>(std::max(queue.passed_over, crowd * 15U / 16U));
}

std::int64_t waiting_room::hold_back_ms(const wait_queue& queue) noexcept {
  const unsigned crowd = crowd_of(queue);
  return queue.passed_over < crowd ? (crowd - queue.passed_over + 1) / 2 : 0;
}

// One who has just released a lock would get it again before the others have heard of it, over and over.
std::int64_t waiting_room::courtesy_ms(const wait_queue& queue) noexcept {
  const auto released_ms = keeper_.released_ms(queue.place);
  const std::int64_t others_first = released_ms ? *released_ms + others_first_ms - now_ms() : 0;
  return std::max(others_first, hold_back_ms(queue));
}

void waiting_room::failed(wait_queue& queue, error why) {
  const bool may_pass = why.retryable();
  queue.last_failure = std::move(why);
  if (!may_pass) {
    // The next in line may fare better: it has its own time to live.
    leave(*queue.waiters.front(), *queue.last_failure);
  } else if (dismiss_overdue(queue)) {
    return attempt(queue);
  }
  if (!queue.in_use()) return;
  if (may_pass) return sleep_after_failure(queue);
  attempts_.schedule(queue, now_ms());
  around_.want_turn_end();
}

// Closes the queue where nobody is left. Returns whether somebody is whose time is over, and who has had no attempt
// yet.
bool waiting_room::dismiss_overdue(wait_queue& queue) {
  bool in_a_hurry = false;
  for (waiter* each = queue.waiters.front(); each != nullptr;) {
    waiter& who = *each;
    each = each->next;
    const bool last = queue.waiters.size() == 1;
    if (!who.overdue) continue;
    if (queue.results <= who.results_before) {
      in_a_hurry = true;
      continue;
    }
    leave(who, why_in_vain(who));
    if (last) return false;
  }
  return in_a_hurry;
}

void waiting_room::sleep(wait_queue& queue, std::int64_t holder_expires_at_ms) noexcept {
  queue.subscribed = queue.on_watched_lane && watched_.up();
  if (!queue.subscribed && watched_.up()) return attempt(queue);
  std::int64_t at_ms = now_ms();
  if (queue.subscribed) {
    queue.pauses = 0;
    at_ms += safety_poll_ms / 2 + jitter_.below(safety_poll_ms / 2);
  } else {
    at_ms += next_pause_ms(queue);
  }
  if (holder_expires_at_ms > 0 && keeper_.clock().known()) {
    const std::int64_t free_ms = keeper_.clock().latest_us(holder_expires_at_ms) / 1000 + 1 + hold_back_ms(queue);
    at_ms = std::min(at_ms, std::max(free_ms, now_ms() + stale_pause_ms));
  }
  attempts_.schedule(queue, at_ms);
}

void waiting_room::sleep_after_failure(wait_queue& queue) noexcept {
  attempts_.schedule(queue, now_ms() + next_pause_ms(queue));
}

// Half of it fixed, half by chance.
std::int64_t waiting_room::next_pause_ms(wait_queue& queue) noexcept {
  const std::int64_t pause_ms = std::min(pause_last_ms, pause_first_ms << std::min(queue.pauses++, 10U));
  return pause_ms / 2 + jitter_.below(pause_ms / 2 + 1);
}

// What arrives before the answer to an attempt happened before it, so only those who sleep need to know.
void waiting_room::invalidated(std::uint64_t place, std::int64_t now_us) noexcept {
  if (abandoned_) return;
  now_us_ = now_us;
  by_place_.find(place, [this](wait_queue& queue) {
    wake(queue);
    return false;
  });
}

void waiting_room::invalidated_all(std::int64_t now_us) noexcept {
  if (abandoned_) return;
  now_us_ = now_us;
  by_place_.for_each([this](wait_queue& queue) { wake(queue); });
}

void waiting_room::wake(wait_queue& queue) noexcept {
  if (!std::exchange(queue.subscribed, false)) return;
  ++wakes_;
  attempts_.schedule(queue, now_ms() + hold_back_ms(queue));
  around_.want_turn_end();
}

void waiting_room::watching_began(std::int64_t now_us) noexcept {
  if (abandoned_) return;
  now_us_ = now_us;
  by_place_.for_each([this](wait_queue& queue) {
    if (queue.where == wait_queue::phase::sleeping) attempts_.schedule(queue, now_ms());
  });
  around_.want_turn_end();
}

void waiting_room::watching_ended(std::int64_t now_us) noexcept {
  if (abandoned_) return;
  now_us_ = now_us;
  by_place_.for_each([this](wait_queue& queue) {
    if (std::exchange(queue.subscribed, false)) sleep_after_failure(queue);
  });
}

std::optional<std::int64_t> waiting_room::next_wake_ms() const noexcept {
  const auto attempt = attempts_.next_wake_ms();
  const auto patience = patience_.next_wake_ms();
  if (attempt && patience) return std::min(*attempt, *patience);
  return attempt ? attempt : patience;
}

void waiting_room::run_timers(std::int64_t now_us) {
  if (abandoned_) return;
  now_us_ = now_us;
  attempts_.advance(
      now_ms(), [this](timer& due) { attempt(static_cast<wait_queue&>(due)); }, turn_max);
  patience_.advance(
      now_ms(), [this](timer& due) { patience_ends(static_cast<waiter&>(due)); }, turn_max);
}

// Nobody leaves before an attempt has been made for him, or for the one in front of him.
void waiting_room::patience_ends(waiter& who) {
  wait_queue& queue = *who.queue;
  if (queue.results > who.results_before) return leave(who, why_in_vain(who));
  who.overdue = true;
  if (queue.where != wait_queue::phase::attempting) attempt(queue);
}

error waiting_room::why_in_vain(const waiter& who) const noexcept {
  if (who.queue->last_failure) return *who.queue->last_failure;
  error late{error_code::acquisition_timeout, "the lock stayed held by others"};
  in_vain_text text;
  describe_in_vain(text, (now_us_ - who.started_us) / 1000, who.queue->attempts - who.attempts_before);
  late.with_context(who.queue->key.view(), {}, text.view());
  return late;
}

bool waiting_room::cancel(std::uint32_t slot, std::uint32_t generation, std::int64_t now_us) noexcept {
  waiter* who = waiters_.find(slot, generation);
  if (who == nullptr || who->where != waiter::phase::waiting) return false;
  now_us_ = now_us;
  error aborted{error_code::aborted, "waiting for the lock was cancelled"};
  leave(*who, aborted.with_context(who->queue->key.view(), {}, {}));
  return true;
}

void waiting_room::leave(waiter& who, error why) noexcept {
  wait_queue& queue = *who.queue;
  who.where = waiter::phase::leaving;
  who.failure = std::move(why);
  patience_.cancel(who);
  queue.waiters.remove(who);
  leaving_.push_back(who);
  around_.want_turn_end();
  close_if_empty(queue);
}

void waiting_room::close_if_empty(wait_queue& queue) noexcept {
  if (!queue.waiters.empty()) return;
  attempts_.cancel(queue);
  by_place_.remove(queue);
  // Its answer finds nobody; if it acquires the lock, that is given back.
  if (queue.where == wait_queue::phase::attempting)
    lane_of(queue).cancel(queue.attempt_slot, queue.attempt_generation, now_us_);
  queues_.give_back(queue);
}

void waiting_room::close(std::int64_t now_us) noexcept {
  now_us_ = now_us;
  for (std::size_t index = 0; waiter* who = waiters_.at(index); ++index)
    if (who->where == waiter::phase::waiting) leave(*who, {error_code::aborted, "the client has been closed"});
}

void waiting_room::end_turn(std::int64_t now_us) {
  run_timers(now_us);
  for (std::size_t left = std::min(leaving_.size(), turn_max); left > 0 && !abandoned_; --left) {
    waiter* who = leaving_.pop_front();
    if (who == nullptr) return;
    callback<result<lock>> done = std::move(who->done);
    error why = std::move(*who->failure);
    waiters_.give_back(*who);
    --size_;
    done(std::move(why));
  }
  if (!abandoned_ && !leaving_.empty()) around_.want_turn_end();
}

void waiting_room::abandon() noexcept {
  abandoned_ = true;
  for (std::size_t index = 0; waiter* who = waiters_.at(index); ++index) {
    patience_.cancel(*who);
    const callback<result<lock>> dropped = std::move(who->done);
  }
}

void waiting_room::count_in(client_stats& stats) const noexcept {
  stats.waiting = size_;
  stats.attempts = attempts_made_;
  stats.wakes = wakes_;
}

}  // namespace syncguard::engine
