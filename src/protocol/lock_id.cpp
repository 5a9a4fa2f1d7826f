#include <syncguard/lock_id.hpp>

#include <algorithm>
#include <array>

#include <sodium.h>

#include "protocol/base64url.hpp"

namespace syncguard {

namespace {

constexpr std::array<bool, 256> alphabet = [] {
  std::array<bool, 256> in{};
  for (const char character : "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    if (character != '\0') in[static_cast<unsigned char>(character)] = true;
  return in;
}();

}  // namespace

bool lock_id::is_valid(std::string_view text) noexcept {
  if (text.size() != length) return false;
  bool all = true;
  for (const char character : text) all &= alphabet[static_cast<unsigned char>(character)];
  return all;
}

result<lock_id> lock_id::parse(std::string_view text) noexcept {
  if (text.size() != length) return error{error_code::invalid_argument, "a lock id has exactly 22 characters"};
  if (!is_valid(text)) return error{error_code::invalid_argument, "a lock id consists of A-Z, a-z, 0-9, - and _"};
  lock_id id;
  std::copy(text.begin(), text.end(), id.characters_.begin());
  return id;
}

lock_id lock_id::from_bytes(std::span<const std::uint8_t, random_bytes> bytes) noexcept {
  lock_id id;
  protocol::base64url_16(bytes, id.characters_);
  return id;
}

lock_id lock_id::generate() noexcept {
  // Opens the random source once; libsodium ends the process itself where the system has none.
  [[maybe_unused]] static const int ready = sodium_init();
  std::array<std::uint8_t, random_bytes> bytes;
  randombytes_buf(bytes.data(), bytes.size());
  return from_bytes(bytes);
}

}  // namespace syncguard
