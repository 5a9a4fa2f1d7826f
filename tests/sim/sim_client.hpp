#pragma once

// A client without a loop and without sockets: the real engines, keeper and waiting room, driven as client::body drives
// them, by a clock of their own that does not run quite as fast as the server's.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <syncguard/client.hpp>
#include <syncguard/lock.hpp>

#include "engine/lock_keeper.hpp"
#include "engine/lock_owner.hpp"
#include "engine/surroundings.hpp"
#include "engine/waiting_room.hpp"
#include "sim/sim_link.hpp"
#include "sim/stage.hpp"

namespace syncguard::sim {

class user;

// Lifetime: outlives every lock object, as the client's body does; destroy() is what a user's `delete` is.
class sim_client final : public testing::lane_owner,
                         public engine::observer,
                         public engine::surroundings,
                         public engine::lock_owner {
 public:
  sim_client(stage& on, int number, std::string name);
  ~sim_client();
  sim_client(const sim_client&) = delete;
  sim_client& operator=(const sim_client&) = delete;

  // The public calls. No callback may run inside of them.
  operation_handle start_by_key(engine::operation_kind kind, std::string_view key, std::int64_t ttl_ms,
                                engine::completion&& done, std::optional<lock_id>* made = nullptr);
  operation_handle start_by_id(engine::operation_kind kind, const lock_id& id, std::int64_t ttl_ms,
                               engine::completion&& done);
  operation_handle start_lock(std::string_view key, const lock_options& options,
                              callback<result<syncguard::lock>>&& done);
  bool cancel(operation_handle which);
  void close(callback<result<void>> done);
  void destroy();

  // The loop.
  std::optional<std::int64_t> next_event_us() const;
  void step();
  void stall_until(std::int64_t until_us) noexcept;
  void wake_up() noexcept { stalled_until_us_ = 0; }
  bool stalled() const noexcept { return stalled_until_us_ > stage_.now_us(); }
  std::uint64_t stalls() const noexcept { return stalls_; }

  std::int64_t now_us() const noexcept override;
  bool dead() const noexcept { return dead_; }
  bool closing() const noexcept { return closing_; }
  bool closed() const noexcept { return closed_; }
  bool inside_call() const noexcept { return calls_on_stack_ > 0; }
  int number() const noexcept { return number_; }
  const std::string& name() const noexcept { return name_; }
  sim_link& plain() noexcept { return plain_; }
  sim_link& watched() noexcept { return watched_; }

  // What is left to do. Nothing: empty.
  std::string unfinished();

  // Whether anything is held, waited for or on its way.
  bool idle() const noexcept {
    return dead_ || (plain_.lane.engine->pending() == 0 && room_.size() == 0 && keeper_.size() == 0);
  }

  user* driver = nullptr;

 private:
  class call;

  // testing::lane_owner
  void want_turn() override { turn_wanted_ = true; }
  void changed(std::string_view key) override;
  void changed_all() override;
  void sent(char lane, const testing::batch& what) override;
  void polled() override {}
  void link_lost(const testing::model_lane& lane) override;
  void answered(const testing::model_lane& lane) override;

  // engine::observer
  void settle(engine::engine& from, engine::operation& over, engine::outcome& what) override;

  // engine::surroundings
  lock_id fresh_id() override { return stage_.books.make_id(number_, name_); }
  void want_watching() override;
  void want_turn_end() override { turn_wanted_ = true; }
  syncguard::lock wrap(engine::held_lock& held) override { return make_lock(held); }
  engine::completion release_observer() override;

  // engine::lock_owner
  std::int64_t valid_for_us(const engine::held_lock& held) const noexcept override;
  void set_on_lost(engine::held_lock& held, callback<lost> told) override;
  void extend(engine::held_lock& held, std::int64_t ttl_ms, callback<result<std::optional<server_time>>> done) override;
  void release(engine::held_lock& held, callback<result<bool>> done) override;
  void let_go(engine::held_lock& held) noexcept override;

  static std::uint64_t place_of(std::string_view key) noexcept;
  std::int64_t stage_time_of_us(std::int64_t local_ms) const noexcept;
  std::optional<std::int64_t> next_timer_ms() const noexcept;
  std::optional<error> refuse_lock() const;
  void run_timers();
  void read();
  void end_turn();
  void tell_news(sim_link& link);
  void finish_closing();

  stage& stage_;
  int number_;
  std::string name_;
  std::int64_t drift_ppm_;
  std::int64_t base_us_;
  sim_link plain_;
  sim_link watched_;
  engine::lock_keeper keeper_;
  engine::waiting_room room_;
  std::vector<callback<result<void>>> closers_;
  std::int64_t stalled_until_us_ = 0;
  std::uint64_t stalls_ = 0;
  int calls_on_stack_ = 0;
  bool turn_wanted_ = false;
  bool closing_ = false;
  bool closed_ = false;
  bool dead_ = false;
};

}  // namespace syncguard::sim
