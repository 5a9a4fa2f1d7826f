#include <syncguard/key_hash.hpp>

#include <cstdint>
#include <span>
#include <vector>

#include "protocol/utf8.hpp"

namespace syncguard {

namespace {

using protocol::decomposed_max;
using protocol::is_ascii;
using protocol::normalize_nfc;

constexpr std::size_t stack_text_bytes = 2048;

class mixer {
 public:
  void add(std::uint32_t unit) noexcept {
    h1_ = (h1_ << 5) - h1_ + unit;
    h2_ = (h2_ << 7) - h2_ + 3 * unit;
    h3_ = (h3_ << 11) - h3_ + 7 * unit;
  }

  void add_code_point(std::uint32_t code_point) noexcept {
    if (code_point < 0x10000) return add(code_point);
    add(0xd800 + ((code_point - 0x10000) >> 10));
    add(0xdc00 + ((code_point - 0x10000) & 0x3ff));
  }

  key_hash finish() const noexcept {
    constexpr std::string_view hex = "0123456789abcdef";
    key_hash hash{};
    auto* out = hash.characters.data();
    for (const std::uint32_t part : {h1_, h2_, h3_})
      for (int shift = 28; shift >= 0; shift -= 4) *out++ = hex[(part >> shift) & 0xf];
    return hash;
  }

 private:
  std::uint32_t h1_ = 0;
  std::uint32_t h2_ = 0;
  std::uint32_t h3_ = 0;
};

std::optional<key_hash> hash_normalized(std::string_view text, std::span<std::int32_t> work) noexcept {
  const auto count = normalize_nfc(text, work);
  if (count < 0) return std::nullopt;
  mixer hash;
  for (const std::int32_t code_point : work.first(static_cast<std::size_t>(count)))
    hash.add_code_point(static_cast<std::uint32_t>(code_point));
  return hash.finish();
}

}  // namespace

std::optional<key_hash> hash_key(std::string_view text) {
  if (is_ascii(text)) {
    mixer hash;
    for (const char character : text) hash.add(static_cast<unsigned char>(character));
    return hash.finish();
  }
  if (text.size() <= stack_text_bytes) {
    std::int32_t work[decomposed_max(stack_text_bytes)];
    return hash_normalized(text, work);
  }
  std::vector<std::int32_t> work(decomposed_max(text.size()));
  return hash_normalized(text, work);
}

}  // namespace syncguard
