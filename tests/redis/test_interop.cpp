// This library and SyncGuard's own algorithm, side by side on one server: each reads, respects and ends the locks of
// the other. Built for each loop.

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "contract/operations.hpp"
#include "contract/stored.hpp"
#include "protocol/record.hpp"
#include "support/reference/reference.hpp"

namespace syncguard::testing {

namespace {

std::unique_ptr<reference::reference_client> other;

int set_up_both(void** state) {
  if (set_up_with_client(state) != 0) return -1;
  other = std::make_unique<reference::reference_client>();
  return other->connect(server().socket_path()) ? 0 : -1;
}

int tear_down_both(void** state) {
  other.reset();
  return tear_down(state);
}

// In normal form, for the reference normalises nothing.
const std::vector<std::string> awkward_keys{
    "k",
    "match:42",
    R"(say "hi")",
    R"(back\slash\\)",
    "a/b",
    "tab\tline\nreturn\r",
    std::string{"zero\0byte", 9},
    "\x01\x1f\x7f",
    "caf\u00e9",
    "\u65e5\u672c\u8a9e",
    "\U0001f512 locked",
    "\u2028\u2029",
    R"(","lockId":"AAAAAAAAAAAAAAAAAAAAAA","expiresAtMs":1,"x":")",
    R"({"expiresAtMs":9999999999999})",
    "%d %s %015d [a]*.",
    "id:short",
    "with blanks  ",
    std::string(512, 'x'),
    std::string(512, '"'),
    std::string(512, '\x01'),
};

std::string fresh_id() { return std::string{lock_id::generate().view()}; }

reference::grant other_holds(std::string_view key, std::string_view id, milliseconds ttl = 60s) {
  const auto got = other->acquire(key, id, ttl.count());
  if (!got) print_error("the reference was not given the lock: %s\n", other->last_error().c_str());
  assert_true(got.has_value());
  return *got;
}

// The record as the reference hands it out, read by the library's decoder.
void assert_record(const std::optional<std::string>& json, const grant& of, std::string_view key) {
  if (!json) print_error("the reference found nothing: %s\n", other->last_error().c_str());
  assert_true(json.has_value());
  protocol::decoded_record seen;
  protocol::decode_record(*json, seen);
  assert_text_equal(seen.fault, "");
  assert_true(seen.id == of.id);
  assert_text_equal(seen.key.view(), key);
  assert_true(seen.token == of.fence);
  assert_int_equal(seen.expires_at_ms, to_ms(of.expires_at));
}

void reference_looks_up_what_the_library_made(void**) {
  for (const std::string& key : awkward_keys) {
    const grant held = hold(key);
    assert_record(other->lookup_by_key(key), held, key);
    assert_record(other->lookup_by_id(held.id), held, key);
    assert_true(other->is_locked(key));
  }
}

void library_looks_up_what_the_reference_made(void**) {
  for (const std::string& key : awkward_keys) {
    const std::string id = fresh_id();
    const auto held = other_holds(key, id);
    for (const auto& seen : {must_have(await_lookup_raw(key)), must_have(await_lookup_raw_by_id(id))}) {
      assert_text_equal(seen.key(), key);
      assert_text_equal(seen.id(), id);
      assert_text_equal(seen.info().fence.to_text(), held.fence);
      assert_int_equal(to_ms(seen.info().expires_at), held.expires_at_ms);
      assert_int_equal(to_ms(seen.info().acquired_at), held.expires_at_ms - 60'000);
      assert_true(seen.info().key_hash == *hash_key(key));
      assert_true(seen.info().lock_id_hash == *hash_key(id));
    }
    assert_true(must(await_is_locked(key)));
    assert_true(must(await_owns(id)));
  }
}

void reference_sees_the_librarys_lock_as_contended(void**) {
  for (const std::string& key : awkward_keys) {
    const grant held = hold(key);
    assert_false(other->acquire(key, fresh_id(), 60'000).has_value());
    assert_text_equal(other->last_error(), "");
    assert_true(must(await_owns(held.id)));
  }
}

void library_sees_the_references_lock_as_contended(void**) {
  for (const std::string& key : awkward_keys) {
    const std::string id = fresh_id();
    other_holds(key, id);
    assert_false(must(await_acquire(key, 60s)).has_value());
    assert_true(other->lookup_by_id(id).has_value());
  }
}

void reference_extends_and_releases_what_the_library_made(void**) {
  for (const std::string& key : awkward_keys) {
    grant held = hold(key, 30s);
    const auto extended = other->extend(held.id, 90'000);
    assert_int_equal(extended.code, reference::done);
    assert_true(extended.expires_at_ms > to_ms(held.expires_at));
    const auto seen = must_have(await_lookup_raw(key));
    assert_int_equal(to_ms(seen.info().expires_at), extended.expires_at_ms);
    assert_text_equal(seen.key(), key);
    assert_int_equal(seen.info().fence.number(), held.fence.number());
    held.expires_at = must_have(await_extend(held.id, 120s));
    assert_record(other->lookup_by_id(held.id), held, key);
    assert_int_equal(other->release(held.id), reference::done);
    assert_false(must(await_is_locked(key)));
    assert_false(must(await_release(held.id)));
  }
}

void library_extends_and_releases_what_the_reference_made(void**) {
  for (const std::string& key : awkward_keys) {
    const std::string id = fresh_id();
    const auto held = other_holds(key, id, 30s);
    const auto extended = must_have(await_extend(id, 90s));
    assert_true(to_ms(extended) > held.expires_at_ms);
    const auto seen = must_have(await_lookup_raw(key));
    assert_record(other->lookup_by_key(key), {seen.id(), *fence::parse(held.fence), extended}, key);
    const auto again = other->extend(id, 120'000);
    assert_int_equal(again.code, reference::done);
    assert_int_equal(to_ms(must_have(await_lookup(key)).expires_at), again.expires_at_ms);
    assert_true(must(await_release(id)));
    assert_false(other->is_locked(key));
    assert_int_equal(other->release(id), reference::absent);
  }
}

void nothing_but_the_fence_counter_is_left(void**) {
  const grant ours = hold("ours");
  assert_int_equal(other->release(ours.id), reference::done);
  const std::string id = fresh_id();
  other_holds("theirs", id);
  assert_true(must(await_release(id)));
  assert_int_equal(key_count(), 2);
  assert_true(exists(fence_key("ours")));
  assert_true(exists(fence_key("theirs")));
}

void keys_in_another_form_meet_in_their_normal_form(void**) {
  hold("cafe\u0301");
  assert_true(other->is_locked("caf\u00e9"));
  assert_false(other->acquire("caf\u00e9", fresh_id(), 60'000).has_value());
}

void fences_increase_across_both(void**) {
  for (const std::string& key : {std::string{"k"}, std::string(512, 'x')}) {
    std::uint64_t last = 0;
    for (int round = 0; round < 20; ++round) {
      const grant ours = hold(key);
      assert_int_equal(ours.fence.number(), last + 1);
      assert_true(must(await_release(ours.id)));
      const std::string id = fresh_id();
      const auto theirs = other_holds(key, id);
      assert_int_equal(fence::parse(theirs.fence)->number(), last + 2);
      assert_int_equal(other->release(id), reference::done);
      last += 2;
    }
  }
}

void index_and_lock_expire_together_on_both_sides(void**) {
  const grant ours = hold("ours", 60s);
  const std::string id = fresh_id();
  other_holds("theirs", id, 60s);
  for (const auto& [lock, index] :
       {std::pair{lock_key("ours"), index_key(ours.id)}, std::pair{lock_key("theirs"), index_key(id)}}) {
    assert_text_equal(text_at(index), lock);
    const long long apart = pttl(lock) - pttl(index);
    assert_in_range(apart + 10'000, 9'000, 11'000);
  }
}

// A record that Redis still keeps although its time is up, as after an extend that shortened it by hand.
void record_expires(std::string_view key) {
  const std::string stored = text_at(lock_key(key));
  const std::string name = "\"expiresAtMs\":";
  const auto at = stored.find(name) + name.size();
  const auto end = stored.find_first_of(",}", at);
  redis({"SET", lock_key(key), stored.substr(0, at) + std::to_string(server_now_ms() - 1500) + stored.substr(end),
         "KEEPTTL"});
}

void librarys_expired_lock_is_taken_by_the_reference(void**) {
  const grant held = hold("k");
  record_expires("k");
  assert_false(other->is_locked("k"));
  assert_false(other->lookup_by_id(held.id).has_value());
  const std::string id = fresh_id();
  const auto taken = other_holds("k", id);
  assert_int_equal(fence::parse(taken.fence)->number(), held.fence.number() + 1);
  assert_false(must(await_owns(held.id)));
  assert_false(must(await_extend(held.id, 60s)).has_value());
  assert_false(must(await_release(held.id)));
  assert_true(must(await_owns(id)));
}

void references_expired_lock_is_taken_by_the_library(void**) {
  const std::string id = fresh_id();
  const auto held = other_holds("k", id);
  record_expires("k");
  assert_false(must(await_is_locked("k")));
  assert_false(must(await_lookup_by_id(id)).has_value());
  const grant taken = hold("k");
  assert_int_equal(taken.fence.number(), fence::parse(held.fence)->number() + 1);
  assert_int_equal(other->extend(id, 60'000).code, reference::absent);
  assert_int_equal(other->release(id), reference::absent);
  assert_true(other->lookup_by_id(taken.id).has_value());
}

void expiry_in_redis_itself_frees_the_lock_for_the_other(void**) {
  hold("ours", 50ms);
  other_holds("theirs", fresh_id(), 50ms);
  assert_true(run_until([] { return !exists(lock_key("ours")) && !exists(lock_key("theirs")); }));
  other_holds("ours", fresh_id());
  hold("theirs");
}

void tolerance_is_the_same_on_both_sides(void**) {
  store_expiring(own_id, -500ms, "k");
  assert_true(must(await_is_locked("k")));
  assert_true(other->is_locked("k"));
  assert_false(must(await_acquire("k", 60s)).has_value());
  assert_false(other->acquire("k", fresh_id(), 60'000).has_value());
}

void strangers_id_is_refused_by_both(void**) {
  hold("ours");
  assert_int_equal(other->release(own_id), reference::absent);
  redis({"SET", index_key(own_id), lock_key("ours")});
  assert_int_equal(other->release(own_id), reference::other_owner);
  assert_false(must(await_release(own_id)));
  assert_false(must(await_extend(own_id, 60s)).has_value());
  assert_false(must(await_owns(own_id)));
  assert_true(other->is_locked("ours"));
}

// Both at once, many times: never two holders, and each new holder's fence is above all before.
void contention_between_both_has_one_winner(void**) {
  std::uint64_t last = 0;
  int ours = 0;
  for (int round = 0; round < 200; ++round) {
    const auto started = start_acquire("k", 60s);
    if (round % 2 == 0) turn();
    const std::string id = fresh_id();
    const auto theirs = other->acquire("k", id, 60'000);
    const auto mine = must(await(started));
    assert_true(mine.has_value() != theirs.has_value());
    const std::uint64_t won = mine ? mine->fence.number() : fence::parse(theirs->fence)->number();
    assert_int_equal(won, last + 1);
    last = won;
    ours += mine ? 1 : 0;
    if (mine) {
      assert_int_equal(other->release(mine->id), reference::done);
    } else {
      assert_true(must(await_release(id)));
    }
  }
  note("the library won %d of 200", ours);
}

#define interop_case(name) cmocka_unit_test_setup_teardown(name, set_up_both, tear_down_both)

}  // namespace

}  // namespace syncguard::testing

int main() {
  using namespace syncguard::testing;
  std::signal(SIGPIPE, SIG_IGN);
  const CMUnitTest tests[] = {
      interop_case(reference_looks_up_what_the_library_made),
      interop_case(library_looks_up_what_the_reference_made),
      interop_case(reference_sees_the_librarys_lock_as_contended),
      interop_case(library_sees_the_references_lock_as_contended),
      interop_case(reference_extends_and_releases_what_the_library_made),
      interop_case(library_extends_and_releases_what_the_reference_made),
      interop_case(nothing_but_the_fence_counter_is_left),
      interop_case(keys_in_another_form_meet_in_their_normal_form),
      interop_case(fences_increase_across_both),
      interop_case(index_and_lock_expire_together_on_both_sides),
      interop_case(librarys_expired_lock_is_taken_by_the_reference),
      interop_case(references_expired_lock_is_taken_by_the_library),
      interop_case(expiry_in_redis_itself_frees_the_lock_for_the_other),
      interop_case(tolerance_is_the_same_on_both_sides),
      interop_case(strangers_id_is_refused_by_both),
      interop_case(contention_between_both_has_one_winner),
  };
  return cmocka_run_group_tests_name("interop", tests, start_world, stop_world);
}
