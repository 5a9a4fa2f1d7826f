// What the pure functions on the path of every operation cost, in ns and allocations. Each result is checked before
// it is timed. Figures of one run are comparable with each other only.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <syncguard/key_hash.hpp>
#include "protocol/error_map.hpp"
#include "protocol/record.hpp"
#include "protocol/storage_key.hpp"
#include "protocol/user_key.hpp"
#include "support/allocation_counter.hpp"

namespace {

using namespace syncguard::protocol;
using syncguard::fence;
using syncguard::hash_key;
using syncguard::lock_id;
using syncguard::testing::allocation_counter;

constexpr int rounds = 5;
constexpr int calls = 200'000;

template <class Value>
void keep(const Value& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

template <class Operation>
void measure(std::string_view name, Operation operation) {
  if (!operation()) {
    std::fprintf(stderr, "%.*s: wrong result, not timed\n", static_cast<int>(name.size()), name.data());
    std::exit(1);
  }
  double best_ns = 1e18;
  const allocation_counter counter;
  for (int round = 0; round < rounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int call = 0; call < calls; ++call) keep(operation());
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - start;
    if (taken.count() / calls < best_ns) best_ns = taken.count() / calls;
  }
  std::printf("%-28.*s %8.1f ns/op %6.2f allocations/op\n", static_cast<int>(name.size()), name.data(), best_ns,
              static_cast<double>(counter.count()) / rounds / calls);
}

}  // namespace

int main() {
  const auto keys = key_space::make("syncguard");
  const lock_id id = lock_id::generate();
  record_buffer record_out;
  const std::string record{
      encode_record({id, 1'700'000'030'000, 1'700'000'000'000, "match:42", *fence::from_number(42)}, record_out)};

  measure("user key, ASCII", [] {
    user_key_buffer buffer;
    return normalize_user_key("match:42", buffer).has_value();
  });
  measure("user key, to be composed", [] {
    user_key_buffer buffer;
    return *normalize_user_key("cafe\u0301", buffer) == "caf\u00e9";
  });
  measure("lock, index and fence key", [&] {
    storage_key_buffer lock_out;
    storage_key_buffer other_out;
    const auto lock_key = keys->lock_key("match:42", lock_out);
    return !keys->index_key(id, other_out).empty() && !keys->fence_key(lock_key, other_out).empty();
  });
  measure("lock id, generated", [] { return lock_id::generate().view().size() == lock_id::length; });
  measure("hash", [] { return hash_key("match:42").has_value(); });
  measure("record, written", [&] {
    record_buffer out;
    return encode_record({id, 1'700'000'030'000, 1'700'000'000'000, "match:42", *fence::from_number(42)}, out) ==
           record;
  });
  measure("record, read", [&] {
    decoded_record back;
    decode_record(record, back);
    return back.fault.empty();
  });
  measure("error text, classified", [] {
    return classify_error("READONLY You can't write against a read only replica.") ==
           syncguard::error_code::service_unavailable;
  });
  return 0;
}
