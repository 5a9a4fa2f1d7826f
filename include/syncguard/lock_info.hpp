#pragma once

#include <chrono>
#include <cstddef>
#include <cstring>
#include <string_view>

#include <syncguard/fence.hpp>
#include <syncguard/key_hash.hpp>
#include <syncguard/lock_id.hpp>

namespace syncguard {

// A point in time by the Redis server's clock. Not comparable with the clocks of this machine.
using server_time = std::chrono::sys_time<std::chrono::milliseconds>;

// A lock that was just acquired.
struct grant {
  lock_id id;
  syncguard::fence fence;
  server_time expires_at;
};

// What a lookup tells about a lock without giving away who could release it.
struct lock_info {
  syncguard::key_hash key_hash;
  syncguard::key_hash lock_id_hash;
  server_time expires_at;
  server_time acquired_at;
  syncguard::fence fence;
};

// The same with the key and the lock id in the clear. Whoever has the lock id can release the lock: keep it out of
// logs.
//
// Ownership: a value of about 650 bytes.
// Allocates: never.
class raw_lock_info {
 public:
  raw_lock_info(const lock_info& info, const lock_id& id, std::string_view key) noexcept : info_(info), id_(id) {
    key_bytes_ = key.size() < sizeof key_ ? key.size() : sizeof key_;
    if (key_bytes_ > 0) std::memcpy(key_, key.data(), key_bytes_);
  }

  const lock_info& info() const noexcept { return info_; }
  const lock_id& id() const noexcept { return id_; }
  std::string_view key() const noexcept { return {key_, key_bytes_}; }

 private:
  lock_info info_;
  lock_id id_;
  std::size_t key_bytes_;
  char key_[512];
};

}  // namespace syncguard
