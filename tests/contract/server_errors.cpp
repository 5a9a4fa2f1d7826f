// Servers that are there and cannot serve: what they answer, as the caller sees it.

#include <string>

#include "contract/cases.hpp"
#include "contract/operations.hpp"
#include "contract/stored.hpp"

namespace syncguard::testing {

namespace {

client_options impatient_options() {
  client_options options = base_options();
  options.timeout = 500ms;
  return options;
}

void acquire_out_of_memory_is_rate_limited(void**) {
  assert_true(server().config_set("maxmemory", "1"));
  const error failure = must_fail(await_acquire("k", 60s), error_code::rate_limited);
  assert_true(failure.retryable());
  assert_true(server().config_set("maxmemory", "0"));
  assert_int_equal(key_count(), 0);
  hold("k");
}

void extend_release_and_reads_live_through_out_of_memory(void**) {
  const grant got = hold("k", 10s);
  assert_true(server().config_set("maxmemory", "1"));
  must_have(await_extend(got.id, 60s));
  assert_true(pttl(lock_key("k")) > 50'000);
  assert_true(pttl(index_key(got.id)) > 50'000);
  assert_true(must(await_is_locked("k")));
  assert_true(must(await_owns(got.id)));
  must_have(await_lookup("k"));
  assert_true(must(await_release(got.id)));
}

// The extension is the first of its batch to write, so an acquire beside it is the only one to be denied.
void extend_beside_an_acquire_lives_through_out_of_memory(void**) {
  const grant got = hold("k", 10s);
  assert_true(server().config_set("maxmemory", "1"));
  const auto extended = start_extend(got.id, 60s);
  const auto acquired = start_acquire("other", 60s);
  must_have(await(extended));
  const auto outcome = await(acquired);
  assert_true(outcome || outcome.error().code() == error_code::rate_limited);
  assert_true(pttl(lock_key("k")) > 50'000);
}

void acquire_with_too_few_replicas_is_unavailable(void**) {
  make_ready_subject(impatient_options());
  assert_true(server().config_set("min-replicas-to-write", "1"));
  const error failure = must_fail(await_acquire("k", 60s), error_code::service_unavailable);
  assert_true(failure.retryable());
  assert_true(server().config_set("min-replicas-to-write", "0"));
  hold("k");
}

void acquire_on_a_replica_is_unavailable(void**) {
  make_ready_subject(impatient_options());
  redis({"REPLICAOF", "127.0.0.1", "1"});
  const error failure = must_fail(await_acquire("k", 60s), error_code::service_unavailable);
  assert_true(failure.retryable());
  redis({"REPLICAOF", "NO", "ONE"});
  assert_true(run_until([] { return subject().state() == connection_state::ready; }));
  hold("k");
}

// Locked would be a wrong answer: the master that counts may say otherwise.
void acquire_of_a_held_key_on_a_replica_is_unavailable(void**) {
  hold("k", 60s, rival());
  redis({"REPLICAOF", "127.0.0.1", "1"});
  make_subject(impatient_options());
  must_fail(await_acquire("k", 60s), error_code::service_unavailable);
}

// The connection lives on when its server is made a replica; contention must not hide that for long.
void acquire_of_a_held_key_on_a_demoted_master_becomes_unavailable(void**) {
  hold("k", 60s, rival());
  make_ready_subject(impatient_options());
  redis({"REPLICAOF", "127.0.0.1", "1"});
  const auto is_unavailable = [] {
    const auto outcome = await_acquire("k", 60s);
    return !outcome && outcome.error().code() == error_code::service_unavailable;
  };
  assert_true(run_until(is_unavailable));
}

void busy_server_is_unavailable_and_recovers(void**) {
  make_ready_subject(impatient_options());
  assert_true(server().config_set("busy-reply-threshold", "10"));
  server().command({"EVAL", "while true do end", "0"}, 50ms);
  const error failure = must_fail(await_acquire("k", 60s), error_code::service_unavailable);
  assert_true(failure.retryable());
  assert_true(redis({"SCRIPT", "KILL"}).is_text("OK"));
  assert_true(run_until([] { return redis({"PING"}).is_text("PONG"); }));  // told before the script has ended
  assert_true(run_until([] { return subject().state() == connection_state::ready; }));
  hold("k");
}

void lost_data_answers_not_held(void**) {
  const grant got = hold("k");
  redis({"FLUSHALL"});
  assert_false(must(await_extend(got.id, 60s)).has_value());
  assert_false(must(await_release(got.id)));
  assert_false(must(await_owns(got.id)));
}

}  // namespace

cases server_error_cases() {
  static const CMUnitTest all[] = {
      contract_case(acquire_out_of_memory_is_rate_limited),
      contract_case(extend_release_and_reads_live_through_out_of_memory),
      contract_case(extend_beside_an_acquire_lives_through_out_of_memory),
      contract_case_alone(acquire_with_too_few_replicas_is_unavailable),
      contract_case_alone(acquire_on_a_replica_is_unavailable),
      contract_case_alone(acquire_of_a_held_key_on_a_replica_is_unavailable),
      contract_case_alone(acquire_of_a_held_key_on_a_demoted_master_becomes_unavailable),
      contract_case_alone(busy_server_is_unavailable_and_recovers),
      contract_case(lost_data_answers_not_held),
  };
  return all;
}

}  // namespace syncguard::testing
