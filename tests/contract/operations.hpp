#pragma once

// Operations of the client for cases: start one and look at it later, or start one and run the loop until its
// callback ran.
//
// What callbacks record lives on the heap and is shared, so a case that fails half-way leaves nothing dangling.

#include <functional>
#include <memory>
#include <optional>

#include <string_view>
#include <utility>
#include <vector>

#include "contract/fixture.hpp"
#include "support/call_place.hpp"

namespace syncguard::testing {

template <class T>
struct answer {
  int calls = 0;
  std::optional<result<T>> outcome;
};

template <class T>
struct started {
  std::shared_ptr<answer<T>> got;
  operation_handle handle;

  bool done() const { return got->calls > 0; }
  const result<T>& outcome() const { return *got->outcome; }
};

template <class T, class Begin>
started<T> start(Begin&& begin) {
  started<T> it{std::make_shared<answer<T>>(), {}};
  it.handle = begin([got = it.got](result<T> outcome) {
    if (++got->calls > 1) breach("an operation completed twice");
    got->outcome.emplace(std::move(outcome));
  });
  if (it.done()) breach("a callback ran inside the call that started its operation");
  return it;
}

using started_acquire = started<std::optional<grant>>;
using started_extend = started<std::optional<server_time>>;
using started_lookup = started<std::optional<lock_info>>;
using started_raw_lookup = started<std::optional<raw_lock_info>>;
using started_bool = started<bool>;
using started_close = started<void>;

inline started_acquire start_acquire(std::string_view key, milliseconds ttl, client& by = subject()) {
  return start<std::optional<grant>>([&](auto done) { return by.acquire(key, ttl, std::move(done)); });
}
inline started_bool start_release(std::string_view id, client& by = subject()) {
  return start<bool>([&](auto done) { return by.release(id, std::move(done)); });
}
inline started_extend start_extend(std::string_view id, milliseconds ttl, client& by = subject()) {
  return start<std::optional<server_time>>([&](auto done) { return by.extend(id, ttl, std::move(done)); });
}
inline started_bool start_is_locked(std::string_view key, client& by = subject()) {
  return start<bool>([&](auto done) { return by.is_locked(key, std::move(done)); });
}
inline started_lookup start_lookup(std::string_view key, client& by = subject()) {
  return start<std::optional<lock_info>>([&](auto done) { return by.lookup(key, std::move(done)); });
}
inline started_lookup start_lookup_by_id(std::string_view id, client& by = subject()) {
  return start<std::optional<lock_info>>([&](auto done) { return by.lookup_by_id(id, std::move(done)); });
}
inline started_raw_lookup start_lookup_raw(std::string_view key, client& by = subject()) {
  return start<std::optional<raw_lock_info>>([&](auto done) { return by.lookup_raw(key, std::move(done)); });
}
inline started_raw_lookup start_lookup_raw_by_id(std::string_view id, client& by = subject()) {
  return start<std::optional<raw_lock_info>>([&](auto done) { return by.lookup_raw_by_id(id, std::move(done)); });
}
inline started_bool start_owns(std::string_view id, client& by = subject()) {
  return start<bool>([&](auto done) { return by.owns(id, std::move(done)); });
}
inline started_close start_close(client& by = subject()) {
  return start<void>([&](auto done) {
    by.close(std::move(done));
    return operation_handle{};
  });
}

// Runs the loop until the operation's callback ran; fails the case where it does not.
template <class T>
result<T> await(const started<T>& it, testing::call_place at = testing::call_place::current()) {
  if (!run_until([&] { return it.done(); })) {
    print_error("a callback did not run\n");
    _fail(at.file, at.line);
  }
  return it.outcome();
}

template <class T>
void await_all(const std::vector<started<T>>& all, testing::call_place at = testing::call_place::current()) {
  for (const auto& one : all) (void)await(one, at);
}

// The value of an outcome that must be one.
template <class T>
T must(const result<T>& outcome, testing::call_place at = testing::call_place::current()) {
  if (!outcome) {
    print_error("%s\n", describe(outcome.error()).c_str());
    _fail(at.file, at.line);
  }
  if constexpr (!std::is_void_v<T>) return *outcome;
}

// The same where there must be something in the optional, too.
template <class T>
T must_have(const result<std::optional<T>>& outcome, testing::call_place at = testing::call_place::current()) {
  const std::optional<T> value = must(outcome, at);
  if (!value) {
    print_error("the answer is empty\n");
    _fail(at.file, at.line);
  }
  return *value;
}

// The error of an outcome that must be one, of this code.
template <class T>
error must_fail(const result<T>& outcome, error_code wanted, testing::call_place at = testing::call_place::current()) {
  const char* seen = outcome ? "success" : to_string(outcome.error().code()).data();
  if (outcome || outcome.error().code() != wanted || outcome.error().message().empty()) {
    print_error("seen %s, wanted %s\n", seen, to_string(wanted).data());
    if (!outcome) print_error("%s\n", describe(outcome.error()).c_str());
    _fail(at.file, at.line);
  }
  return outcome.error();
}

inline result<std::optional<grant>> await_acquire(std::string_view key, milliseconds ttl, client& by = subject()) {
  return await(start_acquire(key, ttl, by));
}
inline result<bool> await_release(std::string_view id, client& by = subject()) { return await(start_release(id, by)); }
inline result<std::optional<server_time>> await_extend(std::string_view id, milliseconds ttl, client& by = subject()) {
  return await(start_extend(id, ttl, by));
}
inline result<bool> await_is_locked(std::string_view key, client& by = subject()) {
  return await(start_is_locked(key, by));
}
inline result<std::optional<lock_info>> await_lookup(std::string_view key, client& by = subject()) {
  return await(start_lookup(key, by));
}
inline result<std::optional<lock_info>> await_lookup_by_id(std::string_view id, client& by = subject()) {
  return await(start_lookup_by_id(id, by));
}
inline result<std::optional<raw_lock_info>> await_lookup_raw(std::string_view key, client& by = subject()) {
  return await(start_lookup_raw(key, by));
}
inline result<std::optional<raw_lock_info>> await_lookup_raw_by_id(std::string_view id, client& by = subject()) {
  return await(start_lookup_raw_by_id(id, by));
}
inline result<bool> await_owns(std::string_view id, client& by = subject()) { return await(start_owns(id, by)); }

// A lock that this case holds from here on.
inline grant hold(std::string_view key, milliseconds ttl = 60s, client& by = subject(),
                  testing::call_place at = testing::call_place::current()) {
  return must_have(await_acquire(key, ttl, by), at);
}

// Every kind of operation, for promises that hold for all of them.
enum class kind : std::uint8_t {
  acquire,
  release,
  extend,
  is_locked,
  lookup,
  lookup_by_id,
  lookup_raw,
  lookup_raw_by_id,
  owns,
};

inline constexpr kind all_kinds[] = {kind::acquire,    kind::release,          kind::extend,
                                     kind::is_locked,  kind::lookup,           kind::lookup_by_id,
                                     kind::lookup_raw, kind::lookup_raw_by_id, kind::owns};

// Which error came, or nothing for success.
using told_end = std::function<void(const error* failure)>;

// Starts an operation of this kind on a key, or on an id, whichever it takes.
operation_handle start_any(kind which, client& by, std::string_view key, std::string_view id, told_end end);

}  // namespace syncguard::testing
