// stats: counters that add up.

#include <numeric>
#include <string>

#include "contract/cases.hpp"
#include "contract/operations.hpp"
#include "contract/stored.hpp"

namespace syncguard::testing {

namespace {

std::uint64_t sum(const client_stats::histogram& of) { return std::accumulate(of.begin(), of.end(), std::uint64_t{0}); }

void stats_of_a_fresh_client_are_zero_but_for_its_connection(void**) {
  const client_stats seen = subject().stats();
  assert_int_equal(seen.started, 0);
  assert_int_equal(seen.completed, 0);
  assert_int_equal(seen.failed, 0);
  assert_int_equal(seen.pending, 0);
  assert_int_equal(seen.batches, 0);
  assert_int_equal(seen.connects, 1);
  assert_int_equal(seen.disconnects, 0);
  assert_int_equal(seen.resent, 0);
}

void stats_count_operations_and_failures(void**) {
  const grant got = hold("k");
  must(await_release(got.id));
  must_fail(await_acquire("", 60s), error_code::invalid_argument);
  redis({"LPUSH", lock_key("list"), "x"});
  must_fail(await_acquire("list", 60s), error_code::invalid_argument);
  const client_stats seen = subject().stats();
  assert_int_equal(seen.started, 4);
  assert_int_equal(seen.completed, 4);
  assert_int_equal(seen.failed, 2);
  assert_int_equal(seen.pending, 0);
}

void stats_do_not_count_contention_as_failure(void**) {
  hold("k");
  must(await_acquire("k", 60s));
  must(await_release(own_id));
  assert_int_equal(subject().stats().failed, 0);
  assert_int_equal(subject().stats().completed, 3);
}

void stats_show_what_is_pending(void**) {
  std::vector<started_bool> all;
  for (int index = 0; index < 5; ++index) all.push_back(start_is_locked("k"));
  assert_int_equal(subject().stats().pending, 5);
  assert_int_equal(subject().stats().started, 5);
  assert_int_equal(subject().stats().completed, 0);
  await_all(all);
  assert_int_equal(subject().stats().pending, 0);
}

void stats_latency_counts_every_completed_operation(void**) {
  std::vector<started_bool> all;
  for (int index = 0; index < 100; ++index) all.push_back(start_is_locked("k"));
  await_all(all);
  assert_int_equal(sum(subject().stats().latency_us), subject().stats().completed);
}

void stats_batch_sizes_count_every_command(void**) {
  std::vector<started_acquire> all;
  for (int index = 0; index < 100; ++index) all.push_back(start_acquire("k" + std::to_string(index), 60s));
  await_all(all);
  assert_int_equal(sum(subject().stats().batch_sizes), subject().stats().batches);
}

void stats_do_not_count_background_releases_as_operations(void**) {
  server().pause();
  const auto got = start_acquire("k", 60s);
  run_for(20ms);
  subject().cancel(got.handle);
  must_fail(await(got), error_code::aborted);
  server().resume();
  assert_true(run_until([] { return exists(fence_key("k")) && !exists(lock_key("k")); }));
  assert_int_equal(subject().stats().started, 1);
  assert_int_equal(subject().stats().completed, 1);
}

void stats_survive_a_reconnect(void**) {
  hold("k");
  redis({"CLIENT", "KILL", "TYPE", "normal"});
  assert_true(run_until([] { return subject().stats().connects == 2; }));
  hold("other");
  assert_int_equal(subject().stats().completed, 2);
  assert_int_equal(subject().stats().disconnects, 1);
}

}  // namespace

cases stats_cases() {
  static const CMUnitTest all[] = {
      contract_case(stats_of_a_fresh_client_are_zero_but_for_its_connection),
      contract_case(stats_count_operations_and_failures),
      contract_case(stats_do_not_count_contention_as_failure),
      contract_case(stats_show_what_is_pending),
      contract_case(stats_latency_counts_every_completed_operation),
      contract_case(stats_batch_sizes_count_every_command),
      contract_case(stats_do_not_count_background_releases_as_operations),
      contract_case(stats_survive_a_reconnect),
  };
  return all;
}

}  // namespace syncguard::testing
