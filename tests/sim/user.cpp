#include "sim/user.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

namespace syncguard::sim {

namespace {

using std::chrono::milliseconds;

}  // namespace

user::user(stage& on, sim_client& of) : stage_(on), client_(of) { client_.driver = this; }

std::int64_t user::random_ttl_ms() {
  // Long ones show what nobody gives back: they do not end by themselves before that is looked at.
  if (stage_.random.percent(8)) return 40'000;
  if (stage_.random.percent(10)) return stage_.random.between(10, 40);
  return stage_.random.between(40, stage_.how.ttl_max_ms);
}

void user::act() {
  if (client_.dead()) return;
  const std::int64_t what = stage_.random.below(1000);
  if (what < 300) return start_lock();
  if (what < 420) return start_acquire(stage_.random.index(stage_.books.key_count()), random_ttl_ms(), false);
  if (what < 520) return start_release();
  if (what < 570) return start_extend();
  if (what < 650) return start_read();
  if (what < 720) return cancel_something();
  if (what < 990) return use_lock();
  end_client();
}

// Calls by hand

std::size_t user::begin(request what) {
  what.started_us = client_.now_us();
  what.stalls = client_.stalls();
  requests_.push_back(std::move(what));
  ++stage_.notes.sums.calls;
  return requests_.size() - 1;
}

void user::start_acquire(std::size_t key, std::int64_t ttl_ms, bool is_try) {
  const std::size_t index = begin({.what = kind::acquire, .key = key, .ttl_ms = ttl_ms, .is_try = is_try});
  if (notes_on()) note("acquire(" + key_name(key) + ", " + std::to_string(ttl_ms) + ")");
  std::optional<lock_id> made;
  requests_[index].handle =
      client_.start_by_key(engine::operation_kind::acquire, key_name(key), ttl_ms,
                           callback<result<std::optional<grant>>>{
                               [this, index](const result<std::optional<grant>>& got) { acquired(index, got); }},
                           &made);
  requests_[index].id = made;
}

void user::start_release() {
  if (grants_.empty()) return start_lock();
  const std::size_t subject = stage_.random.index(grants_.size());
  grant_kept& about = grants_[subject];
  if (about.released && stage_.random.percent(80)) return start_lock();
  about.released = true;
  const std::size_t index =
      begin({.what = kind::release, .key = about.key, .subject = subject, .id = about.id, .ttl_ms = about.ttl_ms});
  if (notes_on()) note("release(" + stage_.books.name_of(about.id) + ")");
  requests_[index].handle =
      client_.start_by_id(engine::operation_kind::release, about.id, 0,
                          callback<result<bool>>{[this, index](const result<bool>& done) { released(index, done); }});
}

void user::start_extend() {
  if (grants_.empty()) return start_lock();
  const std::size_t subject = stage_.random.index(grants_.size());
  grant_kept& about = grants_[subject];
  if (about.released || about.extending) return start_lock();
  const std::int64_t ttl_ms = random_ttl_ms();
  about.extending = true;
  // The server may do it and its answer be lost: no more than the new time can be counted on.
  about.until_us = std::min(about.until_us, client_.now_us() + ttl_ms * 1000);
  const std::size_t index =
      begin({.what = kind::extend, .key = about.key, .subject = subject, .id = about.id, .ttl_ms = ttl_ms});
  if (notes_on()) note("extend(" + stage_.books.name_of(about.id) + ", " + std::to_string(ttl_ms) + ")");
  requests_[index].handle = client_.start_by_id(
      engine::operation_kind::extend, about.id, ttl_ms,
      callback<result<std::optional<server_time>>>{
          [this, index](const result<std::optional<server_time>>& done) { extended(index, done); }});
}

void user::start_read() {
  const std::size_t key = stage_.random.index(stage_.books.key_count());
  if (!grants_.empty() && stage_.random.percent(30)) return start_look_up(stage_.random.index(grants_.size()));
  const bool is_locked = stage_.random.percent(60);
  const std::size_t index = begin({.what = is_locked ? kind::is_locked : kind::look_up, .key = key});
  if (notes_on()) note((is_locked ? "is_locked(" : "lookup(") + key_name(key) + ")");
  requests_[index].handle =
      is_locked
          ? client_.start_by_key(engine::operation_kind::is_locked, key_name(key), 0,
                                 callback<result<bool>>{[this, index](const result<bool>& done) {
                                   if (!answered(index)) return;
                                   if (notes_on()) note(done ? (*done ? "it is locked" : "it is free") : "cannot tell");
                                   act_inside();
                                 }})
          : client_.start_by_key(
                engine::operation_kind::lookup_key, key_name(key), 0,
                callback<result<std::optional<lock_info>>>{[this, index](const result<std::optional<lock_info>>& done) {
                  if (!answered(index)) return;
                  if (notes_on()) note(done ? (*done ? "found" : "found nothing") : "cannot tell");
                  act_inside();
                }});
}

void user::start_look_up(std::size_t about) {
  const std::size_t index = begin({.what = kind::look_up, .id = grants_[about].id});
  if (notes_on()) note("lookup(" + stage_.books.name_of(grants_[about].id) + ")");
  requests_[index].handle = client_.start_by_id(
      engine::operation_kind::lookup_id, grants_[about].id, 0,
      callback<result<std::optional<raw_lock_info>>>{[this, index](const result<std::optional<raw_lock_info>>& done) {
        if (!answered(index)) return;
        if (done && *done && !((**done).id() == *requests_[index].id)) violate("found somebody else's lock");
        act_inside();
      }});
}

void user::cancel_something() {
  if (requests_.empty()) return;
  const std::size_t recent = std::min<std::size_t>(requests_.size(), 4);
  const std::size_t index = requests_.size() - 1 - stage_.random.index(recent);
  const request& which = requests_[index];
  if (which.what == kind::lock_extend || which.what == kind::lock_release || which.what == kind::close) return;
  const bool was_done = which.done;
  const bool any = client_.cancel(which.handle);
  if (any && was_done) violate("cancelled something that was over");
  if (notes_on()) note(any ? "cancels its call for " + key_name(which.key) : "cancels what is over");
}

// Lock objects

void user::start_lock() {
  const std::size_t key = stage_.random.index(stage_.books.key_count());
  const std::int64_t ttl_ms = random_ttl_ms();
  lock_options options;
  options.ttl = milliseconds{ttl_ms};
  options.wait = milliseconds{stage_.random.percent(20) ? 0 : stage_.random.between(1, 1500)};
  options.heartbeat = stage_.random.percent(85);
  std::int64_t margin_ms = std::min<std::int64_t>(ttl_ms / 10, 1000);
  if (stage_.random.percent(30)) {
    margin_ms = stage_.random.percent(40) ? 0 : stage_.random.below(ttl_ms / 2);
    options.margin = milliseconds{margin_ms};
  }
  const std::size_t index = begin({.what = kind::lock, .key = key, .ttl_ms = ttl_ms, .margin_ms = margin_ms});
  if (notes_on())
    note("lock(" + key_name(key) + ", ttl " + std::to_string(ttl_ms) + ", wait " +
         std::to_string(options.wait.count()) + ", margin " + std::to_string(margin_ms) +
         (options.heartbeat ? ")" : ", no heartbeat)"));
  requests_[index].handle =
      client_.start_lock(key_name(key), options, [this, index](result<syncguard::lock> got) { locked(index, got); });
}

void user::use_lock() {
  if (locks_.empty()) return start_lock();
  const std::size_t recent = std::min<std::size_t>(locks_.size(), 5);
  const std::size_t index = locks_.size() - 1 - stage_.random.index(recent);
  lock_kept& about = locks_[index];
  if (!about.object) return start_lock();
  if (!about.has_on_lost && stage_.random.percent(50)) return watch_loss(index);
  const std::int64_t what = stage_.random.below(100);
  if (what < 35) return extend_lock(index);
  if (what < 65) return release_lock(index);
  if (what < 90) return drop_lock(index);
  syncguard::lock moved = std::move(about.object);
  about.object = std::move(moved);
}

void user::extend_lock(std::size_t index) {
  lock_kept& about = locks_[index];
  const std::int64_t ttl_ms = random_ttl_ms();
  const std::size_t asked = begin({.what = kind::lock_extend, .key = about.key, .subject = index, .ttl_ms = ttl_ms});
  if (notes_on()) note("extends its lock " + stage_.books.name_of(about.id) + " to " + std::to_string(ttl_ms));
  about.ttl_ms = std::max(about.ttl_ms, ttl_ms);
  about.margin_ms = std::min(about.margin_ms, ttl_ms / 10);
  about.object.extend(milliseconds{ttl_ms}, [this, asked](const result<std::optional<server_time>>& done) {
    if (!answered(asked)) return;
    if (notes_on()) note(done ? (*done ? "extended" : "was gone") : describe_failure(done.error()));
    act_inside();
  });
}

void user::release_lock(std::size_t index) {
  lock_kept& about = locks_[index];
  const std::size_t asked = begin({.what = kind::lock_release, .key = about.key, .subject = index, .id = about.id});
  if (notes_on()) note("releases its lock " + stage_.books.name_of(about.id));
  about.was_over = !about.object.valid();
  about.released = true;
  about.object.release([this, asked](const result<bool>& done) { released(asked, done); });
  if (about.object.valid()) violate("a lock that was released is still valid");
}

void user::drop_lock(std::size_t index) {
  lock_kept& about = locks_[index];
  if (notes_on()) note("drops its lock " + stage_.books.name_of(about.id));
  // One that is lost already, and whose user had not asked to be told, is not released.
  if (!about.object.valid()) stage_.books.of(about.id).excused = true;
  about.released = true;
  const syncguard::lock dropped = std::move(about.object);
}

void user::watch_loss(std::size_t index) {
  lock_kept& about = locks_[index];
  about.has_on_lost = true;
  about.object.on_lost([this, index](lost why) { lock_lost(index, why); });
}

void user::end_client() {
  if (stage_.random.percent(50)) {
    note("destroys its client");
    stage_.notes.count(fault::client_gone);
    client_.destroy();
    return;
  }
  if (client_.closing()) return;
  note("closes its client");
  stage_.notes.count(fault::client_gone);
  const std::size_t asked = begin({.what = kind::close});
  client_.close([this, asked](const result<void>&) {
    if (answered(asked)) act_inside();
  });
}

void user::let_go_of_everything() {
  if (client_.dead()) return;
  for (std::size_t index = 0; index < locks_.size(); ++index)
    if (locks_[index].object) drop_lock(index);
  for (std::size_t index = 0; index < grants_.size(); ++index) {
    if (grants_[index].released || stage_.random.percent(30)) continue;
    grants_[index].released = true;
    const std::size_t asked = begin({.what = kind::release, .subject = index, .id = grants_[index].id});
    client_.start_by_id(engine::operation_kind::release, grants_[index].id, 0,
                        callback<result<bool>>{[this, asked](const result<bool>& done) { released(asked, done); }});
  }
}

void user::try_key(std::size_t key) {
  ++tries_;
  start_acquire(key, 1000, true);
}

}  // namespace syncguard::sim
