#pragma once

// Batches as Redis commands, and their replies as outcomes. See lua/mutate.lua and lua/lookup.lua for the other end.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <syncguard/error.hpp>

#include "engine/port.hpp"
#include "protocol/storage_key.hpp"
#include "redis/resp_writer.hpp"

struct redisReply;

namespace syncguard::redis {

// An error that Redis answered with, as the caller is to see it.
error error_from_reply(std::string_view text) noexcept;

// Watched mutations make the server tell when their locks change, where that was asked for: see lua/mutate.lua. An
// extend is watched if its operation knows the user key.
//
// Allocates: as resp_writer.
void write_batch(const engine::batch& what, const protocol::key_space& keys, resp_writer& out, bool watched = false);

// The batch of one that asks whether the user has the rights that locks need, and what came back. Nothing: all there.
void write_self_test(const protocol::key_space& keys, resp_writer& out);
std::optional<error> read_self_test(const redisReply& reply) noexcept;

// The reply to a batch.
//
// Lifetime: reads from the reply, which must outlive it.
// Errors: a reply that makes no sense fails each operation with Internal.
class reply_reader final : public engine::batch_answer {
 public:
  // `server_now_ms` is when the server began with key reads; the other replies bring their own time.
  reply_reader(const engine::batch& asked, const redisReply& reply, std::int64_t server_now_ms) noexcept;

  void read(std::size_t index, const engine::operation& asked, engine::outcome& out) override;

 private:
  void read_status(const engine::operation& asked, engine::outcome& out) noexcept;
  void read_record(const redisReply* record, const engine::operation& asked, engine::outcome& out) const noexcept;

  engine::travel_class kind_;
  const redisReply& reply_;
  std::string_view rest_;  // of a mutation's text, from the next answer on
  std::int64_t now_ms_;
};

}  // namespace syncguard::redis
