#pragma once

// One history: some clients and their users, a server, faults; then calm, in which everything must come to rest.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/sim_client.hpp"
#include "sim/stage.hpp"
#include "sim/user.hpp"

namespace syncguard::sim {

class history {
 public:
  history(std::uint64_t seed, bool written);
  ~history();
  history(const history&) = delete;
  history& operator=(const history&) = delete;

  void run();

  // What was violated; empty: nothing.
  const std::string& violation() const noexcept { return stage_.notes.violation(); }
  const tally& sums() const noexcept { return stage_.notes.sums; }

 private:
  // A client and whoever uses it. Clients stay when they are over: nothing may come from them any more.
  struct party {
    std::unique_ptr<sim_client> client;
    std::unique_ptr<user> who;
    std::int64_t acts_us = 0;
    bool replaced = false;
  };

  // Whom requests belong to that have outlived their connection.
  struct nobody final : testing::model_server::connection {
    void changed(std::string_view) override {}
    void changed_all() override {}
  };

  static settings choose(std::uint64_t seed);
  void watch_server();
  party& add_party();
  void run_until(std::int64_t until_us);
  std::int64_t next_us(std::int64_t until_us);
  void serve();
  void carry_out_late();
  void step_clients();
  void act();
  void check_all();

  // faults.cpp
  void strike();
  void strike_link(sim_client& whom);
  void strike_server();
  void strike_data();
  void cut_everything(const char* why);
  sim_client* somebody();
  void note_fault(fault what, const std::string& more = {});

  void calm_down();
  void check_left_overs();
  void outlive_records();
  void check_every_key_is_free();

  stage stage_;
  nobody nobody_;
  std::vector<party> parties_;
  std::int64_t strikes_us_ = 0;
  std::uint64_t events_ = 0;
};

}  // namespace syncguard::sim
