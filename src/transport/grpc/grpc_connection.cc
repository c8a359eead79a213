#include "transport/grpc/grpc_connection.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <deque>
#include <optional>
#include <string_view>
#include <utility>

#include "base/duration_text.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/strand.h"
#include "transport/grpc/grpc_internal.h"
#include "transport/single_calls.h"
#include "transport/wire.h"

namespace reverb::internal {

namespace {

// How often a waiting call checks for cancellation.
constexpr Duration kWaitStep = std::chrono::milliseconds(50);
// The timeout of a call that tries once.
constexpr Duration kOneTry = std::chrono::seconds(1);
// A longer timeout counts as none, since it would overflow in gRPC.
constexpr Duration kMaxTimeout = std::chrono::hours(24 * 365 * 10);

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

// The state that streams share with their Connection.
struct Channel {
  Channel(std::string server, const GrpcOptions& options)
      : address(std::move(server)),
        limits(options.limits),
        keepalive_timeout(options.keepalive_timeout),
        channel(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                          MakeChannelArguments(options))),
        stub(channel) {}
  ~Channel() { ReleaseChannel(channel); }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // Converts the status of a call that this side did not cancel. Errors of the server are passed on
  // unchanged; those of the connection name the address.
  Status Explain(const grpc::Status& status) const {
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

  // The error for a server that does not answer any more. Logs it.
  Status Vanished() const {
    std::string text = "the server at " + address + " has not answered for " +
                       DurationText(keepalive_timeout.value_or(kDefaultKeepaliveTimeout)) +
                       " (keepalive_timeout): it, its host or the network has failed";
    vanished_log.Log(LogLevel::kWarning, "", text + "; the connection was closed");
    return Status::Unavailable(std::move(text));
  }

  const std::string address;
  const WireLimits limits;
  const Timeout keepalive_timeout;
  // The streams of a connection end at the same time.
  mutable LogEvery vanished_log{RealClock(), std::chrono::seconds(1)};
  const std::shared_ptr<grpc::Channel> channel;
  grpc::GenericStub stub;
};

// --- Streams --------------------------------------------------------------------------------------

// A stream as gRPC sees it.
//
// A read is in progress from the beginning to the end; when it fails the stream is over. gRPC deletes its
// half once no operation is in progress and the hold was removed. The strand starts the writes, and its final
// call removes the hold, when the last read has failed. No lock is held while calling gRPC: it may free
// buffers, and with them chunks.
//
// Keeps itself alive until gRPC's OnDone().
class ClientCall : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit ClientCall(std::shared_ptr<Channel> channel) : channel_(std::move(channel)) {}

  // Starts the stream and sends `first`. To be called once.
  void Begin(std::shared_ptr<ClientCall> self, const char* method, WireMessage first) {
    self_ = std::move(self);
    channel_->stub.PrepareBidiStreamingCall(&context_, method, grpc::StubOptions(), this);
    AddHold();
    StartRead(received_.buffer());
    StartCall();
    Enqueue(std::move(first), /*notify=*/false);
  }

  void OnReadDone(bool ok) final;
  void OnWriteDone(bool ok) final;
  void OnDone(const grpc::Status& status) final {
    HandleClosed(CloseStatus(status));
    const std::shared_ptr<ClientCall> self = std::move(self_);
  }
  // gRPC 1.51 aborts the process here if damaged headers claim to be the end of the stream. Only
  // OnReadInitialMetadataDone() would use the result.
  bool InternalTrailersOnly(const grpc_call* /*call*/) const final { return false; }

 protected:
  const Channel& channel() const { return *channel_; }

  // --- From any thread; these do nothing once the stream is over ---

  // `notify`: HandleSent() is called when the message was written.
  void Enqueue(WireMessage message, bool notify) EXCLUDES(mu_) {
    {
      MutexLock lock(&mu_);
      if (is_over_ || half_ != Half::kOpen) return;
      message.Seal(num_queued_++);
      queue_.push_back({ToByteBuffer(message), notify});
    }
    Advance();
  }
  // Closes the client's half after the queued messages.
  void FinishWriting() EXCLUDES(mu_) {
    {
      MutexLock lock(&mu_);
      if (half_ == Half::kOpen) half_ = Half::kFinishing;
    }
    Advance();
  }
  void CancelCall() EXCLUDES(mu_) { Fail(Status::Cancelled("the stream was cancelled on this side")); }
  bool IsOver() const EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    return is_over_;
  }

  // --- What each kind of stream implements ---

  // Decodes a message and passes it on. An error ends the stream.
  virtual Status HandleMessage(ReceivedMessage* received) = 0;
  virtual void HandleSent() {}
  // The last call.
  virtual void HandleClosed(Status status) = 0;

 private:
  struct Outgoing {
    grpc::ByteBuffer bytes;
    bool notify = false;
  };
  // The client's half of the stream.
  enum class Half : uint8_t {
    kOpen,
    kFinishing,  // nothing more may be queued
    kClosed,     // StartWritesDone was called
  };

  // Cancels the call. The first reason is the one that is reported.
  void Fail(Status why) EXCLUDES(mu_) {
    {
      MutexLock lock(&mu_);
      if (is_over_ || !failure_.ok()) return;
      failure_ = std::move(why);
    }
    context_.TryCancel();
  }
  bool HasFailed() const EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    return !failure_.ok();
  }
  // Starts the operations that are due.
  void Advance() EXCLUDES(mu_);
  Strand::Next Step() REQUIRES(mu_);
  Status CloseStatus(const grpc::Status& status) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    return failure_.ok() ? channel_->Explain(status) : failure_;
  }

  const std::shared_ptr<Channel> channel_;
  grpc::ClientContext context_;
  std::shared_ptr<ClientCall> self_;  // until OnDone()
  // Belongs to gRPC while a read is in progress, else to OnReadDone().
  ReceivedMessage received_;
  uint64_t num_received_ = 0;

  mutable Mutex mu_;
  std::deque<Outgoing> queue_ GUARDED_BY(mu_);
  uint64_t num_queued_ GUARDED_BY(mu_) = 0;  // from the first message on
  Strand strand_ GUARDED_BY(mu_);            // calls the Start functions for writes; closed by RemoveHold
  bool is_writing_ GUARDED_BY(mu_) = false;
  Outgoing out_;  // belongs to gRPC while is_writing_
  Half half_ GUARDED_BY(mu_) = Half::kOpen;
  bool is_over_ GUARDED_BY(mu_) = false;  // the last read has failed
  Status failure_ GUARDED_BY(mu_);        // why this side cancelled
};

Strand::Next ClientCall::Step() {
  if (is_over_) return Strand::Next::kClose;
  if (is_writing_) return Strand::Next::kWait;
  if (!queue_.empty()) {
    out_ = std::move(queue_.front());
    queue_.pop_front();
    is_writing_ = true;
    mu_.Unlock();
    StartWrite(&out_.bytes);
    mu_.Lock();
    return Strand::Next::kAgain;
  }
  if (half_ != Half::kFinishing) return Strand::Next::kWait;
  half_ = Half::kClosed;
  mu_.Unlock();
  StartWritesDone();
  mu_.Lock();
  return Strand::Next::kAgain;
}

void ClientCall::Advance() {
  {
    MutexLock lock(&mu_);
    if (!strand_.Run([this]() REQUIRES(mu_) { return Step(); })) return;
  }
  RemoveHold();  // the last use of this object: OnDone() may come before it returns
}

void ClientCall::OnReadDone(bool ok) {
  if (ok) {
    // After a failure on this side, messages are read and dropped until the end of the stream.
    if (!HasFailed()) {
      Status status = received_.Unseal(num_received_++);
      if (status.ok()) status = HandleMessage(&received_);
      if (!status.ok()) Fail(std::move(status));
    }
    StartRead(received_.buffer());
    return;
  }
  std::deque<Outgoing> unsent;  // freed without the lock
  {
    MutexLock lock(&mu_);
    is_over_ = true;
    unsent.swap(queue_);
  }
  Advance();
}

void ClientCall::OnWriteDone(bool ok) {
  Outgoing sent;  // freed without the lock
  {
    MutexLock lock(&mu_);
    is_writing_ = false;
    std::swap(sent, out_);
  }
  sent.bytes.Clear();
  if (ok && sent.notify) HandleSent();
  Advance();
}

class GrpcInsertStream final : public ClientCall, public InsertStream {
 public:
  GrpcInsertStream(std::shared_ptr<Channel> channel, std::shared_ptr<InsertEvents> events)
      : ClientCall(std::move(channel)), events_(std::move(events)) {}

  Sent Send(InsertMessage message) override {
    if (IsOver()) return {};
    WireMessage encoded;
    {
      MutexLock lock(&encoder_mu_);
      encoded = encoder_.Encode(message);
    }
    const uint64_t bytes = kSealBytes + encoded.total_bytes();
    Enqueue(std::move(encoded), /*notify=*/true);
    return {.bytes = bytes, .ready = false};
  }
  uint64_t NewBytes(const Trajectory& trajectory) const override {
    MutexLock lock(&encoder_mu_);
    return encoder_.NewBytes(trajectory);
  }
  void Finish() override { FinishWriting(); }
  void Cancel() override { CancelCall(); }

 protected:
  Status HandleMessage(ReceivedMessage* received) override {
    Result<InsertReply> reply = DecodeInsertReply(received->Open(), channel().limits);
    received->Release();
    if (!reply.ok()) return std::move(reply).status();
    events_->OnReply(*std::move(reply));
    return Status::Ok();
  }
  void HandleSent() override { events_->OnSent(); }
  void HandleClosed(Status status) override { std::exchange(events_, nullptr)->OnClosed(std::move(status)); }

 private:
  std::shared_ptr<InsertEvents> events_;  // used only in callbacks from gRPC

  mutable Mutex encoder_mu_;
  InsertEncoder encoder_ GUARDED_BY(encoder_mu_);
};

class GrpcSampleStream final : public ClientCall, public SampleStream {
 public:
  GrpcSampleStream(std::shared_ptr<Channel> channel, std::shared_ptr<SampleEvents> events)
      : ClientCall(std::move(channel)), events_(std::move(events)), decoder_(this->channel().limits) {}

  void Send(SampleRequest request) override {
    if (IsOver()) return;
    Enqueue(EncodeSampleRequest({.hello = std::nullopt, .request = std::move(request)}), /*notify=*/false);
  }
  void Finish() override { FinishWriting(); }
  void Cancel() override { CancelCall(); }

 protected:
  Status HandleMessage(ReceivedMessage* received) override {
    const uint64_t bytes = received->total_bytes();
    response_bytes_ += bytes;
    const ByteSlices slices = received->Open();
    const Buffer keeper = bytes >= kLeaveBytes || decoder_.is_in_parts() ? received->Keep() : Buffer();
    Result<std::optional<SampleReply>> reply = decoder_.Decode(slices, keeper);
    received->Release();
    if (!reply.ok()) return std::move(reply).status();
    if (*reply) events_->OnReply(**std::move(reply), std::exchange(response_bytes_, 0));
    return Status::Ok();
  }
  void HandleClosed(Status status) override { std::exchange(events_, nullptr)->OnClosed(std::move(status)); }

 private:
  std::shared_ptr<SampleEvents> events_;  // used only in callbacks from gRPC
  // Used only by HandleMessage().
  SampleReplyDecoder decoder_;
  uint64_t response_bytes_ = 0;  // of messages since the last whole response
};

// --- Single calls ---------------------------------------------------------------------------------

// One call. The thread that waits for it polls its completion queue, and thereby the socket: the thread of a
// callback would have to wake it.
class SingleClientCall {
 public:
  SingleClientCall(Channel* channel, Method method, const WaitOptions& wait)
      : channel_(channel), method_(method), wait_(wait) {
    const bool one_try = wait.timeout && *wait.timeout <= Duration(0);
    if (wait.timeout) limit_ = one_try ? kOneTry : *wait.timeout;
    context_.set_wait_for_ready(!one_try);
    if (limit_ && *limit_ < kMaxTimeout) {
      context_.set_deadline(
          gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(limit_->count(), GPR_TIMESPAN)));
    }
  }

  ~SingleClientCall() {
    void* tag = nullptr;
    bool is_event_ok = false;
    events_.Shutdown();
    while (events_.Next(&tag, &is_event_ok)) {
    }
  }
  SingleClientCall(const SingleClientCall&) = delete;
  SingleClientCall& operator=(const SingleClientCall&) = delete;

  Status Run(WireMessage request, ReceivedMessage* reply) {
    request.Seal(0);
    const std::unique_ptr<grpc::GenericClientAsyncResponseReader> call = channel_->stub.PrepareUnaryCall(
        &context_, std::string(kServicePrefix).append(name()), ToByteBuffer(request), &events_);
    call->StartCall();
    call->Finish(reply->buffer(), &status_, /*tag=*/this);
    if (Status given_up = Wait(); !given_up.ok()) return given_up;
    Status outcome = Outcome();
    return outcome.ok() ? reply->Unseal(0) : outcome;
  }

 private:
  // Returns when the call is over. Returns the error of on_wait if it cancelled the call.
  Status Wait() {
    void* tag = nullptr;
    bool is_event_ok = false;
    Duration waited{0};
    while (events_.AsyncNext(&tag, &is_event_ok, NextStep()) != grpc::CompletionQueue::GOT_EVENT) {
      const Duration before = std::exchange(waited, waited + kWaitStep);
      if (before <= WaitLogAfter() && waited > WaitLogAfter()) {
        LogWait("call " + channel_->address, "still waiting for the server at " + channel_->address +
                                                 " to answer " + std::string(name()) + " for " +
                                                 DurationText(waited) + Reachability());
      }
      if (!wait_.on_wait) continue;
      if (Status status = wait_.on_wait(); !status.ok()) {
        context_.TryCancel();
        events_.Next(&tag, &is_event_ok);
        return status;
      }
    }
    return Status::Ok();
  }

  static gpr_timespec NextStep() {
    return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(kWaitStep.count(), GPR_TIMESPAN));
  }
  std::string_view name() const { return MethodName(method_); }
  const char* Reachability() const {
    return channel_->channel->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY
               ? ""
               : "; it could not be reached";
  }

  Status Outcome() const {
    if (status_.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED || HasDetails(status_)) {
      return channel_->Explain(status_);
    }
    std::string text = std::string(name()) + ": no answer from the server at " + channel_->address +
                       " within " + DurationText(limit_.value_or(Duration(0))) + Reachability();
    return Status::DeadlineExceeded(std::move(text));
  }

  Channel* const channel_;
  const Method method_;
  const WaitOptions& wait_;
  std::optional<Duration> limit_;
  grpc::ClientContext context_;
  grpc::Status status_;  // set by the event of Finish()
  grpc::CompletionQueue events_;
};

class GrpcConnection final : public WireConnection {
 public:
  explicit GrpcConnection(std::shared_ptr<Channel> channel) : channel_(std::move(channel)) {}

  std::string address() const override { return channel_->address; }
  bool in_process() const override { return false; }
  bool send_may_block() const override { return true; }
  bool is_connected() const override {
    return channel_->channel->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY;
  }

  std::shared_ptr<InsertStream> OpenInsert(const Hello& hello,
                                           std::shared_ptr<InsertEvents> events) override {
    auto stream = std::make_shared<GrpcInsertStream>(channel_, std::move(events));
    stream->Begin(stream, kInsertMethod, EncodeInsertHello(hello));
    return stream;
  }
  std::shared_ptr<SampleStream> OpenSample(const Hello& hello,
                                           std::shared_ptr<SampleEvents> events) override {
    auto stream = std::make_shared<GrpcSampleStream>(channel_, std::move(events));
    Hello with_limit = hello;
    with_limit.max_response_bytes = channel_->limits.max_message_bytes;
    // Without a request: the first one follows without waiting for the reply.
    stream->Begin(stream, kSampleMethod,
                  EncodeSampleRequest({.hello = std::move(with_limit), .request = {}}));
    return stream;
  }

 protected:
  const WireLimits& limits() const override { return channel_->limits; }
  // Damaged messages are so rare that three in a row do not occur.
  Status Call(Method method, WireMessage request, const WaitOptions& wait,
              const DecodeReply& decode) override {
    constexpr int kTries = 3;
    ReceivedMessage reply;
    Status status;
    for (int i = 0; i < kTries; ++i) {
      status = SingleClientCall(channel_.get(), method, wait).Run(request, &reply);
      if (status.detail() != Detail::kCorruptData) break;
    }
    return status.ok() ? decode(reply.Open()) : status;
  }

 private:
  const std::shared_ptr<Channel> channel_;
};

// gRPC would use the port of https if there is none.
bool HasPort(std::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  const std::string_view port = address.substr(colon + 1);
  return !port.empty() && port.size() <= 5 && port.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

Status CheckGrpcAddress(const std::string& address) {
  if (address.starts_with("unix:") || HasPort(address)) return Status::Ok();
  return Status::InvalidArgument("address \"" + address +
                                 "\" has no port: give it as host:port, for example "
                                 "localhost:8000");
}

Result<std::shared_ptr<Connection>> ConnectGrpc(std::string address, const GrpcOptions& options) {
  REVERB_RETURN_IF_ERROR(CheckGrpcAddress(address));
  REVERB_RETURN_IF_ERROR(InitGrpc());
  return std::shared_ptr<Connection>(
      std::make_shared<GrpcConnection>(std::make_shared<Channel>(std::move(address), options)));
}

}  // namespace reverb::internal
