#pragma once

// Parts of the library that start operations of their own: heartbeats of held locks, attempts of those who wait.

#include <cstdint>
#include <optional>

#include <syncguard/lock_id.hpp>

namespace syncguard::engine {

struct outcome;

// What is left to say of an operation when its slot has been given back.
struct ended_operation {
  std::uint32_t slot;        // as the patron named it
  std::uint32_t generation;  //
  std::optional<lock_id> id;
  std::int64_t ttl_ms;
  std::int64_t first_sent_us;  // 0: it was never sent
  std::int64_t last_sent_us;
  bool by_hand;  // a caller waits for it, too, and is told afterwards
};

class patron {
 public:
  // An operation that this patron started is over. May run callbacks.
  virtual void over(const ended_operation& which, const outcome& what, std::int64_t now_us) = 0;

 protected:
  ~patron() = default;
};

// Whom an operation belongs to, and what it is called there.
struct patron_name {
  patron* who = nullptr;
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
};

}  // namespace syncguard::engine
