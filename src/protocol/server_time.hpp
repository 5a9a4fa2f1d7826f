#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace syncguard::protocol {

// Milliseconds since the epoch, from the two parts of the server's TIME reply.
constexpr std::int64_t server_time_ms(std::int64_t seconds, std::int64_t microseconds) noexcept {
  return seconds * 1000 + microseconds / 1000;
}

// The same from the texts that TIME answers with. Nothing where they are not two decimal numbers within bounds: a
// server that answers so is not to be believed about time.
//
// Allocates: never.
inline std::optional<std::int64_t> parse_server_time_ms(std::string_view seconds,
                                                        std::string_view microseconds) noexcept {
  constexpr std::int64_t seconds_max = 1'000'000'000'000;  // the year 33658; the product stays far below 2^53
  const auto number = [](std::string_view text, std::int64_t max) -> std::optional<std::int64_t> {
    std::int64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [stopped, failure] = std::from_chars(text.data(), end, value);
    if (failure != std::errc{} || stopped != end || value < 0 || value > max) return std::nullopt;
    return value;
  };
  const auto whole = number(seconds, seconds_max);
  const auto part = number(microseconds, 999'999);
  if (!whole || !part) return std::nullopt;
  return server_time_ms(*whole, *part);
}

}  // namespace syncguard::protocol
