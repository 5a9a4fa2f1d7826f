// Server URLs: what each form means, that every mistake is named for what it is, and that hostile text does no harm.
// Each URL lies in a block of exactly its size, so that a sanitizer sees any read beyond it. SYNCGUARD_SEED repeats
// the random part.

#include "redis/url.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "support/cmocka.hpp"
#include "support/mutations.hpp"

namespace {

namespace testing = syncguard::testing;

using namespace std::string_literals;
using namespace std::string_view_literals;
using syncguard::error_code;
using syncguard::result;
using syncguard::redis::endpoint;
using syncguard::redis::parse_url;
using transport = syncguard::redis::endpoint::transport;

constexpr int mutations = 100'000;

result<endpoint> parse_exact(std::string_view url) {
  const auto block = std::make_unique<char[]>(url.size());
  std::copy(url.begin(), url.end(), block.get());
  return parse_url({block.get(), url.size()});
}

struct server_case {
  std::string_view url;
  std::string_view host = "127.0.0.1";
  int port = 6379;
  int database = 0;
  std::string_view user = {};
  std::string_view password = {};
};

void assert_server(const server_case& wanted, transport via) {
  const auto seen = parse_exact(wanted.url);
  if (!seen) fail_msg("%s: %s", std::string{wanted.url}.c_str(), std::string{seen.error().message()}.c_str());
  assert_true(seen->via == via);
  assert_text_equal(seen->host, wanted.host);
  assert_int_equal(seen->port, wanted.port);
  assert_int_equal(seen->database, wanted.database);
  assert_text_equal(seen->user, wanted.user);
  assert_text_equal(seen->password, wanted.password);
  assert_text_equal(seen->path, "");
}

struct socket_case {
  std::string_view url;
  std::string_view path;
  int database = 0;
  std::string_view user = {};
  std::string_view password = {};
};

void assert_socket(const socket_case& wanted) {
  const auto seen = parse_exact(wanted.url);
  if (!seen) fail_msg("%s: %s", std::string{wanted.url}.c_str(), std::string{seen.error().message()}.c_str());
  assert_true(seen->via == transport::unix_socket);
  assert_text_equal(seen->path, wanted.path);
  assert_int_equal(seen->database, wanted.database);
  assert_text_equal(seen->user, wanted.user);
  assert_text_equal(seen->password, wanted.password);
  assert_text_equal(seen->host, "");
}

// `telling` is a part of the message: enough to know that the right mistake was found.
void assert_refused(std::string_view url, std::string_view telling) {
  const auto seen = parse_exact(url);
  if (seen) fail_msg("accepted: %s", std::string{url}.c_str());
  assert_failed_with(seen, error_code::invalid_argument);
  const std::string message{seen.error().message()};
  if (message.find(telling) == std::string::npos)
    fail_msg("%s: \"%s\" does not tell \"%s\"", std::string{url}.c_str(), message.c_str(),
             std::string{telling}.c_str());
}

void assert_all_refused(std::initializer_list<std::string_view> urls, std::string_view telling) {
  for (const std::string_view url : urls) assert_refused(url, telling);
}

std::string percent_encode(std::string_view text, std::string_view kept = {}) {
  std::string encoded;
  for (const char c : text) {
    if (kept.find(c) != std::string_view::npos) {
      encoded.push_back(c);
      continue;
    }
    char digits[4];
    std::snprintf(digits, sizeof digits, "%%%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    encoded += digits;
  }
  return encoded;
}

std::string every_byte() {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  return all;
}

void tcp_forms_are_understood(void**) {
  const server_case cases[] = {
      {.url = "redis://localhost", .host = "localhost"},
      {.url = "redis://localhost/", .host = "localhost"},
      {.url = "redis://localhost:6380", .host = "localhost", .port = 6380},
      {.url = "redis://localhost:6380/", .host = "localhost", .port = 6380},
      {.url = "redis://localhost:6380/2", .host = "localhost", .port = 6380, .database = 2},
      {.url = "redis://localhost/0", .host = "localhost"},
      {.url = "redis://10.0.0.7:1", .host = "10.0.0.7", .port = 1},
      {.url = "redis://my_redis-1.Example.ORG.:65535", .host = "my_redis-1.Example.ORG.", .port = 65535},
      {.url = "redis://h/1000000", .host = "h", .database = 1'000'000},
      {.url = "redis://h?db=3", .host = "h", .database = 3},
      {.url = "redis://h/?db=3", .host = "h", .database = 3},
      {.url = "redis://h:7?db=1000000", .host = "h", .port = 7, .database = 1'000'000},
  };
  for (const server_case& wanted : cases) assert_server(wanted, transport::tcp);
}

void empty_host_is_the_local_one(void**) {
  const server_case cases[] = {
      {.url = "redis://"},
      {.url = "redis:///"},
      {.url = "redis:///1", .database = 1},
      {.url = "redis://?db=4", .database = 4},
      {.url = "redis://:6380", .port = 6380},
      {.url = "redis://:6380/1", .port = 6380, .database = 1},
      {.url = "redis://:pw@", .password = "pw"},
      {.url = "redis://:pw@/1", .database = 1, .password = "pw"},
      {.url = "redis://u:pw@:6380", .port = 6380, .user = "u", .password = "pw"},
  };
  for (const server_case& wanted : cases) assert_server(wanted, transport::tcp);
}

void tls_forms_are_understood(void**) {
  const server_case cases[] = {
      {.url = "rediss://localhost", .host = "localhost"},
      {.url = "rediss:///1", .database = 1},
      {.url = "rediss://u:pw@h:6380/2", .host = "h", .port = 6380, .database = 2, .user = "u", .password = "pw"},
      {.url = "rediss://:pw@[2001:db8::7]?db=5", .host = "2001:db8::7", .database = 5, .password = "pw"},
  };
  for (const server_case& wanted : cases) assert_server(wanted, transport::tls);
}

void ipv6_addresses_lose_their_brackets(void**) {
  const server_case cases[] = {
      {.url = "redis://[::1]", .host = "::1"},
      {.url = "redis://[::1]:6380", .host = "::1", .port = 6380},
      {.url = "redis://[::]/1", .host = "::", .database = 1},
      {.url = "redis://[FE80::aB]?db=1", .host = "FE80::aB", .database = 1},
      {.url = "redis://[::ffff:10.0.0.7]:1/1", .host = "::ffff:10.0.0.7", .port = 1, .database = 1},
      {.url = "redis://u:p@[0:0:0:0:0:0:0:1]", .host = "0:0:0:0:0:0:0:1", .user = "u", .password = "p"},
  };
  for (const server_case& wanted : cases) assert_server(wanted, transport::tcp);
}

void credentials_are_decoded(void**) {
  const server_case cases[] = {
      {.url = "redis://u:pw@h", .host = "h", .user = "u", .password = "pw"},
      {.url = "redis://:pw@h", .host = "h", .password = "pw"},
      {.url = "redis://u:p:w:@h:1", .host = "h", .port = 1, .user = "u", .password = "p:w:"},
      {.url = "redis://u%3av:%40%2F%3f%23%25@h", .host = "h", .user = "u:v", .password = "@/?#%"},
      {.url = "redis://:%2541@h", .host = "h", .password = "%41"},  // decoded once, not twice
      {.url = "redis://:a%0d%0aFLUSHALL%00@h", .host = "h", .password = "a\r\nFLUSHALL\0"sv},
      {.url = "redis://\u00e9:+[]&=!~\\\"'@h", .host = "h", .user = "\u00e9", .password = "+[]&=!~\\\"'"},
      {.url = "redis://::@h", .host = "h", .password = ":"},
  };
  for (const server_case& wanted : cases) assert_server(wanted, transport::tcp);
}

void every_byte_can_be_written_in_credentials(void**) {
  const std::string bytes = every_byte();
  const std::string url = "redis://" + percent_encode(bytes) + ":" + percent_encode(bytes) + "@h";
  assert_server({.url = url, .host = "h", .user = bytes, .password = bytes}, transport::tcp);
}

void unix_sockets_are_understood(void**) {
  const socket_case cases[] = {
      {.url = "unix:///run/redis.sock", .path = "/run/redis.sock"},
      {.url = "unix:///run/redis.sock?db=7", .path = "/run/redis.sock", .database = 7},
      {.url = "unix://u:p%40w@/run/redis.sock", .path = "/run/redis.sock", .user = "u", .password = "p@w"},
      {.url = "unix://:pw@/s?db=1", .path = "/s", .database = 1, .password = "pw"},
      {.url = "unix:///a%20b/%3f%23%2e", .path = "/a b/?#."},
      {.url = "unix:///a@b:c/1", .path = "/a@b:c/1"},  // an '@' after the first '/' belongs to the path
      {.url = "unix:////s/", .path = "//s/"},
      {.url = "unix:///\u00e9[&=]", .path = "/\u00e9[&=]"},
  };
  for (const socket_case& wanted : cases) assert_socket(wanted);
}

void scheme_may_be_in_either_case(void**) {
  assert_server({.url = "REDIS://h", .host = "h"}, transport::tcp);
  assert_server({.url = "rEdIsS://h", .host = "h"}, transport::tls);
  assert_socket({.url = "Unix:///S", .path = "/S"});
}

void lengths_have_bounds(void**) {
  const std::string longest(512, 'x');
  const std::string encoded = percent_encode(longest);
  assert_server({.url = "redis://" + longest + ":" + longest + "@h", .host = "h", .user = longest, .password = longest},
                transport::tcp);
  assert_server({.url = "redis://" + encoded + ":" + encoded + "@h", .host = "h", .user = longest, .password = longest},
                transport::tcp);
  assert_refused("redis://" + longest + "x:pw@h", "user in the URL is longer");
  assert_refused("redis://u:" + longest + "x@h", "password in the URL is longer");
  assert_refused("redis://u:" + encoded + "%78@h", "password in the URL is longer");

  const std::string host(253, 'h');
  assert_server({.url = "redis://" + host, .host = host}, transport::tcp);
  assert_refused("redis://" + host + "h", "host in the URL is longer");

  const std::string path = "/" + std::string(106, 'p');
  assert_socket({.url = "unix://" + path, .path = path});
  assert_socket({.url = "unix://" + percent_encode(path, "/"), .path = path});
  assert_refused("unix://" + path + "p", "longer than 107");
  assert_refused("unix://" + percent_encode(path, "/") + "%70", "longer than 107");
}

void url_has_a_bound(void**) {
  const std::string start = "redis://h/";
  assert_refused(start + std::string(4096 - start.size(), '1'), "database");
  assert_refused(start + std::string(4097 - start.size(), '1'), "longer than 4096");
  assert_refused(std::string(10'000'000, '%'), "longer than 4096");
}

void scheme_mistakes_are_named(void**) {
  assert_all_refused({"", ":", "/", "redis", "redis:", "redis:/", "redis:/h", "redis:h", "redis//h", "localhost:6379",
                      "/run/redis.sock", "unix:/run/redis.sock", "redis:\\\\h"},
                     "no '://'");
  assert_all_refused({"://", "://h", "http://h", "redi://h", "redisss://h", "redis+tls://h", "unixx:///s", "xredis://h",
                      "h?a=redis://h", "\u0280edis://h", "redis%3a://h", "redis:://h"},
                     "scheme");
}

void white_space_and_control_characters_are_refused(void**) {
  for (int byte = 0; byte < 256; ++byte) {
    if (byte > 0x20 && byte != 0x7f) continue;
    const std::string bad(1, static_cast<char>(byte));
    for (const std::string& url :
         {bad + "redis://h", "redis" + bad + "://h", "redis://a" + bad + "b", "redis://h" + bad,
          "redis://[::1" + bad + "]", "redis://u" + bad + ":pw@h", "redis://:p" + bad + "@h", "redis://h:1" + bad,
          "redis://h/1" + bad, "redis://h?db=1" + bad, "unix:///a" + bad + "b"})
      assert_refused(url, "white space or a control character");
  }
}

void hosts_hold_nothing_but_host_characters(void**) {
  assert_all_refused({"redis://a,b", "redis://a%62", "redis://%00", "redis://a\\b", "redis://a]", "redis://a[b]",
                      "redis://h\u00e9", "redis://\xff", "redis://a;b", "redis://\"h\"", "redis://a|b", "redis://$(id)",
                      "redis://u:p@a%40b", "redis://h&db=1", "redis://*"},
                     "character that no host name has");
  int allowed = 0;
  for (const char c : every_byte()) allowed += parse_exact("redis://a"s + c + "b").has_value() ? 1 : 0;
  assert_int_equal(allowed, 26 + 26 + 10 + 3);  // letters, digits, and - . _
}

void ports_are_numbers_with_bounds(void**) {
  assert_all_refused(
      {"redis://h:",      "redis://h:/1",        "redis://h:0",     "redis://h:65536", "redis://h:99999999999999999999",
       "redis://h:-1",    "redis://h:+1",        "redis://h:06379", "redis://h:0x1",   "redis://h:1a",
       "redis://h:a",     "redis://h:1.0",       "redis://h:%31",   "redis://:",       "redis://[::1]:",
       "redis://[::1]:0", "redis://[::1]:65536", "redis://u:p@h:x", "redis://:secret", "redis://h:\u0661"},
      "port");
}

void ipv6_mistakes_are_named(void**) {
  assert_all_refused({"redis://[", "redis://[::1", "redis://[::1/0", "redis://[::1?db=0]", "redis://u:p@[::1:6379"},
                     "not closed");
  assert_all_refused({"redis://[::g]", "redis://[localhost]", "redis://[fe80::1%25eth0]", "redis://[fe80::1%eth0]",
                      "redis://[[::1]", "redis://[::1-]", "redis://[::\u0661]"},
                     "character that no IPv6 address has");
  assert_all_refused({"redis://[]", "redis://[:]", "redis://[.]", "redis://[:::]", "redis://[1]", "redis://[127.0.0.1]",
                      "redis://[1::2::3]", "redis://[12345::]", "redis://[::256.0.0.1]", "redis://[0:0:0:0:0:0:0:0:1]"},
                     "do not hold an IPv6 address");
  assert_refused("redis://[" + std::string(4000, ':') + "]", "do not hold an IPv6 address");
  assert_all_refused({"redis://[::1]6379", "redis://[::1]]", "redis://[::1]a:1"}, "more than a port");
  assert_all_refused({"redis://::1", "redis://::1:6379", "redis://h:1:2", "redis://h::1", "redis://::"},
                     "more than one ':'");
}

void databases_are_numbers_with_bounds(void**) {
  assert_all_refused(
      {"redis://h/1000001", "redis://h/-1",         "redis://h/+1",         "redis://h/01",
       "redis://h/00",      "redis://h/a",          "redis://h/1/",         "redis://h//1",
       "redis://h/1.5",     "redis://h/%31",        "redis://h/4294967296", "redis://h/99999999999999999999",
       "redis://h/db1",     "redis:////",           "redis://h?db",         "redis://h?db=",
       "redis://h?db=x",    "redis://h?db=1000001", "redis://h?db=%31",     "redis://h?db=1?db=2",
       "redis://h?db==1",   "redis://h?db=1/",      "unix:///s?db=-1",      "unix:///s?db=01",
       "unix:///s?db=1/x"},
      "database in the URL is not a number");
}

void query_mistakes_are_named(void**) {
  assert_all_refused({"redis://h?", "redis://h?x", "redis://h?x=1", "redis://h?DB=1", "redis://h?db2=1", "redis://h?=1",
                      "redis://h?&db=1", "redis://h?db=1&", "redis://h?db=1&x=2", "redis://h?%64b=1", "redis://h??db=1",
                      "redis://h/1?", "redis://h?password=pw", "unix:///s?", "unix:///s?timeout=1", "redis://h?db1"},
                     "query parameter other than db");
  assert_all_refused({"redis://h/1?db=1", "redis://h/0?db=0", "redis://h?db=1&db=1", "redis://h?db=1&db=2&db=3",
                      "redis://h?db=1&db", "unix:///s?db=1&db=1"},
                     "more than once");
}

void fragments_are_refused(void**) {
  assert_all_refused({"#", "redis://h#", "redis://h#a", "redis://h/1#a", "redis://h?db=1#a", "redis://u:p#w@h",
                      "unix:///a#b", "redis#://h"},
                     "fragment");
}

void percent_mistakes_are_named(void**) {
  for (const std::string_view bad : {"%", "%4", "%%", "%zz", "%4g", "%g4", "%+1", "%-1", "%0x", "a%", "%41%4"}) {
    const std::string text{bad};
    for (const std::string& url : {"redis://" + text + ":pw@h", "redis://:" + text + "@h", "rediss://u:" + text + "@h",
                                   "unix://:" + text + "@/s", "unix:///" + text})
      assert_refused(url, "two hexadecimal digits");
  }
}

void credential_mistakes_are_named(void**) {
  assert_all_refused({"redis://u@h", "redis://u:@h", "rediss://u@", "unix://u@/s", "unix://u:@/s", "redis://%00@h"},
                     "user without a password");
  assert_all_refused({"redis://@h", "redis://:@h", "redis://@", "unix://@/s", "unix://:@/s"},
                     "without a password in front");
  assert_all_refused({"redis://u:p@w@h", "redis://u:p@@h", "redis://@@", "redis://a:b@good@evil", "unix://u:p@w@/s"},
                     "more than one '@'");
}

// A password with a character that ought to have been encoded must not turn into a host, a port or a path.
void badly_encoded_passwords_never_lead_to_another_server(void**) {
  assert_all_refused({"redis://:12/34@h", "redis://u:12/34@h", "redis://:1?db=2@h", "redis://evil/@h",
                      "redis://evil?@h", "redis://evil:1/2@h", "redis://evil\\@h/x", "unix://:12/34@/s"},
                     "");
}

void socket_path_mistakes_are_named(void**) {
  assert_all_refused({"unix://", "unix:///", "unix://?db=1", "unix:///?db=1", "unix://u:p@", "unix://u:p@/"},
                     "no path of a unix socket");
  assert_all_refused({"unix://s", "unix://run/redis.sock", "unix://./s", "unix://localhost/s", "unix://%2fs",
                      "unix://u:p@s", "unix://u:p@h/s", "unix://:6379/s"},
                     "not absolute");
  assert_all_refused({"unix:///%00", "unix:///a%00b", "unix:///a%00", "unix://u:p@/a%00"}, "zero byte");
}

void errors_hold_no_part_of_the_url(void**) {
  for (const std::string_view url :
       {"hunter2://hunter2:hunter2@hunter2", "hunter2", "redis://hunter2@h", "redis://:hunter2", "redis://:hunter2@h:x",
        "redis://hunter2:hunter2%@h", "redis://u:hunter2@hunter2@h", "redis://u:hunter2@[hunter2]",
        "redis://u:hunter2@[::1", "redis://u:hunter2@h/hunter2", "redis://u:hunter2@h?hunter2=1",
        "redis://u:hunter2@h?db=hunter2", "redis://u:hunter2@h#hunter2", "redis://u:hunter2 @h",
        "redis://u:hunter2@h,h", "unix://u:hunter2@hunter2", "unix://u:hunter2@/hunter2%00"}) {
    const auto seen = parse_exact(url);
    assert_failed_with(seen, error_code::invalid_argument);
    assert_true(describe(seen.error()).find("hunter2") == std::string::npos);
    assert_text_equal(seen.error().cause(), "");
  }
}

const std::vector<std::string>& valid_urls() {
  static const std::vector<std::string> urls{
      "redis://localhost:6380/2",
      "redis://lock%2dservice:s3%63ret@10.0.0.7:6380?db=12",
      "rediss://:s3cret@redis.example.org/1000000",
      "rediss://u:p@[2001:db8::ffff:10.0.0.7]:65535/3",
      "redis:///1",
      "unix:///run/re%64is/redis.sock?db=1",
      "unix://u:p%40%00w@/run/redis.sock",
  };
  return urls;
}

std::string format(const endpoint& from) {
  std::string credentials;
  if (!from.password.empty()) credentials = percent_encode(from.user) + ":" + percent_encode(from.password) + "@";
  const std::string database = "?db=" + std::to_string(from.database);
  if (from.via == transport::unix_socket) return "unix://" + credentials + percent_encode(from.path, "/") + database;
  const bool is_ipv6 = from.host.find(':') != std::string::npos;
  return (from.via == transport::tls ? "rediss://" : "redis://") + credentials +
         (is_ipv6 ? "[" + from.host + "]" : from.host) + ":" + std::to_string(from.port) + database;
}

// What may be relied on whatever the input was.
void assert_consistent(const result<endpoint>& seen) {
  if (!seen) {
    assert_failed_with(seen, error_code::invalid_argument);
    return;
  }
  assert_in_range(seen->port, 1, 65535);
  assert_in_range(seen->database, 0, 1'000'000);
  assert_in_range(seen->user.size(), 0, 512);
  assert_in_range(seen->password.size(), 0, 512);
  assert_true(seen->user.empty() || !seen->password.empty());
  const bool is_socket = seen->via == transport::unix_socket;
  assert_int_equal(seen->host.empty(), is_socket);
  assert_int_equal(seen->path.empty(), !is_socket);
  assert_true(!is_socket || (seen->path.front() == '/' && seen->path.size() <= 107));
  assert_true((seen->path + seen->host).find('\0') == std::string::npos);

  const auto again = parse_exact(format(*seen));
  assert_true(again.has_value());
  assert_true(again->via == seen->via && again->port == seen->port && again->database == seen->database);
  assert_text_equal(again->host, seen->host);
  assert_text_equal(again->path, seen->path);
  assert_text_equal(again->user, seen->user);
  assert_text_equal(again->password, seen->password);
}

void truncation_at_every_byte_is_survived(void**) {
  for (const std::string& url : valid_urls()) {
    assert_true(parse_exact(url).has_value());
    for (std::size_t length = 0; length <= url.size(); ++length)
      assert_consistent(parse_exact(std::string_view{url}.substr(0, length)));
  }
}

constexpr std::string_view telling_bytes = "://@:?#%[]&=.-_0123456789abcfxDB \n\x00\x7f\x80\xff"sv;

void random_mutations_are_survived(void**) {
  std::mt19937_64 random{testing::random_seed()};
  int accepted = 0;
  for (int i = 0; i < mutations; ++i) {
    const auto& urls = valid_urls();
    const auto seen =
        parse_exact(testing::mutate(urls[static_cast<std::size_t>(i) % urls.size()], urls, telling_bytes, random));
    assert_consistent(seen);
    accepted += seen.has_value() ? 1 : 0;
  }
  note("%d mutations: %d are still accepted", mutations, accepted);
  assert_in_range(accepted, 1, mutations - 1);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(tcp_forms_are_understood),
      cmocka_unit_test(empty_host_is_the_local_one),
      cmocka_unit_test(tls_forms_are_understood),
      cmocka_unit_test(ipv6_addresses_lose_their_brackets),
      cmocka_unit_test(credentials_are_decoded),
      cmocka_unit_test(every_byte_can_be_written_in_credentials),
      cmocka_unit_test(unix_sockets_are_understood),
      cmocka_unit_test(scheme_may_be_in_either_case),
      cmocka_unit_test(lengths_have_bounds),
      cmocka_unit_test(url_has_a_bound),
      cmocka_unit_test(scheme_mistakes_are_named),
      cmocka_unit_test(white_space_and_control_characters_are_refused),
      cmocka_unit_test(hosts_hold_nothing_but_host_characters),
      cmocka_unit_test(ports_are_numbers_with_bounds),
      cmocka_unit_test(ipv6_mistakes_are_named),
      cmocka_unit_test(databases_are_numbers_with_bounds),
      cmocka_unit_test(query_mistakes_are_named),
      cmocka_unit_test(fragments_are_refused),
      cmocka_unit_test(percent_mistakes_are_named),
      cmocka_unit_test(credential_mistakes_are_named),
      cmocka_unit_test(badly_encoded_passwords_never_lead_to_another_server),
      cmocka_unit_test(socket_path_mistakes_are_named),
      cmocka_unit_test(errors_hold_no_part_of_the_url),
      cmocka_unit_test(truncation_at_every_byte_is_survived),
      cmocka_unit_test(random_mutations_are_survived),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
