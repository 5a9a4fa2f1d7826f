#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include <syncguard/result.hpp>

namespace syncguard::protocol {

inline constexpr std::size_t user_key_max_bytes = 512;

// Room for a key whose normal form differs from what the caller wrote.
using user_key_buffer = std::array<char, user_key_max_bytes>;

// The normal form of a user's key: UTF-8 in normal form C, 1 to 512 bytes, outside the namespaces that the protocol
// keeps for itself (`fence:…`, where the counters live, and `id:` with a lock id, where the index lives). A key in
// there would overwrite a counter and make fences start again.
//
// Lifetime: the result is a view of `raw` or of `buffer`, whichever holds the normal form.
// Errors: InvalidArgument: empty, too long, not UTF-8, reserved.
// Allocates: never.
result<std::string_view> normalize_user_key(std::string_view raw, user_key_buffer& buffer) noexcept;

}  // namespace syncguard::protocol
