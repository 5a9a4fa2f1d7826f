#pragma once

#include <cstddef>
#include <string_view>

#include "protocol/inline_string.hpp"

namespace syncguard::protocol {

// A byte becomes at most six: a control character, \u00XX.
inline constexpr std::size_t json_escape_factor = 6;

// Appends `text` to `out` as the inside of a JSON string, without the quotes around it. Everything but quotes,
// backslashes and control characters stays as it is, so UTF-8 stays UTF-8.
//
// Returns: false where it does not fit; `out` then ends with a part of the text.
// Allocates: never.
template <std::size_t Capacity>
bool append_json_escaped(inline_string<Capacity>& out, std::string_view text) noexcept {
  constexpr std::string_view hex = "0123456789abcdef";
  std::size_t plain = 0;  // where the run of characters that need no escape begins
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte >= 0x20 && byte != '"' && byte != '\\') continue;
    if (!out.append(text.substr(plain, at - plain))) return false;
    plain = at + 1;

    char escape[json_escape_factor] = {'\\', 'u', '0', '0', hex[byte >> 4], hex[byte & 0xf]};
    std::size_t length = 2;
    switch (byte) {
      case '"': escape[1] = '"'; break;
      case '\\': escape[1] = '\\'; break;
      case '\b': escape[1] = 'b'; break;
      case '\f': escape[1] = 'f'; break;
      case '\n': escape[1] = 'n'; break;
      case '\r': escape[1] = 'r'; break;
      case '\t': escape[1] = 't'; break;
      default: length = sizeof escape;
    }
    if (!out.append({escape, length})) return false;
  }
  return out.append(text.substr(plain));
}

}  // namespace syncguard::protocol
