// grpc_connection.h — the client's end of the gRPC transport.
//
// Each Connection has its own network connection, opened when first needed and reopened when lost. Streams
// fail at once if the server cannot be reached; single calls wait for it.
//
// Ownership: streams may outlive their Connection. A stream keeps itself alive until OnClosed().
// Threads: all methods may be called concurrently. Events come on gRPC's threads.
#ifndef REVERB_TRANSPORT_GRPC_GRPC_CONNECTION_H_
#define REVERB_TRANSPORT_GRPC_GRPC_CONNECTION_H_

#include <memory>
#include <optional>
#include <string>

#include "access/tls_files.h"
#include "reverb/status.h"
#include "transport/grpc/keepalive.h"
#include "transport/transport.h"

namespace reverb::internal {

struct GrpcOptions {
  // Limits for messages from the server.
  WireLimits limits = {};
  // How long the server may leave the connection unanswered; absent = forever.
  Timeout keepalive_timeout = kDefaultKeepaliveTimeout;
  // Absent: plaintext.
  std::optional<ClientTlsTexts> tls = {};
  std::string token = {};  // proves to the server who this client is; empty: none
};

// INVALID_ARGUMENT if `address` is neither host:port nor unix:path.
Status CheckGrpcAddress(const std::string& address);
// Fails only if the address is invalid, or in a child created by fork() whose parent used gRPC. Does not
// connect yet.
Result<std::shared_ptr<Connection>> ConnectGrpc(std::string address, const GrpcOptions& options = {});

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_GRPC_GRPC_CONNECTION_H_
