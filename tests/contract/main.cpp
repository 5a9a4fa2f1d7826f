// The contract of the lock client, against a real redis-server. Built twice: with libuv's loop and with libevent's.
// An argument runs only the cases whose names match it: contract_uv 'cancel_*'.

#include <csignal>
#include <vector>

#include "contract/cases.hpp"
#include "contract/fixture.hpp"

int main(int count, char** arguments) {
  using namespace syncguard::testing;
  std::signal(SIGPIPE, SIG_IGN);
  if (count > 1) cmocka_set_test_filter(arguments[1]);

  std::vector<CMUnitTest> all;
  for (const cases theme :
       {acquire_cases(),        release_cases(),        extend_cases(),       is_locked_cases(),
        lookup_cases(),         owns_cases(),           validation_cases(),   option_cases(),
        foreign_record_cases(), fence_cases(),          storage_cases(),      liveness_cases(),
        telemetry_cases(),      telemetry_sink_cases(), ordering_cases(),     batching_cases(),
        poison_cases(),         script_cases(),         cancel_cases(),       callback_cases(),
        destroy_cases(),        close_cases(),          bulk_cases(),         connection_cases(),
        refusal_cases(),        server_error_cases(),   outage_cases(),       lost_answer_cases(),
        stats_cases(),          move_cases(),           recovery_cases(),     lock_by_hand_cases(),
        lock_crowd_cases(),     lock_fault_cases(),     lock_granted_cases(), lock_heartbeat_cases(),
        lock_key_cases(),       lock_lifetime_cases(),  lock_loss_cases(),    lock_reentrancy_cases(),
        lock_reference_cases(), lock_refused_cases(),   lock_telling_cases(), lock_waiting_cases(),
        loop_timer_cases()})
    all.insert(all.end(), theme.begin(), theme.end());
  return _cmocka_run_group_tests("contract", all.data(), all.size(), start_world, stop_world);
}
