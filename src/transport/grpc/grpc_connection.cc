#include "transport/grpc/grpc_connection.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "base/mutex.h"
#include "base/strand.h"
#include "transport/grpc/call_stream.h"
#include "transport/grpc/callback_hold.h"
#include "transport/grpc/callback_threads.h"
#include "transport/grpc/grpc_channel.h"
#include "transport/grpc/grpc_internal.h"
#include "transport/grpc/handshake_watch.h"
#include "transport/grpc/single_client_call.h"
#include "transport/single_calls.h"
#include "transport/wire.h"

namespace reverb::internal {

namespace {

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
  explicit ClientCall(std::shared_ptr<GrpcChannel> channel) : channel_(std::move(channel)) {}

  // Starts the stream and sends `first`. To be called once.
  void Begin(std::shared_ptr<ClientCall> self, const char* method, WireMessage first) {
    self_ = std::move(self);
    {
      MutexLock lock(&mu_);
      UpdateUser();
    }
    channel_->AddToken(&context_);
    channel_->stub.PrepareBidiStreamingCall(&context_, method, grpc::StubOptions(), this);
    AddHold();
    StartRead(received_.buffer());
    StartCall();
    Enqueue(std::move(first), /*notify=*/false);
  }

  void OnReadDone(bool ok) final;
  void OnWriteDone(bool ok) final;
  void OnDone(const grpc::Status& status) final {
    const CallbackThreads::Scope in_callback;
    const std::shared_ptr<ClientCall> self = std::move(self_);
    {
      MutexLock lock(&mu_);
      is_done_ = true;
      UpdateUser();
    }
    if (Status failure = FailureOfThisSide(); !failure.ok()) return HandleClosed(std::move(failure));
    GrpcChannel::EndCall(channel_, status, [self](Status why) { self->HandleClosed(std::move(why)); });
  }
  // gRPC 1.51 aborts the process here if damaged headers claim to be the end of the stream. Only
  // OnReadInitialMetadataDone() would use the result.
  bool InternalTrailersOnly(const grpc_call* /*call*/) const final { return false; }

 protected:
  const GrpcChannel& channel() const { return *channel_; }

  // --- From any thread; these do nothing once the stream is over ---

  // `notify`: HandleSent() is called when the message was written.
  void Enqueue(WireMessage message, bool notify) EXCLUDES(mu_) {
    {
      MutexLock lock(&mu_);
      if (is_over_ || half_ != Half::kOpen) return;
      message.Seal(num_queued_++);
      queue_.push_back({ToByteBuffer(message), notify});
      UpdateUser();
    }
    Advance();
  }
  // The server answers a request, which `change` adds or removes.
  void AddRequests(int change) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    num_requests_ += change;
    UpdateUser();
  }
  // The server confirms items in the order of their numbers.
  void SetSent(uint64_t number) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    last_sent_ = std::max(last_sent_, number);
  }
  void SetConfirmed(uint64_t number) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    confirmed_ = std::max(confirmed_, number);
    UpdateUser();
  }
  // Closes the client's half after the queued messages.
  void FinishWriting() EXCLUDES(mu_) {
    {
      MutexLock lock(&mu_);
      if (half_ == Half::kOpen) half_ = Half::kFinishing;
      UpdateUser();
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
      UpdateUser();
    }
    context_.TryCancel();
  }
  // Returns OK unless this side has cancelled the call.
  Status FailureOfThisSide() const EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    return failure_;
  }
  // Needs callbacks unless all is written and answered: then what comes, if anything, is not urgent.
  void UpdateUser() REQUIRES(mu_) {
    const bool is_quiet = queue_.empty() && !is_writing_ && num_requests_ == 0 && last_sent_ <= confirmed_ &&
                          half_ == Half::kOpen && failure_.ok() && !is_over_;
    if (is_quiet || is_done_) {
      user_.reset();
    } else if (!user_) {
      user_.emplace();
    }
  }
  // Starts the operations that are due.
  void Advance() EXCLUDES(mu_);
  Strand::Next Step() REQUIRES(mu_);

  const std::shared_ptr<GrpcChannel> channel_;
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
  bool is_over_ GUARDED_BY(mu_) = false;      // the last read has failed
  Status failure_ GUARDED_BY(mu_);            // why this side cancelled
  bool is_done_ GUARDED_BY(mu_) = false;      // OnDone() was called
  int64_t num_requests_ GUARDED_BY(mu_) = 1;  // without their last answer; the greeting is one
  uint64_t last_sent_ GUARDED_BY(mu_) = 0;    // numbers of items
  uint64_t confirmed_ GUARDED_BY(mu_) = 0;
  std::optional<CallbackHold::User> user_ GUARDED_BY(mu_);
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
  const CallbackThreads::Scope in_callback;
  if (ok) {
    channel_->was_connected.store(true, std::memory_order_relaxed);
    // After a failure on this side, messages are read and dropped until the end of the stream.
    if (FailureOfThisSide().ok()) {
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
    UpdateUser();
  }
  Advance();
}

void ClientCall::OnWriteDone(bool ok) {
  const CallbackThreads::Scope in_callback;
  Outgoing sent;  // freed without the lock
  {
    MutexLock lock(&mu_);
    is_writing_ = false;
    std::swap(sent, out_);
    UpdateUser();
  }
  sent.bytes.Clear();
  if (ok && sent.notify) HandleSent();
  Advance();
}

class GrpcInsertStream final : public ClientCall, public InsertStream {
 public:
  GrpcInsertStream(std::shared_ptr<GrpcChannel> channel, std::shared_ptr<InsertEvents> events)
      : ClientCall(std::move(channel)), events_(std::move(events)) {}

  Sent Send(InsertMessage message) override {
    if (IsOver()) return {};
    WireMessage encoded = encoder_.Encode(message);
    const uint64_t bytes = kSealBytes + encoded.total_bytes();
    if (!message.items.empty()) SetSent(message.items.back().number);
    Enqueue(std::move(encoded), /*notify=*/true);
    return {.bytes = bytes, .ready = false};
  }
  uint64_t NewBytes(const Trajectory& trajectory) const override { return encoder_.NewBytes(trajectory); }
  void Finish() override { FinishWriting(); }
  void Cancel() override { CancelCall(); }

 protected:
  Status HandleMessage(ReceivedMessage* received) override {
    Result<InsertReply> reply = DecodeInsertReply(received->Open(), channel().limits);
    received->Release();
    if (!reply.ok()) return std::move(reply).status();
    if (reply->welcome) AddRequests(-1);
    SetConfirmed(reply->confirmed_through);
    events_->OnReply(*std::move(reply));
    return Status::Ok();
  }
  void HandleSent() override { events_->OnSent(); }
  void HandleClosed(Status status) override { std::exchange(events_, nullptr)->OnClosed(std::move(status)); }

 private:
  std::shared_ptr<InsertEvents> events_;  // used only in callbacks from gRPC
  InsertEncoder encoder_;                 // used by the caller of Send()
};

class GrpcSampleStream final : public ClientCall, public SampleStream {
 public:
  GrpcSampleStream(std::shared_ptr<GrpcChannel> channel, std::shared_ptr<SampleEvents> events)
      : ClientCall(std::move(channel)), events_(std::move(events)), decoder_(this->channel().limits) {}

  void Send(SampleRequest request) override {
    if (IsOver()) return;
    if (IsAnswered(request)) AddRequests(1);
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
    if (!*reply) return Status::Ok();
    if ((*reply)->welcome) AddRequests(-1);
    if ((*reply)->end) AddRequests(-1);
    events_->OnReply(**std::move(reply), std::exchange(response_bytes_, 0));
    return Status::Ok();
  }
  void HandleClosed(Status status) override { std::exchange(events_, nullptr)->OnClosed(std::move(status)); }

 private:
  // Others report bytes that were taken.
  static bool IsAnswered(const SampleRequest& request) {
    return !request.table.empty() || request.end_stream;
  }

  std::shared_ptr<SampleEvents> events_;  // used only in callbacks from gRPC
  // Used only by HandleMessage().
  SampleReplyDecoder decoder_;
  uint64_t response_bytes_ = 0;  // of messages since the last whole response
};

// A single call that no thread waits for. Keeps itself alive until gRPC's OnDone().
class StartedClientCall final : public grpc::ClientUnaryReactor, public PendingCall {
 public:
  using Done = std::function<void(const Status& status, ByteSlices reply, bool was_sent)>;

  StartedClientCall(std::shared_ptr<GrpcChannel> channel, std::shared_ptr<HandshakeWatch> watch, Done done)
      : channel_(std::move(channel)), watch_(std::move(watch)), done_(std::move(done)) {}

  void Begin(std::shared_ptr<StartedClientCall> self, Method method, WireMessage request) {
    // Before the call starts: its end removes it.
    watched_ = watch_->Add([weak = std::weak_ptr<StartedClientCall>(self)](Status why) {
      if (const auto call = weak.lock()) call->Fail(std::move(why));
    });
    self_ = std::move(self);
    callbacks_.emplace();
    request.Seal(0);
    request_ = ToByteBuffer(request);
    channel_->AddToken(&context_);
    context_.set_wait_for_ready(true);
    channel_->stub.PrepareUnaryCall(&context_, std::string(kServicePrefix).append(MethodName(method)),
                                    grpc::StubOptions(), &request_, reply_.buffer(), this);
    StartCall();
  }
  void Cancel() override { context_.TryCancel(); }

  void OnDone(const grpc::Status& status) override {
    const CallbackThreads::Scope in_callback;
    const std::shared_ptr<StartedClientCall> self = std::move(self_);
    callbacks_.reset();
    watch_->Remove(watched_);
    Status failure;
    {
      MutexLock lock(&mu_);
      failure = failure_;
    }
    // A call that was answered is not a failure, even if it was cancelled at the same time.
    if (!failure.ok() && !status.ok()) return End(std::move(failure));
    GrpcChannel::EndCall(channel_, status, [self](Status outcome) {
      if (outcome.ok()) outcome = self->reply_.Unseal(0);
      self->End(std::move(outcome));
    });
  }

 private:
  // Cancels the call because there can be no connection.
  void Fail(Status why) EXCLUDES(mu_) {
    {
      MutexLock lock(&mu_);
      failure_ = std::move(why);
    }
    context_.TryCancel();
  }
  void End(Status outcome) {
    const Done done = std::move(done_);
    done(outcome, outcome.ok() ? reply_.Open() : ByteSlices(), /*was_sent=*/true);
  }

  const std::shared_ptr<GrpcChannel> channel_;
  const std::shared_ptr<HandshakeWatch> watch_;
  Done done_;
  std::shared_ptr<StartedClientCall> self_;      // until OnDone()
  std::optional<CallbackHold::User> callbacks_;  // until OnDone()
  grpc::ClientContext context_;
  grpc::ByteBuffer request_;
  ReceivedMessage reply_;
  uint64_t watched_ = 0;  // set before the call starts

  Mutex mu_;
  Status failure_ GUARDED_BY(mu_);
};

class GrpcConnection final : public WireConnection {
 public:
  explicit GrpcConnection(std::shared_ptr<GrpcChannel> channel)
      : channel_(std::move(channel)),
        handshake_watch_(std::make_shared<HandshakeWatch>(channel_)),
        call_streams_(channel_) {}

  std::string address() const override { return channel_->address; }
  bool in_process() const override { return false; }
  bool send_may_block() const override { return true; }
  bool is_connected() const override { return channel_->is_connected(); }

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
    Status status;
    for (int i = 0; i < kTries; ++i) {
      status = CallOnce(method, request, wait, decode);
      if (status.detail() != Detail::kCorruptData) break;
    }
    return status;
  }
  std::shared_ptr<PendingCall> StartCall(Method method, WireMessage request, Replied done) override {
    auto call = std::make_shared<StartedClientCall>(channel_, handshake_watch_, std::move(done));
    call->Begin(call, method, std::move(request));
    return call;
  }

 private:
  // Executes the call over a stream if possible, else as a gRPC call of its own.
  Status CallOnce(Method method, const WireMessage& request, const WaitOptions& wait,
                  const DecodeReply& decode) {
    CallbackHold::Get().CountCall();
    if (const std::optional<Result<CallOutcome>> outcome = call_streams_.Call(method, request, wait)) {
      if (!outcome->ok()) return outcome->status();
      if (!(*outcome)->status.ok()) return (*outcome)->status;
      const std::string& reply = (*outcome)->response;
      const ByteSlice slice(reinterpret_cast<const uint8_t*>(reply.data()), reply.size());
      return decode(ByteSlices(&slice, reply.empty() ? 0 : 1));
    }
    ReceivedMessage reply;
    const Status status = SingleClientCall(channel_.get(), method, wait).Run(request, &reply);
    return status.ok() ? decode(reply.Open()) : status;
  }

  const std::shared_ptr<GrpcChannel> channel_;
  const std::shared_ptr<HandshakeWatch> handshake_watch_;
  CallStreams call_streams_;
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
      std::make_shared<GrpcConnection>(std::make_shared<GrpcChannel>(std::move(address), options)));
}

}  // namespace reverb::internal
