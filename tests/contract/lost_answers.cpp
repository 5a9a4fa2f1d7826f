// Mutations that took effect and whose answers were lost with the connection.
//
// How an answer is lost for sure: the server may keep only little output for a client, and a read of much more travels
// behind the mutation. Redis runs both, then closes the connection without having written anything.

#include <string>

#include "contract/cases.hpp"
#include "contract/operations.hpp"
#include "contract/stored.hpp"

namespace syncguard::testing {

namespace {

void limit_output(bool limited) {
  assert_true(server().config_set("client-output-buffer-limit", limited ? "normal 1024 0 0" : "normal 0 0 0"));
}

void prepare_to_lose_answers() {
  redis({"SET", lock_key("big"), std::string(1 << 20, 'x'), "PX", "60000"});
  limit_output(true);
}

// Whatever was started before in this turn reaches the server, and its answer does not come back.
void lose_the_answers() {
  subject().lookup("big", {});
  assert_true(run_until([] { return subject().state() == connection_state::connecting; }));
  limit_output(false);
}

void acquire_whose_answer_was_lost_is_granted_under_the_same_id(void**) {
  prepare_to_lose_answers();
  const auto acquired = start_acquire("k", 60s);
  lose_the_answers();
  const std::string record = text_at(lock_key("k"));
  assert_false(record.empty());  // it did take effect
  const grant got = must_have(await(acquired));
  assert_int_equal(got.fence.number(), 1);
  assert_text_equal(text_at(fence_key("k")), "1");
  assert_text_equal(text_at(lock_key("k")), record);
  assert_true(record.find(got.id.view()) != std::string::npos);
  assert_true(record.find(std::to_string(to_ms(got.expires_at))) != std::string::npos);
}

void acquire_whose_answer_was_lost_keeps_its_place_before_later_ones(void**) {
  prepare_to_lose_answers();
  const auto first = start_acquire("k", 60s);
  const auto second = start_acquire("k", 60s);
  lose_the_answers();
  const auto third = start_acquire("k", 60s);
  must_have(await(first));
  assert_false(must(await(second)).has_value());
  assert_false(must(await(third)).has_value());
}

void acquire_given_up_after_its_answer_was_lost_is_released(void**) {
  prepare_to_lose_answers();
  const auto acquired = start_acquire("k", 60s);
  lose_the_answers();
  assert_true(exists(lock_key("k")));
  assert_true(subject().cancel(acquired.handle));
  assert_true(must_fail(await(acquired), error_code::aborted).outcome_unknown());
  assert_true(run_until([] { return !exists(lock_key("k")); }));
  assert_text_equal(text_at(fence_key("k")), "1");
}

void acquire_timed_out_after_its_answer_was_lost_is_released(void**) {
  client_options options = base_options();
  options.timeout = 500ms;
  make_ready_subject(std::move(options));
  prepare_to_lose_answers();
  const auto acquired = start_acquire("k", 60s);
  lose_the_answers();
  assert_true(exists(lock_key("k")));
  server().pause();  // before the loop has turned, so nothing was sent again
  const auto outcome = await(acquired);
  assert_false(outcome.has_value());
  assert_true(outcome.error().outcome_unknown());
  server().resume();
  assert_true(run_until([] { return !exists(lock_key("k")); }));
}

// False would be a lie: it was held, and this call may be what released it.
void release_whose_answer_was_lost_is_never_told_as_not_held(void**) {
  const grant got = hold("k");
  prepare_to_lose_answers();
  const auto released = start_release(got.id);
  lose_the_answers();
  assert_false(exists(lock_key("k")));
  const auto outcome = await(released);
  assert_true(outcome ? *outcome : outcome.error().outcome_unknown());
}

void release_whose_answer_was_lost_leaves_the_next_holders_lock(void**) {
  const grant got = hold("k");
  rival();
  prepare_to_lose_answers();
  const auto released = start_release(got.id);
  lose_the_answers();
  const grant theirs = hold("k", 60s, rival());
  const auto outcome = await(released);
  assert_true(outcome ? *outcome : outcome.error().outcome_unknown());
  assert_true(must(await_owns(theirs.id)));
}

void extend_whose_answer_was_lost_is_extended(void**) {
  const grant got = hold("k", 10s);
  prepare_to_lose_answers();
  const auto extended = start_extend(got.id, 60s);
  lose_the_answers();
  assert_true(pttl(lock_key("k")) > 50'000);
  const auto expiry = must_have(await(extended));
  assert_true(must_have(await_lookup("k")).expires_at == expiry);
}

void batch_whose_answers_were_lost_is_granted_once(void**) {
  prepare_to_lose_answers();
  std::vector<started_acquire> all;
  for (int index = 0; index < 100; ++index) all.push_back(start_acquire("k" + std::to_string(index), 60s));
  lose_the_answers();
  await_all(all);
  for (int index = 0; index < 100; ++index) {
    const grant got = must_have(all[static_cast<std::size_t>(index)].outcome());
    assert_int_equal(got.fence.number(), 1);
    assert_text_equal(text_at(fence_key("k" + std::to_string(index))), "1");
  }
}

}  // namespace

cases lost_answer_cases() {
  static const CMUnitTest all[] = {
      contract_case(acquire_whose_answer_was_lost_is_granted_under_the_same_id),
      contract_case(acquire_whose_answer_was_lost_keeps_its_place_before_later_ones),
      contract_case(acquire_given_up_after_its_answer_was_lost_is_released),
      contract_case_alone(acquire_timed_out_after_its_answer_was_lost_is_released),
      contract_case(release_whose_answer_was_lost_is_never_told_as_not_held),
      contract_case(release_whose_answer_was_lost_leaves_the_next_holders_lock),
      contract_case(extend_whose_answer_was_lost_is_extended),
      contract_case(batch_whose_answers_were_lost_is_granted_once),
  };
  return all;
}

}  // namespace syncguard::testing
