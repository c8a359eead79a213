#include "transport/grpc/call_kinds.h"

#include <deque>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "transport/grpc/grpc_internal.h"
#include "transport/transport.h"
#include "transport/wire.h"
#include "transport/wire_calls.h"

namespace reverb::internal {
namespace {

Status TooManyTasks() {
  return Status::Unavailable("too many calls that wait for a disk, or the server is stopping");
}

// A call that was not admitted.
class RefusedCall final : public ServerCall {
 public:
  using ServerCall::ServerCall;

 protected:
  void HandleMessage() override {}
  void HandleDone() override {}
};

class SingleCall final : public ServerCall {
 public:
  SingleCall(std::shared_ptr<ServerCore> core, GrpcMethod method)
      : ServerCall(std::move(core)), method_(method) {}

 protected:
  bool is_sealed() const override { return !method_.is_health(); }
  bool may_be_empty() const override { return true; }
  void HandleMessage() override {
    if (MayBlock(method_.method, *handler())) return AnswerElsewhere();
    Answer(core(), handler().get());
  }
  void HandleDone() override { EndCall(Status::InvalidArgument("the call has no request")); }

 private:
  void Answer(ServerCore* core, RequestHandler* handler) {
    Result<WireMessage> reply =
        method_.is_health() ? CheckHealth(core) : Serve(method_.method, received()->Open(), handler);
    received()->Release();
    if (reply.ok()) {
      EndWith(*std::move(reply), Status::Ok());
    } else {
      EndCall(reply.status());
    }
  }

  Result<WireMessage> CheckHealth(ServerCore* core) {
    REVERB_ASSIGN_OR_RETURN(const std::string service,
                            DecodeHealthRequest(received()->Open(), core->limits()));
    if (!IsServed(service)) return Status::NotFound("there is no service \"" + service + "\" here");
    return EncodeHealth(core->health());
  }

  // Answers on a thread of its own: gRPC has few, which must not block.
  void AnswerElsewhere() {
    const auto call = std::static_pointer_cast<SingleCall>(self());
    const bool started = core()->tasks()->Start(
        [call, core = shared_core(), handler = handler()] { call->Answer(core.get(), handler.get()); });
    if (!started) EndCall(TooManyTasks());
  }

  const GrpcMethod method_;
};

// An operation on a row table, which may have to wait.
class RowsServerCall final : public ServerCall {
 public:
  using ServerCall::ServerCall;
  void OnStopping(const Status& why) override { EndCall(why); }

 protected:
  bool may_be_empty() const override { return true; }
  void HandleMessage() override {
    const std::weak_ptr<RowsServerCall> weak = std::static_pointer_cast<RowsServerCall>(self());
    std::shared_ptr<PendingCall> pending =
        ServeRows(received()->Open(), handler().get(), [weak](Result<WireMessage> reply) {
          const std::shared_ptr<RowsServerCall> call = weak.lock();
          if (call == nullptr || call->IsEnding()) return false;
          if (reply.ok()) {
            call->EndWith(*std::move(reply), Status::Ok());
          } else {
            call->EndCall(reply.status());
          }
          return true;
        });
    received()->Release();
    {
      MutexLock lock(&pending_mu_);
      if (!is_gone_) {
        pending_ = std::move(pending);
        return;
      }
    }
    if (pending != nullptr) pending->Cancel();
  }
  void HandleDone() override { EndCall(Status::InvalidArgument("the call has no request")); }
  void HandleGone() override {
    std::shared_ptr<PendingCall> pending;
    {
      MutexLock lock(&pending_mu_);
      is_gone_ = true;
      pending.swap(pending_);
    }
    if (pending != nullptr) pending->Cancel();
  }

 private:
  Mutex pending_mu_;
  bool is_gone_ GUARDED_BY(pending_mu_) = false;
  std::shared_ptr<PendingCall> pending_ GUARDED_BY(pending_mu_);
};

// A stream of single calls, which are answered one after the other.
class CallsServerCall final : public ServerCall {
 public:
  explicit CallsServerCall(std::shared_ptr<ServerCore> core) : ServerCall(std::move(core)) {
    if (traffic() != nullptr) traffic()->AddCallStreams(1);
  }
  ~CallsServerCall() override {
    if (traffic() != nullptr) traffic()->AddCallStreams(-1);
  }
  // The call that is being executed is answered first.
  void OnStopping(const Status& why) override {
    {
      MutexLock lock(&stop_mu_);
      if (is_serving_) {
        stopping_ = why;
        return;
      }
    }
    EndCall(why);
  }

 protected:
  void HandleMessage() override {
    Result<CallMessage> message = DecodeCallRequest(received()->Open(), core()->limits());
    received()->Release();
    if (!message.ok()) return EndCall(message.status());
    {
      MutexLock lock(&stop_mu_);
      is_serving_ = true;
    }
    if (IsCallable(message->method) && MayBlock(static_cast<Method>(message->method), *handler())) {
      return AnswerElsewhere(*std::move(message));
    }
    Answer(Execute(*message, handler().get()));
  }
  // The next request is read when the reply was written.
  void HandleWritten() override { Read(); }
  void HandleDone() override { EndCall(Status::Ok()); }

 private:
  // Returns whether a stream of calls may carry this method: others delay the calls after them, or need the thread for
  // too long.
  static bool IsCallable(uint32_t number) {
    const auto method = static_cast<Method>(number);
    return number <= static_cast<uint32_t>(kLastMethod) && IsSingleCall(method) &&
           method != Method::kCheckpoint && method != Method::kRows;
  }
  static CallOutcome Execute(const CallMessage& message, RequestHandler* handler) {
    if (!IsCallable(message.method)) {
      return {.status = Status::Unimplemented("method " + std::to_string(message.method) +
                                              " cannot be called over a stream of calls")};
    }
    const ByteSlice slice(reinterpret_cast<const uint8_t*>(message.request.data()), message.request.size());
    Result<WireMessage> reply =
        Serve(static_cast<Method>(message.method), {&slice, slice.empty() ? 0u : 1u}, handler);
    if (!reply.ok()) return {.status = reply.status()};
    return {.response = reply->Flatten()};
  }
  // Executes it on a thread of its own: gRPC has few, which must not block.
  void AnswerElsewhere(CallMessage message) {
    const auto call = std::static_pointer_cast<CallsServerCall>(self());
    const bool started = core()->tasks()->Start(
        [call, core = shared_core(), handler = handler(), message = std::move(message)] {
          call->Answer(Execute(message, handler.get()));
        });
    if (!started) Answer({.status = TooManyTasks()});
  }
  void Answer(const CallOutcome& outcome) {
    WireMessage reply = EncodeCallReply(outcome);
    std::optional<Status> stopping;
    {
      MutexLock lock(&stop_mu_);
      is_serving_ = false;
      stopping.swap(stopping_);
    }
    if (stopping) return EndWith(std::move(reply), *stopping);
    Write(std::move(reply));
  }

  Mutex stop_mu_;
  bool is_serving_ GUARDED_BY(stop_mu_) = false;
  std::optional<Status> stopping_ GUARDED_BY(stop_mu_);  // the reason, while a call is executed
};

class HealthWatchCall final : public ServerCall {
 public:
  using ServerCall::ServerCall;
  void OnStopping(const Status& why) override { EndWith(EncodeHealth(Health::kNotServing), why); }

 protected:
  bool is_sealed() const override { return false; }
  void HandleMessage() override {
    const Result<std::string> service = DecodeHealthRequest(received()->Open(), core()->limits());
    received()->Release();
    if (!service.ok()) return EndCall(service.status());
    // Not sent if the server starts to stop in between, since the call is then ending.
    Write(EncodeHealth(IsServed(*service) ? core()->health() : Health::kServiceUnknown));
  }
  void HandleDone() override { EndCall(Status::InvalidArgument("the call has no request")); }
};

// A stream that serves a session.
template <typename Session, typename Peer>
class SessionCall : public ServerCall, public Peer {
 public:
  using ServerCall::ServerCall;

  void ReadNext() final { Read(); }
  void End(Status status) final { EndCall(status); }
  void OnStopping(const Status& why) final { EndCall(why); }
  std::string address() const final { return address_; }

 protected:
  // Called before the session is opened.
  void StoreAddress() { address_ = PeerAddress(); }
  // Returns null until the greeting was accepted.
  std::shared_ptr<Session> session() const EXCLUDES(session_mu_) {
    MutexLock lock(&session_mu_);
    return session_;
  }
  void Open(Result<std::shared_ptr<Session>> opened) EXCLUDES(session_mu_) {
    if (!opened.ok()) return EndCall(opened.status());
    const std::shared_ptr<Session> session = *std::move(opened);
    bool written = false;
    {
      MutexLock lock(&session_mu_);
      session_ = session;
      written = written_early_;
    }
    if (written) session->OnWritten();
  }

  void HandleWritten() override {
    std::shared_ptr<Session> session;
    {
      MutexLock lock(&session_mu_);
      session = session_;
      if (session == nullptr) written_early_ = true;
    }
    if (session != nullptr) session->OnWritten();
  }
  void HandleDone() final {
    if (const std::shared_ptr<Session> session = this->session()) return session->OnDone();
    EndCall(Status::InvalidArgument("the stream ended before its greeting"));
  }
  void HandleGone() override {
    std::shared_ptr<Session> session;
    {
      MutexLock lock(&session_mu_);
      session.swap(session_);
    }
    if (session != nullptr) session->OnGone();
  }

 private:
  std::string address_;  // set before session_
  mutable Mutex session_mu_;
  std::shared_ptr<Session> session_ GUARDED_BY(session_mu_);
  // A reply that the session sent while it was being opened was written before session_ was set.
  bool written_early_ GUARDED_BY(session_mu_) = false;
};

class InsertCall final : public SessionCall<InsertSession, InsertPeer> {
 public:
  using SessionCall::SessionCall;

  bool Reply(InsertReply reply) override {
    if (!IsEnding()) Write(EncodeInsertReply(reply));
    return false;
  }

 protected:
  void HandleMessage() override {
    const std::shared_ptr<InsertSession> session = this->session();
    if (session == nullptr) return Greet();
    Result<InsertMessage> message = decoder_->Decode(received()->Open());
    received()->Release();
    if (!message.ok()) return EndCall(message.status());
    session->OnMessage(*std::move(message));
  }
  void HandleGone() override {
    decoder_.reset();  // frees the chunks of its window
    SessionCall::HandleGone();
  }

 private:
  void Greet() {
    const Result<Hello> hello = DecodeInsertHello(received()->Open(), core()->limits());
    received()->Release();
    if (!hello.ok()) return EndCall(hello.status());
    StoreAddress();
    // Until HandleGone(), the call keeps the handler alive.
    decoder_.emplace(
        [handler = handler().get()](const ChunkHeader& header, uint8_t** payload) {
          return handler->AllocateChunk(header, payload);
        },
        handler()->wire_limits());
    Open(handler()->OpenInsert(*hello, std::static_pointer_cast<InsertCall>(self())));
  }

  // Used by HandleMessage() and HandleGone(), which do not run at the same time.
  std::optional<InsertDecoder> decoder_;
};

class SampleCall final : public SessionCall<SampleSession, SamplePeer> {
 public:
  using SessionCall::SessionCall;

  Sent Reply(SampleReply reply) override {
    if (IsEnding()) return {};
    WireMessage message = EncodeSampleReply(reply);
    uint64_t bytes = kSealBytes + message.total_bytes();
    if (bytes > kMaxPartBytes) {
      std::vector<WireMessage> parts = SplitIntoParts(std::move(message));
      bytes = 0;
      for (const WireMessage& part : parts) bytes += kSealBytes + part.total_bytes();
      message = std::move(parts.front());
      MutexLock lock(&parts_mu_);
      parts_.assign(std::move_iterator(parts.begin() + 1), std::move_iterator(parts.end()));
    }
    // The call may have begun to end meanwhile.
    if (!Write(std::move(message))) return {};
    return {.bytes = bytes, .ready = false};
  }

 protected:
  bool charges_messages() const override { return false; }
  // Notifies the session when the last part was written.
  void HandleWritten() override {
    WireMessage next;
    {
      MutexLock lock(&parts_mu_);
      if (!parts_.empty()) {
        next = std::move(parts_.front());
        parts_.pop_front();
      }
    }
    if (next.total_bytes() > 0) {
      Write(std::move(next));
      return;
    }
    SessionCall::HandleWritten();
  }
  void HandleGone() override {
    std::deque<WireMessage> unsent;  // freed without the lock
    {
      MutexLock lock(&parts_mu_);
      unsent.swap(parts_);
    }
    SessionCall::HandleGone();
  }
  void HandleMessage() override {
    Result<SampleStreamMessage> message = DecodeSampleRequest(received()->Open(), core()->limits());
    received()->Release();
    if (!message.ok()) return EndCall(message.status());
    std::shared_ptr<SampleSession> session = this->session();
    if ((session == nullptr) != message->hello.has_value()) {
      return EndCall(Status::InvalidArgument(
          session == nullptr ? "message SampleRequest: the first of a stream must greet"
                             : "message SampleRequest: only the first of a stream may greet"));
    }
    if (session == nullptr) {
      StoreAddress();
      Open(handler()->OpenSample(*message->hello, std::static_pointer_cast<SampleCall>(self())));
      session = this->session();
      if (session == nullptr || !HasRequest(message->request)) return;
    }
    session->OnRequest(std::move(message->request));
  }

 private:
  Mutex parts_mu_;
  std::deque<WireMessage> parts_ GUARDED_BY(parts_mu_);  // of the reply that is being written

  // Returns false for a greeting without a request.
  static bool HasRequest(const SampleRequest& request) {
    return !request.table.empty() || request.taken_bytes > 0;
  }
};

}  // namespace

std::shared_ptr<ServerCall> MakeCall(GrpcMethod method, const std::shared_ptr<ServerCore>& core) {
  if (method.kind == GrpcMethod::Kind::kHealthWatch) return std::make_shared<HealthWatchCall>(core);
  if (method.kind == GrpcMethod::Kind::kCalls) return std::make_shared<CallsServerCall>(core);
  switch (method.method) {
    case Method::kInsert:
      return std::make_shared<InsertCall>(core);
    case Method::kSample:
      return std::make_shared<SampleCall>(core);
    case Method::kRows:
      return std::make_shared<RowsServerCall>(core);
    default:
      return std::make_shared<SingleCall>(core, method);
  }
}

grpc::ServerGenericBidiReactor* RefuseCall(const std::shared_ptr<ServerCore>& core, const Status& why) {
  auto call = std::make_shared<RefusedCall>(core);
  RefusedCall* const reactor = call.get();
  reactor->BeginRefused(std::move(call), why);
  return reactor;
}

}  // namespace reverb::internal
