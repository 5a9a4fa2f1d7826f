#pragma once

// A lock that is held: it stays alive by itself, and says when it is gone.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include <syncguard/callback.hpp>
#include <syncguard/export.hpp>
#include <syncguard/fence.hpp>
#include <syncguard/lock_id.hpp>
#include <syncguard/lock_info.hpp>
#include <syncguard/result.hpp>

namespace syncguard {

namespace engine {
struct held_lock;
class lock_owner;
}  // namespace engine

// Why a lock is gone. New reasons are only ever appended.
enum class lost : std::uint8_t {
  unconfirmed,  // its validity ended before the server could be heard: a dead connection, a stopped server or loop
  vanished,     // the server has no record of it any more: deleted by somebody, flushed, lost in a failover
  expired,      // the server says that its time to live is over
  taken,        // the server says that it belongs to somebody else
  closed,       // the client was closed
};

SYNCGUARD_API std::string_view to_string(lost why) noexcept;

struct lock_options {
  // How long the lock lives on the server without a heartbeat: how long others have to wait after a crash. At least
  // 10 ms, at most 100 days.
  std::chrono::milliseconds ttl{30'000};

  // How long to wait while somebody else holds it: 100 days at most, which is as good as for ever. However short, one
  // attempt is made, which may take as long as client_options::timeout.
  std::chrono::milliseconds wait{5'000};

  // Whether the client extends the lock by itself, about a third of the time to live after each success. Without it
  // the lock is valid until its time to live ends, or as long as extend() is called.
  bool heartbeat = true;

  // How much before the end of its life on the server the lock counts as lost. It pays for clocks that do not run at
  // the same speed, and for the time that on_lost needs. One day at most. Nothing: a tenth of the time to live, one
  // second at most.
  std::optional<std::chrono::milliseconds> margin{};
};

// A lock that this process holds. Comes from client::lock().
//
// Validity is local and conservative: it counts from before the request that last confirmed the lock was sent, and ends
// a margin before the server lets anybody else have it. It goes on while the machine is suspended.
//
// Ownership: move-only. Its end releases the lock, best effort: a failure goes to client_options::on_release_error, and
//   the time to live does the rest.
// Lifetime: may outlive its client; it is then not valid, and its functions do nothing.
// Thread: the loop's.
// Reentrancy: as the client's. Inside on_lost and every other callback the lock may be moved, released or destroyed.
// Fork: not valid in a child process, whose copies release nothing.
// Allocates: never.
class SYNCGUARD_API lock {
 public:
  // An empty one, as after a move: not valid, with no key.
  lock() noexcept = default;
  lock(lock&& other) noexcept;
  lock& operator=(lock&& other) noexcept;
  lock(const lock&) = delete;
  lock& operator=(const lock&) = delete;
  ~lock();

  // Whether it is not empty. A lost or released lock is not empty: it can still be asked what it was.
  explicit operator bool() const noexcept { return held_ != nullptr; }

  // Whether the lock is certainly held now. Reads the clock, so it is true to the moment however late timers are: ask
  // before each step that needs the lock. Where the loop may stand still between asking and acting, the fence protects.
  bool valid() const noexcept;

  // Until when valid() is true if nothing else happens; zero or less: it is not.
  std::chrono::microseconds valid_for() const noexcept;

  // Requires, for these: not empty.
  std::string_view key() const noexcept;
  const lock_id& id() const noexcept;
  syncguard::fence fence() const noexcept;

  // When its time to live ends, as the server last confirmed.
  server_time expires_at() const noexcept;

  // What to do when the lock is gone. Called exactly once unless the lock is released or destroyed first, and while the
  // loop is responsive before anybody else can hold it. The exception is a record that somebody deletes or overwrites
  // by hand: the server tells this process and those who wait at the same moment, and any of them may be the first.
  // Replaces what was set before. Where the lock is gone already, it is called later in this turn or in the next.
  void on_lost(callback<lost> told);

  // Extends by hand, and changes the time to live from here on. Nothing in the optional: the lock was gone, and on_lost
  // is told, too.
  //
  // Errors: as client::extend(); Aborted where the lock was over before.
  void extend(std::chrono::milliseconds ttl, callback<result<std::optional<server_time>>> done);

  // Gives the lock back. It is not valid from here on, and on_lost is not told any more. True: released. False: it was
  // gone already.
  //
  // Errors: as client::release(); Aborted where the lock was over before.
  void release(callback<result<bool>> done);

 private:
  friend class engine::lock_owner;

  lock(engine::lock_owner& owner, engine::held_lock& held) noexcept : owner_(&owner), held_(&held) {}

  engine::lock_owner* owner_ = nullptr;
  engine::held_lock* held_ = nullptr;
};

}  // namespace syncguard
