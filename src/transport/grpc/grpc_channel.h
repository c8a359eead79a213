// grpc_channel.h — a network connection of the client, as its streams and single calls share it.
//
// Ownership: shared by the Connection, its streams and its calls; closed with the last of them.
// Threads: all methods may be called concurrently.
#ifndef REVERB_TRANSPORT_GRPC_GRPC_CHANNEL_H_
#define REVERB_TRANSPORT_GRPC_GRPC_CHANNEL_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "reverb/status.h"
#include "transport/grpc/grpc_connection.h"
#include "transport/wire.h"

namespace reverb::internal {

struct GrpcChannel {
  GrpcChannel(std::string server, const GrpcOptions& options);
  ~GrpcChannel();
  GrpcChannel(const GrpcChannel&) = delete;
  GrpcChannel& operator=(const GrpcChannel&) = delete;

  bool is_connected() const { return channel->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY; }
  // Converts the status of a call that this side did not cancel. Errors of the server are passed on
  // unchanged; those of the connection name the address.
  Status Explain(const grpc::Status& status) const;
  // Returns how a call has ended that this side did not cancel: Explain(), or why the handshake failed, which may take
  // a second to find out.
  Status EndOfCall(const grpc::Status& status) const;
  // Calls `done` with EndOfCall(): before it returns, or on another thread if that may block.
  static void EndCall(std::shared_ptr<const GrpcChannel> channel, const grpc::Status& status,
                      std::function<void(Status)> done);
  // The error for a server that does not answer any more. Logs it.
  Status Vanished() const;

  void AddToken(grpc::ClientContext* context) const;
  // Returns whether a handshake may have prevented the connection. Once the server was connected, its errors count as
  // temporary: a certificate may be renewed.
  bool MayHaveFailedHandshake(const grpc::Status& status) const;
  // Returns why no connection can be established before one of the two sides changes; OK if that is not known. Connects
  // to the server once more, which may take a second.
  Status WhyNoHandshake() const;

  const std::string address;
  const WireLimits limits;
  const Timeout keepalive_timeout;
  const std::optional<ClientTlsTexts> tls;
  const std::string authorization;
  mutable std::atomic<bool> was_connected{false};  // a server has answered
  // The streams of a connection end at the same time.
  mutable LogEvery vanished_log{RealClock(), std::chrono::seconds(1)};
  const std::shared_ptr<grpc::Channel> channel;
  grpc::GenericStub stub;
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_GRPC_GRPC_CHANNEL_H_
