#include "sim/ledger.hpp"

#include <array>
#include <utility>

namespace syncguard::sim {

lock_id ledger::make_id(int client, std::string_view client_name) {
  std::array<std::uint8_t, lock_id::random_bytes> bytes{};
  const std::uint64_t number = ++ids_made_;
  for (std::size_t index = 0; index < 8; ++index) bytes.at(index) = static_cast<std::uint8_t>(number >> index * 8);
  const lock_id id = lock_id::from_bytes(bytes);
  id_facts& facts = ids_[std::string{id.view()}];
  facts.name = std::string{client_name} + "#" + std::to_string(number);
  facts.client = client;
  return id;
}

void ledger::granted(std::string_view key_name, const lock_id& id, std::int64_t ttl_ms) {
  id_facts& facts = of(id);
  facts.key = index_of(key_name);
  key_facts& at = keys_.at(facts.key);
  facts.granted = true;
  facts.ttl_ms = ttl_ms;
  facts.epoch = at.epoch;
  facts.data_epoch = at.data_epoch;
  facts.fence = server_.entry_of(key_name).fence;
  if (facts.fence <= at.last_granted)
    notes_.violate(server_.now_us - began_us, "server",
                   "the fence of " + at.name + " did not rise: " + std::to_string(facts.fence));
  at.last_granted = facts.fence;
  if (facts.untouched && !facts.excused)
    notes_.violate(server_.now_us - began_us, "server",
                   facts.name + " is granted " + at.name + " after its caller was told that it is not");
}

std::string ledger::told_granted(const lock_id& id, std::uint64_t fence, bool valid) {
  const id_facts& facts = of(id);
  if (!facts.granted) return "told that it has a lock which was never granted, " + facts.name;
  if (facts.fence != fence) return "told a fence that is not its own, " + std::to_string(fence);
  key_facts& at = keys_.at(facts.key);
  if (!valid || !is_promised(facts) || facts.data_epoch != at.data_epoch) return {};
  if (fence <= at.last_told)
    return "got " + at.name + " with fence " + std::to_string(fence) + " after " + std::to_string(at.last_told);
  at.last_told = fence;
  return {};
}

std::string ledger::check_held(const lock_id& id) {
  const id_facts& facts = of(id);
  if (!is_promised(facts)) return {};
  ++notes_.sums.checks;
  const key_facts& at = keys_.at(facts.key);
  const auto& record = server_.entry_of(at.name);
  const std::string claim = facts.name + " counts on " + at.name + ", which ";
  if (!record.there || server_.is_gone(record)) return claim + "is free";
  if (record.id != id) return claim + "is held by " + name_of(record.id);
  return {};
}

}  // namespace syncguard::sim
