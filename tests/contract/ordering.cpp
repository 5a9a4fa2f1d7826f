// Order: mutations apply as they were started, within and across batches, and a read sees those before it.

#include <string>

#include "contract/cases.hpp"
#include "contract/operations.hpp"
#include "contract/stored.hpp"

namespace syncguard::testing {

namespace {

std::string name(std::string_view stem, int index) { return std::string{stem} + std::to_string(index); }

void release_then_acquire_in_one_turn_is_granted(void**) {
  const grant got = hold("k");
  const auto released = start_release(got.id);
  const auto acquired = start_acquire("k", 60s);
  assert_true(must(await(released)));
  assert_int_equal(must_have(await(acquired)).fence.number(), 2);
}

void acquire_release_acquire_in_one_turn_have_known_outcomes(void**) {
  const grant got = hold("k");
  const auto too_early = start_acquire("k", 60s);
  const auto released = start_release(got.id);
  const auto in_time = start_acquire("k", 60s);
  const auto too_late = start_acquire("k", 60s);
  assert_false(must(await(too_early)).has_value());
  assert_true(must(await(released)));
  assert_true(must(await(in_time)).has_value());
  assert_false(must(await(too_late)).has_value());
}

void extend_release_extend_in_one_turn_have_known_outcomes(void**) {
  const grant got = hold("k");
  const auto before = start_extend(got.id, 30s);
  const auto released = start_release(got.id);
  const auto after = start_extend(got.id, 30s);
  assert_true(must(await(before)).has_value());
  assert_true(must(await(released)));
  assert_false(must(await(after)).has_value());
  assert_int_equal(key_count(), 1);
}

void last_extension_of_one_turn_wins(void**) {
  const grant got = hold("k", 60s);
  std::vector<started_extend> all;
  for (int seconds = 100; seconds >= 20; --seconds) all.push_back(start_extend(got.id, std::chrono::seconds{seconds}));
  await_all(all);
  assert_true(pttl(lock_key("k")) <= 20'000);
  assert_true(must_have(await_lookup("k")).expires_at == must_have(all.back().outcome()));
}

void first_of_many_acquires_of_one_key_is_granted(void**) {
  std::vector<started_acquire> all;
  for (int index = 0; index < 100; ++index) all.push_back(start_acquire("k", 60s));
  await_all(all);
  for (std::size_t index = 0; index < all.size(); ++index)
    assert_int_equal(must(all[index].outcome()).has_value(), index == 0);
}

// A release as the last of one batch and an acquire as the first of the next, and every shift around that.
void release_then_acquire_across_the_edge_of_a_batch_is_granted(void**) {
  for (int fillers = 29; fillers <= 34; ++fillers) {
    const grant got = hold("k");
    std::vector<started_bool> filling;
    for (int index = 0; index < fillers; ++index) filling.push_back(start_release(own_id));
    const auto too_early = start_acquire("k", 60s);
    const auto released = start_release(got.id);
    const auto in_time = start_acquire("k", 60s);
    assert_false(must(await(too_early)).has_value());
    assert_true(must(await(released)));
    const grant next = must_have(await(in_time));
    await_all(filling);
    assert_true(must(await_release(next.id)));
  }
}

void release_and_acquire_of_two_hundred_keys_in_one_turn_keep_their_order(void**) {
  std::vector<started_acquire> held;
  for (int index = 0; index < 200; ++index) held.push_back(start_acquire(name("k", index), 60s));
  await_all(held);
  std::vector<started_bool> released;
  std::vector<started_acquire> again;
  for (int index = 0; index < 200; ++index) {
    released.push_back(start_release(must_have(held[static_cast<std::size_t>(index)].outcome()).id));
    again.push_back(start_acquire(name("k", index), 60s));
  }
  await_all(released);
  await_all(again);
  for (std::size_t index = 0; index < 200; ++index) {
    assert_true(must(released[index].outcome()));
    assert_int_equal(must_have(again[index].outcome()).fence.number(), 2);
  }
}

void mutations_of_several_turns_keep_their_order(void**) {
  grant holder = hold("k");
  for (int round = 0; round < 20; ++round) {
    const auto released = start_release(holder.id);
    turn();
    const auto acquired = start_acquire("k", 60s);
    turn();
    const auto refused = start_acquire("k", 60s);
    assert_true(must(await(released)));
    holder = must_have(await(acquired));
    assert_false(must(await(refused)).has_value());
  }
  assert_int_equal(holder.fence.number(), 21);
}

void reads_see_an_acquire_of_the_same_turn(void**) {
  const auto acquired = start_acquire("k", 60s);
  const auto locked = start_is_locked("k");
  const auto found = start_lookup_raw("k");
  assert_true(must(await(locked)));
  assert_text_equal(must_have(await(found)).id(), must_have(await(acquired)).id);
}

void reads_see_a_release_of_the_same_turn(void**) {
  const grant got = hold("k");
  const auto released = start_release(got.id);
  const auto locked = start_is_locked("k");
  const auto by_key = start_lookup("k");
  const auto by_id = start_lookup_by_id(got.id);
  const auto owned = start_owns(got.id);
  assert_true(must(await(released)));
  assert_false(must(await(locked)));
  assert_false(must(await(by_key)).has_value());
  assert_false(must(await(by_id)).has_value());
  assert_false(must(await(owned)));
}

void reads_see_an_extension_of_the_same_turn(void**) {
  const grant got = hold("k", 60s);
  const auto extended = start_extend(got.id, 500s);
  const auto by_key = start_lookup("k");
  const auto by_id = start_lookup_by_id(got.id);
  const auto expiry = must_have(await(extended));
  assert_true(must_have(await(by_key)).expires_at == expiry);
  assert_true(must_have(await(by_id)).expires_at == expiry);
}

void reads_see_the_last_of_many_batches_before_them(void**) {
  std::vector<started_acquire> acquired;
  for (int index = 0; index < 100; ++index) acquired.push_back(start_acquire(name("k", index), 60s));
  std::vector<started_bool> locked;
  for (int index = 0; index < 100; ++index) locked.push_back(start_is_locked(name("k", index)));
  await_all(locked);
  await_all(acquired);
  for (const auto& one : locked) assert_true(must(one.outcome()));
}

void reads_between_mutations_see_those_before_them(void**) {
  std::vector<started_acquire> acquired;
  std::vector<started_lookup> looked;
  for (int index = 0; index < 100; ++index) {
    acquired.push_back(start_acquire(name("k", index), 60s));
    looked.push_back(start_lookup(name("k", index)));
  }
  await_all(acquired);
  await_all(looked);
  for (std::size_t index = 0; index < looked.size(); ++index)
    assert_true(must_have(looked[index].outcome()).fence == must_have(acquired[index].outcome()).fence);
}

// Started while the batch before is still under way.
void reads_of_the_next_turn_see_mutations_of_the_last(void**) {
  for (int round = 0; round < 20; ++round) {
    const auto acquired = start_acquire(name("k", round), 60s);
    turn();
    const auto locked = start_is_locked(name("k", round));
    assert_true(must(await(locked)));
    must_have(await(acquired));
  }
}

void fences_of_one_key_increase_in_the_order_of_their_acquires(void**) {
  std::uint64_t last = 0;
  grant holder = hold("k");
  for (int round = 0; round < 50; ++round) {
    const auto released = start_release(holder.id);
    const auto acquired = start_acquire("k", 60s);
    holder = must_have(await(acquired));
    assert_true(must(await(released)));
    assert_true(holder.fence.number() > last);
    last = holder.fence.number();
  }
}

}  // namespace

cases ordering_cases() {
  static const CMUnitTest all[] = {
      contract_case(release_then_acquire_in_one_turn_is_granted),
      contract_case(acquire_release_acquire_in_one_turn_have_known_outcomes),
      contract_case(extend_release_extend_in_one_turn_have_known_outcomes),
      contract_case(last_extension_of_one_turn_wins),
      contract_case(first_of_many_acquires_of_one_key_is_granted),
      contract_case(release_then_acquire_across_the_edge_of_a_batch_is_granted),
      contract_case(release_and_acquire_of_two_hundred_keys_in_one_turn_keep_their_order),
      contract_case(mutations_of_several_turns_keep_their_order),
      contract_case(reads_see_an_acquire_of_the_same_turn),
      contract_case(reads_see_a_release_of_the_same_turn),
      contract_case(reads_see_an_extension_of_the_same_turn),
      contract_case(reads_see_the_last_of_many_batches_before_them),
      contract_case(reads_between_mutations_see_those_before_them),
      contract_case(reads_of_the_next_turn_see_mutations_of_the_last),
      contract_case(fences_of_one_key_increase_in_the_order_of_their_acquires),
  };
  return all;
}

}  // namespace syncguard::testing
