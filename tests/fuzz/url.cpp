// Any text as a URL: what is accepted is a place that can be connected to, what is refused is refused without a word of
// the URL in it, and what was accepted is understood the same way when it is written down again.

#include "redis/url.hpp"

#include <string>

#include "fuzz.hpp"

namespace {

using syncguard::error;
using syncguard::error_code;
using syncguard::redis::endpoint;

std::string percent_encoded(std::string_view text, bool with_slashes) {
  constexpr std::string_view hex = "0123456789ABCDEF";
  std::string out;
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    const bool plain = (byte >= 'a' && byte <= 'z') || (character == '/' && with_slashes);
    if (plain) {
      out += character;
    } else {
      out += {'%', hex[byte >> 4], hex[byte & 15]};
    }
  }
  return out;
}

std::string written(const endpoint& where) {
  const bool is_socket = where.via == endpoint::transport::unix_socket;
  std::string out = is_socket ? "unix://" : where.via == endpoint::transport::tls ? "REDISS://" : "Redis://";
  if (!where.password.empty())
    out += percent_encoded(where.user, false) + ":" + percent_encoded(where.password, false) + "@";
  if (is_socket) return out + percent_encoded(where.path, true) + "?db=" + std::to_string(where.database);
  const bool is_ipv6 = where.host.find(':') != std::string::npos;
  out += is_ipv6 ? "[" + where.host + "]" : where.host;
  return out + ":" + std::to_string(where.port) + "/" + std::to_string(where.database);
}

void check_endpoint(const endpoint& where) {
  require(where.database >= 0 && where.database <= syncguard::redis::database_max);
  require(where.user.empty() || !where.password.empty());
  require(where.user.size() <= syncguard::redis::credential_max_bytes);
  require(where.password.size() <= syncguard::redis::credential_max_bytes);
  if (where.via == endpoint::transport::unix_socket) {
    require(where.host.empty());
    require(where.path.size() > 1 && where.path.size() <= syncguard::redis::socket_path_max_bytes);
    require(where.path.front() == '/' && where.path.find('\0') == std::string::npos);
    return;
  }
  require(where.path.empty());
  require(where.port != 0);
  require(!where.host.empty() && where.host.size() <= syncguard::redis::host_max_bytes);
  require(where.host.find_first_of(std::string_view{"/@[]%?# \0", 9}) == std::string::npos);
}

void check_same(const endpoint& one, const endpoint& other) {
  require(one.via == other.via && one.host == other.host && one.path == other.path);
  require(one.via == endpoint::transport::unix_socket || one.port == other.port);
  require(one.user == other.user && one.password == other.password && one.database == other.database);
}

void check_refusal(const error& why) {
  require(why.code() == error_code::invalid_argument);
  require(!why.message().empty() && why.cause().empty() && why.key().empty());
}

// A secret of an alphabet that no message uses, in a URL that goes wrong or not behind it.
void check_secrecy(std::string_view rest) {
  constexpr std::string_view secret = "QZXJQZXJQZXJ";
  const auto parsed = syncguard::redis::parse_url("redis://user:" + std::string{secret} + std::string{rest});
  if (parsed) return;
  check_refusal(parsed.error());
  for (const std::string_view text : {parsed.error().message(), parsed.error().cause(), parsed.error().key()})
    require(text.find(secret.substr(0, 4)) == std::string_view::npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view url = syncguard::fuzz::input{data, size}.rest();
  const auto parsed = syncguard::redis::parse_url(url);
  if (parsed) {
    check_endpoint(*parsed);
    const std::string again = written(*parsed);
    if (again.size() <= syncguard::redis::url_max_bytes) {
      const auto second = syncguard::redis::parse_url(again);
      require(second.has_value());
      check_same(*parsed, *second);
    }
  } else {
    check_refusal(parsed.error());
  }
  check_secrecy(url);
  return 0;
}
