#include "engine/slot_pool.hpp"

#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "support/allocation_counter.hpp"
#include "support/cmocka.hpp"

namespace {

struct thing {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  thing* next = nullptr;
  bool used = false;
  int value = 0;

  bool in_use() const noexcept { return used; }
  void clear() noexcept {
    used = false;
    value = 0;
    next = nullptr;
  }
};
using pool = syncguard::engine::slot_pool<thing>;

thing& take(pool& from) {
  thing* taken = from.take();
  taken->used = true;
  return *taken;
}

void empty_pool_finds_nothing(void**) {
  pool empty;
  assert_null(empty.find(0, 0));
  assert_null(empty.find(std::numeric_limits<std::uint32_t>::max(), 0));
  assert_null(empty.at(0));
}

void slot_is_found_by_its_name_while_in_use(void**) {
  pool slots;
  thing& taken = take(slots);
  const std::uint32_t generation = taken.generation;
  assert_ptr_equal(slots.find(taken.slot, generation), &taken);
  assert_null(slots.find(taken.slot, generation + 1));
  assert_null(slots.find(taken.slot + 1, 0));  // there, and free
  assert_null(slots.find(1'000'000, 0));
  slots.give_back(taken);
  assert_null(slots.find(taken.slot, generation));
  assert_null(slots.find(taken.slot, taken.generation));
}

void stale_name_does_not_find_the_next_user(void**) {
  pool slots;
  thing& first = take(slots);
  const std::uint32_t old = first.generation;
  first.value = 7;
  slots.give_back(first);
  thing& second = take(slots);
  assert_ptr_equal(&second, &first);
  assert_int_equal(second.value, 0);
  assert_null(second.next);
  assert_null(slots.find(second.slot, old));
  assert_ptr_equal(slots.find(second.slot, second.generation), &second);
}

void renamed_slot_stays_in_use(void**) {
  pool slots;
  thing& taken = take(slots);
  const std::uint32_t old = taken.generation;
  pool::rename(taken);
  assert_null(slots.find(taken.slot, old));
  assert_ptr_equal(slots.find(taken.slot, taken.generation), &taken);
}

void slots_are_distinct_and_stay_where_they_are(void**) {
  pool slots;
  std::vector<thing*> taken;
  std::set<std::uint32_t> names;
  for (int index = 0; index < 2000; ++index) {
    taken.push_back(&take(slots));
    names.insert(taken.back()->slot);
  }
  assert_int_equal(names.size(), 2000);
  for (thing* each : taken)
    if (slots.find(each->slot, each->generation) != each || slots.at(each->slot) != each) fail();
  std::size_t seen = 0;
  for (std::size_t index = 0; const thing* each = slots.at(index); ++index) seen += each->in_use() ? 1U : 0U;
  assert_int_equal(seen, 2000);
}

void generation_may_run_over(void**) {
  pool slots;
  thing& taken = take(slots);
  taken.generation = std::numeric_limits<std::uint32_t>::max();
  slots.give_back(taken);
  assert_int_equal(taken.generation, 0);
  assert_ptr_equal(&take(slots), &taken);
}

void pool_allocates_only_for_more_than_ever_before(void**) {
  using syncguard::testing::allocation_counter;
  pool slots;
  std::vector<thing*> taken;
  for (int index = 0; index < 600; ++index) taken.push_back(&take(slots));
  for (thing* each : taken) slots.give_back(*each);
  const allocation_counter counter;
  for (thing*& each : taken) each = &take(slots);
  for (thing* each : taken) slots.give_back(*each);
  if (allocation_counter::available()) assert_int_equal(counter.count(), 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(empty_pool_finds_nothing),
      cmocka_unit_test(slot_is_found_by_its_name_while_in_use),
      cmocka_unit_test(stale_name_does_not_find_the_next_user),
      cmocka_unit_test(renamed_slot_stays_in_use),
      cmocka_unit_test(slots_are_distinct_and_stay_where_they_are),
      cmocka_unit_test(generation_may_run_over),
      cmocka_unit_test(pool_allocates_only_for_more_than_ever_before),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
