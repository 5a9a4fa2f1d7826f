#pragma once

// What the engine knows of the world: a port through which batches leave, the form in which answers come back, and an
// observer that is told of each outcome. In production they are the Redis link and the client; in the simulator, a
// model of Redis and a recorder.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <syncguard/error.hpp>
#include <syncguard/fence.hpp>

#include "engine/operation.hpp"
#include "protocol/record.hpp"

namespace syncguard::engine {

class engine;

// Operations that travel in one command, in order.
struct batch {
  static constexpr std::size_t mutation_max = 32;
  static constexpr std::size_t read_max = 64;

  travel_class kind = travel_class::mutation;
  std::size_t count = 0;
  std::array<operation*, read_max> operations{};
  std::int64_t sent_us = 0;
  batch* next = nullptr;
};

// What the server said of one operation.
enum class verdict : std::uint8_t {
  acquired,    // expires_at_ms, token
  contended,   // expires_at_ms: until when, at most
  corrupt,     // held, but unreadable
  released,    //
  extended,    // expires_at_ms
  not_owner,   // belongs to another lock id
  absent,      //
  expired,     // was there, and had expired
  held,        //
  free,        //
  found,       // record
  unreadable,  // of is_locked and acquire: what is stored cannot be understood; the server must look closer
  failed,      // failure
};

struct outcome {
  verdict what = verdict::failed;
  bool cleanable = false;  // of expired: long enough ago to be deleted by a mere look
  bool demoted = false;    // of failed: the server is not the master any more
  std::int64_t expires_at_ms = 0;
  std::int64_t server_now_ms = 0;  // of mutations: the server's time; 0 where it is not known
  std::optional<fence> token;      // of acquired, and of contended where that was asked for: the holder's
  std::optional<error> failure;
  protocol::decoded_record record;
};

// The answer to a batch. Read one by one, because each reading may take a callback that changes everything.
class batch_answer {
 public:
  // Fills a fresh outcome with what was said of the operation at `index`.
  virtual void read(std::size_t index, const operation& asked, outcome& out) = 0;

 protected:
  ~batch_answer() = default;
};

class port {
 public:
  // Sends a batch. Its answer comes through engine::answered(), engine::script_missing() or, for all of them,
  // engine::link_down(), never inside this call.
  virtual void send(batch& what) = 0;

  // Everything sent so far in this turn may leave now.
  virtual void flush() = 0;

  // Puts the scripts back on the server, ahead of whatever is sent next.
  virtual void load_scripts() = 0;

  // Handles whatever answers have arrived, without waiting.
  virtual void poll() = 0;

  // Ends the connection, because it does not answer or leads to the wrong server. engine::link_down() follows, not
  // inside this call.
  virtual void drop(const error& why) = 0;

  // Asks for a call of engine::end_turn() before the loop goes to sleep.
  virtual void want_turn_end() = 0;

 protected:
  ~port() = default;
};

class observer {
 public:
  // The outcome of an operation is known. Must give the slot back through engine::forget() before it runs the
  // operation's callback; may do anything from there, destroying the engine included.
  virtual void settle(engine& from, operation& over, outcome& what) = 0;

 protected:
  ~observer() = default;
};

}  // namespace syncguard::engine
