// owns: whether a live lock is held under an id.

#include "contract/cases.hpp"
#include "contract/operations.hpp"
#include "contract/stored.hpp"

namespace syncguard::testing {

namespace {

void owns_held_id_is_true(void**) {
  const grant got = hold("k");
  assert_true(must(await_owns(got.id)));
}

void owns_an_id_that_another_client_acquired_is_true(void**) {
  const grant got = hold("k", 60s, rival());
  assert_true(must(await_owns(got.id)));
}

void owns_unknown_id_is_false(void**) { assert_false(must(await_owns(own_id))); }

void owns_released_id_is_false(void**) {
  const grant got = hold("k");
  assert_true(must(await_release(got.id)));
  assert_false(must(await_owns(got.id)));
}

void owns_id_that_redis_expired_is_false(void**) {
  const grant got = hold("k", 20ms);
  assert_true(run_until([] { return !exists(lock_key("k")); }));
  assert_false(must(await_owns(got.id)));
}

void owns_with_the_index_at_another_owners_record_is_false(void**) {
  store(own_id, record_of(other_id, server_now_ms() + 60'000));
  assert_false(must(await_owns(own_id)));
}

void owns_changes_nothing(void**) {
  store_expiring(own_id, -10s);
  assert_false(must(await_owns(own_id)));
  assert_int_equal(key_count(), 2);
}

}  // namespace

cases owns_cases() {
  static const CMUnitTest all[] = {
      contract_case(owns_held_id_is_true),
      contract_case(owns_an_id_that_another_client_acquired_is_true),
      contract_case(owns_unknown_id_is_false),
      contract_case(owns_released_id_is_false),
      contract_case(owns_id_that_redis_expired_is_false),
      contract_case(owns_with_the_index_at_another_owners_record_is_false),
      contract_case(owns_changes_nothing),
  };
  return all;
}

}  // namespace syncguard::testing
