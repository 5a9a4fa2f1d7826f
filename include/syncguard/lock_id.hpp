#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <syncguard/export.hpp>
#include <syncguard/result.hpp>

namespace syncguard {

// The name of one acquisition: 16 random bytes as 22 characters of base64url without padding. Whoever knows it can
// release and extend that lock, so it is never logged in the clear unless the user asks for it.
//
// Ownership: a value of 22 bytes; there is no such thing as an invalid one.
// Errors: parse() says InvalidArgument.
// Allocates: never.
class SYNCGUARD_API lock_id {
 public:
  static constexpr std::size_t length = 22;
  static constexpr std::size_t random_bytes = 16;

  static bool is_valid(std::string_view text) noexcept;
  static result<lock_id> parse(std::string_view text) noexcept;

  // The bytes must come from a cryptographic source and be used once.
  static lock_id from_bytes(std::span<const std::uint8_t, random_bytes> bytes) noexcept;

  // A fresh one, from libsodium's random source.
  static lock_id generate() noexcept;

  std::string_view view() const noexcept { return {characters_.data(), characters_.size()}; }
  operator std::string_view() const noexcept { return view(); }

  friend bool operator==(const lock_id&, const lock_id&) noexcept = default;

 private:
  lock_id() noexcept = default;

  std::array<char, length> characters_{};
};

}  // namespace syncguard
