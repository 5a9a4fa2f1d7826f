// Any bytes as a prefix and a key: what is accepted is in its normal form, stays what it is when normalised again, and
// makes storage keys that keep within their bounds and apart from each other. The oracle is utf8proc's own
// normalisation.

#include "protocol/user_key.hpp"

#include <utf8proc.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "fuzz.hpp"
#include "protocol/config.hpp"
#include "protocol/storage_key.hpp"
#include "protocol/utf8.hpp"

namespace {

using syncguard::error_code;
using syncguard::lock_id;
using syncguard::protocol::key_space;
using syncguard::protocol::storage_key_buffer;

void check_storage_key(std::string_view key, std::string_view prefix) {
  require(!key.empty() && key.size() <= syncguard::protocol::storage_key_max_bytes);
  require(key.starts_with(prefix));
  require(prefix.empty() || key[prefix.size()] == ':');
  require(syncguard::protocol::is_utf8(key));
}

void check_keys(const key_space& keys, std::string_view user_key, const lock_id& id) {
  storage_key_buffer lock_out;
  storage_key_buffer index_out;
  storage_key_buffer fence_out;
  const std::string_view lock_key = keys.lock_key(user_key, lock_out);
  const std::string_view index_key = keys.index_key(id, index_out);
  const std::string_view fence_key = keys.fence_key(lock_key, fence_out);
  for (const std::string_view key : {lock_key, index_key, fence_key}) check_storage_key(key, keys.prefix());
  require(lock_key != index_key && lock_key != fence_key && index_key != fence_key);
  const std::string name = keys.prefix().empty() ? std::string{} : std::string{keys.prefix()} + ":";
  if (name.size() + user_key.size() <= syncguard::protocol::storage_key_max_bytes)
    require(lock_key == name + std::string{user_key});
}

// Normal form C in memory of its own, whatever its length; nothing where the text is not UTF-8.
std::optional<std::string> composed(std::string_view raw) {
  constexpr auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  utf8proc_uint8_t* made = nullptr;
  const auto bytes = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(raw.data()),
                                  static_cast<utf8proc_ssize_t>(raw.size()), &made, options);
  if (bytes < 0) return std::nullopt;
  std::string text{reinterpret_cast<const char*>(made), static_cast<std::size_t>(bytes)};
  std::free(made);
  return text;
}

bool is_usable(std::string_view normal) {
  const bool is_index = normal.starts_with("id:") && lock_id::is_valid(normal.substr(3));
  return !normal.empty() && normal.size() <= syncguard::protocol::user_key_max_bytes && !is_index &&
         !normal.starts_with("fence:");
}

void check_normal_form(std::string_view key) {
  require(!key.empty() && key.size() <= syncguard::protocol::user_key_max_bytes);
  require(syncguard::protocol::is_utf8(key));
  require(!key.starts_with("fence:"));
  syncguard::protocol::user_key_buffer buffer;
  const auto again = syncguard::protocol::normalize_user_key(key, buffer);
  require(again.has_value() && *again == key);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  syncguard::fuzz::input bytes{data, size};
  const std::size_t repeats = bytes.byte();  // long prefixes from short inputs
  const std::string_view part = bytes.text(bytes.byte());
  std::string prefix;
  for (std::size_t left = repeats % 64; left > 0; --left) prefix += part;
  const std::string_view raw = bytes.rest();
  // A lock id of the same bytes, so that keys get a chance to look like each other's.
  std::uint8_t random[lock_id::random_bytes]{};
  std::copy_n(raw.begin(), std::min(raw.size(), sizeof random), random);

  syncguard::protocol::user_key_buffer buffer;
  const auto key = syncguard::protocol::normalize_user_key(raw, buffer);
  const auto wanted = composed(raw);
  require(key.has_value() == (wanted && is_usable(*wanted)));
  if (!key) {
    require(key.error().code() == error_code::invalid_argument && !key.error().message().empty());
  } else {
    require(*key == *wanted);
    check_normal_form(*key);
  }
  const auto keys = key_space::make(prefix);
  if (!keys) {
    require(keys.error().code() == error_code::invalid_argument);
    return 0;
  }
  require(keys->prefix().size() <= syncguard::protocol::prefix_max_bytes && !keys->prefix().ends_with(':'));
  if (key) check_keys(*keys, *key, lock_id::from_bytes(random));
  return 0;
}
