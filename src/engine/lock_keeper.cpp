#include "engine/lock_keeper.hpp"

#include <algorithm>
#include <utility>

namespace syncguard::engine {

namespace {

// What one turn bears, each about half a millisecond of work.
constexpr std::size_t turn_max = 256;      // operations that are started
constexpr std::size_t due_max = 1024;      // timers that are due
constexpr std::size_t cascade_max = 2048;  // timers that only move within the wheel

// Heartbeats on their way at once. The server is busy with them for some ten milliseconds.
constexpr std::size_t in_flight_max = 2048;

constexpr std::int64_t margin_max_ms = 1000;
constexpr std::int64_t retry_min_ms = 10;
constexpr std::int64_t retry_max_ms = 1000;

engine::request release_of(const held_lock& held, std::int64_t timeout_ms) noexcept {
  engine::request what{operation_kind::release, held.key(), held.id, held.ttl_ms, timeout_ms};
  what.exempt = true;
  return what;
}

error over_already() noexcept { return {error_code::aborted, "the lock was lost or released before"}; }

}  // namespace

lock_keeper::lock_keeper(engine& plain, engine& watched, surroundings& around, const keeper_options& options,
                         std::int64_t now_us)
    : plain_(plain),
      watched_(watched),
      around_(around),
      options_(options),
      wheel_(now_us / 1000),
      jitter_(options.seed),
      now_us_(now_us) {}

std::int64_t lock_keeper::margin_of(std::int64_t ttl_ms, std::optional<std::int64_t> wanted_ms) noexcept {
  return wanted_ms.value_or(std::min(ttl_ms / 10, margin_max_ms));
}

held_lock* lock_keeper::keep(const acquisition& what, std::int64_t now_us) noexcept {
  now_us_ = now_us;
  const std::int64_t margin_ms = margin_of(what.ttl_ms, what.margin_ms);
  const std::int64_t valid_until_ms = what.sent_us / 1000 + what.ttl_ms - margin_ms;
  if (valid_until_ms <= now_ms()) return nullptr;
  held_lock* held = pool_.take();
  if (held == nullptr) return nullptr;
  if (!held->set_key(what.key)) {
    pool_.give_back(*held);
    return nullptr;
  }
  held->phase = hold::held;
  held->ttl_ms = what.ttl_ms;
  held->margin_ms = static_cast<std::uint32_t>(margin_ms);
  held->own_margin = what.margin_ms.has_value();
  held->valid_until_ms = valid_until_ms;
  held->expires_at_ms = what.expires_at_ms;
  held->token = what.token;
  held->id = what.id;
  held->place = static_cast<std::uint32_t>(what.place);
  held->heartbeats = what.heartbeats;
  held->on_watched_lane = what.on_watched_lane;
  ++size_;
  watch(*held);
  schedule_next(*held);
  return held;
}

void lock_keeper::watch(held_lock& held) noexcept {
  if (watched_locks_.size() >= options_.watch_max) return;
  held.watched = true;
  watched_locks_.insert(held);
}

// At a third of the time to live after the server confirmed it, a little earlier by chance: locks that were acquired
// together part company.
void lock_keeper::schedule_next(held_lock& held) noexcept {
  std::int64_t at_ms = held.valid_until_ms;
  if (held.heartbeats && held.heart == beat::none) {
    const std::int64_t third_ms = held.ttl_ms / 3 - jitter_.below(held.ttl_ms / 15 + 1);
    const std::int64_t confirmed_us = clock_.known() ? clock_.earliest_us(held.expires_at_ms - held.ttl_ms) : now_us_;
    // Where it was confirmed too late to be valid, that is told at once.
    if (at_ms > now_ms()) at_ms = std::clamp(confirmed_us / 1000 + third_ms, now_ms() + 1, at_ms);
  }
  wheel_.schedule(held, at_ms);
}

void lock_keeper::set_on_lost(held_lock& held, callback<lost> told, std::int64_t now_us) {
  if (held.phase != hold::held && held.phase != hold::lost) return;
  const callback<lost> old = std::exchange(held.on_lost, std::move(told));
  if (held.phase != hold::lost || !held.on_lost) return;
  wheel_.schedule(held, now_us / 1000);
  around_.want_turn_end();
}

void lock_keeper::extend(held_lock& held, std::int64_t ttl_ms, completion&& done, std::int64_t now_us) {
  now_us_ = now_us;
  const engine::request what{operation_kind::extend, held.key(), held.id, ttl_ms};
  std::optional<error> refused;
  if (held.phase != hold::held) refused = over_already();
  if (!refused && (ttl_ms < ttl_min_ms || (held.own_margin && ttl_ms <= held.margin_ms)))
    refused = error{error_code::invalid_argument, "the time to live is too short for a lock that is kept"};
  if (refused) {
    plain_.start_failed(what, std::move(done), *std::move(refused), now_us);
    return;
  }
  if (held.in_flight > 0 && ttl_ms != held.ttl_ms) held.several_ttls = true;
  held.ttl_ms = ttl_ms;
  if (!held.own_margin) held.margin_ms = static_cast<std::uint32_t>(margin_of(ttl_ms, std::nullopt));
  engine* lane = lane_for(held);
  if (!start_extend(held, lane != nullptr ? *lane : plain_, what, std::move(done))) return;
  // The server may do it and its answer be lost: from here on no more than the new time can be counted on.
  held.valid_until_ms = std::min(held.valid_until_ms, now_ms() + ttl_ms - held.margin_ms);
  wheel_.schedule(held,
                  held.heart == beat::none ? std::min(held.deadline_ms(), held.valid_until_ms) : held.valid_until_ms);
}

bool lock_keeper::start_extend(held_lock& held, engine& lane, engine::request what, completion&& done) {
  what.patron = {this, held.slot, held.generation};
  what.exempt = true;
  if (lane.start(what, std::move(done), now_us_) == nullptr) return false;
  held.on_watched_lane = &lane == &watched_;
  held.maybe_extended = held.maybe_extended || what.kind == operation_kind::extend;
  ++held.in_flight;
  return true;
}

void lock_keeper::release(held_lock& held, completion&& done, std::int64_t now_us) {
  now_us_ = now_us;
  const engine::request what = release_of(held, 0);
  if (held.phase != hold::held) {
    plain_.start_failed(what, std::move(done), over_already(), now_us);
    return;
  }
  detach(held);
  note_release(held);
  held.phase = hold::over;
  // Always by the plain lane: a connection is not told of its own changes, and others of this process may wait.
  plain_.start(what, std::move(done), now_us);
}

void lock_keeper::let_go(held_lock& held, std::int64_t now_us) noexcept {
  wheel_.cancel(held);
  if (!abandoned_ && held.phase == hold::held) {
    now_us_ = now_us;
    detach(held);
    note_release(held);
    plain_.start(release_of(held, options_.release_timeout_ms), around_.release_observer(), now_us);
  }
  // What the callback holds may be another lock.
  const callback<lost> dropped = std::move(held.on_lost);
  pool_.give_back(held);
}

// Out of every list: nothing more is done for it.
void lock_keeper::detach(held_lock& held) noexcept {
  wheel_.cancel(held);
  if (held.heart == beat::due) due_.remove(held);
  held.heart = beat::none;
  if (held.watched) watched_locks_.remove(held);
  held.watched = false;
  --size_;
}

void lock_keeper::note_release(const held_lock& held) noexcept {
  releases_[held.place % releases_.size()] = {held.place, now_ms()};
}

std::optional<std::int64_t> lock_keeper::released_ms(std::uint64_t place) const noexcept {
  const release_note& last = releases_[place % releases_.size()];
  return last.place == static_cast<std::uint32_t>(place) && last.at_ms > 0 ? std::optional{last.at_ms} : std::nullopt;
}

void lock_keeper::run_timers(std::int64_t now_us) {
  if (abandoned_) return;
  now_us_ = now_us;
  const auto fire_one = [this](timer& due) { fire(static_cast<held_lock&>(due)); };
  wheel_.advance(now_ms(), fire_one, due_max, cascade_max);
  if (abandoned_ || !std::exchange(want_poll_, false)) return;
  // If it is this process that was late, the answers are there already.
  plain_.poll();
  if (abandoned_) return;
  watched_.poll();
  if (abandoned_) return;
  polled_ = true;
  wheel_.advance(now_ms(), fire_one, due_max, cascade_max);
  polled_ = false;
}

void lock_keeper::fire(held_lock& held) {
  if (abandoned_) return;
  if (held.phase == hold::lost) return tell(held);
  if (now_ms() < held.valid_until_ms) return make_due(held);
  if (held.in_flight > 0 && !polled_) {
    want_poll_ = true;
    return wheel_.schedule(held, now_ms());
  }
  lose(held, lost::unconfirmed);
}

void lock_keeper::make_due(held_lock& held) noexcept {
  wheel_.schedule(held, held.valid_until_ms);
  if (held.heart != beat::none) return;
  held.heart = beat::due;
  due_.push_back(held);
  around_.want_turn_end();
}

// Extends of one lock must not overtake each other, so they all take one lane while any is on its way.
engine* lock_keeper::lane_for(const held_lock& held) noexcept {
  if (held.in_flight > 0) return held.on_watched_lane ? &watched_ : &plain_;
  if (held.watched && watched_.up()) return &watched_;
  if (plain_.up()) return &plain_;
  return watched_.up() ? &watched_ : nullptr;
}

void lock_keeper::end_turn(std::int64_t now_us) {
  if (abandoned_) return;
  now_us_ = now_us;
  std::size_t room = std::min(turn_max, in_flight_max - std::min(in_flight_, in_flight_max));
  while (room > 0 && !due_.empty()) {
    held_lock& held = *due_.front();
    if (lane_for(held) == nullptr) return;  // when a link comes up, there is another turn
    due_.remove(held);
    held.heart = beat::none;
    if (send_heartbeat(held)) {
      --room;
    } else {
      retry_later(held);
    }
  }
  if (!due_.empty() && in_flight_ < in_flight_max) around_.want_turn_end();
}

// A lock without heartbeats is only looked at, when somebody has changed its record.
bool lock_keeper::send_heartbeat(held_lock& held) {
  if (held.in_flight == 255) return false;
  engine::request what{operation_kind::extend, {}, held.id, held.ttl_ms};
  what.timeout_ms = std::max<std::int64_t>(1, held.valid_until_ms - now_ms());
  what.fragile = true;  // there may be another lane
  engine* lane = lane_for(held);
  if (!lane->up()) return false;                 // behind an extend by hand that waits for its link
  if (lane == &watched_) what.key = held.key();  // some servers watch only keys that are named
  if (!held.heartbeats) {
    what.kind = operation_kind::lookup_id;
    lane = &plain_;
  }
  if (!start_extend(held, *lane, what, {})) return false;
  held.heart = beat::sent;
  ++in_flight_;
  if (held.heartbeats) ++heartbeats_;
  return true;
}

void lock_keeper::retry_later(held_lock& held) noexcept {
  const std::int64_t pause_ms = std::clamp(held.ttl_ms / 20, retry_min_ms, retry_max_ms);
  const std::int64_t at_ms = now_ms() + pause_ms / 2 + jitter_.below(pause_ms / 2 + 1) + 1;
  wheel_.schedule(held, held.heart == beat::none ? std::min(at_ms, held.valid_until_ms) : held.valid_until_ms);
}

void lock_keeper::over(const ended_operation& which, const outcome& what, std::int64_t now_us) {
  if (abandoned_) return;
  now_us_ = now_us;
  learn_time(which, what, now_us);
  if (!which.by_hand) --in_flight_;
  if (!due_.empty()) around_.want_turn_end();
  held_lock* held = pool_.find(which.slot, which.generation);
  if (held == nullptr) return;
  --held->in_flight;
  if (held->phase != hold::held) return;
  if (!which.by_hand) held->heart = beat::none;
  switch (what.what) {
    case verdict::extended: return confirm(*held, which, what);
    case verdict::found: return go_on(*held);
    case verdict::absent: return lose(*held, lost::vanished);
    case verdict::expired: return lose(*held, lost::expired);
    case verdict::not_owner: return lose(*held, lost::taken);
    default: return retry_later(*held);
  }
}

void lock_keeper::learn_time(const ended_operation& which, const outcome& what, std::int64_t now_us) noexcept {
  if (what.server_now_ms > 0 && which.last_sent_us > 0) clock_.learn(which.last_sent_us, now_us, what.server_now_ms);
}

void lock_keeper::confirm(held_lock& held, const ended_operation& which, const outcome& what) {
  if (held.in_flight == 0) held.maybe_extended = held.several_ttls = false;
  // Another extend on its way, with another time to live, may have shortened its life already: what was counted on when
  // that one was sent stays.
  if (!held.several_ttls) {
    const std::int64_t margin_ms = held.own_margin ? held.margin_ms : margin_of(which.ttl_ms, std::nullopt);
    held.valid_until_ms = which.last_sent_us / 1000 + which.ttl_ms - margin_ms;
  }
  held.expires_at_ms = what.expires_at_ms;
  if (!held.watched && watched_.up()) watch(held);
  go_on(held);
}

// Once more, where somebody has changed the record meanwhile.
void lock_keeper::go_on(held_lock& held) noexcept {
  if (!held.recheck) return schedule_next(held);
  held.recheck = false;
  make_due(held);
}

void lock_keeper::invalidated(std::uint64_t place) noexcept {
  if (abandoned_) return;
  watched_locks_.find(place, [this](held_lock& held) {
    verify(held);
    return false;
  });
}

void lock_keeper::invalidated_all() noexcept {
  if (abandoned_) return;
  watched_locks_.for_each([this](held_lock& held) { verify(held); });
}

// The answer to an extend that is on its way by the same connection knows of the change; by another it may not.
void lock_keeper::verify(held_lock& held) noexcept {
  if (held.heart == beat::none) return make_due(held);
  if (held.heart == beat::sent && !held.on_watched_lane) held.recheck = true;
}

void lock_keeper::lose(held_lock& held, lost why) {
  const lock_id id = *held.id;
  const std::int64_t ttl_ms = held.ttl_ms;
  engine& lane = held.on_watched_lane ? watched_ : plain_;
  // An extend without an answer may have been done, or be done yet: then the lock would live on for nobody.
  const bool may_live_on = why == lost::unconfirmed && held.maybe_extended;
  detach(held);
  held.phase = hold::lost;
  held.why = why;
  ++lost_;
  tell(held);
  if (!abandoned_ && may_live_on) lane.give_back(id, ttl_ms, now_us_);
}

// The lock may be gone afterwards.
void lock_keeper::tell(held_lock& held) {
  if (!held.on_lost) return;
  held.phase = hold::over;
  callback<lost> told = std::move(held.on_lost);
  told(held.why);
}

bool lock_keeper::close_some(std::int64_t now_us) {
  now_us_ = now_us;
  // No more than the server answers within the releases' time; the next answers go on with it.
  std::size_t room = std::min(turn_max, in_flight_max - std::min(plain_.pending(), in_flight_max));
  while (held_lock* held = pool_.at(close_cursor_)) {
    if (room == 0) return plain_.pending() < in_flight_max;
    ++close_cursor_;
    if (held->phase != hold::held) continue;
    --room;
    plain_.start(release_of(*held, options_.release_timeout_ms), around_.release_observer(), now_us_);
    lose(*held, lost::closed);
    if (abandoned_) return false;
  }
  return false;
}

void lock_keeper::abandon() noexcept {
  abandoned_ = true;
  for (std::size_t index = 0; held_lock* held = pool_.at(index); ++index) {
    if (!held->in_use()) continue;
    wheel_.cancel(*held);
    held->phase = hold::over;
    const callback<lost> dropped = std::move(held->on_lost);
  }
}

void lock_keeper::count_in(client_stats& stats) const noexcept {
  stats.held = size_;
  stats.heartbeats = heartbeats_;
  stats.lost = lost_;
}

}  // namespace syncguard::engine
