#include "protocol/utf8.hpp"

#include <cstring>

#include <utf8proc.h>

namespace syncguard::protocol {

namespace {

const utf8proc_uint8_t* bytes_of(std::string_view text) noexcept {
  return reinterpret_cast<const utf8proc_uint8_t*>(text.data());
}

}  // namespace

bool is_ascii(std::string_view text) noexcept {
  constexpr std::uint64_t high_bits = 0x8080808080808080;
  std::size_t at = 0;
  for (; at + sizeof(std::uint64_t) <= text.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + at, sizeof word);
    if ((word & high_bits) != 0) return false;
  }
  for (; at < text.size(); ++at)
    if (static_cast<unsigned char>(text[at]) >= 0x80) return false;
  return true;
}

bool is_utf8(std::string_view text) noexcept {
  while (!text.empty()) {
    utf8proc_int32_t code_point = 0;
    const auto used = utf8proc_iterate(bytes_of(text), static_cast<utf8proc_ssize_t>(text.size()), &code_point);
    if (used <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(used));
  }
  return true;
}

std::ptrdiff_t normalize_nfc(std::string_view text, std::span<std::int32_t> work) noexcept {
  constexpr auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  if (text.empty()) return 0;
  const auto room = static_cast<utf8proc_ssize_t>(work.size());
  const auto decomposed =
      utf8proc_decompose(bytes_of(text), static_cast<utf8proc_ssize_t>(text.size()), work.data(), room, options);
  if (decomposed < 0 || decomposed > room) return -1;
  return utf8proc_normalize_utf32(work.data(), decomposed, options);
}

std::size_t encode_utf8(std::int32_t code_point, std::span<char> out) noexcept {
  utf8proc_uint8_t encoded[4];
  const auto bytes = static_cast<std::size_t>(utf8proc_encode_char(code_point, encoded));
  if (bytes > out.size()) return 0;
  std::memcpy(out.data(), encoded, bytes);
  return bytes;
}

}  // namespace syncguard::protocol
