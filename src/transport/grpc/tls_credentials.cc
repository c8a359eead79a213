#include "transport/grpc/tls_credentials.h"

#include <grpc/grpc_security.h>
#include <grpcpp/security/server_credentials.h>

#include <utility>

namespace reverb::internal {
namespace {

// gRPC 1.51's FileWatcherCertificateProvider passes on files that do not fit together, for example a new certificate
// with the old key, and then has no certificate at all. The callback of its older credentials lets us check first.
class FileServerCredentials final : public grpc::ServerCredentials {
 public:
  explicit FileServerCredentials(std::shared_ptr<TlsFiles> files)
      : files_(std::move(files)),
        credentials_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                files_->requires_client_certificate()
                    ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                    : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
                &Fetch, this))) {}
  ~FileServerCredentials() override { grpc_server_credentials_release(credentials_); }

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>& /*processor*/) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  // Called for each new connection, one at a time.
  static grpc_ssl_certificate_config_reload_status Fetch(void* self,
                                                         grpc_ssl_server_certificate_config** config) {
    auto* const credentials = static_cast<FileServerCredentials*>(self);
    const std::shared_ptr<const ServerTlsTexts> texts = credentials->files_->Current();
    if (texts == credentials->used_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const grpc_ssl_pem_key_cert_pair pair{.private_key = texts->key.c_str(),
                                          .cert_chain = texts->certificate.c_str()};
    // gRPC requires authorities here even if it requests no certificates of clients, which then do not matter.
    const std::string& authorities = texts->client_ca.empty() ? texts->certificate : texts->client_ca;
    *config = grpc_ssl_server_certificate_config_create(authorities.c_str(), &pair, 1);
    if (*config == nullptr) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL;
    credentials->used_ = texts;
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const std::shared_ptr<TlsFiles> files_;
  std::shared_ptr<const ServerTlsTexts> used_;  // by Fetch()
  grpc_server_credentials* const credentials_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> ReloadingServerCredentials(std::shared_ptr<TlsFiles> files) {
  return std::make_shared<FileServerCredentials>(std::move(files));
}

std::shared_ptr<grpc::ChannelCredentials> ClientCredentials(const std::optional<ClientTlsTexts>& tls) {
  if (!tls) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = tls->ca;
  options.pem_cert_chain = tls->certificate;
  options.pem_private_key = tls->key;
  return grpc::SslCredentials(options);
}

}  // namespace reverb::internal
