// A poisoned operation inside a batch fails alone.

#include <string>

#include "contract/cases.hpp"
#include "contract/operations.hpp"
#include "contract/stored.hpp"

namespace syncguard::testing {

namespace {

constexpr int batch = 32;

std::string name(int index) { return "k" + std::to_string(index); }

// A batch of acquires, of which the one at `poisoned` must fail with this code and all others be granted.
void acquire_around(int poisoned, error_code wanted) {
  const std::uint64_t batches_before = subject().stats().batches;
  std::vector<started_acquire> all;
  for (int index = 0; index < batch; ++index) all.push_back(start_acquire(name(index), 60s));
  await_all(all);
  assert_int_equal(subject().stats().batches - batches_before, 1);
  for (int index = 0; index < batch; ++index) {
    const auto& outcome = all[static_cast<std::size_t>(index)].outcome();
    if (index == poisoned) {
      assert_text_equal(must_fail(outcome, wanted).key(), name(index));
    } else {
      const grant got = must_have(outcome);
      assert_text_equal(text_at(index_key(got.id)), lock_key(name(index)));
    }
  }
  assert_false(redis({"GET", lock_key(name(poisoned))}).text.starts_with("{"));
}

void wrong_type_at_the_first_key_of_a_batch_fails_alone(void**) {
  redis({"LPUSH", lock_key(name(0)), "x"});
  acquire_around(0, error_code::invalid_argument);
}

void wrong_type_in_the_middle_of_a_batch_fails_alone(void**) {
  redis({"LPUSH", lock_key(name(13)), "x"});
  acquire_around(13, error_code::invalid_argument);
}

void wrong_type_at_the_last_key_of_a_batch_fails_alone(void**) {
  redis({"LPUSH", lock_key(name(31)), "x"});
  acquire_around(31, error_code::invalid_argument);
}

void unreadable_record_without_ttl_in_a_batch_fails_alone(void**) {
  redis({"SET", lock_key(name(7)), "nonsense"});
  acquire_around(7, error_code::internal);
}

void exhausted_fence_in_a_batch_fails_alone(void**) {
  redis({"SET", fence_key(name(7)), "900000000000000"});
  acquire_around(7, error_code::internal);
}

void fence_counter_of_a_wrong_type_in_a_batch_fails_alone(void**) {
  redis({"LPUSH", fence_key(name(7)), "x"});
  acquire_around(7, error_code::invalid_argument);
}

void release_and_extend_of_wrong_types_in_a_mixed_batch_fail_alone(void**) {
  redis({"LPUSH", index_key(own_id), "x"});
  redis({"LPUSH", lock_key("list"), "x"});
  redis({"SET", index_key(other_id), lock_key("list")});
  const grant held = hold("held");
  const auto acquired = start_acquire("a", 60s);
  const auto bad_release = start_release(own_id);
  const auto good_release = start_release(held.id);
  const auto bad_extend = start_extend(other_id, 30s);
  const auto again = start_acquire("held", 60s);
  must_have(await(acquired));
  must_fail(await(bad_release), error_code::invalid_argument);
  assert_true(must(await(good_release)));
  must_fail(await(bad_extend), error_code::invalid_argument);
  assert_int_equal(must_have(await(again)).fence.number(), 2);
}

void poisoned_operations_everywhere_leave_the_healthy_ones_alone(void**) {
  for (int index = 0; index < 96; index += 3) redis({"LPUSH", lock_key(name(index)), "x"});
  std::vector<started_acquire> all;
  for (int index = 0; index < 96; ++index) all.push_back(start_acquire(name(index), 60s));
  await_all(all);
  for (std::size_t index = 0; index < all.size(); ++index) {
    if (index % 3 == 0) must_fail(all[index].outcome(), error_code::invalid_argument);
    else must_have(all[index].outcome());
  }
}

void wrong_type_in_a_batch_of_lookups_by_id_fails_alone(void**) {
  redis({"LPUSH", index_key(own_id), "x"});
  const grant held = hold("k");
  std::vector<started_bool> all;
  for (int index = 0; index < batch; ++index) all.push_back(start_owns(index == 5 ? own_id : held.id.view()));
  await_all(all);
  for (std::size_t index = 0; index < all.size(); ++index) {
    if (index == 5) must_fail(all[index].outcome(), error_code::invalid_argument);
    else assert_true(must(all[index].outcome()));
  }
}

void wrong_type_and_unreadable_among_lookups_by_key_leave_the_others_alone(void**) {
  redis({"LPUSH", lock_key(name(3)), "x"});
  redis({"SET", lock_key(name(5)), "nonsense"});
  redis({"SET", lock_key(name(7)), "nonsense", "PX", "60000"});
  hold(name(9));
  std::vector<started_bool> all;
  for (int index = 0; index < batch; ++index) all.push_back(start_is_locked(name(index)));
  await_all(all);
  for (std::size_t index = 0; index < all.size(); ++index) {
    if (index == 3) continue;
    if (index == 5) must_fail(all[index].outcome(), error_code::internal);
    else assert_int_equal(must(all[index].outcome()), index == 7 || index == 9);
  }
}

void refused_argument_in_a_batch_fails_alone(void**) {
  std::vector<started_acquire> all;
  for (int index = 0; index < batch; ++index) all.push_back(start_acquire(index == 9 ? "fence:x" : name(index), 60s));
  await_all(all);
  for (std::size_t index = 0; index < all.size(); ++index) {
    if (index == 9) must_fail(all[index].outcome(), error_code::invalid_argument);
    else must_have(all[index].outcome());
  }
}

}  // namespace

cases poison_cases() {
  static const CMUnitTest all[] = {
      contract_case(wrong_type_at_the_first_key_of_a_batch_fails_alone),
      contract_case(wrong_type_in_the_middle_of_a_batch_fails_alone),
      contract_case(wrong_type_at_the_last_key_of_a_batch_fails_alone),
      contract_case(unreadable_record_without_ttl_in_a_batch_fails_alone),
      contract_case(exhausted_fence_in_a_batch_fails_alone),
      contract_case(fence_counter_of_a_wrong_type_in_a_batch_fails_alone),
      contract_case(release_and_extend_of_wrong_types_in_a_mixed_batch_fail_alone),
      contract_case(poisoned_operations_everywhere_leave_the_healthy_ones_alone),
      contract_case(wrong_type_in_a_batch_of_lookups_by_id_fails_alone),
      contract_case(wrong_type_and_unreadable_among_lookups_by_key_leave_the_others_alone),
      contract_case(refused_argument_in_a_batch_fails_alone),
  };
  return all;
}

}  // namespace syncguard::testing
