#pragma once

// One connection of hiredis', from its making to its end, with its rules kept in one place:
//   - it may be freed from inside its own callbacks; what is pending then gets null replies, which are dropped here
//   - it frees itself after an error; its owner is told through lost(), at most once
//   - it is never spoken to again after that

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <hiredis.h>

#include <syncguard/error.hpp>

#include "redis/fork_watch.hpp"
#include "redis/reply_arena.hpp"
#include "redis/tls.hpp"

struct redisAsyncContext;

namespace syncguard::redis {

class event_loop;

// What a reply belongs to, as the owner of the connection named it.
struct reply_tag {
  std::uint8_t kind;
  std::uint8_t step;
};

class connection_owner {
 public:
  virtual void connected() = 0;

  // Lifetime: the reply lives until this returns.
  virtual void replied(reply_tag tag, void* subject, const redisReply& reply) = 0;

  // The server says something that nobody asked for (RESP3). The connection may not be destroyed from here: hiredis
  // would not notice before the next reply.
  // Lifetime: as above.
  virtual void pushed(const redisReply& push) = 0;

  // The connection is gone, and must be destroyed before this returns. Where `refused`, trying again soon is no use.
  virtual void lost(error why, bool refused) = 0;

 protected:
  ~connection_owner() = default;
};

// Lifetime: may be destroyed at any time, inside connection_owner's functions, too; nothing is told afterwards.
// Allocates: when it is made; when a reply is larger than every one before it; in hiredis, for each command.
class connection {
 public:
  // Where to: a numeric address and port, or the path of a unix socket.
  struct target {
    std::string address;
    int port = 0;
    std::string path;
  };

  // Errors: told through lost(), later, unless null is returned and `why` is set.
  static std::unique_ptr<connection> open(const target& where, event_loop& loop, tls_context* tls,
                                          connection_owner& owner, std::optional<error>& why);
  ~connection();
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;

  // Queues a command. Where the connection is going down already, it is dropped, and lost() says the rest.
  void send(std::string_view command, reply_tag tag, void* subject = nullptr);

  // Writes what is queued, as far as the socket takes it. May end the connection; not to be called from its callbacks.
  void flush();

  // The same from anywhere: what goes wrong shows at the next flush().
  void flush_early();

  // Handles what has arrived, without waiting.
  void poll();

 private:
  struct life;
  explicit connection(life& alive) noexcept : life_(&alive) {}

  life* life_;
};

}  // namespace syncguard::redis
