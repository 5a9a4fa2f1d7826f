#include <syncguard/client.hpp>

#include <array>
#include <utility>

#include "client_body.hpp"

namespace syncguard {

using engine::operation_kind;

std::string_view to_string(connection_state state) noexcept {
  static constexpr std::array<std::string_view, 4> names{"connecting", "ready", "refused", "closed"};
  const auto index = static_cast<std::size_t>(state);
  return index < names.size() ? names[index] : "unknown";
}

client::client(loop where, client_options options) : body_(new body{std::move(where), std::move(options)}) {}

client::~client() {
  if (body_ != nullptr) body_->abandon();
}

client::client(client&& other) noexcept : body_(std::exchange(other.body_, nullptr)) {}

client& client::operator=(client&& other) noexcept {
  if (this != &other) {
    if (body_ != nullptr) body_->abandon();
    body_ = std::exchange(other.body_, nullptr);
  }
  return *this;
}

result<void> client::check() const {
  if (body_->refusal()) return *body_->refusal();
  return {};
}

operation_handle client::lock(std::string_view key, const lock_options& options,
                              callback<result<syncguard::lock>> done) {
  return body_->start_lock(key, options, std::move(done));
}

operation_handle client::acquire(std::string_view key, std::chrono::milliseconds ttl,
                                 callback<result<std::optional<grant>>> done) {
  return body_->start_by_key(operation_kind::acquire, key, ttl.count(), std::move(done));
}

operation_handle client::release(std::string_view lock_id, callback<result<bool>> done) {
  return body_->start_by_id(operation_kind::release, lock_id, 0, std::move(done));
}

operation_handle client::extend(std::string_view lock_id, std::chrono::milliseconds ttl,
                                callback<result<std::optional<server_time>>> done) {
  return body_->start_by_id(operation_kind::extend, lock_id, ttl.count(), std::move(done));
}

operation_handle client::is_locked(std::string_view key, callback<result<bool>> done) {
  return body_->start_by_key(operation_kind::is_locked, key, 0, std::move(done));
}

operation_handle client::lookup(std::string_view key, callback<result<std::optional<lock_info>>> done) {
  return body_->start_by_key(operation_kind::lookup_key, key, 0, std::move(done));
}

operation_handle client::lookup_by_id(std::string_view lock_id, callback<result<std::optional<lock_info>>> done) {
  return body_->start_by_id(operation_kind::lookup_id, lock_id, 0, std::move(done));
}

operation_handle client::lookup_raw(std::string_view key, callback<result<std::optional<raw_lock_info>>> done) {
  return body_->start_by_key(operation_kind::lookup_key, key, 0, std::move(done));
}

operation_handle client::lookup_raw_by_id(std::string_view lock_id,
                                          callback<result<std::optional<raw_lock_info>>> done) {
  return body_->start_by_id(operation_kind::lookup_id, lock_id, 0, std::move(done));
}

operation_handle client::owns(std::string_view lock_id, callback<result<bool>> done) {
  return body_->start_by_id(operation_kind::lookup_id, lock_id, 0, std::move(done));
}

bool client::cancel(operation_handle which) { return body_->cancel(which); }

void client::close(callback<result<void>> done) { body_->close(std::move(done)); }

connection_state client::state() const noexcept { return body_->state(); }

client_stats client::stats() const noexcept { return body_->stats(); }

}  // namespace syncguard
