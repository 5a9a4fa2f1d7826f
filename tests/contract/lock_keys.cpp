// Keys and prefixes of every shape: stored, kept alive, and waited for by the server's notice all the same.

#include <string>

#include "contract/cases.hpp"
#include "contract/locks.hpp"

namespace syncguard::testing {

namespace {

std::unique_ptr<client> holder;

int tear_down_holder(void** state) {
  holder.reset();
  return tear_down(state);
}

// Held by the holder, wanted by the subject; both with this prefix.
void is_handed_over_by_notice(std::string_view key, const std::string& prefix = "syncguard") {
  client_options options = base_options();
  options.prefix = prefix;
  make_ready_subject(options);
  options.on_connection = nullptr;
  holder = std::make_unique<client>(loop_for_client(), options);
  auto theirs = std::make_unique<syncguard::lock>(hold_lock(key, {.ttl = 10min, .wait = 60s}, *holder));
  const auto waiting = start_waiting(key);
  const client_stats before = subject().stats();
  theirs.reset();
  const bool served = run_until([&] { return waiting.granted(); });
  const client_stats after = subject().stats();
  if (!served || after.wakes == before.wakes || after.attempts != before.attempts + 1) {
    print_error("key of %zu bytes, prefix of %zu: served %d, %llu wakes, %llu attempts\n", key.size(), prefix.size(),
                served, static_cast<unsigned long long>(after.wakes - before.wakes),
                static_cast<unsigned long long>(after.attempts - before.attempts));
    fail();
  }
  assert_text_equal(waiting.got->held.key(), key);
  assert_int_equal(waiting.got->held.fence().number(), 2);
}

void keys_with_quotes_and_controls_are_handed_over(void**) {
  for (const std::string_view key :
       {"a \"quoted\" key", "back\\slash", "new\nline", "tab\tand \x01", "{tag}:x", "*", "[k]?", "%s%n", " ", "a:b:c"})
    is_handed_over_by_notice(key);
}

void keys_beyond_ascii_are_handed_over(void**) {
  for (const std::string_view key : {"\u00e9", "\u9396", "\U0001f512", "\u0416\u03a9\u05d0"})
    is_handed_over_by_notice(key);
}

void longest_keys_are_handed_over(void**) {
  is_handed_over_by_notice(std::string(512, 'k'));
  is_handed_over_by_notice(std::string(511, '"') + "k");
}

void hashed_storage_keys_are_handed_over(void**) {
  is_handed_over_by_notice(std::string(500, 'k'), std::string(700, 'p'));
  is_handed_over_by_notice("short", std::string(951, 'p'));
  is_handed_over_by_notice(std::string(512, 'k'), std::string(951, 'p'));
}

void empty_prefix_is_handed_over(void**) {
  is_handed_over_by_notice("k", "");
  assert_true(exists("k") || exists("fence:k"));
}

void hashed_storage_keys_are_kept_and_watched(void**) {
  client_options options = base_options();
  options.prefix = std::string(951, 'p');
  make_ready_subject(std::move(options));
  warm_up();
  syncguard::lock held = hold_lock(std::string(512, 'k'), {.ttl = 500ms, .wait = 60s});
  const auto gone = record_loss(held);
  run_for(1s);
  assert_true(held.valid());
  redis({"FLUSHALL"});
  await_loss(gone, lost::vanished);
}

void keys_that_are_equal_in_normal_form_are_one_lock(void**) {
  const syncguard::lock held = hold_lock("\u00e9");
  await_failure(start_lock("e\u0301", {.ttl = 60s, .wait = 50ms}), error_code::acquisition_timeout);
}

void prefixes_keep_locks_apart(void**) {
  const syncguard::lock held = hold_lock("k", steady, rival());
  client_options options = base_options();
  options.prefix = "mine";
  make_ready_subject(std::move(options));
  const syncguard::lock mine = hold_lock("k", {.ttl = 60s, .wait = 0ms});
  assert_true(held.valid() && mine.valid());
  assert_true(exists("mine:k"));
}

#define holder_case(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down_holder)

}  // namespace

cases lock_key_cases() {
  static const CMUnitTest all[] = {
      holder_case(keys_with_quotes_and_controls_are_handed_over),
      holder_case(keys_beyond_ascii_are_handed_over),
      holder_case(longest_keys_are_handed_over),
      holder_case(hashed_storage_keys_are_handed_over),
      holder_case(empty_prefix_is_handed_over),
      contract_case_alone(hashed_storage_keys_are_kept_and_watched),
      contract_case(keys_that_are_equal_in_normal_form_are_one_lock),
      contract_case_alone(prefixes_keep_locks_apart),
  };
  return all;
}

}  // namespace syncguard::testing
