#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace syncguard::protocol {

// Base64url without padding of 16 bytes, the one size that the protocol uses.
//
// Allocates: never.
void base64url_16(std::span<const std::uint8_t, 16> bytes, std::span<char, 22> out) noexcept;

}  // namespace syncguard::protocol
