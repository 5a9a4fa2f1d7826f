#pragma once

// The record that is stored at a lock key: a JSON object
//
//   {"lockId":"…","expiresAtMs":…,"acquiredAtMs":…,"key":"…","fence":"000000000000001"}
//
// in any order, with any whitespace, escapes and further fields. Whatever else is found there was written by somebody
// else or is damaged; then two questions matter, and they are answered apart: can it still be told when the record
// expires (its form), and is the rest as it should be (its fault)?

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <syncguard/error.hpp>
#include <syncguard/fence.hpp>

#include <syncguard/lock_id.hpp>
#include "protocol/inline_string.hpp"
#include "protocol/json_escape.hpp"
#include "protocol/user_key.hpp"

namespace syncguard::protocol {

// A stored value longer than this is unreadable. The longest record without further fields has 3207 bytes.
inline constexpr std::size_t record_max_bytes = 4096;

enum class record_form : std::uint8_t {
  current,     // has expiresAtMs
  legacy,      // has expiresAt, as the oldest writers did; no fence
  unreadable,  // when it expires cannot be told
};

struct decoded_record {
  record_form form = record_form::unreadable;

  // Empty where every field of the form is there and right; else the first thing that is wrong. A record that is not
  // unreadable can have a fault: when it expires is known, and counts.
  static_text fault;

  std::int64_t expires_at_ms = 0;
  std::int64_t acquired_at_ms = 0;
  std::optional<lock_id> id;
  std::optional<fence> token;
  inline_string<user_key_max_bytes> key;
};

// Requires: `out` is fresh.
// Errors: told in `out`; any bytes are fine as input, and work and memory are bounded.
// Allocates: never.
void decode_record(std::string_view json, decoded_record& out) noexcept;

// The same without the short cut for records of this library's own form, which must make no difference.
//
// Requires: the text is not longer than record_max_bytes.
void parse_record(std::string_view json, decoded_record& out) noexcept;

struct record_fields {
  lock_id id;
  std::int64_t expires_at_ms;
  std::int64_t acquired_at_ms;
  std::string_view key;  // in its normal form
  fence token;
};

using record_buffer = inline_string<record_max_bytes>;

// Lifetime: the result is a view of `out`.
// Requires: the key has at most user_key_max_bytes. Then it always fits.
// Allocates: never.
std::string_view encode_record(const record_fields& fields, record_buffer& out) noexcept;

}  // namespace syncguard::protocol
