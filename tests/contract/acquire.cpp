// acquire: one attempt; contention is an outcome.

#include <set>
#include <string>

#include "contract/cases.hpp"
#include "contract/operations.hpp"
#include "contract/stored.hpp"

namespace syncguard::testing {

namespace {

void acquire_free_key_grants(void**) {
  const grant got = hold("k", 10s);
  assert_true(lock_id::is_valid(got.id.view()));
  assert_int_equal(got.fence.number(), 1);
}

void acquire_held_by_another_client_is_contended(void**) {
  hold("k", 10s, rival());
  assert_false(must(await_acquire("k", 10s)).has_value());
}

void acquire_held_by_the_same_client_is_contended(void**) {
  hold("k");
  assert_false(must(await_acquire("k", 10s)).has_value());
}

void acquire_contended_changes_nothing(void**) {
  hold("k", 10s, rival());
  const std::string before = text_at(lock_key("k"));
  assert_false(must(await_acquire("k", 60s)).has_value());
  assert_text_equal(text_at(lock_key("k")), before);
  assert_true(pttl(lock_key("k")) <= 10'000);
  assert_text_equal(text_at(fence_key("k")), "1");
  assert_int_equal(key_count(), 3);
}

void acquire_after_release_grants_again(void**) {
  const grant first = hold("k");
  assert_true(must(await_release(first.id)));
  const grant second = hold("k", 60s, rival());
  assert_false(first.id == second.id);
}

void acquire_after_expiry_grants_again(void**) {
  hold("k", 30ms);
  assert_true(run_until([] { return !exists(lock_key("k")); }));
  hold("k", 60s, rival());
}

void acquire_of_many_keys_gives_each_its_own_id(void**) {
  std::set<std::string> ids;
  for (int index = 0; index < 50; ++index) ids.emplace(hold("k" + std::to_string(index)).id.view());
  assert_int_equal(ids.size(), 50);
}

void acquire_of_one_key_again_and_again_gives_fresh_ids(void**) {
  std::set<std::string> ids;
  for (int round = 0; round < 20; ++round) {
    const grant got = hold("k");
    ids.emplace(got.id.view());
    assert_true(must(await_release(got.id)));
  }
  assert_int_equal(ids.size(), 20);
}

void acquire_expiry_is_the_servers_time_plus_ttl(void**) {
  const std::int64_t before = server_now_ms();
  const grant got = hold("k", 12'345ms);
  const std::int64_t after = server_now_ms();
  assert_true(before + 12'345 <= to_ms(got.expires_at) && to_ms(got.expires_at) <= after + 12'345);
}

void acquire_with_the_shortest_ttl_is_granted(void**) {
  hold("k", 1ms);
  assert_true(run_until([] { return !exists(lock_key("k")); }));
}

void acquire_with_the_longest_ttl_is_granted(void**) {
  constexpr auto longest = std::chrono::hours{24 * 100};
  hold("k", longest);
  assert_true(pttl(lock_key("k")) > milliseconds{longest}.count() - 60'000);
}

void acquire_of_equivalent_unicode_keys_contends(void**) {
  hold("caf\u0065\u0301");
  assert_false(must(await_acquire("caf\u00e9", 10s)).has_value());
}

void acquire_of_keys_that_differ_in_case_does_not_contend(void**) {
  hold("key");
  hold("Key");
}

void acquire_of_a_key_with_zero_bytes_is_its_own_key(void**) {
  using namespace std::string_view_literals;
  hold("a\0b"sv);
  hold("a\0c"sv);
  hold("a"sv);
  assert_false(must(await_acquire("a\0b"sv, 10s)).has_value());
}

void acquire_by_two_clients_in_one_turn_is_granted_once(void**) {
  rival();
  const auto mine = start_acquire("k", 10s);
  const auto theirs = start_acquire("k", 10s, rival());
  const bool granted = must(await(mine)).has_value();
  assert_true(must(await(theirs)).has_value() != granted);
}

}  // namespace

cases acquire_cases() {
  static const CMUnitTest all[] = {
      contract_case(acquire_free_key_grants),
      contract_case(acquire_held_by_another_client_is_contended),
      contract_case(acquire_held_by_the_same_client_is_contended),
      contract_case(acquire_contended_changes_nothing),
      contract_case(acquire_after_release_grants_again),
      contract_case(acquire_after_expiry_grants_again),
      contract_case(acquire_of_many_keys_gives_each_its_own_id),
      contract_case(acquire_of_one_key_again_and_again_gives_fresh_ids),
      contract_case(acquire_expiry_is_the_servers_time_plus_ttl),
      contract_case(acquire_with_the_shortest_ttl_is_granted),
      contract_case(acquire_with_the_longest_ttl_is_granted),
      contract_case(acquire_of_equivalent_unicode_keys_contends),
      contract_case(acquire_of_keys_that_differ_in_case_does_not_contend),
      contract_case(acquire_of_a_key_with_zero_bytes_is_its_own_key),
      contract_case(acquire_by_two_clients_in_one_turn_is_granted_once),
  };
  return all;
}

}  // namespace syncguard::testing
