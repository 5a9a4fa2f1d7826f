// Bad arguments: refused through the callback, later, and nothing reaches the server.

#include <string>
#include <vector>

#include "contract/cases.hpp"
#include "contract/operations.hpp"
#include "contract/stored.hpp"

namespace syncguard::testing {

namespace {

bool takes_key(kind which) {
  return which == kind::acquire || which == kind::is_locked || which == kind::lookup || which == kind::lookup_raw;
}

struct refusal {
  int calls = 0;
  std::optional<error> failure;
};

// Starts an operation of this kind, which must be refused, without the server hearing of it.
error refused(kind which, std::string_view key, std::string_view id) {
  const auto seen = std::make_shared<refusal>();
  const long long before = commands_processed();
  start_any(which, subject(), key, id, [seen](const error* failure) {
    ++seen->calls;
    if (failure != nullptr) seen->failure = *failure;
  });
  assert_int_equal(seen->calls, 0);
  assert_true(run_until([&] { return seen->calls > 0; }));
  run_for(1ms);
  assert_int_equal(seen->calls, 1);
  assert_true(seen->failure.has_value());
  assert_true(seen->failure->code() == error_code::invalid_argument);
  assert_false(seen->failure->message().empty());
  assert_false(seen->failure->outcome_unknown());
  assert_false(seen->failure->retryable());
  assert_int_equal(commands_processed() - before, 1);
  return *seen->failure;
}

void refuse_key_everywhere(std::string_view key) {
  for (const kind which : all_kinds)
    if (takes_key(which)) refused(which, key, own_id);
}

void refuse_id_everywhere(std::string_view id) {
  for (const kind which : all_kinds)
    if (!takes_key(which)) refused(which, "k", id);
}

void key_empty_is_refused(void**) { refuse_key_everywhere(""); }

void key_of_513_bytes_is_refused(void**) { refuse_key_everywhere(std::string(513, 'x')); }

void key_of_a_megabyte_is_refused(void**) { refuse_key_everywhere(std::string(1 << 20, 'x')); }

void key_that_is_not_utf8_is_refused(void**) {
  for (const std::string_view bad : {"\xff", "a\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x80"})
    refuse_key_everywhere(bad);
}

void key_in_the_fence_namespace_is_refused(void**) {
  refuse_key_everywhere("fence:syncguard:k");
  refuse_key_everywhere("fence:");
}

void key_that_could_be_an_index_is_refused(void**) { refuse_key_everywhere("id:" + std::string{own_id}); }

void key_refused_is_named_by_the_error(void**) {
  for (const kind which : all_kinds)
    if (takes_key(which)) assert_text_equal(refused(which, "fence:k", own_id).key(), "fence:k");
}

void keys_next_to_the_reserved_ones_are_accepted(void**) {
  for (const std::string& key :
       std::vector<std::string>{"fence", "Fence:k", "id:", "id:short", "id:" + std::string(23, 'A'),
                                "id:" + std::string(21, 'A') + "=", "x:fence:y"})
    hold(key);
}

void key_of_512_bytes_is_accepted(void**) { hold(std::string(512, 'x')); }

void key_that_normalises_to_512_bytes_is_accepted(void**) {
  std::string key;
  for (int index = 0; index < 256; ++index) key += "e\u0301";  // three bytes each, two when composed
  hold(key);
}

void key_that_normalises_to_more_than_512_bytes_is_refused(void**) {
  std::string key;
  for (int index = 0; index < 86; ++index) key += "\u0344";  // two bytes each, four when decomposed for good
  hold(key);
  for (int index = 0; index < 86; ++index) key += "\u0344";
  refuse_key_everywhere(key);
}

void id_of_the_wrong_length_is_refused(void**) {
  for (const std::string& bad :
       std::vector<std::string>{"", "A", std::string(21, 'A'), std::string(23, 'A'), std::string(4096, 'A')})
    refuse_id_everywhere(bad);
}

void id_with_other_characters_is_refused(void**) {
  for (const char bad : {'+', '/', '=', ' ', '\0', '\n', '\x7f', '\xc3'}) {
    std::string id(22, 'A');
    id[10] = bad;
    refuse_id_everywhere(id);
  }
}

void acquire_with_a_bad_ttl_is_refused(void**) {
  for (const milliseconds bad : {0ms, -1ms, milliseconds::min(), milliseconds::max(), 100 * 24h + 1ms}) {
    const long long before = commands_processed();
    must_fail(await_acquire("k", bad), error_code::invalid_argument);
    assert_int_equal(commands_processed() - before, 1);
  }
  assert_int_equal(key_count(), 0);
}

void extend_with_a_bad_ttl_is_refused(void**) {
  const grant got = hold("k");
  for (const milliseconds bad : {0ms, -1ms, milliseconds::min(), milliseconds::max(), 100 * 24h + 1ms}) {
    const long long before = commands_processed();
    must_fail(await_extend(got.id, bad), error_code::invalid_argument);
    assert_int_equal(commands_processed() - before, 1);
  }
  assert_true(pttl(lock_key("k")) > 50'000);
}

void key_and_id_may_change_after_the_call(void**) {
  std::string key = "k";
  const auto acquired = start_acquire(key, 60s);
  key = "X";
  const grant got = must_have(await(acquired));
  assert_true(exists(lock_key("k")));
  std::string id{got.id.view()};
  const auto released = start_release(id);
  id.assign(22, 'X');
  assert_true(must(await(released)));
}

}  // namespace

cases validation_cases() {
  static const CMUnitTest all[] = {
      contract_case(key_empty_is_refused),
      contract_case(key_of_513_bytes_is_refused),
      contract_case(key_of_a_megabyte_is_refused),
      contract_case(key_that_is_not_utf8_is_refused),
      contract_case(key_in_the_fence_namespace_is_refused),
      contract_case(key_that_could_be_an_index_is_refused),
      contract_case(key_refused_is_named_by_the_error),
      contract_case(keys_next_to_the_reserved_ones_are_accepted),
      contract_case(key_of_512_bytes_is_accepted),
      contract_case(key_that_normalises_to_512_bytes_is_accepted),
      contract_case(key_that_normalises_to_more_than_512_bytes_is_refused),
      contract_case(id_of_the_wrong_length_is_refused),
      contract_case(id_with_other_characters_is_refused),
      contract_case(acquire_with_a_bad_ttl_is_refused),
      contract_case(extend_with_a_bad_ttl_is_refused),
      contract_case(key_and_id_may_change_after_the_call),
  };
  return all;
}

}  // namespace syncguard::testing
