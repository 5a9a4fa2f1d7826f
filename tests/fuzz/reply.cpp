// Any bytes from the server, in pieces of any size, through hiredis' reader into the arena, and each reply as the
// answer to batches of every kind and to the self-test.
//
// Input: how to cut, what was asked, then what the server says.

#include <hiredis.h>

#include <memory>
#include <string>

#include "batch.hpp"
#include "redis/command_codec.hpp"
#include "redis/reply_arena.hpp"
#include "results.hpp"

namespace {

using syncguard::lock_id;
using syncguard::engine::operation;
using syncguard::engine::operation_kind;
using syncguard::engine::outcome;
using syncguard::engine::travel_class;
using syncguard::engine::verdict;
using syncguard::fuzz::input;
using syncguard::fuzz::made_batch;
using syncguard::redis::reply_arena;

constexpr std::int64_t server_now_ms = 1'700'000'000'000;
constexpr std::string_view known_id = "AAAAAAAAAAAAAAAAAAAAAA";

// Each node is there, and its text ends with a zero byte behind it, as hiredis' own code expects.
void check_tree(const redisReply* node, int depth) {
  require(node != nullptr);
  require(depth <= reply_arena::depth_max);
  if (node->str != nullptr) require(node->str[node->len] == '\0');
  if (node->type == REDIS_REPLY_STRING || node->type == REDIS_REPLY_ERROR || node->type == REDIS_REPLY_STATUS)
    require(node->str != nullptr);
  for (std::size_t index = 0; index < node->elements; ++index) check_tree(node->element[index], depth + 1);
}

// What the rest of the library takes for granted.
void check_outcome(const operation& asked, outcome& said) {
  require((said.what == verdict::failed) == said.failure.has_value());
  if (said.failure) require(!said.failure->message().empty());
  if (said.what == verdict::acquired) require(asked.kind == operation_kind::acquire && said.token.has_value());
  if (said.what == verdict::unreadable)
    require(asked.kind == operation_kind::is_locked || (asked.kind == operation_kind::acquire && !asked.careful));
  if (said.what != verdict::found) return;
  require(said.record.fault.empty());
  using raw_callback = syncguard::callback<syncguard::result<std::optional<syncguard::raw_lock_info>>>;
  const auto made = syncguard::make_result<raw_callback>(asked, said);
  require(made.has_value() && made->has_value());
}

class asked_batches {
 public:
  asked_batches()
      : mutation_(travel_class::mutation), key_read_(travel_class::key_read), id_read_(travel_class::id_read) {
    const lock_id id = *lock_id::parse(known_id);
    for (const auto kind : {operation_kind::acquire, operation_kind::acquire, operation_kind::release,
                            operation_kind::extend, operation_kind::clean_up, operation_kind::inspect})
      mutation_.add(kind, "match:42", id, 30'000);
    mutation_.get().operations[1]->careful = true;
    for (const auto kind : {operation_kind::is_locked, operation_kind::lookup_key})
      key_read_.add(kind, "match:42", id, 0);
    for (int left = 2; left > 0; --left) id_read_.add(operation_kind::lookup_id, "", id, 0);
  }

  void answer(const redisReply& reply, bool time_is_known, std::size_t first) {
    for (made_batch* each : {&mutation_, &key_read_, &id_read_}) {
      syncguard::engine::batch& what = each->get();
      syncguard::redis::reply_reader reader{what, reply, time_is_known ? server_now_ms : 0};
      // Which operation comes first matters: the answers of a mutation are read one after the other.
      for (std::size_t index = 0; index < what.count; ++index) {
        const operation& asked = *what.operations[(index + first) % what.count];
        outcome said;
        reader.read(index, asked, said);
        check_outcome(asked, said);
      }
    }
  }

 private:
  made_batch mutation_;
  made_batch key_read_;
  made_batch id_read_;
};

// Sizes by chance, from one byte.
class cutter {
 public:
  explicit cutter(std::uint8_t seed) : state_(seed) {}
  std::size_t next(std::size_t most) {
    if (state_ == 0) return most;
    state_ = state_ * 1'103'515'245U + 12'345U;
    return std::min<std::size_t>(most, 1 + (state_ >> 16) % 24);
  }

 private:
  std::uint32_t state_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  input bytes{data, size};
  cutter pieces{bytes.byte()};
  const std::uint8_t how = bytes.byte();
  static asked_batches asked;

  reply_arena arena;
  const std::unique_ptr<redisReader, void (*)(redisReader*)> reader{redisReaderCreate(), redisReaderFree};
  arena.attach(*reader);
  reader->maxelements = 4096;
  while (!bytes.empty()) {
    const std::string_view piece = bytes.text(pieces.next(bytes.size()));
    if (redisReaderFeed(reader.get(), piece.data(), piece.size()) != REDIS_OK) return 0;
    for (void* next = nullptr;;) {
      if (redisReaderGetReply(reader.get(), &next) != REDIS_OK) return 0;
      if (next == nullptr) break;
      const auto& reply = *static_cast<redisReply*>(next);
      check_tree(&reply, 0);
      asked.answer(reply, (how & 1) != 0, how >> 1);
      if (const auto why = syncguard::redis::read_self_test(reply)) require(!why->message().empty());
    }
  }
  return 0;
}
