#pragma once

// What a Redis with the scripts answers: records by key, an index of lock ids, counters of fences, and connections that
// are told of changes. tests/redis/test_model.cpp holds it against a real server.
//
// As Redis, it tells a connection of a key only once after that has read it by a watched batch, never of what that
// connection did itself, and of an expiry when somebody looks at the key. A time to live ends when the server's clock
// has passed its last millisecond.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <syncguard/error.hpp>

#include "engine/operation.hpp"
#include "engine/port.hpp"
#include "protocol/liveness.hpp"
#include "redis/command_codec.hpp"

namespace syncguard::testing {

class model_server {
 public:
  class connection {
   public:
    virtual void changed(std::string_view key) = 0;
    virtual void changed_all() = 0;

   protected:
    ~connection() = default;
  };

  struct answer {
    engine::verdict what = engine::verdict::failed;
    bool cleanable = false;
    bool demoted = false;
    std::int64_t expires_at_ms = 0;
    std::int64_t acquired_at_ms = 0;
    std::int64_t server_now_ms = 0;
    std::uint64_t fence = 0;  // 0: none
    std::optional<lock_id> owner;
    std::string_view key;
    std::optional<error> failure;
  };

  enum class form : std::uint8_t {
    readable,
    unreadable,  // no JSON
    wrong_type,  // not even a text
  };

  struct entry {
    std::string_view key;
    bool there = false;
    form how = form::readable;
    std::optional<lock_id> id;
    std::uint64_t fence = 0;
    std::int64_t expires_at_ms = 0;
    std::int64_t acquired_at_ms = 0;
    std::optional<std::int64_t> gone_at_ms;  // when Redis forgets it; nothing: never
    std::uint64_t last_fence = 0;            // the counter, which stays
    std::vector<connection*> watchers;
  };

  std::int64_t now_ms() const noexcept { return (now_us + offset_us) / 1000; }

  // A batch begins. Out of memory, a script may write on once it has written.
  void begin_batch() noexcept { has_written_ = false; }

  answer carry_out(const engine::operation& asked, connection& by, bool watched) {
    answer out;
    out.server_now_ms = now_ms();
    if (fault) out.failure = fault(asked);
    if (!out.failure) {
      switch (asked.kind) {
        case engine::operation_kind::acquire: acquire(asked, by, watched, out); break;
        case engine::operation_kind::release: release(asked, by, out); break;
        case engine::operation_kind::extend: extend(asked, by, watched, out); break;
        case engine::operation_kind::clean_up: clean_up(asked, by, out); break;
        case engine::operation_kind::inspect: inspect(asked, out); break;
        case engine::operation_kind::lookup_id: look_up_id(asked, out); break;
        default: look_up_key(asked, out); break;
      }
    }
    if (twist) twist(asked, out);
    if (answered) answered(asked, out);
    return out;
  }

  // The same where the whole batch was refused with these words.
  answer refuse(const engine::operation& asked, std::string_view text) {
    answer out;
    refuse_with(out, text);
    if (answered) answered(asked, out);
    return out;
  }

  // What others do.

  bool held(std::string_view key) { return look_at(key).there; }
  const std::optional<lock_id>& holder(std::string_view key) { return look_at(key).id; }
  std::int64_t expires_at_ms(std::string_view key) { return look_at(key).expires_at_ms; }

  // Somebody who is in no world gets the lock.
  void take(std::string_view key, std::int64_t ttl_ms) { take(key, ttl_ms, lock_id::generate()); }
  void take(std::string_view key, std::int64_t ttl_ms, const lock_id& id) {
    entry& record = entry_of(key);
    store(record, id, ++record.last_fence, ttl_ms);
    tell(record, nullptr);
  }
  void remove(std::string_view key) {
    entry& record = entry_of(key);
    erase(record);
    tell(record, nullptr);
  }
  // Changes the record without changing who holds it.
  void touch(std::string_view key) { tell(entry_of(key), nullptr); }
  // The record stays after its time, as one that was written without a time to live.
  void let_linger(std::string_view key) {
    entry& record = entry_of(key);
    record.gone_at_ms.reset();
    if (record.id) put_index(*record.id, key, std::nullopt);
  }
  // The record cannot be read any more; it goes with its time to live, a minute where it had none.
  void spoil(std::string_view key, form how = form::unreadable) {
    entry& record = entry_of(key);
    if (!record.there || !record.gone_at_ms) record.gone_at_ms = now_ms() + 60'000;
    record.there = true;
    record.how = how;
    record.id.reset();
    tell(record, nullptr);
  }
  void flush() {
    lose_everything();
    for (connection* each : connections) each->changed_all();
  }
  // The data is gone, the counters included, and nobody is told.
  void lose_everything() {
    for (auto& [key, record] : records_) erase(record), record.watchers.clear(), record.last_fence = 0;
    index_.clear();
  }
  void forget(const connection& gone) {
    for (auto& [key, record] : records_) std::erase(record.watchers, &gone);
  }
  // What Redis does by itself now and then. Returns whether there was anything.
  bool expire(std::string_view key) {
    const bool was_there = entry_of(key).there;
    return was_there && !look_at(key).there;
  }

  // What is stored, without looking as a client does: the time to live may be over.
  entry& entry_of(std::string_view key) {
    auto found = records_.find(key);
    if (found == records_.end()) found = records_.try_emplace(std::string{key}).first;
    found->second.key = found->first;
    return found->second;
  }
  bool is_gone(const entry& record) const noexcept { return record.gone_at_ms && *record.gone_at_ms < now_ms(); }
  void put_index(const lock_id& id, std::string_view key, std::optional<std::int64_t> gone_at_ms) {
    const pointer fresh{&entry_of(key), gone_at_ms};
    const auto found = index_.find(id.view());
    if (found != index_.end()) {
      found->second = fresh;
    } else {
      index_.emplace(id.view(), fresh);
    }
  }
  template <class Visit>
  void for_each_record(Visit&& visit) {
    for (auto& [key, record] : records_) visit(record);
  }
  // When each entry of the index goes; nothing: never.
  template <class Visit>
  void for_each_index_end(Visit&& visit) const {
    for (const auto& [id, to] : index_) visit(to.gone_at_ms);
  }
  bool works(std::int64_t at_us) const noexcept { return at_us >= paused_until_us; }

  std::int64_t now_us = 1'000'000'000;  // of everybody but the server
  std::int64_t offset_us = 1'700'000'000'000'000;
  std::int64_t paused_until_us = 0;  // it reads nothing before
  bool knows_scripts = true;
  bool out_of_memory = false;
  std::vector<connection*> connections;                                            // those that watch
  std::function<std::optional<error>(const engine::operation&)> fault;             // asked before anything is done
  std::function<void(const engine::operation&, answer&)> twist;                    // changes what is said of it
  std::function<std::string_view(const engine::batch&)> batch_error;               // nothing: none
  std::function<void(std::string_view key, const engine::operation& by)> granted;  // a fresh grant
  std::function<void(const engine::operation& asked, answer& out)> answered;       // whatever it was; may change it
  std::uint64_t acquires = 0;
  std::uint64_t extends = 0;
  std::uint64_t lookups = 0;

 private:
  struct pointer {
    entry* where;
    std::optional<std::int64_t> gone_at_ms;
  };
  struct hash : std::hash<std::string_view> {
    using is_transparent = void;
  };

  static void refuse_with(answer& out, std::string_view text) {
    out.what = engine::verdict::failed;
    out.failure = redis::error_from_reply(text);
    out.demoted = text.starts_with("READONLY");
  }

  static void erase(entry& record) {
    record.there = false;
    record.how = form::readable;
    record.id.reset();
  }

  void store(entry& record, const lock_id& id, std::uint64_t fence, std::int64_t ttl_ms) {
    record.there = true;
    record.how = form::readable;
    record.id = id;
    record.fence = fence;
    record.acquired_at_ms = now_ms();
    record.expires_at_ms = now_ms() + ttl_ms;
    record.gone_at_ms = record.expires_at_ms;
  }

  entry& look_at(std::string_view key) { return look_at(entry_of(key)); }
  entry& look_at(entry& record) {
    if (record.there && is_gone(record)) {
      erase(record);
      tell(record, nullptr);
    }
    return record;
  }

  // The lock that a lock id leads to, be it its own or not.
  entry* find(const lock_id& id) {
    const auto found = index_.find(id.view());
    if (found == index_.end()) return nullptr;
    if (found->second.gone_at_ms && *found->second.gone_at_ms < now_ms()) {
      index_.erase(found);
      return nullptr;
    }
    entry& record = look_at(*found->second.where);
    return record.there ? &record : nullptr;
  }
  void erase_index(const std::optional<lock_id>& id) {
    if (!id) return;
    const auto found = index_.find(id->view());
    if (found != index_.end()) index_.erase(found);
  }

  bool lives(const entry& record) const noexcept { return protocol::is_live(record.expires_at_ms, now_ms()); }

  static void tell(entry& record, const connection* by) {
    for (connection* each : record.watchers)
      if (each != by) each->changed(record.key);
    record.watchers.clear();
  }
  static void watch(entry& record, connection& by) {
    if (std::find(record.watchers.begin(), record.watchers.end(), &by) == record.watchers.end())
      record.watchers.push_back(&by);
  }

  void unreadable(const entry& record, answer& out) {
    if (record.gone_at_ms) {
      out.what = engine::verdict::corrupt;
    } else {
      refuse_with(out, "CORRUPT the record cannot be read, and has no time to live");
    }
  }

  void acquire(const engine::operation& asked, connection& by, bool watched, answer& out) {
    ++acquires;
    entry& record = look_at(asked.key.view());
    const bool asks_again = asked.maybe_applied || asked.careful;
    const bool readable = record.there && record.how == form::readable;
    if (record.there && record.how == form::unreadable) {
      unreadable(record, out);
    } else if (readable && lives(record) && asks_again && record.id == asked.id) {
      out.what = engine::verdict::acquired;
      out.fence = record.fence;
    } else if (readable && lives(record)) {
      out.what = engine::verdict::contended;
      out.fence = watched ? record.fence : 0;
    } else {
      if (readable) erase_index(record.id);
      grant(record, asked, by, out);
    }
    if (out.what == engine::verdict::acquired || out.what == engine::verdict::contended)
      out.expires_at_ms = record.expires_at_ms;
    if (watched) watch(record, by);
  }
  void grant(entry& record, const engine::operation& asked, const connection& by, answer& out) {
    if (record.last_fence >= fence::grant_max) return refuse_with(out, "FENCE the counter is exhausted");
    if (out_of_memory && !has_written_)
      return refuse_with(out, "OOM command not allowed when used memory > 'maxmemory'.");
    has_written_ = true;
    ++record.last_fence;
    if (record.there && record.how == form::wrong_type)
      return refuse_with(out, "WRONGTYPE Operation against a key holding the wrong kind of value");
    store(record, *asked.id, record.last_fence, asked.ttl_ms);
    put_index(*asked.id, record.key, record.gone_at_ms);
    out.what = engine::verdict::acquired;
    out.fence = record.fence;
    tell(record, &by);
    if (granted) granted(record.key, asked);
  }

  // Which of them it is for a lock id; `extended` stands for a lock that is held under this id.
  engine::verdict judge(const entry* record, const lock_id& id) const {
    if (record == nullptr) return engine::verdict::absent;
    if (record->how != form::readable || record->id != id) return engine::verdict::not_owner;
    return lives(*record) ? engine::verdict::extended : engine::verdict::expired;
  }
  bool fails_by_type(const entry* record, answer& out) {
    if (record == nullptr || record->how != form::wrong_type) return false;
    refuse_with(out, "WRONGTYPE Operation against a key holding the wrong kind of value");
    return true;
  }

  void release(const engine::operation& asked, const connection& by, answer& out) {
    entry* record = find(*asked.id);
    if (fails_by_type(record, out)) return;
    out.what = judge(record, *asked.id);
    if (out.what != engine::verdict::extended && out.what != engine::verdict::expired) return;
    if (out.what == engine::verdict::extended) out.what = engine::verdict::released;
    erase(*record);
    erase_index(asked.id);
    tell(*record, &by);
  }

  void extend(const engine::operation& asked, connection& by, bool watched, answer& out) {
    ++extends;
    entry* record = find(*asked.id);
    if (fails_by_type(record, out)) return;
    out.what = judge(record, *asked.id);
    if (out.what == engine::verdict::expired) {
      erase(*record);
      erase_index(asked.id);
      tell(*record, &by);
    }
    if (out.what != engine::verdict::extended) return;
    has_written_ = true;
    out.expires_at_ms = record->expires_at_ms = now_ms() + asked.ttl_ms;
    record->gone_at_ms = record->expires_at_ms;
    put_index(*asked.id, record->key, record->gone_at_ms);
    tell(*record, &by);
    if (watched) watch(*record, by);
  }

  void clean_up(const engine::operation& asked, const connection& by, answer& out) {
    entry& record = look_at(asked.key.view());
    if (!record.there || record.how == form::wrong_type) {
      out.what = engine::verdict::absent;
    } else if (record.how == form::unreadable || !protocol::is_cleanable(record.expires_at_ms, now_ms())) {
      out.what = engine::verdict::held;
    } else {
      out.what = engine::verdict::expired;
      erase_index(record.id);
      erase(record);
      tell(record, &by);
    }
  }

  void inspect(const engine::operation& asked, answer& out) {
    const entry& record = look_at(asked.key.view());
    if (!record.there || record.how == form::wrong_type) {
      out.what = engine::verdict::free;
    } else if (record.how == form::unreadable) {
      unreadable(record, out);
    } else {
      out.what = lives(record) ? engine::verdict::held : engine::verdict::free;
    }
  }

  static void describe(const entry& record, answer& out) {
    out.what = engine::verdict::found;
    out.owner = record.id;
    out.key = record.key;
    out.fence = record.fence;
    out.expires_at_ms = record.expires_at_ms;
    out.acquired_at_ms = record.acquired_at_ms;
  }

  void look_up_id(const engine::operation& asked, answer& out) {
    ++lookups;
    out.server_now_ms = 0;
    const entry* record = find(*asked.id);
    if (fails_by_type(record, out)) return;
    out.what = engine::verdict::absent;
    if (judge(record, *asked.id) == engine::verdict::extended) describe(*record, out);
  }

  void look_up_key(const engine::operation& asked, answer& out) {
    ++lookups;
    out.server_now_ms = 0;
    const entry& record = look_at(asked.key.view());
    if (!record.there || record.how == form::wrong_type) {
      out.what = engine::verdict::absent;
    } else if (record.how == form::unreadable) {
      out.what = engine::verdict::unreadable;
      if (asked.kind == engine::operation_kind::lookup_key) refuse_with(out, "CORRUPT");
    } else if (!lives(record)) {
      out.what = engine::verdict::expired;
      out.cleanable = protocol::is_cleanable(record.expires_at_ms, now_ms());
    } else if (asked.kind == engine::operation_kind::is_locked) {
      out.what = engine::verdict::held;
    } else {
      describe(record, out);
    }
  }

  bool has_written_ = false;
  std::unordered_map<std::string, entry, hash, std::equal_to<>> records_;
  std::unordered_map<std::string, pointer, hash, std::equal_to<>> index_;  // by lock id
};

}  // namespace syncguard::testing
