#include "transport/local/client_message_socket.h"

#include <string>
#include <utility>

#include "base/fork.h"
#include "base/mutex.h"
#include "base/shared_memory.h"

namespace reverb::internal {
namespace {

struct ClientLoops {
  Mutex mu;
  std::unique_ptr<EventLoops> loops GUARDED_BY(mu);
};
// A child created by fork() gets loops of its own: the threads of its parent exist only there.
constinit PerProcess<ClientLoops> client_loops;

// Segments that a server may announce on one socket.
constexpr size_t kMaxServerSegments = 1024;

}  // namespace

Result<EventLoop*> NextClientLoop() {
  ClientLoops& here = client_loops.get();
  MutexLock lock(&here.mu);
  if (here.loops == nullptr) {
    REVERB_ASSIGN_OR_RETURN(here.loops, EventLoops::Start("rv-local-client", DefaultLoopThreads()));
  }
  return here.loops->Next();
}

ClientMessageSocket::ClientMessageSocket(std::shared_ptr<LocalTarget> target, EventLoop* loop, Descriptor fd)
    : MessageSocket(loop, std::move(fd),
                    {.frames = target->frame_limits(),
                     .memory = ProcessSharedMemory(),
                     .max_message_bytes = target->options.limits.max_message_bytes,
                     .max_segments = kMaxServerSegments}),
      target_(std::move(target)) {}

void ClientMessageSocket::BeginReading() {
  if (!Attach()) HandleClosed(Status::ResourceExhausted("the system cannot watch another socket"));
}

void ClientMessageSocket::EndWith(Status status) {
  server_status_ = std::move(status);
  Close(Status::Ok());
}

void ClientMessageSocket::HandleFrame(IncomingFrame* frame) {
  Status status;
  if (frame->header.kind == FrameKind::kStatus) {
    status = StatusOf(*target_, *frame);
    return is_greeted_ ? HandleStatus(std::move(status)) : EndWith(std::move(status));
  }
  if (!is_greeted_) {
    const Result<LocalWelcome> welcome = CheckWelcome(*target_, *frame);
    status = welcome.status();
    is_greeted_ = true;
    if (status.ok()) {
      target_->is_connected = true;
      set_max_received_pinned_bytes(welcome->max_pinned_bytes);
      HandleGreeted();
    }
  } else if (frame->header.kind == FrameKind::kMessage) {
    status = HandleMessage(frame);
  } else {
    status = HandleMemoryFrame(frame);
  }
  if (!status.ok()) Close(std::move(status));
}

void ClientMessageSocket::HandleClosed(Status why) {
  was_ended_ = true;
  if (server_status_) return HandleEnd(*std::move(server_status_));
  if (why.code() == StatusCode::kUnavailable) {
    target_->is_connected = false;
    why = target_->Unreachable(std::string(why.message()));
  }
  HandleEnd(std::move(why));
}

void ClientMessageSocket::HandleInherited() {
  if (was_ended_.exchange(true)) return;
  const Result<EventLoop*> loop = NextClientLoop();
  auto end = [self = std::static_pointer_cast<ClientMessageSocket>(shared_from_this())] {
    self->HandleEnd(
        self->target_->Unreachable("the process was forked, and the stream belongs to its parent"));
  };
  loop.ok() ? (*loop)->Post(std::move(end)) : end();
}

}  // namespace reverb::internal
