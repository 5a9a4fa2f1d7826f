#pragma once

// The life of one connection as src/redis/link leads it: it is made, comes up after a few exchanges with the server,
// breaks in one way or another, and is made again after a pause that grows.

#include <cstdint>
#include <optional>

#include "sim/stage.hpp"
#include "support/model/model_lane.hpp"

namespace syncguard::sim {

class sim_link {
 public:
  sim_link(stage& on, testing::lane_owner& owner, engine::observer& told, bool watched);
  ~sim_link();
  sim_link(const sim_link&) = delete;
  sim_link& operator=(const sim_link&) = delete;

  void start() { connect(); }
  void stop();
  bool idle() const noexcept { return where_ == phase::idle; }
  bool up() const noexcept { return where_ == phase::up; }

  // What the connection does at this time: it is made, or its time is over.
  void run();
  std::optional<std::int64_t> next_wake_ms() const noexcept { return lost_ ? std::nullopt : deadline_ms_; }
  std::optional<std::int64_t> next_event_us() const noexcept { return lost_ ? std::nullopt : made_us_; }

  // What is to be told at the end of the turn: came_up(), or the error.
  struct news {
    bool came_up = false;
    std::optional<error> lost;
    bool refused = false;
  };
  news take_news();

  // The network or the server ends it. What the server had not read yet it may have read all the same, or never does.
  void fail(error why, bool refused);

  // From here on nothing comes through, in neither direction, and nobody says so.
  void go_silent();
  bool silent() const noexcept { return silent_; }

  void answered() noexcept { attempts_ = 0; }

  testing::model_lane lane;

 private:
  enum class phase : std::uint8_t { idle, waiting, connecting, up };

  void connect();
  void introduce();
  void leave_requests_behind();
  std::int64_t now_ms() const noexcept { return owner_.now_us() / 1000; }

  stage& stage_;
  testing::lane_owner& owner_;
  phase where_ = phase::idle;
  bool silent_ = false;
  bool came_up_ = false;
  std::optional<error> lost_;
  bool lost_refused_ = false;
  std::optional<std::int64_t> deadline_ms_;  // by the client's clock
  std::optional<std::int64_t> made_us_;      // when the server answers the introduction
  unsigned attempts_ = 0;
};

}  // namespace syncguard::sim
