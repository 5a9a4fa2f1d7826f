#include "protocol/config.hpp"

#include "protocol/utf8.hpp"

namespace syncguard::protocol {

result<std::string_view> validate_prefix(std::string_view prefix) noexcept {
  if (!is_utf8(prefix)) return error{error_code::invalid_argument, "the key prefix is not valid UTF-8"};
  if (prefix.find("fence:") != std::string_view::npos || prefix.ends_with("fence"))
    return error{error_code::invalid_argument,
                 "the key prefix must neither contain 'fence:' nor end with 'fence': fence counters could be deleted"};
  while (prefix.ends_with(':')) prefix.remove_suffix(1);
  if (prefix.size() > prefix_max_bytes)
    return error{error_code::invalid_argument, "the key prefix is longer than 951 bytes"};
  return prefix;
}

result<void> validate_ttl_ms(std::int64_t ttl_ms) noexcept {
  if (ttl_ms < 1) return error{error_code::invalid_argument, "the time to live is shorter than one millisecond"};
  if (ttl_ms > ttl_max_ms) return error{error_code::invalid_argument, "the time to live is longer than 100 days"};
  return {};
}

}  // namespace syncguard::protocol
