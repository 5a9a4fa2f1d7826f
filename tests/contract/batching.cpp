// Batching: what is started in one turn travels together.

#include <string>

#include "contract/cases.hpp"
#include "contract/operations.hpp"
#include "contract/stored.hpp"

namespace syncguard::testing {

namespace {

constexpr std::size_t bucket_of_32 = 5;

std::vector<started_acquire> acquire_many(int count) {
  std::vector<started_acquire> all;
  for (int index = 0; index < count; ++index) all.push_back(start_acquire("k" + std::to_string(index), 60s));
  return all;
}

void single_operation_travels_in_one_command(void**) {
  redis({"CONFIG", "RESETSTAT"});
  const client_stats before = subject().stats();
  hold("k");
  const client_stats after = subject().stats();
  assert_int_equal(after.batches - before.batches, 1);
  assert_int_equal(after.batch_sizes[0] - before.batch_sizes[0], 1);
  assert_int_equal(calls_of("evalsha"), 1);
}

void thirty_two_acquires_of_one_turn_travel_in_one_command(void**) {
  redis({"CONFIG", "RESETSTAT"});
  const client_stats before = subject().stats();
  await_all(acquire_many(32));
  const client_stats after = subject().stats();
  assert_int_equal(after.batches - before.batches, 1);
  assert_int_equal(after.batch_sizes[bucket_of_32] - before.batch_sizes[bucket_of_32], 1);
  assert_int_equal(calls_of("evalsha"), 1);
}

void thirty_three_acquires_of_one_turn_travel_in_two_commands(void**) {
  redis({"CONFIG", "RESETSTAT"});
  const client_stats before = subject().stats();
  await_all(acquire_many(33));
  const client_stats after = subject().stats();
  assert_int_equal(after.batches - before.batches, 2);
  assert_int_equal(calls_of("evalsha"), 2);
}

void three_hundred_and_twenty_acquires_travel_in_ten_commands(void**) {
  const client_stats before = subject().stats();
  await_all(acquire_many(320));
  const client_stats after = subject().stats();
  assert_int_equal(after.batches - before.batches, 10);
  assert_int_equal(after.batch_sizes[bucket_of_32] - before.batch_sizes[bucket_of_32], 10);
}

void mixed_mutations_of_one_turn_travel_in_one_command(void**) {
  const grant first = hold("a");
  const grant second = hold("b");
  const client_stats before = subject().stats();
  const auto released = start_release(first.id);
  const auto extended = start_extend(second.id, 30s);
  const auto acquired = start_acquire("a", 60s);
  assert_true(must(await(released)));
  must_have(await(extended));
  must_have(await(acquired));
  assert_int_equal(subject().stats().batches - before.batches, 1);
}

void lookups_of_one_turn_travel_together_and_without_a_script(void**) {
  hold("k1");
  redis({"CONFIG", "RESETSTAT"});
  std::vector<started_lookup> all;
  for (int index = 0; index < 64; ++index) all.push_back(start_lookup("k" + std::to_string(index)));
  await_all(all);
  assert_true(calls_of("mget") >= 1 && calls_of("mget") <= 2);
  assert_true(calls_of("time") <= 2);
  assert_int_equal(calls_of("evalsha"), 0);
}

void looks_of_one_turn_travel_together_and_without_a_script(void**) {
  redis({"CONFIG", "RESETSTAT"});
  std::vector<started_bool> all;
  for (int index = 0; index < 64; ++index) all.push_back(start_is_locked("k" + std::to_string(index)));
  await_all(all);
  assert_true(calls_of("mget") >= 1 && calls_of("mget") <= 2);
  assert_int_equal(calls_of("evalsha"), 0);
}

void lookups_by_id_of_one_turn_travel_together(void**) {
  redis({"CONFIG", "RESETSTAT"});
  std::vector<started_bool> all;
  for (int index = 0; index < 32; ++index) all.push_back(start_owns(own_id));
  await_all(all);
  assert_true(calls_of("evalsha") >= 1 && calls_of("evalsha") <= 2);
}

void operations_of_different_turns_travel_apart(void**) {
  const client_stats before = subject().stats();
  for (int index = 0; index < 5; ++index) hold("k" + std::to_string(index));
  assert_int_equal(subject().stats().batches - before.batches, 5);
}

void operations_started_inside_callbacks_of_one_reply_travel_together(void**) {
  const auto done = std::make_shared<int>(0);
  for (int index = 0; index < 32; ++index) {
    subject().acquire("a" + std::to_string(index), 60s, [done, index](const result<std::optional<grant>>&) {
      subject().acquire("b" + std::to_string(index), 60s, [done](const result<std::optional<grant>>&) { ++*done; });
    });
  }
  assert_true(run_until([&] { return *done == 32; }));
  assert_int_equal(subject().stats().batches, 2);
}

}  // namespace

cases batching_cases() {
  static const CMUnitTest all[] = {
      contract_case(single_operation_travels_in_one_command),
      contract_case(thirty_two_acquires_of_one_turn_travel_in_one_command),
      contract_case(thirty_three_acquires_of_one_turn_travel_in_two_commands),
      contract_case(three_hundred_and_twenty_acquires_travel_in_ten_commands),
      contract_case(mixed_mutations_of_one_turn_travel_in_one_command),
      contract_case(lookups_of_one_turn_travel_together_and_without_a_script),
      contract_case(looks_of_one_turn_travel_together_and_without_a_script),
      contract_case(lookups_by_id_of_one_turn_travel_together),
      contract_case(operations_of_different_turns_travel_apart),
      contract_case(operations_started_inside_callbacks_of_one_reply_travel_together),
  };
  return all;
}

}  // namespace syncguard::testing
