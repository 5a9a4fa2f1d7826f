#include "protocol/storage_key.hpp"

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>

#include <sodium.h>

#include "protocol/base64url.hpp"
#include "protocol/config.hpp"

namespace syncguard::protocol {

namespace {

// The longest name below the prefix is a fence key's: `fence:` and a lock key.
using name_buffer = inline_string<6 + storage_key_max_bytes>;

// The first 16 bytes of SHA-256 over the whole key, as text.
std::array<char, 22> hashed_name(std::string_view prefix, std::string_view separator, std::string_view key) noexcept {
  crypto_hash_sha256_state state;
  crypto_hash_sha256_init(&state);
  for (const std::string_view part : {prefix, separator, key})
    crypto_hash_sha256_update(&state, reinterpret_cast<const unsigned char*>(part.data()), part.size());
  std::array<std::uint8_t, crypto_hash_sha256_BYTES> digest;
  crypto_hash_sha256_final(&state, digest.data());

  std::array<char, 22> text;
  base64url_16(std::span{digest}.first<16>(), text);
  return text;
}

bool join(storage_key_buffer& out, std::initializer_list<std::string_view> parts) noexcept {
  out.clear();
  for (const std::string_view part : parts)
    if (!out.append(part)) return false;
  return true;
}

// key_space::make() has made sure that this cannot fail.
std::string_view infallible(std::string_view prefix, std::string_view key, storage_key_buffer& out) noexcept {
  return *make_storage_key(prefix, key, out);
}

}  // namespace

result<std::string_view> make_storage_key(std::string_view prefix, std::string_view key,
                                          storage_key_buffer& out) noexcept {
  const std::string_view separator = prefix.empty() ? "" : ":";
  if (join(out, {prefix, separator, key})) return out.view();
  const auto hash = hashed_name(prefix, separator, key);
  if (join(out, {prefix, separator, {hash.data(), hash.size()}})) return out.view();
  return error{error_code::invalid_argument, "the key prefix is too long: not even a hashed key fits behind it"};
}

result<key_space> key_space::make(std::string_view prefix) {
  const auto usable = validate_prefix(prefix);
  if (!usable) return usable.error();
  return key_space{std::string{*usable}};
}

std::string_view key_space::lock_key(std::string_view user_key, storage_key_buffer& out) const noexcept {
  return infallible(prefix_, user_key, out);
}

std::string_view key_space::index_key(const lock_id& id, storage_key_buffer& out) const noexcept {
  name_buffer name;
  name.append("id:");
  name.append(id.view());
  return infallible(prefix_, name.view(), out);
}

std::string_view key_space::fence_key(std::string_view lock_key, storage_key_buffer& out) const noexcept {
  name_buffer name;
  name.append("fence:");
  name.append(lock_key);
  return infallible(prefix_, name.view(), out);
}

}  // namespace syncguard::protocol
