#pragma once

// The books of one history: what the server has really granted to which lock id, and which promises hold for it.
//
// What is promised, and how it is checked:
//
//   - Exclusion. A lock object that says valid() is held at the server under its id: then no two can be valid at once.
//     A grant by hand counts as held from when it is told until the local time of the call + ttl, because the server
//     counts from when it carried the call out, which is later. (The tolerance of 1000 ms does not add to that: a
//     record of our own goes with its key's time to live.) Clocks that do not run at the same speed are paid for by the
//     margin; where that is too small for the drift of this history, the drift is allowed for here.
//   - Exclusion ends where somebody else deletes or overwrites a record, where data is lost, and where the server's
//   clock
//     jumps ahead. Each of those begins a new epoch of the key, and only what was granted in the present one is held to
//     the promise. Fences are: they rise with every grant as long as the counters are there.
//   - An error that does not say outcome_unknown() is of an operation that has changed nothing.
//   - Nothing stays held for nobody: when all is calm, every record belongs to somebody who was told so, or has an
//   excuse:
//     the server itself refused the release, or its user, its client or the connection went away in a way that leaves
//     only the time to live.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <syncguard/lock_id.hpp>

#include "sim/journal.hpp"
#include "support/model/model_server.hpp"
#include "support/model/names.hpp"

namespace syncguard::sim {

struct id_facts {
  std::string name;  // for people: client and number
  int client = -1;   // -1: none of ours
  std::size_t key = 0;
  bool granted = false;    // by the server, ever
  bool excused = false;    // from being given back in time
  bool untouched = false;  // its caller was told that nothing has happened
  std::uint64_t epoch = 0;
  std::uint64_t data_epoch = 0;
  std::uint64_t fence = 0;
  std::int64_t ttl_ms = 0;  // as it was acquired
};

struct key_facts {
  std::string name;
  std::uint64_t epoch = 0;
  std::uint64_t data_epoch = 0;
  std::uint64_t last_granted = 0;  // fences
  std::uint64_t last_told = 0;     // of locks that were valid
};

class ledger {
 public:
  ledger(testing::model_server& server, journal& notes) : server_(server), notes_(notes) {}

  void add_key(std::string name) { keys_.emplace_back().name = std::move(name); }
  std::size_t key_count() const noexcept { return keys_.size(); }
  key_facts& key(std::size_t index) { return keys_.at(index); }
  std::size_t index_of(std::string_view name) const { return static_cast<std::size_t>(name.at(1) - '0'); }

  lock_id make_id(int client, std::string_view client_name);
  id_facts& of(const lock_id& id) { return ids_.at(std::string{id.view()}); }
  bool knows(const lock_id& id) const { return ids_.contains(std::string{id.view()}); }
  std::string name_of(const std::optional<lock_id>& id) const {
    if (!id) return "-";
    const auto found = ids_.find(std::string{id->view()});
    return found == ids_.end() ? "?" : found->second.name;
  }

  // A record was changed by a stranger, or its time was.
  void begin_epoch(std::size_t index) { ++keys_.at(index).epoch; }
  void begin_epochs() {
    for (key_facts& each : keys_) ++each.epoch;
  }
  // The counters are gone, too.
  void begin_data_epoch() {
    begin_epochs();
    for (key_facts& each : keys_) ++each.data_epoch, each.last_granted = each.last_told = 0;
  }

  // Whether the promise of exclusion holds for what was granted under this id.
  bool is_promised(const id_facts& facts) { return facts.granted && facts.epoch == keys_.at(facts.key).epoch; }

  // The server has granted a lock.
  void granted(std::string_view key_name, const lock_id& id, std::int64_t ttl_ms);

  // A client was told that it has been granted a lock. Returns what is wrong with that, or nothing.
  std::string told_granted(const lock_id& id, std::uint64_t fence, bool valid);

  // Requires: the holder is certain that it holds the lock. Returns what is wrong with that, or nothing.
  std::string check_held(const lock_id& id);

 private:
  testing::model_server& server_;
  journal& notes_;
  std::vector<key_facts> keys_;
  std::unordered_map<std::string, id_facts> ids_;
  std::uint64_t ids_made_ = 0;
};

}  // namespace syncguard::sim
