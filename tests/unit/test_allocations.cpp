// The protocol's functions run on the path of every operation: they allocate nothing.

#include <cstdio>
#include <string>

#include <syncguard/key_hash.hpp>
#include "protocol/error_map.hpp"
#include "protocol/record.hpp"
#include "protocol/storage_key.hpp"
#include "protocol/user_key.hpp"
#include "support/allocation_counter.hpp"
#include "support/cmocka.hpp"

namespace {

using namespace syncguard::protocol;
using syncguard::error;
using syncguard::error_code;
using syncguard::fence;
using syncguard::hash_key;
using syncguard::lock_id;
using syncguard::testing::allocation_counter;

constexpr int rounds = 1000;

void counter_counts(void**) {
  const allocation_counter counter;
  const std::string long_enough_for_the_heap(1000, 'x');
  assert_in_range(counter.count(), 1, 10);
}

void error_allocates_for_its_context_alone(void**) {
  const allocation_counter counter;
  error what{error_code::rate_limited, "the queue is full"};
  const error copy{what};
  assert_int_equal(counter.count(), 0);
  what.with_context("key", "", "cause");
  assert_int_equal(counter.count(), 1);
}

void protocol_allocates_nothing(void**) {
  const auto keys = key_space::make("syncguard");
  const std::string long_key(512, 'k');
  const lock_id first = lock_id::generate();  // opens the random source
  std::size_t bytes_made = 0;

  const allocation_counter counter;
  for (int round = 0; round < rounds; ++round) {
    user_key_buffer buffer;
    storage_key_buffer key_out;
    record_buffer record_out;
    for (const std::string_view raw : {std::string_view{"match:42"}, std::string_view{"cafe\u0301"},
                                       std::string_view{long_key}, std::string_view{"\xff"}, std::string_view{}}) {
      const auto key = normalize_user_key(raw, buffer);
      if (!key) continue;
      bytes_made += keys->lock_key(*key, key_out).size();
      bytes_made += keys->fence_key(key_out.view(), key_out).size();
      bytes_made += hash_key(*key)->view().size();
      const lock_id id = lock_id::generate();
      bytes_made += keys->index_key(id, key_out).size();
      const auto json = encode_record({id, 2, 1, *key, *fence::from_number(round)}, record_out);
      decoded_record back;
      decode_record(json, back);
      if (back.fault.empty()) bytes_made += json.size();
      decoded_record damaged;
      decode_record(json.substr(1), damaged);
    }
    if (classify_error("READONLY You can't write") == error_code::internal) ++bytes_made;
    if (fence::parse("nonsense") || lock_id::parse("nonsense")) ++bytes_made;
  }
  assert_int_equal(counter.count(), 0);
  assert_true(bytes_made > 0 && first == first);
}

}  // namespace

int main() {
  if (!allocation_counter::available()) {
    std::puts("1..0 # SKIP a sanitizer has replaced the allocator, there is nothing to count with");
    return 0;
  }
  const CMUnitTest tests[] = {
      cmocka_unit_test(counter_counts),
      cmocka_unit_test(error_allocates_for_its_context_alone),
      cmocka_unit_test(protocol_allocates_nothing),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
