// Many at once, and too many at once.

#include <string>

#include "contract/cases.hpp"
#include "contract/operations.hpp"
#include "contract/stored.hpp"

namespace syncguard::testing {

namespace {

constexpr int ten_thousand = 10'000;

void ten_thousand_acquires_and_releases_of_one_turn_complete(void**) {
  std::vector<started_acquire> acquired;
  for (int index = 0; index < ten_thousand; ++index)
    acquired.push_back(start_acquire("k" + std::to_string(index), 60s));
  await_all(acquired);
  for (const auto& one : acquired) must_have(one.outcome());
  assert_int_equal(key_count(), 3 * ten_thousand);
  std::vector<started_bool> released;
  for (const auto& one : acquired) released.push_back(start_release(must_have(one.outcome()).id));
  await_all(released);
  for (const auto& one : released) assert_true(must(one.outcome()));
  assert_int_equal(key_count(), ten_thousand);
}

void ten_thousand_lookups_of_one_turn_complete(void**) {
  hold("k7");
  std::vector<started_lookup> all;
  for (int index = 0; index < ten_thousand; ++index) all.push_back(start_lookup("k" + std::to_string(index)));
  await_all(all);
  for (std::size_t index = 0; index < all.size(); ++index)
    assert_int_equal(must(all[index].outcome()).has_value(), index == 7);
}

void ten_thousand_operations_of_all_kinds_of_one_turn_complete_once(void**) {
  const auto calls = std::make_shared<std::vector<int>>(ten_thousand, 0);
  for (std::size_t index = 0; index < ten_thousand; ++index) {
    start_any(all_kinds[index % 9], subject(), "k" + std::to_string(index % 1000), own_id,
              [calls, index](const error*) { ++(*calls)[index]; });
  }
  assert_int_equal(subject().stats().pending, ten_thousand);
  assert_true(run_until([] { return subject().stats().pending == 0; }));
  for (const int count : *calls) assert_int_equal(count, 1);
}

void ten_thousand_refused_operations_of_one_turn_complete(void**) {
  std::vector<started_bool> all;
  for (int index = 0; index < ten_thousand; ++index) all.push_back(start_is_locked(""));
  await_all(all);
  for (const auto& one : all) must_fail(one.outcome(), error_code::invalid_argument);
}

void queue_overflow_is_rate_limited_and_the_others_complete(void**) {
  client_options options = base_options();
  options.max_pending = 8;
  make_ready_subject(std::move(options));
  std::vector<started_acquire> all;
  for (int index = 0; index < 20; ++index) all.push_back(start_acquire("k" + std::to_string(index), 60s));
  await_all(all);
  for (std::size_t index = 0; index < all.size(); ++index) {
    if (index < 8) {
      must_have(all[index].outcome());
    } else {
      const error failure = must_fail(all[index].outcome(), error_code::rate_limited);
      assert_true(failure.retryable());
      assert_false(failure.outcome_unknown());
    }
  }
  assert_int_equal(key_count(), 24);
}

void queue_overflow_counts_what_waits_for_a_connection(void**) {
  client_options options = base_options();
  options.max_pending = 8;
  make_subject(std::move(options));
  std::vector<started_acquire> all;
  for (int index = 0; index < 10; ++index) all.push_back(start_acquire("k" + std::to_string(index), 60s));
  await_all(all);
  for (std::size_t index = 0; index < all.size(); ++index) {
    if (index < 8) must_have(all[index].outcome());
    else must_fail(all[index].outcome(), error_code::rate_limited);
  }
}

void queue_that_was_full_takes_operations_again(void**) {
  client_options options = base_options();
  options.max_pending = 4;
  make_ready_subject(std::move(options));
  for (int round = 0; round < 5; ++round) {
    std::vector<started_bool> all;
    for (int index = 0; index < 6; ++index) all.push_back(start_is_locked("k"));
    await_all(all);
    for (std::size_t index = 0; index < 4; ++index) assert_false(must(all[index].outcome()));
  }
  assert_int_equal(subject().stats().pending, 0);
}

void queue_slot_is_free_inside_the_callback_of_its_operation(void**) {
  client_options options = base_options();
  options.max_pending = 1;
  make_ready_subject(std::move(options));
  const auto inner = std::make_shared<std::optional<bool>>();
  subject().is_locked("k", [inner](const result<bool>&) {
    subject().is_locked("k", [inner](const result<bool>& outcome) { *inner = outcome.has_value(); });
  });
  assert_true(run_until([&] { return inner->has_value(); }));
  assert_true(**inner);
}

}  // namespace

cases bulk_cases() {
  static const CMUnitTest all[] = {
      contract_case(ten_thousand_acquires_and_releases_of_one_turn_complete),
      contract_case(ten_thousand_lookups_of_one_turn_complete),
      contract_case(ten_thousand_operations_of_all_kinds_of_one_turn_complete_once),
      contract_case(ten_thousand_refused_operations_of_one_turn_complete),
      contract_case_alone(queue_overflow_is_rate_limited_and_the_others_complete),
      contract_case_alone(queue_overflow_counts_what_waits_for_a_connection),
      contract_case_alone(queue_that_was_full_takes_operations_again),
      contract_case_alone(queue_slot_is_free_inside_the_callback_of_its_operation),
  };
  return all;
}

}  // namespace syncguard::testing
