#include "transport/local/server_calls.h"

#include <string>
#include <utility>
#include <vector>

#include "transport/local/frame.h"

namespace reverb::internal {
namespace {

// Bounds the operations that one client lets wait.
constexpr size_t kMaxCalls = 100'000;

}  // namespace

Status ServerCalls::Begin(uint64_t number, Method method, ByteSlices request, RequestHandler* handler) {
  {
    MutexLock lock(&mu_);
    if (pending_.size() >= kMaxCalls) {
      return Status::ResourceExhausted("the client has " + std::to_string(pending_.size()) +
                                       " calls in progress, more than a server accepts on one connection");
    }
    if (!pending_.emplace(number, nullptr).second) {
      return Status::InvalidArgument("two calls have the number " + std::to_string(number));
    }
  }
  if (!IsSingleCall(method) || MayBlock(method, *handler)) {
    (void)Reply(number, Status::Unimplemented("the method with the number " +
                                              std::to_string(static_cast<int>(method)) +
                                              " is not one of many calls at a time"));
    return Status::Ok();
  }
  if (method != Method::kRows) {
    (void)Reply(number, Serve(method, request, handler));
    return Status::Ok();
  }
  const auto done = [self = shared_from_this(), number](const Result<WireMessage>& reply) {
    return self->Reply(number, reply);
  };
  std::shared_ptr<PendingCall> pending = ServeRows(request, handler, done);
  MutexLock lock(&mu_);
  const auto found = pending_.find(number);
  if (found != pending_.end()) found->second = std::move(pending);
  return Status::Ok();
}

bool ServerCalls::Reply(uint64_t number, const Result<WireMessage>& reply) {
  {
    MutexLock lock(&mu_);
    pending_.erase(number);
  }
  const std::shared_ptr<StreamSocket> socket = socket_.lock();
  if (socket == nullptr) return false;
  if (traffic_ != nullptr) traffic_->CountOut(reply.ok() ? reply->total_bytes() : 0);
  return socket->Send(reply.ok() ? MakeCallFrame(FrameKind::kReply, number, *reply)
                                 : MakeCallFrame(FrameKind::kFailure, number, EncodeStatus(reply.status())),
                      /*notify=*/false) != StreamSocket::Sent::kClosed;
}

void ServerCalls::CancelAll() {
  std::vector<std::shared_ptr<PendingCall>> pending;
  {
    MutexLock lock(&mu_);
    for (const auto& [number, call] : pending_) {
      if (call != nullptr) pending.push_back(call);
    }
  }
  for (const std::shared_ptr<PendingCall>& call : pending) call->Cancel();
}

}  // namespace reverb::internal
