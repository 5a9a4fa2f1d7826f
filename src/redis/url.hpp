#pragma once

// Where a server is and who to be there, as one line of text:
//
//   redis://[[user]:password@][host][:port][/database]    TCP
//   rediss://[[user]:password@][host][:port][/database]   the same with TLS
//   unix://[[user]:password@]/path                        a unix socket
//
// Each may end with `?db=N`, which names the database where the path does not. What may be left out: the host
// (127.0.0.1), the port (6379), the database (0), and the user, which then is the server's default user.
//
//   redis://localhost                   redis://lock-service:s3cret@10.0.0.7:6380/2
//   redis:///1                          rediss://:s3cret@redis.example.org?db=2
//   redis://[::1]:6379                  unix:///run/redis/redis.sock?db=1
//
// User, password and the path of a unix socket are percent-decoded; every byte can be written that way, and these must
// be: `%`, `#`, `?`, white space and control characters, in user and password also `/` and `@`, in the user `:`. The
// host, the port and the database are taken as they stand. The scheme may be in either case, the rest may not.
//
// The parser is strict, because a URL that is understood in another way than it was meant leads to the wrong server or
// hands it the password: an '@' too many, an empty password (a variable that was not set), a number with a leading
// zero or an empty port are refused rather than guessed at.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <syncguard/result.hpp>

namespace syncguard::redis {

inline constexpr std::size_t url_max_bytes = 4096;
inline constexpr std::size_t credential_max_bytes = 512;   // of user and password each, decoded
inline constexpr std::size_t host_max_bytes = 253;         // the longest name that DNS can hold
inline constexpr std::size_t socket_path_max_bytes = 107;  // sockaddr_un::sun_path less its terminating zero
inline constexpr int database_max = 1'000'000;

// Ownership: a value. It holds the password in the clear.
struct endpoint {
  enum class transport : std::uint8_t { tcp, tls, unix_socket };

  transport via = transport::tcp;
  std::string host;           // a name or an address, IPv6 without brackets; empty for a unix socket
  std::uint16_t port = 6379;  // has no meaning for a unix socket
  std::string path;           // absolute and free of zero bytes; empty unless a unix socket
  std::string user;           // empty: the default user
  std::string password;       // empty: do not authenticate. User and password may hold any byte, zero too
  int database = 0;
};

// Errors: InvalidArgument, with a message for each kind of mistake. No error holds any part of the URL.
//   std::bad_alloc.
// Allocates: the strings of the endpoint.
result<endpoint> parse_url(std::string_view url);

}  // namespace syncguard::redis
