#include "transport/local/local_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "transport/listener.h"
#include "transport/local/event_loop.h"
#include "transport/local/frame_io.h"
#include "transport/local/server_socket.h"

namespace reverb::internal {
namespace {

// Returns why a client may not connect.
Status CheckClientUser(int fd) {
  ucred peer = {};
  socklen_t size = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != geteuid()) {
    return Status::PermissionDenied("the server accepts local clients of its own user only (" +
                                    std::to_string(geteuid()) + ", not " + std::to_string(peer.uid) +
                                    "); use gRPC, or start the server with local = \"any user\"");
  }
  return Status::Ok();
}

}  // namespace

class LocalServer::Impl {
 public:
  Impl(const Options& options, std::shared_ptr<RequestHandler> handler)
      : core_(std::make_shared<LocalServerCore>(options, std::move(handler))) {}
  ~Impl() { Stop(Duration(0)); }

  Status Listen() EXCLUDES(stop_mu_);
  void Stop(Duration grace) EXCLUDES(stop_mu_);

 private:
  void Accept(int fd);
  // Disconnects clients that stall, now and then until the server is destroyed.
  static void Watch(const std::weak_ptr<LocalServerCore>& weak_core);

  const std::shared_ptr<LocalServerCore> core_;
  std::unique_ptr<EventLoops> loops_;

  // Held by Stop() until it returns, so that a second caller waits too.
  Mutex stop_mu_;
  std::unique_ptr<Listener> listener_ GUARDED_BY(stop_mu_);
};

Status LocalServer::Impl::Listen() {
  const Options& options = core_->options();
  REVERB_ASSIGN_OR_RETURN(
      loops_,
      EventLoops::Start("rv-local", options.num_threads > 0 ? options.num_threads : DefaultLoopThreads()));
  MutexLock lock(&stop_mu_);
  REVERB_ASSIGN_OR_RETURN(
      listener_, Listener::Bind("unix:" + options.path, /*unix_mode=*/options.same_user_only ? 0600 : 0666));
  Watch(core_);
  return listener_->Start([this](int fd) { Accept(fd); });
}

void LocalServer::Impl::Accept(int fd) {
  (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes, sizeof kSendBufferBytes);
  Status status = core_->options().same_user_only ? CheckClientUser(fd) : Status::Ok();
  auto socket =
      std::make_shared<ServerSocket>(core_, loops_->Next(), Descriptor(fd), ServerSocket::PeerOf(fd));
  const Status admitted = core_->Admit(socket);
  if (status.ok()) status = admitted;
  if (!status.ok()) return socket->Refuse(status);
  if (!socket->Attach()) {
    Log(LogLevel::kError, "refused a local client: the system cannot watch another socket");
    core_->Leave(socket.get());
  }
}

void LocalServer::Impl::Watch(const std::weak_ptr<LocalServerCore>& weak_core) {
  const std::shared_ptr<LocalServerCore> core = weak_core.lock();
  if (core == nullptr || core->is_stopping()) return;
  const Duration timeout = core->options().stalled_client_timeout;
  const TimePoint now = RealClock()->Now();
  for (const std::shared_ptr<ServerSocket>& socket : core->sockets()) socket->CloseIfStalled(now, timeout);
  RealClock()->CallAt(now + timeout / 4, [weak_core] { Watch(weak_core); });
}

void LocalServer::Impl::Stop(Duration grace) {
  core_->BeginStop();
  MutexLock lock(&stop_mu_);
  if (listener_ == nullptr) return;
  listener_->Stop();
  core_->FinishStop(grace);
  // A checkpoint may continue after its client has disconnected.
  core_->tasks()->JoinAll();
  loops_->Stop();
  listener_.reset();
}

Result<std::unique_ptr<LocalServer>> LocalServer::Start(const Options& options,
                                                        std::shared_ptr<RequestHandler> handler) {
  auto impl = std::make_unique<Impl>(options, std::move(handler));
  REVERB_RETURN_IF_ERROR(impl->Listen());
  return std::unique_ptr<LocalServer>(new LocalServer(std::move(impl)));
}

LocalServer::LocalServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LocalServer::~LocalServer() = default;
void LocalServer::Stop(Duration grace) { impl_->Stop(grace); }

}  // namespace reverb::internal
