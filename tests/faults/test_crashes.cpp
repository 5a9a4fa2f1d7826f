// A server that is killed again and again while locks are held and handed over, and one that is stopped for longer than
// locks live. Built for each loop.

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "contract/locks.hpp"

namespace syncguard::testing {

namespace {

// Together on both loops: 200.
constexpr int kills = 100;
constexpr std::size_t rivals = 3;
constexpr std::size_t contended_keys = 4;
constexpr std::size_t kept_locks = 20;

// What it writes is on the disk before it answers, so a kill takes nothing that was told.
std::unique_ptr<redis_server> durable;

// One that takes a lock whenever it can, keeps it for a moment, and gives it back.
struct player {
  std::unique_ptr<client> own;
  std::array<syncguard::lock, contended_keys> held;
  std::array<bool, contended_keys> asking{};
};

// What everybody sees of one key.
struct key_history {
  std::uint64_t last_fence = 0;
  std::uint64_t grants = 0;
  const syncguard::lock* holder = nullptr;
};

struct arena {
  std::array<player, rivals> players;
  std::array<key_history, contended_keys> keys;
  std::uint64_t failures = 0;
};
std::unique_ptr<arena> game;

client_options durable_options() {
  client_options options = base_options();
  options.url = "unix://" + durable->socket_path();
  options.on_connection = nullptr;
  options.timeout = 60s;
  return options;
}

int set_up_durable(void** state) {
  durable = std::make_unique<redis_server>(
      redis_options{.append_only = true, .config_lines = {"appendfsync always", "auto-aof-rewrite-percentage 0"}});
  if (!durable->start() || set_up(state) != 0) return -1;
  game = std::make_unique<arena>();
  for (player& each : game->players) each.own = std::make_unique<client>(loop_for_client(), durable_options());
  return 0;
}

int tear_down_durable(void** state) {
  game.reset();
  const int outcome = tear_down(state);
  durable.reset();
  return outcome;
}

void was_granted(std::size_t who, std::size_t key, result<syncguard::lock> outcome) {
  player& me = game->players[who];
  key_history& seen = game->keys[key];
  me.asking[key] = false;
  if (!outcome) {
    ++game->failures;
    return;
  }
  if (seen.holder != nullptr && seen.holder->valid() && *seen.holder) breach("two held one lock");
  if (outcome->fence().number() <= seen.last_fence) breach("a fence went back");
  seen.last_fence = outcome->fence().number();
  ++seen.grants;
  me.held[key] = *std::move(outcome);
  seen.holder = &me.held[key];
}

// Everybody who holds a lock gives it back, and everybody asks for what they neither hold nor wait for.
void play() {
  for (std::size_t who = 0; who < rivals; ++who) {
    player& me = game->players[who];
    for (std::size_t key = 0; key < contended_keys; ++key) {
      if (me.held[key]) me.held[key] = {};
      if (std::exchange(me.asking[key], true)) continue;
      me.own->lock("contended " + std::to_string(key), {.ttl = 20s, .wait = 60s},
                   [who, key](result<syncguard::lock> got) { was_granted(who, key, std::move(got)); });
    }
  }
}

std::uint64_t grants_so_far() {
  std::uint64_t sum = 0;
  for (const key_history& each : game->keys) sum += each.grants;
  return sum;
}

std::string owner_at(const redis_server& where, std::string_view key) {
  const std::string record = where.command({"GET", lock_key(key)}).text;
  return record.size() > 33 ? record.substr(11, 22) : "";
}

void server_killed_again_and_again_keeps_every_promise(void**) {
  make_ready_subject(durable_options());
  std::vector<syncguard::lock> kept;
  std::vector<shared_loss> losses;
  for (std::size_t index = 0; index < kept_locks; ++index) {
    kept.push_back(hold_lock("kept " + std::to_string(index), {.ttl = 20s}));
    losses.push_back(record_loss(kept.back()));
  }
  for (int round = 0; round < kills; ++round) {
    const std::uint64_t before = grants_so_far();
    play();
    static_cast<void>(run_until([&] { return grants_so_far() > before; }, 500ms));
    run_for(milliseconds{round % 7});
    durable->kill_hard();
    run_for(milliseconds{round % 3});
    assert_true(durable->start());
  }
  const auto connected = [] {
    return subject().state() == connection_state::ready &&
           std::all_of(game->players.begin(), game->players.end(),
                       [](const player& each) { return each.own->state() == connection_state::ready; });
  };
  assert_true(run_until(connected, 60s));

  const std::uint64_t grants = grants_so_far();
  std::size_t survived = 0;
  for (std::size_t index = 0; index < kept_locks; ++index) {
    // Nothing was lost on the disk, so it is there as long as it was extended in time.
    const bool there = owner_at(*durable, kept[index].key()) == kept[index].id().view();
    if (kept[index].valid()) assert_true(there);
    else assert_true(losses[index]->told());
    survived += kept[index].valid() ? 1 : 0;
  }
  note("%d kills: %llu grants of %zu contended locks, %llu failures; %zu of %zu kept locks survived", kills,
       static_cast<unsigned long long>(grants), contended_keys, static_cast<unsigned long long>(game->failures),
       survived, kept_locks);
  assert_true(grants >= contended_keys * 4);
  assert_int_equal(game->failures, 0);
  assert_true(survived > 0);

  // And everything is to be had as before.
  for (player& each : game->players) each.own.reset();
  for (std::size_t index = 0; index < kept_locks; ++index) kept[index] = {};
  assert_true(run_until([] { return subject().stats().pending == 0; }));
  for (std::size_t index = 0; index < kept_locks; ++index)
    assert_true(hold_lock("kept " + std::to_string(index), {.ttl = 20s, .wait = 60s}).valid());
}

constexpr int stops = 10;
constexpr std::size_t locks_each = 10;

// test_losses.cpp does this once, with a thousand locks.
void server_stopped_again_and_again_is_told_in_time_each_time(void**) {
  const lock_options short_lived{.ttl = 400ms, .wait = 60s};
  std::map<std::string, std::uint64_t, std::less<>> fences;
  for (int round = 0; round < stops; ++round) {
    std::vector<started_lock> asked;
    for (std::size_t index = 0; index < locks_each; ++index)
      asked.push_back(start_lock("stopped " + std::to_string(index), short_lived));
    std::vector<syncguard::lock> held;
    std::vector<shared_loss> losses;
    for (const started_lock& each : asked) {
      held.push_back(await_lock(each));
      losses.push_back(record_loss(held.back()));
      std::uint64_t& last = fences[std::string{held.back().key()}];
      assert_true(held.back().fence().number() > last);
      last = held.back().fence().number();
    }
    server().pause();
    const auto told = [](const shared_loss& each) { return each->told(); };
    // While the server is silent: nobody has to be heard for that.
    assert_true(run_until([&] { return std::all_of(losses.begin(), losses.end(), told); }));
    for (const shared_loss& each : losses) assert_true(each->calls == 1 && each->why == lost::unconfirmed);
    for (const syncguard::lock& each : held) assert_false(each.valid());
    server().resume();
    run_for(20ms);
    for (const syncguard::lock& each : held) assert_false(each.valid());
  }
  note("%d stops of the server, %zu locks each: every loss was told once, while the server was silent", stops,
       locks_each);
}

}  // namespace

}  // namespace syncguard::testing

int main(int count, char** arguments) {
  using namespace syncguard::testing;
  std::signal(SIGPIPE, SIG_IGN);
  if (count > 1) cmocka_set_test_filter(arguments[1]);
  const CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(server_killed_again_and_again_keeps_every_promise, set_up_durable,
                                      tear_down_durable),
      contract_case(server_stopped_again_and_again_is_told_in_time_each_time),
  };
  return cmocka_run_group_tests_name("crashes", tests, start_world, stop_world);
}
