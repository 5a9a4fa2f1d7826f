// What a callback may do: start, cancel and close, in every kind of callback. Destroying has a file of its own.

#include <functional>
#include <string>

#include "contract/cases.hpp"
#include "contract/operations.hpp"
#include "contract/stored.hpp"

namespace syncguard::testing {

namespace {

struct log {
  int outer = 0;
  int inner = 0;
  int aborted = 0;
};

void start_inside_every_kind_of_callback_completes(void**) {
  for (const kind outer : all_kinds) {
    for (const kind inner : all_kinds) {
      const auto seen = std::make_shared<log>();
      start_any(outer, subject(), "k", own_id, [seen, inner](const error*) {
        ++seen->outer;
        start_any(inner, subject(), "k", own_id, [seen](const error*) { ++seen->inner; });
        if (seen->inner != 0) breach("a callback ran inside the call that started its operation");
      });
      assert_true(run_until([&] { return seen->inner == 1; }));
      assert_int_equal(seen->outer, 1);
    }
  }
}

void start_inside_a_callback_of_a_refused_operation_completes(void**) {
  const auto seen = std::make_shared<log>();
  start_any(kind::acquire, subject(), "", own_id, [seen](const error*) {
    start_any(kind::acquire, subject(), "", own_id, [seen](const error*) { ++seen->inner; });
    if (seen->inner != 0) breach("a callback ran inside the call that started its operation");
  });
  assert_true(run_until([&] { return seen->inner == 1; }));
}

void cancel_of_itself_inside_every_kind_of_callback_finds_nothing(void**) {
  for (const kind which : all_kinds) {
    const auto handle = std::make_shared<operation_handle>();
    const auto found = std::make_shared<std::optional<bool>>();
    *handle =
        start_any(which, subject(), "k", own_id, [handle, found](const error*) { *found = subject().cancel(*handle); });
    assert_true(run_until([&] { return found->has_value(); }));
    assert_false(**found);
  }
}

// Whatever was answered already completes as answered; the rest is aborted; none twice, none never.
void cancel_of_the_others_inside_every_kind_of_callback_completes_each_once(void**) {
  for (const kind which : all_kinds) {
    const auto seen = std::make_shared<log>();
    const auto others = std::make_shared<std::vector<operation_handle>>();
    start_any(which, subject(), "k", own_id, [seen, others](const error*) {
      ++seen->outer;
      for (const operation_handle other : *others) subject().cancel(other);
    });
    for (int index = 0; index < 10; ++index) {
      others->push_back(start_any(which, subject(), "k", own_id, [seen](const error* failure) {
        ++seen->inner;
        if (failure != nullptr && failure->code() == error_code::aborted) ++seen->aborted;
      }));
    }
    assert_true(run_until([&] { return seen->outer == 1 && seen->inner == 10; }));
    run_for(1ms);
    assert_int_equal(seen->inner, 10);
  }
}

void close_inside_every_kind_of_callback_completes(void**) {
  for (const kind which : all_kinds) {
    make_ready_subject();
    const auto closed = std::make_shared<int>(0);
    start_any(which, subject(), "k", own_id,
              [closed](const error*) { subject().close([closed](const result<void>&) { ++*closed; }); });
    const auto other = start_is_locked("k");
    assert_true(run_until([&] { return *closed == 1; }));
    must(await(other));
    assert_true(subject().state() == connection_state::closed);
  }
}

void start_inside_on_connection_completes(void**) {
  const auto seen = std::make_shared<log>();
  client_options options = base_options();
  options.on_connection = [seen](connection_state state, const error*) {
    if (!subject_exists() || state != connection_state::ready) return;
    start_any(kind::acquire, subject(), "k", own_id, [seen](const error* failure) {
      ++seen->inner;
      if (failure != nullptr) ++seen->aborted;
    });
    if (seen->inner != 0) breach("a callback ran inside the call that started its operation");
  };
  make_subject(std::move(options));
  assert_true(run_until([&] { return seen->inner == 1; }));
  assert_int_equal(seen->aborted, 0);
}

void close_inside_on_connection_completes(void**) {
  const auto closed = std::make_shared<int>(0);
  client_options options = base_options();
  options.on_connection = [closed](connection_state state, const error*) {
    if (state == connection_state::ready) subject().close([closed](const result<void>&) { ++*closed; });
  };
  make_subject(std::move(options));
  assert_true(run_until([&] { return *closed == 1; }));
  assert_true(subject().state() == connection_state::closed);
}

void cancel_inside_on_connection_aborts(void**) {
  const auto handle = std::make_shared<operation_handle>();
  client_options options = base_options();
  options.on_connection = [handle](connection_state state, const error*) {
    if (state == connection_state::ready) subject().cancel(*handle);
  };
  make_subject(std::move(options));
  const auto got = start_acquire("k", 60s);
  *handle = got.handle;
  must_fail(await(got), error_code::aborted);
  assert_true(run_until([] { return !exists(lock_key("k")); }));
}

void start_inside_close_callback_is_aborted(void**) {
  const auto seen = std::make_shared<log>();
  subject().close([seen](const result<void>&) {
    start_any(kind::acquire, subject(), "k", own_id, [seen](const error* failure) {
      ++seen->inner;
      if (failure != nullptr && failure->code() == error_code::aborted) ++seen->aborted;
    });
  });
  assert_true(run_until([&] { return seen->inner == 1; }));
  assert_int_equal(seen->aborted, 1);
}

void callbacks_that_are_empty_are_legal(void**) {
  subject().acquire("k", 60s, nullptr);
  subject().acquire("", 60s, nullptr);
  subject().release(own_id, {});
  subject().extend(own_id, 60s, {});
  subject().is_locked("k", {});
  subject().lookup("k", {});
  subject().lookup_by_id(own_id, {});
  subject().lookup_raw("k", {});
  subject().lookup_raw_by_id(own_id, {});
  subject().owns(own_id, {});
  assert_true(run_until([] { return subject().stats().pending == 0; }));
  assert_true(exists(lock_key("k")));
  subject().close({});
  assert_true(run_until([] { return subject().state() == connection_state::closed; }));
}

void callbacks_are_destroyed_once_they_ran(void**) {
  const auto captured = std::make_shared<int>(0);
  for (const kind which : all_kinds)
    start_any(which, subject(), "k", own_id, [captured](const error*) { ++*captured; });
  assert_true(run_until([&] { return *captured == 9; }));
  run_for(1ms);
  assert_int_equal(captured.use_count(), 1);
}

void callbacks_that_start_the_next_a_thousand_times_all_run(void**) {
  const auto left = std::make_shared<int>(1000);
  const auto next = std::make_shared<std::function<void()>>();
  *next = [left, next_again = std::weak_ptr{next}] {
    start_any(kind::is_locked, subject(), "k", own_id, [left, next_again](const error*) {
      if (--*left > 0) (*next_again.lock())();
    });
  };
  (*next)();
  assert_true(run_until([&] { return *left == 0; }));
}

void mixture_of_all_kinds_completes_each_exactly_once(void**) {
  const auto calls = std::make_shared<std::vector<int>>(900, 0);
  for (std::size_t index = 0; index < calls->size(); ++index) {
    const std::string key = index % 50 == 0 ? "" : "k" + std::to_string(index % 7);
    const auto handle =
        start_any(all_kinds[index % 9], subject(), key, own_id, [calls, index](const error*) { ++(*calls)[index]; });
    if (index % 13 == 0) subject().cancel(handle);
    if (index % 100 == 0) turn();
  }
  assert_true(run_until([] { return subject().stats().pending == 0; }));
  run_for(2ms);
  for (const int count : *calls) assert_int_equal(count, 1);
}

}  // namespace

cases callback_cases() {
  static const CMUnitTest all[] = {
      contract_case(start_inside_every_kind_of_callback_completes),
      contract_case(start_inside_a_callback_of_a_refused_operation_completes),
      contract_case(cancel_of_itself_inside_every_kind_of_callback_finds_nothing),
      contract_case(cancel_of_the_others_inside_every_kind_of_callback_completes_each_once),
      contract_case_alone(close_inside_every_kind_of_callback_completes),
      contract_case_alone(start_inside_on_connection_completes),
      contract_case_alone(close_inside_on_connection_completes),
      contract_case_alone(cancel_inside_on_connection_aborts),
      contract_case(start_inside_close_callback_is_aborted),
      contract_case(callbacks_that_are_empty_are_legal),
      contract_case(callbacks_are_destroyed_once_they_ran),
      contract_case(callbacks_that_start_the_next_a_thousand_times_all_run),
      contract_case(mixture_of_all_kinds_completes_each_exactly_once),
  };
  return all;
}

}  // namespace syncguard::testing
