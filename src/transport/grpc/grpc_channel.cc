#include "transport/grpc/grpc_channel.h"

#include <cstdlib>
#include <string_view>
#include <utility>

#include "access/handshake_probe.h"
#include "base/detached_thread.h"
#include "base/duration_text.h"
#include "transport/grpc/grpc_internal.h"
#include "transport/grpc/tls_credentials.h"

namespace reverb::internal {

namespace {

// How long it may take to find out why a handshake fails.
constexpr Duration kProbeTimeout = std::chrono::seconds(1);

// Returns whether no connection was established, which a handshake may have prevented.
bool IsFailedConnect(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE && !HasDetails(status) &&
         status.error_message().starts_with("failed to connect");
}

// Returns whether gRPC connects through a proxy, which we do not.
bool UsesProxy() {
  for (const char* variable : {"grpc_proxy", "https_proxy", "http_proxy"}) {
    if (std::getenv(variable) != nullptr) return true;
  }
  return false;
}

// Returns whether the server closed a new connection before the first call, as it does when it has no file
// descriptors left.
bool IsRefusal(std::string_view text) {
  return text.starts_with("failed to connect") &&
         (text.ends_with("Socket closed") || text.ends_with("Connection reset by peer"));
}
constexpr char kRefusalHint[] =
    "; the server closes new connections, see its log for the reason: it may have no file descriptors left";

// Returns whether gRPC has closed the connection because nothing was received for too long: from its ping, or
// from the kernel, which has not received an acknowledgement.
bool IsKeepaliveTimeout(std::string_view text) {
  if (text.starts_with("failed to connect")) return false;
  return text.find("keepalive") != text.npos || text.find("ping timeout") != text.npos ||
         text.find("Connection timed out") != text.npos;
}

grpc::ChannelArguments MakeChannelArguments(const GrpcOptions& options) {
  grpc::ChannelArguments arguments;
  if (options.tls && !options.tls->server_name.empty()) {
    arguments.SetSslTargetNameOverride(options.tls->server_name);
  }
  arguments.SetMaxReceiveMessageSize(MaxReceiveBytes(options.limits.max_message_bytes));
  // Channels to the same server would otherwise share one connection, and one core of each machine.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const KeepaliveMillis keepalive = SplitKeepalive(options.keepalive_timeout);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, keepalive.time);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, keepalive.timeout);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // The client retries calls itself. gRPC 1.51's own retries abort the process when trailers lack a status.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // Bounds the pauses, so that a restarted server is found soon.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
  // Despite its name this is how long one attempt may take; a busy host needs more than the default back-off.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5'000);
  return arguments;
}

// gRPC 1.51 leaks the socket of a channel that is destroyed while its connection is being established: it
// stays open, at both ends, as long as the processes live. So a connecting channel is kept until it is done.
void ReleaseChannel(std::shared_ptr<grpc::Channel> channel) {
  constexpr Duration kPollInterval = std::chrono::milliseconds(20);
  if (channel->GetState(/*try_to_connect=*/false) != GRPC_CHANNEL_CONNECTING) return;
  RealClock()->CallAt(RealClock()->Now() + kPollInterval,
                      [channel = std::move(channel)]() mutable { ReleaseChannel(std::move(channel)); });
}

}  // namespace

GrpcChannel::GrpcChannel(std::string server, const GrpcOptions& options)
    : address(std::move(server)),
      limits(options.limits),
      keepalive_timeout(options.keepalive_timeout),
      tls(options.tls),
      authorization(options.token.empty() ? "" : std::string(kTokenScheme) + options.token),
      channel(
          grpc::CreateCustomChannel(address, ClientCredentials(options.tls), MakeChannelArguments(options))),
      stub(channel) {}

GrpcChannel::~GrpcChannel() { ReleaseChannel(channel); }

Status GrpcChannel::Explain(const grpc::Status& status) const {
  Status plain = FromGrpcStatus(status);
  if (plain.ok() || HasDetails(status)) return plain;
  const std::string text(plain.message());
  switch (plain.code()) {
    case StatusCode::kUnavailable:
      if (IsKeepaliveTimeout(text)) return Vanished();
      return Status::Unavailable("no connection to the server at " + address + ": " + text +
                                 (IsRefusal(text) ? kRefusalHint : ""));
    case StatusCode::kCancelled:  // the server was shut down
    case StatusCode::kUnknown:    // sometimes from a broken connection
      return Status::Unavailable("the server at " + address + " aborted the call: " + text);
    case StatusCode::kInternal:  // damaged HTTP/2 frames
      return Status::DataLoss("the connection to the server at " + address + " was damaged: " + text)
          .WithDetail(Detail::kCorruptData);
    case StatusCode::kResourceExhausted:  // mostly a message that exceeds the limit
      return Status::ResourceExhausted("server at " + address + ": " + text + "; this client accepts " +
                                       std::to_string(limits.max_message_bytes) +
                                       " bytes (max_response_bytes)");
    default:
      return Status(plain.code(), "server at " + address + ": " + text);
  }
}

Status GrpcChannel::EndOfCall(const grpc::Status& status) const {
  if (status.ok() || HasDetails(status)) was_connected.store(true, std::memory_order_relaxed);
  if (MayHaveFailedHandshake(status)) REVERB_RETURN_IF_ERROR(WhyNoHandshake());
  return Explain(status);
}

void GrpcChannel::EndCall(std::shared_ptr<const GrpcChannel> channel, const grpc::Status& status,
                          std::function<void(Status)> done) {
  if (!channel->MayHaveFailedHandshake(status)) return done(channel->EndOfCall(status));
  struct Ending {
    std::shared_ptr<const GrpcChannel> channel;
    grpc::Status status;
    std::function<void(Status)> done;
  };
  auto ending = std::make_unique<Ending>(Ending{std::move(channel), status, std::move(done)});
  const auto run = [](void* argument) -> void* {
    const std::unique_ptr<Ending> owned(static_cast<Ending*>(argument));
    owned->done(owned->channel->EndOfCall(owned->status));
    return nullptr;
  };
  if (StartDetachedThread("rv-handshake", run, ending.get())) {
    (void)ending.release();
  } else {
    ending->done(ending->channel->Explain(status));
  }
}

void GrpcChannel::AddToken(grpc::ClientContext* context) const {
  if (!authorization.empty()) context->AddMetadata(kTokenHeader, authorization);
}

bool GrpcChannel::MayHaveFailedHandshake(const grpc::Status& status) const {
  return IsFailedConnect(status) && !was_connected.load(std::memory_order_relaxed) &&
         !status.error_message().ends_with("Connection refused");
}

Status GrpcChannel::WhyNoHandshake() const {
  if (was_connected.load(std::memory_order_relaxed) || UsesProxy()) return Status::Ok();
  return ExplainHandshake(address, tls, kProbeTimeout);
}

Status GrpcChannel::Vanished() const {
  std::string text = "the server at " + address + " has not answered for " +
                     DurationText(keepalive_timeout.value_or(kDefaultKeepaliveTimeout)) +
                     " (keepalive_timeout): it, its host or the network has failed";
  vanished_log.Log(LogLevel::kWarning, "", text + "; the connection was closed");
  return Status::Unavailable(std::move(text));
}

}  // namespace reverb::internal
