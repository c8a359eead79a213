#include "transport/local/client_stream.h"

#include <atomic>
#include <optional>
#include <string>
#include <utility>

#include "base/fork.h"
#include "base/mutex.h"
#include "base/shared_memory.h"
#include "transport/closed_stream.h"
#include "transport/local/event_loop.h"
#include "transport/local/message_socket.h"

namespace reverb::internal {
namespace {

// --- The loops ------------------------------------------------------------------------------------

struct ClientLoops {
  Mutex mu;
  std::unique_ptr<EventLoops> loops GUARDED_BY(mu);
};
// A child created by fork() gets loops of its own: the threads of its parent exist only there.
constinit PerProcess<ClientLoops> client_loops;

Result<EventLoop*> NextClientLoop() {
  ClientLoops& here = client_loops.get();
  MutexLock lock(&here.mu);
  if (here.loops == nullptr) {
    REVERB_ASSIGN_OR_RETURN(here.loops, EventLoops::Start("rv-local-client", DefaultLoopThreads()));
  }
  return here.loops->Next();
}

// Segments that a server may announce on one socket.
constexpr size_t kMaxServerSegments = 1024;

// --- A stream -------------------------------------------------------------------------------------

class ClientStream : public MessageSocket {
 public:
  ClientStream(std::shared_ptr<LocalTarget> target, EventLoop* loop, Descriptor fd)
      : MessageSocket(loop, std::move(fd),
                      {.frames = target->frame_limits(),
                       .memory = ProcessSharedMemory(),
                       .max_message_bytes = target->options.limits.max_message_bytes,
                       .max_sent_pinned_bytes = UINT64_MAX,
                       .max_segments = kMaxServerSegments}),
        target_(std::move(target)) {}

  // Sends the first frames and starts to read. Returns false if that failed: HandleClosed() was called.
  void Begin(Method method, const WireMessage& first) {
    Send(MakeGreeting(*target_), /*notify=*/false);
    Send(MakeFrame(FrameKind::kRequest, first, method), /*notify=*/false);
    if (!Attach()) HandleClosed(Status::ResourceExhausted("the system cannot watch another socket"));
  }

 protected:
  const LocalTarget& target() const { return *target_; }
  void CancelStream() { Close(Status::Cancelled("the stream was cancelled on this side")); }

  // Decodes a message and passes it on. An error ends the stream.
  virtual Status HandleMessage(IncomingFrame* frame) = 0;
  // The last call.
  virtual void HandleEnd(Status status) = 0;

  void HandleFrame(IncomingFrame* frame) final {
    Status status;
    if (frame->header.kind == FrameKind::kStatus) {
      server_status_ = StatusOf(*target_, *frame);
      return Close(Status::Ok());
    }
    if (!is_greeted_) {
      const Result<LocalWelcome> welcome = CheckWelcome(*target_, *frame);
      status = welcome.status();
      is_greeted_ = true;
      if (status.ok()) {
        target_->is_connected = true;
        set_max_received_pinned_bytes(welcome->max_pinned_bytes);
      }
    } else if (frame->header.kind == FrameKind::kMessage) {
      status = HandleMessage(frame);
    } else {
      status = HandleMemoryFrame(frame);
    }
    if (!status.ok()) Close(std::move(status));
  }
  void HandleClosed(Status why) final {
    was_ended_ = true;
    if (server_status_) return HandleEnd(*std::move(server_status_));
    if (why.code() == StatusCode::kUnavailable) {
      target_->is_connected = false;
      why = target_->Unreachable(std::string(why.message()));
    }
    HandleEnd(std::move(why));
  }
  // In a child: the stream is the parent's, so it is over here, and the client opens another one.
  void HandleInherited() final {
    if (was_ended_.exchange(true)) return;
    const Result<EventLoop*> loop = NextClientLoop();
    auto end = [self = std::static_pointer_cast<ClientStream>(shared_from_this())] {
      self->HandleEnd(
          self->target_->Unreachable("the process was forked, and the stream belongs to its parent"));
    };
    loop.ok() ? (*loop)->Post(std::move(end)) : end();
  }

 private:
  const std::shared_ptr<LocalTarget> target_;
  // Used by the thread that reads.
  bool is_greeted_ = false;
  std::atomic<bool> was_ended_{false};
  std::optional<Status> server_status_;  // with which the server has ended the stream
};

class LocalInsertStream final : public ClientStream, public InsertStream {
 public:
  LocalInsertStream(std::shared_ptr<LocalTarget> target, EventLoop* loop, Descriptor fd,
                    std::shared_ptr<InsertEvents> events)
      : ClientStream(std::move(target), loop, std::move(fd)), events_(std::move(events)) {}

  InsertStream::Sent Send(InsertMessage message) override {
    WireMessage encoded;
    {
      MutexLock lock(&encoder_mu_);
      encoded = encoder_.Encode(message);
    }
    const StreamSocket::Sent sent = SendMessage(encoded);
    if (sent == StreamSocket::Sent::kClosed) return {};
    return {.bytes = encoded.total_bytes(), .ready = sent == StreamSocket::Sent::kNow};
  }
  uint64_t NewBytes(const Trajectory& trajectory) const override {
    MutexLock lock(&encoder_mu_);
    return encoder_.NewBytes(trajectory);
  }
  bool Poll(Duration most) override { return StreamSocket::Poll(most); }
  void Finish() override { StreamSocket::Send(MakeFrame(FrameKind::kDone), /*notify=*/false); }
  void Cancel() override { CancelStream(); }

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

  mutable Mutex encoder_mu_;
  InsertEncoder encoder_ GUARDED_BY(encoder_mu_){
      WireEncoding{.shared_memory = ProcessSharedMemory(), .min_shared_bytes = kMinReferenceBytes}};
};

class LocalSampleStream final : public ClientStream, public SampleStream {
 public:
  LocalSampleStream(std::shared_ptr<LocalTarget> target, EventLoop* loop, Descriptor fd,
                    std::shared_ptr<SampleEvents> events)
      : ClientStream(std::move(target), loop, std::move(fd)),
        events_(std::move(events)),
        decoder_(this->target().options.limits, RowChecksums::kOptional) {}

  void Send(SampleRequest request) override {
    SendMessage(EncodeSampleRequest({.hello = std::nullopt, .request = std::move(request)}));
  }
  bool Poll(Duration most) override { return StreamSocket::Poll(most); }
  void Finish() override { StreamSocket::Send(MakeFrame(FrameKind::kDone), /*notify=*/false); }
  void Cancel() override { CancelStream(); }

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
