// What goes wrong in a history.

#include <algorithm>
#include <array>
#include <string>

#include "sim/history.hpp"

namespace syncguard::sim {

namespace {

constexpr std::array<std::string_view, 12> error_texts{
    "LOADING Redis is loading the dataset in memory",
    "BUSY Redis is busy running a script.",
    "MISCONF Redis is configured to save RDB snapshots",
    "NOREPLICAS Not enough good replicas to write.",
    "MASTERDOWN Link with MASTER is down",
    "OOM command not allowed when used memory > 'maxmemory'.",
    "NOPERM this user has no permissions",
    "WRONGTYPE Operation against a key holding the wrong kind of value",
    "READONLY You can't write against a read only replica.",
    "ERR Error running script (call to f_0): @user_script:1: -READONLY You can't write against a read only replica.",
    "ERR unknown command",
    "what is this",
};

}  // namespace

void history::note_fault(fault what, const std::string& more) {
  stage_.notes.count(what);
  if (stage_.notes.on()) stage_.note("FAULT", std::string{name_of(what)} + (more.empty() ? "" : ": ") + more);
}

sim_client* history::somebody() {
  const std::size_t first = stage_.random.index(parties_.size());
  for (std::size_t index = 0; index < parties_.size(); ++index) {
    sim_client& each = *parties_[(first + index) % parties_.size()].client;
    if (!each.dead() && !each.closed()) return &each;
  }
  return nullptr;
}

void history::strike() {
  const std::int64_t what = stage_.random.below(100);
  sim_client* whom = somebody();
  if (what < 55 && whom != nullptr) return strike_link(*whom);
  if (what < 85 || stage_.how.keeps_data) return strike_server();
  strike_data();
}

void history::strike_link(sim_client& whom) {
  chance& random = stage_.random;
  sim_link& link = random.percent(50) ? whom.plain() : whom.watched();
  const std::string where = whom.name() + (link.lane.watched ? ", watched lane" : ", plain lane");
  const std::int64_t what = random.below(100);
  if (what < 45) {
    note_fault(fault::reset, where);
    link.fail({error_code::service_unavailable, "the connection was reset"}, false);
  } else if (what < 65) {
    note_fault(fault::half_open, where);
    if (link.up()) link.go_silent();
  } else if (what < 70) {
    const std::int64_t for_ms = random.between(10, 300);
    note_fault(fault::refused_login, where + " for " + std::to_string(for_ms) + " ms");
    stage_.no_login_until_us = stage_.now_us() + for_ms * 1000;
    link.fail({error_code::auth_failed, "the server does not allow this"}, true);
  } else {
    const std::int64_t for_ms = random.percent(20) ? random.between(500, 2500) : random.between(1, 200);
    note_fault(fault::stall, whom.name() + " for " + std::to_string(for_ms) + " ms");
    whom.stall_until(stage_.now_us() + for_ms * 1000);
  }
}

void history::strike_server() {
  chance& random = stage_.random;
  const std::int64_t now_us = stage_.now_us();
  const std::int64_t for_ms = random.percent(15) ? random.between(200, 1200) : random.between(1, 120);
  const std::int64_t until_us = now_us + for_ms * 1000;
  const std::string how_long = "for " + std::to_string(for_ms) + " ms";
  switch (random.below(10)) {
    case 0:
      note_fault(fault::delay, how_long);
      stage_.slow_until_us = until_us;
      break;
    case 1:
      note_fault(fault::unreachable, how_long);
      stage_.unreachable_until_us = until_us;
      break;
    case 2:
      note_fault(fault::server_pause, how_long);
      stage_.server.paused_until_us = std::max(stage_.server.paused_until_us, until_us);
      break;
    case 3: {
      const std::int64_t back_ms = random.between(1, 3000);
      note_fault(fault::clock_back, std::to_string(back_ms) + " ms");
      stage_.server.offset_us -= back_ms * 1000;
      break;
    }
    case 4:
      note_fault(fault::restart);
      stage_.server.knows_scripts = false;
      stage_.unreachable_until_us = now_us + random.between(1, 100) * 1000;
      cut_everything("the server was restarted");
      break;
    case 5:
      note_fault(fault::script_flush);
      stage_.server.knows_scripts = false;
      break;
    case 6:
      stage_.error_text = random.pick(error_texts);
      stage_.errors_percent = random.pick(std::array<std::int64_t, 2>{30, 100});
      stage_.errors_until_us = until_us;
      note_fault(fault::error_reply, std::string{stage_.error_text} + ", " + how_long);
      break;
    case 7:
      note_fault(fault::demotion, how_long);
      stage_.replica_until_us = until_us;
      break;
    case 8:
      note_fault(fault::garbled_answer);
      stage_.garbled = static_cast<int>(random.between(1, 3));
      break;
    default:
      note_fault(fault::out_of_memory, how_long);
      stage_.out_of_memory_until_us = until_us;
      break;
  }
}

// Those that take a lock from its holder.
void history::strike_data() {
  chance& random = stage_.random;
  const std::size_t key = random.index(stage_.books.key_count());
  const std::string name = stage_.books.key(key).name;
  const std::int64_t what = random.below(100);
  if (what < 25) {
    note_fault(fault::foreign_delete, name);
    stage_.books.begin_epoch(key);
    stage_.server.remove(name);
  } else if (what < 40) {
    const std::int64_t ttl_ms = random.between(1, 500);
    note_fault(fault::foreign_owner, name + " for " + std::to_string(ttl_ms) + " ms");
    stage_.books.begin_epoch(key);
    stage_.server.take(name, ttl_ms, stage_.books.make_id(-1, "stranger"));
    stage_.books.key(key).last_granted = stage_.server.entry_of(name).fence;
  } else if (what < 55) {
    note_fault(fault::foreign_touch, name);
    stage_.server.touch(name);
  } else if (what < 70) {
    note_fault(fault::unreadable, name);
    stage_.books.begin_epoch(key);
    const bool no_text = random.percent(30);
    stage_.server.spoil(name,
                        no_text ? testing::model_server::form::wrong_type : testing::model_server::form::unreadable);
    stage_.server.entry_of(name).gone_at_ms = stage_.server.now_ms() + random.between(1, 400);
  } else if (what < 80) {
    const std::int64_t ahead_ms = random.between(1, 5000);
    note_fault(fault::clock_ahead, std::to_string(ahead_ms) + " ms");
    stage_.books.begin_epochs();
    stage_.server.offset_us += ahead_ms * 1000;
  } else if (what < 90) {
    note_fault(fault::foreign_flush);
    stage_.books.begin_data_epoch();
    stage_.server.flush();
  } else {
    note_fault(fault::restart_empty);
    stage_.books.begin_data_epoch();
    stage_.server.lose_everything();
    stage_.server.knows_scripts = false;
    cut_everything("the server was restarted without its data");
  }
}

void history::cut_everything(const char*) {
  for (party& each : parties_)
    for (sim_link* link : {&each.client->plain(), &each.client->watched()})
      if (link->up()) link->fail({error_code::service_unavailable, "the server was restarted"}, false);
}

}  // namespace syncguard::sim
