#pragma once

#include <memory>
#include <string>

#include <syncguard/client.hpp>
#include <syncguard/result.hpp>

struct redisContext;
struct ssl_st;

namespace syncguard::redis {

// TLS for connections: who is trusted, who we are. hiredis checks no host name, so the checks are set up here.
//
// Errors: make() says InvalidArgument for files that cannot be used, and where the library was built without TLS.
// Allocates: at construction, and for each connection.
class tls_context {
 public:
  static result<std::unique_ptr<tls_context>> make(const tls_options& options, const std::string& host);
  ~tls_context();
  tls_context(const tls_context&) = delete;
  tls_context& operator=(const tls_context&) = delete;

  // Speaks TLS on a connection that has just been made.
  //
  // Returns: the session, which belongs to the connection; null where it could not be begun.
  ssl_st* begin(redisContext& connection);

  // Why the server's certificate was refused; empty where it was not.
  static std::string verify_failure(const ssl_st* session);

 private:
  struct state;
  explicit tls_context(std::unique_ptr<state> made) noexcept;

  std::unique_ptr<state> state_;
};

}  // namespace syncguard::redis
