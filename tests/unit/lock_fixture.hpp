#pragma once

// A client without a loop: two real engines, keeper and waiting room in front of a model of the server, in a time that
// only moves when the test says so. It is driven as client::body drives it. What has happened is read as text:
//
//   take_told()   "a=lock b!AcquisitionTimeout a-vanished a:extended a:released": locks got, errors, losses, and what
//                 came of calls by hand (":gone" where there was nothing to extend or release)
//   take_sent()   "W[acquire:a] P[release:a]": what left by the watched (W) or the plain lane (P).

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <syncguard/lock.hpp>

#include "engine/lock_keeper.hpp"
#include "engine/lock_owner.hpp"
#include "engine/surroundings.hpp"
#include "engine/waiting_room.hpp"
#include "engine_fixture.hpp"
#include "results.hpp"
#include "support/model/model_lane.hpp"
#include "support/model/model_server.hpp"

namespace syncguard::testing {

struct wish {
  std::int64_t ttl_ms = 30'000;
  std::int64_t wait_ms = 5'000;
  std::optional<std::int64_t> margin_ms{};
  bool heartbeat = true;
};

struct lock_world_options {
  engine::keeper_options keeper{.seed = 1};
  std::uint64_t room_seed = 2;
  std::uint8_t client = 0;  // part of its lock ids
};

class lock_world final : public lane_owner,
                         public engine::observer,
                         public engine::surroundings,
                         public engine::lock_owner {
 public:
  explicit lock_world(const lock_world_options& options = {}, std::shared_ptr<model_server> shared = nullptr)
      : server_(shared != nullptr ? std::move(shared) : std::make_shared<model_server>()),
        server(*server_),
        plain(*this, *this, server, false, {}),
        watched(*this, *this, server, true, {}),
        keeper(std::make_unique<engine::lock_keeper>(*plain.engine, *watched.engine, *this, options.keeper, now_us())),
        room(std::make_unique<engine::waiting_room>(*plain.engine, *watched.engine, *keeper, *this, options.room_seed,
                                                    now_us())),
        client_(options.client) {}
  ~lock_world() {
    abandon();
    locks.clear();
    many.clear();
  }
  lock_world(const lock_world&) = delete;
  lock_world& operator=(const lock_world&) = delete;

  // Time and the loop

  std::int64_t now_us() const noexcept override { return server.now_us; }
  std::int64_t now_ms() const noexcept { return server.now_us / 1000; }

  // The end of one turn.
  void end_turn() {
    if (dead_) return;
    turn_wanted_ = false;
    ++turns;
    if (closing && keeper->close_some(now_us())) turn_wanted_ = true;
    if (!dead_) room->end_turn(now_us());
    if (!dead_) keeper->end_turn(now_us());
    if (!dead_) plain.engine->end_turn(now_us());
    if (!dead_) watched.engine->end_turn(now_us());
  }
  void run_timers() {
    if (!dead_) plain.engine->run_timers(now_us());
    if (!dead_) watched.engine->run_timers(now_us());
    if (!dead_) keeper->run_timers(now_us());
    if (!dead_) room->run_timers(now_us());
  }
  // Turns until nothing is left to do at this time. Returns whether it came to an end.
  bool settle_down() {
    for (int left = 20'000; left > 0; --left) {
      end_turn();
      const bool plain_moved = plain.exchange();
      if (!watched.exchange() && !plain_moved && !turn_wanted_) return true;
    }
    hot = true;
    return false;
  }
  // When something happens next by itself.
  std::optional<std::int64_t> next_event_us() const {
    std::optional<std::int64_t> next;
    if (dead_) return next;
    const auto earlier = [&next](std::optional<std::int64_t> at, std::int64_t unit) {
      if (at && (!next || *at * unit < *next)) next = *at * unit;
    };
    for (const auto& at :
         {plain.engine->next_wake_ms(), watched.engine->next_wake_ms(), keeper->next_wake_ms(), room->next_wake_ms()})
      earlier(at, 1000);
    earlier(plain.next_arrival_us(), 1);
    earlier(watched.next_arrival_us(), 1);
    return next;
  }
  // Lets time pass, from event to event as a responsive loop does.
  void run_ms(std::int64_t ms) {
    lock_world* const self = this;
    run_together({&self, 1}, ms);
  }
  static void run_together(std::span<lock_world* const> all, std::int64_t ms) {
    model_server& time = all.front()->server;
    const std::int64_t target_us = time.now_us + ms * 1000;
    const std::int64_t events_max = 100'000 + ms * 100;
    for (lock_world* each : all) each->settle_down();
    for (std::int64_t events = 0;; ++events) {
      std::int64_t next_us = target_us + 1;
      for (const lock_world* each : all) next_us = std::min(next_us, each->next_event_us().value_or(next_us));
      if (next_us > target_us) break;
      if (events > events_max) {
        all.front()->hot = true;
        break;
      }
      time.now_us = std::max(time.now_us, next_us);
      for (lock_world* each : all) {
        if (each->next_event_us().value_or(next_us + 1) > next_us) continue;
        each->run_timers();
        each->settle_down();
      }
    }
    time.now_us = target_us;
  }
  // Time passes, and nobody in this process notices.
  void stall_ms(std::int64_t ms) { server.now_us += ms * 1000; }

  void link_up(model_lane& lane) {
    lane.link_up();
    if (!lane.watched) return;
    room->watching_began(now_us());
    keeper->invalidated_all();
  }
  void link_down(model_lane& lane, error_code code = error_code::service_unavailable, bool refused = false) {
    lane.link_down({code, "the link is gone"}, refused);
  }
  void links_up() {
    link_up(plain);
    link_up(watched);
    settle_down();
  }

  // What users do

  // Asks for the lock of a key; the lock goes by the same name.
  void ask_for(const std::string& name, const std::string& key, const wish& what = {}) {
    const engine::waiter* entered = room->enter(
        {key, place_of(key), what.ttl_ms, what.wait_ms, what.margin_ms, what.heartbeat},
        [this, name = std::string{name}](result<syncguard::lock> got) { got_lock(name, std::move(got)); }, now_us());
    waiters_.insert_or_assign(name, std::pair{entered->slot, entered->generation});
  }
  void ask(const std::string& key, const wish& what = {}) { ask_for(key, key, what); }
  // The same, and has it when it returns, where nobody else holds it.
  void hold(const std::string& key, const wish& what = {}) {
    ask(key, what);
    settle_down();
    take_told();
    take_sent();
  }
  void hold_many(std::size_t count, const wish& what = {}) {
    many.reserve(count);
    for (std::size_t index = 0; index < count; ++index) {
      const std::string key = "m" + std::to_string(index);
      room->enter(
          {key, place_of(key), what.ttl_ms, what.wait_ms, what.margin_ms, what.heartbeat},
          [this](result<syncguard::lock> got) {
            if (!got) return;
            many.push_back(*std::move(got));
            many.back().on_lost([this](lost) { ++many_lost; });
          },
          now_us());
    }
    settle_down();
    take_sent();
  }
  bool cancel(const std::string& name) {
    const auto [slot, generation] = waiters_.at(name);
    return room->cancel(slot, generation, now_us());
  }
  void extend(const std::string& name, std::int64_t ttl_ms) {
    locks.at(name).extend(std::chrono::milliseconds{ttl_ms},
                          [this, name = std::string{name}](result<std::optional<server_time>> done) {
                            tell(!done ? name + failure_text(done.error()) : name + (*done ? ":extended" : ":gone"));
                          });
  }
  void release(const std::string& name) {
    locks.at(name).release([this, name = std::string{name}](result<bool> done) {
      tell(!done ? name + failure_text(done.error()) : name + (*done ? ":released" : ":gone"));
    });
  }
  void drop(const std::string& name) { locks.erase(name); }
  void watch_loss(const std::string& name) {
    locks.at(name).on_lost([this, name = std::string{name}](lost why) { lock_lost(name, why); });
  }
  void close() {
    closing = true;
    plain.engine->stop_accepting();
    room->close(now_us());
  }
  void abandon() {
    if (std::exchange(dead_, true)) return;
    room->abandon();
    keeper->abandon();
    plain.engine.reset();
    watched.engine.reset();
  }

  // Notes

  std::string take_told() { return std::exchange(told_, {}); }
  std::string take_sent() { return std::exchange(sent_, {}); }
  bool valid(const std::string& name) { return locks.at(name).valid(); }
  std::int64_t valid_for_ms(const std::string& name) { return locks.at(name).valid_for().count() / 1000; }
  client_stats stats() const {
    client_stats now;
    keeper->count_in(now);
    room->count_in(now);
    return now;
  }
  std::uint64_t place_of(std::string_view key) const { return one_place ? 7 : std::hash<std::string_view>{}(key); }

 private:
  std::shared_ptr<model_server> server_;

 public:
  model_server& server;
  model_lane plain;
  model_lane watched;
  std::unique_ptr<engine::lock_keeper> keeper;
  std::unique_ptr<engine::waiting_room> room;

  std::map<std::string, syncguard::lock> locks;
  std::vector<syncguard::lock> many;
  std::size_t many_lost = 0;
  bool closing = false;
  bool one_place = false;
  bool keeps_log = true;
  bool hot = false;  // something went on without an end
  bool watching_wanted = false;
  std::uint64_t turns = 0;
  std::uint64_t polls = 0;
  std::int64_t told_ms = 0;        // when something was last told
  std::string last_failure;        // its text and cause
  std::string last_release_error;  //
  std::size_t attempts_in_flight = 0;
  std::size_t attempts_in_flight_max = 0;
  std::vector<std::size_t> batch_sizes;        // of all that was sent, while the log is kept
  std::vector<std::int64_t> attempt_times_ms;  // the same
  std::function<void(const std::string& name)> inside_got;
  std::function<void(const std::string& name)> inside_lost;
  std::function<void(const std::string& name)> inside_refused;

 private:
  // lane_owner
  void want_turn() override { turn_wanted_ = true; }
  void changed(std::string_view key) override {
    room->invalidated(place_of(key), now_us());
    keeper->invalidated(place_of(key));
  }
  void changed_all() override {
    room->invalidated_all(now_us());
    keeper->invalidated_all();
  }
  void link_lost(const model_lane& lane) override {
    if (!dead_ && lane.watched) room->watching_ended(now_us());
  }
  void sent(char lane, const batch& what) override {
    for (std::size_t index = 0; index < what.count; ++index) {
      const operation& item = *what.operations.at(index);
      if (item.kind != operation_kind::acquire) continue;
      if (item.patron.who != nullptr && !item.maybe_applied)
        attempts_in_flight_max = std::max(attempts_in_flight_max, ++attempts_in_flight);
      if (keeps_log) attempt_times_ms.push_back(now_ms());
      if (keeps_log) names_.insert_or_assign(std::string{item.id->view()}, std::string{item.key.view()});
    }
    if (!keeps_log) return;
    batch_sizes.push_back(what.count);
    std::string items;
    for (std::size_t index = 0; index < what.count && what.count <= 8; ++index)
      log(items, describe(*what.operations.at(index)));
    if (what.count > 8) items = std::to_string(what.count);
    log(sent_, std::string{lane} + "[" + items + "]");
  }
  void polled() override { ++polls; }
  std::string describe(const operation& item) const {
    const auto found = names_.find(std::string{item.id->view()});
    return std::string{name_of(item.kind)} + ":" + (found != names_.end() ? found->second : "?");
  }

  // engine::observer, as client::body
  void settle(engine::engine& from, operation& over, outcome& what) override {
    name_failure(over, what);
    if (over.patron.who != nullptr && over.kind == operation_kind::acquire && over.first_sent_us != 0)
      --attempts_in_flight;
    complete(from, over, what, now_us(), dead_);
  }

  // engine::surroundings
  lock_id fresh_id() override {
    std::array<std::uint8_t, lock_id::random_bytes> bytes{client_};
    const std::uint64_t number = ++ids_made_;
    for (std::size_t index = 0; index < 8; ++index)
      bytes.at(index + 1) = static_cast<std::uint8_t>(number >> index * 8);
    return lock_id::from_bytes(bytes);
  }
  void want_watching() override { watching_wanted = true; }
  void want_turn_end() override { turn_wanted_ = true; }
  syncguard::lock wrap(engine::held_lock& held) override { return make_lock(held); }
  engine::completion release_observer() override {
    return callback<result<bool>>{[this](const result<bool>& done) {
      if (!done) last_release_error = failure_text(done.error());
    }};
  }

  // engine::lock_owner
  std::int64_t valid_for_us(const engine::held_lock& held) const noexcept override {
    return dead_ || held.phase != engine::hold::held ? 0 : held.valid_until_ms * 1000 - now_us();
  }
  void set_on_lost(engine::held_lock& held, callback<lost> told) override {
    if (!dead_) keeper->set_on_lost(held, std::move(told), now_us());
  }
  void extend(engine::held_lock& held, std::int64_t ttl_ms,
              callback<result<std::optional<server_time>>> done) override {
    if (!dead_) keeper->extend(held, ttl_ms, std::move(done), now_us());
  }
  void release(engine::held_lock& held, callback<result<bool>> done) override {
    if (!dead_) keeper->release(held, std::move(done), now_us());
  }
  void let_go(engine::held_lock& held) noexcept override { keeper->let_go(held, now_us()); }

  void got_lock(const std::string& name, result<syncguard::lock> got) {
    if (got) {
      locks.insert_or_assign(name, *std::move(got));
      watch_loss(name);
      tell(name + "=lock");
    } else {
      last_failure = std::string{got.error().message()} + " (" + std::string{got.error().cause()} + ")";
      tell(name + failure_text(got.error()));
    }
    run_hook(locks.contains(name) && got ? inside_got : inside_refused, name);
  }
  void lock_lost(const std::string& name, lost why) {
    tell(name + "-" + std::string{to_string(why)});
    run_hook(inside_lost, name);
  }
  static void run_hook(const std::function<void(const std::string&)>& hook, const std::string& name) {
    const auto copy = hook;  // it may replace itself
    const std::string kept = name;
    if (copy) copy(kept);
  }
  static std::string failure_text(const error& why) { return "!" + std::string{to_string(why.code())}; }
  void tell(const std::string& word) {
    told_ms = now_ms();
    log(told_, word);
  }
  static void log(std::string& line, const std::string& word) {
    if (!line.empty()) line += ' ';
    line += word;
  }

  std::uint8_t client_;
  std::uint64_t ids_made_ = 0;
  bool turn_wanted_ = false;
  bool dead_ = false;
  std::string told_;
  std::string sent_;
  std::map<std::string, std::pair<std::uint32_t, std::uint32_t>> waiters_;
  std::map<std::string, std::string> names_;  // keys by lock id
};

inline int make_lock_world_without_links(void** state) {
  *state = new lock_world;
  return 0;
}
inline int make_lock_world(void** state) {
  auto* world = new lock_world;
  world->links_up();
  *state = world;
  return 0;
}
inline int end_lock_world(void** state) {
  delete static_cast<lock_world*>(*state);
  return 0;
}
inline lock_world& lock_world_of(void** state) { return *static_cast<lock_world*>(*state); }

}  // namespace syncguard::testing

#define lock_test(name) \
  cmocka_unit_test_setup_teardown(name, ::syncguard::testing::make_lock_world, ::syncguard::testing::end_lock_world)
#define lock_test_without_links(name)                                                        \
  cmocka_unit_test_setup_teardown(name, ::syncguard::testing::make_lock_world_without_links, \
                                  ::syncguard::testing::end_lock_world)
