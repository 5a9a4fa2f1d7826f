#include "client_body.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>
#include <variant>

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
  if (options.max_pending < 1) return error{error_code::invalid_argument, "max_pending is zero"};
  if (options.client_name.find_first_of(" \r\n") != std::string::npos)
    return error{error_code::invalid_argument, "the client name contains a blank or a line break"};
  return std::nullopt;
}

}  // namespace

client::body::body(loop where, client_options options)
    : options_(std::move(options)),
      reporter_(options_.telemetry, options_.telemetry_include_raw),
      loop_(where.take()),
      forks_(redis::fork_count()) {
  loop_->open(*this);
  refusal_ = refuse_times(options_);

  auto keys = protocol::key_space::make(options_.prefix);
  if (!keys && !refusal_) refusal_ = keys.error();
  keys_ = keys ? *std::move(keys) : *protocol::key_space::make(protocol::default_prefix);

  redis::link_options linked;
  std::unique_ptr<redis::tls_context> tls;
  if (auto parsed = redis::parse_url(options_.url)) {
    linked.where = *std::move(parsed);
  } else if (!refusal_) {
    refusal_ = parsed.error();
  }
  if (linked.where.via == redis::endpoint::transport::tls) {
    auto made = redis::tls_context::make(options_.tls, linked.where.host);
    if (made) {
      tls = *std::move(made);
    } else if (!refusal_) {
      refusal_ = made.error();
    }
  }
  linked.client_name = options_.client_name;
  linked.connect_timeout_ms = options_.connect_timeout.count();
  linked.reconnect_min_ms = options_.reconnect_min.count();
  linked.reconnect_max_ms = options_.reconnect_max.count();
  link_ = std::make_unique<redis::link>(std::move(linked), std::move(tls), *keys_, *loop_, *this);
  engine_ = std::make_unique<engine::engine>(
      engine::engine_options{options_.timeout.count(), options_.max_pending, options_.cleanup_in_is_locked}, *link_,
      *this, redis::now_us());
  if (refusal_) return;
  link_->start();
  sync_timer();
}

void client::body::abandon() noexcept {
  dead_ = true;
  closers_.clear();
  if (redis::fork_count() == forks_) {
    engine_.reset();
    link_.reset();
    loop_.reset();
  } else {
    // The loop is the parent's: taking handles out of it could reach into the parent through a shared epoll.
    static_cast<void>(engine_.release());
    static_cast<void>(link_.release());
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
  if (redis::fork_count() != forks_)
    refused = error{error_code::service_unavailable, "this client belongs to the parent process"};
  const std::int64_t now = entered_us_ != 0 ? entered_us_ : redis::now_us();
  const engine::operation* started = refused ? engine_->start_failed(what, std::move(done), std::move(*refused), now)
                                             : engine_->start(what, std::move(done), now);
  if (started == nullptr) return {};
  return {started->slot, started->generation};
}

bool client::body::cancel(operation_handle which) {
  return engine_->cancel(which.slot, which.generation, redis::now_us());
}

void client::body::close(callback<result<void>> done) {
  closing_ = true;
  engine_->stop_accepting();
  closers_.push_back(std::move(done));
  loop_->want_turn_end();
}

client_stats client::body::stats() const noexcept {
  client_stats now = engine_->stats();
  now.pending = engine_->pending();
  return now;
}

void client::body::on_turn_end() {
  const frame on_stack{*this};
  if (redis::fork_count() == forks_) link_->end_turn();
  if (on_stack.dead()) return;
  engine_->end_turn(on_stack.now_us());
  if (on_stack.dead()) return;
  finish_closing(on_stack);
  if (on_stack.dead()) return;
  sync_timer();
}

void client::body::on_timer() {
  const frame on_stack{*this};
  armed_ms_.reset();
  if (redis::fork_count() != forks_) return;
  const std::int64_t now = on_stack.now_us();
  link_->run_timer(now / 1000);
  engine_->run_timers(now);
  if (on_stack.dead()) return;
  sync_timer();
}

void client::body::on_resolved(std::vector<std::string> addresses, std::string_view why) {
  const frame on_stack{*this};
  if (redis::fork_count() != forks_) return;
  link_->resolved(std::move(addresses), why);
  sync_timer();
}

// Armed for the next deadline only, and not at all while there is none: an idle client wakes nobody.
void client::body::sync_timer() {
  const auto ours = engine_->next_wake_ms();
  const auto links = link_->next_wake_ms();
  std::optional<std::int64_t> next = ours;
  if (links && (!next || *links < *next)) next = links;
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

void client::body::link_up() {
  engine_->link_up();
  change_state(connection_state::ready, nullptr);
}

void client::body::link_lost(const error& why, bool refused) {
  const frame on_stack{*this};
  engine_->link_down(why, refused, redis::now_us());
  if (on_stack.dead()) return;
  change_state(refused ? connection_state::refused : connection_state::connecting, &why);
}

void client::body::change_state(connection_state next, const error* cause) {
  state_ = next;
  const auto told = options_.on_connection;  // a copy: the callback may destroy this
  if (told) told(next, cause);
}

void client::body::batch_answered(engine::batch& which, engine::batch_answer& answer) {
  const frame on_stack{*this};
  engine_->answered(which, answer, on_stack.now_us());
  if (on_stack.dead()) return;
  if (closing_) loop_->want_turn_end();
  sync_timer();
}

void client::body::batch_without_script(engine::batch& which) { engine_->script_missing(which); }

void client::body::finish_closing(const frame& on_stack) {
  if (!closing_ || engine_->pending() > 0) return;
  if (state_ != connection_state::closed) {
    link_->stop();
    change_state(connection_state::closed, nullptr);
    if (on_stack.dead()) return;
  }
  auto told = std::exchange(closers_, {});
  for (auto& each : told) {
    each(result<void>{});
    if (on_stack.dead()) return;
  }
}

void client::body::settle(engine::operation& over, engine::outcome& what) {
  if (what.failure) {
    what.what = engine::verdict::failed;
    // The lock id of an acquire that has failed names nothing, unless it may have succeeded all the same.
    const bool named = over.id && (over.kind != engine::operation_kind::acquire || what.failure->outcome_unknown());
    const std::string_view id = named ? over.id->view() : std::string_view{};
    what.failure->with_context(over.key.view(), id, what.failure->cause());
  }
  if (reporter_.on()) reporter_.report(over, what);
  std::visit(
      [&](auto& done) {
        using held = std::remove_cvref_t<decltype(done)>;
        if constexpr (std::is_same_v<held, std::monostate>) {
          engine_->forget(over);
        } else {
          held told = std::move(done);
          auto made = make_result<held>(over, what);
          engine_->forget(over);
          told(std::move(made));
        }
      },
      over.done);
}

}  // namespace syncguard
