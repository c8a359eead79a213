#include "transport/grpc/grpc_server_call.h"

#include <grpc/grpc.h>

#include <cassert>
#include <string_view>
#include <utility>
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

class RefusedCall final : public ServerCall {
 public:
  using ServerCall::ServerCall;

 protected:
  void HandleMessage() override {}
  void HandleDone() override {}
};

}  // namespace

// --- What all calls share -------------------------------------------------------------------------

Status ServerCore::Admit(const std::shared_ptr<ServerCall>& call, Method method) {
  const bool is_health = method == Method::kHealthCheck || method == Method::kHealthWatch;
  MutexLock lock(&mu_);
  if (stopping_ && !is_health) return Status::Unavailable("the server is stopping");
  if (calls_.size() >= max_calls_) {
    return Status::ResourceExhausted("the server has " + std::to_string(calls_.size()) +
                                     " calls and streams open, which is its max_streams; close some, or "
                                     "raise the limit");
  }
  calls_.emplace(call.get(), call);
  return Status::Ok();
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

// --- One call -------------------------------------------------------------------------------------

void CallIo::OnOver(bool /*ok*/) {
  ServerCall* call = nullptr;
  {
    MutexLock lock(&mu_);
    over_ = true;
    call = call_;
  }
  if (call != nullptr) call->OnOver();  // may destroy this
}

void ServerCall::Take(std::shared_ptr<ServerCall> self, std::unique_ptr<CallIo> io) {
  core_->BeginUse();
  self_ = std::move(self);
  io_ = std::move(io);
  MutexLock lock(&mu_);
  begun_ = true;
}

void ServerCall::Begin(std::shared_ptr<ServerCall> self, std::unique_ptr<CallIo> io) {
  const std::shared_ptr<ServerCall> keep = self;  // it may be over before this returns
  Take(std::move(self), std::move(io));
  const bool over = io_->Attach(this);
  Read();
  if (over) OnOver();
}

void ServerCall::BeginRefused(std::shared_ptr<ServerCall> self, std::unique_ptr<CallIo> io,
                              const Status& why) {
  const std::shared_ptr<ServerCall> keep = self;
  Take(std::move(self), std::move(io));
  const bool over = io_->Attach(this);
  EndCall(why);
  if (over) OnOver();
}

std::string ServerCall::PeerAddress() const { return ReadablePeer(io_->context()->peer()); }

ServerCall::Step ServerCall::NextStep(const Ending** ending) {
  MutexLock lock(&mu_);
  if (!begun_ || finished_) return Step::kNothing;
  if (ending_) {
    if (writing_ || starting_ > 0) return Step::kNothing;
    finished_ = true;
    *ending = &*ending_;
    return Step::kFinish;
  }
  if (wanted_ == 0 || reading_ || read_over_) return Step::kNothing;
  --wanted_;
  reading_ = true;
  ++awaited_;
  ++starting_;
  return Step::kRead;
}

void ServerCall::Advance() {
  for (;;) {
    const Ending* ending = nullptr;
    switch (NextStep(&ending)) {
      case Step::kNothing:
        return;
      case Step::kRead:
        io_->stream()->Read(received_.buffer(), &read_tag_);
        Started();
        break;
      case Step::kFinish:
        // Nothing of this object is used afterwards: it may be gone when these return.
        if (ending->last) {
          io_->stream()->WriteAndFinish(*ending->last, grpc::WriteOptions(), ending->status, &finish_tag_);
        } else {
          io_->stream()->Finish(ending->status, &finish_tag_);
        }
        return;
    }
  }
}

void ServerCall::Read() {
  {
    MutexLock lock(&mu_);
    ++wanted_;
  }
  Advance();
}

void ServerCall::Write(const WireMessage& message) {
  grpc::ByteBuffer buffer = ToByteBuffer(message);
  bool broken = false;
  {
    MutexLock lock(&mu_);
    if (ending_) return;
    broken = writing_;
    if (!broken) {
      writing_ = true;
      ++awaited_;
      ++starting_;
      out_.Swap(&buffer);
    }
  }
  if (broken) {
    assert(false && "a reply before the last one was written");
    EndCall(Status::Internal("a reply was sent before the last one was written"));
    return;
  }
  io_->stream()->Write(out_, &write_tag_);
  Started();
  Advance();
}

void ServerCall::SetEnding(Ending ending) {
  {
    MutexLock lock(&mu_);
    if (ending_) return;
    ending_ = std::move(ending);
  }
  Advance();
}

void ServerCall::OnWritten(bool ok) {
  grpc::ByteBuffer sent;  // freed without the lock
  {
    MutexLock lock(&mu_);
    writing_ = false;
    out_.Swap(&sent);
  }
  sent.Clear();
  if (!ok) EndCall(Status::Cancelled("the client is gone"));
  if (!IsEnding()) HandleWritten();
  Advance();
  Settle();
}

void ServerCall::OnRead(bool ok) {
  if (!ok) {
    HandleReadEnd();
    return Settle();
  }
  if (IsEnding()) {
    received_.buffer()->Clear();
  } else {
    HandleMessage();
  }
  {
    MutexLock lock(&mu_);
    reading_ = false;
  }
  Advance();
  Settle();
}

void ServerCall::HandleReadEnd() {
  {
    MutexLock lock(&mu_);
    reading_ = false;
    read_over_ = true;
  }
  if (grpc_call_failed_before_recv_message(io_->context()->c_call()) != 0) {
    // gRPC does not say why. If it was the client's wish, nobody will read this.
    EndCall(Status::ResourceExhausted("a message could not be received: it has more than the " +
                                      std::to_string(core_->limits().max_message_bytes) +
                                      " bytes that this server accepts, or the connection broke"));
  } else if (!IsEnding()) {
    HandleDone();
  }
  Advance();
}

void ServerCall::OnOver() {
  if (io_->context()->IsCancelled()) {
    EndCall(Status::Cancelled("the client cancelled the call, or is gone"));
  }
  Settle();
}

void ServerCall::Settle() {
  {
    MutexLock lock(&mu_);
    if (--awaited_ > 0) return;
  }
  HandleGone();
  io_.reset();
  // A session that is kept must not keep the handler by way of this object.
  const std::shared_ptr<ServerCore> core = std::move(core_);
  core->Leave(this);
  // With it this object may go.
  std::shared_ptr<ServerCall>(std::move(self_)).reset();
  core->EndUse();
}

std::shared_ptr<ServerCall> MakeRefusedCall(std::shared_ptr<ServerCore> core) {
  return std::make_shared<RefusedCall>(std::move(core));
}

}  // namespace reverb::internal
