#include "transport/local/client_calls.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "transport/local/client_message_socket.h"
#include "transport/local/stream_socket.h"

namespace reverb::internal {
namespace {

using CallReplied = std::function<void(const Status& status, ByteSlices reply, bool was_sent)>;

}  // namespace

class CallsSocket final : public StreamSocket {
 public:
  CallsSocket(std::shared_ptr<LocalTarget> target, EventLoop* loop, Descriptor fd)
      : StreamSocket(loop, std::move(fd), target->frame_limits()), target_(std::move(target)) {}

  // Greets and starts to read. Calls need not wait for the answer.
  bool Begin() {
    Send(MakeGreeting(*target_), /*notify=*/false);
    return Attach();
  }
  // Returns the number of the call; 0 if the socket is closed, and `*done` is not called.
  uint64_t Start(Method method, const WireMessage& request, CallReplied* done) EXCLUDES(calls_mu_) {
    uint64_t number = 0;
    {
      MutexLock lock(&calls_mu_);
      if (is_over_) return 0;
      number = ++last_number_;
      calls_.emplace(number, *done);
    }
    if (Send(MakeCallFrame(FrameKind::kCall, number, request, method), /*notify=*/false) != Sent::kClosed) {
      return number;
    }
    // If it is not found, it was answered with the reason why the socket was closed.
    return Take(number) ? 0 : number;
  }
  // Ends the call on this side.
  void Abandon(uint64_t number) {
    if (const std::optional<CallReplied> done = Take(number)) {
      (*done)(Status::Cancelled("the call was cancelled on this side"), {}, /*was_sent=*/true);
    }
  }

 protected:
  void HandleFrame(IncomingFrame* frame) override {
    const FrameKind kind = frame->header.kind;
    if (kind == FrameKind::kStatus) {
      server_status_ = StatusOf(*target_, *frame);
      return Close(Status::Ok());
    }
    if (!is_greeted_) {
      const Status status = CheckWelcome(*target_, *frame).status();
      if (!status.ok()) return Close(status);
      is_greeted_ = true;
      target_->is_connected = true;
      return;
    }
    if (kind != FrameKind::kReply && kind != FrameKind::kFailure) {
      return Close(Status::DataLoss("the server at " + target_->address + " has sent a frame of kind " +
                                    std::to_string(static_cast<int>(kind))));
    }
    const std::optional<CallReplied> done = Take(frame->header.number);
    if (!done) return;  // it was abandoned
    if (kind == FrameKind::kFailure) return (*done)(StatusOf(*target_, *frame), {}, /*was_sent=*/true);
    const ByteSlice slice = frame->inline_bytes;
    (*done)(Status::Ok(), ByteSlices(&slice, 1), /*was_sent=*/true);
  }
  void HandleClosed(Status why) override {
    if (server_status_) {
      why = *server_status_;
    } else if (why.code() == StatusCode::kUnavailable) {
      why = target_->Unreachable(std::string(why.message()));
    }
    target_->is_connected = false;
    std::map<uint64_t, CallReplied> calls;
    {
      MutexLock lock(&calls_mu_);
      is_over_ = true;
      calls.swap(calls_);
    }
    if (why.ok()) why = target_->Unreachable("it has closed the connection");
    // A server that has not greeted executes nothing.
    for (const auto& [number, done] : calls) done(why, {}, is_greeted_);
  }
  // In a child created by fork(): nobody there waits for calls of its parent.
  void HandleInherited() override {}

 private:
  std::optional<CallReplied> Take(uint64_t number) EXCLUDES(calls_mu_) {
    MutexLock lock(&calls_mu_);
    const auto found = calls_.find(number);
    if (found == calls_.end()) return std::nullopt;
    CallReplied done = std::move(found->second);
    calls_.erase(found);
    return done;
  }

  const std::shared_ptr<LocalTarget> target_;
  // Used by the thread that reads.
  bool is_greeted_ = false;
  std::optional<Status> server_status_;

  Mutex calls_mu_;
  bool is_over_ GUARDED_BY(calls_mu_) = false;
  uint64_t last_number_ GUARDED_BY(calls_mu_) = 0;
  std::map<uint64_t, CallReplied> calls_ GUARDED_BY(calls_mu_);
};

namespace {

class StartedCall final : public PendingCall {
 public:
  StartedCall(std::shared_ptr<CallsSocket> socket, uint64_t number)
      : socket_(std::move(socket)), number_(number) {}
  void Cancel() override { socket_->Abandon(number_); }

 private:
  const std::shared_ptr<CallsSocket> socket_;
  const uint64_t number_;
};

Result<std::shared_ptr<CallsSocket>> OpenCalls(const std::shared_ptr<LocalTarget>& target) {
  REVERB_ASSIGN_OR_RETURN(Descriptor fd, ConnectSocket(target.get()));
  REVERB_ASSIGN_OR_RETURN(EventLoop* const loop, NextClientLoop());
  auto socket = std::make_shared<CallsSocket>(target, loop, std::move(fd));
  if (!socket->Begin()) return Status::ResourceExhausted("the system cannot watch another socket");
  return socket;
}

}  // namespace

LocalCalls::~LocalCalls() {
  std::shared_ptr<CallsSocket> open;
  {
    MutexLock lock(&mu);
    open.swap(socket);
  }
  if (open != nullptr) open->Close(Status::Cancelled("the client was closed"));
}

std::shared_ptr<PendingCall> StartLocalCall(
    const std::shared_ptr<LocalTarget>& target, LocalCalls* calls, Method method, const WireMessage& request,
    std::function<void(const Status& status, ByteSlices reply, bool was_sent)> done) {
  std::shared_ptr<CallsSocket> socket;
  {
    MutexLock lock(&calls->mu);
    socket = calls->socket;
  }
  if (socket != nullptr) {
    const uint64_t number = socket->Start(method, request, &done);
    if (number != 0) return std::make_shared<StartedCall>(std::move(socket), number);
  }
  Status failure;
  {
    MutexLock lock(&calls->mu);
    if (calls->socket == nullptr || calls->socket == socket) {
      Result<std::shared_ptr<CallsSocket>> opened = OpenCalls(target);
      calls->socket = opened.ok() ? *opened : nullptr;
      failure = opened.status();
    }
    socket = calls->socket;
  }
  if (socket != nullptr) {
    const uint64_t number = socket->Start(method, request, &done);
    if (number != 0) return std::make_shared<StartedCall>(std::move(socket), number);
    failure = target->Unreachable("it has closed the connection");
  }
  done(failure, {}, /*was_sent=*/false);
  return nullptr;
}

}  // namespace reverb::internal
