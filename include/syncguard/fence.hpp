#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <syncguard/result.hpp>

namespace syncguard {

// A fencing token: the number that a lock's key has been given out with. Each acquisition of a key gets a higher one,
// so a store that remembers the highest token it has seen can refuse the late write of a holder that lost its lock.
//
// On the wire and in storage it is exactly 15 decimal digits with leading zeros; as texts or as numbers, tokens
// compare the same way.
//
// Ownership: a value of eight bytes.
// Errors: parse() and from_number() say InvalidArgument; nothing throws.
// Allocates: never.
class fence {
 public:
  static constexpr std::size_t digits = 15;

  // The highest token that fits the text form.
  static constexpr std::uint64_t representable_max = 999'999'999'999'999;

  // A counter beyond this gives out no more locks: the operation fails with error_code::internal.
  static constexpr std::uint64_t grant_max = 900'000'000'000'000;

  // A counter beyond this is reported, so that there is time to act.
  static constexpr std::uint64_t warn_above = 90'000'000'000'000;

  // The 15 digits, without a terminating zero byte.
  struct text {
    std::array<char, digits> characters;

    constexpr operator std::string_view() const noexcept { return {characters.data(), characters.size()}; }
    constexpr std::string_view view() const noexcept { return *this; }
  };

  static result<fence> from_number(std::int64_t number) noexcept {
    if (number < 0) return error{error_code::invalid_argument, "a fence is not negative"};
    if (static_cast<std::uint64_t>(number) > representable_max)
      return error{error_code::invalid_argument, "a fence has at most 15 digits"};
    return fence{static_cast<std::uint64_t>(number)};
  }

  // Exactly 15 digits, nothing else.
  static result<fence> parse(std::string_view written) noexcept {
    if (written.size() != digits)
      return error{error_code::invalid_argument, "a fence is written with exactly 15 digits"};
    std::uint64_t number = 0;
    for (const char character : written) {
      if (character < '0' || character > '9')
        return error{error_code::invalid_argument, "a fence is written with decimal digits only"};
      number = number * 10 + static_cast<std::uint64_t>(character - '0');
    }
    return fence{number};
  }

  constexpr std::uint64_t number() const noexcept { return number_; }

  constexpr text to_text() const noexcept {
    text written{};
    std::uint64_t rest = number_;
    for (std::size_t place = digits; place > 0; --place) {
      written.characters[place - 1] = static_cast<char>('0' + rest % 10);
      rest /= 10;
    }
    return written;
  }

  // Whether a lock may be granted with this token.
  constexpr bool grantable() const noexcept { return number_ <= grant_max; }

  // Whether the counter behind this token is close enough to its end to be reported.
  constexpr bool near_exhaustion() const noexcept { return number_ > warn_above; }

  friend constexpr auto operator<=>(const fence&, const fence&) noexcept = default;

 private:
  constexpr explicit fence(std::uint64_t number) noexcept : number_(number) {}

  std::uint64_t number_;
};

}  // namespace syncguard
