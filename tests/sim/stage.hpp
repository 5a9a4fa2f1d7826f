#pragma once

// What all actors of one history share: the time, the server, chance, and how things stand between them.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/chance.hpp"
#include "sim/journal.hpp"
#include "sim/ledger.hpp"
#include "support/model/model_server.hpp"

namespace syncguard::sim {

// Chosen by the seed, and the same for the whole history.
struct settings {
  int clients = 3;
  int keys = 2;
  std::int64_t duration_ms = 2000;
  std::int64_t fault_pause_ms = 50;   // between faults, on average
  std::int64_t action_pause_ms = 30;  // between actions of one user
  std::int64_t timeout_ms = 300;
  std::int64_t connect_timeout_ms = 200;
  std::int64_t reconnect_min_ms = 10;
  std::int64_t reconnect_max_ms = 200;
  std::int64_t release_timeout_ms = 300;
  std::int64_t delay_max_us = 2000;
  std::int64_t drift_max_ppm = 200;
  std::int64_t ttl_max_ms = 2000;
  std::size_t max_pending = 1000;
  bool cleans_up = false;
  bool refuses_watching = false;
  bool keeps_data = true;  // neither strangers nor a forgetful server
  bool late_requests = false;
};

// A request of a connection that is gone, and that reaches the server all the same.
struct late_request {
  std::int64_t at_us;
  bool after_the_next;  // its client may have made another connection by then
  std::unique_ptr<engine::operation> what;
};

struct stage {
  stage(const settings& chosen, std::uint64_t seed, bool written)
      : how(chosen), random(seed), notes(written), books(server, notes) {}

  std::int64_t now_us() const noexcept { return server.now_us; }
  void note(std::string_view who, std::string_view what) { notes.line(now_us() - began_us, who, what); }
  void violate(std::string_view who, std::string what) { notes.violate(now_us() - began_us, who, std::move(what)); }
  bool failed() const noexcept { return !notes.violation().empty(); }

  // One way from or to the server.
  std::int64_t delay_us() {
    return random.between(20, slow_until_us > now_us() ? how.delay_max_us * 30 : how.delay_max_us);
  }

  settings how;
  chance random;
  testing::model_server server;
  journal notes;
  ledger books;
  std::vector<late_request> late;

  std::int64_t slow_until_us = 0;
  std::int64_t unreachable_until_us = 0;  // new connections fail
  std::int64_t replica_until_us = 0;      // it is not the master
  std::int64_t no_login_until_us = 0;     // credentials are refused
  std::int64_t out_of_memory_until_us = 0;
  std::int64_t errors_until_us = 0;
  std::int64_t errors_percent = 0;
  std::string_view error_text;
  int garbled = 0;    // so many of the next answers make no sense
  bool calm = false;  // no more faults, and users let go
};

}  // namespace syncguard::sim
