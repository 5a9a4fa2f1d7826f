#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <syncguard/export.hpp>

namespace syncguard {

// What went wrong. A lock that somebody else holds, and a lock that is not there, are outcomes of an operation and
// never appear here.
//
// New codes are only ever appended, so a number keeps its meaning across versions.
enum class error_code : std::uint8_t {
  service_unavailable,  // the server cannot be reached, or says that it cannot serve now
  auth_failed,          // wrong credentials, or a right is missing
  invalid_argument,     // the caller's input was refused; where possible before any I/O
  rate_limited,         // the local queue is full, or the server is out of memory
  network_timeout,      // no answer in time
  acquisition_timeout,  // the lock stayed contended for as long as the caller was willing to wait
  aborted,              // cancelled by the caller
  internal,             // a broken invariant: corrupt stored data, an exhausted fence counter
};

inline constexpr std::size_t error_code_count = 8;

// The name that the protocol uses, for example "ServiceUnavailable".
//
// Lifetime: static.
// Allocates: never.
SYNCGUARD_API std::string_view to_string(error_code code) noexcept;

// A text that is known to live for ever, because it can be made from a string literal only.
class static_text {
 public:
  constexpr static_text() = default;

  template <std::size_t Size>
  consteval static_text(const char (&literal)[Size]) : text_(literal, Size - 1) {}

  constexpr operator std::string_view() const noexcept { return text_; }
  constexpr std::string_view view() const noexcept { return text_; }
  constexpr bool empty() const noexcept { return text_.empty(); }

 private:
  std::string_view text_;
};

// An error: a code, one sentence that says what happened, and what is known about where.
//
// Ownership: a value; it owns what it shows.
// Lifetime: the views it hands out live as long as the error is neither changed, moved from nor destroyed.
// Thread: none of its own; a value that may be handed to another thread.
// Errors: never throws. Where memory for key, lock id and cause cannot be had, they are left out and code and
//   message remain.
// Allocates: making an error from a code and a message never does; with_context() does, once.
class SYNCGUARD_API error {
 public:
  // The most that is kept of each part of the context; the rest is cut off.
  static constexpr std::size_t key_max_bytes = 512;
  static constexpr std::size_t lock_id_max_bytes = 22;
  static constexpr std::size_t cause_max_bytes = 512;

  error(error_code code, static_text message) noexcept : message_(message), code_(code) {}

  error(const error& other) noexcept;
  error& operator=(const error& other) noexcept;
  error(error&&) noexcept = default;
  error& operator=(error&&) noexcept = default;
  ~error() = default;

  error_code code() const noexcept { return code_; }

  // What happened, in one sentence without a full stop. Never holds the caller's data.
  std::string_view message() const noexcept { return message_; }

  // The user key, the lock id, and what the server or the system said. Each is empty where it is not known.
  std::string_view key() const noexcept;
  std::string_view lock_id() const noexcept;
  std::string_view cause() const noexcept;

  // Whether the same call may succeed later without anything being changed by the caller.
  bool retryable() const noexcept;

  // Whether the operation may have taken effect all the same: it was sent, and no answer came. Where this is false,
  // a failed operation has changed nothing.
  bool outcome_unknown() const noexcept { return outcome_unknown_; }

  // Replace the context. An empty view means not known.
  error& with_context(std::string_view key, std::string_view lock_id, std::string_view cause) noexcept;

  error& with_outcome_unknown() noexcept {
    outcome_unknown_ = true;
    return *this;
  }

 private:
  // One block: the three lengths, then the three texts.
  struct context;
  struct context_deleter {
    SYNCGUARD_API void operator()(context* block) const noexcept;
  };
  using context_pointer = std::unique_ptr<context, context_deleter>;

  static context_pointer make_context(std::string_view key, std::string_view lock_id, std::string_view cause) noexcept;

  static_text message_;
  context_pointer context_;
  error_code code_;
  bool outcome_unknown_ = false;
};

// One line for a log: code, message and context, for example
// `ServiceUnavailable: the server refused the connection (key "match:42", cause: Connection refused)`.
// Control characters in the context are shown as \xHH, so the line stays one line.
//
// Errors: std::bad_alloc.
// Allocates: the string.
SYNCGUARD_API std::string describe(const error& what);

}  // namespace syncguard
