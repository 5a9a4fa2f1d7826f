// cancel: before sending nothing happens; after sending the outcome is unknown and a lock is given back.

#include <string>

#include "contract/cases.hpp"
#include "contract/operations.hpp"
#include "contract/stored.hpp"

namespace syncguard::testing {

namespace {

void cancel_before_sending_aborts_every_kind_and_sends_nothing(void**) {
  for (const kind which : all_kinds) {
    struct end {
      int calls = 0;
      std::optional<error> failure;
    };
    const auto seen = std::make_shared<end>();
    const long long before = commands_processed();
    const auto handle = start_any(which, subject(), "k", own_id, [seen](const error* failure) {
      ++seen->calls;
      if (failure != nullptr) seen->failure = *failure;
    });
    assert_true(subject().cancel(handle));
    assert_int_equal(seen->calls, 0);
    assert_true(run_until([&] { return seen->calls > 0; }));
    run_for(2ms);
    assert_int_equal(seen->calls, 1);
    assert_true(seen->failure.has_value() && seen->failure->code() == error_code::aborted);
    assert_false(seen->failure->outcome_unknown());
    assert_int_equal(commands_processed() - before, 1);
  }
  assert_int_equal(key_count(), 0);
}

void cancel_needs_no_answer_of_the_server(void**) {
  server().pause();
  const auto got = start_acquire("k", 60s);
  assert_true(subject().cancel(got.handle));
  must_fail(await(got), error_code::aborted);
}

void cancel_of_one_leaves_the_others_of_its_turn(void**) {
  std::vector<started_acquire> all;
  for (int index = 0; index < 20; ++index) all.push_back(start_acquire("k" + std::to_string(index), 60s));
  assert_true(subject().cancel(all[7].handle));
  await_all(all);
  for (std::size_t index = 0; index < all.size(); ++index) {
    if (index == 7) must_fail(all[index].outcome(), error_code::aborted);
    else must_have(all[index].outcome());
  }
  assert_false(exists(lock_key("k7")));
  assert_false(exists(fence_key("k7")));
}

void cancel_of_all_of_a_turn_sends_nothing(void**) {
  const long long before = commands_processed();
  std::vector<started_acquire> all;
  for (int index = 0; index < 20; ++index) all.push_back(start_acquire("k" + std::to_string(index), 60s));
  for (const auto& one : all) assert_true(subject().cancel(one.handle));
  await_all(all);
  run_for(2ms);
  assert_int_equal(commands_processed() - before, 1);
}

void cancel_twice_is_harmless(void**) {
  const auto got = start_acquire("k", 60s);
  assert_true(subject().cancel(got.handle));
  subject().cancel(got.handle);
  must_fail(await(got), error_code::aborted);
  assert_false(subject().cancel(got.handle));
  run_for(2ms);
  assert_int_equal(got.got->calls, 1);
}

void cancel_of_a_completed_operation_does_nothing(void**) {
  const auto got = start_acquire("k", 60s);
  const grant held = must_have(await(got));
  assert_false(subject().cancel(got.handle));
  run_for(2ms);
  assert_true(must(await_owns(held.id)));
}

void cancel_of_a_default_handle_does_nothing(void**) {
  assert_false(subject().cancel({}));
  assert_false(subject().cancel({0, 0}));
  assert_false(subject().cancel({12'345, 678}));
}

void cancel_with_an_old_handle_leaves_the_next_operation_alone(void**) {
  const auto old = start_is_locked("k");
  must(await(old));
  for (int index = 0; index < 10; ++index) {
    const auto next = start_is_locked("k");
    assert_false(subject().cancel(old.handle));
    must(await(next));
  }
}

void cancel_of_a_refused_operation_completes_it_once(void**) {
  const auto got = start_acquire("", 60s);
  subject().cancel(got.handle);
  assert_false(await(got).has_value());
  run_for(2ms);
  assert_int_equal(got.got->calls, 1);
}

void cancel_after_sending_is_unknown_and_gives_the_lock_back(void**) {
  server().pause();
  const auto got = start_acquire("k", 60s);
  run_for(30ms);
  assert_true(subject().cancel(got.handle));
  const error failure = must_fail(await(got), error_code::aborted);
  assert_true(failure.outcome_unknown());
  server().resume();
  assert_true(run_until([] { return exists(fence_key("k")) && !exists(lock_key("k")); }));
  assert_int_equal(key_count(), 1);
  hold("k");
}

void cancel_after_sending_leaves_the_lock_of_another_holder(void**) {
  const grant theirs = hold("k", 60s, rival());
  server().pause();
  const auto got = start_acquire("k", 60s);
  run_for(30ms);
  assert_true(subject().cancel(got.handle));
  must_fail(await(got), error_code::aborted);
  server().resume();
  assert_false(must(await_acquire("k", 60s)).has_value());
  run_for(20ms);
  assert_true(must(await_owns(theirs.id)));
}

void cancel_of_one_in_a_sent_batch_leaves_the_others(void**) {
  server().pause();
  std::vector<started_acquire> all;
  for (int index = 0; index < 32; ++index) all.push_back(start_acquire("k" + std::to_string(index), 60s));
  run_for(30ms);
  assert_true(subject().cancel(all[7].handle));
  must_fail(await(all[7]), error_code::aborted);
  server().resume();
  await_all(all);
  for (std::size_t index = 0; index < all.size(); ++index)
    if (index != 7) must_have(all[index].outcome());
  assert_true(run_until([] { return !exists(lock_key("k7")); }));
}

void cancel_of_a_sent_release_is_unknown(void**) {
  const grant got = hold("k");
  server().pause();
  const auto released = start_release(got.id);
  run_for(30ms);
  assert_true(subject().cancel(released.handle));
  assert_true(must_fail(await(released), error_code::aborted).outcome_unknown());
  server().resume();
  assert_true(run_until([] { return !exists(lock_key("k")); }));
}

void cancel_of_sent_reads_completes_them(void**) {
  server().pause();
  const auto looked = start_lookup("k");
  const auto owned = start_owns(own_id);
  run_for(30ms);
  assert_true(subject().cancel(looked.handle));
  assert_true(subject().cancel(owned.handle));
  must_fail(await(looked), error_code::aborted);
  must_fail(await(owned), error_code::aborted);
  server().resume();
  hold("k");
}

void cancel_without_a_connection_changes_nothing_later(void**) {
  server().kill_hard();
  assert_true(run_until([] { return subject().state() == connection_state::connecting; }));
  const auto got = start_acquire("k", 60s);
  run_for(30ms);
  assert_true(subject().cancel(got.handle));
  assert_false(must_fail(await(got), error_code::aborted).outcome_unknown());
  assert_true(server().start());
  hold("other");
  assert_false(exists(fence_key("k")));
}

}  // namespace

cases cancel_cases() {
  static const CMUnitTest all[] = {
      contract_case(cancel_before_sending_aborts_every_kind_and_sends_nothing),
      contract_case(cancel_needs_no_answer_of_the_server),
      contract_case(cancel_of_one_leaves_the_others_of_its_turn),
      contract_case(cancel_of_all_of_a_turn_sends_nothing),
      contract_case(cancel_twice_is_harmless),
      contract_case(cancel_of_a_completed_operation_does_nothing),
      contract_case(cancel_of_a_default_handle_does_nothing),
      contract_case(cancel_with_an_old_handle_leaves_the_next_operation_alone),
      contract_case(cancel_of_a_refused_operation_completes_it_once),
      contract_case(cancel_after_sending_is_unknown_and_gives_the_lock_back),
      contract_case(cancel_after_sending_leaves_the_lock_of_another_holder),
      contract_case(cancel_of_one_in_a_sent_batch_leaves_the_others),
      contract_case(cancel_of_a_sent_release_is_unknown),
      contract_case(cancel_of_sent_reads_completes_them),
      contract_case(cancel_without_a_connection_changes_nothing_later),
  };
  return all;
}

}  // namespace syncguard::testing
