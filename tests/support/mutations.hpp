#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "support/cmocka.hpp"

namespace syncguard::testing {

// The seed of a random test: SYNCGUARD_SEED where it is set, to repeat a run; else a fresh one. Noted in the log.
inline std::uint64_t random_seed() {
  const char* given = std::getenv("SYNCGUARD_SEED");
  const std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  note("SYNCGUARD_SEED=%llu", static_cast<unsigned long long>(seed));
  return seed;
}

// A text with one to four random changes: bytes put in, replaced, flipped or taken out, pieces repeated, pieces of
// other texts put in. Bytes come from `telling`, those that mean something to the parser, as often as from all of them.
inline std::string mutate(std::string text, const std::vector<std::string>& others, std::string_view telling,
                          std::mt19937_64& random) {
  const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(random() % bound); };
  const auto some_byte = [&] { return below(2) == 0 ? telling[below(telling.size())] : static_cast<char>(below(256)); };
  for (std::size_t changes = 1 + below(4); changes > 0; --changes) {
    const std::size_t at = below(text.size() + 1);
    const std::size_t length = below(text.size() - at + 1);
    switch (below(6)) {
      case 0: text.insert(at, 1, some_byte()); break;
      case 1:
        if (at < text.size()) text[at] = some_byte();
        break;
      case 2:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 3: text.erase(at, below(2) == 0 ? 1 : length); break;
      case 4: text.insert(below(text.size() + 1), text.substr(at, length)); break;
      default: {
        const std::string& other = others[below(others.size())];
        text.insert(at, other.substr(below(other.size())));
      }
    }
  }
  return text;
}

}  // namespace syncguard::testing
