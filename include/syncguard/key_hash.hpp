#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include <syncguard/export.hpp>

namespace syncguard {

// What stands for a key or a lock id where it is shown or logged. Not a protection against somebody who guesses.
struct key_hash {
  std::array<char, 24> characters;

  std::string_view view() const noexcept { return {characters.data(), characters.size()}; }
  friend bool operator==(const key_hash&, const key_hash&) noexcept = default;
};

// Three 32-bit hashes over the UTF-16 code units of the text's normal form C, as 24 hexadecimal digits.
//
// Returns: nothing where the text is not UTF-8.
// Allocates: never up to 2048 bytes, nor for ASCII of any length.
// Errors: std::bad_alloc for longer texts.
SYNCGUARD_API std::optional<key_hash> hash_key(std::string_view text);

}  // namespace syncguard
