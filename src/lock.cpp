#include <syncguard/lock.hpp>

#include <array>
#include <utility>

#include "engine/held_lock.hpp"
#include "engine/lock_owner.hpp"

namespace syncguard {

std::string_view to_string(lost why) noexcept {
  static constexpr std::array<std::string_view, 5> names{"unconfirmed", "vanished", "expired", "taken", "closed"};
  const auto index = static_cast<std::size_t>(why);
  return index < names.size() ? names[index] : "unknown";
}

lock::lock(lock&& other) noexcept
    : owner_(std::exchange(other.owner_, nullptr)), held_(std::exchange(other.held_, nullptr)) {}

lock& lock::operator=(lock&& other) noexcept {
  if (this == &other) return *this;
  // The old one goes last: its end may lead back here.
  lock old{std::move(*this)};
  owner_ = std::exchange(other.owner_, nullptr);
  held_ = std::exchange(other.held_, nullptr);
  return *this;
}

lock::~lock() {
  if (held_ != nullptr) owner_->let_go(*held_);
}

bool lock::valid() const noexcept { return held_ != nullptr && owner_->valid_for_us(*held_) > 0; }

std::chrono::microseconds lock::valid_for() const noexcept {
  return std::chrono::microseconds{held_ != nullptr ? owner_->valid_for_us(*held_) : 0};
}

std::string_view lock::key() const noexcept { return held_ != nullptr ? held_->key() : std::string_view{}; }

const lock_id& lock::id() const noexcept { return *held_->id; }

syncguard::fence lock::fence() const noexcept { return held_->token; }

server_time lock::expires_at() const noexcept { return server_time{std::chrono::milliseconds{held_->expires_at_ms}}; }

void lock::on_lost(callback<lost> told) {
  if (held_ != nullptr) owner_->set_on_lost(*held_, std::move(told));
}

void lock::extend(std::chrono::milliseconds ttl, callback<result<std::optional<server_time>>> done) {
  if (held_ != nullptr) owner_->extend(*held_, ttl.count(), std::move(done));
}

void lock::release(callback<result<bool>> done) {
  if (held_ != nullptr) owner_->release(*held_, std::move(done));
}

}  // namespace syncguard
