#pragma once

// The cases of each theme. main.cpp runs them all as one group, because TAP knows one plan for each program.

#include <span>

#include "contract/fixture.hpp"

namespace syncguard::testing {

using cases = std::span<const CMUnitTest>;

cases acquire_cases();
cases release_cases();
cases extend_cases();
cases is_locked_cases();
cases lookup_cases();
cases owns_cases();
cases validation_cases();
cases option_cases();
cases foreign_record_cases();
cases fence_cases();
cases storage_cases();
cases liveness_cases();
cases telemetry_cases();
cases telemetry_sink_cases();
cases ordering_cases();
cases batching_cases();
cases poison_cases();
cases script_cases();
cases cancel_cases();
cases callback_cases();
cases destroy_cases();
cases close_cases();
cases bulk_cases();
cases connection_cases();
cases recovery_cases();
cases refusal_cases();
cases server_error_cases();
cases outage_cases();
cases lost_answer_cases();
cases stats_cases();
cases move_cases();
cases lock_by_hand_cases();
cases lock_crowd_cases();
cases lock_fault_cases();
cases lock_granted_cases();
cases lock_heartbeat_cases();
cases lock_key_cases();
cases lock_lifetime_cases();
cases lock_loss_cases();
cases lock_reentrancy_cases();
cases lock_reference_cases();
cases lock_refused_cases();
cases lock_telling_cases();
cases lock_waiting_cases();
cases loop_timer_cases();

}  // namespace syncguard::testing
