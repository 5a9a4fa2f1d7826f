// hiredis comes with its TLS part, and that part works with the OpenSSL it is linked to.

#include <string>

#include <hiredis.h>
#include <hiredis_ssl.h>

#include "support/cmocka.hpp"

namespace {

void hiredis_is_new_enough(void**) { assert_true(HIREDIS_MAJOR > 1 || (HIREDIS_MAJOR == 1 && HIREDIS_MINOR >= 1)); }

void tls_context_is_made(void**) {
  redisInitOpenSSL();
  redisSSLContextError failure = REDIS_SSL_CTX_NONE;
  redisSSLContext* context = redisCreateSSLContext(nullptr, nullptr, nullptr, nullptr, "localhost", &failure);
  assert_non_null(context);
  redisFreeSSLContext(context);
}

void missing_ca_file_is_an_error(void**) {
  redisSSLContextError failure = REDIS_SSL_CTX_NONE;
  assert_null(redisCreateSSLContext("/nonexistent/ca.pem", nullptr, nullptr, nullptr, nullptr, &failure));
  assert_int_equal(failure, REDIS_SSL_CTX_CA_CERT_LOAD_FAILED);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(hiredis_is_new_enough),
      cmocka_unit_test(tls_context_is_made),
      cmocka_unit_test(missing_ca_file_is_an_error),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
