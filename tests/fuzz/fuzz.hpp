#pragma once

// What the fuzz targets share: an input that is spent bit by bit, and a check that ends the process.
//
// A target is one file with LLVMFuzzerTestOneInput(). Built with libFuzzer it looks for inputs that break a check or
// that a sanitizer objects to; built with replay.cpp it runs those that are kept in corpus/.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace syncguard::fuzz {

// Bytes that decide what happens next. Where they have come to an end, everything is zero.
class input {
 public:
  input(const std::uint8_t* data, std::size_t size) noexcept
      : rest_(reinterpret_cast<const char*>(data), data != nullptr ? size : 0) {}

  bool empty() const noexcept { return rest_.empty(); }
  std::size_t size() const noexcept { return rest_.size(); }

  std::uint8_t byte() noexcept {
    if (rest_.empty()) return 0;
    const auto taken = static_cast<std::uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return taken;
  }

  bool flag() noexcept { return (byte() & 1) != 0; }

  // From 0 to limit - 1.
  std::uint8_t below(std::uint8_t limit) noexcept { return static_cast<std::uint8_t>(byte() % limit); }

  std::int64_t number() noexcept {
    std::uint64_t value = 0;
    for (int left = 8; left > 0; --left) value = value << 8 | byte();
    return static_cast<std::int64_t>(value);
  }

  // Small numbers from one byte, larger ones with fewer digits: 0 to 15, up to 15 << 30.
  std::int64_t magnitude() noexcept {
    const std::uint8_t taken = byte();
    return static_cast<std::int64_t>(taken & 15) << (taken >> 4) * 2;
  }

  std::string_view text(std::size_t bytes) noexcept {
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(taken.size());
    return taken;
  }

  std::string_view rest() noexcept { return text(rest_.size()); }

 private:
  std::string_view rest_;
};

[[noreturn]] inline void report(const char* claim, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: this does not hold: %s\n", file, line, claim);
  std::abort();
}

}  // namespace syncguard::fuzz

// Holds in every build, whatever NDEBUG says.
#define require(claim) ((claim) ? void() : ::syncguard::fuzz::report(#claim, __FILE__, __LINE__))
