// SCRIPT FLUSH between and inside pipelines: healed, in order, unseen by the caller.

#include <string>

#include "contract/cases.hpp"
#include "contract/operations.hpp"
#include "contract/stored.hpp"

namespace syncguard::testing {

namespace {

std::string name(int index) { return "k" + std::to_string(index); }

void flush_scripts() { assert_true(redis({"SCRIPT", "FLUSH"}).is_text("OK")); }

void check_granted_once(const std::vector<started_acquire>& all) {
  for (std::size_t index = 0; index < all.size(); ++index) {
    assert_int_equal(must_have(all[index].outcome()).fence.number(), 1);
    assert_text_equal(text_at(fence_key(name(static_cast<int>(index)))), "1");
  }
}

void flush_between_operations_is_not_noticed(void**) {
  grant got = hold("k");
  flush_scripts();
  must_have(await_extend(got.id, 30s));
  flush_scripts();
  assert_true(must(await_owns(got.id)));
  flush_scripts();
  assert_true(must(await_release(got.id)));
  flush_scripts();
  hold("k");
  assert_int_equal(subject().stats().failed, 0);
  assert_true(subject().stats().scripts_reloaded >= 3);
}

void flush_before_a_lookup_by_id_is_not_noticed(void**) {
  const grant got = hold("k");
  flush_scripts();
  assert_text_equal(must_have(await_lookup_raw_by_id(got.id)).key(), "k");
}

void flush_with_500_operations_pending_is_not_noticed(void**) {
  std::vector<started_acquire> all;
  for (int index = 0; index < 500; ++index) all.push_back(start_acquire(name(index), 60s));
  flush_scripts();
  await_all(all);
  check_granted_once(all);
}

// The flush lands between two commands of one pipeline, as far as timing allows.
void flush_inside_a_pipeline_is_not_noticed(void**) {
  std::vector<started_acquire> all;
  for (int round = 0; round < 10; ++round) {
    for (int index = 0; index < 100; ++index) all.push_back(start_acquire(name(round * 100 + index), 60s));
    turn();
    flush_scripts();
    turn();
  }
  await_all(all);
  check_granted_once(all);
}

// What was written waits in the paused server's socket, so flush and operations meet in a known order.
void flush_ahead_of_a_written_pipeline_is_not_noticed(void**) {
  redis({"CLIENT", "PAUSE", "150", "ALL"});
  std::vector<started_acquire> all;
  for (int index = 0; index < 300; ++index) all.push_back(start_acquire(name(index), 60s));
  run_for(20ms);
  flush_scripts();  // answered when the pause ends, before or between what is waiting
  await_all(all);
  check_granted_once(all);
}

void order_survives_a_flush(void**) {
  grant holder = hold("k");
  for (int round = 0; round < 20; ++round) {
    flush_scripts();
    const auto too_early = start_acquire("k", 60s);
    std::vector<started_bool> filling;
    for (int index = 0; index < 40; ++index) filling.push_back(start_release(own_id));
    const auto released = start_release(holder.id);
    for (int index = 0; index < 40; ++index) filling.push_back(start_release(own_id));
    const auto acquired = start_acquire("k", 60s);
    const auto locked = start_is_locked("k");
    assert_false(must(await(too_early)).has_value());
    assert_true(must(await(released)));
    holder = must_have(await(acquired));
    assert_true(must(await(locked)));
    await_all(filling);
  }
  assert_int_equal(holder.fence.number(), 21);
}

// A reply of a megabyte takes many turns to arrive. Until it has, the client cannot send again what met no script, and
// what is started meanwhile must stay behind it.
std::vector<started_acquire> acquire_in_every_turn_of_a_healing() {
  redis({"SET", lock_key("big"), std::string(1 << 20, 'x'), "PX", "60000"});
  flush_scripts();
  std::vector<started_acquire> all;
  all.push_back(start_acquire("k", 60s));
  subject().lookup("big", {});
  for (int round = 0; round < 20; ++round) {
    run_for(1ms);
    all.push_back(start_acquire("k", 60s));
  }
  return all;
}

void check_first_is_granted(const std::vector<started_acquire>& all) {
  await_all(all);
  for (std::size_t index = 0; index < all.size(); ++index)
    assert_int_equal(must(all[index].outcome()).has_value(), index == 0);
}

void order_survives_a_flush_with_more_started_meanwhile(void**) {
  for (int round = 0; round < 5; ++round) {
    check_first_is_granted(acquire_in_every_turn_of_a_healing());
    redis({"DEL", lock_key("k")});
  }
}

void order_survives_a_flush_and_the_loss_of_the_connection(void**) {
  for (int round = 0; round < 5; ++round) {
    const auto all = acquire_in_every_turn_of_a_healing();
    redis({"CLIENT", "KILL", "TYPE", "normal"});
    check_first_is_granted(all);
    redis({"DEL", lock_key("k")});
  }
}

void reads_after_mutations_see_them_despite_a_flush(void**) {
  for (int round = 0; round < 20; ++round) {
    flush_scripts();
    const auto acquired = start_acquire(name(round), 60s);
    const auto by_key = start_lookup(name(round));
    const auto locked = start_is_locked(name(round));
    assert_true(must(await(by_key)).has_value());
    assert_true(must(await(locked)));
    must_have(await(acquired));
  }
}

void flush_in_every_turn_lets_everything_complete(void**) {
  std::vector<started_acquire> all;
  for (int index = 0; index < 200; ++index) {
    all.push_back(start_acquire(name(index), 60s));
    flush_scripts();
    turn();
  }
  await_all(all);
  check_granted_once(all);
  assert_int_equal(subject().stats().failed, 0);
}

void restart_of_the_server_reloads_the_scripts(void**) {
  hold("k");
  assert_true(server().restart());
  const grant got = hold("k");
  assert_true(must(await_owns(got.id)));
}

}  // namespace

cases script_cases() {
  static const CMUnitTest all[] = {
      contract_case(flush_between_operations_is_not_noticed),
      contract_case(flush_before_a_lookup_by_id_is_not_noticed),
      contract_case(flush_with_500_operations_pending_is_not_noticed),
      contract_case(flush_inside_a_pipeline_is_not_noticed),
      contract_case(flush_ahead_of_a_written_pipeline_is_not_noticed),
      contract_case(order_survives_a_flush),
      contract_case(order_survives_a_flush_with_more_started_meanwhile),
      contract_case(order_survives_a_flush_and_the_loss_of_the_connection),
      contract_case(reads_after_mutations_see_them_despite_a_flush),
      contract_case(flush_in_every_turn_lets_everything_complete),
      contract_case(restart_of_the_server_reloads_the_scripts),
  };
  return all;
}

}  // namespace syncguard::testing
