#pragma once

// What is behind a client: it ties the loop, the link and the engine together, checks what callers hand in, and turns
// outcomes into results.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <syncguard/client.hpp>

#include "engine/engine.hpp"
#include "lock_id_source.hpp"
#include "protocol/storage_key.hpp"
#include "redis/event_loop.hpp"
#include "redis/link.hpp"
#include "reporter.hpp"

namespace syncguard {

// Lifetime: deletes itself when neither its client nor any call on the stack needs it any more, so that a callback may
//   destroy the client.
class client::body final : public redis::loop_sink, public redis::link_owner, public engine::observer {
 public:
  body(loop where, client_options options);

  // The client is gone: everything ends now, and nothing is told any more.
  void abandon() noexcept;

  const std::optional<error>& refusal() const noexcept { return refusal_; }

  operation_handle start_by_key(engine::operation_kind kind, std::string_view key, std::int64_t ttl_ms,
                                engine::completion&& done);
  operation_handle start_by_id(engine::operation_kind kind, std::string_view id, std::int64_t ttl_ms,
                               engine::completion&& done);
  bool cancel(operation_handle which);
  void close(callback<result<void>> done);

  connection_state state() const noexcept { return state_; }
  client_stats stats() const noexcept;

 private:
  class frame;

  ~body() = default;

  // redis::loop_sink
  void on_turn_end() override;
  void on_timer() override;
  void on_resolved(std::vector<std::string> addresses, std::string_view why) override;

  // redis::link_owner
  void link_up() override;
  void link_lost(const error& why, bool refused) override;
  void unsafe_policy(std::string_view policy) override { reporter_.unsafe_policy(policy); }
  void batch_answered(engine::batch& which, engine::batch_answer& answer) override;
  void batch_without_script(engine::batch& which) override;

  // engine::observer
  void settle(engine::operation& over, engine::outcome& what) override;

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
  std::unique_ptr<redis::link> link_;
  std::unique_ptr<engine::engine> engine_;

  connection_state state_ = connection_state::connecting;
  std::optional<std::int64_t> armed_ms_;
  std::vector<callback<result<void>>> closers_;
  bool closing_ = false;
  std::uint32_t forks_;
  int users_ = 1;
  std::int64_t entered_us_ = 0;  // when the loop last called, while that call lasts; else 0
  bool dead_ = false;
};

}  // namespace syncguard
