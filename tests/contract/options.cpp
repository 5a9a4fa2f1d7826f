// Options: bad ones never throw; every operation then fails with the error that check() tells.

#include <string>
#include <vector>

#include "contract/cases.hpp"
#include "contract/operations.hpp"
#include "contract/stored.hpp"

namespace syncguard::testing {

namespace {

// Every operation fails with what check() says, later, and nobody connects.
void refuse_options(client_options options) {
  options.client_name = "refused";
  make_subject(std::move(options));
  assert_failed_with(subject().check(), error_code::invalid_argument);
  for (const kind which : all_kinds) {
    struct end {
      int calls = 0;
      std::string message;
    };
    const auto seen = std::make_shared<end>();
    start_any(which, subject(), "k", own_id, [seen](const error* failure) {
      ++seen->calls;
      if (failure != nullptr) seen->message = failure->message();
    });
    assert_int_equal(seen->calls, 0);
    assert_true(run_until([&] { return seen->calls > 0; }));
    assert_text_equal(seen->message, subject().check().error().message());
  }
  assert_false(is_connected("refused"));
  assert_int_equal(key_count(), 0);
}

void refuse_prefix(std::string prefix) {
  client_options options = base_options();
  options.prefix = std::move(prefix);
  refuse_options(std::move(options));
}

void prefix_that_could_meet_fence_counters_is_refused(void**) {
  for (const char* bad : {"fence", "fence:", "a:fence", "a:fence:", "a:fence:b", "defence"}) refuse_prefix(bad);
}

void prefix_that_is_too_long_is_refused(void**) { refuse_prefix(std::string(952, 'p')); }

void prefix_that_is_not_utf8_is_refused(void**) { refuse_prefix("\xff"); }

void url_that_makes_no_sense_is_refused(void**) {
  for (const char* bad :
       {"", "nonsense", "http://127.0.0.1", "redis:/127.0.0.1", "redis://127.0.0.1:0", "redis://127.0.0.1:65536",
        "redis://127.0.0.1:port", "redis://127.0.0.1:-1", "redis://127.0.0.1/x", "redis://127.0.0.1/-1",
        "redis://127.0.0.1/1/2", "redis://[::1", "redis://user:%zz@127.0.0.1", "redis://127.0.0.1/99999999999999999999",
        "unix://", "unix:///tmp/x?db=y", "unix:///tmp/x?db=-1"}) {
    client_options options = base_options();
    options.url = bad;
    note("url %s", bad);
    refuse_options(std::move(options));
  }
}

// Errors end up in logs.
void url_that_is_refused_is_not_told_by_the_error(void**) {
  for (const char* bad : {"redis://guest:hunter2@127.0.0.1:port", "redis://guest:hunter2@127.0.0.1/x",
                          "rediss://guest:hunter2@[::1", "unix://guest:hunter2@/tmp/x?db=y"}) {
    client_options options = base_options();
    options.url = bad;
    make_subject(std::move(options));
    const error failure = must_fail(await_acquire("k", 60s), error_code::invalid_argument);
    assert_true(describe(failure).find("hunter2") == std::string::npos);
    assert_true(failure.cause().find("hunter2") == std::string_view::npos);
  }
}

void url_of_an_overlong_socket_path_is_refused(void**) {
  client_options options = base_options();
  options.url = "unix:///" + std::string(200, 'x');
  refuse_options(std::move(options));
}

void close_with_bad_options_calls_back(void**) {
  client_options options = base_options();
  options.prefix = "fence";
  make_subject(std::move(options));
  (void)await(start_close());
}

void good_options_pass_the_check(void**) { assert_true(subject().check().has_value()); }

void prefix_of_ones_own_is_used(void**) {
  client_options options = base_options();
  options.prefix = "mine:too";
  make_ready_subject(std::move(options));
  const grant got = hold("k");
  assert_true(exists("mine:too:k"));
  assert_text_equal(text_at("mine:too:id:" + std::string{got.id.view()}), "mine:too:k");
  assert_text_equal(text_at("mine:too:fence:mine:too:k"), "1");
  assert_true(must(await_release(got.id)));
}

void prefix_with_trailing_colons_loses_them(void**) {
  client_options options = base_options();
  options.prefix = "mine::";
  make_ready_subject(std::move(options));
  hold("k");
  assert_true(exists("mine:k"));
}

void prefix_empty_stores_bare_keys(void**) {
  client_options options = base_options();
  options.prefix = "";
  make_ready_subject(std::move(options));
  const grant got = hold("k");
  assert_true(exists("k"));
  assert_text_equal(text_at("id:" + std::string{got.id.view()}), "k");
  assert_text_equal(text_at("fence:k"), "1");
  assert_true(must(await_lookup("k")).has_value());
  assert_true(must(await_owns(got.id)));
  assert_true(must(await_release(got.id)));
}

void prefixes_that_differ_do_not_contend(void**) {
  hold("k", 60s, rival());
  client_options options = base_options();
  options.prefix = "mine";
  make_ready_subject(std::move(options));
  hold("k");
}

void client_name_is_shown_by_the_server(void**) {
  client_options options = base_options();
  options.client_name = "match-server-7";
  make_ready_subject(std::move(options));
  assert_true(is_connected("match-server-7"));
}

}  // namespace

cases option_cases() {
  static const CMUnitTest all[] = {
      contract_case_alone(prefix_that_could_meet_fence_counters_is_refused),
      contract_case_alone(prefix_that_is_too_long_is_refused),
      contract_case_alone(prefix_that_is_not_utf8_is_refused),
      contract_case_alone(url_that_makes_no_sense_is_refused),
      contract_case_alone(url_that_is_refused_is_not_told_by_the_error),
      contract_case_alone(url_of_an_overlong_socket_path_is_refused),
      contract_case_alone(close_with_bad_options_calls_back),
      contract_case(good_options_pass_the_check),
      contract_case_alone(prefix_of_ones_own_is_used),
      contract_case_alone(prefix_with_trailing_colons_loses_them),
      contract_case_alone(prefix_empty_stores_bare_keys),
      contract_case_alone(prefixes_that_differ_do_not_contend),
      contract_case_alone(client_name_is_shown_by_the_server),
  };
  return all;
}

}  // namespace syncguard::testing
