#include "redis/url.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

namespace syncguard::redis {

namespace {

// What follows `scheme://`, cut at its first '/' and '?'.
struct url_parts {
  std::string_view authority;
  std::string_view path;                  // with its '/', or empty
  std::optional<std::string_view> query;  // without its '?'; absent is not the same as empty
};

error refuse(static_text why) noexcept { return {error_code::invalid_argument, why}; }

constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

// The functions of <cctype> would ask the locale.
constexpr bool is_host_character(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '-' || c == '.' || c == '_';
}

constexpr bool is_blank_or_control(char c) noexcept {
  const auto byte = static_cast<unsigned char>(c);
  return byte <= 0x20 || byte == 0x7f;
}

constexpr char to_lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

constexpr int hex_value(char c) noexcept {
  if (is_digit(c)) return c - '0';
  const char lower = to_lower(c);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

url_parts split(std::string_view rest) noexcept {
  url_parts parts;
  if (const auto mark = rest.find('?'); mark != std::string_view::npos) {
    parts.query = rest.substr(mark + 1);
    rest = rest.substr(0, mark);
  }
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  parts.authority = rest.substr(0, slash);
  parts.path = rest.substr(slash);
  return parts;
}

// One way to write each number: digits only, no leading zero.
std::optional<int> parse_number(std::string_view text, int least, int most) noexcept {
  if (text.empty() || !std::all_of(text.begin(), text.end(), is_digit)) return {};
  if (text.size() > 1 && text.front() == '0') return {};
  int number = 0;
  const char* end = text.data() + text.size();
  if (std::from_chars(text.data(), end, number).ec != std::errc{}) return {};
  if (number < least || number > most) return {};
  return number;
}

result<std::string> percent_decode(std::string_view text) {
  std::string decoded;
  decoded.reserve(text.size());
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '%') {
      decoded.push_back(text[at]);
      continue;
    }
    if (text.size() - at < 3) return refuse("a '%' in the URL is not followed by two hexadecimal digits");
    const int high = hex_value(text[at + 1]);
    const int low = hex_value(text[at + 2]);
    if (high < 0 || low < 0) return refuse("a '%' in the URL is not followed by two hexadecimal digits");
    decoded.push_back(static_cast<char>(high * 16 + low));
    at += 2;
  }
  return decoded;
}

result<endpoint::transport> parse_scheme(std::string_view scheme) noexcept {
  const auto is = [scheme](std::string_view name) {
    return std::equal(scheme.begin(), scheme.end(), name.begin(), name.end(),
                      [](char seen, char wanted) { return to_lower(seen) == wanted; });
  };
  if (is("redis")) return endpoint::transport::tcp;
  if (is("rediss")) return endpoint::transport::tls;
  if (is("unix")) return endpoint::transport::unix_socket;
  return refuse("the scheme of the URL is none of redis, rediss and unix");
}

// Takes `user:password@` off the front of the authority.
result<void> take_credentials(std::string_view& authority, endpoint& out) {
  const std::size_t at = authority.find('@');
  if (at == std::string_view::npos) return {};
  const std::string_view credentials = authority.substr(0, at);
  authority.remove_prefix(at + 1);
  if (authority.find('@') != std::string_view::npos)
    return refuse("the URL has more than one '@': in user and password it is written %40");

  const std::size_t colon = std::min(credentials.find(':'), credentials.size());
  auto user = percent_decode(credentials.substr(0, colon));
  if (!user) return std::move(user).error();
  auto password = percent_decode(credentials.substr(std::min(colon + 1, credentials.size())));
  if (!password) return std::move(password).error();

  if (password->empty() && !user->empty()) return refuse("the URL names a user without a password");
  if (password->empty()) return refuse("the URL has an '@' without a password in front of it");
  if (user->size() > credential_max_bytes) return refuse("the user in the URL is longer than 512 bytes");
  if (password->size() > credential_max_bytes) return refuse("the password in the URL is longer than 512 bytes");
  out.user = *std::move(user);
  out.password = *std::move(password);
  return {};
}

result<void> check_ipv6(const std::string& address) noexcept {
  const bool plausible =
      std::all_of(address.begin(), address.end(), [](char c) { return hex_value(c) >= 0 || c == ':' || c == '.'; });
  if (!plausible) return refuse("the brackets in the URL hold a character that no IPv6 address has");
  in6_addr ignored{};
  if (inet_pton(AF_INET6, address.c_str(), &ignored) != 1)
    return refuse("the brackets in the URL do not hold an IPv6 address");
  return {};
}

result<void> check_host_name(std::string_view host) noexcept {
  if (host.size() > host_max_bytes) return refuse("the host in the URL is longer than 253 bytes");
  if (!std::all_of(host.begin(), host.end(), is_host_character))
    return refuse("the host in the URL holds a character that no host name has");
  return {};
}

// Takes the host off the front of `rest`, and leaves the port with its colon.
result<void> take_host(std::string_view& rest, endpoint& out) {
  if (rest.starts_with('[')) {
    const std::size_t close = rest.find(']');
    if (close == std::string_view::npos) return refuse("a '[' in the URL is not closed");
    out.host = rest.substr(1, close - 1);
    rest.remove_prefix(close + 1);
    if (!rest.empty() && rest.front() != ':') return refuse("the brackets in the URL are followed by more than a port");
    return check_ipv6(out.host);
  }
  const std::size_t colon = std::min(rest.find(':'), rest.size());
  if (rest.find(':', colon + 1) != std::string_view::npos)
    return refuse("the host in the URL has more than one ':': an IPv6 address is written in brackets");
  out.host = colon == 0 ? std::string_view{"127.0.0.1"} : rest.substr(0, colon);
  rest.remove_prefix(colon);
  return check_host_name(out.host);
}

result<void> read_database(std::string_view text, endpoint& out) noexcept {
  const auto number = parse_number(text, 0, database_max);
  if (!number) return refuse("the database in the URL is not a number from 0 to 1000000");
  out.database = *number;
  return {};
}

result<void> read_server(const url_parts& parts, std::string_view host_and_port, endpoint& out) {
  if (auto done = take_host(host_and_port, out); !done) return done;
  if (!host_and_port.empty()) {
    const auto port = parse_number(host_and_port.substr(1), 1, 65535);
    if (!port) return refuse("the port in the URL is not a number from 1 to 65535");
    out.port = static_cast<std::uint16_t>(*port);
  }
  return parts.path.size() > 1 ? read_database(parts.path.substr(1), out) : result<void>{};
}

result<void> read_socket_path(const url_parts& parts, std::string_view host, endpoint& out) {
  if (!host.empty()) return refuse("the path of the unix socket is not absolute: it must begin with '/'");
  if (parts.path.size() <= 1) return refuse("the URL has no path of a unix socket");
  auto path = percent_decode(parts.path);
  if (!path) return std::move(path).error();
  if (path->find('\0') != std::string::npos) return refuse("the path of the unix socket holds a zero byte");
  if (path->size() > socket_path_max_bytes) return refuse("the path of the unix socket is longer than 107 bytes");
  out.path = *std::move(path);
  return {};
}

result<void> read_query(std::string_view query, bool has_database, endpoint& out) noexcept {
  for (bool more = true; more;) {
    const std::size_t end = std::min(query.find('&'), query.size());
    const std::string_view parameter = query.substr(0, end);
    more = end < query.size();
    query.remove_prefix(std::min(end + 1, query.size()));

    const std::size_t equals = std::min(parameter.find('='), parameter.size());
    if (parameter.substr(0, equals) != "db") return refuse("the URL has a query parameter other than db");
    if (has_database) return refuse("the URL names the database more than once");
    has_database = true;
    auto done = read_database(parameter.substr(std::min(equals + 1, parameter.size())), out);
    if (!done) return done;
  }
  return {};
}

}  // namespace

result<endpoint> parse_url(std::string_view url) {
  if (url.size() > url_max_bytes) return refuse("the URL is longer than 4096 bytes");
  if (std::any_of(url.begin(), url.end(), is_blank_or_control))
    return refuse("the URL holds white space or a control character");
  if (url.find('#') != std::string_view::npos)
    return refuse("the URL has a fragment: in user, password and path a '#' is written %23");
  constexpr std::string_view mark = "://";
  const std::size_t scheme_end = url.find(mark);
  if (scheme_end == std::string_view::npos) return refuse("the URL has no '://'");
  auto via = parse_scheme(url.substr(0, scheme_end));
  if (!via) return std::move(via).error();

  endpoint found;
  found.via = *via;
  const url_parts parts = split(url.substr(scheme_end + mark.size()));
  const bool is_socket = found.via == endpoint::transport::unix_socket;
  std::string_view authority = parts.authority;
  auto done = take_credentials(authority, found);
  if (done) done = is_socket ? read_socket_path(parts, authority, found) : read_server(parts, authority, found);
  if (done && parts.query) done = read_query(*parts.query, !is_socket && parts.path.size() > 1, found);
  if (!done) return std::move(done).error();
  return found;
}

}  // namespace syncguard::redis
