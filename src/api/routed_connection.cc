#include "api/routed_connection.h"

#include <algorithm>
#include <chrono>
#include <type_traits>

#include "access/tls_files.h"
#include "api/client_security.h"
#include "base/log.h"
#include "base/shared_memory.h"
#include "transport/closed_stream.h"
#include "transport/grpc/grpc_connection.h"
#include "transport/local/local_connection.h"

namespace reverb::internal {
namespace {

// Forwards the events of a stream over the local transport, and reports to the connection if the endpoint
// refuses it: the next attempt then uses gRPC. Refusals look like a lost connection to the client.
class RefusalWatch {
 public:
  explicit RefusalWatch(std::weak_ptr<RoutedConnection> connection) : connection_(std::move(connection)) {}
  void OnReply() { is_open_ = true; }
  Status OnClosed(Status status) {
    if (is_open_ || !RoutedConnection::IsRefusal(status)) return status;
    const auto connection = connection_.lock();
    // A server that has accepted the client may refuse what it requests: its token lacks a right.
    if (connection != nullptr && status.code() == StatusCode::kPermissionDenied &&
        connection->is_local_connected()) {
      return status;
    }
    if (connection != nullptr) connection->RecordRefusal(status);
    return Status::Unavailable(std::string(status.message()));
  }

 private:
  const std::weak_ptr<RoutedConnection> connection_;
  bool is_open_ = false;  // events of one direction are delivered one at a time
};

class WatchedInsert final : public InsertEvents {
 public:
  WatchedInsert(std::shared_ptr<InsertEvents> events, std::weak_ptr<RoutedConnection> connection)
      : events_(std::move(events)), watch_(std::move(connection)) {}
  void OnReply(InsertReply reply) override {
    watch_.OnReply();
    events_->OnReply(std::move(reply));
  }
  void OnSent() override { events_->OnSent(); }
  void OnClosed(Status status) override { events_->OnClosed(watch_.OnClosed(std::move(status))); }

 private:
  const std::shared_ptr<InsertEvents> events_;
  RefusalWatch watch_;
};

class WatchedSample final : public SampleEvents {
 public:
  WatchedSample(std::shared_ptr<SampleEvents> events, std::weak_ptr<RoutedConnection> connection)
      : events_(std::move(events)), watch_(std::move(connection)) {}
  void OnReply(SampleReply reply, uint64_t bytes) override {
    watch_.OnReply();
    events_->OnReply(std::move(reply), bytes);
  }
  void OnClosed(Status status) override { events_->OnClosed(watch_.OnClosed(std::move(status))); }

 private:
  const std::shared_ptr<SampleEvents> events_;
  RefusalWatch watch_;
};

Status StatusOf(const Status& status) { return status; }
template <typename T>
Status StatusOf(const Result<T>& result) {
  return result.status();
}

}  // namespace

bool RoutedConnection::IsRefusal(const Status& status) {
  return status.code() == StatusCode::kPermissionDenied || status.code() == StatusCode::kFailedPrecondition ||
         status.code() == StatusCode::kUnimplemented;
}

void RoutedConnection::RecordRefusal(const Status& status) {
  {
    MutexLock lock(&mu_);
    if (refused_ && refused_ == seen_) return;
    refused_ = seen_;
    refusal_ = status;
  }
  if (routes_.connect_grpc) {
    Log(LogLevel::kInfo, "the server at " + routes_.address + " is used over gRPC: its local endpoint " +
                             "refused this client: " + std::string(status.message()));
  }
}

Status RoutedConnection::why_not_local() const {
  MutexLock lock(&mu_);
  return refused_ && refused_ == seen_ ? refusal_ : Status::Ok();
}

PayloadSource* RoutedConnection::payload_source() {
  return transport() == Transport::kLocal ? ProcessSharedMemory() : nullptr;
}

bool RoutedConnection::is_connected() const {
  std::shared_ptr<Connection> grpc;
  {
    MutexLock lock(&mu_);
    grpc = grpc_;
  }
  return (routes_.local && routes_.local->is_connected()) || (grpc && grpc->is_connected());
}

// --- The choice ---

bool RoutedConnection::CanUseLocal() {
  if (!routes_.local) return false;
  if (!routes_.connect_grpc) return true;
  // A connected server may have lost its socket file.
  if (routes_.local->is_connected() && !(refused_ && refused_ == seen_)) return true;
  const Result<SocketFile> found = routes_.find_local();
  if (!found.ok()) return false;
  seen_ = *found;
  return refused_ != seen_;
}

Result<std::shared_ptr<Connection>> RoutedConnection::Grpc() {
  if (!grpc_) {
    REVERB_ASSIGN_OR_RETURN(grpc_, routes_.connect_grpc());
  }
  return grpc_;
}

Result<std::shared_ptr<Connection>> RoutedConnection::Choose() {
  MutexLock lock(&mu_);
  std::shared_ptr<Connection> chosen = routes_.local;
  if (!CanUseLocal()) {
    REVERB_ASSIGN_OR_RETURN(chosen, Grpc());
  }
  send_may_block_.store(chosen->send_may_block(), std::memory_order_relaxed);
  return chosen;
}

Transport RoutedConnection::transport() {
  MutexLock lock(&mu_);
  return CanUseLocal() ? Transport::kLocal : Transport::kGrpc;
}

// --- Streams ---

std::shared_ptr<InsertStream> RoutedConnection::OpenInsert(const Hello& hello,
                                                           std::shared_ptr<InsertEvents> events) {
  Result<std::shared_ptr<Connection>> chosen = Choose();
  if (!chosen.ok()) {
    events->OnClosed(chosen.status());
    return std::make_shared<ClosedStream>();
  }
  if (*chosen == routes_.local && routes_.connect_grpc) {
    events = std::make_shared<WatchedInsert>(std::move(events), weak_from_this());
  }
  return (*chosen)->OpenInsert(hello, std::move(events));
}

std::shared_ptr<SampleStream> RoutedConnection::OpenSample(const Hello& hello,
                                                           std::shared_ptr<SampleEvents> events) {
  Result<std::shared_ptr<Connection>> chosen = Choose();
  if (!chosen.ok()) {
    events->OnClosed(chosen.status());
    return std::make_shared<ClosedStream>();
  }
  if (*chosen == routes_.local && routes_.connect_grpc) {
    events = std::make_shared<WatchedSample>(std::move(events), weak_from_this());
  }
  return (*chosen)->OpenSample(hello, std::move(events));
}

// --- Single calls ---

template <typename F>
auto RoutedConnection::Call(const WaitOptions& wait, F&& call)
    -> decltype(call(std::declval<Connection&>(), wait)) {
  const auto start = std::chrono::steady_clock::now();
  Result<std::shared_ptr<Connection>> chosen = Choose();
  if (!chosen.ok()) return chosen.status();
  if (*chosen != routes_.local || !routes_.connect_grpc) return call(**chosen, wait);

  // The local transport waits for a server that is not there. One without an endpoint may come instead.
  bool is_gone = false;
  WaitOptions attempt = wait;
  attempt.on_wait = [&]() -> Status {
    if (wait.on_wait) REVERB_RETURN_IF_ERROR(wait.on_wait());
    if (routes_.local->is_connected() || routes_.find_local().ok()) return Status::Ok();
    is_gone = true;
    return Status::Unavailable("the local endpoint of the server at " + routes_.address + " has vanished");
  };
  auto result = call(**chosen, attempt);
  const Status status = StatusOf(result);
  if (status.ok() || !(is_gone || IsRefusal(status))) return result;
  if (!is_gone) {
    // FAILED_PRECONDITION may also be the server's answer; a refusal precedes any connection.
    if (routes_.local->is_connected()) return result;
    RecordRefusal(status);
  }
  Result<std::shared_ptr<Connection>> grpc = Choose();
  if (!grpc.ok()) return grpc.status();
  WaitOptions rest = wait;
  if (wait.timeout && *wait.timeout > Duration(0)) {
    const Duration waited = std::chrono::steady_clock::now() - start;
    rest.timeout = std::max(*wait.timeout - waited, Duration(1));
  }
  return call(**grpc, rest);
}

Result<ServerInfo> RoutedConnection::Info(const WaitOptions& wait) {
  return Call(wait, [](Connection& to, const WaitOptions& attempt) { return to.Info(attempt); });
}
Status RoutedConnection::Mutate(const MutateRequest& request, const WaitOptions& wait) {
  return Call(wait, [&](Connection& to, const WaitOptions& attempt) { return to.Mutate(request, attempt); });
}
Status RoutedConnection::Reset(std::string_view table, const WaitOptions& wait) {
  return Call(wait, [&](Connection& to, const WaitOptions& attempt) { return to.Reset(table, attempt); });
}
Status RoutedConnection::SetRateLimiter(const SetRateLimiterRequest& request, const WaitOptions& wait) {
  return Call(
      wait, [&](Connection& to, const WaitOptions& attempt) { return to.SetRateLimiter(request, attempt); });
}
Status RoutedConnection::CreateTable(const CreateTableRequest& request, const WaitOptions& wait) {
  return Call(wait,
              [&](Connection& to, const WaitOptions& attempt) { return to.CreateTable(request, attempt); });
}
Status RoutedConnection::RemoveTable(std::string_view table, const WaitOptions& wait) {
  return Call(wait,
              [&](Connection& to, const WaitOptions& attempt) { return to.RemoveTable(table, attempt); });
}
Status RoutedConnection::ChangeTable(const ChangeTableRequest& request, const WaitOptions& wait) {
  return Call(wait,
              [&](Connection& to, const WaitOptions& attempt) { return to.ChangeTable(request, attempt); });
}
Result<InspectReply> RoutedConnection::Inspect(const InspectRequest& request, const WaitOptions& wait) {
  return Call(wait, [&](Connection& to, const WaitOptions& attempt) { return to.Inspect(request, attempt); });
}
Result<LeaseOutcome> RoutedConnection::SettleLeases(const SettleLeasesRequest& request,
                                                    const WaitOptions& wait) {
  return Call(wait,
              [&](Connection& to, const WaitOptions& attempt) { return to.SettleLeases(request, attempt); });
}
Result<RowsReply> RoutedConnection::Rows(const RowsRequest& request, const WaitOptions& wait) {
  return Call(wait, [&](Connection& to, const WaitOptions& attempt) { return to.Rows(request, attempt); });
}
std::shared_ptr<PendingCall> RoutedConnection::StartRows(RowsRequest request, RowsReplied done) {
  const Result<std::shared_ptr<Connection>> chosen = Choose();
  if (!chosen.ok()) {
    done(chosen.status(), /*was_sent=*/false);
    return nullptr;
  }
  if (*chosen == routes_.local && routes_.connect_grpc) {
    done = [self = shared_from_this(), done = std::move(done)](Result<RowsReply> reply, bool was_sent) {
      if (reply.ok() || was_sent || !IsRefusal(reply.status())) return done(std::move(reply), was_sent);
      self->RecordRefusal(reply.status());
      done(Status::Unavailable(std::string(reply.status().message())), /*was_sent=*/false);
    };
  }
  return (*chosen)->StartRows(std::move(request), std::move(done));
}
Result<std::string> RoutedConnection::Checkpoint(const WaitOptions& wait) {
  return Call(wait, [](Connection& to, const WaitOptions& attempt) { return to.Checkpoint(attempt); });
}

// --- By address ---

namespace {

WireLimits ToWireLimits(const ClientOptions& options) {
  WireLimits limits;
  limits.max_message_bytes = options.max_response_bytes;
  limits.max_chunk_bytes = options.max_response_bytes;
  limits.max_decoded_item_bytes = options.max_decoded_item_bytes;
  limits.max_decoded_reply_bytes = options.max_decoded_reply_bytes;
  return limits;
}

}  // namespace

Result<std::shared_ptr<RoutedConnection>> ConnectRouted(const std::string& address,
                                                        const ClientOptions& options) {
  const WireLimits limits = ToWireLimits(options);
  const bool is_local_allowed = options.local && IsLocalEnabled();
  const std::optional<std::string> path =
      is_local_allowed || IsUnixAddress(address) ? LocalSocketPath(address) : std::nullopt;
  RoutedConnection::Routes routes{.address = address, .local = nullptr};
  if (IsUnixAddress(address)) {
    if (!path) {
      return Status::InvalidArgument("address \"" + address +
                                     "\" has no path: give it as unix:/path, for example "
                                     "unix:/run/reverb/replay.sock");
    }
    if (!is_local_allowed) {
      return Status::InvalidArgument(
          "address \"" + address +
          "\" needs the local transport, which is off (ClientOptions::local, or the "
          "environment variable REVERB_LOCAL=0); turn it on, or use host:port");
    }
  } else {
    REVERB_RETURN_IF_ERROR(CheckGrpcAddress(address));
    std::optional<ClientTlsTexts> tls;
    if (options.tls) {
      REVERB_ASSIGN_OR_RETURN(tls, ReadClientTls(*options.tls));
    }
    routes.connect_grpc = [address, tls = std::move(tls),
                           grpc = GrpcOptions{.limits = limits,
                                              .keepalive_timeout = options.keepalive_timeout,
                                              .token = options.token},
                           plaintext = options.plaintext_token]() -> Result<std::shared_ptr<Connection>> {
      REVERB_RETURN_IF_ERROR(CheckPlaintextToken(address, !grpc.token.empty() && !tls, plaintext));
      GrpcOptions with_tls = grpc;
      with_tls.tls = tls;
      return ConnectGrpc(address, with_tls);
    };
  }
  if (path) {
    // A path names its server, whichever user that is. A socket that was found by its port must be of this user.
    REVERB_ASSIGN_OR_RETURN(routes.local, ConnectLocal({.path = *path,
                                                        .wanted_address = address,
                                                        .any_user = IsUnixAddress(address),
                                                        .limits = limits,
                                                        .token = options.token}));
    routes.find_local = [path = *path]() -> Result<SocketFile> {
      REVERB_ASSIGN_OR_RETURN(const SocketFile socket, FindLocalSocket(path));
      REVERB_RETURN_IF_ERROR(CheckLocalListener(path));
      return socket;
    };
  }
  return std::make_shared<RoutedConnection>(std::move(routes));
}

}  // namespace reverb::internal
