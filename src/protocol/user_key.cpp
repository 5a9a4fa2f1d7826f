#include "protocol/user_key.hpp"

#include <cstdint>
#include <span>

#include <syncguard/lock_id.hpp>
#include "protocol/utf8.hpp"

namespace syncguard::protocol {

namespace {

// Normal form C shortens a text at most 3.5 times (U+1FBE U+0308 U+0301, seven bytes, becomes U+0390, two bytes), so
// anything longer than this stays too long and need not be looked at.
constexpr std::size_t raw_max_bytes = user_key_max_bytes * 4;

error too_long() noexcept { return {error_code::invalid_argument, "the key is longer than 512 bytes"}; }

bool is_reserved(std::string_view key) noexcept {
  constexpr std::string_view fence_namespace = "fence:";
  constexpr std::string_view index_namespace = "id:";
  if (key.starts_with(fence_namespace)) return true;
  return key.starts_with(index_namespace) && lock_id::is_valid(key.substr(index_namespace.size()));
}

result<std::string_view> normalize_unicode(std::string_view raw, user_key_buffer& buffer) noexcept {
  if (raw.size() > raw_max_bytes) return too_long();
  std::int32_t work[decomposed_max(raw_max_bytes)];
  const auto count = normalize_nfc(raw, work);
  if (count < 0) return error{error_code::invalid_argument, "the key is not valid UTF-8"};

  std::size_t used = 0;
  for (const std::int32_t code_point : std::span{work, static_cast<std::size_t>(count)}) {
    const std::size_t bytes = encode_utf8(code_point, std::span{buffer}.subspan(used));
    if (bytes == 0) return too_long();
    used += bytes;
  }
  return std::string_view{buffer.data(), used};
}

}  // namespace

result<std::string_view> normalize_user_key(std::string_view raw, user_key_buffer& buffer) noexcept {
  result<std::string_view> key = raw;
  if (!is_ascii(raw)) key = normalize_unicode(raw, buffer);
  if (!key) return key;
  if (key->empty()) return error{error_code::invalid_argument, "the key is empty"};
  if (key->size() > user_key_max_bytes) return too_long();
  if (is_reserved(*key))
    return error{error_code::invalid_argument, "the key lies in a namespace that the protocol keeps for itself"};
  return key;
}

}  // namespace syncguard::protocol
