#pragma once

// What a Redis with the scripts answers, as far as held locks can tell: records by key, found by lock id too, gone when
// their time to live ends, and connections that are told of changes.
//
// As Redis, it tells a connection of a key only once after that has read it by a watched batch, never of what that
// connection did itself, and of an expiry when somebody looks at the key.

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
    std::int64_t expires_at_ms = 0;
    std::int64_t server_now_ms = 0;
    std::uint64_t fence = 0;  // 0: none
    std::optional<error> failure;
  };

  std::int64_t now_ms() const noexcept { return (now_us + offset_us) / 1000; }

  answer carry_out(const engine::operation& asked, connection& by, bool watched) {
    answer out;
    out.server_now_ms = now_ms();
    if (fault) out.failure = fault(asked);
    if (out.failure) return out;
    switch (asked.kind) {
      case engine::operation_kind::acquire: acquire(asked, by, watched, out); break;
      case engine::operation_kind::release: release(asked, by, out); break;
      case engine::operation_kind::extend: extend(asked, by, watched, out); break;
      default: look(asked, out); break;
    }
    if (twist) twist(asked, out);
    return out;
  }

  // What others do.

  bool held(std::string_view key) { return look_at(key).id.has_value(); }
  const std::optional<lock_id>& holder(std::string_view key) { return look_at(key).id; }
  std::int64_t expires_at_ms(std::string_view key) { return look_at(key).expires_at_ms; }

  // Somebody who is in no world gets the lock.
  void take(std::string_view key, std::int64_t ttl_ms) {
    entry& record = entry_of(key);
    record.id = lock_id::generate();
    record.fence = ++record.last_fence;
    record.expires_at_ms = now_ms() + ttl_ms;
    record.lingers = false;
    tell(record, nullptr);
  }
  void remove(std::string_view key) {
    entry& record = entry_of(key);
    record.id.reset();
    record.spoiled = false;
    tell(record, nullptr);
  }
  // Changes the record without changing who holds it.
  void touch(std::string_view key) { tell(entry_of(key), nullptr); }
  // The record stays after its time, as one that was written without a time to live.
  void let_linger(std::string_view key) { entry_of(key).lingers = true; }
  // The record cannot be read any more, and counts as held.
  void spoil(std::string_view key) { entry_of(key).spoiled = true; }
  void flush() {
    for (auto& [key, record] : records_) record.id.reset(), record.watchers.clear();
    for (connection* each : connections) each->changed_all();
  }
  void forget(const connection& gone) {
    for (auto& [key, record] : records_) std::erase(record.watchers, &gone);
  }

  std::int64_t now_us = 1'000'000'000;  // of everybody but the server
  std::int64_t offset_us = 1'700'000'000'000'000;
  std::vector<connection*> connections;                                            // those that watch
  std::function<std::optional<error>(const engine::operation&)> fault;             // asked before anything is done
  std::function<void(const engine::operation&, answer&)> twist;                    // changes what is said of it
  std::function<void(std::string_view key, const engine::operation& by)> granted;  // a fresh grant
  std::uint64_t acquires = 0;
  std::uint64_t extends = 0;
  std::uint64_t lookups = 0;

 private:
  struct entry {
    std::string_view key;
    std::optional<lock_id> id;
    std::uint64_t fence = 0;
    std::uint64_t last_fence = 0;
    std::int64_t expires_at_ms = 0;
    bool lingers = false;
    bool spoiled = false;
    std::vector<connection*> watchers;
  };
  struct hash : std::hash<std::string_view> {
    using is_transparent = void;
  };

  entry& entry_of(std::string_view key) {
    auto found = records_.find(key);
    if (found == records_.end()) found = records_.try_emplace(std::string{key}).first;
    found->second.key = found->first;
    return found->second;
  }

  entry& look_at(std::string_view key) {
    entry& record = entry_of(key);
    if (record.id && !record.lingers && record.expires_at_ms <= now_ms()) {
      record.id.reset();
      tell(record, nullptr);
    }
    return record;
  }

  entry* find(const lock_id& id) {
    const auto found = keys_.find(id.view());
    if (found == keys_.end()) return nullptr;
    entry& record = look_at(found->second);
    return record.id ? &record : nullptr;
  }

  bool lives(const entry& record) const noexcept { return record.expires_at_ms > now_ms() - tolerance_ms; }

  static void tell(entry& record, const connection* by) {
    for (connection* each : record.watchers)
      if (each != by) each->changed(record.key);
    record.watchers.clear();
  }
  static void watch(entry& record, connection& by) {
    if (std::find(record.watchers.begin(), record.watchers.end(), &by) == record.watchers.end())
      record.watchers.push_back(&by);
  }

  void acquire(const engine::operation& asked, connection& by, bool watched, answer& out) {
    ++acquires;
    entry& record = look_at(asked.key.view());
    if (record.spoiled) {
      out.what = engine::verdict::corrupt;
    } else if (record.id && !(*record.id == *asked.id) && lives(record)) {
      out.what = engine::verdict::contended;
      out.fence = watched ? record.fence : 0;
    } else {
      out.what = engine::verdict::acquired;
      if (!record.id || !(*record.id == *asked.id)) grant(record, asked, by);
      out.fence = record.fence;
    }
    out.expires_at_ms = record.expires_at_ms;
    if (watched) watch(record, by);
  }
  void grant(entry& record, const engine::operation& asked, const connection& by) {
    record.id = asked.id;
    record.fence = ++record.last_fence;
    record.expires_at_ms = now_ms() + asked.ttl_ms;
    record.lingers = false;
    keys_.insert_or_assign(std::string{asked.id->view()}, std::string{record.key});
    tell(record, &by);
    if (granted) granted(record.key, asked);
  }

  void release(const engine::operation& asked, const connection& by, answer& out) {
    entry* record = find(*asked.id);
    out.what = judge(record, asked);
    if (out.what != engine::verdict::extended && out.what != engine::verdict::expired) return;
    if (out.what == engine::verdict::extended) out.what = engine::verdict::released;
    record->id.reset();
    tell(*record, &by);
  }

  void extend(const engine::operation& asked, connection& by, bool watched, answer& out) {
    ++extends;
    entry* record = find(*asked.id);
    out.what = judge(record, asked);
    if (out.what == engine::verdict::expired) record->id.reset();
    if (out.what == engine::verdict::expired) tell(*record, &by);
    if (out.what != engine::verdict::extended) return;
    out.expires_at_ms = record->expires_at_ms = now_ms() + asked.ttl_ms;
    tell(*record, &by);
    if (watched) watch(*record, by);
  }

  void look(const engine::operation& asked, answer& out) {
    ++lookups;
    out.server_now_ms = 0;
    entry* record = asked.id ? find(*asked.id) : nullptr;
    out.what = judge(record, asked);
    if (out.what == engine::verdict::not_owner) out.what = engine::verdict::absent;
    if (out.what == engine::verdict::extended) out.what = engine::verdict::found;
  }

  engine::verdict judge(const entry* record, const engine::operation& asked) const {
    if (record == nullptr) return engine::verdict::absent;
    if (!(*record->id == *asked.id)) return engine::verdict::not_owner;
    return lives(*record) ? engine::verdict::extended : engine::verdict::expired;
  }

  static constexpr std::int64_t tolerance_ms = 1000;

  std::unordered_map<std::string, entry, hash, std::equal_to<>> records_;
  std::unordered_map<std::string, std::string, hash, std::equal_to<>> keys_;  // by lock id
};

}  // namespace syncguard::testing
