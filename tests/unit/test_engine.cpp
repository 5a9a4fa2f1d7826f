// The engine in a world where the link holds: batches, answers, deadlines, cancelling, limits, and being destroyed.

#include "engine/engine.hpp"

#include "engine_fixture.hpp"

namespace {

using namespace syncguard::testing;
using syncguard::error_code;

// Batches

void turn_ends_with_mutations_before_reads(void** state) {
  auto& world = world_of(state);
  world.start(operation_kind::lookup_id, "i");
  world.start(operation_kind::is_locked, "k");
  world.start(operation_kind::extend, "e");
  world.acquire("a");
  assert_text_equal(world.take_sent(), "");
  assert_true(world.turn_end_wanted);
  world.end_turn();
  assert_text_equal(world.take_sent(), "M[extend:e acquire:a] K[is_locked:k] I[lookup_id:i] flush");
}

void batch_of_mutations_leaves_when_full(void** state) {
  auto& world = world_of(state);
  world.start_many(operation_kind::acquire, "m", 31);
  assert_text_equal(world.take_sent(), "");
  world.start(operation_kind::release, "last");
  assert_text_equal(world.take_sent(), "M[32]");
  world.acquire("next");
  assert_text_equal(world.take_sent(), "");
  world.end_turn();
  assert_text_equal(world.take_sent(), "M[acquire:next] flush");
}

void full_batch_of_reads_leaves_after_the_mutations(void** state) {
  auto& world = world_of(state);
  world.acquire("a");
  world.start_many(operation_kind::is_locked, "k", 63);
  assert_text_equal(world.take_sent(), "");
  world.start(operation_kind::lookup_key, "last");
  assert_text_equal(world.take_sent(), "M[acquire:a] K[64]");
  world.acquire("b");
  world.start_many(operation_kind::lookup_id, "i", 64);
  assert_text_equal(world.take_sent(), "M[acquire:b] I[64]");
}

void backlog_is_cut_into_batches(void** state) {
  auto& world = world_of(state);
  world.start_many(operation_kind::acquire, "m", 74);
  world.start_many(operation_kind::is_locked, "k", 138);
  world.end_turn();
  assert_text_equal(world.take_sent(), "");
  world.link_up();
  assert_text_equal(world.take_sent(), "");
  world.end_turn();
  assert_text_equal(world.take_sent(), "M[32] M[32] M[10] K[64] K[64] K[10] flush");
}

void answers_are_told_in_their_order(void** state) {
  auto& world = world_of(state);
  world.acquire("a");
  world.acquire("b");
  world.start(operation_kind::release, "c");
  world.end_turn();
  world.answer({{verdict::acquired}, {verdict::contended}, {verdict::failed}});
  assert_text_equal(world.take_told(), "a=acquired b=contended c!ServiceUnavailable");
  assert_int_equal(world.subject->pending(), 0);
  assert_false(world.subject->next_wake_ms().has_value());
}

void demoted_server_is_dropped_once_per_batch(void** state) {
  auto& world = world_of(state);
  world.acquire("a");
  world.acquire("b");
  world.end_turn();
  world.take_sent();
  world.answer({said{verdict::failed, false, true}});
  assert_text_equal(world.take_told(), "a!ServiceUnavailable b!ServiceUnavailable");
  assert_text_equal(world.take_sent(), "drop:ServiceUnavailable");
}

void unreadable_record_of_is_locked_is_inspected(void** state) {
  auto& world = world_of(state);
  world.start(operation_kind::is_locked, "k");
  world.start(operation_kind::lookup_key, "l");
  world.end_turn();
  world.take_sent();
  world.turn_end_wanted = false;
  world.answer(verdict::unreadable);
  assert_text_equal(world.take_told(), "l=unreadable");
  assert_true(world.turn_end_wanted);
  world.end_turn();
  assert_text_equal(world.take_sent(), "M[inspect:k] flush");
  world.answer(verdict::held);
  assert_text_equal(world.take_told(), "k=held");
}

void acquire_that_met_an_unreadable_record_is_sent_once_more(void** state) {
  auto& world = world_of(state);
  world.start(operation_kind::acquire, "k");
  world.start(operation_kind::acquire, "l");
  world.end_turn();
  world.take_sent();
  world.answer({said{verdict::unreadable}, said{verdict::contended}});
  assert_text_equal(world.take_told(), "l=contended");
  world.end_turn();
  assert_text_equal(world.take_sent(), "M[acquire:k] flush");
  world.answer(verdict::unreadable);
  assert_text_equal(world.take_told(), "k=unreadable");
}

void inspection_keeps_the_deadline(void** state) {
  auto& world = world_of(state);
  world.start(operation_kind::is_locked, "k");
  world.end_turn();
  world.jump_ms(4000);
  world.answer(verdict::unreadable);
  world.end_turn();
  world.jump_ms(999);
  assert_text_equal(world.take_told(), "");
  world.jump_ms(1);
  assert_text_equal(world.take_told(), "k!NetworkTimeout");
}

void expired_record_is_cleaned_up_only_where_wanted(void**) {
  for (const bool wanted : {false, true}) {
    const auto world = std::make_unique<engine_world>(engine_options{.cleanup_in_is_locked = wanted});
    world->link_up();
    world->start(operation_kind::is_locked, "old");
    world->start(operation_kind::is_locked, "young");
    world->start(operation_kind::lookup_key, "other");
    world->end_turn();
    world->take_sent();
    world->answer({{verdict::expired, true}, {verdict::expired, false}, {verdict::expired, true}});
    assert_text_equal(world->take_told(), "old=expired young=expired other=expired");
    world->end_turn();
    assert_text_equal(world->take_sent(), wanted ? "M[clean_up:old] flush" : "flush");
    if (wanted) world->answer(verdict::absent);
    assert_text_equal(world->take_told(), "");
    assert_int_equal(world->subject->pending(), 0);
  }
}

// Deadlines

void operation_before_the_first_link_times_out(void** state) {
  auto& world = world_of(state);
  world.acquire("a");
  world.end_turn();
  world.jump_ms(4999);
  assert_text_equal(world.take_told(), "");
  world.jump_ms(1);
  assert_text_equal(world.take_told(), "a!NetworkTimeout");
  world.link_up();
  world.end_turn();
  assert_text_equal(world.take_sent(), "flush");
}

void operation_without_a_link_fails_with_the_error_of_the_link(void** state) {
  auto& world = world_of(state);
  world.link_down(error_code::service_unavailable);
  world.acquire("a");
  world.end_turn();
  world.jump_ms(5000);
  assert_text_equal(world.take_told(), "a!ServiceUnavailable");
  assert_text_equal(world.last_cause, "the link is gone");
}

void operation_that_was_never_sent_over_a_good_link_times_out(void** state) {
  auto& world = world_of(state);
  world.acquire("a");
  world.jump_ms(5000);
  assert_text_equal(world.take_told(), "a!NetworkTimeout");
  world.end_turn();
  assert_text_equal(world.take_sent(), "flush");
}

void sent_operations_time_out_with_what_may_have_changed_unknown(void** state) {
  auto& world = world_of(state);
  world.acquire("a");
  world.start(operation_kind::release, "r");
  world.start(operation_kind::extend, "e");
  world.start(operation_kind::is_locked, "k");
  world.end_turn();
  world.jump_ms(5000);
  assert_text_equal(world.take_told(), "a!NetworkTimeout? r!NetworkTimeout? e!NetworkTimeout? k!NetworkTimeout");
  assert_int_equal(world.subject->pending(), 0);
}

void late_grant_is_released_once(void** state) {
  auto& world = world_of(state);
  world.acquire("a");
  world.end_turn();
  world.jump_ms(5000);
  assert_text_equal(world.take_told(), "a!NetworkTimeout?");
  world.take_sent();
  world.answer(verdict::acquired);
  world.end_turn();
  assert_text_equal(world.take_sent(), "M[release:~a] flush");
  world.answer(verdict::released);
  world.end_turn();
  assert_text_equal(world.take_sent(), "flush");
  assert_text_equal(world.take_told(), "");
}

void late_refusal_is_not_released(void** state) {
  auto& world = world_of(state);
  world.acquire("a");
  world.start(operation_kind::release, "r");
  world.end_turn();
  world.jump_ms(5000);
  world.take_sent();
  world.answer({{verdict::contended}, {verdict::released}});
  world.end_turn();
  assert_text_equal(world.take_sent(), "flush");
}

void silent_link_is_dropped(void** state) {
  auto& world = world_of(state);
  world.acquire("a");
  world.end_turn();
  world.take_sent();
  world.jump_ms(5000);
  assert_text_equal(world.take_sent(), "poll drop:NetworkTimeout");
}

void link_that_was_not_given_time_is_not_dropped(void** state) {
  auto& world = world_of(state);
  world.acquire("a");
  world.jump_ms(4000);
  world.link_up();
  world.end_turn();
  world.take_sent();
  world.jump_ms(1000);
  assert_text_equal(world.take_told(), "a!NetworkTimeout?");
  assert_text_equal(world.take_sent(), "poll");
}

void answer_found_by_polling_is_in_time(void** state) {
  auto& world = world_of(state);
  world.acquire("a");
  world.end_turn();
  world.acquire("never sent");
  world.take_sent();
  std::string told_before;
  world.inside_poll = [&] {
    told_before = world.take_told();
    world.answer(verdict::acquired);
  };
  world.jump_ms(60'000);
  assert_text_equal(told_before, "");
  assert_text_equal(world.take_told(), "a=acquired never sent!NetworkTimeout");
  assert_text_equal(world.take_sent(), "poll");
}

void nothing_in_flight_is_not_polled_for(void** state) {
  auto& world = world_of(state);
  world.acquire("a");
  world.jump_ms(5000);
  assert_text_equal(world.take_sent(), "");
}

// Cancelling

void cancelled_before_it_was_sent_is_never_sent(void** state) {
  auto& world = world_of(state);
  world.acquire("a");
  assert_true(world.cancel("a"));
  assert_text_equal(world.take_told(), "");
  world.end_turn();
  assert_text_equal(world.take_sent(), "flush");
  assert_text_equal(world.take_told(), "a!Aborted");
}

void cancelled_on_its_way_is_aborted_and_its_grant_released(void** state) {
  auto& world = world_of(state);
  world.acquire("a");
  world.start(operation_kind::is_locked, "k");
  world.end_turn();
  assert_true(world.cancel("a"));
  assert_true(world.cancel("k"));
  assert_text_equal(world.take_told(), "");
  world.end_turn();
  assert_text_equal(world.take_told(), "a!Aborted? k!Aborted");
  world.take_sent();
  world.answer(verdict::acquired);
  world.answer(verdict::held);
  world.end_turn();
  assert_text_equal(world.take_sent(), "M[release:~a] flush");
  assert_text_equal(world.take_told(), "");
}

void grant_that_comes_in_the_turn_of_the_cancel_is_released(void** state) {
  auto& world = world_of(state);
  world.acquire("a");
  world.end_turn();
  world.take_sent();
  assert_true(world.cancel("a"));
  world.answer(verdict::acquired);
  world.end_turn();
  assert_text_equal(world.take_told(), "a!Aborted?");
  assert_text_equal(world.take_sent(), "M[release:~a] flush");
}

void cancel_of_what_is_over_does_nothing(void** state) {
  auto& world = world_of(state);
  world.acquire("queued");
  assert_true(world.cancel("queued"));
  assert_false(world.cancel("queued"));
  world.acquire("sent");
  world.end_turn();
  assert_true(world.cancel("sent"));
  assert_false(world.cancel("sent"));
  world.end_turn();
  assert_false(world.cancel("queued"));
  assert_false(world.cancel("sent"));
  world.acquire("done");
  world.end_turn();
  world.answer(verdict::contended);
  world.answer(verdict::contended);
  assert_false(world.cancel("done"));
  assert_text_equal(world.take_told(), "queued!Aborted sent!Aborted? done=contended");
  assert_false(world.subject->cancel(100'000, 0, world.now_us));
}

void cancel_inside_a_callback_reaches_the_rest_of_the_batch(void** state) {
  auto& world = world_of(state);
  world.start_many(operation_kind::acquire, "a", 3);
  world.end_turn();
  world.take_sent();
  bool cancelled = false;
  world.inside = [&](const std::string& name) {
    if (name == "a0") cancelled = world.cancel("a1");
  };
  world.answer(verdict::acquired);
  assert_true(cancelled);
  assert_text_equal(world.take_told(), "a0=acquired a2=acquired");
  world.end_turn();
  assert_text_equal(world.take_told(), "a1!Aborted?");
  assert_text_equal(world.take_sent(), "M[release:~a1] flush");
}

// Limits

void too_many_pending_fail_at_the_end_of_the_turn(void**) {
  const auto world = std::make_unique<engine_world>(engine_options{.max_pending = 2});
  world->link_up();
  world->start_many(operation_kind::acquire, "a", 3);
  assert_text_equal(world->take_told(), "");
  world->end_turn();
  assert_text_equal(world->take_told(), "a2!RateLimited");
  assert_text_equal(world->take_sent(), "M[acquire:a0 acquire:a1] flush");
  world->answer(verdict::acquired);
  world->acquire("b");
  world->end_turn();
  assert_text_equal(world->take_sent(), "M[acquire:b] flush");
}

void closed_engine_finishes_and_accepts_nothing(void** state) {
  auto& world = world_of(state);
  world.acquire("a");
  world.subject->stop_accepting();
  world.acquire("b");
  world.end_turn();
  assert_text_equal(world.take_told(), "b!Aborted");
  assert_int_equal(world.subject->pending(), 1);
  world.answer(verdict::acquired);
  assert_text_equal(world.take_told(), "a=acquired");
  assert_int_equal(world.subject->pending(), 0);
}

void failed_start_is_told_at_the_end_of_the_turn(void** state) {
  auto& world = world_of(state);
  world.start_failed("a", error_code::invalid_argument);
  assert_text_equal(world.take_told(), "");
  assert_true(world.turn_end_wanted);
  world.inside = [&](const std::string& name) {
    if (name == "a") world.start_failed("b", error_code::internal);
  };
  world.end_turn();
  assert_text_equal(world.take_told(), "a!InvalidArgument");
  world.end_turn();
  assert_text_equal(world.take_told(), "b!Internal");
}

void stats_count_what_callers_see(void** state) {
  auto& world = world_of(state);
  const auto& stats = world.subject->stats();
  world.start_many(operation_kind::acquire, "a", 5);
  world.start(operation_kind::is_locked, "k");
  world.end_turn();
  world.now_us += 1500;
  world.answer({{verdict::acquired}, {verdict::failed}, {verdict::contended}});
  world.link_down(error_code::service_unavailable);
  world.link_down(error_code::service_unavailable);
  world.link_up();
  world.end_turn();
  world.script_missing();
  world.end_turn();
  assert_true(world.cancel("k"));
  world.end_turn();
  assert_int_equal(stats.started, 6);
  assert_int_equal(stats.completed, 6);
  assert_int_equal(stats.failed, 2);
  assert_int_equal(stats.batches, 4);
  assert_int_equal(stats.batch_sizes[2], 1);
  assert_int_equal(stats.batch_sizes[0], 3);
  assert_int_equal(stats.resent, 2);
  assert_int_equal(stats.connects, 2);
  assert_int_equal(stats.disconnects, 1);
  assert_int_equal(stats.scripts_reloaded, 1);
  assert_int_equal(stats.latency_us[10], 6);
}

// Being destroyed inside a callback; a sanitizer watches.

void destroy_inside(engine_world& world) {
  world.inside = [&world](const std::string&) { world.subject.reset(); };
}

void engine_may_be_destroyed_as_deferred_ones_are_told(void** state) {
  auto& world = world_of(state);
  world.start_many(operation_kind::acquire, "a", 2);
  world.cancel("a0");
  world.cancel("a1");
  destroy_inside(world);
  world.end_turn();
  assert_text_equal(world.take_told(), "a0!Aborted");
}

void engine_may_be_destroyed_as_an_answer_is_told(void** state) {
  auto& world = world_of(state);
  world.start_many(operation_kind::acquire, "a", 3);
  world.end_turn();
  destroy_inside(world);
  world.answer({said{verdict::failed, false, true}});
  assert_text_equal(world.take_told(), "a0!ServiceUnavailable");
}

void engine_may_be_destroyed_as_time_is_up(void** state) {
  auto& world = world_of(state);
  world.acquire("sent");
  world.end_turn();
  world.acquire("queued");
  destroy_inside(world);
  world.jump_ms(5000);
  assert_text_equal(world.take_told(), "sent!NetworkTimeout?");
}

void engine_may_be_destroyed_as_a_queued_one_is_late(void** state) {
  auto& world = world_of(state);
  world.start_many(operation_kind::acquire, "a", 2);
  destroy_inside(world);
  world.jump_ms(5000);
  assert_text_equal(world.take_told(), "a0!NetworkTimeout");
}

void engine_may_be_destroyed_by_an_answer_found_by_polling(void** state) {
  auto& world = world_of(state);
  world.start_many(operation_kind::acquire, "a", 2);
  world.end_turn();
  world.inside_poll = [&] { world.answer(verdict::acquired); };
  destroy_inside(world);
  world.jump_ms(5000);
  assert_text_equal(world.take_told(), "a0=acquired");
}

void engine_may_be_destroyed_as_the_link_is_refused(void** state) {
  auto& world = world_of(state);
  world.acquire("sent");
  world.end_turn();
  world.acquire("queued");
  destroy_inside(world);
  world.link_down(error_code::auth_failed, true);
  assert_text_equal(world.take_told(), "sent!AuthFailed?");
}

void engine_may_be_destroyed_with_operations_in_every_state(void** state) {
  auto& world = world_of(state);
  world.acquire("sent");
  world.end_turn();
  world.acquire("abandoned");
  world.end_turn();
  world.cancel("abandoned");
  world.acquire("queued");
  world.subject.reset();
  assert_text_equal(world.take_told(), "");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      engine_test(turn_ends_with_mutations_before_reads),
      engine_test(batch_of_mutations_leaves_when_full),
      engine_test(full_batch_of_reads_leaves_after_the_mutations),
      engine_test_without_link(backlog_is_cut_into_batches),
      engine_test(answers_are_told_in_their_order),
      engine_test(demoted_server_is_dropped_once_per_batch),
      engine_test(unreadable_record_of_is_locked_is_inspected),
      engine_test(acquire_that_met_an_unreadable_record_is_sent_once_more),
      engine_test(inspection_keeps_the_deadline),
      cmocka_unit_test(expired_record_is_cleaned_up_only_where_wanted),
      engine_test_without_link(operation_before_the_first_link_times_out),
      engine_test(operation_without_a_link_fails_with_the_error_of_the_link),
      engine_test(operation_that_was_never_sent_over_a_good_link_times_out),
      engine_test(sent_operations_time_out_with_what_may_have_changed_unknown),
      engine_test(late_grant_is_released_once),
      engine_test(late_refusal_is_not_released),
      engine_test(silent_link_is_dropped),
      engine_test_without_link(link_that_was_not_given_time_is_not_dropped),
      engine_test(answer_found_by_polling_is_in_time),
      engine_test(nothing_in_flight_is_not_polled_for),
      engine_test(cancelled_before_it_was_sent_is_never_sent),
      engine_test(cancelled_on_its_way_is_aborted_and_its_grant_released),
      engine_test(grant_that_comes_in_the_turn_of_the_cancel_is_released),
      engine_test(cancel_of_what_is_over_does_nothing),
      engine_test(cancel_inside_a_callback_reaches_the_rest_of_the_batch),
      cmocka_unit_test(too_many_pending_fail_at_the_end_of_the_turn),
      engine_test(closed_engine_finishes_and_accepts_nothing),
      engine_test(failed_start_is_told_at_the_end_of_the_turn),
      engine_test(stats_count_what_callers_see),
      engine_test(engine_may_be_destroyed_as_deferred_ones_are_told),
      engine_test(engine_may_be_destroyed_as_an_answer_is_told),
      engine_test(engine_may_be_destroyed_as_time_is_up),
      engine_test(engine_may_be_destroyed_as_a_queued_one_is_late),
      engine_test(engine_may_be_destroyed_by_an_answer_found_by_polling),
      engine_test(engine_may_be_destroyed_as_the_link_is_refused),
      engine_test(engine_may_be_destroyed_with_operations_in_every_state),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
