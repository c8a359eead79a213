// grpc_connection.h — the client's end of the gRPC transport.
//
// Each Connection has a connection of its own, made when it is first needed and made again when it was lost.
// Streams fail at once when the server cannot be reached; single calls wait for it.
//
// Ownership: streams keep what they need of their Connection, which may go before them. A stream keeps itself
// alive until OnClosed().
// Threads: all methods may be called concurrently. Events come on gRPC's threads.
#ifndef REVERB_TRANSPORT_GRPC_GRPC_CONNECTION_H_
#define REVERB_TRANSPORT_GRPC_GRPC_CONNECTION_H_

#include <memory>
#include <string>

#include "reverb/status.h"
#include "transport/transport.h"

namespace reverb::internal {

struct GrpcOptions {
  // What is accepted from the server.
  WireLimits limits;
};

// `address`: host:port, or unix:path. Fails only when it is neither; nothing is connected yet.
Result<std::shared_ptr<Connection>> ConnectGrpc(std::string address, const GrpcOptions& options = {});

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_GRPC_GRPC_CONNECTION_H_
