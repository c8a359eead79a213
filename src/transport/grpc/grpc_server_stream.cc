// The streams, each with a session of the service behind it.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "transport/grpc/grpc_server_call.h"

namespace reverb::internal {

namespace {

// A stream with a session of the service behind it.
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
  void NoteAddress() { address_ = PeerAddress(); }
  // Null before the greeting was accepted.
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

  void HandleWritten() final {
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
  std::string address_;  // set before the session is there
  mutable Mutex session_mu_;
  std::shared_ptr<Session> session_ GUARDED_BY(session_mu_);
  // A reply that the session sent while it was being opened has left already.
  bool written_early_ GUARDED_BY(session_mu_) = false;
};

class InsertCall final : public SessionCall<InsertSession, InsertPeer> {
 public:
  explicit InsertCall(std::shared_ptr<ServerCore> core) : SessionCall(std::move(core)) {
    RequestHandler* const handler = this->core()->handler();
    decoder_.emplace([handler](const ChunkHeader& header,
                               uint8_t** payload) { return handler->AllocateChunk(header, payload); },
                     handler->wire_limits());
  }

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
    decoder_.reset();  // with the chunks of its window
    SessionCall::HandleGone();
  }

 private:
  void Greet() {
    const Result<Hello> hello = DecodeInsertHello(received()->Open(), core()->limits());
    received()->Release();
    if (!hello.ok()) return EndCall(hello.status());
    NoteAddress();
    Open(core()->handler()->OpenInsert(*hello, std::static_pointer_cast<InsertCall>(self())));
  }

  // For HandleMessage() and HandleGone(), which do not run at the same time.
  std::optional<InsertDecoder> decoder_;
};

class SampleCall final : public SessionCall<SampleSession, SamplePeer> {
 public:
  using SessionCall::SessionCall;

  Sent Reply(SampleReply reply) override {
    if (IsEnding()) return {};
    const WireMessage message = EncodeSampleReply(reply);
    Write(message);
    return {.bytes = message.total_bytes(), .ready = false};
  }

 protected:
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
      NoteAddress();
      Open(core()->handler()->OpenSample(*message->hello, std::static_pointer_cast<SampleCall>(self())));
      session = this->session();
      if (session == nullptr || !AsksForSomething(message->request)) return;
    }
    session->OnRequest(std::move(message->request));
  }

 private:
  // The greeting may come alone.
  static bool AsksForSomething(const SampleRequest& request) {
    return !request.table.empty() || request.taken_bytes > 0 || request.heartbeat;
  }
};

}  // namespace

std::shared_ptr<ServerCall> MakeInsertCall(std::shared_ptr<ServerCore> core) {
  return std::make_shared<InsertCall>(std::move(core));
}

std::shared_ptr<ServerCall> MakeSampleCall(std::shared_ptr<ServerCore> core) {
  return std::make_shared<SampleCall>(std::move(core));
}

}  // namespace reverb::internal
