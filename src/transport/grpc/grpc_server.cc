#include "transport/grpc/grpc_server.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <array>
#include <chrono>
#include <optional>
#include <string_view>
#include <utility>

#include "base/mutex.h"
#include "transport/grpc/completion_threads.h"
#include "transport/grpc/grpc_internal.h"
#include "transport/grpc/grpc_server_call.h"

namespace reverb::internal {

namespace {

// Calls that gRPC may hand over before the first of them was taken.
constexpr int kAwaitedCalls = 4;

std::optional<Method> FindMethod(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, Method>, 10> kMethods = {{
      {kInsertMethod, Method::kInsert},
      {kSampleMethod, Method::kSample},
      {kMutateMethod, Method::kMutate},
      {kResetMethod, Method::kReset},
      {kInfoMethod, Method::kInfo},
      {kInspectMethod, Method::kInspect},
      {kSetRateLimiterMethod, Method::kSetRateLimiter},
      {kCheckpointMethod, Method::kCheckpoint},
      {kHealthCheckMethod, Method::kHealthCheck},
      {kHealthWatchMethod, Method::kHealthWatch},
  }};
  for (const auto& [known, method] : kMethods) {
    if (known == name) return method;
  }
  return std::nullopt;
}

std::shared_ptr<ServerCall> MakeCall(Method method, const std::shared_ptr<ServerCore>& core) {
  switch (method) {
    case Method::kInsert:
      return MakeInsertCall(core);
    case Method::kSample:
      return MakeSampleCall(core);
    case Method::kHealthWatch:
      return MakeHealthWatchCall(core);
    default:
      return MakeSingleCall(method, core);
  }
}

// One after the other takes a call that comes, until the server is shut down. Deletes itself then.
class Doorman final : public CompletionTag {
 public:
  Doorman(std::shared_ptr<ServerCore> core, grpc::AsyncGenericService* service,
          grpc::ServerCompletionQueue* queue)
      : core_(std::move(core)), service_(service), queue_(queue) {
    core_->BeginUse();
  }

  void Await() {
    io_ = std::make_unique<CallIo>();
    service_->RequestCall(io_->context(), io_->stream(), queue_, queue_, this);
  }

  void Proceed(bool ok) override {
    if (!ok) {
      const std::shared_ptr<ServerCore> core = core_;
      delete this;
      return core->EndUse();
    }
    const std::shared_ptr<ServerCore> core = core_;
    std::unique_ptr<CallIo> io = std::move(io_);
    Await();  // from here on another thread may be in here, or this object gone
    Welcome(core, std::move(io));
  }

 private:
  static void Welcome(const std::shared_ptr<ServerCore>& core, std::unique_ptr<CallIo> io) {
    const std::string& name = io->context()->method();
    const std::optional<Method> method = FindMethod(name);
    if (!method) {
      return Refuse(core, std::move(io), Status::Unimplemented("this server has no method " + name));
    }
    std::shared_ptr<ServerCall> call = MakeCall(*method, core);
    if (const Status admitted = core->Admit(call, *method); !admitted.ok()) {
      return Refuse(core, std::move(io), admitted);
    }
    ServerCall* const raw = call.get();
    raw->Begin(std::move(call), std::move(io));
  }

  static void Refuse(const std::shared_ptr<ServerCore>& core, std::unique_ptr<CallIo> io, const Status& why) {
    std::shared_ptr<ServerCall> call = MakeRefusedCall(core);
    ServerCall* const raw = call.get();
    raw->BeginRefused(std::move(call), std::move(io), why);
  }

  const std::shared_ptr<ServerCore> core_;
  grpc::AsyncGenericService* const service_;
  grpc::ServerCompletionQueue* const queue_;
  std::unique_ptr<CallIo> io_;
};

}  // namespace

class GrpcServer::Impl {
 public:
  Impl(const Options& options, std::shared_ptr<RequestHandler> handler)
      : core_(std::make_shared<ServerCore>(std::move(handler), options.max_streams)) {}
  ~Impl() { Stop(Duration(0)); }

  Status Listen(const std::string& address) EXCLUDES(stop_mu_);
  int port() const { return port_; }
  void Stop(Duration grace) EXCLUDES(stop_mu_);

 private:
  const std::shared_ptr<ServerCore> core_;
  grpc::AsyncGenericService service_;
  int port_ = 0;

  // Held by Stop() all along, so that a second caller waits too.
  Mutex stop_mu_;
  std::unique_ptr<CompletionThreads> threads_ GUARDED_BY(stop_mu_);
  std::unique_ptr<grpc::Server> server_ GUARDED_BY(stop_mu_);
};

Status GrpcServer::Impl::Listen(const std::string& address) {
  InitGrpc();
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port_);
  builder.RegisterAsyncGenericService(&service_);
  builder.SetMaxReceiveMessageSize(MaxReceiveBytes(core_->limits().max_message_bytes));
  // A port that is taken is an error, not a port to share.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Clients ping to find out whether a quiet server is alive; and the server finds clients that vanished
  // without a word.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  MutexLock lock(&stop_mu_);
  threads_ = std::make_unique<CompletionThreads>(builder.AddCompletionQueue());
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    return Status::FailedPrecondition("cannot listen on \"" + address +
                                      "\": the port is taken, or the address is not one of this machine's "
                                      "host:port; choose another port, or "
                                      "0 for any that is free");
  }
  REVERB_RETURN_IF_ERROR(threads_->Start());
  for (int i = 0; i < kAwaitedCalls; ++i) (new Doorman(core_, &service_, threads_->queue()))->Await();
  return Status::Ok();
}

void GrpcServer::Impl::Stop(Duration grace) {
  core_->BeginStop();
  MutexLock lock(&stop_mu_);
  if (server_ == nullptr) return;
  // The completion threads, which do not wait for this lock, see the calls to their end meanwhile.
  server_->Shutdown(std::chrono::system_clock::now() +
                    std::chrono::duration_cast<std::chrono::system_clock::duration>(grace));
  // A checkpoint may go on after its client has left.
  core_->tasks()->JoinAll();
  // Only then: gRPC aborts when something is started on a queue that was shut down.
  core_->AwaitUnused();
  threads_->Stop();
  server_.reset();
}

Result<std::unique_ptr<GrpcServer>> GrpcServer::Start(const Options& options,
                                                      std::shared_ptr<RequestHandler> handler) {
  auto impl = std::make_unique<Impl>(options, std::move(handler));
  REVERB_RETURN_IF_ERROR(impl->Listen(options.address));
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(impl)));
}

GrpcServer::GrpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrpcServer::~GrpcServer() = default;
int GrpcServer::port() const { return impl_->port(); }
void GrpcServer::Stop(Duration grace) { impl_->Stop(grace); }

}  // namespace reverb::internal
