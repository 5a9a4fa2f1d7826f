#include "client_body.hpp"

#include <algorithm>
#include <utility>

#include <sodium.h>

#include "protocol/config.hpp"
#include "protocol/user_key.hpp"
#include "redis/fork_watch.hpp"
#include "redis/url.hpp"
#include "results.hpp"

namespace syncguard {

// Keeps the body while a call of the loop is in it.
class client::body::frame {
 public:
  explicit frame(body& entered) noexcept : entered_(entered), outer_us_(entered.entered_us_) {
    ++entered_.users_;
    entered_.entered_us_ = redis::now_us();
    entered_.entered_tick_ = redis::clock_tick();
  }
  ~frame() {
    entered_.entered_us_ = outer_us_;
    if (--entered_.users_ == 0) delete &entered_;
  }
  frame(const frame&) = delete;
  frame& operator=(const frame&) = delete;

  bool dead() const noexcept { return entered_.dead_; }
  std::int64_t now_us() const noexcept { return entered_.entered_us_; }

 private:
  body& entered_;
  std::int64_t outer_us_;
};

namespace {

constexpr std::int64_t pause_max_ms = std::int64_t{24} * 60 * 60 * 1000;

std::optional<error> refuse_times(const client_options& options) {
  const auto out_of_bounds = [](std::chrono::milliseconds time) {
    return time.count() < 1 || time.count() > pause_max_ms;
  };
  if (out_of_bounds(options.timeout) || out_of_bounds(options.connect_timeout) ||
      out_of_bounds(options.reconnect_min) || out_of_bounds(options.reconnect_max))
    return error{error_code::invalid_argument, "time-outs and pauses are between one millisecond and one day"};
  if (options.reconnect_min > options.reconnect_max)
    return error{error_code::invalid_argument, "reconnect_min is longer than reconnect_max"};
  if (out_of_bounds(options.release_timeout))
    return error{error_code::invalid_argument, "the time-out of releases is between one millisecond and one day"};
  if (options.max_pending < 1) return error{error_code::invalid_argument, "max_pending is zero"};
  if (options.client_name.find_first_of(" \r\n") != std::string::npos)
    return error{error_code::invalid_argument, "the client name contains a blank or a line break"};
  return std::nullopt;
}

// Names of waiters are told from those of operations by this bit of the slot.
constexpr std::uint32_t waiter_bit = 0x8000'0000;

error parents_client() noexcept {
  return {error_code::service_unavailable, "this client belongs to the parent process"};
}

}  // namespace

// A way to the server, and the engine that uses it.
struct client::body::lane final : redis::link_owner {
  lane(body& of, const redis::link_options& linked, const engine::engine_options& options)
      : owner(of),
        is_watched(linked.watch),
        link(std::make_unique<redis::link>(linked, *of.keys_, *of.loop_, *this)),
        engine(std::make_unique<engine::engine>(options, *link, of, redis::now_us())) {}

  void link_up() override { owner.lane_up(*this); }
  void link_lost(const error& why, bool refused) override { owner.lane_lost(*this, why, refused); }
  void unsafe_policy(std::string_view policy) override { owner.reporter_.unsafe_policy(policy); }
  void batch_answered(engine::batch& which, engine::batch_answer& answer) override {
    owner.lane_answered(*this, which, answer);
  }
  void batch_without_script(engine::batch& which) override { engine->script_missing(which); }
  void invalidated(std::string_view lock_key) override { owner.lane_invalidated(lock_key); }
  void invalidated_all() override { owner.lane_invalidated_all(); }

  body& owner;
  bool is_watched;
  std::unique_ptr<redis::link> link;
  std::unique_ptr<engine::engine> engine;
};

client::body::body(loop where, client_options options)
    : options_(std::move(options)),
      reporter_(options_.telemetry, options_.telemetry_include_raw),
      loop_(where.take()),
      forks_(redis::fork_count()) {
  loop_->open(*this);
  randombytes_buf(place_secret_.data(), place_secret_.size());
  refusal_ = refuse_times(options_);
  auto keys = protocol::key_space::make(options_.prefix);
  if (!keys && !refusal_) refusal_ = keys.error();
  keys_ = keys ? *std::move(keys) : *protocol::key_space::make(protocol::default_prefix);
  open_lanes();
  if (refusal_) return;
  plain_->link->start();
  sync_timer();
}

client::body::~body() = default;

void client::body::open_lanes() {
  redis::link_options linked;
  if (auto parsed = redis::parse_url(options_.url)) {
    linked.where = *std::move(parsed);
  } else if (!refusal_) {
    refusal_ = parsed.error();
  }
  if (linked.where.via == redis::endpoint::transport::tls) {
    if (auto made = redis::tls_context::make(options_.tls, linked.where.host)) {
      linked.tls = *std::move(made);
    } else if (!refusal_) {
      refusal_ = made.error();
    }
  }
  linked.client_name = options_.client_name;
  linked.connect_timeout_ms = options_.connect_timeout.count();
  linked.reconnect_min_ms = options_.reconnect_min.count();
  linked.reconnect_max_ms = options_.reconnect_max.count();

  const engine::engine_options limits{options_.timeout.count(), options_.max_pending, options_.cleanup_in_is_locked};
  plain_ = std::make_unique<lane>(*this, linked, limits);
  linked.watch = true;
  watched_ = std::make_unique<lane>(*this, linked, limits);

  std::array<std::uint64_t, 2> seeds;
  randombytes_buf(seeds.data(), sizeof seeds);
  keeper_ = std::make_unique<engine::lock_keeper>(
      *plain_->engine, *watched_->engine, *this,
      engine::keeper_options{options_.watch_max, options_.release_timeout.count(), seeds[0]}, redis::now_us());
  room_ = std::make_unique<engine::waiting_room>(*plain_->engine, *watched_->engine, *keeper_, *this, seeds[1],
                                                 redis::now_us());
}

// Asking the clock costs as much as a good part of starting an operation, so the time at which the loop called holds as
// long as the system's clock has not ticked: a callback may have been running for long.
std::int64_t client::body::now_us() const noexcept {
  return entered_us_ != 0 && redis::clock_tick() == entered_tick_ ? entered_us_ : redis::now_us();
}

bool client::body::forked() const noexcept { return redis::fork_count() != forks_; }

void client::body::abandon() noexcept {
  dead_ = true;
  closers_.clear();
  room_->abandon();
  keeper_->abandon();
  if (!forked()) {
    plain_.reset();
    watched_.reset();
    loop_.reset();
  } else {
    // The loop is the parent's: taking handles out of it could reach into the parent through a shared epoll.
    static_cast<void>(plain_.release());
    static_cast<void>(watched_.release());
    static_cast<void>(loop_.release());
  }
  if (--users_ == 0) delete this;
}

operation_handle client::body::start_by_key(engine::operation_kind kind, std::string_view key, std::int64_t ttl_ms,
                                            engine::completion&& done) {
  protocol::user_key_buffer buffer;
  const auto normal = protocol::normalize_user_key(key, buffer);
  if (!normal) return start({kind, key.substr(0, error::key_max_bytes), {}, 0}, std::move(done), normal.error());
  if (kind != engine::operation_kind::acquire) return start({kind, *normal, {}, 0}, std::move(done), {});
  const auto ttl = protocol::validate_ttl_ms(ttl_ms);
  if (!ttl) return start({kind, *normal, {}, 0}, std::move(done), ttl.error());
  return start({kind, *normal, ids_.next(), ttl_ms}, std::move(done), {});
}

operation_handle client::body::start_by_id(engine::operation_kind kind, std::string_view id, std::int64_t ttl_ms,
                                           engine::completion&& done) {
  const auto parsed = lock_id::parse(id);
  if (!parsed) return start({kind, {}, {}, 0}, std::move(done), parsed.error());
  if (kind == engine::operation_kind::extend) {
    const auto ttl = protocol::validate_ttl_ms(ttl_ms);
    if (!ttl) return start({kind, {}, *parsed, 0}, std::move(done), ttl.error());
  }
  return start({kind, {}, *parsed, ttl_ms}, std::move(done), {});
}

operation_handle client::body::start(engine::engine::request what, engine::completion&& done,
                                     std::optional<error> refused) {
  if (refusal_) refused = refusal_;
  if (forked()) refused = parents_client();
  engine::engine& plain = *plain_->engine;
  const engine::operation* started = refused ? plain.start_failed(what, std::move(done), std::move(*refused), now_us())
                                             : plain.start(what, std::move(done), now_us());
  if (started == nullptr) return {};
  return {started->slot, started->generation};
}

operation_handle client::body::start_lock(std::string_view key, const lock_options& options,
                                          callback<result<syncguard::lock>>&& done) {
  protocol::user_key_buffer buffer;
  const auto normal = protocol::normalize_user_key(key, buffer);
  std::optional<error> refused = refuse_lock(options);
  if (!refused && !normal) refused = normal.error();
  const engine::waiter* entered = nullptr;
  if (refused) {
    refused->with_context(normal ? *normal : key.substr(0, error::key_max_bytes), {}, refused->cause());
    entered = room_->turn_away(std::move(done), std::move(*refused));
  } else {
    protocol::storage_key_buffer stored;
    std::optional<std::int64_t> margin;
    if (options.margin) margin = options.margin->count();
    entered = room_->enter({*normal, place_of(keys_->lock_key(*normal, stored)), options.ttl.count(),
                            options.wait.count(), margin, options.heartbeat},
                           std::move(done), now_us());
  }
  if (entered == nullptr) return {};
  return {entered->slot | waiter_bit, entered->generation};
}

std::optional<error> client::body::refuse_lock(const lock_options& options) const {
  if (refusal_) return refusal_;
  if (forked()) return parents_client();
  if (closing_) return error{error_code::aborted, "the client has been closed"};
  const std::int64_t ttl_ms = options.ttl.count();
  if (ttl_ms < engine::lock_keeper::ttl_min_ms || ttl_ms > protocol::ttl_max_ms)
    return error{error_code::invalid_argument, "the time to live of a kept lock is between 10 ms and 100 days"};
  if (options.wait.count() < 0 || options.wait.count() > protocol::ttl_max_ms)
    return error{error_code::invalid_argument, "the time to wait is between nothing and 100 days"};
  if (options.margin && (options.margin->count() < 0 || options.margin->count() >= ttl_ms))
    return error{error_code::invalid_argument, "the margin is negative, or leaves nothing of the time to live"};
  if (options.margin && options.margin->count() > pause_max_ms)
    return error{error_code::invalid_argument, "the margin is one day at most"};
  if (room_->size() + plain_->engine->pending() >= options_.max_pending)
    return error{error_code::rate_limited, "too many operations are pending"};
  return std::nullopt;
}

std::uint64_t client::body::place_of(std::string_view lock_key) const noexcept {
  static_assert(crypto_shorthash_BYTES == sizeof(std::uint64_t));
  static_assert(crypto_shorthash_KEYBYTES == sizeof place_secret_);
  std::uint64_t place = 0;
  crypto_shorthash(reinterpret_cast<unsigned char*>(&place), reinterpret_cast<const unsigned char*>(lock_key.data()),
                   lock_key.size(), place_secret_.data());
  return place;
}

bool client::body::cancel(operation_handle which) {
  if (which && (which.slot & waiter_bit) != 0)
    return room_->cancel(which.slot & ~waiter_bit, which.generation, redis::now_us());
  return plain_->engine->cancel(which.slot, which.generation, redis::now_us());
}

void client::body::close(callback<result<void>> done) {
  closing_ = true;
  plain_->engine->stop_accepting();
  room_->close(redis::now_us());
  closers_.push_back(std::move(done));
  loop_->want_turn_end();
}

client_stats client::body::stats() const noexcept {
  client_stats now = plain_->engine->stats();
  const client_stats& watched = watched_->engine->stats();
  now.batches += watched.batches;
  now.resent += watched.resent;
  now.scripts_reloaded += watched.scripts_reloaded;
  for (std::size_t bucket = 0; bucket < now.batch_sizes.size(); ++bucket)
    now.batch_sizes[bucket] += watched.batch_sizes[bucket];
  now.pending = plain_->engine->pending();
  now.watching = watched_->engine->up();
  keeper_->count_in(now);
  room_->count_in(now);
  return now;
}

void client::body::on_turn_end() {
  const frame on_stack{*this};
  if (!forked()) plain_->link->end_turn();
  if (on_stack.dead()) return;
  if (!forked()) watched_->link->end_turn();
  if (on_stack.dead()) return;
  if (closing_ && keeper_->close_some(on_stack.now_us())) loop_->want_turn_end();
  if (on_stack.dead()) return;
  room_->end_turn(on_stack.now_us());
  if (on_stack.dead()) return;
  // Callbacks may have taken their time.
  keeper_->end_turn(redis::now_us());
  plain_->engine->end_turn(redis::now_us());
  if (on_stack.dead()) return;
  watched_->engine->end_turn(redis::now_us());
  if (on_stack.dead()) return;
  finish_closing(on_stack);
  if (on_stack.dead()) return;
  sync_timer();
}

void client::body::on_timer() {
  const frame on_stack{*this};
  armed_ms_.reset();
  if (forked()) return;
  const std::int64_t now = on_stack.now_us();
  for (lane* each : {plain_.get(), watched_.get()}) {
    each->link->run_timer(now / 1000);
    each->engine->run_timers(now);
    if (on_stack.dead()) return;
  }
  keeper_->run_timers(now);
  if (on_stack.dead()) return;
  room_->run_timers(now);
  if (closing_) loop_->want_turn_end();
  sync_timer();
}

void client::body::on_resolved(std::vector<std::string> addresses, std::string_view why) {
  const frame on_stack{*this};
  if (forked()) return;
  plain_->link->resolved(addresses, why);
  watched_->link->resolved(std::move(addresses), why);
  sync_timer();
}

// Armed for the next deadline only, and not at all while there is none: an idle client wakes nobody.
void client::body::sync_timer() {
  std::optional<std::int64_t> next;
  for (const auto& each :
       {plain_->engine->next_wake_ms(), plain_->link->next_wake_ms(), watched_->engine->next_wake_ms(),
        watched_->link->next_wake_ms(), keeper_->next_wake_ms(), room_->next_wake_ms()})
    if (each && (!next || *each < *next)) next = each;
  // What the engines still have is nobody's; but a lock that was lost can still be told so.
  if (state_ == connection_state::closed) next = keeper_->next_wake_ms();
  if (!next) {
    if (armed_ms_) loop_->disarm();
    armed_ms_.reset();
    return;
  }
  if (armed_ms_ && *armed_ms_ <= *next) return;
  armed_ms_ = next;
  // Rounded up: a timer that fires within the last millisecond before its time would have to be armed again.
  const std::int64_t now_us = redis::now_us();
  loop_->arm((*next * 1000 - now_us + 999) / 1000);
}

void client::body::lane_up(const lane& which) {
  which.engine->link_up();
  if (!which.is_watched) return change_state(connection_state::ready, nullptr);
  room_->watching_began(redis::now_us());
  // What happened while nobody watched is not told.
  keeper_->invalidated_all();
}

void client::body::lane_lost(const lane& which, const error& why, bool refused) {
  const frame on_stack{*this};
  which.engine->link_down(why, refused, on_stack.now_us());
  if (on_stack.dead()) return;
  if (which.is_watched) return room_->watching_ended(on_stack.now_us());
  change_state(refused ? connection_state::refused : connection_state::connecting, &why);
}

void client::body::change_state(connection_state next, const error* cause) {
  state_ = next;
  const auto told = options_.on_connection;  // a copy: the callback may destroy this
  if (told) told(next, cause);
}

void client::body::lane_answered(const lane& which, engine::batch& answered, engine::batch_answer& answer) {
  const frame on_stack{*this};
  which.engine->answered(answered, answer, on_stack.now_us());
  if (on_stack.dead()) return;
  if (closing_) loop_->want_turn_end();
  sync_timer();
}

void client::body::lane_invalidated(std::string_view lock_key) {
  const std::uint64_t place = place_of(lock_key);
  room_->invalidated(place, redis::now_us());
  keeper_->invalidated(place);
}

void client::body::lane_invalidated_all() {
  room_->invalidated_all(redis::now_us());
  keeper_->invalidated_all();
}

void client::body::want_watching() {
  if (watched_->link->idle() && !forked()) watched_->link->start();
}

syncguard::lock client::body::wrap(engine::held_lock& held) {
  ++users_;
  return make_lock(held);
}

engine::completion client::body::release_observer() {
  return callback<result<bool>>{[this](const result<bool>& released) {
    if (released) return;
    const auto told = options_.on_release_error;  // a copy: the callback may destroy this
    if (told) told(released.error());
  }};
}

std::int64_t client::body::valid_for_us(const engine::held_lock& held) const noexcept {
  if (dead_ || forked() || held.phase != engine::hold::held) return 0;
  return held.valid_until_ms * 1000 - redis::now_us();
}

void client::body::set_on_lost(engine::held_lock& held, callback<lost> told) {
  if (!dead_) keeper_->set_on_lost(held, std::move(told), now_us());
}

void client::body::extend(engine::held_lock& held, std::int64_t ttl_ms,
                          callback<result<std::optional<server_time>>> done) {
  if (dead_) return;
  if (const auto ttl = protocol::validate_ttl_ms(ttl_ms); forked() || !ttl) {
    start({engine::operation_kind::extend, held.key(), held.id}, std::move(done), ttl ? parents_client() : ttl.error());
    return;
  }
  keeper_->extend(held, ttl_ms, std::move(done), now_us());
}

void client::body::release(engine::held_lock& held, callback<result<bool>> done) {
  if (dead_) return;
  if (forked()) {
    start({engine::operation_kind::release, held.key(), held.id}, std::move(done), parents_client());
    return;
  }
  keeper_->release(held, std::move(done), now_us());
}

void client::body::let_go(engine::held_lock& held) noexcept {
  if (forked()) held.phase = engine::hold::over;  // it is the parent's
  keeper_->let_go(held, now_us());
  if (--users_ == 0) delete this;
}

void client::body::finish_closing(const frame& on_stack) {
  // On the watched lane, too, callers may wait: for locks that they extend by hand.
  const std::size_t pending = plain_->engine->pending() + watched_->engine->pending();
  if (!closing_ || pending > 0 || room_->size() > 0 || keeper_->size() > 0) return;
  if (state_ != connection_state::closed) {
    plain_->link->stop();
    watched_->link->stop();
    change_state(connection_state::closed, nullptr);
    if (on_stack.dead()) return;
  }
  auto told = std::exchange(closers_, {});
  for (auto& each : told) {
    each(result<void>{});
    if (on_stack.dead()) return;
  }
}

void client::body::settle(engine::engine& from, engine::operation& over, engine::outcome& what) {
  name_failure(over, what);
  if (reporter_.on()) reporter_.report(over, what);
  complete(from, over, what, now_us(), dead_);
}

}  // namespace syncguard
