// The streams of a server: sessions and their peers.
#include <optional>
#include <utility>

#include "base/shared_memory.h"
#include "transport/local/server_socket.h"
#include "transport/wire.h"

namespace reverb::internal {
namespace {

// A stream that serves a session.
template <typename Session, typename Peer>
class SessionStream : public ServerStream, public Peer, public std::enable_shared_from_this<Peer> {
 public:
  explicit SessionStream(std::shared_ptr<ServerSocket> socket)
      : socket_(std::move(socket)), address_(socket_->client()) {}

  void ReadNext() final { socket_->WantMessage(); }
  void End(Status status) final { socket_->End(status); }
  std::string address() const final { return address_; }

  void HandleWritten() final {
    if (session_ != nullptr) session_->OnWritten();
  }
  void HandleDone() final { session_->OnDone(); }
  void HandleGone() override {
    if (const std::shared_ptr<Session> session = std::move(session_)) session->OnGone();
  }

 protected:
  Status SetSession(Result<std::shared_ptr<Session>> opened) {
    if (!opened.ok()) return std::move(opened).status();
    session_ = *std::move(opened);
    return Status::Ok();
  }

  const std::shared_ptr<ServerSocket> socket_;
  const std::string address_;
  // Used on the socket's loop.
  std::shared_ptr<Session> session_;
};

class LocalInsertPeer final : public SessionStream<InsertSession, InsertPeer> {
 public:
  explicit LocalInsertPeer(std::shared_ptr<ServerSocket> socket) : SessionStream(std::move(socket)) {
    RequestHandler* const handler = socket_->handler().get();
    decoder_.emplace([handler](const ChunkHeader& header,
                               uint8_t** payload) { return handler->AllocateChunk(header, payload); },
                     handler->wire_limits());
  }

  bool Reply(InsertReply reply) override {
    return socket_->SendMessage(EncodeInsertReply(reply)) == StreamSocket::Sent::kNow;
  }

  Status Open(ByteSlices message) override {
    RequestHandler* const handler = socket_->handler().get();
    REVERB_ASSIGN_OR_RETURN(const Hello hello, DecodeInsertHello(message, handler->wire_limits()));
    socket_->set_client_name(hello.client_name);
    return SetSession(
        handler->OpenInsert(hello, std::static_pointer_cast<LocalInsertPeer>(shared_from_this())));
  }
  bool accepts_references() const override { return true; }
  Status Decode(ByteSlices message) override {
    REVERB_ASSIGN_OR_RETURN(message_, decoder_->Decode(message));
    return Status::Ok();
  }
  void HandleMessage() override { session_->OnMessage(std::exchange(message_, {})); }
  void HandleGone() override {
    decoder_.reset();  // frees the chunks of its window
    SessionStream::HandleGone();
  }

 private:
  std::optional<InsertDecoder> decoder_;
  InsertMessage message_;  // decoded, for HandleMessage()
};

// A reply whose samples live until the client has returned the message. By then their counters have left the caches: they
// are prefetched some samples before they are released.
struct KeptSampleReply {
  explicit KeptSampleReply(SampleReply sent) : reply(std::move(sent)) {}
  KeptSampleReply(const KeptSampleReply&) = delete;
  KeptSampleReply& operator=(const KeptSampleReply&) = delete;
  ~KeptSampleReply() {
    constexpr size_t kAhead = 16;
    std::vector<Sample>& samples = reply.samples;
    for (size_t i = 0; i < samples.size(); ++i) {
      if (i + kAhead < samples.size()) {
        __builtin_prefetch(Trajectory::counted_object(samples[i + kAhead].trajectory.handle()), 1);
      }
      samples[i].trajectory = Trajectory();
    }
  }

  SampleReply reply;
};

class LocalSamplePeer final : public SessionStream<SampleSession, SamplePeer> {
 public:
  using SessionStream::SessionStream;

  bool sends_references() const override { return true; }
  Sent Reply(SampleReply reply) override {
    const auto kept = std::make_shared<const KeptSampleReply>(std::move(reply));
    const WireMessage message =
        EncodeSampleReply(kept->reply, WireEncoding::ForSharedMemory(ProcessSharedMemory()));
    const StreamSocket::Sent sent = socket_->SendMessage(message, kept);
    if (sent == StreamSocket::Sent::kClosed) return {};
    return {.bytes = message.total_bytes(), .ready = sent == StreamSocket::Sent::kNow};
  }

  Status Open(ByteSlices message) override {
    RequestHandler* const handler = socket_->handler().get();
    REVERB_ASSIGN_OR_RETURN(const SampleStreamMessage decoded,
                            DecodeSampleRequest(message, handler->wire_limits()));
    if (!decoded.hello) {
      return Status::InvalidArgument("message SampleRequest: the first of a stream must greet");
    }
    socket_->set_client_name(decoded.hello->client_name);
    return SetSession(
        handler->OpenSample(*decoded.hello, std::static_pointer_cast<LocalSamplePeer>(shared_from_this())));
  }
  Status Decode(ByteSlices message) override {
    REVERB_ASSIGN_OR_RETURN(SampleStreamMessage decoded,
                            DecodeSampleRequest(message, socket_->core()->handler()->wire_limits()));
    if (decoded.hello) {
      return Status::InvalidArgument("message SampleRequest: only the first of a stream may greet");
    }
    request_ = std::move(decoded.request);
    return Status::Ok();
  }
  void HandleMessage() override { session_->OnRequest(std::exchange(request_, {})); }

 private:
  SampleRequest request_;  // decoded, for HandleMessage()
};

}  // namespace

std::shared_ptr<ServerStream> MakeServerStream(Method method, std::shared_ptr<ServerSocket> socket) {
  if (method == Method::kInsert) return std::make_shared<LocalInsertPeer>(std::move(socket));
  return std::make_shared<LocalSamplePeer>(std::move(socket));
}

}  // namespace reverb::internal
