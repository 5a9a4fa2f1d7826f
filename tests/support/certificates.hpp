#pragma once

// Certificates for tests of TLS, made afresh by each run, so that none lies in the repository and none runs out.
//
//   ca.pem                           an authority
//   other-ca.pem                     a second one, which knows nothing of the first
//   server.pem, server.key           for localhost and 127.0.0.1
//   expired.pem, expired.key         the same, but it ran out yesterday
//   wrong-host.pem, wrong-host.key   for elsewhere.test, and for no address
//   client.pem, client.key           a client
//   stranger.pem, stranger.key       a client of the second authority
//
// All but the stranger are signed by ca.pem. Keys are EC P-256 without a passphrase; the authorities' own keys are
// forgotten.

#include <string>

namespace syncguard::testing {

// Writes the files above into a folder that exists, over any that are there.
//
// Thread: any.
// Errors: false, and standard error says why. Some of the files may have been written.
[[nodiscard]] bool make_certificates(const std::string& folder);

}  // namespace syncguard::testing
