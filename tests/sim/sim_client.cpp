#include "sim/sim_client.hpp"

#include <algorithm>
#include <utility>

#include "results.hpp"
#include "sim/user.hpp"

namespace syncguard::sim {

namespace {

// More turns than this without a moment passing between them are a hot loop.
constexpr int turns_max = 1000;

}  // namespace

// While it lasts, no callback may run.
class sim_client::call {
 public:
  explicit call(sim_client& made) : made_(made) { ++made_.calls_on_stack_; }
  ~call() { --made_.calls_on_stack_; }
  call(const call&) = delete;
  call& operator=(const call&) = delete;

 private:
  sim_client& made_;
};

sim_client::sim_client(stage& on, int number, std::string name)
    : stage_(on),
      number_(number),
      name_(std::move(name)),
      drift_ppm_(on.random.between(-on.how.drift_max_ppm, on.how.drift_max_ppm)),
      base_us_(on.random.between(1'000'000, 9'000'000'000)),
      plain_(on, *this, *this, false),
      watched_(on, *this, *this, true),
      keeper_(*plain_.lane.engine, *watched_.lane.engine, *this,
              engine::keeper_options{static_cast<std::size_t>(on.random.percent(10) ? 1 : 1000),
                                     on.how.release_timeout_ms, static_cast<std::uint64_t>(on.random.below(1 << 30))},
              now_us()),
      room_(*plain_.lane.engine, *watched_.lane.engine, keeper_, *this,
            static_cast<std::uint64_t>(on.random.below(1 << 30)), now_us()) {
  plain_.start();
}

sim_client::~sim_client() { destroy(); }

// The client's clock

std::int64_t sim_client::now_us() const noexcept {
  const std::int64_t passed = stage_.now_us() - began_us;
  return base_us_ + passed + passed * drift_ppm_ / 1'000'000;
}

// When it is that time by the client's clock, by the clock of the stage.
std::int64_t sim_client::stage_time_of_us(std::int64_t local_ms) const noexcept {
  const std::int64_t wanted = local_ms * 1000 - base_us_;
  std::int64_t passed = wanted - wanted * drift_ppm_ / 1'000'000 - 3;
  while (passed + passed * drift_ppm_ / 1'000'000 < wanted) ++passed;
  return began_us + passed;
}

// The public calls

operation_handle sim_client::start_by_key(engine::operation_kind kind, std::string_view key, std::int64_t ttl_ms,
                                          engine::completion&& done, std::optional<lock_id>* made) {
  const call on_stack{*this};
  engine::engine::request what{kind, key, {}, ttl_ms};
  if (kind == engine::operation_kind::acquire) what.id = fresh_id();
  if (made != nullptr) *made = what.id;
  const engine::operation* started = plain_.lane.engine->start(what, std::move(done), now_us());
  return {started->slot, started->generation};
}

operation_handle sim_client::start_by_id(engine::operation_kind kind, const lock_id& id, std::int64_t ttl_ms,
                                         engine::completion&& done) {
  const call on_stack{*this};
  const engine::operation* started = plain_.lane.engine->start({kind, {}, id, ttl_ms}, std::move(done), now_us());
  return {started->slot, started->generation};
}

operation_handle sim_client::start_lock(std::string_view key, const lock_options& options,
                                        callback<result<syncguard::lock>>&& done) {
  const call on_stack{*this};
  std::optional<std::int64_t> margin;
  if (options.margin) margin = options.margin->count();
  std::optional<error> refused = refuse_lock();
  const engine::waiter* entered =
      refused ? room_.turn_away(std::move(done), *std::move(refused))
              : room_.enter({key, place_of(key), options.ttl.count(), options.wait.count(), margin, options.heartbeat},
                            std::move(done), now_us());
  return {entered->slot | 0x8000'0000, entered->generation};
}

std::optional<error> sim_client::refuse_lock() const {
  if (closing_) return error{error_code::aborted, "the client has been closed"};
  if (room_.size() + plain_.lane.engine->pending() >= stage_.how.max_pending)
    return error{error_code::rate_limited, "too many operations are pending"};
  return std::nullopt;
}

bool sim_client::cancel(operation_handle which) {
  const call on_stack{*this};
  if ((which.slot & 0x8000'0000) != 0) return room_.cancel(which.slot & ~0x8000'0000, which.generation, now_us());
  return plain_.lane.engine->cancel(which.slot, which.generation, now_us());
}

void sim_client::close(callback<result<void>> done) {
  const call on_stack{*this};
  closing_ = true;
  plain_.lane.engine->stop_accepting();
  room_.close(now_us());
  closers_.push_back(std::move(done));
  turn_wanted_ = true;
}

void sim_client::destroy() {
  if (std::exchange(dead_, true)) return;
  closers_.clear();
  room_.abandon();
  keeper_.abandon();
  plain_.stop();
  watched_.stop();
  plain_.lane.engine.reset();
  watched_.lane.engine.reset();
}

// The loop

void sim_client::stall_until(std::int64_t until_us) noexcept {
  stalled_until_us_ = std::max(stalled_until_us_, until_us);
  ++stalls_;
}

std::optional<std::int64_t> sim_client::next_timer_ms() const noexcept {
  if (closed_) return keeper_.next_wake_ms();
  std::optional<std::int64_t> next;
  for (const auto& each :
       {plain_.lane.engine->next_wake_ms(), plain_.next_wake_ms(), watched_.lane.engine->next_wake_ms(),
        watched_.next_wake_ms(), keeper_.next_wake_ms(), room_.next_wake_ms()})
    if (each && (!next || *each < *next)) next = each;
  return next;
}

std::optional<std::int64_t> sim_client::next_event_us() const {
  if (dead_) return std::nullopt;
  if (turn_wanted_) return std::max(stage_.now_us(), stalled_until_us_);
  std::optional<std::int64_t> next;
  const auto consider = [&next](std::optional<std::int64_t> at) {
    if (at && (!next || *at < *next)) next = at;
  };
  if (const auto timer = next_timer_ms()) consider(stage_time_of_us(*timer));
  for (const sim_link* each : {&plain_, &watched_}) {
    consider(each->next_event_us());
    consider(each->lane.next_answer_us());
  }
  if (next) next = std::max({*next, stalled_until_us_, stage_.now_us()});
  return next;
}

void sim_client::step() {
  ++stage_.notes.sums.steps;
  // A loop looks at its timers first, or at its sockets.
  const bool timers_first = stage_.random.percent(50);
  if (timers_first) run_timers();
  if (!dead_) read();
  if (!dead_ && !timers_first) run_timers();
  for (int turns = 0; turn_wanted_ && !dead_; ++turns) {
    turn_wanted_ = false;
    end_turn();
    if (turns == turns_max) return stage_.violate(name_, "a hot loop");
  }
}

// As client::body::on_timer().
void sim_client::run_timers() {
  const auto due = next_timer_ms();
  if (!due || *due > now_us() / 1000) return;
  for (sim_link* each : {&plain_, &watched_}) {
    each->run();
    each->lane.engine->run_timers(now_us());
    if (dead_) return;
  }
  keeper_.run_timers(now_us());
  if (dead_) return;
  room_.run_timers(now_us());
  if (closing_) turn_wanted_ = true;
}

void sim_client::read() {
  const bool plain_first = stage_.random.percent(50);
  for (sim_link* each : {plain_first ? &plain_ : &watched_, plain_first ? &watched_ : &plain_}) {
    each->run();
    if (each->lane.next_answer_us().value_or(stage_.now_us() + 1) > stage_.now_us()) continue;
    each->lane.deliver();
    if (dead_) return;
    if (closing_) turn_wanted_ = true;
  }
}

// As client::body::on_turn_end().
void sim_client::end_turn() {
  tell_news(plain_);
  if (!dead_) tell_news(watched_);
  if (dead_) return;
  if (closing_ && keeper_.close_some(now_us())) turn_wanted_ = true;
  if (!dead_) room_.end_turn(now_us());
  if (!dead_) keeper_.end_turn(now_us());
  if (!dead_) plain_.lane.engine->end_turn(now_us());
  if (!dead_) watched_.lane.engine->end_turn(now_us());
  if (!dead_) finish_closing();
}

void sim_client::tell_news(sim_link& link) {
  sim_link::news what = link.take_news();
  const std::string lane = link.lane.watched ? "watched lane " : "plain lane ";
  if (what.lost) {
    if (stage_.notes.on()) stage_.note(name_, lane + "down: " + std::string{what.lost->message()});
    return link.lane.link_down(*what.lost, what.refused);
  }
  if (!what.came_up) return;
  stage_.note(name_, lane + "up");
  link.lane.link_up();
  if (!link.lane.watched) return;
  room_.watching_began(now_us());
  keeper_.invalidated_all();
}

void sim_client::finish_closing() {
  const std::size_t pending = plain_.lane.engine->pending() + watched_.lane.engine->pending();
  if (!closing_ || pending > 0 || room_.size() > 0 || keeper_.size() > 0) return;
  if (!std::exchange(closed_, true)) {
    plain_.stop();
    watched_.stop();
    stage_.note(name_, "closed");
  }
  auto told = std::exchange(closers_, {});
  for (auto& each : told) {
    each(result<void>{});
    if (dead_) return;
  }
}

// What the parts ask for

void sim_client::changed(std::string_view key) {
  if (stage_.notes.on()) stage_.note(name_, "is told that " + std::string{key} + " has changed");
  room_.invalidated(place_of(key), now_us());
  keeper_.invalidated(place_of(key));
}

void sim_client::changed_all() {
  room_.invalidated_all(now_us());
  keeper_.invalidated_all();
}

void sim_client::sent(char lane, const testing::batch& what) {
  if (!stage_.notes.on()) return;
  std::string text = lane == 'W' ? "sends, watched:" : "sends:";
  for (std::size_t index = 0; index < what.count; ++index) {
    const engine::operation& item = *what.operations.at(index);
    text += " " + std::string{testing::name_of(item.kind)} + "(" + std::string{item.key.view()};
    if (item.id) text += (item.key.view().empty() ? "" : " ") + stage_.books.name_of(item.id);
    if (item.ttl_ms > 0) text += " " + std::to_string(item.ttl_ms);
    text += item.maybe_applied ? ", again)" : ")";
  }
  stage_.note(name_, text);
}

void sim_client::link_lost(const testing::model_lane& lane) {
  if (!dead_ && lane.watched) room_.watching_ended(now_us());
}

void sim_client::answered(const testing::model_lane& lane) { (lane.watched ? watched_ : plain_).answered(); }

void sim_client::settle(engine::engine& from, engine::operation& over, engine::outcome& what) {
  name_failure(over, what);
  complete(from, over, what, now_us(), dead_);
}

void sim_client::want_watching() {
  if (watched_.idle() && !closed_) watched_.start();
}

engine::completion sim_client::release_observer() {
  return callback<result<bool>>{[this](const result<bool>& done) {
    if (dead_) stage_.violate(name_, "told of a release after its end");
    if (!done && stage_.notes.on()) stage_.note(name_, "could not release: " + std::string{done.error().message()});
    if (!done) driver->release_failed(done.error().lock_id());
  }};
}

std::int64_t sim_client::valid_for_us(const engine::held_lock& held) const noexcept {
  return dead_ || held.phase != engine::hold::held ? 0 : held.valid_until_ms * 1000 - now_us();
}

void sim_client::set_on_lost(engine::held_lock& held, callback<lost> told) {
  const call on_stack{*this};
  if (!dead_) keeper_.set_on_lost(held, std::move(told), now_us());
}

void sim_client::extend(engine::held_lock& held, std::int64_t ttl_ms,
                        callback<result<std::optional<server_time>>> done) {
  const call on_stack{*this};
  if (!dead_) keeper_.extend(held, ttl_ms, std::move(done), now_us());
}

void sim_client::release(engine::held_lock& held, callback<result<bool>> done) {
  const call on_stack{*this};
  if (!dead_) keeper_.release(held, std::move(done), now_us());
}

void sim_client::let_go(engine::held_lock& held) noexcept {
  const call on_stack{*this};
  keeper_.let_go(held, now_us());
}

std::uint64_t sim_client::place_of(std::string_view key) noexcept {
  return 0x9e3779b97f4a7c15 * static_cast<std::uint64_t>(key.at(1));
}

std::string sim_client::unfinished() {
  if (dead_ || closed_) return {};
  if (plain_.lane.engine->pending() + watched_.lane.engine->pending() != 0) return "operations are pending";
  if (room_.size() != 0) return "somebody waits";
  if (keeper_.size() != 0) return "a lock is held";
  if (plain_.lane.engine->in_use() + watched_.lane.engine->in_use() != 0) return "slots are in use";
  if (plain_.lane.engine->next_wake_ms() || watched_.lane.engine->next_wake_ms() || keeper_.next_wake_ms() ||
      room_.next_wake_ms())
    return "timers are left";
  return {};
}

}  // namespace syncguard::sim
