#include "redis/tls.hpp"

#if SYNCGUARD_TLS

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include <utility>

#include <hiredis.h>
#include <hiredis_ssl.h>

namespace syncguard::redis {

namespace {

struct context_deleter {
  void operator()(SSL_CTX* context) const noexcept { SSL_CTX_free(context); }
};

error refused(error what) {
  char reason[256];
  ERR_error_string_n(ERR_get_error(), reason, sizeof reason);
  ERR_clear_error();
  what.with_context({}, {}, reason);
  return what;
}

bool is_address(const std::string& host) noexcept {
  in6_addr ignored{};
  return inet_pton(AF_INET, host.c_str(), &ignored) == 1 || inet_pton(AF_INET6, host.c_str(), &ignored) == 1;
}

// The name that the server's certificate must be for.
bool expect(SSL& session, const std::string& name) noexcept {
  if (is_address(name)) return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(&session), name.c_str()) == 1;
  auto* written = const_cast<char*>(name.c_str());
  return SSL_set1_host(&session, written) == 1 &&
         SSL_ctrl(&session, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, written) == 1;
}

}  // namespace

struct tls_context::state {
  std::unique_ptr<SSL_CTX, context_deleter> context;
  std::string name;
};

tls_context::tls_context(std::unique_ptr<state> made) noexcept : state_(std::move(made)) {}
tls_context::~tls_context() = default;

result<std::unique_ptr<tls_context>> tls_context::make(const tls_options& options, const std::string& host) {
  ERR_clear_error();
  auto made = std::make_unique<state>();
  made->name = options.server_name.empty() ? host : options.server_name;
  made->context.reset(SSL_CTX_new(TLS_client_method()));
  SSL_CTX* context = made->context.get();
  if (context == nullptr) return refused({error_code::internal, "OpenSSL could not be set up"});
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  const int trusted = options.ca_file.empty()
                          ? SSL_CTX_set_default_verify_paths(context)
                          : SSL_CTX_load_verify_locations(context, options.ca_file.c_str(), nullptr);
  if (trusted != 1) return refused({error_code::invalid_argument, "the CA file cannot be used"});
  if (options.certificate_file.empty() != options.private_key_file.empty())
    return error{error_code::invalid_argument, "a client certificate needs a private key, and the other way round"};
  if (!options.certificate_file.empty()) {
    if (SSL_CTX_use_certificate_chain_file(context, options.certificate_file.c_str()) != 1)
      return refused({error_code::invalid_argument, "the client certificate cannot be used"});
    if (SSL_CTX_use_PrivateKey_file(context, options.private_key_file.c_str(), SSL_FILETYPE_PEM) != 1)
      return refused({error_code::invalid_argument, "the client's private key cannot be used"});
  }
  return std::unique_ptr<tls_context>{new tls_context{std::move(made)}};
}

ssl_st* tls_context::begin(redisContext& connection) {
  SSL* session = SSL_new(state_->context.get());
  if (session == nullptr) return nullptr;
  if (!expect(*session, state_->name) || redisInitiateSSL(&connection, session) != REDIS_OK) {
    SSL_free(session);
    return nullptr;
  }
  return session;
}

std::string tls_context::verify_failure(const ssl_st* session) {
  const long verdict = session == nullptr ? X509_V_OK : SSL_get_verify_result(session);
  return verdict == X509_V_OK ? std::string{} : std::string{X509_verify_cert_error_string(verdict)};
}

}  // namespace syncguard::redis

#else

namespace syncguard::redis {

struct tls_context::state {};

tls_context::tls_context(std::unique_ptr<state> made) noexcept : state_(std::move(made)) {}
tls_context::~tls_context() = default;

result<std::unique_ptr<tls_context>> tls_context::make(const tls_options&, const std::string&) {
  return error{error_code::invalid_argument, "rediss:// needs TLS, which this library was built without"};
}

ssl_st* tls_context::begin(redisContext&) { return nullptr; }
std::string tls_context::verify_failure(const ssl_st*) { return {}; }

}  // namespace syncguard::redis

#endif
