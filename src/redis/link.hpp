#pragma once

// The way to the server: resolves its name, connects, introduces itself, and starts again whenever that ends, for ever,
// at a pace that slows down. While it is up it carries the engine's batches.
//
// A watching link is for mutations alone. It asks the server to tell when a lock changes that was read or written by a
// batch on it (RESP3, CLIENT TRACKING); a server that will not do that refuses the link.
//
//   waiting -> resolving -> connecting -> introducing -> up
//      ^___________|_____________|_____________|_________|   (lost; refused ones wait longest)

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <syncguard/client.hpp>
#include <syncguard/error.hpp>

#include "engine/port.hpp"
#include "protocol/storage_key.hpp"
#include "redis/connection.hpp"
#include "redis/event_loop.hpp"
#include "redis/resp_writer.hpp"
#include "redis/tls.hpp"
#include "redis/url.hpp"

namespace syncguard::redis {

struct link_options {
  endpoint where;
  std::shared_ptr<tls_context> tls;  // where the endpoint asks for it; links share it
  std::string client_name;
  std::int64_t connect_timeout_ms = 5000;
  std::int64_t reconnect_min_ms = 50;
  std::int64_t reconnect_max_ms = 5000;
  bool watch = false;
};

class link_owner {
 public:
  // Called from link::end_turn() or link::run_timer(); may destroy the link.
  virtual void link_up() = 0;
  virtual void link_lost(const error& why, bool refused) = 0;

  // The server may evict keys; `policy` is what it calls that. May not destroy the link.
  virtual void unsafe_policy(std::string_view policy) = 0;

  // Answers to batches; may destroy the link.
  virtual void batch_answered(engine::batch& which, engine::batch_answer& answer) = 0;
  virtual void batch_without_script(engine::batch& which) = 0;

  // Of a watching link: something was done to a key that it watched, by somebody else or by the end of its time, and it
  // is not watched any more. Told once for each key, which is a storage key; besides those of locks there may be
  // others, and the news may be older than the answer before it. All: the data is gone. May neither destroy the link
  // nor run what might.
  virtual void invalidated(std::string_view lock_key) = 0;
  virtual void invalidated_all() = 0;

 protected:
  ~link_owner() = default;
};

// Ownership: loop, keys and owner outlive it.
// Lifetime: may be destroyed inside any function of its owner that says so.
// Allocates: while connecting; sending as resp_writer and hiredis do.
class link final : public engine::port, connection_owner {
 public:
  link(link_options options, const protocol::key_space& keys, event_loop& loop, link_owner& owner);
  ~link();
  link(const link&) = delete;
  link& operator=(const link&) = delete;

  void start();

  // Disconnects, and stays so.
  void stop();

  // Not started, or stopped.
  bool idle() const noexcept { return phase_ == phase::idle; }

  // Tells what has happened in this turn: that the link is up, or lost.
  void end_turn();

  // What is to be done by now: another attempt, or giving up the present one.
  void run_timer(std::int64_t now_ms);
  std::optional<std::int64_t> next_wake_ms() const noexcept { return lost_ ? std::nullopt : deadline_ms_; }

  void resolved(std::vector<std::string> addresses, std::string_view why);

  // engine::port
  void send(engine::batch& what) override;
  void flush() override;
  void load_scripts() override;
  void poll() override;
  void drop(const error& why) override;
  void want_turn_end() override { loop_.want_turn_end(); }

 private:
  enum class phase : std::uint8_t { idle, waiting, resolving, connecting, introducing, up };
  enum class step : std::uint8_t {
    auth,
    hello,
    select,
    name,
    script,
    role,
    policy,
    tracking,
    caching,
    self_test,
    time,
    recheck,
    reload,
  };

  void connected() override;
  void replied(reply_tag tag, void* subject, const redisReply& reply) override;
  void pushed(const redisReply& push) override;
  void lost(error why, bool refused) override;

  void connect();
  void open(const std::string& address);
  void introduce();
  void send_step(step which);
  void introduction_replied(step which, const redisReply& reply);
  void introduction_failed(step which, std::string_view text);
  void check_role(const redisReply& reply);
  void batch_replied(engine::batch& which, const redisReply& reply);
  void fail(error why, bool refused);
  void wait_before_next_attempt(bool refused);
  void ask_for_role();

  link_options options_;
  const protocol::key_space& keys_;
  event_loop& loop_;
  link_owner& owner_;
  std::unique_ptr<connection> connection_;
  resp_writer writer_;

  phase phase_ = phase::idle;
  bool came_up_ = false;
  bool unsent_ = false;
  bool time_asked_ = false;
  std::optional<error> lost_;
  bool lost_refused_ = false;
  std::optional<std::int64_t> deadline_ms_;
  unsigned attempts_ = 0;
  std::size_t next_address_ = 0;
  std::int64_t server_now_ms_ = 0;
  std::int64_t role_asked_us_ = 0;
};

}  // namespace syncguard::redis
