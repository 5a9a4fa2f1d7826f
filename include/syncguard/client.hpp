#pragma once

// The lock client. lock() gives a lock that is kept alive, and waits for it; acquire, release, extend, is_locked,
// lookup and owns are the single steps, for those who drive a lock themselves.
//
// All operations that are started in one turn of the loop travel together; a single one goes out at once. Mutations
// apply in the order in which they were started, and a read sees every mutation that was started before it. It may see
// later ones of the same turn, too: within a turn, mutations go first.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <syncguard/callback.hpp>
#include <syncguard/export.hpp>
#include <syncguard/lock.hpp>
#include <syncguard/lock_info.hpp>
#include <syncguard/loop.hpp>
#include <syncguard/result.hpp>
#include <syncguard/stats.hpp>
#include <syncguard/telemetry.hpp>

namespace syncguard {

enum class connection_state : std::uint8_t {
  connecting,  // being made or made again; operations wait for it, as long as their time-outs last
  ready,
  refused,  // the server does not want us: wrong credentials, missing rights, no such database. Operations fail at
            // once with that error; the connection is tried again at the slowest pace
  closed,   // by close()
};

SYNCGUARD_API std::string_view to_string(connection_state state) noexcept;

struct tls_options {
  std::string ca_file{};           // certificates to trust; empty: the system's
  std::string certificate_file{};  // the client's own, with private_key_file
  std::string private_key_file{};
  std::string server_name{};  // the name to expect in the server's certificate; empty: the host of the URL
};

struct client_options {
  // redis://[user[:password]@]host[:port][/db], rediss:// for TLS, unix:///path[?db=N]. Parts are percent-encoded.
  std::string url = "redis://127.0.0.1:6379";

  // What stands in front of every key.
  std::string prefix = "syncguard";

  // The name that CLIENT LIST shows.
  std::string client_name = "syncguard";

  // How long an operation may take, waiting for a connection included.
  std::chrono::milliseconds timeout{5000};

  // How long making a connection may take, name resolution and TLS included.
  std::chrono::milliseconds connect_timeout{5000};

  // Pauses between attempts to connect: doubled from the first to the last, each with equal jitter.
  std::chrono::milliseconds reconnect_min{50};
  std::chrono::milliseconds reconnect_max{5000};

  // Operations started and not completed, and calls of lock() that wait, at most; one more fails with RateLimited.
  std::size_t max_pending = 100'000;

  // How long giving back a lock that was destroyed may take; then its time to live has to end it.
  std::chrono::milliseconds release_timeout{5000};

  // Up to so many held locks are watched: when somebody deletes or overwrites the record of one, the server says so at
  // once. Of more than that, the next heartbeat finds out. Watching costs the server memory for each key.
  std::size_t watch_max = 10'000;

  // Told when a lock that was destroyed could not be given back; the error has its key and its lock id. May do
  // anything, destroying the client included.
  std::function<void(const error& why)> on_release_error{};

  // Whether is_locked() may delete a record that expired more than two seconds ago.
  bool cleanup_in_is_locked = false;

  tls_options tls{};

  telemetry_sink telemetry{};          // none: costs one branch
  bool telemetry_include_raw = false;  // whether events carry keys and lock ids in the clear

  // Told of every change of the connection's state, with the error that caused it where there is one. May do anything,
  // destroying the client included.
  std::function<void(connection_state state, const error* cause)> on_connection{};
};

// Names an operation that was started. Using one that is over is harmless.
struct operation_handle {
  std::uint32_t slot = 0xffffffff;
  std::uint32_t generation = 0;

  // Whether it names any operation, be it over or not.
  explicit operator bool() const noexcept { return slot != 0xffffffff; }
};

// Ownership: the client owns its connection; the loop stays the caller's.
// Lifetime: see loop. Destroying a client with operations in flight is legal: their callbacks never run, and locks
//   that they may have acquired expire by themselves. So do locks that are held then; close() gives them back.
// Thread: the loop's.
// Reentrancy: no callback runs inside the call that started its operation. Each operation completes exactly once, or
//   never if the client is destroyed first. Inside any callback the caller may start, cancel, close, or destroy the
//   client itself.
// Errors: every operation's callback may get
//     InvalidArgument     the key, lock id or time to live was refused, before any I/O; or a key of Redis has a type
//                         that is not a lock's
//     ServiceUnavailable  the server cannot be reached or cannot serve; retryable
//     NetworkTimeout      no answer in time; where outcome_unknown() says so, it may have taken effect: an acquired
//                         lock is then released in the background
//     RateLimited         too many operations pending, or the server is out of memory
//     AuthFailed          credentials or rights
//     Aborted             cancelled, or the client was closed
//     Internal            unreadable data without a time to live at the lock's key, an exhausted fence counter, an
//                         answer that makes no sense
//   A callback must not throw: what it throws ends the program.
// Allocates: nothing per operation once as many operations as usual have been in flight and keys as long as usual have
//   been used; hiredis does, a few times per turn.
// Fork: in a child process every operation fails, and nothing is written to the parent's connection. A child must not
//   run the parent's loop.
// Signals: writing to a connection that the server has closed raises SIGPIPE; the program must ignore it, as servers
// do.
class SYNCGUARD_API client {
 public:
  // Starts connecting at once.
  //
  // Errors: bad options do not throw; every operation then fails with the error that check() tells.
  client(loop where, client_options options);
  ~client();
  client(client&&) noexcept;
  client& operator=(client&&) noexcept;
  client(const client&) = delete;
  client& operator=(const client&) = delete;

  // Whether the options were accepted.
  result<void> check() const;

  // Takes a lock and keeps it: waits in the order of arrival while somebody else holds it, extends it by itself, says
  // when it is lost. See <syncguard/lock.hpp>.
  //
  // Waiting does not poll: a second connection, made with the first lock(), is told by the server when the lock's
  // record changes. It needs the rights to CLIENT TRACKING, CLIENT CACHING and HELLO, and Redis 6; where they are
  // missing, attempts are repeated with growing pauses.
  //
  // Errors: as above, and AcquisitionTimeout when it was held by others for all of `wait`; its cause says how long that
  //   was and how many attempts were made. An attempt that fails in a way that may pass is repeated until `wait` is
  //   over.
  operation_handle lock(std::string_view key, const lock_options& options, callback<result<syncguard::lock>> done);

  // One attempt, without waiting and without heartbeats. Nothing in the optional means that somebody else holds it.
  operation_handle acquire(std::string_view key, std::chrono::milliseconds ttl,
                           callback<result<std::optional<grant>>> done);

  // True: released. False: it was not held under this id any more.
  operation_handle release(std::string_view lock_id, callback<result<bool>> done);

  // Replaces the time to live. Nothing in the optional means that it was not held under this id any more; an expired
  // lock is never brought back.
  operation_handle extend(std::string_view lock_id, std::chrono::milliseconds ttl,
                          callback<result<std::optional<server_time>>> done);

  operation_handle is_locked(std::string_view key, callback<result<bool>> done);

  // Nothing in the optional for absent and for expired locks.
  operation_handle lookup(std::string_view key, callback<result<std::optional<lock_info>>> done);
  operation_handle lookup_by_id(std::string_view lock_id, callback<result<std::optional<lock_info>>> done);
  operation_handle lookup_raw(std::string_view key, callback<result<std::optional<raw_lock_info>>> done);
  operation_handle lookup_raw_by_id(std::string_view lock_id, callback<result<std::optional<raw_lock_info>>> done);

  // Whether a live lock is held under this id.
  operation_handle owns(std::string_view lock_id, callback<result<bool>> done);

  // Completes an operation, lock() included, with Aborted and nothing else, later in this turn. One that was sent
  // already may still take effect: its error says outcome_unknown(), and a lock that it acquires is released in the
  // background.
  //
  // Returns: whether there was anything to cancel.
  bool cancel(operation_handle which);

  // Refuses new operations, lets those that were started complete, then disconnects and calls back. Calls of lock()
  // that wait end with Aborted. Locks that are still held are lost: on_lost is told, then they are given back.
  void close(callback<result<void>> done);

  connection_state state() const noexcept;
  client_stats stats() const noexcept;

 private:
  class SYNCGUARD_LOCAL body;
  body* body_;
};

}  // namespace syncguard
