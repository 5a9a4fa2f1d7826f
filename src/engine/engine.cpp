#include "engine/engine.hpp"

#include <bit>
#include <new>
#include <utility>

namespace syncguard::engine {

namespace {

// How much longer than its time to live the engine tries to release a lock that nobody wants.
constexpr std::int64_t release_grace_ms = 1000;

// A read that has so many links die under it may be what kills them: its answer may be more than we accept.
constexpr unsigned read_tries_max = 3;

constexpr std::size_t batch_max(travel_class kind) noexcept {
  return kind == travel_class::mutation ? batch::mutation_max : batch::read_max;
}

void count(client_stats::histogram& counts, std::int64_t value) noexcept {
  const auto positive = static_cast<std::uint64_t>(value > 0 ? value : 0);
  const auto bucket = positive == 0 ? 0 : static_cast<std::size_t>(std::bit_width(positive) - 1);
  ++counts[bucket < counts.size() ? bucket : counts.size() - 1];
}

bool changes_something(const operation& item) noexcept {
  return item.kind == operation_kind::acquire || item.kind == operation_kind::release ||
         item.kind == operation_kind::extend;
}

bool has_caller(const operation& item) noexcept { return item.done.index() != 0; }

// Whether somebody must be told, be it a caller or another part of the library.
bool is_wanted(const operation& item) noexcept { return has_caller(item) || item.patron.who != nullptr; }

bool waits(const operation& item) noexcept {
  return item.state == operation_state::queued || item.state == operation_state::returned;
}

}  // namespace

// Tells a function that runs callbacks whether the engine has been destroyed by one of them.
class engine::guard {
 public:
  // Out of line: the compiler would warn of a pointer to the stack that stays behind, which the destructor takes back.
  [[gnu::noinline]] explicit guard(engine& guarded) noexcept
      : guarded_(&guarded), outer_(std::exchange(guarded.innermost_, this)) {}
  ~guard() {
    if (guarded_ != nullptr) guarded_->innermost_ = outer_;
  }
  guard(const guard&) = delete;
  guard& operator=(const guard&) = delete;

  bool dead() const noexcept { return guarded_ == nullptr; }

  void mark_all_dead() noexcept {
    for (guard* each = this; each != nullptr; each = each->outer_) each->guarded_ = nullptr;
  }

 private:
  engine* guarded_;
  guard* outer_;
};

engine::engine(const engine_options& options, port& out, observer& told, std::int64_t now_us)
    : out_(out), told_(told), options_(options), wheel_(now_us / 1000), now_us_(now_us) {}

engine::~engine() {
  if (innermost_ != nullptr) innermost_->mark_all_dead();
}

operation* engine::take_slot(const request& what, completion&& done) noexcept {
  operation* slot = pool_.take();
  if (slot == nullptr) return nullptr;
  if (!slot->key.assign(what.key)) {
    pool_.give_back(*slot);
    return nullptr;
  }
  slot->kind = what.kind;
  slot->id = what.id;
  slot->ttl_ms = what.ttl_ms;
  slot->started_us = now_us_;
  slot->patron = what.patron;
  slot->fragile = what.fragile;
  slot->done = std::move(done);
  if (has_caller(*slot)) {
    ++pending_;
    ++stats_.started;
  }
  return slot;
}

operation* engine::start(const request& what, completion&& done, std::int64_t now_us) noexcept {
  if (!accepting_ && !what.exempt)
    return start_failed(what, std::move(done), {error_code::aborted, "the client has been closed"}, now_us);
  if (pending_ >= options_.max_pending && !what.exempt)
    return start_failed(what, std::move(done), {error_code::rate_limited, "too many operations are pending"}, now_us);
  if (refused_) return start_failed(what, std::move(done), *link_error_, now_us);

  now_us_ = now_us;
  operation* slot = take_slot(what, std::move(done));
  if (slot == nullptr) return nullptr;
  wheel_.schedule(*slot, now_us / 1000 + (what.timeout_ms > 0 ? what.timeout_ms : options_.timeout_ms));
  enqueue(*slot);
  return slot;
}

operation* engine::start_failed(const request& what, completion&& done, error failure, std::int64_t now_us) noexcept {
  now_us_ = now_us;
  operation* slot = take_slot(what, std::move(done));
  if (slot != nullptr) defer(*slot, std::move(failure));
  return slot;
}

void engine::enqueue(operation& item) noexcept {
  item.state = operation_state::queued;
  const travel_class kind = class_of(item.kind);
  operation_list& queue = queue_of(item);
  queue.push_back(item);
  if (can_send() && queue.size() >= batch_max(kind)) {
    if (kind != travel_class::mutation) flush(travel_class::mutation);
    flush(kind);
  }
  out_.want_turn_end();
}

void engine::defer(operation& item, error failure) noexcept {
  wheel_.cancel(item);
  item.state = operation_state::deferred;
  item.failure = std::move(failure);
  deferred_.push_back(item);
  out_.want_turn_end();
}

bool engine::cancel(std::uint32_t slot, std::uint32_t generation, std::int64_t now_us) noexcept {
  operation* found = pool_.find(slot, generation);
  if (found == nullptr || found->state == operation_state::deferred) return false;
  now_us_ = now_us;
  error aborted{error_code::aborted, "the operation was cancelled"};
  if (waits(*found)) {
    queue_of(*found).remove(*found);
    release_if_maybe_acquired(*found);
    defer(*found, std::move(aborted));
    return true;
  }
  operation* caller = split_caller(*found);
  if (caller == nullptr) return false;
  caller->maybe_applied = true;
  defer(*caller, std::move(aborted));
  return true;
}

// Takes the caller out of an operation that is on its way: the operation stays in its batch, for nobody.
operation* engine::split_caller(operation& sent) noexcept {
  operation* caller = pool_.take();
  if (caller == nullptr) return nullptr;
  caller->key.assign(sent.key.view());
  caller->kind = sent.kind;
  caller->id = sent.id;
  caller->ttl_ms = sent.ttl_ms;
  caller->started_us = sent.started_us;
  caller->first_sent_us = sent.first_sent_us;
  caller->last_sent_us = sent.last_sent_us;
  caller->patron = std::exchange(sent.patron, {});
  caller->done = std::exchange(sent.done, completion{});
  slot_pool<operation>::rename(sent);
  sent.abandoned = true;
  return caller;
}

void engine::flush(travel_class kind) {
  operation_list& queue = queues_[static_cast<std::size_t>(kind)];
  while (!queue.empty()) {
    batch* next = take_batch();
    if (next == nullptr) return;  // out of memory: they wait for the next turn, or for their time to end
    next->kind = kind;
    next->count = 0;
    next->sent_us = now_us_;
    while (!queue.empty() && next->count < batch_max(kind)) {
      operation* item = queue.pop_front();
      item->state = operation_state::sent;
      item->last_sent_us = now_us_;
      if (item->first_sent_us == 0) item->first_sent_us = now_us_;
      next->operations[next->count++] = item;
    }
    (sent_last_ != nullptr ? sent_last_->next : sent_first_) = next;
    sent_last_ = next;
    ++stats_.batches;
    count(stats_.batch_sizes, static_cast<std::int64_t>(next->count));
    out_.send(*next);
  }
}

void engine::flush_all() {
  if (!can_send()) return;
  flush(travel_class::mutation);
  flush(travel_class::key_read);
  flush(travel_class::id_read);
  out_.flush();
}

void engine::end_turn(std::int64_t now_us) {
  now_us_ = now_us;
  const guard alive{*this};
  flush_all();
  tell_deferred(alive);
}

// Tells those that are there now; what callbacks add is for the next turn.
void engine::tell_deferred(const guard& alive) {
  for (std::size_t left = deferred_.size(); left > 0; --left) {
    operation* item = deferred_.pop_front();
    if (item == nullptr) return;  // a callback has ended the turn
    error failure = std::move(*item->failure);
    settle_failed(*item, std::move(failure));
    if (alive.dead()) return;
  }
}

void engine::settle(operation& over, outcome& what) {
  wheel_.cancel(over);
  over.state = operation_state::deferred;  // in no list any more, and not to be cancelled by whoever is told of it
  if (has_caller(over)) {
    ++stats_.completed;
    if (what.what == verdict::failed) ++stats_.failed;
    count(stats_.latency_us, now_us_ - over.started_us);
  }
  told_.settle(*this, over, what);
}

// Where an operation may have taken effect without an answer, its caller is told so.
void engine::settle_failed(operation& over, error failure) {
  if (over.maybe_applied && changes_something(over)) failure.with_outcome_unknown();
  outcome what;
  what.failure = std::move(failure);
  settle(over, what);
}

// For an operation that is given up outside of any batch; one inside is looked at when its batch comes back.
void engine::release_if_maybe_acquired(const operation& given_up) noexcept {
  if (given_up.kind == operation_kind::acquire && given_up.maybe_applied)
    spawn(operation_kind::release, {}, given_up.id, given_up.ttl_ms);
}

void engine::give_back(const lock_id& id, std::int64_t ttl_ms, std::int64_t now_us) noexcept {
  now_us_ = now_us;
  spawn(operation_kind::release, {}, id, ttl_ms);
}

void engine::spawn(operation_kind kind, std::string_view key, const std::optional<lock_id>& id,
                   std::int64_t ttl_ms) noexcept {
  operation* own = take_slot({kind, key, id, ttl_ms}, {});
  if (own == nullptr) return;  // out of memory: the time to live ends it
  wheel_.schedule(*own, now_us_ / 1000 + ttl_ms + release_grace_ms);
  enqueue(*own);
}

void engine::run_timers(std::int64_t now_us) {
  now_us_ = now_us;
  const std::int64_t now_ms = now_us / 1000;
  const auto due = wheel_.next_wake_ms();
  if (!due || *due > now_ms) return;
  const guard alive{*this};
  // If it is this process that was late, the answers are there already.
  if (sent_first_ != nullptr) out_.poll();
  if (alive.dead()) return;
  bool late = false;  // a wheel also wakes to sort its timers
  wheel_.advance(now_ms, [&](timer& due_timer) {
    late = true;
    expire(static_cast<operation&>(due_timer));
  });
  if (alive.dead()) return;
  if (late) drop_if_silent();
}

void engine::expire(operation& late) {
  if (!is_wanted(late)) {
    if (!waits(late)) return;  // its answer or the end of the link will free it
    queue_of(late).remove(late);
    forget(late);
    return;
  }
  if (waits(late)) {
    queue_of(late).remove(late);
    release_if_maybe_acquired(late);
    settle_failed(late, why_late(late));
    return;
  }
  operation* caller = split_caller(late);
  if (caller == nullptr) {
    wheel_.schedule(late, now_us_ / 1000 + options_.timeout_ms);
    return;
  }
  caller->maybe_applied = true;
  caller->state = operation_state::deferred;
  settle_failed(*caller, {error_code::network_timeout, "the server did not answer in time"});
}

error engine::why_late(const operation& late) const noexcept {
  if (up_ || !link_error_) {
    if (late.maybe_applied)
      return {error_code::network_timeout,
              "the connection was lost, and the time was up before the operation could be sent again"};
    return {error_code::network_timeout, "the time was up before the operation could be sent"};
  }
  error late_for_want_of_a_link{link_error_->code(), "no connection to the server could be made in time"};
  late_for_want_of_a_link.with_context({}, {},
                                       link_error_->cause().empty() ? link_error_->message() : link_error_->cause());
  return late_for_want_of_a_link;
}

// A connection on which nothing has been answered for so long is of no use to anybody.
void engine::drop_if_silent() {
  if (!up_ || sent_first_ == nullptr) return;
  if (now_us_ - sent_first_->sent_us < options_.timeout_ms * 1000 / 2) return;
  out_.drop({error_code::network_timeout, "the server stopped answering"});
}

void engine::link_up() noexcept {
  up_ = true;
  refused_ = false;
  link_error_.reset();
  ++stats_.connects;
  out_.want_turn_end();
}

void engine::link_down(const error& cause, bool refused, std::int64_t now_us) {
  now_us_ = now_us;
  if (up_) ++stats_.disconnects;
  up_ = false;
  refused_ = refused;
  link_error_ = cause;
  healing_ = false;
  while (sent_first_ != nullptr) {
    batch& lost = *sent_first_;
    unlink(lost);
    take_back(lost, true);
  }
  requeue_returned();
  fail_fragile();
  if (!refused) return;
  const guard alive{*this};
  fail_everything_queued(alive);
}

void engine::fail_everything_queued(const guard& alive) {
  for (auto& queue : queues_) {
    for (std::size_t left = queue.size(); left > 0 && refused_; --left) {
      operation* item = queue.pop_front();
      if (item == nullptr) break;  // a callback has cancelled some
      if (!is_wanted(*item)) {
        queue.push_back(*item);
        continue;
      }
      release_if_maybe_acquired(*item);
      settle_failed(*item, *link_error_);
      if (alive.dead()) return;
    }
  }
}

void engine::answered(batch& which, batch_answer& answer, std::int64_t now_us) {
  now_us_ = now_us;
  unlink(which);
  if (healing_ && which.kind != travel_class::mutation) {
    // It was answered before mutations that were started earlier, and so knows nothing of them.
    take_back(which, false);
    finish_healing_when_quiet();
    return;
  }
  const guard alive{*this};
  std::optional<error> demoted;
  for (std::size_t index = 0; index < which.count; ++index) {
    operation& asked = *which.operations[index];
    outcome what;
    answer.read(index, asked, what);
    if (what.demoted && what.failure) demoted = what.failure;
    judge(asked, what);
    if (alive.dead()) return;
  }
  which.next = std::exchange(spare_, &which);
  if (demoted) out_.drop(*demoted);
  finish_healing_when_quiet();
}

// Returns whether there is another way to ask.
bool engine::look_closer(operation& asked) noexcept {
  if (asked.kind == operation_kind::is_locked) {
    asked.kind = operation_kind::inspect;
    return true;
  }
  return asked.kind == operation_kind::acquire && !std::exchange(asked.careful, true);
}

void engine::judge(operation& asked, outcome& what) {
  if (!is_wanted(asked)) {
    if (asked.abandoned && what.what == verdict::acquired) asked.maybe_applied = true;
    if (asked.abandoned && (what.what == verdict::acquired || what.what == verdict::failed))
      release_if_maybe_acquired(asked);
    forget(asked);
    return;
  }
  if (what.what == verdict::unreadable && look_closer(asked)) return enqueue(asked);
  if (what.what == verdict::failed) {
    error failure = std::move(*what.failure);
    release_if_maybe_acquired(asked);
    settle_failed(asked, std::move(failure));
    return;
  }
  if (asked.kind == operation_kind::release && asked.maybe_applied && what.what == verdict::absent) {
    settle_failed(asked, {error_code::service_unavailable,
                          "the connection was lost while releasing; the lock is gone, but whether this call released "
                          "it cannot be known"});
    return;
  }
  if (what.cleanable && asked.kind == operation_kind::is_locked && options_.cleanup_in_is_locked)
    spawn(operation_kind::clean_up, asked.key.view(), {}, options_.timeout_ms);
  settle(asked, what);
}

void engine::script_missing(batch& which) noexcept {
  unlink(which);
  if (!healing_) ++stats_.scripts_reloaded;
  healing_ = true;
  take_back(which, false);
  finish_healing_when_quiet();
}

void engine::finish_healing_when_quiet() noexcept {
  if (!healing_ || sent_first_ != nullptr) return;
  healing_ = false;
  requeue_returned();
  out_.load_scripts();
  out_.want_turn_end();
}

void engine::take_back(batch& which, bool maybe_applied) noexcept {
  for (std::size_t index = 0; index < which.count; ++index) {
    operation& item = *which.operations[index];
    item.maybe_applied = item.maybe_applied || (maybe_applied && changes_something(item));
    if (item.abandoned || (!is_wanted(item) && !item.scheduled())) {
      take_back_abandoned(item);
      continue;
    }
    if (maybe_applied && ++item.links_lost >= read_tries_max && which.kind != travel_class::mutation) {
      defer(item, {error_code::service_unavailable, "the connection was lost each time that this was asked"});
      continue;
    }
    item.state = operation_state::returned;
    queue_of(item).push_back(item);
  }
  which.next = std::exchange(spare_, &which);
}

// An acquire that may have succeeded for nobody, and a release that its caller did not wait for, are worth another try.
void engine::take_back_abandoned(operation& nobodys) noexcept {
  if (nobodys.abandoned && nobodys.kind == operation_kind::release)
    spawn(operation_kind::release, {}, nobodys.id, options_.timeout_ms);
  release_if_maybe_acquired(nobodys);
  forget(nobodys);
}

void engine::requeue_returned() noexcept {
  for (std::size_t kind = 0; kind < travel_class_count; ++kind) {
    for (operation* each = returned_[kind].front(); each != nullptr; each = each->next)
      each->state = operation_state::queued;
    stats_.resent += returned_[kind].size();
    queues_[kind].prepend(returned_[kind]);
  }
}

void engine::fail_fragile() noexcept {
  operation_list& queue = queues_[static_cast<std::size_t>(travel_class::mutation)];
  for (operation* each = queue.front(); each != nullptr;) {
    operation& item = *each;
    each = each->next;
    if (!item.fragile) continue;
    queue.remove(item);
    release_if_maybe_acquired(item);
    defer(item, *link_error_);
  }
}

void engine::forget(operation& over) noexcept {
  wheel_.cancel(over);
  if (has_caller(over)) --pending_;
  pool_.give_back(over);
}

std::size_t engine::in_use() noexcept {
  std::size_t count = 0;
  for (std::size_t index = 0; const operation* slot = pool_.at(index); ++index)
    if (slot->in_use()) ++count;
  return count;
}

batch* engine::take_batch() noexcept {
  if (spare_ == nullptr) {
    try {
      batches_.push_back(std::make_unique<batch>());
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
    spare_ = batches_.back().get();
  }
  return std::exchange(spare_, std::exchange(spare_->next, nullptr));
}

void engine::unlink(batch& which) noexcept {
  batch* before = nullptr;
  for (batch* each = sent_first_; each != &which; each = each->next) before = each;
  (before != nullptr ? before->next : sent_first_) = which.next;
  if (sent_last_ == &which) sent_last_ = before;
  which.next = nullptr;
}

}  // namespace syncguard::engine
