#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace syncguard::protocol {

// Whether every byte is below 0x80. Such text is valid UTF-8 and already in normal form C.
bool is_ascii(std::string_view text) noexcept;

// Whether the text is well-formed UTF-8: no overlong forms, no surrogates, nothing beyond U+10FFFF.
bool is_utf8(std::string_view text) noexcept;

// The most code points that the canonical decomposition of `bytes` bytes of UTF-8 can have. The worst is U+03B0: two
// bytes, three code points.
constexpr std::size_t decomposed_max(std::size_t bytes) noexcept { return bytes + bytes / 2 + 1; }

// Normal form C of `text`, as code points at the front of `work`.
//
// Requires: work.size() >= decomposed_max(text.size()).
// Returns: how many code points, or -1 where the text is not UTF-8.
// Allocates: never.
std::ptrdiff_t normalize_nfc(std::string_view text, std::span<std::int32_t> work) noexcept;

// Writes one code point as UTF-8, where it fits.
//
// Returns: the bytes written, or 0 where `out` is too small.
std::size_t encode_utf8(std::int32_t code_point, std::span<char> out) noexcept;

}  // namespace syncguard::protocol
