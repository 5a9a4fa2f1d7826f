#include "engine/place_table.hpp"

#include <cstdint>
#include <vector>

#include "support/cmocka.hpp"

namespace {

struct thing {
  std::uint64_t place = 0;
  thing* next_at_place = nullptr;
  int number = 0;
};
using table = syncguard::engine::place_table<thing>;

constexpr auto any = [](const thing&) { return true; };

std::vector<thing> things(int count, std::uint64_t stride) {
  std::vector<thing> made(static_cast<std::size_t>(count));
  for (int number = 0; number < count; ++number) {
    made[static_cast<std::size_t>(number)].number = number;
    made[static_cast<std::size_t>(number)].place = static_cast<std::uint64_t>(number) * stride;
  }
  return made;
}

void empty_table_finds_nothing(void**) {
  table empty;
  assert_null(empty.find(0, any));
  assert_int_equal(empty.size(), 0);
  int visited = 0;
  empty.for_each([&](const thing&) { ++visited; });
  assert_int_equal(visited, 0);
}

void things_are_found_as_the_table_grows(void**) {
  for (const std::uint64_t stride : {std::uint64_t{1}, std::uint64_t{64}, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    auto all = things(1000, stride);
    table places;
    for (thing& each : all) {
      places.insert(each);
      if (places.find(each.place, any) != &each) fail();
    }
    assert_int_equal(places.size(), 1000);
    for (thing& each : all)
      if (places.find(each.place, any) != &each) fail();
  }
}

void things_at_one_place_are_all_visited_until_one_is_right(void**) {
  auto all = things(300, 0);
  for (thing& each : all) each.place = 42;
  table places;
  for (thing& each : all) places.insert(each);
  int visited = 0;
  assert_null(places.find(42, [&](const thing&) { return ++visited, false; }));
  assert_int_equal(visited, 300);
  assert_ptr_equal(places.find(42, [](const thing& each) { return each.number == 7; }), &all[7]);
  assert_null(places.find(42 + 64, any));
}

void removed_thing_is_not_found_and_can_come_back(void**) {
  auto all = things(200, 1);
  table places;
  for (thing& each : all) places.insert(each);
  for (std::size_t index = 0; index < all.size(); index += 2) places.remove(all[index]);
  assert_int_equal(places.size(), 100);
  for (const thing& each : all)
    if ((places.find(each.place, any) != nullptr) != (each.number % 2 == 1)) fail();
  assert_null(all[0].next_at_place);
  all[0].place = 1;
  places.insert(all[0]);
  int found = 0;
  places.find(1, [&](const thing&) { return ++found, false; });
  assert_int_equal(found, 2);
}

void each_thing_is_visited_once(void**) {
  auto all = things(777, 3);
  table places;
  for (thing& each : all) places.insert(each);
  std::vector<int> visits(all.size());
  places.for_each([&](const thing& each) { ++visits[static_cast<std::size_t>(each.number)]; });
  for (const int count : visits) assert_int_equal(count, 1);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(empty_table_finds_nothing),
      cmocka_unit_test(things_are_found_as_the_table_grows),
      cmocka_unit_test(things_at_one_place_are_all_visited_until_one_is_right),
      cmocka_unit_test(removed_thing_is_not_found_and_can_come_back),
      cmocka_unit_test(each_thing_is_visited_once),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
