#pragma once

// What is behind a client: it ties the loop, the links and the engines together, checks what callers hand in, and turns
// outcomes into results.
//
// There are two lanes, each an engine with a link of its own. The plain one carries what callers start. The watched one
// is made with the first lock(); it carries attempts and heartbeats, and is told of changes by others.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <syncguard/client.hpp>

#include "engine/engine.hpp"
#include "engine/held_lock.hpp"
#include "engine/lock_keeper.hpp"
#include "engine/lock_owner.hpp"
#include "engine/surroundings.hpp"
#include "engine/waiting_room.hpp"
#include "lock_id_source.hpp"
#include "protocol/storage_key.hpp"
#include "redis/event_loop.hpp"
#include "redis/link.hpp"
#include "reporter.hpp"

namespace syncguard {

// Lifetime: deletes itself when neither its client nor a lock nor any call on the stack needs it any more, so that a
//   callback may destroy the client.
class client::body final : public redis::loop_sink,
                           public engine::observer,
                           public engine::surroundings,
                           public engine::lock_owner {
 public:
  body(loop where, client_options options);
  body(const body&) = delete;
  body& operator=(const body&) = delete;

  // The client is gone: everything ends now, and nothing is told any more.
  void abandon() noexcept;

  const std::optional<error>& refusal() const noexcept { return refusal_; }

  operation_handle start_by_key(engine::operation_kind kind, std::string_view key, std::int64_t ttl_ms,
                                engine::completion&& done);
  operation_handle start_by_id(engine::operation_kind kind, std::string_view id, std::int64_t ttl_ms,
                               engine::completion&& done);
  operation_handle start_lock(std::string_view key, const lock_options& options,
                              callback<result<syncguard::lock>>&& done);
  bool cancel(operation_handle which);
  void close(callback<result<void>> done);

  connection_state state() const noexcept { return state_; }
  client_stats stats() const noexcept;

 private:
  class frame;
  struct lane;

  ~body();

  // redis::loop_sink
  void on_turn_end() override;
  void on_timer() override;
  void on_resolved(std::vector<std::string> addresses, std::string_view why) override;

  // engine::observer
  void settle(engine::engine& from, engine::operation& over, engine::outcome& what) override;

  // engine::surroundings
  lock_id fresh_id() override { return ids_.next(); }
  void want_watching() override;
  void want_turn_end() override { loop_->want_turn_end(); }
  syncguard::lock wrap(engine::held_lock& held) override;
  engine::completion release_observer() override;

  // engine::lock_owner
  std::int64_t valid_for_us(const engine::held_lock& held) const noexcept override;
  void set_on_lost(engine::held_lock& held, callback<lost> told) override;
  void extend(engine::held_lock& held, std::int64_t ttl_ms, callback<result<std::optional<server_time>>> done) override;
  void release(engine::held_lock& held, callback<result<bool>> done) override;
  void let_go(engine::held_lock& held) noexcept override;

  // Of the lanes.
  void lane_up(const lane& which);
  void lane_lost(const lane& which, const error& why, bool refused);
  void lane_answered(const lane& which, engine::batch& answered, engine::batch_answer& answer);
  void lane_invalidated(std::string_view lock_key);
  void lane_invalidated_all();

  void open_lanes();
  std::uint64_t place_of(std::string_view lock_key) const noexcept;
  std::optional<error> refuse_lock(const lock_options& options) const;
  bool forked() const noexcept;
  std::int64_t now_us() const noexcept;
  operation_handle start(engine::engine::request what, engine::completion&& done, std::optional<error> refused);
  void sync_timer();
  void change_state(connection_state next, const error* cause);
  void finish_closing(const frame& on_stack);

  client_options options_;
  std::optional<error> refusal_;  // the options were bad
  std::optional<protocol::key_space> keys_;
  reporter reporter_;
  lock_id_source ids_;
  std::unique_ptr<redis::event_loop> loop_;
  std::unique_ptr<lane> plain_;
  std::unique_ptr<lane> watched_;
  std::unique_ptr<engine::lock_keeper> keeper_;
  std::unique_ptr<engine::waiting_room> room_;
  std::array<std::uint8_t, 16> place_secret_;  // so that nobody can choose keys that share a place

  connection_state state_ = connection_state::connecting;
  std::optional<std::int64_t> armed_ms_;
  std::vector<callback<result<void>>> closers_;
  bool closing_ = false;
  std::uint32_t forks_;
  int users_ = 1;
  std::int64_t entered_us_ = 0;  // when the loop last called, while that call lasts; else 0
  std::int64_t entered_tick_ = 0;
  bool dead_ = false;
};

}  // namespace syncguard
