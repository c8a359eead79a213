#include "transport/local/client_stream.h"

#include <optional>
#include <utility>

#include "base/shared_memory.h"
#include "transport/closed_stream.h"
#include "transport/local/client_message_socket.h"

namespace reverb::internal {
namespace {

// --- A stream -------------------------------------------------------------------------------------

class ClientStream : public ClientMessageSocket {
 public:
  using ClientMessageSocket::ClientMessageSocket;

  // Sends the first frames and starts to read.
  void Begin(Method method, const WireMessage& first) {
    Send(MakeGreeting(target()), /*notify=*/false);
    Send(MakeFrame(FrameKind::kRequest, first, method), /*notify=*/false);
    BeginReading();
  }
};

// What streams of both kinds have in common; `Stream` is InsertStream or SampleStream.
template <typename Stream>
class LocalStream : public ClientStream, public Stream {
 public:
  using ClientStream::ClientStream;

  bool Poll(Duration most) override { return StreamSocket::Poll(most); }
  void BeginPolling() override { StreamSocket::BeginPolling(); }
  void EndPolling() override { StreamSocket::EndPolling(); }
  void Finish() override { StreamSocket::Send(MakeFrame(FrameKind::kDone), /*notify=*/false); }
  void Cancel() override { CancelStream(); }
};

class LocalInsertStream final : public LocalStream<InsertStream> {
 public:
  LocalInsertStream(std::shared_ptr<LocalTarget> target, EventLoop* loop, Descriptor fd,
                    std::shared_ptr<InsertEvents> events)
      : LocalStream(std::move(target), loop, std::move(fd)), events_(std::move(events)) {}

  InsertStream::Sent Send(InsertMessage message) override {
    const WireMessage encoded = encoder_.Encode(message);
    const StreamSocket::Sent sent = SendMessage(encoded);
    if (sent == StreamSocket::Sent::kClosed) return {};
    return {.bytes = encoded.total_bytes(), .ready = sent == StreamSocket::Sent::kNow};
  }
  uint64_t NewBytes(const Trajectory& trajectory) const override { return encoder_.NewBytes(trajectory); }

 protected:
  Status HandleMessage(IncomingFrame* frame) override {
    const ByteSlice slice = frame->inline_bytes;
    REVERB_ASSIGN_OR_RETURN(InsertReply reply,
                            DecodeInsertReply(ByteSlices(&slice, 1), target().options.limits));
    events_->OnReply(std::move(reply));
    return Status::Ok();
  }
  void HandleWritten() override { events_->OnSent(); }
  void HandleEnd(Status status) override { std::exchange(events_, nullptr)->OnClosed(std::move(status)); }

 private:
  std::shared_ptr<InsertEvents> events_;  // used by the thread that reads
  // Used by the caller of Send().
  InsertEncoder encoder_{
      WireEncoding{.shared_memory = ProcessSharedMemory(), .min_shared_bytes = kShareBytes}};
};

class LocalSampleStream final : public LocalStream<SampleStream> {
 public:
  LocalSampleStream(std::shared_ptr<LocalTarget> target, EventLoop* loop, Descriptor fd,
                    std::shared_ptr<SampleEvents> events)
      : LocalStream(std::move(target), loop, std::move(fd)),
        events_(std::move(events)),
        decoder_(this->target().options.limits, RowChecksums::kOptional) {}

  void Send(SampleRequest request) override {
    SendMessage(EncodeSampleRequest({.hello = std::nullopt, .request = std::move(request)}));
  }

 protected:
  Status HandleMessage(IncomingFrame* frame) override {
    LocalMessage message;
    Buffer keeper;
    ByteSlices slices;
    REVERB_RETURN_IF_ERROR(Receive(frame, &message, &keeper, &slices));
    REVERB_ASSIGN_OR_RETURN(std::optional<SampleReply> reply, decoder_.Decode(slices, keeper));
    keeper = {};
    if (reply) events_->OnReply(*std::move(reply), message.total_bytes);
    return Status::Ok();
  }
  void HandleEnd(Status status) override { std::exchange(events_, nullptr)->OnClosed(std::move(status)); }

 private:
  std::shared_ptr<SampleEvents> events_;  // used by the thread that reads
  SampleReplyDecoder decoder_;            // used by the thread that reads
};

template <typename Stream, typename Events>
Result<std::shared_ptr<Stream>> OpenStream(const std::shared_ptr<LocalTarget>& target,
                                           const std::shared_ptr<Events>& events) {
  REVERB_ASSIGN_OR_RETURN(Descriptor fd, ConnectSocket(target.get()));
  REVERB_ASSIGN_OR_RETURN(EventLoop* const loop, NextClientLoop());
  return std::make_shared<Stream>(target, loop, std::move(fd), events);
}

}  // namespace

std::shared_ptr<InsertStream> OpenLocalInsert(std::shared_ptr<LocalTarget> target, const Hello& hello,
                                              std::shared_ptr<InsertEvents> events) {
  Result<std::shared_ptr<LocalInsertStream>> stream = OpenStream<LocalInsertStream>(target, events);
  if (!stream.ok()) {
    events->OnClosed(stream.status());
    return std::make_shared<ClosedStream>();
  }
  (*stream)->Begin(Method::kInsert, EncodeInsertHello(hello));
  return *stream;
}

std::shared_ptr<SampleStream> OpenLocalSample(std::shared_ptr<LocalTarget> target, const Hello& hello,
                                              std::shared_ptr<SampleEvents> events) {
  Result<std::shared_ptr<LocalSampleStream>> stream = OpenStream<LocalSampleStream>(target, events);
  if (!stream.ok()) {
    events->OnClosed(stream.status());
    return std::make_shared<ClosedStream>();
  }
  Hello with_limit = hello;
  with_limit.max_response_bytes = target->options.limits.max_message_bytes;
  (*stream)->Begin(Method::kSample, EncodeSampleRequest({.hello = std::move(with_limit), .request = {}}));
  return *stream;
}

}  // namespace reverb::internal
