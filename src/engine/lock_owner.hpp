#pragma once

#include <cstdint>
#include <optional>

#include <syncguard/callback.hpp>
#include <syncguard/lock.hpp>
#include <syncguard/lock_info.hpp>
#include <syncguard/result.hpp>

namespace syncguard::engine {

struct held_lock;

// What a user's lock object calls. Stays as long as there is such an object, though the client may be gone.
class lock_owner {
 public:
  // Zero or less: not valid.
  virtual std::int64_t valid_for_us(const held_lock& held) const noexcept = 0;
  virtual void set_on_lost(held_lock& held, callback<lost> told) = 0;
  virtual void extend(held_lock& held, std::int64_t ttl_ms, callback<result<std::optional<server_time>>> done) = 0;
  virtual void release(held_lock& held, callback<result<bool>> done) = 0;

  // The lock object is gone.
  virtual void let_go(held_lock& held) noexcept = 0;

 protected:
  ~lock_owner() = default;

  lock make_lock(held_lock& held) noexcept { return lock{*this, held}; }
};

}  // namespace syncguard::engine
