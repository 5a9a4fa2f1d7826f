// What a user is told, and whether that is as it was promised.

#include <algorithm>
#include <utility>

#include "sim/user.hpp"

namespace syncguard::sim {

std::string describe_failure(const error& why) {
  return std::string{to_string(why.code())} + (why.outcome_unknown() ? ", outcome unknown: " : ": ") +
         std::string{why.message()};
}

// The first line of every callback. Returns whether it may go on.
bool user::answered(std::size_t index) {
  request& which = requests_[index];
  if (client_.dead()) violate("a callback after the client's end");
  if (client_.inside_call()) violate("a callback inside of a call");
  if (which.done) violate("a second answer");
  which.done = true;
  check(false);
  // lock() has more than one attempt, and close() waits for others.
  const bool in_time = which.what != kind::lock && which.what != kind::close;
  const std::int64_t late_us = client_.now_us() - which.started_us - stage_.how.timeout_ms * 1000;
  if (in_time && which.stalls == client_.stalls() && late_us > 2000)
    violate("an answer " + std::to_string(late_us / 1000) + " ms after the time was over");
  return !stage_.failed();
}

// Where it is not said that the outcome is unknown, nothing has happened.
void user::check_untouched(const std::optional<lock_id>& id, const error& why) {
  if (!id || why.outcome_unknown()) return;
  id_facts& facts = stage_.books.of(*id);
  facts.untouched = true;
  if (facts.granted && !facts.excused) violate("told that it has no lock, but " + facts.name + " was granted");
}

void user::acquired(std::size_t index, const result<std::optional<grant>>& got) {
  if (!answered(index)) return;
  const request& asked = requests_[index];
  if (!got) {
    if (notes_on()) note("acquire failed, " + describe_failure(got.error()));
    check_untouched(asked.id, got.error());
  } else if (!*got) {
    if (notes_on()) note(key_name(asked.key) + " is held by somebody else");
    id_facts& facts = stage_.books.of(*asked.id);
    facts.untouched = true;
    if (!facts.excused && stage_.server.holder(key_name(asked.key)) == asked.id)
      violate("told that somebody else has it, but " + facts.name + " does");
  } else {
    const grant& made = **got;
    if (notes_on())
      note("acquired " + key_name(asked.key) + " as " + stage_.books.name_of(made.id) + ", fence " +
           std::to_string(made.fence.number()));
    ++stage_.notes.sums.grants;
    if (asked.is_try) ++tries_granted_;
    const std::int64_t until_us = asked.started_us + asked.ttl_ms * 1000;
    const bool valid = until_us - drift_us(asked.ttl_ms) > client_.now_us();
    if (std::string wrong = stage_.books.told_granted(made.id, made.fence.number(), valid); !wrong.empty())
      violate(std::move(wrong));
    grants_.push_back({made.id, asked.key, asked.ttl_ms, until_us});
    check_grant(grants_.back());
  }
  act_inside();
}

void user::released(std::size_t index, const result<bool>& done) {
  if (!answered(index)) return;
  const request& asked = requests_[index];
  if (notes_on())
    note("release of " + stage_.books.name_of(asked.id) +
         (done ? (*done ? ": done" : ": was not held") : ": " + describe_failure(done.error())));
  if (!done) stage_.books.of(*asked.id).excused = true;
  act_inside();
}

void user::extended(std::size_t index, const result<std::optional<server_time>>& done) {
  if (!answered(index)) return;
  const request& asked = requests_[index];
  grant_kept& about = grants_[asked.subject];
  about.extending = false;
  if (notes_on())
    note("extend of " + stage_.books.name_of(asked.id) +
         (done ? (*done ? ": done" : ": was not held") : ": " + describe_failure(done.error())));
  if (done && *done) {
    about.until_us = asked.started_us + asked.ttl_ms * 1000;
    about.ttl_ms = std::max(about.ttl_ms, asked.ttl_ms);
  }
  if (done && !*done) about.gone = true;
  check_grant(about);
  act_inside();
}

void user::locked(std::size_t index, result<syncguard::lock>& got) {
  if (!answered(index)) return;
  const request& asked = requests_[index];
  if (!got) {
    if (notes_on()) note("lock(" + key_name(asked.key) + ") failed, " + describe_failure(got.error()));
    return act_inside();
  }
  ++stage_.notes.sums.locks;
  const std::size_t at = locks_.size();
  const lock_id id = got->id();
  if (notes_on())
    note("has the lock of " + key_name(asked.key) + " as " + stage_.books.name_of(id) + ", fence " +
         std::to_string(got->fence().number()));
  if (got->key() != key_name(asked.key)) violate("got the lock of another key");
  if (!got->valid()) violate("got a lock that is not valid");
  if (std::string wrong = stage_.books.told_granted(id, got->fence().number(), got->valid()); !wrong.empty())
    violate(std::move(wrong));
  locks_.push_back({*std::move(got), id, asked.key, asked.ttl_ms, asked.margin_ms});
  if (stage_.calm) return drop_lock(at);
  if (stage_.random.percent(92)) watch_loss(at);
  check_lock(locks_[at], false);
  act_inside();
}

void user::lock_lost(std::size_t index, lost why) {
  lock_kept& about = locks_[index];
  if (notes_on()) note("lost its lock " + stage_.books.name_of(about.id) + ", " + std::string{to_string(why)});
  if (client_.dead()) violate("told of a loss after the client's end");
  if (client_.inside_call()) violate("told of a loss inside of a call");
  if (std::exchange(about.told, true)) violate("told of a loss twice");
  if (about.released && !about.was_over) violate("told of the loss of a lock that it had given back");
  if (about.object.valid()) violate("a lost lock is valid");
  stage_.books.of(about.id).excused = true;
  ++stage_.notes.sums.losses;
  check(false);
  if (stage_.random.percent(50) && about.object) drop_lock(index);
  act_inside();
}

void user::release_failed(std::string_view id) {
  if (const auto parsed = lock_id::parse(id)) stage_.books.of(*parsed).excused = true;
}

void user::act_inside() {
  if (stage_.calm || depth_ >= 2 || stage_.failed() || !stage_.random.percent(20)) return;
  ++depth_;
  act();
  --depth_;
}

// How much further the server's clock may have come than ours within a time to live.
std::int64_t user::drift_us(std::int64_t ttl_ms) const noexcept { return ttl_ms * stage_.how.drift_max_ppm / 1000 + 1; }

void user::check(bool had_its_turn) {
  if (client_.dead()) return;
  for (lock_kept& each : locks_)
    if (each.object) check_lock(each, had_its_turn);
  for (const grant_kept& each : grants_) check_grant(each);
}

void user::check_lock(lock_kept& each, bool had_its_turn) {
  const std::int64_t left_us = each.object.valid_for().count();
  const std::int64_t drift = std::max<std::int64_t>(0, drift_us(each.ttl_ms) - each.margin_ms * 1000);
  if (each.object.valid() != (left_us > 0)) violate("valid() and valid_for() disagree");
  if (left_us > drift) {
    if (each.told || each.released) violate("a lock that is over is valid");
    if (std::string wrong = stage_.books.check_held(each.id); !wrong.empty()) violate(std::move(wrong));
  }
  if (left_us > 0) {
    each.over_since_us.reset();
    each.stalls = client_.stalls();
  }
  if (left_us > 0 || each.told || each.released || !each.has_on_lost || !had_its_turn) return;
  // Its time is over, or the keeper knows that it is gone: that is told within the millisecond.
  if (!each.over_since_us) each.over_since_us = client_.now_us();
  const bool responsive = each.stalls == client_.stalls();
  if (client_.now_us() - *each.over_since_us > 1000 || (responsive && left_us < -1000))
    violate("was not told in time that it lost " + stage_.books.name_of(each.id));
}

void user::check_grant(const grant_kept& each) {
  if (each.released || each.gone || client_.now_us() >= each.until_us - drift_us(each.ttl_ms)) return;
  if (std::string wrong = stage_.books.check_held(each.id); !wrong.empty()) violate(std::move(wrong));
}

void user::check_finished() {
  if (client_.dead()) return;
  for (const request& each : requests_)
    if (!each.done)
      return violate("a call of kind " + std::to_string(static_cast<int>(each.what)) + " was never answered");
  for (const lock_kept& each : locks_)
    if (each.object) return violate("a lock is left");
}

bool user::answers_for(const lock_id& id) const {
  if (client_.dead() || client_.closing()) return true;
  for (const grant_kept& each : grants_)
    if (each.id == id && !each.released) return true;
  for (const lock_kept& each : locks_)
    if (each.id == id && each.object && !each.released) return true;
  return false;
}

void user::other_was_granted(std::size_t key, const lock_id& to) {
  if (client_.dead() || client_.stalled()) return;
  // One that wakes up at this very moment has not had its turn.
  if (client_.next_event_us().value_or(stage_.now_us() + 1) <= stage_.now_us()) return;
  for (const lock_kept& each : locks_) {
    if (each.key != key || each.id == to || !each.object || each.told || each.released || !each.has_on_lost) continue;
    const bool has_margin = each.margin_ms * 1000 > drift_us(each.ttl_ms) + 3000;
    if (has_margin && stage_.books.is_promised(stage_.books.of(each.id)))
      violate("not told of the loss of " + stage_.books.name_of(each.id) + " when " + stage_.books.name_of(to) +
              " got the lock");
  }
}

}  // namespace syncguard::sim
