// tls_credentials.h — gRPC's credentials from our TLS files.
#ifndef REVERB_TRANSPORT_GRPC_TLS_CREDENTIALS_H_
#define REVERB_TRANSPORT_GRPC_TLS_CREDENTIALS_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>

#include "access/tls_files.h"

namespace reverb::internal {

// Every new connection uses the files as they are then. They must outlive the server.
std::shared_ptr<grpc::ServerCredentials> ReloadingServerCredentials(std::shared_ptr<TlsFiles> files);
// Absent: plaintext.
std::shared_ptr<grpc::ChannelCredentials> ClientCredentials(const std::optional<ClientTlsTexts>& tls);

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_GRPC_TLS_CREDENTIALS_H_
