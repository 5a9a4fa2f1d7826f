#pragma once

// Somebody who uses a client in every way that is allowed, by chance, from outside and from inside of callbacks, and
// who watches whether it keeps its promises.

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include <syncguard/client.hpp>
#include <syncguard/lock.hpp>

#include "sim/sim_client.hpp"
#include "sim/stage.hpp"

namespace syncguard::sim {

std::string describe_failure(const error& why);

// Lifetime: ends before its client.
class user {
 public:
  user(stage& on, sim_client& of);
  ~user() = default;
  user(const user&) = delete;
  user& operator=(const user&) = delete;

  // One thing, whatever comes to mind.
  void act();

  // Gives back what it has, except for some grants that it forgets.
  void let_go_of_everything();

  // Asks for a key, and remembers whether it got it.
  void try_key(std::size_t key);
  bool got_every_try() const noexcept { return tries_ == tries_granted_; }

  // Whatever can be seen now must be as it was promised. Where the client has had its turn, losses have been told, too.
  void check(bool had_its_turn);

  // All calls must be over.
  void check_finished();

  // Whether it may still hold what is stored under this id, or cannot know.
  bool answers_for(const lock_id& id) const;

  // The server has granted a lock to somebody else.
  void other_was_granted(std::size_t key, const lock_id& to);

  void release_failed(std::string_view id);

 private:
  enum class kind : std::uint8_t {
    acquire,
    release,
    extend,
    is_locked,
    look_up,
    lock,
    lock_extend,
    lock_release,
    close
  };

  // Something that was asked for, and must be answered once.
  struct request {
    kind what = kind::acquire;
    bool done = false;
    operation_handle handle{};
    std::size_t key = 0;
    std::size_t subject = 0;  // the grant or the lock that it is about
    std::optional<lock_id> id{};
    std::int64_t ttl_ms = 0;
    std::int64_t margin_ms = 0;
    std::int64_t started_us = 0;
    std::uint64_t stalls = 0;
    bool is_try = false;
  };

  // A lock that was acquired by hand.
  struct grant_kept {
    lock_id id;
    std::size_t key;
    std::int64_t ttl_ms;
    std::int64_t until_us;  // by our clock: no longer than this it is certain
    bool released = false;
    bool extending = false;
    bool gone = false;  // the server said so
  };

  struct lock_kept {
    syncguard::lock object;
    lock_id id;
    std::size_t key;
    std::int64_t ttl_ms;
    std::int64_t margin_ms;
    bool has_on_lost = false;
    bool told = false;      // that it is lost
    bool released = false;  // or destroyed
    bool was_over = false;  // by then: where nobody had asked to be told, that can still be told later
    std::optional<std::int64_t> over_since_us{};
    std::uint64_t stalls = 0;  // when it was last valid
  };

  void start_lock();
  void start_acquire(std::size_t key, std::int64_t ttl_ms, bool is_try);
  void start_release();
  void start_extend();
  void start_read();
  void start_look_up(std::size_t about);
  void cancel_something();
  void use_lock();
  void extend_lock(std::size_t index);
  void release_lock(std::size_t index);
  void drop_lock(std::size_t index);
  void watch_loss(std::size_t index);
  void end_client();

  std::size_t begin(request what);
  bool answered(std::size_t index);
  void acquired(std::size_t index, const result<std::optional<grant>>& got);
  void released(std::size_t index, const result<bool>& done);
  void extended(std::size_t index, const result<std::optional<server_time>>& done);
  void locked(std::size_t index, result<syncguard::lock>& got);
  void lock_lost(std::size_t index, lost why);
  void act_inside();

  void check_lock(lock_kept& each, bool had_its_turn);
  void check_grant(const grant_kept& each);
  void check_untouched(const std::optional<lock_id>& id, const error& why);
  std::int64_t drift_us(std::int64_t ttl_ms) const noexcept;
  std::int64_t random_ttl_ms();
  std::string key_name(std::size_t key) { return stage_.books.key(key).name; }
  void note(std::string_view what) { stage_.note(client_.name(), what); }
  void violate(std::string what) { stage_.violate(client_.name(), std::move(what)); }
  bool notes_on() const noexcept { return stage_.notes.on(); }

  stage& stage_;
  sim_client& client_;
  std::deque<request> requests_;
  std::deque<grant_kept> grants_;
  std::deque<lock_kept> locks_;
  int depth_ = 0;
  std::size_t tries_ = 0;
  std::size_t tries_granted_ = 0;
};

}  // namespace syncguard::sim
