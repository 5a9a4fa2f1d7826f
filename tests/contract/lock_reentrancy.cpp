// What may be done inside the callbacks of held locks: everything, in each of them.

#include <functional>
#include <string>

#include "contract/cases.hpp"
#include "contract/locks.hpp"

namespace syncguard::testing {

namespace {

// Which callback it is.
enum class place : std::uint8_t {
  granted,
  waited,
  refused,
  timed_out,
  cancelled,
  vanished,
  unconfirmed,
  closed,
  extended,
  released
};

// What is done inside it.
enum class deed : std::uint8_t {
  destroy_client,
  close_client,
  move_client,
  cancel_other,
  destroy_lock,
  move_lock,
  release_lock,
  extend_lock,
  replace_on_lost,
  start_another,
};

constexpr deed deeds[] = {deed::destroy_client,  deed::close_client, deed::move_client,  deed::cancel_other,
                          deed::destroy_lock,    deed::move_lock,    deed::release_lock, deed::extend_lock,
                          deed::replace_on_lost, deed::start_another};

struct scene {
  deed what = deed::destroy_client;
  syncguard::lock held;
  syncguard::lock elsewhere;
  std::unique_ptr<client> moved;
  started_lock other;  // waits for a lock that the rival holds
  int calls = 0;
};

using shared_scene = std::shared_ptr<scene>;

void act(scene& on) {
  ++on.calls;
  switch (on.what) {
    case deed::destroy_client: return destroy_subject();
    case deed::close_client: return subject().close({});
    case deed::move_client: {
      auto& owner = subject_owner();
      owner = std::make_unique<client>(std::move(*owner));
      return;
    }
    case deed::cancel_other: static_cast<void>(subject().cancel(on.other.handle)); return;
    case deed::destroy_lock: on.held = {}; return;
    case deed::move_lock: on.elsewhere = std::move(on.held); return;
    case deed::release_lock: return on.held.release({});
    case deed::extend_lock: return on.held.extend(30s, {});
    case deed::replace_on_lost: return on.held.on_lost([](lost) {});
    case deed::start_another: static_cast<void>(start_lock("another")); return;
  }
}

callback<result<syncguard::lock>> take_and_act(const shared_scene& on) {
  return [on](result<syncguard::lock> got) {
    if (got) on->held = *std::move(got);
    act(*on);
  };
}

// Brings about the callback; the server's part of it may be to come yet.
void provoke(place where, const shared_scene& on) {
  const lock_options impatient{.ttl = 60s, .wait = 20ms};
  switch (where) {
    case place::granted: subject().lock("k", steady, take_and_act(on)); return;
    case place::waited: {
      auto theirs = hold_lock("k", steady, rival());
      subject().lock("k", steady, take_and_act(on));
      run_for(10ms);
      return;
    }
    case place::refused: subject().lock("", steady, take_and_act(on)); return;
    case place::timed_out: subject().lock("other", impatient, take_and_act(on)); return;
    case place::cancelled: {
      const auto handle = subject().lock("other", steady, take_and_act(on));
      run_for(5ms);
      subject().cancel(handle);
      return;
    }
    case place::vanished:
    case place::unconfirmed:
    case place::closed:
      on->held = hold_lock("k", {.ttl = where == place::unconfirmed ? milliseconds{100} : milliseconds{60'000},
                                 .wait = 60s,
                                 .heartbeat = where != place::unconfirmed});
      on->held.on_lost([on](lost) { act(*on); });
      if (where == place::vanished) redis({"DEL", lock_key("k"), index_key(on->held.id())});
      if (where == place::closed) subject().close({});
      return;
    case place::extended:
      on->held = hold_lock("k");
      on->held.extend(50s, [on](const result<std::optional<server_time>>&) { act(*on); });
      return;
    case place::released:
      on->held = hold_lock("k");
      on->held.release([on](const result<bool>&) { act(*on); });
      return;
  }
}

void every_deed_is_legal(place where) {
  for (const deed what : deeds) {
    redis({"FLUSHALL"});
    const auto theirs = hold_lock("other", steady, rival());
    make_ready_subject();
    warm_up();
    const auto on = std::make_shared<scene>();
    on->what = what;
    on->other = start_lock("other");
    run_for(5ms);
    provoke(where, on);
    if (!run_until([&] { return on->calls > 0; })) {
      print_error("place %d, deed %d: the callback did not run\n", static_cast<int>(where), static_cast<int>(what));
      fail();
    }
    run_for(20ms);
    assert_int_equal(on->calls, 1);
    if (!subject_exists()) {
      assert_false(on->held.valid());
      assert_false(on->other.done());
    }
    if (what == deed::close_client) {
      assert_true(run_until([&] { return subject().state() == connection_state::closed; }));
      assert_false(on->held.valid());
      await_failure(on->other, error_code::aborted);
    }
    if (what == deed::cancel_other && where != place::closed) await_failure(on->other, error_code::aborted);
    on->held = {};
    on->elsewhere = {};
  }
}

void everything_is_legal_inside_the_callback_of_a_grant(void**) { every_deed_is_legal(place::granted); }
void everything_is_legal_inside_the_callback_of_a_grant_after_waiting(void**) { every_deed_is_legal(place::waited); }
void everything_is_legal_inside_the_callback_of_a_refusal(void**) { every_deed_is_legal(place::refused); }
void everything_is_legal_inside_the_callback_of_a_timeout(void**) { every_deed_is_legal(place::timed_out); }
void everything_is_legal_inside_the_callback_of_a_cancelled_wait(void**) { every_deed_is_legal(place::cancelled); }
void everything_is_legal_inside_on_lost_of_a_vanished_lock(void**) { every_deed_is_legal(place::vanished); }
void everything_is_legal_inside_on_lost_of_an_unconfirmed_lock(void**) { every_deed_is_legal(place::unconfirmed); }
void everything_is_legal_inside_on_lost_of_a_closed_client(void**) { every_deed_is_legal(place::closed); }
void everything_is_legal_inside_the_callback_of_extend(void**) { every_deed_is_legal(place::extended); }
void everything_is_legal_inside_the_callback_of_release(void**) { every_deed_is_legal(place::released); }

// A hundred are lost in one turn, and the callback of one ends all the others.
void on_lost_may_destroy_the_other_locks(void**) {
  warm_up();
  const auto all = std::make_shared<std::vector<syncguard::lock>>();
  const auto calls = std::make_shared<int>(0);
  for (int index = 0; index < 100; ++index) all->push_back(hold_lock("k" + std::to_string(index)));
  for (syncguard::lock& each : *all) {
    each.on_lost([all, calls](lost) {
      ++*calls;
      const auto dropped = std::move(*all);
      all->clear();
    });
  }
  redis({"FLUSHALL"});
  assert_true(run_until([&] { return *calls > 0; }));
  run_for(50ms);
  assert_int_equal(*calls, 1);
  assert_int_equal(subject().stats().held, 0);
}

void on_release_error_may_destroy_the_client(void**) {
  client_options options = base_options();
  options.release_timeout = 100ms;
  options.on_release_error = [](const error&) { destroy_subject(); };
  make_ready_subject(std::move(options));
  std::vector<syncguard::lock> held;
  for (int index = 0; index < 3; ++index) held.push_back(hold_lock("k" + std::to_string(index)));
  server().pause();
  held.clear();
  assert_true(run_until([] { return !subject_exists(); }));
  server().resume();
}

}  // namespace

cases lock_reentrancy_cases() {
  static const CMUnitTest all[] = {
      contract_case_alone(everything_is_legal_inside_the_callback_of_a_grant),
      contract_case_alone(everything_is_legal_inside_the_callback_of_a_grant_after_waiting),
      contract_case_alone(everything_is_legal_inside_the_callback_of_a_refusal),
      contract_case_alone(everything_is_legal_inside_the_callback_of_a_timeout),
      contract_case_alone(everything_is_legal_inside_the_callback_of_a_cancelled_wait),
      contract_case_alone(everything_is_legal_inside_on_lost_of_a_vanished_lock),
      contract_case_alone(everything_is_legal_inside_on_lost_of_an_unconfirmed_lock),
      contract_case_alone(everything_is_legal_inside_on_lost_of_a_closed_client),
      contract_case_alone(everything_is_legal_inside_the_callback_of_extend),
      contract_case_alone(everything_is_legal_inside_the_callback_of_release),
      contract_case(on_lost_may_destroy_the_other_locks),
      contract_case_alone(on_release_error_may_destroy_the_client),
  };
  return all;
}

}  // namespace syncguard::testing
