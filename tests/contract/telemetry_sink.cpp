// The telemetry sink: what it may see, what it may do, and the events that no operation asked for.

#include <algorithm>
#include <stdexcept>
#include <string>

#include "contract/cases.hpp"
#include "contract/operations.hpp"
#include "contract/stored.hpp"

namespace syncguard::testing {

namespace {

using type = telemetry_type;

bool told(type wanted) {
  return std::any_of(events().begin(), events().end(), [&](const seen_event& event) { return event.type == wanted; });
}

void raw_key_and_id_are_left_out_unless_asked_for(void**) {
  make_ready_subject(watched_options());
  const grant got = hold("k");
  must_have(await_extend(got.id, 60s));
  must(await_is_locked("k"));
  must(await_lookup_by_id(got.id));
  must(await_release(got.id));
  run_for(1ms);
  assert_true(events().size() >= 5);
  for (const seen_event& event : events()) {
    assert_text_equal(event.raw_key, "");
    assert_text_equal(event.raw_id, "");
  }
}

void raw_key_and_id_are_told_where_asked_for(void**) {
  make_ready_subject(watched_options(true));
  const grant got = hold("k");
  assert_text_equal(only_event(type::acquire).raw_key, "k");
  assert_text_equal(only_event(type::acquire).raw_id, got.id);
  must(await_is_locked("k"));
  assert_text_equal(only_event(type::is_locked).raw_key, "k");
  must(await_release(got.id));
  assert_text_equal(only_event(type::release).raw_id, got.id);
}

void sink_that_throws_disturbs_nothing(void**) {
  client_options options = base_options();
  options.telemetry = [](const telemetry_event&) { throw std::runtime_error("no disk left"); };
  make_ready_subject(std::move(options));
  const grant got = hold("k");
  assert_false(must(await_acquire("k", 60s)).has_value());
  must_have(await_extend(got.id, 60s));
  assert_true(must(await_is_locked("k")));
  must_have(await_lookup("k"));
  assert_true(must(await_release(got.id)));
}

void sink_may_start_an_operation(void**) {
  const auto inner = std::make_shared<std::optional<bool>>();
  client_options options = base_options();
  options.telemetry = [inner](const telemetry_event& event) {
    if (event.type != type::acquire) return;
    subject().is_locked("k", [inner](const result<bool>& outcome) { *inner = outcome && *outcome; });
    if (inner->has_value()) breach("a callback ran inside the call that started its operation");
  };
  make_ready_subject(std::move(options));
  hold("k");
  assert_true(run_until([&] { return inner->has_value(); }));
  assert_true(**inner);
}

void sink_may_cancel_an_operation(void**) {
  const auto victim = std::make_shared<operation_handle>();
  client_options options = base_options();
  options.telemetry = [victim](const telemetry_event& event) {
    if (event.type == type::acquire) subject().cancel(*victim);
  };
  make_ready_subject(std::move(options));
  const auto acquired = start_acquire("k", 60s);
  const auto looked = start_lookup("k");
  *victim = looked.handle;
  must_have(await(acquired));
  const auto outcome = await(looked);
  assert_true(outcome || outcome.error().code() == error_code::aborted);
}

void fence_regressed_is_told_when_the_server_lost_data(void**) {
  make_ready_subject(watched_options());
  for (int round = 0; round < 3; ++round) must(await_release(hold("k").id));
  assert_false(told(type::fence_regressed));
  redis({"FLUSHALL"});
  assert_int_equal(hold("k").fence.number(), 1);
  assert_true(only_event(type::fence_regressed).key == hash_key("k"));
}

void fence_of_another_key_is_no_regression(void**) {
  make_ready_subject(watched_options());
  for (int round = 0; round < 3; ++round) must(await_release(hold("a").id));
  hold("b");
  run_for(5ms);
  assert_false(told(type::fence_regressed));
}

void eviction_policy_that_is_unsafe_is_told_at_connect(void**) {
  redis({"CONFIG", "SET", "maxmemory-policy", "allkeys-lru"});
  make_ready_subject(watched_options());
  const auto event = only_event(type::unsafe_policy);
  assert_true(event.detail.find("allkeys-lru") != std::string::npos);
}

void eviction_policy_that_is_safe_is_not_told(void**) {
  make_ready_subject(watched_options());
  hold("k");
  assert_false(told(type::unsafe_policy));
}

void names_are_the_protocols(void**) {
  assert_text_equal(to_string(type::acquire), "acquire");
  assert_text_equal(to_string(type::release), "release");
  assert_text_equal(to_string(type::extend), "extend");
  assert_text_equal(to_string(type::is_locked), "isLocked");
  assert_text_equal(to_string(type::lookup), "lookup");
  assert_text_equal(to_string(telemetry_reason::locked), "locked");
  assert_text_equal(to_string(telemetry_reason::expired), "expired");
  assert_text_equal(to_string(telemetry_reason::not_found), "not-found");
  assert_text_equal(to_string(telemetry_reason::corrupt), "corrupt");
}

}  // namespace

cases telemetry_sink_cases() {
  static const CMUnitTest all[] = {
      contract_case_alone(raw_key_and_id_are_left_out_unless_asked_for),
      contract_case_alone(raw_key_and_id_are_told_where_asked_for),
      contract_case_alone(sink_that_throws_disturbs_nothing),
      contract_case_alone(sink_may_start_an_operation),
      contract_case_alone(sink_may_cancel_an_operation),
      contract_case_alone(fence_regressed_is_told_when_the_server_lost_data),
      contract_case_alone(fence_of_another_key_is_no_regression),
      contract_case_alone(eviction_policy_that_is_unsafe_is_told_at_connect),
      contract_case_alone(eviction_policy_that_is_safe_is_not_told),
      contract_case_alone(names_are_the_protocols),
  };
  return all;
}

}  // namespace syncguard::testing
