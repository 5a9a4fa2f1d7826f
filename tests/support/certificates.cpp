#include "support/certificates.hpp"

#include <cstdio>
#include <memory>

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

namespace syncguard::testing {

namespace {

template <auto Free>
struct freed_by {
  void operator()(auto* pointer) const noexcept { Free(pointer); }
};

using bio = std::unique_ptr<BIO, freed_by<BIO_free>>;
using certificate = std::unique_ptr<X509, freed_by<X509_free>>;
using extension = std::unique_ptr<X509_EXTENSION, freed_by<X509_EXTENSION_free>>;
using private_key = std::unique_ptr<EVP_PKEY, freed_by<EVP_PKEY_free>>;
using serial_number = std::unique_ptr<BIGNUM, freed_by<BN_free>>;

constexpr long day_s = 24L * 60 * 60;

struct identity {
  certificate shown;
  private_key key;
};

struct request {
  const char* name;             // for whoever reads a log: what a certificate is for stands in alternative_names
  const char* usage = nullptr;  // of the extended key usage; none makes an authority
  const char* alternative_names = nullptr;
  long not_before_s = -10 * day_s;  // from now
  long not_after_s = 10 * day_s;
};

bool set_serial(X509* to) {
  const serial_number number{BN_new()};
  return number && BN_rand(number.get(), 127, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 &&
         BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(to)) != nullptr;
}

bool set_names(X509* to, const X509* issuer, const char* name) {
  X509_NAME* subject = X509_get_subject_name(to);
  const auto* text = reinterpret_cast<const unsigned char*>(name);
  if (X509_NAME_add_entry_by_NID(subject, NID_commonName, MBSTRING_UTF8, text, -1, -1, 0) != 1) return false;
  return X509_set_issuer_name(to, X509_get_subject_name(issuer)) == 1;
}

bool add_extension(X509* to, X509* issuer, int kind, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, to, nullptr, nullptr, 0);
  const extension made{X509V3_EXT_conf_nid(nullptr, &context, kind, value)};
  return made && X509_add_ext(to, made.get(), -1) == 1;
}

bool add_extensions(X509* to, X509* issuer, const request& wanted) {
  const bool is_authority = wanted.usage == nullptr;
  const char* constraints = is_authority ? "critical,CA:TRUE" : "critical,CA:FALSE";
  const char* key_usage = is_authority ? "critical,keyCertSign,cRLSign" : "critical,digitalSignature";
  if (!add_extension(to, issuer, NID_basic_constraints, constraints)) return false;
  if (!add_extension(to, issuer, NID_key_usage, key_usage)) return false;
  if (!add_extension(to, issuer, NID_subject_key_identifier, "hash")) return false;
  if (is_authority) return true;
  if (!add_extension(to, issuer, NID_authority_key_identifier, "keyid:always")) return false;
  if (!add_extension(to, issuer, NID_ext_key_usage, wanted.usage)) return false;
  return wanted.alternative_names == nullptr ||
         add_extension(to, issuer, NID_subject_alt_name, wanted.alternative_names);
}

// Without an authority the certificate is signed with its own key.
bool make_identity(const request& wanted, const identity* authority, identity& out) {
  out.key.reset(EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256"));
  out.shown.reset(X509_new());
  X509* shown = out.shown.get();
  if (!out.key || shown == nullptr) return false;
  X509* issuer = authority != nullptr ? authority->shown.get() : shown;
  EVP_PKEY* issuer_key = authority != nullptr ? authority->key.get() : out.key.get();
  return X509_set_version(shown, X509_VERSION_3) == 1 && set_serial(shown) && set_names(shown, issuer, wanted.name) &&
         X509_gmtime_adj(X509_getm_notBefore(shown), wanted.not_before_s) != nullptr &&
         X509_gmtime_adj(X509_getm_notAfter(shown), wanted.not_after_s) != nullptr &&
         X509_set_pubkey(shown, out.key.get()) == 1 && add_extensions(shown, issuer, wanted) &&
         X509_sign(shown, issuer_key, EVP_sha256()) > 0;
}

bool write_certificate(const std::string& path, const X509* from) {
  const bio file{BIO_new_file(path.c_str(), "w")};
  return file && PEM_write_bio_X509(file.get(), from) == 1 && BIO_flush(file.get()) == 1;
}

bool write_key(const std::string& path, const EVP_PKEY* from) {
  const bio file{BIO_new_file(path.c_str(), "w")};
  return file && PEM_write_bio_PrivateKey(file.get(), from, nullptr, nullptr, 0, nullptr, nullptr) == 1 &&
         BIO_flush(file.get()) == 1;
}

bool make_authority(const std::string& path, const char* name, identity& out) {
  return make_identity({.name = name}, nullptr, out) && write_certificate(path, out.shown.get());
}

bool make_signed(const std::string& path, const request& wanted, const identity& authority) {
  identity made;
  return make_identity(wanted, &authority, made) && write_certificate(path + ".pem", made.shown.get()) &&
         write_key(path + ".key", made.key.get());
}

bool make_all(const std::string& folder) {
  const char* here = "DNS:localhost,IP:127.0.0.1";
  const request server{.name = "syncguard test server", .usage = "serverAuth", .alternative_names = here};
  const request client{.name = "syncguard test client", .usage = "clientAuth"};
  request expired = server;
  expired.not_before_s = -2 * day_s;
  expired.not_after_s = -1 * day_s;
  request wrong_host = server;
  wrong_host.alternative_names = "DNS:elsewhere.test";

  identity ca;
  identity other_ca;
  return make_authority(folder + "/ca.pem", "syncguard test CA", ca) &&
         make_authority(folder + "/other-ca.pem", "another syncguard test CA", other_ca) &&
         make_signed(folder + "/server", server, ca) && make_signed(folder + "/expired", expired, ca) &&
         make_signed(folder + "/wrong-host", wrong_host, ca) && make_signed(folder + "/client", client, ca) &&
         make_signed(folder + "/stranger", client, other_ca);
}

}  // namespace

bool make_certificates(const std::string& folder) {
  ERR_clear_error();
  if (make_all(folder)) return true;
  std::fprintf(stderr, "no certificates could be made in %s:\n", folder.c_str());
  ERR_print_errors_fp(stderr);
  return false;
}

}  // namespace syncguard::testing
