#include "sim/sim_link.hpp"

#include <algorithm>
#include <utility>

namespace syncguard::sim {

sim_link::sim_link(stage& on, testing::lane_owner& owner, engine::observer& told, bool watched)
    : lane(owner, told, on.server, watched, {on.how.timeout_ms, on.how.max_pending, on.how.cleans_up}),
      stage_(on),
      owner_(owner) {
  lane.delay_us = [this] { return stage_.delay_us(); };
  lane.server_reads = false;
  lane.drop_ends_it = true;
}

sim_link::~sim_link() {
  lane.cut();
  std::erase(stage_.server.connections, &lane);
}

void sim_link::stop() {
  lane.cut();
  lane.server_reads = false;
  lost_.reset();
  came_up_ = false;
  deadline_ms_.reset();
  made_us_.reset();
  where_ = phase::idle;
}

void sim_link::connect() {
  where_ = phase::connecting;
  deadline_ms_ = now_ms() + stage_.how.connect_timeout_ms;
  made_us_ = stage_.now_us() + 2 * stage_.delay_us();
}

void sim_link::run() {
  if (lost_) return;
  if (made_us_ && *made_us_ <= stage_.now_us()) introduce();
  if (lost_ || !deadline_ms_ || now_ms() < *deadline_ms_) return;
  deadline_ms_.reset();
  if (where_ == phase::waiting) return connect();
  fail({error_code::network_timeout, "no connection could be made in time"}, false);
}

// The server answers what a link says at first.
void sim_link::introduce() {
  const std::int64_t now_us = stage_.now_us();
  made_us_.reset();
  if (!stage_.server.works(now_us)) {
    made_us_ = stage_.server.paused_until_us + 2 * stage_.delay_us();
  } else if (stage_.unreachable_until_us > now_us) {
    fail({error_code::service_unavailable, "the connection was refused"}, false);
  } else if (stage_.no_login_until_us > now_us) {
    fail({error_code::auth_failed, "the server does not allow this"}, true);
  } else if (stage_.replica_until_us > now_us) {
    fail({error_code::service_unavailable, "the server is not a master"}, false);
  } else if (lane.watched && stage_.how.refuses_watching) {
    fail({error_code::auth_failed, "the server does not tell of changes"}, true);
  } else {
    stage_.server.knows_scripts = true;
    where_ = phase::up;
    came_up_ = true;
    deadline_ms_.reset();
    lane.server_reads = true;
    silent_ = false;
    lane.arrival = testing::answers::come;
    owner_.want_turn();
  }
}

sim_link::news sim_link::take_news() {
  if (lane.drop_wanted && up()) fail({error_code::network_timeout, "the server stopped answering"}, false);
  if (lost_) return {false, std::exchange(lost_, std::nullopt), lost_refused_};
  return {std::exchange(came_up_, false), {}, false};
}

void sim_link::fail(error why, bool refused) {
  if (lost_ || where_ == phase::idle) return;
  leave_requests_behind();
  lane.cut();
  lane.server_reads = false;
  lane.drop_wanted = true;
  came_up_ = false;
  made_us_.reset();
  lost_ = std::move(why);
  lost_refused_ = refused;
  where_ = phase::waiting;
  const unsigned doublings = std::min(attempts_++, 20U);
  const std::int64_t pause =
      refused ? stage_.how.reconnect_max_ms
              : std::min(stage_.how.reconnect_max_ms, stage_.how.reconnect_min_ms * (std::int64_t{1} << doublings));
  deadline_ms_ = now_ms() + pause / 2 + stage_.random.below(pause - pause / 2 + 1);
  owner_.want_turn();
}

// All, none or the first of them; at once or a good deal later, when the client may have made another connection.
void sim_link::leave_requests_behind() {
  if (!lane.server_reads || stage_.random.percent(40)) return;
  auto unread = lane.copy_unread();
  if (unread.empty()) return;
  if (stage_.random.percent(50)) unread.resize(1 + stage_.random.index(unread.size()));
  std::int64_t at_us = std::max(stage_.now_us(), stage_.server.paused_until_us);
  bool late = false;
  if (stage_.how.late_requests && stage_.random.percent(30)) {
    at_us += stage_.random.between(1, 100'000);
    late = true;
    stage_.notes.count(fault::late_request);
    stage_.note(lane.watched ? "watched" : "plain", "its last requests will reach the server later");
  }
  for (auto& each : unread) stage_.late.push_back({at_us, late, std::move(each)});
}

void sim_link::go_silent() {
  silent_ = true;
  lane.server_reads = false;
  lane.arrival = testing::answers::never_come;
}

}  // namespace syncguard::sim
