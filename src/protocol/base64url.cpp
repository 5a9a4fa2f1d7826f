#include "protocol/base64url.hpp"

#include <algorithm>

#include <sodium.h>

namespace syncguard::protocol {

void base64url_16(std::span<const std::uint8_t, 16> bytes, std::span<char, 22> out) noexcept {
  char encoded[sodium_base64_ENCODED_LEN(16, sodium_base64_VARIANT_URLSAFE_NO_PADDING)];
  sodium_bin2base64(encoded, sizeof encoded, bytes.data(), bytes.size(), sodium_base64_VARIANT_URLSAFE_NO_PADDING);
  std::copy_n(encoded, out.size(), out.begin());
}

}  // namespace syncguard::protocol
