// The model that the simulator and the unit tests lean on, against a real server: random sequences of batches, written
// and read by the library's own codec, must be answered alike by both.
//
// The model is told the time at which the server answered. Where that is so close to the end of a time to live that it
// cannot be known what the server saw, the rest of that sequence is left out; how many were is noted, and bounded.

#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <hiredis.h>

#include "protocol/record.hpp"
#include "protocol/server_time.hpp"
#include "protocol/storage_key.hpp"
#include "redis/command_codec.hpp"
#include "support/cmocka.hpp"
#include "support/model/model_server.hpp"
#include "support/model/names.hpp"
#include "support/mutations.hpp"
#include "support/redis_server.hpp"
#include "syncguard_scripts.hpp"

namespace {

using namespace syncguard;
using namespace syncguard::testing;

constexpr std::size_t sequences_at_once = 1000;
constexpr std::size_t rounds = 10;
constexpr int steps = 6;

// A machine under load may stand still for so long between two things that a script does.
constexpr std::int64_t unclear_ms = 40;

constexpr std::array<std::int64_t, 4> ttls_ms{1, 250, 5000, 60'000};

struct nobody final : model_server::connection {
  void changed(std::string_view) override {}
  void changed_all() override {}
};

// One sequence: keys and ids of its own, and what the model knows of them.
struct sequence {
  std::size_t number = 0;
  bool clear = true;
  nobody by;  // who watches stays known to the model
  model_server model;
  std::vector<lock_id> ids;
  std::deque<operation> asked;
  batch what;
  bool watched = false;
};

struct fixture {
  std::unique_ptr<redis_server> server;
  redisContext* link = nullptr;
  std::mt19937_64 random;
  protocol::key_space keys = *protocol::key_space::make("syncguard");
  redis::resp_writer writer;
  std::size_t appended = 0;

  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(random() % bound); }
  template <class Value, std::size_t Size>
  Value pick(const std::array<Value, Size>& from) {
    return from.at(below(Size));
  }

  void append(const std::vector<std::string>& words) {
    writer.begin(words.size());
    for (const std::string& each : words) writer.add(each);
    append_written();
  }
  void append_written() {
    const std::string_view text = writer.text();
    redisAppendFormattedCommand(link, text.data(), text.size());
    ++appended;
  }
  using reply_pointer = std::unique_ptr<redisReply, decltype(&freeReplyObject)>;
  reply_pointer next_reply() {
    void* got = nullptr;
    assert_int_equal(redisGetReply(link, &got), REDIS_OK);
    --appended;
    return {static_cast<redisReply*>(got), &freeReplyObject};
  }
  void skip_replies() {
    while (appended > 0) next_reply();
  }
};

std::unique_ptr<fixture> at;

int start(void**) {
  at = std::make_unique<fixture>();
  at->random.seed(random_seed());
  at->server = std::make_unique<redis_server>();
  if (!at->server->start()) return -1;
  at->link = redisConnectUnix(at->server->socket_path().c_str());
  if (at->link == nullptr || at->link->err != 0) return -1;
  for (const auto& script : scripts::all) at->append({"SCRIPT", "LOAD", std::string{script.text}});
  at->skip_replies();
  return 0;
}

int stop(void**) {
  if (at->link != nullptr) redisFree(at->link);
  at.reset();
  return 0;
}

std::string user_key(const sequence& of, std::size_t which) {
  return "s" + std::to_string(of.number) + "-" + std::to_string(which);
}
std::string lock_key(const std::string& key) { return "syncguard:" + key; }
std::string index_key(const lock_id& id) { return "syncguard:id:" + std::string{id.view()}; }

const lock_id& some_id(sequence& of) {
  if (of.ids.empty() || at->below(4) == 0) of.ids.push_back(lock_id::generate());
  return of.ids.at(at->below(of.ids.size()));
}

// Somebody else writes to one of the keys, at the server and in the model.
void meddle(sequence& of, std::int64_t now_ms) {
  const std::string key = user_key(of, at->below(2));
  model_server::entry& record = of.model.entry_of(key);
  of.model.now_us = now_ms * 1000;
  switch (at->below(4)) {
    case 0:
      at->append({"DEL", lock_key(key)});
      of.model.remove(key);
      break;
    case 1:
      at->append({"SET", lock_key(key), "what is this", "PX", "60000"});
      of.model.spoil(key);
      record.gone_at_ms = now_ms + 60'000;
      if (at->below(2) == 0) break;
      at->append({"PERSIST", lock_key(key)});
      record.gone_at_ms.reset();
      break;
    case 2:
      at->append({"DEL", lock_key(key)});
      at->append({"RPUSH", lock_key(key), "x"});
      of.model.spoil(key, model_server::form::wrong_type);
      record.gone_at_ms.reset();
      break;
    default: {
      const lock_id& id = some_id(of);
      const std::int64_t expires_at_ms =
          now_ms + at->pick(std::array<std::int64_t, 5>{-5000, -2500, -1500, -500, 5000});
      protocol::record_buffer text;
      encode_record({id, expires_at_ms, expires_at_ms - 1000, key, *fence::from_number(7)}, text);
      at->append({"SET", lock_key(key), std::string{text.view()}});
      record.there = true;
      record.how = model_server::form::readable;
      record.id = id;
      record.fence = 7;
      record.expires_at_ms = expires_at_ms;
      record.acquired_at_ms = expires_at_ms - 1000;
      record.gone_at_ms.reset();
      if (at->below(4) == 0) break;
      at->append({"SET", index_key(id), lock_key(key)});
      of.model.put_index(id, key, std::nullopt);
    }
  }
}

void ask(sequence& of, operation_kind kind) {
  operation& item = of.asked.emplace_back();
  item.kind = kind;
  if (kind == operation_kind::release || kind == operation_kind::extend || kind == operation_kind::lookup_id) {
    item.id = some_id(of);
  } else {
    item.key.assign(user_key(of, at->below(2)));
  }
  if (kind == operation_kind::acquire) {
    item.id = some_id(of);
    item.maybe_applied = at->below(3) == 0;
    item.careful = at->below(10) == 0;
  }
  item.ttl_ms = at->pick(ttls_ms);
  of.what.operations.at(of.what.count++) = &item;
}

void fill_batch(sequence& of) {
  of.asked.clear();
  of.what.count = 0;
  of.watched = at->below(3) == 0;
  const std::size_t count = 1 + at->below(6);
  const std::size_t chosen = at->below(6);
  of.what.kind = chosen < 4 ? travel_class::mutation : chosen == 4 ? travel_class::key_read : travel_class::id_read;
  for (std::size_t index = 0; index < count; ++index) {
    if (of.what.kind == travel_class::id_read) {
      ask(of, operation_kind::lookup_id);
    } else if (of.what.kind == travel_class::key_read) {
      ask(of, at->below(2) == 0 ? operation_kind::is_locked : operation_kind::lookup_key);
    } else {
      ask(of, at->pick(std::array{operation_kind::acquire, operation_kind::acquire, operation_kind::acquire,
                                  operation_kind::release, operation_kind::extend, operation_kind::extend,
                                  operation_kind::clean_up, operation_kind::inspect}));
    }
  }
}

bool is_close(std::int64_t left, std::int64_t right) { return std::abs(left - right) <= unclear_ms; }

// Whether what the server saw then can be known.
bool is_clear(sequence& of, std::int64_t now_ms) {
  bool clear = true;
  of.model.for_each_record([&](const model_server::entry& record) {
    if (!record.there) return;
    if (record.gone_at_ms && is_close(*record.gone_at_ms, now_ms)) clear = false;
    for (const std::int64_t after_ms : {0, 1000, 2000})
      if (is_close(record.expires_at_ms + after_ms, now_ms)) clear = false;
  });
  of.model.for_each_index_end([&](std::optional<std::int64_t> gone_at_ms) {
    if (gone_at_ms && is_close(*gone_at_ms, now_ms)) clear = false;
  });
  return clear;
}

void complain(const sequence& of, const operation& asked, const model_server::answer& wanted, const outcome& seen) {
  print_error("sequence %zu, %s of %s: the model says %s (%lld, fence %llu), the server %s (%lld, fence %llu) %s\n",
              of.number, name_of(asked.kind).data(), std::string{asked.key.view()}.c_str(), name_of(wanted.what).data(),
              static_cast<long long>(wanted.expires_at_ms), static_cast<unsigned long long>(wanted.fence),
              name_of(seen.what).data(), static_cast<long long>(seen.expires_at_ms),
              static_cast<unsigned long long>(seen.token ? seen.token->number() : 0),
              seen.failure ? describe(*seen.failure).c_str() : "");
}

bool is_same(const model_server::answer& wanted, const outcome& seen) {
  if (wanted.what != seen.what || wanted.cleanable != seen.cleanable) return false;
  if (wanted.failure) return seen.failure && wanted.failure->code() == seen.failure->code();
  if (wanted.what == verdict::found)
    return wanted.owner == seen.record.id && wanted.expires_at_ms == seen.record.expires_at_ms &&
           wanted.acquired_at_ms == seen.record.acquired_at_ms && wanted.fence == seen.record.token->number();
  return wanted.expires_at_ms == seen.expires_at_ms && wanted.fence == (seen.token ? seen.token->number() : 0);
}

std::int64_t time_in(const redisReply& reply) {
  return *protocol::parse_server_time_ms({reply.element[0]->str, reply.element[0]->len},
                                         {reply.element[1]->str, reply.element[1]->len});
}

// The model does what the server has done. Returns how many answers were compared. Where the server was held up between
// the times before and after it, what it counted times to live from is not known.
std::size_t compare(sequence& of, const redisReply& reply, std::int64_t asked_ms, std::int64_t done_ms) {
  std::int64_t now_ms = asked_ms;
  if (of.what.kind == travel_class::mutation) now_ms = std::stoll(std::string{reply.str, 13});
  if (of.what.kind == travel_class::id_read) now_ms = std::stoll(reply.element[0]->str);
  of.clear = of.clear && done_ms - asked_ms <= unclear_ms / 2 && is_clear(of, now_ms);
  if (!of.clear) return 0;
  of.model.now_us = now_ms * 1000;
  of.model.begin_batch();
  redis::reply_reader reader{of.what, reply, asked_ms};
  for (std::size_t index = 0; index < of.what.count; ++index) {
    const operation& asked = *of.what.operations.at(index);
    outcome seen;
    reader.read(index, asked, seen);
    const model_server::answer wanted = of.model.carry_out(asked, of.by, of.watched);
    if (is_same(wanted, seen)) continue;
    complain(of, asked, wanted, seen);
    fail();
  }
  return of.what.count;
}

std::int64_t server_now_ms() {
  at->append({"TIME"});
  return time_in(*at->next_reply());
}

std::size_t run_step(std::deque<sequence>& all) {
  const std::int64_t now_ms = server_now_ms();
  for (sequence& each : all)
    if (at->below(5) == 0) meddle(each, now_ms);
  at->skip_replies();
  if (server_now_ms() - now_ms > unclear_ms / 2)
    for (sequence& each : all) each.clear = false;
  const bool out_of_memory = at->below(6) == 0;
  if (out_of_memory) at->append({"CONFIG", "SET", "maxmemory", "1"});
  at->skip_replies();
  for (sequence& each : all) {
    each.model.offset_us = 0;
    each.model.out_of_memory = out_of_memory;
    fill_batch(each);
    at->append({"TIME"});
    write_batch(each.what, at->keys, at->writer, each.watched);
    at->append_written();
    at->append({"TIME"});
  }
  std::size_t compared = 0;
  for (sequence& each : all) {
    const std::int64_t asked_ms = time_in(*at->next_reply());
    const auto reply = at->next_reply();
    assert_true(reply->type != REDIS_REPLY_ERROR);
    const std::int64_t done_ms = time_in(*at->next_reply());
    compared += compare(each, *reply, asked_ms, done_ms);
  }
  if (out_of_memory) at->append({"CONFIG", "SET", "maxmemory", "0"});
  at->skip_replies();
  return compared;
}

void model_and_server_answer_alike(void**) {
  std::size_t compared = 0;
  std::size_t unclear = 0;
  for (std::size_t round = 0; round < rounds; ++round) {
    std::deque<sequence> all(sequences_at_once);
    for (std::size_t index = 0; index < all.size(); ++index) all[index].number = round * sequences_at_once + index;
    for (int step = 0; step < steps; ++step) {
      compared += run_step(all);
      usleep(60'000);
    }
    for (const sequence& each : all) unclear += each.clear ? 0 : 1;
    at->append({"FLUSHALL"});
    at->skip_replies();
  }
  note("%zu sequences, %zu answers compared; %zu sequences came too close to the end of a time to live",
       rounds * sequences_at_once, compared, unclear);
  // On a machine that holds the server up all the time, most of it proves nothing.
  assert_true(compared > rounds * sequences_at_once);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(model_and_server_answer_alike),
  };
  return cmocka_run_group_tests(tests, start, stop);
}
