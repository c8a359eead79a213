// grpc_server.h — serves a RequestHandler over gRPC: the protocol of proto/reverb/v1, and gRPC's standard
// health protocol beside it (service "" and "reverb.v1.Reverb").
//
// Handlers and sessions are called on gRPC's threads, a checkpoint on a thread of its own. gRPC has half as
// many threads as there are cores, 2 to 16, for all servers and clients of the process: handlers and sessions
// must not block. Where it has two, one of them is kept in reserve (callback_threads.h).
//
// Ownership: keeps the handler alive until the last call is over. Sessions may keep their peers longer than
// this object lives; such peers do nothing.
// Threads: all methods may be called concurrently, but not from inside a handler or a session.
#ifndef REVERB_TRANSPORT_GRPC_GRPC_SERVER_H_
#define REVERB_TRANSPORT_GRPC_GRPC_SERVER_H_

#include <cstddef>
#include <memory>
#include <string>

#include "access/tls_files.h"
#include "base/clock.h"
#include "reverb/status.h"
#include "transport/access_gate.h"
#include "transport/grpc/keepalive.h"
#include "transport/traffic.h"
#include "transport/transport.h"

namespace reverb::internal {

class GrpcServer {
 public:
  struct Options {
    // host:port. Port 0 takes any that is free; "[::]" are all interfaces. "unix:path" is a local socket.
    std::string address = "[::]:0";
    // Maximum number of open calls and streams. Further ones are refused with RESOURCE_EXHAUSTED.
    size_t max_streams = 10'000;
    // How long a client may leave its connection unanswered before it is closed; absent = forever.
    Timeout keepalive_timeout = kDefaultKeepaliveTimeout;
    // How long a new connection may take for its TLS handshake and the first message of HTTP/2.
    Duration handshake_timeout = std::chrono::seconds(10);
    // Bounds gRPC's own buffers: connections receive less at a time when they take much of it. 0: no bound.
    int64_t memory_quota_bytes = 0;
    // Null: plaintext.
    std::shared_ptr<TlsFiles> tls = nullptr;
    // Null: everybody may do everything.
    std::shared_ptr<AccessGate> gate = nullptr;
    // Null: messages are not counted.
    std::shared_ptr<TrafficCounters> traffic = nullptr;
  };

  // Starts a server that listens when this returns. The error names the address.
  static Result<std::unique_ptr<GrpcServer>> Start(const Options& options,
                                                   std::shared_ptr<RequestHandler> handler);
  ~GrpcServer();  // Stop(0)
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  // Returns the port; 0 for a unix socket.
  int port() const;

  // Refuses new calls, reports NOT_SERVING to health watchers, and ends all streams with UNAVAILABLE. Cancels
  // what is still open after `grace`. Returns when no handler and no session will be called any more; waits
  // for a checkpoint in progress. Idempotent.
  void Stop(Duration grace);

 private:
  class Impl;
  explicit GrpcServer(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_GRPC_GRPC_SERVER_H_
