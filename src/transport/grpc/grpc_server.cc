#include "transport/grpc/grpc_server.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "transport/grpc/call_kinds.h"
#include "transport/grpc/callback_hold.h"
#include "transport/grpc/callback_threads.h"
#include "transport/grpc/grpc_internal.h"
#include "transport/grpc/server_call.h"
#include "transport/grpc/server_methods.h"
#include "transport/grpc/tls_credentials.h"
#include "transport/listener.h"

namespace reverb::internal {

class GrpcServer::Impl final : public grpc::CallbackGenericService {
 public:
  Impl(const Options& options, std::shared_ptr<RequestHandler> handler)
      : core_(std::make_shared<ServerCore>(options, std::move(handler))) {}
  ~Impl() override { Stop(Duration(0)); }

  Status Listen(const Options& options);
  int port() const { return port_; }
  void Stop(Duration grace) EXCLUDES(stop_mu_);

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override;

 private:
  std::optional<CallbackHold::User> callbacks_;  // until no call is left
  const std::shared_ptr<ServerCore> core_;
  std::shared_ptr<grpc::ServerCredentials> credentials_;  // outlive the server
  int port_ = 0;

  // Held by Stop() until it returns, so that a second caller waits too.
  Mutex stop_mu_;
  std::unique_ptr<grpc::Server> server_ GUARDED_BY(stop_mu_);
  std::unique_ptr<Listener> listener_ GUARDED_BY(stop_mu_);
};

Status GrpcServer::Impl::Listen(const Options& options) {
  const std::string& address = options.address;
  REVERB_RETURN_IF_ERROR(InitGrpc());
  callbacks_.emplace();  // not in a child created by fork(), where the lock of the hold may be taken for ever
  MutexLock lock(&stop_mu_);
  REVERB_ASSIGN_OR_RETURN(listener_, Listener::Bind(address));
  port_ = listener_->port();
  credentials_ =
      options.tls == nullptr ? grpc::InsecureServerCredentials() : ReloadingServerCredentials(options.tls);
  grpc::ServerBuilder builder;
  using ConnectionType = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor =
      builder.experimental().AddExternalConnectionAcceptor(ConnectionType::FROM_FD, credentials_);
  builder.RegisterCallbackGenericService(this);
  // The decoders check the size. gRPC 1.51 checks it after it has received the whole message too, and reports a
  // message that it rejects like the end of a half-closed stream: a session would take it for a client that has
  // sent everything.
  builder.SetMaxReceiveMessageSize(-1);
  if (options.memory_quota_bytes > 0) {
    grpc::ResourceQuota quota("reverb");
    quota.Resize(static_cast<size_t>(options.memory_quota_bytes));
    builder.SetResourceQuota(quota);
  }
  // Clients send pings to detect a dead server, and the server detects clients that vanished silently.
  // A client sends at most a ping every 250 ms (keepalive.h, keepalive_timeout is at least 1 s); more frequent ones
  // end the connection with "too_many_pings".
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 200);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  const KeepaliveMillis keepalive = SplitKeepalive(options.keepalive_timeout);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, keepalive.time);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, keepalive.timeout);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  CallbackThreads::Get().KeepReserve(&RunOnCallbackThread);
  // Bounds connections that send nothing, or little by little.
  builder.AddChannelArgument(
      GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
      static_cast<int>(
          std::chrono::duration_cast<std::chrono::milliseconds>(options.handshake_timeout).count()));
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    return Status::FailedPrecondition("cannot listen on \"" + address + "\": gRPC could not start a server");
  }
  return listener_->Start([acceptor = std::move(acceptor)](int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    acceptor->HandleNewConnection(&connection);
  });
}

void GrpcServer::Impl::Stop(Duration grace) {
  core_->BeginStop();
  MutexLock lock(&stop_mu_);
  // First, because gRPC does not close connections that it receives after Shutdown().
  if (listener_ != nullptr) listener_->Stop();
  if (server_ == nullptr) return;
  // Returns after the OnDone() of every call. OnDone() does not need this lock.
  server_->Shutdown(std::chrono::system_clock::now() +
                    std::chrono::duration_cast<std::chrono::system_clock::duration>(grace));
  // A checkpoint may continue after its client has disconnected.
  core_->tasks()->JoinAll();
  server_.reset();
}

grpc::ServerGenericBidiReactor* GrpcServer::Impl::CreateReactor(grpc::GenericCallbackServerContext* context) {
  const CallbackThreads::Scope in_callback;
  const std::optional<GrpcMethod> method = FindMethod(context->method());
  if (!method) {
    return RefuseCall(core_, Status::Unimplemented("this server has no method " + context->method()));
  }
  Result<std::shared_ptr<RequestHandler>> handler = core_->HandlerFor(*context, *method);
  if (!handler.ok()) return RefuseCall(core_, handler.status());
  std::shared_ptr<ServerCall> call = MakeCall(*method, core_);
  if (const Status admitted = core_->Admit(call, *method); !admitted.ok()) return RefuseCall(core_, admitted);
  ServerCall* const reactor = call.get();
  reactor->Begin(std::move(call), context, *std::move(handler));
  return reactor;
}

Result<std::unique_ptr<GrpcServer>> GrpcServer::Start(const Options& options,
                                                      std::shared_ptr<RequestHandler> handler) {
  auto impl = std::make_unique<Impl>(options, std::move(handler));
  REVERB_RETURN_IF_ERROR(impl->Listen(options));
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(impl)));
}

GrpcServer::GrpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrpcServer::~GrpcServer() = default;
int GrpcServer::port() const { return impl_->port(); }
void GrpcServer::Stop(Duration grace) { impl_->Stop(grace); }

}  // namespace reverb::internal
