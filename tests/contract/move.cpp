// Moving a client takes everything along: connection, operations, handles.

#include <utility>

#include "contract/cases.hpp"
#include "contract/operations.hpp"
#include "contract/stored.hpp"

namespace syncguard::testing {

namespace {

void move_construction_takes_operations_and_handles_along(void**) {
  const auto before = start_acquire("a", 60s);
  const auto cancelled = start_acquire("b", 60s);
  subject_owner() = std::make_unique<client>(std::move(*subject_owner()));
  assert_true(subject().cancel(cancelled.handle));
  must_have(await(before));
  must_fail(await(cancelled), error_code::aborted);
  hold("c");
  assert_int_equal(subject().stats().started, 3);
  assert_int_equal(subject().stats().connects, 1);
}

void move_construction_with_operations_in_flight_completes_them(void**) {
  server().pause();
  const auto got = start_acquire("k", 60s);
  run_for(20ms);
  subject_owner() = std::make_unique<client>(std::move(*subject_owner()));
  server().resume();
  must_have(await(got));
}

void move_assignment_destroys_the_target_and_silences_it(void**) {
  auto& source = rival();
  const auto silenced = start_acquire("a", 60s);
  const auto kept = start_acquire("b", 60s, source);
  subject() = std::move(source);
  must_have(await(kept));
  run_for(5ms);
  assert_false(silenced.done());
  assert_int_equal(silenced.got.use_count(), 1);
  assert_true(is_connected("rival"));
  assert_true(run_until([] { return !is_connected("syncguard"); }));
  hold("c");
}

void move_inside_a_callback_is_legal(void**) {
  const auto moved = std::make_shared<bool>(false);
  subject().is_locked("k", [moved](const result<bool>&) {
    subject_owner() = std::make_unique<client>(std::move(*subject_owner()));
    *moved = true;
  });
  const auto other = start_is_locked("k");
  assert_true(run_until([&] { return *moved; }));
  must(await(other));
  hold("k");
}

}  // namespace

cases move_cases() {
  static const CMUnitTest all[] = {
      contract_case(move_construction_takes_operations_and_handles_along),
      contract_case(move_construction_with_operations_in_flight_completes_them),
      contract_case(move_assignment_destroys_the_target_and_silences_it),
      contract_case(move_inside_a_callback_is_legal),
  };
  return all;
}

}  // namespace syncguard::testing
