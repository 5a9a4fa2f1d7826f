#pragma once

// What the client is measured against: the newest protocol document's algorithm, one EVALSHA per operation, pipelined
// through plain hiredis async and its own libuv adapter over one connection.
//
// It has the client's signatures and delivers the same values, so one set of workloads drives both, and each checks
// keys, makes lock ids, reads records and hashes with the same functions. What differs is how operations travel.

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <uv.h>

#include <syncguard/callback.hpp>
#include <syncguard/lock_info.hpp>
#include <syncguard/result.hpp>

#include "protocol/storage_key.hpp"

struct redisAsyncContext;
struct redisReply;

namespace syncguard::bench {

// Lifetime: the loop must turn once more after the baseline is destroyed. Callbacks of operations that are in flight
//   then never run.
// Reentrancy: a callback may start operations; it must not destroy the baseline.
// Errors: whatever the server or the connection says is Internal, with the words as the cause. There are no time-outs
//   and no second connection.
class baseline {
 public:
  explicit baseline(uv_loop_t* loop);
  ~baseline();

  baseline(const baseline&) = delete;
  baseline& operator=(const baseline&) = delete;

  // Connects and loads the scripts of tests/support/reference, turning the loop until that is done.
  [[nodiscard]] bool connect(const std::string& socket_path);
  const std::string& last_error() const noexcept { return last_error_; }

  void acquire(std::string_view key, std::chrono::milliseconds ttl, callback<result<std::optional<grant>>> done);
  void release(std::string_view id, callback<result<bool>> done);
  void extend(std::string_view id, std::chrono::milliseconds ttl, callback<result<std::optional<server_time>>> done);
  void lookup(std::string_view key, callback<result<std::optional<lock_info>>> done);
  void lookup_by_id(std::string_view id, callback<result<std::optional<lock_info>>> done);

 private:
  using acquired = callback<result<std::optional<grant>>>;
  using released = callback<result<bool>>;
  using extended = callback<result<std::optional<server_time>>>;
  using found = callback<result<std::optional<lock_info>>>;

  // An operation on its way.
  struct pending {
    baseline* owner = nullptr;
    std::optional<lock_id> id;  // of an acquire
    std::variant<std::monostate, acquired, released, extended, found> done;
  };

  enum script : std::size_t {
    acquire_script,
    release_script,
    extend_script,
    lookup_script,
    lookup_key_script,
    scripts
  };

  static void on_loaded(redisAsyncContext* context, void* reply, void* sha1);
  static void on_reply(redisAsyncContext* context, void* reply, void* operation);

  template <class Done>
  void send(script which, std::span<const std::string_view> keys, std::span<const std::string_view> arguments,
            Done done, const std::optional<lock_id>& id = std::nullopt);
  pending* take();
  bool load_scripts();

  uv_loop_t* loop_;
  redisAsyncContext* context_ = nullptr;
  protocol::key_space keys_;
  std::string sha1s_[scripts];
  std::deque<pending> slots_;
  std::vector<pending*> free_;
  bool closing_ = false;
  std::string last_error_;
};

}  // namespace syncguard::bench
