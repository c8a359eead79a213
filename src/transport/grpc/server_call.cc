#include "transport/grpc/server_call.h"

#include <cassert>
#include <string>
#include <string_view>
#include <vector>

namespace reverb::internal {
namespace {

// "192.0.2.1:4000" of gRPC's "ipv4:192.0.2.1:4000", "[::1]:4000" of its "ipv6:%5B::1%5D:4000".
std::string ReadablePeer(std::string peer) {
  for (const std::string_view scheme : {"ipv4:", "ipv6:"}) {
    if (peer.starts_with(scheme)) peer.erase(0, scheme.size());
  }
  for (const auto& [code, bracket] : {std::pair("%5B", "["), std::pair("%5D", "]")}) {
    if (const size_t at = peer.find(code); at != std::string::npos) peer.replace(at, 3, bracket);
  }
  return peer;
}

}  // namespace

// --- What all calls share ---

Status ServerCore::Admit(const std::shared_ptr<ServerCall>& call, GrpcMethod method) {
  MutexLock lock(&mu_);
  if (stopping_ && !method.is_health()) return Status::Unavailable("the server is stopping");
  if (calls_.size() >= max_calls_) {
    return Status::ResourceExhausted("the server has " + std::to_string(calls_.size()) +
                                     " calls and streams open, which is its max_streams; close some, or "
                                     "raise the limit");
  }
  calls_.emplace(call.get(), call);
  return Status::Ok();
}

Result<std::shared_ptr<RequestHandler>> ServerCore::HandlerFor(const grpc::CallbackServerContext& context,
                                                               GrpcMethod method) const {
  // Probes of the system that runs the server have no token.
  if (gate_ == nullptr || method.is_health()) return handler_;
  Caller caller{.address = ReadablePeer(context.peer())};
  const auto found = context.client_metadata().find(kTokenHeader);
  if (found != context.client_metadata().end()) {
    const std::string_view value(found->second.data(), found->second.size());
    if (!value.starts_with(kTokenScheme)) {
      return Status(StatusCode::kUnauthenticated,
                    "the header \"authorization\" must be \"Bearer \" and the token");
    }
    caller.token = value.substr(kTokenScheme.size());
  }
  return gate_->Admit(caller);
}

void ServerCore::Leave(ServerCall* call) {
  MutexLock lock(&mu_);
  calls_.erase(call);
}

void ServerCore::BeginStop() {
  std::vector<std::shared_ptr<ServerCall>> calls;
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    calls.reserve(calls_.size());
    for (const auto& [key, weak] : calls_) {
      if (std::shared_ptr<ServerCall> call = weak.lock()) calls.push_back(std::move(call));
    }
  }
  const Status why = Status::Unavailable("the server is stopping");
  for (const std::shared_ptr<ServerCall>& call : calls) call->OnStopping(why);
}

// --- One call ---

std::string ServerCall::PeerAddress() const { return ReadablePeer(context_->peer()); }

Strand::Next ServerCall::Step() {
  if (write_ == WriteState::kQueued) {
    write_ = WriteState::kWriting;
    mu_.Unlock();
    StartWrite(&out_);
    mu_.Lock();
    return Strand::Next::kAgain;
  }
  if (ending_) return write_ == WriteState::kIdle ? Strand::Next::kClose : Strand::Next::kWait;
  if (num_wanted_ == 0 || read_ != ReadState::kIdle) return Strand::Next::kWait;
  --num_wanted_;
  read_ = ReadState::kReading;
  mu_.Unlock();
  StartRead(received_.buffer());
  mu_.Lock();
  return Strand::Next::kAgain;
}

void ServerCall::Advance() {
  const Ending* ending = nullptr;
  {
    MutexLock lock(&mu_);
    if (!strand_.Run([this]() REQUIRES(mu_) { return Step(); })) return;
    ending = &*ending_;
  }
  // The last use of this object: OnDone() may come before these return.
  if (ending->last) {
    StartWriteAndFinish(&*ending->last, grpc::WriteOptions(), ending->status);
  } else {
    Finish(ending->status);
  }
}

bool ServerCall::Write(WireMessage message) {
  if (is_sealed()) message.Seal(num_written_++);
  CountOut(message);
  grpc::ByteBuffer buffer = ToByteBuffer(message);
  const int64_t charged = charges_messages() ? static_cast<int64_t>(message.total_bytes()) : 0;
  bool is_early = false;
  {
    MutexLock lock(&mu_);
    if (ending_) return false;
    is_early = write_ != WriteState::kIdle;
    if (!is_early) {
      write_ = WriteState::kQueued;
      out_.Swap(&buffer);
      out_charge_.Set(charged);
    }
  }
  if (is_early) {
    assert(false && "a reply before the last one was written");
    EndCall(Status::Internal("a reply was sent before the last one was written"));
    return false;
  }
  Advance();
  return true;
}

void ServerCall::SetEnding(Ending ending, uint64_t last_bytes) {
  {
    MutexLock lock(&mu_);
    if (ending_) return;
    ending_ = std::move(ending);
    if (last_bytes > 0) out_charge_.Set(out_charge_.bytes() + static_cast<int64_t>(last_bytes));
  }
  Advance();
}

void ServerCall::OnWriteDone(bool ok) {
  const CallbackThreads::Scope in_callback;
  grpc::ByteBuffer sent;  // freed without the lock
  {
    MutexLock lock(&mu_);
    write_ = WriteState::kIdle;
    out_.Swap(&sent);
    // A last message that waits for this write stays charged until the call is over, with this one.
    if (!ending_) out_charge_.Set(0);
  }
  sent.Clear();
  if (!ok) EndCall(Status::Cancelled("the client has disconnected"));
  if (!IsEnding()) HandleWritten();
  Advance();
}

Status ServerCall::TooLarge(uint64_t bytes, uint64_t most) {
  return Status::ResourceExhausted(
      "a message has " + std::to_string(bytes) + " bytes, at most " + std::to_string(most) +
      " are accepted; send less at a time, or raise the server's max_message_bytes");
}

void ServerCall::OnReadDone(bool ok) {
  const CallbackThreads::Scope in_callback;
  if (!ok) return HandleReadEnd();
  if (traffic_ != nullptr) traffic_->CountIn(received_.buffer()->Length());
  if (IsEnding()) {
    received_.buffer()->Clear();
  } else if (const Status intact = CheckReceived(); !intact.ok()) {
    EndCall(intact);
  } else {
    const MemoryCharge charge(handler_->memory(), MemoryPart::kReceiving,
                              static_cast<int64_t>(received_.buffer()->Length()));
    HandleMessage();
  }
  {
    MutexLock lock(&mu_);
    read_ = ReadState::kIdle;
  }
  Advance();
}

void ServerCall::HandleReadEnd() {
  {
    MutexLock lock(&mu_);
    read_ = ReadState::kOver;
  }
  if (context_->IsCancelled()) {
    // gRPC does not report the reason. If the client cancelled the call, it does not see this text.
    EndCall(Status::ResourceExhausted("a message could not be received: it has more than the " +
                                      std::to_string(core_->limits().max_message_bytes) +
                                      " bytes that this server accepts, or the connection broke"));
  } else if (!IsEnding()) {
    HandleDone();
  }
  Advance();
}

}  // namespace reverb::internal
