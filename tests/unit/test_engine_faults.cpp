// The engine in a world where the link is lost or refused and the server forgets its scripts, at every moment; and
// thousands of random steps of it, against a model of the locks that a server would hold. SYNCGUARD_SEED repeats a run.

#include <algorithm>
#include <cstdlib>
#include <random>
#include <set>
#include <sstream>

#include "engine_fixture.hpp"

namespace {

using namespace syncguard::testing;
using syncguard::error_code;

void lose_link(engine_world& world) { world.link_down(error_code::service_unavailable); }

void find_link(engine_world& world) {
  world.link_up();
  world.take_sent();
  world.end_turn();
}

// Lost links

void lost_batches_are_sent_again_before_younger_ones(void** state) {
  auto& world = world_of(state);
  world.acquire("a");
  world.start(operation_kind::is_locked, "k");
  world.end_turn();
  world.start(operation_kind::extend, "b");
  world.end_turn();
  world.acquire("c");
  lose_link(world);
  world.acquire("d");
  world.start(operation_kind::is_locked, "l");
  world.end_turn();
  find_link(world);
  assert_text_equal(world.take_sent(), "M[acquire:a extend:b acquire:c acquire:d] K[is_locked:k is_locked:l] flush");
  world.answer({{verdict::acquired}, {verdict::extended}, {verdict::contended}, {verdict::acquired}});
  world.answer(verdict::free);
  assert_text_equal(world.take_told(), "a=acquired b=extended c=contended d=acquired k=free l=free");
}

void release_that_was_lost_and_finds_nothing_is_unknown(void** state) {
  auto& world = world_of(state);
  world.start(operation_kind::release, "lost");
  world.start(operation_kind::release, "there");
  world.end_turn();
  lose_link(world);
  world.start(operation_kind::release, "young");
  find_link(world);
  world.answer({{verdict::absent}, {verdict::released}, {verdict::absent}});
  assert_text_equal(world.take_told(), "lost!ServiceUnavailable? there=released young=absent");
}

void acquire_that_was_lost_and_then_fails_is_unknown_and_released(void** state) {
  auto& world = world_of(state);
  world.acquire("a");
  world.end_turn();
  lose_link(world);
  find_link(world);
  world.take_sent();
  world.answer(verdict::failed);
  assert_text_equal(world.take_told(), "a!ServiceUnavailable?");
  world.end_turn();
  assert_text_equal(world.take_sent(), "M[release:~a] flush");
}

void acquire_given_up_in_flight_is_released_over_the_next_link(void** state) {
  auto& world = world_of(state);
  world.acquire("late");
  world.end_turn();
  world.jump_ms(5000);
  world.acquire("cancelled");
  world.end_turn();
  world.cancel("cancelled");
  world.end_turn();
  assert_text_equal(world.take_told(), "late!NetworkTimeout? cancelled!Aborted?");
  lose_link(world);
  world.jump_ms(lock_ttl_ms);
  find_link(world);
  assert_text_equal(world.take_sent(), "M[release:~late release:~cancelled] flush");
  world.answer(verdict::absent);
  assert_text_equal(world.take_told(), "");
}

void release_for_nobody_ends_with_the_time_to_live(void** state) {
  auto& world = world_of(state);
  world.acquire("a");
  world.end_turn();
  world.cancel("a");
  lose_link(world);
  world.jump_ms(lock_ttl_ms + 10'000);
  find_link(world);
  assert_text_equal(world.take_sent(), "flush");
  assert_text_equal(world.take_told(), "a!Aborted?");
}

void release_for_nobody_is_sent_again_when_it_is_lost(void** state) {
  auto& world = world_of(state);
  world.acquire("a");
  world.end_turn();
  world.cancel("a");
  world.answer(verdict::acquired);
  world.end_turn();
  lose_link(world);
  find_link(world);
  assert_text_equal(world.take_sent(), "M[release:~a] flush");
}

void release_given_up_in_flight_is_tried_again(void** state) {
  auto& world = world_of(state);
  world.start(operation_kind::release, "r");
  world.start(operation_kind::extend, "e");
  world.end_turn();
  world.cancel("r");
  world.cancel("e");
  lose_link(world);
  find_link(world);
  assert_text_equal(world.take_sent(), "M[release:~r] flush");
}

void lost_acquire_that_is_late_is_unknown_and_released(void** state) {
  auto& world = world_of(state);
  world.acquire("a");
  world.start(operation_kind::is_locked, "k");
  world.end_turn();
  lose_link(world);
  world.jump_ms(5000);
  assert_text_equal(world.take_told(), "a!ServiceUnavailable? k!ServiceUnavailable");
  find_link(world);
  assert_text_equal(world.take_sent(), "M[release:~a] flush");
}

void lost_acquire_that_is_cancelled_is_unknown_and_released(void** state) {
  auto& world = world_of(state);
  world.acquire("a");
  world.end_turn();
  lose_link(world);
  assert_true(world.cancel("a"));
  world.end_turn();
  assert_text_equal(world.take_told(), "a!Aborted?");
  find_link(world);
  assert_text_equal(world.take_sent(), "M[release:~a] flush");
}

// Sends an acquire twice, and gives it up the second time: the first may have been granted, whatever is said now.
void give_up_the_second_time(engine_world& world) {
  world.acquire("a");
  world.end_turn();
  lose_link(world);
  find_link(world);
  world.cancel("a");
  world.end_turn();
  world.take_sent();
}

void lost_acquire_given_up_and_then_without_script_is_released(void** state) {
  auto& world = world_of(state);
  give_up_the_second_time(world);
  world.script_missing();
  world.end_turn();
  assert_text_equal(world.take_sent(), "load M[release:~a] flush");
}

void lost_acquire_given_up_and_then_failed_is_released(void** state) {
  auto& world = world_of(state);
  give_up_the_second_time(world);
  world.answer(verdict::failed);
  world.end_turn();
  assert_text_equal(world.take_sent(), "M[release:~a] flush");
}

void link_lost_inside_a_callback_leaves_the_rest_of_the_answer(void** state) {
  auto& world = world_of(state);
  world.start_many(operation_kind::acquire, "a", 2);
  world.end_turn();
  world.acquire("b");
  world.end_turn();
  world.inside = [&](const std::string& name) {
    if (name == "a0") lose_link(world);
  };
  world.answer(verdict::acquired);
  assert_text_equal(world.take_told(), "a0=acquired a1=acquired");
  find_link(world);
  assert_text_equal(world.take_sent(), "M[acquire:b] flush");
}

// Refused links

void refused_link_fails_everything_until_it_is_up(void** state) {
  auto& world = world_of(state);
  world.acquire("sent");
  world.start(operation_kind::is_locked, "read");
  world.end_turn();
  world.acquire("queued");
  world.link_down(error_code::auth_failed, true);
  assert_text_equal(world.take_told(), "sent!AuthFailed? queued!AuthFailed read!AuthFailed");
  world.acquire("new");
  assert_text_equal(world.take_told(), "");
  world.end_turn();
  assert_text_equal(world.take_told(), "new!AuthFailed");
  find_link(world);
  assert_text_equal(world.take_sent(), "M[release:~sent] flush");
  world.acquire("healed");
  world.end_turn();
  assert_text_equal(world.take_sent(), "M[acquire:healed] flush");
}

void callbacks_of_a_refused_link_may_start_and_cancel(void** state) {
  auto& world = world_of(state);
  world.start_many(operation_kind::acquire, "a", 3);
  world.inside = [&](const std::string& name) {
    if (name != "a0") return;
    world.cancel("a1");
    world.acquire("b");
  };
  world.link_down(error_code::auth_failed, true);
  assert_text_equal(world.take_told(), "a0!AuthFailed a2!AuthFailed");
  world.end_turn();
  assert_text_equal(world.take_told(), "a1!Aborted b!AuthFailed");
}

void link_up_inside_a_refusal_saves_the_others(void** state) {
  auto& world = world_of(state);
  world.start_many(operation_kind::acquire, "a", 3);
  world.inside = [&](const std::string&) { world.link_up(); };
  world.link_down(error_code::auth_failed, true);
  assert_text_equal(world.take_told(), "a0!AuthFailed");
  world.end_turn();
  assert_text_equal(world.take_sent(), "M[acquire:a1 acquire:a2] flush");
}

// Lost scripts

void lost_script_is_loaded_when_all_in_flight_is_answered(void** state) {
  auto& world = world_of(state);
  world.acquire("a");
  world.start(operation_kind::is_locked, "k");
  world.end_turn();
  world.acquire("b");
  world.end_turn();
  world.take_sent();
  world.script_missing();
  world.start_many(operation_kind::release, "c", 40);
  world.end_turn();
  world.answer(verdict::held);
  assert_text_equal(world.take_sent(), "");
  world.script_missing();
  assert_text_equal(world.take_sent(), "load");
  assert_text_equal(world.take_told(), "");
  world.end_turn();
  assert_text_equal(world.take_sent(), "M[32] M[10] K[is_locked:k] flush");
  assert_text_equal(world.describe(*world.in_flight.front()->operations[0]), "acquire:a");
  assert_text_equal(world.describe(*world.in_flight.front()->operations[1]), "acquire:b");
  assert_text_equal(world.describe(*world.in_flight.front()->operations[2]), "release:c0");
}

void mutations_answered_while_a_script_is_lost_are_told(void** state) {
  auto& world = world_of(state);
  world.acquire("a");
  world.end_turn();
  world.acquire("b");
  world.end_turn();
  world.take_sent();
  world.script_missing();
  world.answer(verdict::acquired);
  assert_text_equal(world.take_told(), "b=acquired");
  world.end_turn();
  assert_text_equal(world.take_sent(), "load M[acquire:a] flush");
}

void batch_without_script_has_changed_nothing(void** state) {
  auto& world = world_of(state);
  world.acquire("given up");
  world.start(operation_kind::release, "r");
  world.end_turn();
  world.cancel("given up");
  world.end_turn();
  world.take_sent();
  world.script_missing();
  world.end_turn();
  assert_text_equal(world.take_sent(), "load M[release:r] flush");
  world.answer(verdict::absent);
  assert_text_equal(world.take_told(), "given up!Aborted? r=absent");
}

void link_lost_while_a_script_is_lost_keeps_the_order(void** state) {
  auto& world = world_of(state);
  world.acquire("a");
  world.end_turn();
  world.acquire("b");
  world.end_turn();
  world.script_missing();
  world.acquire("c");
  lose_link(world);
  find_link(world);
  assert_text_equal(world.take_sent(), "M[acquire:a acquire:b acquire:c] flush");
}

// Two batches on their way, the first of which finds no script: a1 and a2 wait for the answer to b.
void lose_script_of_three(engine_world& world) {
  world.start_many(operation_kind::acquire, "a", 3);
  world.end_turn();
  world.acquire("b");
  world.end_turn();
  world.script_missing();
  world.acquire("c");
  world.take_sent();
}

void cancel_while_a_script_is_lost_leaves_the_others(void** state) {
  auto& world = world_of(state);
  lose_script_of_three(world);
  assert_true(world.cancel("a0"));
  assert_true(world.cancel("a2"));
  world.end_turn();
  assert_text_equal(world.take_told(), "a0!Aborted a2!Aborted");
  world.answer(verdict::acquired);
  world.end_turn();
  assert_text_equal(world.take_sent(), "load M[acquire:a1 acquire:c] flush");
}

void time_up_while_a_script_is_lost_leaves_the_others(void** state) {
  auto& world = world_of(state);
  world.acquire("a");
  world.end_turn();
  world.now_us += 1'000'000;
  world.acquire("b");
  world.end_turn();
  world.script_missing();
  world.acquire("c");
  world.jump_ms(4000);
  assert_text_equal(world.take_told(), "a!NetworkTimeout");
  world.take_sent();
  world.answer(verdict::acquired);
  world.end_turn();
  assert_text_equal(world.take_told(), "b=acquired");
  assert_text_equal(world.take_sent(), "load M[acquire:c] flush");
}

// Calls inside callbacks

void turn_may_end_inside_a_callback(void** state) {
  auto& world = world_of(state);
  world.start_many(operation_kind::acquire, "a", 3);
  for (const auto* name : {"a0", "a1", "a2"}) assert_true(world.cancel(name));
  world.inside = [&](const std::string& name) {
    if (name == "a0") world.end_turn();
  };
  world.end_turn();
  assert_text_equal(world.take_told(), "a0!Aborted a1!Aborted a2!Aborted");
}

void timers_may_run_inside_a_callback(void** state) {
  auto& world = world_of(state);
  world.start_many(operation_kind::acquire, "a", 3);
  world.end_turn();
  world.inside = [&](const std::string& name) {
    if (name == "a0") world.jump_ms(5000);
  };
  world.answer(verdict::acquired);
  assert_text_equal(world.take_told(), "a0=acquired a1!NetworkTimeout? a2!NetworkTimeout?");
  world.take_sent();
  world.end_turn();
  assert_text_equal(world.take_sent(), "M[release:~a1 release:~a2] flush");
}

// Random steps

// A server that knows which lock ids hold a lock, and a caller who does everything at any time.
class random_schedule {
 public:
  explicit random_schedule(std::uint64_t seed) : random_(seed) {
    world_.ttl_ms = 1'000'000'000;  // far beyond the schedule: what is held for nobody stays held
    world_.inside = [this](const std::string&) { act_inside(); };
  }

  void step() {
    switch (below(16)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4: start(); break;
      case 5:
      case 6: cancel(); break;
      case 7:
      case 8: world_.end_turn(); break;
      case 9:
      case 10:
      case 11: answer(); break;
      case 12:
        if (below(4) == 0) link_down();
        break;
      case 13: link_up(); break;
      case 14:
        if (below(4) == 0) script_missing();
        break;
      default: world_.jump_ms(static_cast<std::int64_t>(below(3000))); break;
    }
    read_told();
  }

  // Lets everything end without any more faults.
  void drain() {
    world_.inside = nullptr;
    link_up();
    for (int turns = 0; turns < 1000; ++turns) {
      world_.end_turn();
      while (!world_.in_flight.empty()) answer();
      read_told();
    }
  }

  // What is wrong at the end, or nothing.
  std::string judge() {
    const auto& stats = world_.subject->stats();
    if (world_.subject->pending() != 0) return "pending " + std::to_string(world_.subject->pending());
    for (const auto& [name, count] : world_.callbacks_run())
      if (count != 1) return name + " was told " + std::to_string(count) + " times";
    if (stats.started != names_.size() || stats.completed != stats.started) return "the statistics do not add up";
    for (const auto& name : held_)
      if (!granted_.contains(name)) return name + " is held for nobody";
    return {};
  }

  std::size_t started() const { return names_.size(); }

 private:
  std::size_t below(std::size_t end) { return static_cast<std::size_t>(random_() % end); }
  const std::string& recent() { return names_[names_.size() - 1 - below(std::min<std::size_t>(names_.size(), 20))]; }

  void start() {
    static constexpr std::array kinds{operation_kind::acquire,   operation_kind::acquire,    operation_kind::acquire,
                                      operation_kind::release,   operation_kind::extend,     operation_kind::is_locked,
                                      operation_kind::lookup_id, operation_kind::lookup_key, operation_kind::is_locked};
    const auto kind = kinds.at(below(kinds.size()));
    const std::string id_name = kind == operation_kind::release && !names_.empty() ? recent() : std::string{};
    names_.push_back("op" + std::to_string(names_.size()));
    world_.start(kind, names_.back(), id_name);
  }
  void cancel() {
    if (!names_.empty()) world_.cancel(recent());
  }
  void answer() {
    if (world_.in_flight.empty()) return;
    world_.answer(carry_out(*world_.in_flight.front()));
  }
  void script_missing() {
    if (world_.in_flight.empty() || world_.in_flight.front()->kind == travel_class::key_read) return;
    world_.script_missing();
  }
  void link_up() {
    if (!up_) world_.link_up();
    up_ = true;
  }
  void link_down() {
    up_ = false;
    // What was sent first may have been carried out, and only the answer lost.
    for (std::size_t index = 0, count = below(world_.in_flight.size() + 1); index < count; ++index)
      carry_out(*world_.in_flight[index]);
    world_.link_down(error_code::service_unavailable, below(4) == 0);
  }
  void act_inside() {
    switch (below(48)) {
      case 0:
      case 1:
      case 2:
      case 3: start(); break;
      case 4:
      case 5:
      case 6:
      case 7: cancel(); break;
      case 8: world_.end_turn(); break;
      case 9: link_down(); break;
      case 10: link_up(); break;
      case 11: world_.jump_ms(1000); break;
      default: break;
    }
  }

  std::vector<said> carry_out(const batch& commands) {
    std::vector<said> words;
    for (std::size_t index = 0; index < commands.count; ++index)
      words.push_back(carry_out(*commands.operations[index]));
    return words;
  }
  said carry_out(const operation& command) {
    const bool own = command.key.view().empty();
    if (!own && below(10) == 0) return {verdict::failed, false, below(4) == 0};
    const std::string& owner = command.id ? world_.owner_of(*command.id) : names_.front();
    switch (command.kind) {
      case operation_kind::acquire:
        if (!held_.contains(owner) && below(2) == 0) return {verdict::contended};
        held_.insert(owner);
        return {verdict::acquired};
      case operation_kind::release: return {held_.erase(owner) > 0 ? verdict::released : verdict::absent};
      case operation_kind::extend: return {held_.contains(owner) ? verdict::extended : verdict::absent};
      case operation_kind::is_locked:
        if (below(4) == 0) return {verdict::unreadable};
        return {verdict::expired, below(2) == 0};
      case operation_kind::clean_up: return {verdict::absent};
      case operation_kind::inspect: return {verdict::held};
      default: return {verdict::found};
    }
  }

  void read_told() {
    std::istringstream words{world_.take_told()};
    for (std::string word; words >> word;)
      if (word.ends_with("=acquired")) granted_.insert(word.substr(0, word.find('=')));
    world_.take_sent();
  }

  std::mt19937_64 random_;
  engine_world world_{engine_options{.max_pending = 60, .cleanup_in_is_locked = true}};
  bool up_ = false;
  std::vector<std::string> names_;
  std::set<std::string> held_;
  std::set<std::string> granted_;
};

void random_steps_tell_each_operation_once_and_leave_no_lock(void**) {
  constexpr std::uint64_t seed_count = 20;
  constexpr int steps = 5000;
  const char* given = std::getenv("SYNCGUARD_SEED");
  const std::uint64_t first = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  note("SYNCGUARD_SEED=%llu, %d steps each", static_cast<unsigned long long>(first), steps);
  for (std::uint64_t seed = first; seed < first + seed_count; ++seed) {
    const auto schedule = std::make_unique<random_schedule>(seed);
    for (int done = 0; done < steps; ++done) schedule->step();
    schedule->drain();
    const std::string wrong = schedule->judge();
    if (!wrong.empty()) note("seed %llu: %s", static_cast<unsigned long long>(seed), wrong.c_str());
    assert_true(wrong.empty());
    assert_true(schedule->started() > steps / 5);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      engine_test(lost_batches_are_sent_again_before_younger_ones),
      engine_test(release_that_was_lost_and_finds_nothing_is_unknown),
      engine_test(acquire_that_was_lost_and_then_fails_is_unknown_and_released),
      engine_test(acquire_given_up_in_flight_is_released_over_the_next_link),
      engine_test(release_for_nobody_ends_with_the_time_to_live),
      engine_test(release_for_nobody_is_sent_again_when_it_is_lost),
      engine_test(release_given_up_in_flight_is_tried_again),
      engine_test(lost_acquire_that_is_late_is_unknown_and_released),
      engine_test(lost_acquire_that_is_cancelled_is_unknown_and_released),
      engine_test(lost_acquire_given_up_and_then_without_script_is_released),
      engine_test(lost_acquire_given_up_and_then_failed_is_released),
      engine_test(link_lost_inside_a_callback_leaves_the_rest_of_the_answer),
      engine_test(refused_link_fails_everything_until_it_is_up),
      engine_test(callbacks_of_a_refused_link_may_start_and_cancel),
      engine_test(link_up_inside_a_refusal_saves_the_others),
      engine_test(lost_script_is_loaded_when_all_in_flight_is_answered),
      engine_test(mutations_answered_while_a_script_is_lost_are_told),
      engine_test(batch_without_script_has_changed_nothing),
      engine_test(link_lost_while_a_script_is_lost_keeps_the_order),
      engine_test(cancel_while_a_script_is_lost_leaves_the_others),
      engine_test(time_up_while_a_script_is_lost_leaves_the_others),
      engine_test(turn_may_end_inside_a_callback),
      engine_test(timers_may_run_inside_a_callback),
      cmocka_unit_test(random_steps_tell_each_operation_once_and_leave_no_lock),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
