#include "access/handshake_probe.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string_view>
#include <utility>

namespace reverb::internal {
namespace {

using SslContextPtr = std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)>;
using SslPtr = std::unique_ptr<SSL, void (*)(SSL*)>;
using SteadyTime = std::chrono::steady_clock::time_point;

struct HostPort {
  std::string host;
  std::string port;
};

std::optional<HostPort> SplitAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || address.starts_with("unix:")) return std::nullopt;
  std::string host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return HostPort{.host = std::move(host), .port = address.substr(colon + 1)};
}

bool IsIpAddress(const std::string& host) {
  in6_addr buffer{};
  return inet_pton(AF_INET, host.c_str(), &buffer) == 1 || inet_pton(AF_INET6, host.c_str(), &buffer) == 1;
}

// A descriptor that is closed at the end.
class ProbeSocket {
 public:
  ProbeSocket() = default;
  ~ProbeSocket() { Close(); }
  ProbeSocket(const ProbeSocket&) = delete;
  ProbeSocket& operator=(const ProbeSocket&) = delete;
  int get() const { return fd_; }

  bool Connect(const HostPort& to, SteadyTime deadline) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (getaddrinfo(to.host.c_str(), to.port.c_str(), &hints, &found) != 0) return false;
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(found, &freeaddrinfo);
    for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
      Close();
      fd_ = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
      if (fd_ < 0) continue;
      if (connect(fd_, at->ai_addr, at->ai_addrlen) == 0) return true;
      int error = errno;
      socklen_t size = sizeof error;
      if (error == EINPROGRESS && Wait(POLLOUT, deadline) &&
          getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0) {
        return true;
      }
    }
    return false;
  }
  // Returns false if nothing happens until the deadline.
  bool Wait(short events, SteadyTime deadline) const {
    while (true) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      if (left.count() <= 0) return false;
      pollfd polled{.fd = fd_, .events = events, .revents = 0};
      const int ready = poll(&polled, 1, static_cast<int>(left.count()));
      if (ready > 0) return true;
      if (ready == 0 || errno != EINTR) return false;
    }
  }

 private:
  void Close() {
    if (fd_ >= 0) (void)close(fd_);
    fd_ = -1;
  }
  int fd_ = -1;
};

bool AddAuthorities(SSL_CTX* context, const std::string& pem) {
  const std::unique_ptr<BIO, int (*)(BIO*)> bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())),
                                                &BIO_free);
  X509_STORE* const store = SSL_CTX_get_cert_store(context);
  bool has_some = false;
  while (X509* const certificate = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    has_some |= X509_STORE_add_cert(store, certificate) == 1;
    X509_free(certificate);
  }
  ERR_clear_error();
  return has_some;
}

bool AddOwnCertificate(SSL_CTX* context, const ClientTlsTexts& tls) {
  if (tls.certificate.empty()) return true;
  const std::unique_ptr<BIO, int (*)(BIO*)> certificates(
      BIO_new_mem_buf(tls.certificate.data(), static_cast<int>(tls.certificate.size())), &BIO_free);
  const std::unique_ptr<BIO, int (*)(BIO*)> keys(
      BIO_new_mem_buf(tls.key.data(), static_cast<int>(tls.key.size())), &BIO_free);
  const std::unique_ptr<X509, void (*)(X509*)> certificate(
      PEM_read_bio_X509(certificates.get(), nullptr, nullptr, nullptr), &X509_free);
  const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key(
      PEM_read_bio_PrivateKey(keys.get(), nullptr, nullptr, nullptr), &EVP_PKEY_free);
  if (certificate == nullptr || key == nullptr) return false;
  if (SSL_CTX_use_certificate(context, certificate.get()) != 1) return false;
  while (X509* const next = PEM_read_bio_X509(certificates.get(), nullptr, nullptr, nullptr)) {
    if (SSL_CTX_add_extra_chain_cert(context, next) != 1) X509_free(next);
  }
  ERR_clear_error();
  return SSL_CTX_use_PrivateKey(context, key.get()) == 1;
}

enum class Shake : uint8_t { kDone, kRefused, kNoAnswer };

// Runs an operation of a non-blocking SSL until it is done, fails, or the deadline passes.
template <typename F>
Shake Drive(SSL* ssl, const ProbeSocket& socket, SteadyTime deadline, F&& operation) {
  while (true) {
    ERR_clear_error();
    const int result = operation();
    if (result > 0) return Shake::kDone;
    switch (SSL_get_error(ssl, result)) {
      case SSL_ERROR_WANT_READ:
        if (!socket.Wait(POLLIN, deadline)) return Shake::kNoAnswer;
        break;
      case SSL_ERROR_WANT_WRITE:
        if (!socket.Wait(POLLOUT, deadline)) return Shake::kNoAnswer;
        break;
      default:
        return Shake::kRefused;
    }
  }
}

// Returns the reason of the error that the last operation has left.
int LastReason() { return ERR_GET_REASON(ERR_peek_last_error()); }

std::string VerifyText(long code, const std::string& host, const std::string& wanted) {
  switch (code) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return "its certificate, or that of an authority, has expired; renew it (the server reads the file "
             "again), or set "
             "this machine's clock";
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return "its certificate is not valid yet; check the clocks of both machines";
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return "its certificate is not for \"" + wanted +
             "\"; connect to a name that it has, or give that name " +
             (wanted == host ? "as the server name of the TLS options" : "in the TLS options instead");
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
      return "its certificate is not signed by an authority that this client trusts; give the authority's "
             "certificate as "
             "the CA of the TLS options (ca, REVERB_TLS_CA, --tls-ca)";
    default:
      return std::string("its certificate was refused: ") + X509_verify_cert_error_string(code);
  }
}

Status Explained(const std::string& address, const std::string& why) {
  return Status::FailedPrecondition("TLS with the server at " + address + " failed: " + why);
}

// Called when the server asks for the client's certificate; `requested` is a bool.
int OnCertificateRequest(SSL* /*ssl*/, void* requested) {
  *static_cast<bool*>(requested) = true;
  return 1;
}

// Returns what the server's alert means; empty if it sent none.
std::string AlertText(int reason, const ClientTlsTexts& tls) {
  switch (reason) {
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
      return tls.certificate.empty() ? "the server requires a client certificate, and this client has none; "
                                       "give it a certificate and a key"
                                     : "the server refused the handshake";
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
      return "the server does not trust the authority of this client's certificate (its client_ca)";
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
      return "this client's certificate has expired; renew it";
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
    case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
      return "the server refused this client's certificate";
    default:
      return "";
  }
}

}  // namespace

Status ExplainHandshake(const std::string& address, const std::optional<ClientTlsTexts>& tls,
                        Duration timeout) {
  const std::optional<HostPort> to = SplitAddress(address);
  if (!to) return Status::Ok();
  const SteadyTime deadline = std::chrono::steady_clock::now() + timeout;
  ProbeSocket socket;
  if (!socket.Connect(*to, deadline)) return Status::Ok();
  const SslContextPtr context(SSL_CTX_new(TLS_client_method()), &SSL_CTX_free);
  if (context == nullptr) return Status::Ok();
  // The client of a server with plaintext offers TLS, to see whether that is answered.
  SSL_CTX_set_verify(context.get(), tls ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nullptr);
  if (tls && (!AddAuthorities(context.get(), tls->ca) || !AddOwnCertificate(context.get(), *tls))) {
    return Status::Ok();
  }
  const SslPtr ssl(SSL_new(context.get()), &SSL_free);
  if (ssl == nullptr) return Status::Ok();
  bool is_certificate_requested = false;
  SSL_set_cert_cb(ssl.get(), &OnCertificateRequest, &is_certificate_requested);
  constexpr uint8_t kHttp2[] = {2, 'h', '2'};
  (void)SSL_set_alpn_protos(ssl.get(), kHttp2, sizeof kHttp2);
  const std::string wanted = tls && !tls->server_name.empty() ? tls->server_name : to->host;
  if (IsIpAddress(wanted)) {
    (void)X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl.get()), wanted.c_str());
  } else {
    (void)SSL_set_tlsext_host_name(ssl.get(), wanted.c_str());
    (void)SSL_set1_host(ssl.get(), wanted.c_str());
  }
  if (SSL_set_fd(ssl.get(), socket.get()) != 1) return Status::Ok();
  const Shake shake = Drive(ssl.get(), socket, deadline, [&] { return SSL_connect(ssl.get()); });
  const int reason = LastReason();
  // A server that speaks TLS has sent its first message, or an alert.
  const bool speaks_tls = shake == Shake::kDone || SSL_get0_peer_certificate(ssl.get()) != nullptr ||
                          (reason >= SSL_AD_REASON_OFFSET && reason < SSL_AD_REASON_OFFSET + 256);
  Status status;
  if (!tls) {
    if (speaks_tls) {
      status = Status::FailedPrecondition("the server at " + address +
                                          " speaks TLS, and this client plaintext; give the client TLS "
                                          "options (tls, REVERB_TLS_CA, --tls-ca)");
    }
  } else if (shake == Shake::kRefused) {
    const long verified = SSL_get_verify_result(ssl.get());
    if (const std::string alert = AlertText(reason, *tls); !alert.empty()) {
      status = Explained(address, alert);
    } else if (verified != X509_V_OK) {
      status = Explained(address, VerifyText(verified, to->host, wanted));
    } else if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST ||
               reason == SSL_R_PACKET_LENGTH_TOO_LONG || reason == SSL_R_UNEXPECTED_MESSAGE) {
      status = Explained(address,
                         "the server speaks plaintext; give it a certificate, or leave out this client's TLS "
                         "options");
    }
  } else if (shake == Shake::kDone) {
    // A server that refuses the client's certificate says so after the handshake (TLS 1.3). gRPC's closes the
    // connection without a word; one that accepts the client sends its settings.
    char byte = 0;
    if (Drive(ssl.get(), socket, deadline, [&] { return SSL_read(ssl.get(), &byte, 1); }) ==
        Shake::kRefused) {
      if (const std::string alert = AlertText(LastReason(), *tls); !alert.empty()) {
        status = Explained(address, alert);
      } else if (is_certificate_requested) {
        status = Explained(
            address,
            tls->certificate.empty()
                ? "the server requires a client certificate, and this client has none; give it a "
                  "certificate and a key"
                : "the server refused this client's certificate: it has expired, or is not signed by an "
                  "authority of the server's client_ca");
      }
    }
  }
  ERR_clear_error();
  return status;
}

}  // namespace reverb::internal
