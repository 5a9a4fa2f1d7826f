#include "sim/history.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace syncguard::sim {

namespace {

// Much more than a history takes; one that takes as much does not come to rest.
constexpr std::uint64_t events_max = 300'000;

// After this much calm everything that has not ended by itself never will.
constexpr std::int64_t calm_us = 9'000'000;

}  // namespace

history::history(std::uint64_t seed, bool written) : stage_(choose(seed), seed, written) {
  const settings& how = stage_.how;
  for (int index = 0; index < how.keys; ++index) stage_.books.add_key("k" + std::to_string(index));
  watch_server();
  for (int index = 0; index < how.clients; ++index) add_party();
  strikes_us_ = stage_.now_us() + stage_.random.between(1, how.fault_pause_ms) * 1000;
  if (!written) return;
  stage_.note("", std::to_string(how.clients) + " clients, " + std::to_string(how.keys) + " keys, time-out " +
                      std::to_string(how.timeout_ms) + " ms" + (how.keeps_data ? ", data is kept" : "") +
                      (how.refuses_watching ? ", nobody may watch" : "") +
                      (how.late_requests ? ", requests may outlive their connection" : ""));
}

history::~history() {
  // Lock objects before their clients.
  for (party& each : parties_) each.client->destroy();
  for (party& each : parties_) each.who.reset();
}

settings history::choose(std::uint64_t seed) {
  chance random{seed ^ 0x5851f42d4c957f2d};
  settings how;
  how.clients = static_cast<int>(random.between(2, 5));
  how.keys = static_cast<int>(random.between(1, 3));
  how.duration_ms = random.between(800, 2200);
  how.fault_pause_ms = random.between(20, 60);
  how.action_pause_ms = random.between(20, 80);
  how.timeout_ms = random.pick(std::array<std::int64_t, 3>{60, 300, 900});
  how.connect_timeout_ms = random.pick(std::array<std::int64_t, 2>{60, 300});
  how.reconnect_min_ms = random.pick(std::array<std::int64_t, 2>{2, 20});
  how.reconnect_max_ms = random.pick(std::array<std::int64_t, 2>{50, 400});
  how.release_timeout_ms = random.pick(std::array<std::int64_t, 2>{60, 500});
  how.delay_max_us = random.pick(std::array<std::int64_t, 3>{200, 1000, 4000});
  how.drift_max_ppm = random.pick(std::array<std::int64_t, 3>{0, 50, 300});
  how.ttl_max_ms = random.pick(std::array<std::int64_t, 3>{150, 600, 2000});
  if (random.percent(10)) how.max_pending = 3;
  how.cleans_up = random.percent(30);
  how.refuses_watching = random.percent(10);
  how.keeps_data = random.percent(60);
  how.late_requests = random.percent(30);
  return how;
}

void history::watch_server() {
  testing::model_server& server = stage_.server;
  server.granted = [this](std::string_view key, const engine::operation& by) {
    stage_.books.granted(key, *by.id, by.ttl_ms);
    for (party& each : parties_) each.who->other_was_granted(stage_.books.index_of(key), *by.id);
  };
  server.batch_error = [this](const engine::batch& what) -> std::string_view {
    if (stage_.replica_until_us > stage_.now_us() && what.kind == engine::travel_class::mutation)
      return "READONLY You can't write against a read only replica.";
    if (stage_.errors_until_us <= stage_.now_us() || !stage_.random.percent(stage_.errors_percent)) return {};
    return stage_.error_text;
  };
  server.answered = [this](const engine::operation& asked, testing::model_server::answer& out) {
    if (stage_.garbled > 0 && !out.failure) {
      --stage_.garbled;
      if (asked.id) stage_.books.of(*asked.id).excused = true;
      out.what = engine::verdict::failed;
      out.failure = error{error_code::internal, "the server's answer makes no sense"};
    }
    if (asked.kind == engine::operation_kind::release && out.failure) stage_.books.of(*asked.id).excused = true;
    if (!stage_.notes.on()) return;
    stage_.note("server", std::string{testing::name_of(asked.kind)} + " " + std::string{asked.key.view()} + " " +
                              stage_.books.name_of(asked.id) + ": " + std::string{testing::name_of(out.what)} +
                              (out.failure ? ", " + std::string{out.failure->message()} : ""));
  };
}

history::party& history::add_party() {
  const int number = static_cast<int>(parties_.size());
  party& fresh = parties_.emplace_back();
  fresh.client = std::make_unique<sim_client>(stage_, number, "C" + std::to_string(number + 1));
  fresh.who = std::make_unique<user>(stage_, *fresh.client);
  fresh.acts_us = stage_.now_us() + stage_.random.between(0, stage_.how.action_pause_ms) * 1000;
  return fresh;
}

void history::run() {
  stage_.notes.sums.histories = 1;
  run_until(stage_.now_us() + stage_.how.duration_ms * 1000);
  if (!stage_.failed()) calm_down();
  if (!stage_.failed()) run_until(stage_.now_us() + calm_us);
  if (!stage_.failed()) check_left_overs();
  if (!stage_.failed()) outlive_records();
  if (!stage_.failed()) check_every_key_is_free();
  if (stage_.notes.on() && !stage_.failed()) stage_.note("", "all is well");
}

// Time goes from event to event.
void history::run_until(std::int64_t until_us) {
  while (!stage_.failed()) {
    stage_.server.now_us = std::max(stage_.now_us(), next_us(until_us));
    if (stage_.now_us() >= until_us) return;
    if (++events_ > events_max) return stage_.violate("", "no end of events");
    serve();
    step_clients();
    if (stage_.calm || stage_.failed()) continue;
    act();
    if (strikes_us_ > stage_.now_us()) continue;
    strike();
    strikes_us_ = stage_.now_us() + stage_.random.between(1, 2 * stage_.how.fault_pause_ms) * 1000;
    check_all();
  }
}

std::int64_t history::next_us(std::int64_t until_us) {
  std::int64_t next = until_us;
  const auto consider = [&next](std::optional<std::int64_t> at) {
    if (at && *at < next) next = *at;
  };
  if (!stage_.calm) consider(strikes_us_);
  for (const late_request& each : stage_.late) consider(each.at_us);
  for (party& each : parties_) {
    consider(each.client->plain().lane.next_request_us());
    consider(each.client->watched().lane.next_request_us());
    consider(each.client->next_event_us());
    if (!stage_.calm && !each.replaced && !each.client->stalled()) consider(each.acts_us);
  }
  return next;
}

void history::serve() {
  stage_.server.out_of_memory = stage_.out_of_memory_until_us > stage_.now_us();
  carry_out_late();
  for (party& each : parties_) {
    each.client->plain().lane.server_reads&& each.client->plain().lane.carry_out();
    each.client->watched().lane.server_reads&& each.client->watched().lane.carry_out();
  }
}

void history::carry_out_late() {
  for (std::size_t index = 0; index < stage_.late.size(); ++index) {
    if (stage_.late[index].at_us > stage_.now_us()) continue;
    const late_request next = std::move(stage_.late[index]);
    stage_.late.erase(stage_.late.begin() + static_cast<std::ptrdiff_t>(index--));
    const engine::operation& what = *next.what;
    const bool has_lock = what.id && stage_.books.of(*what.id).granted;
    const std::size_t key = has_lock ? stage_.books.of(*what.id).key : 0;
    const std::int64_t before_ms = stage_.server.entry_of(stage_.books.key(key).name).expires_at_ms;
    // Nobody can know of it any more: an acquire stays for its time to live, an extend may have cut that short.
    if (next.after_the_next && what.kind == engine::operation_kind::acquire) stage_.books.of(*what.id).excused = true;
    stage_.server.begin_batch();
    const auto said = stage_.server.carry_out(what, nobody_, false);
    const bool cut_short = said.what == engine::verdict::extended && said.expires_at_ms < before_ms;
    if (next.after_the_next && cut_short) stage_.books.begin_epoch(key);
  }
}

void history::step_clients() {
  for (std::size_t index = 0; index < parties_.size() && !stage_.failed(); ++index) {
    sim_client& client = *parties_[index].client;
    if (client.next_event_us().value_or(stage_.now_us() + 1) > stage_.now_us()) continue;
    client.step();
    parties_[index].who->check(true);
  }
}

void history::act() {
  for (std::size_t index = 0; index < parties_.size() && !stage_.failed(); ++index) {
    if (parties_[index].acts_us > stage_.now_us() || parties_[index].replaced || parties_[index].client->stalled())
      continue;
    parties_[index].acts_us = stage_.now_us() + stage_.random.between(1, 2 * stage_.how.action_pause_ms) * 1000;
    if (parties_[index].client->dead() || parties_[index].client->closed()) {
      parties_[index].replaced = true;
      add_party();
      continue;
    }
    parties_[index].who->act();
  }
}

void history::check_all() {
  for (party& each : parties_)
    if (each.client->next_event_us().value_or(stage_.now_us() + 1) > stage_.now_us() && !each.client->stalled())
      each.who->check(true);
}

// The end: everything works again, and everybody lets go.
void history::calm_down() {
  stage_.note("", "calm");
  stage_.calm = true;
  stage_.server.paused_until_us = stage_.errors_until_us = stage_.out_of_memory_until_us = 0;
  stage_.unreachable_until_us = stage_.replica_until_us = stage_.no_login_until_us = stage_.slow_until_us = 0;
  stage_.garbled = 0;
  for (late_request& each : stage_.late) each.at_us = stage_.now_us();
  carry_out_late();
  stage_.how.refuses_watching = false;
  for (party& each : parties_) {
    each.client->wake_up();
    for (sim_link* link : {&each.client->plain(), &each.client->watched()})
      if (link->silent())
        link->fail({error_code::service_unavailable, "the connection was silent for too long"}, false);
  }
  for (party& each : parties_) each.who->let_go_of_everything();
}

void history::check_left_overs() {
  for (party& each : parties_) each.who->check_finished();
  stage_.server.for_each_record([this](testing::model_server::entry& record) {
    if (!record.there || stage_.server.is_gone(record) || !record.id || !stage_.books.knows(*record.id)) return;
    const id_facts& facts = stage_.books.of(*record.id);
    if (facts.client < 0 || facts.excused) return;
    // Nobody tries to release it for longer than its time to live; a server that turned back its clock keeps it longer.
    const bool clock_went_back = stage_.notes.sums.faults.at(static_cast<std::size_t>(fault::clock_back)) > 0;
    if (clock_went_back && facts.ttl_ms * 1000 < calm_us) return;
    if (parties_.at(static_cast<std::size_t>(facts.client)).who->answers_for(*record.id)) return;
    stage_.violate("server", std::string{record.key} + " is held for nobody, as " + facts.name);
  });
}

void history::outlive_records() {
  std::int64_t last_ms = stage_.server.now_ms();
  stage_.server.for_each_record([&](const testing::model_server::entry& record) {
    if (record.there && record.gone_at_ms) last_ms = std::max(last_ms, *record.gone_at_ms);
  });
  run_until(stage_.now_us() + (last_ms - stage_.server.now_ms() + 2) * 1000);
}

void history::check_every_key_is_free() {
  const std::size_t newcomer = parties_.size();
  add_party();
  run_until(stage_.now_us() + 100'000);
  for (std::size_t key = 0; key < stage_.books.key_count(); ++key) parties_[newcomer].who->try_key(key);
  run_until(stage_.now_us() + 100'000);
  if (!parties_[newcomer].who->got_every_try()) return stage_.violate("", "a key cannot be had again");
  // The time to live of the last ones, and whatever waits for its end.
  run_until(stage_.now_us() + 50'000'000);
  for (party& each : parties_)
    if (std::string left = each.client->unfinished(); !left.empty())
      return stage_.violate(each.client->name(), "at the end " + left);
}

}  // namespace syncguard::sim
