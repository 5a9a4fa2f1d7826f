// A record counts as held until a second after its expiry, by the server's clock, for every operation alike.

#include "contract/cases.hpp"
#include "contract/operations.hpp"
#include "contract/stored.hpp"

namespace syncguard::testing {

namespace {

// Far enough from the bound of 1000 ms for a slow machine.
constexpr auto within = -200ms;
constexpr auto beyond = -1100ms;

void acquire_within_the_tolerance_is_contended(void**) {
  store_expiring(own_id, within);
  assert_false(must(await_acquire("k", 60s)).has_value());
}

void acquire_beyond_the_tolerance_is_granted(void**) {
  store_expiring(own_id, beyond);
  hold("k");
}

void release_within_the_tolerance_is_done(void**) {
  store_expiring(own_id, within);
  assert_true(must(await_release(own_id)));
}

void extend_within_the_tolerance_is_done(void**) {
  store_expiring(own_id, within);
  must_have(await_extend(own_id, 60s));
  assert_true(must(await_owns(own_id)));
}

void extend_beyond_the_tolerance_does_not_bring_it_back(void**) {
  store_expiring(own_id, beyond);
  assert_false(must(await_extend(own_id, 60s)).has_value());
  assert_false(must(await_is_locked("k")));
}

void reads_within_the_tolerance_see_it(void**) {
  store_expiring(own_id, within);
  const auto locked = start_is_locked("k");
  const auto by_key = start_lookup("k");
  const auto by_id = start_lookup_by_id(own_id);
  const auto owned = start_owns(own_id);
  assert_true(must(await(locked)));
  assert_true(must(await(by_key)).has_value());
  assert_true(must(await(by_id)).has_value());
  assert_true(must(await(owned)));
}

void reads_beyond_the_tolerance_do_not_see_it(void**) {
  store_expiring(own_id, beyond);
  assert_false(must(await_is_locked("k")));
  assert_false(must(await_lookup("k")).has_value());
  assert_false(must(await_lookup_by_id(own_id)).has_value());
  assert_false(must(await_owns(own_id)));
}

void record_that_expires_far_in_the_future_is_held(void**) {
  store(own_id, record_of(own_id, 9'007'199'254'740'991));
  assert_false(must(await_acquire("k", 60s)).has_value());
  assert_true(must(await_is_locked("k")));
}

void record_that_expired_long_ago_is_taken_over(void**) {
  store(own_id, record_of(own_id, 1));
  hold("k");
}

}  // namespace

cases liveness_cases() {
  static const CMUnitTest all[] = {
      contract_case(acquire_within_the_tolerance_is_contended),
      contract_case(acquire_beyond_the_tolerance_is_granted),
      contract_case(release_within_the_tolerance_is_done),
      contract_case(extend_within_the_tolerance_is_done),
      contract_case(extend_beyond_the_tolerance_does_not_bring_it_back),
      contract_case(reads_within_the_tolerance_see_it),
      contract_case(reads_beyond_the_tolerance_do_not_see_it),
      contract_case(record_that_expires_far_in_the_future_is_held),
      contract_case(record_that_expired_long_ago_is_taken_over),
  };
  return all;
}

}  // namespace syncguard::testing
