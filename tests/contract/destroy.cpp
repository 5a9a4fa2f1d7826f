// Destroying the client: at any time, inside any callback; what was in flight never calls back.

#include <string>

#include "contract/cases.hpp"
#include "contract/operations.hpp"
#include "contract/stored.hpp"

namespace syncguard::testing {

namespace {

void destroy_inside_every_kind_of_callback_is_legal(void**) {
  for (const kind which : all_kinds) {
    make_ready_subject();
    const auto calls = std::make_shared<int>(0);
    start_any(which, subject(), "k", own_id, [calls](const error*) {
      ++*calls;
      destroy_subject();
    });
    assert_true(run_until([] { return !subject_exists(); }));
    run_for(2ms);
    assert_int_equal(*calls, 1);
  }
}

// Others of the same batch, of another batch, and a refused one: none of them runs after the client is gone.
void destroy_inside_every_kind_of_callback_silences_the_others(void**) {
  for (const kind which : all_kinds) {
    make_ready_subject();
    const auto calls = std::make_shared<int>(0);
    const auto destroy_at_the_third = [calls](const error*) {
      if (++*calls == 3) destroy_subject();
    };
    for (int index = 0; index < 100; ++index) start_any(which, subject(), "k", own_id, destroy_at_the_third);
    assert_true(run_until([] { return !subject_exists(); }));
    run_for(2ms);
    assert_int_equal(*calls, 3);
    assert_int_equal(calls.use_count(), 2);  // here and in the lambda: the client's copies are gone
  }
}

void destroy_inside_the_callback_of_a_refused_operation_is_legal(void**) {
  const auto calls = std::make_shared<int>(0);
  for (int index = 0; index < 3; ++index) {
    start_any(kind::acquire, subject(), "", own_id, [calls](const error*) {
      ++*calls;
      destroy_subject();
    });
  }
  assert_true(run_until([] { return !subject_exists(); }));
  run_for(2ms);
  assert_int_equal(*calls, 1);
}

void destroy_inside_the_callback_of_a_cancelled_operation_is_legal(void**) {
  const auto handle = start_any(kind::acquire, subject(), "k", own_id, [](const error*) { destroy_subject(); });
  assert_true(subject().cancel(handle));
  assert_true(run_until([] { return !subject_exists(); }));
}

void destroy_inside_the_callback_of_a_timed_out_operation_is_legal(void**) {
  client_options options = base_options();
  options.timeout = 100ms;
  make_ready_subject(std::move(options));
  server().pause();
  for (int index = 0; index < 3; ++index)
    start_any(kind::acquire, subject(), "k", own_id, [](const error*) { destroy_subject(); });
  assert_true(run_until([] { return !subject_exists(); }));
}

void destroy_inside_the_callback_of_an_overflow_is_legal(void**) {
  client_options options = base_options();
  options.max_pending = 1;
  make_ready_subject(std::move(options));
  start_any(kind::acquire, subject(), "a", own_id, [](const error*) {});
  start_any(kind::acquire, subject(), "b", own_id, [](const error*) { destroy_subject(); });
  assert_true(run_until([] { return !subject_exists(); }));
}

void destroy_inside_the_callback_of_close_is_legal(void**) {
  subject().close([](const result<void>&) { destroy_subject(); });
  assert_true(run_until([] { return !subject_exists(); }));
}

void destroy_inside_on_connection_is_legal_in_every_state(void**) {
  for (const connection_state wanted :
       {connection_state::ready, connection_state::connecting, connection_state::closed}) {
    const auto armed = std::make_shared<bool>(wanted == connection_state::ready);
    client_options options = base_options();
    options.on_connection = [armed, wanted](connection_state state, const error*) {
      if (*armed && state == wanted) destroy_subject();
    };
    make_subject(std::move(options));
    if (wanted != connection_state::ready) {
      assert_true(run_until([] { return subject().state() == connection_state::ready; }));
      *armed = true;
      start_any(kind::acquire, subject(), "k", own_id, [](const error*) {});
      if (wanted == connection_state::closed) subject().close({});
      else redis({"CLIENT", "KILL", "TYPE", "normal"});
    }
    assert_true(run_until([] { return !subject_exists(); }));
  }
}

void destroy_inside_on_connection_when_refused_is_legal(void**) {
  client_options options = base_options();
  options.url = unix_url() + "?db=99";
  options.on_connection = [](connection_state state, const error*) {
    if (state == connection_state::refused) destroy_subject();
  };
  make_subject(std::move(options));
  start_any(kind::acquire, subject(), "k", own_id, [](const error*) {});
  assert_true(run_until([] { return !subject_exists(); }));
}

void destroy_with_operations_not_yet_sent_never_calls_back(void**) {
  const auto calls = std::make_shared<int>(0);
  for (const kind which : all_kinds) start_any(which, subject(), "k", own_id, [calls](const error*) { ++*calls; });
  destroy_subject();
  run_for(5ms);
  assert_int_equal(*calls, 0);
  assert_int_equal(calls.use_count(), 1);
}

void destroy_with_operations_in_flight_never_calls_back(void**) {
  const auto calls = std::make_shared<int>(0);
  server().pause();
  for (const kind which : all_kinds) start_any(which, subject(), "k", own_id, [calls](const error*) { ++*calls; });
  run_for(20ms);
  destroy_subject();
  server().resume();
  run_for(20ms);
  assert_int_equal(*calls, 0);
  assert_int_equal(calls.use_count(), 1);
}

void destroy_with_cancelled_and_refused_operations_never_calls_back(void**) {
  const auto calls = std::make_shared<int>(0);
  const auto count = [calls](const error*) { ++*calls; };
  start_any(kind::acquire, subject(), "", own_id, count);
  subject().cancel(start_any(kind::acquire, subject(), "k", own_id, count));
  subject().close([calls](const result<void>&) { ++*calls; });
  destroy_subject();
  run_for(5ms);
  assert_int_equal(*calls, 0);
}

void destroy_before_the_connection_is_made_is_legal(void**) {
  make_subject(base_options());
  destroy_subject();
  make_subject(base_options());
  turn();
  destroy_subject();
  client_options options = base_options();
  options.url = tcp_url("", "localhost");
  make_subject(std::move(options));
  destroy_subject();
  assert_true(run_until(loop_is_empty));
}

void destroy_of_a_ready_client_leaves_the_loop_empty_after_one_turn(void**) {
  hold("k");
  destroy_subject();
  turn();
  assert_true(loop_is_empty());
}

void destroy_closes_the_connection(void**) {
  assert_true(is_connected("syncguard"));
  destroy_subject();
  turn();
  assert_true(run_until([] { return !is_connected("syncguard"); }));
}

}  // namespace

cases destroy_cases() {
  static const CMUnitTest all[] = {
      contract_case_alone(destroy_inside_every_kind_of_callback_is_legal),
      contract_case_alone(destroy_inside_every_kind_of_callback_silences_the_others),
      contract_case(destroy_inside_the_callback_of_a_refused_operation_is_legal),
      contract_case(destroy_inside_the_callback_of_a_cancelled_operation_is_legal),
      contract_case_alone(destroy_inside_the_callback_of_a_timed_out_operation_is_legal),
      contract_case_alone(destroy_inside_the_callback_of_an_overflow_is_legal),
      contract_case(destroy_inside_the_callback_of_close_is_legal),
      contract_case_alone(destroy_inside_on_connection_is_legal_in_every_state),
      contract_case_alone(destroy_inside_on_connection_when_refused_is_legal),
      contract_case(destroy_with_operations_not_yet_sent_never_calls_back),
      contract_case(destroy_with_operations_in_flight_never_calls_back),
      contract_case(destroy_with_cancelled_and_refused_operations_never_calls_back),
      contract_case_alone(destroy_before_the_connection_is_made_is_legal),
      contract_case(destroy_of_a_ready_client_leaves_the_loop_empty_after_one_turn),
      contract_case(destroy_closes_the_connection),
  };
  return all;
}

}  // namespace syncguard::testing
