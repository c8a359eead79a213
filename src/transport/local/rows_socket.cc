#include "transport/local/rows_socket.h"

#include <chrono>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "base/shared_memory.h"
#include "transport/local/client_message_socket.h"
#include "transport/wire.h"

namespace reverb::internal {
namespace {

// How often a waiting call checks for cancellation.
constexpr Duration kRowsWait = std::chrono::milliseconds(50);

}  // namespace

class RowsStream final : public ClientMessageSocket {
 public:
  using ClientMessageSocket::ClientMessageSocket;

  Status Greet(const CallSocket::OnWait& on_wait) EXCLUDES(call_mu_) {
    Send(MakeGreeting(target()), /*notify=*/false);
    BeginReading();
    return Await(on_wait, [this] {
      call_mu_.AssertHeld();
      return is_greeted_;
    });
  }
  bool IsUsable() EXCLUDES(call_mu_) {
    // Notices that the server has closed the socket. If the loop reads just now, it may be about to notice it.
    if (!Poll(Duration(0)) || IsClosing()) return false;
    MutexLock lock(&call_mu_);
    return !end_;
  }
  Result<RowsReply> Call(const WireMessage& request, const CallSocket::OnWait& on_wait) EXCLUDES(call_mu_) {
    {
      MutexLock lock(&call_mu_);
      reply_.reset();
      is_calling_ = true;
    }
    // If the socket is closed, the wait ends with the reason.
    SendRequest(Method::kRows, request);
    REVERB_RETURN_IF_ERROR(Await(on_wait, [this] {
      call_mu_.AssertHeld();
      return reply_.has_value();
    }));
    MutexLock lock(&call_mu_);
    is_calling_ = false;
    return *std::exchange(reply_, std::nullopt);
  }
  // Sends rows of the next call. Whether the socket is closed is seen then.
  void Stage(const WireMessage& part) { SendPart(Method::kRows, part); }
  void Cancel() { CancelStream(); }

 protected:
  void HandleGreeted() override EXCLUDES(call_mu_) {
    MutexLock lock(&call_mu_);
    is_greeted_ = true;
    changed_.NotifyAll();
  }
  Status HandleMessage(IncomingFrame* frame) override {
    LocalMessage message;
    Buffer keeper;
    ByteSlices slices;
    REVERB_RETURN_IF_ERROR(Receive(frame, &message, &keeper, &slices));
    return Finish(DecodeRowsReply(slices, target().options.limits, keeper, RowChecksums::kOptional));
  }
  void HandleStatus(Status status) override {
    if (!Finish(status).ok()) EndWith(std::move(status));
  }
  void HandleEnd(Status status) override EXCLUDES(call_mu_) {
    MutexLock lock(&call_mu_);
    end_ = status.ok() ? target().Unreachable("it has closed the connection") : std::move(status);
    changed_.NotifyAll();
  }

 private:
  // Passes the outcome to the call that waits for it.
  Status Finish(Result<RowsReply> reply) EXCLUDES(call_mu_) {
    MutexLock lock(&call_mu_);
    if (!is_calling_ || reply_) {
      return Status::DataLoss("the server at " + target().address + " has answered what was not asked");
    }
    reply_ = std::move(reply);
    changed_.NotifyAll();
    return Status::Ok();
  }
  // Waits until is_done(), which is called with the lock. An error ends the wait, and with it the socket.
  template <typename IsDone>
  Status Await(const CallSocket::OnWait& on_wait, IsDone is_done) EXCLUDES(call_mu_) {
    const PollingScope scope(this);
    while (true) {
      const bool was_polled = Poll(kRowsWait);
      {
        MutexLock lock(&call_mu_);
        // Another thread reads, or closes the socket.
        if (!was_polled && !is_done() && !end_) changed_.WaitFor(&call_mu_, kRowsWait);
        if (is_done()) return Status::Ok();
        if (end_) return *end_;
      }
      if (Status status = on_wait(); !status.ok()) {
        Cancel();
        return status;
      }
    }
  }

  Mutex call_mu_;
  CondVar changed_;
  bool is_greeted_ GUARDED_BY(call_mu_) = false;
  bool is_calling_ GUARDED_BY(call_mu_) = false;
  std::optional<Result<RowsReply>> reply_ GUARDED_BY(call_mu_);
  std::optional<Status> end_ GUARDED_BY(call_mu_);  // of the socket
};

RowsSocket::RowsSocket(std::shared_ptr<RowsStream> stream) : stream_(std::move(stream)) {}
RowsSocket::~RowsSocket() { stream_->Cancel(); }

Result<std::unique_ptr<RowsSocket>> RowsSocket::Open(const std::shared_ptr<LocalTarget>& target,
                                                     const CallSocket::OnWait& on_wait) {
  REVERB_ASSIGN_OR_RETURN(Descriptor fd, ConnectSocket(target.get()));
  REVERB_ASSIGN_OR_RETURN(EventLoop* const loop, NextClientLoop());
  std::unique_ptr<RowsSocket> socket(
      new RowsSocket(std::make_shared<RowsStream>(target, loop, std::move(fd))));
  REVERB_RETURN_IF_ERROR(socket->stream_->Greet(on_wait));
  return socket;
}

bool RowsSocket::IsUsable() { return stream_->IsUsable(); }

Result<RowsReply> RowsSocket::Call(const RowsRequest& request, const CallSocket::OnWait& on_wait) {
  const WireEncoding encoding{.shared_memory = ProcessSharedMemory(), .min_shared_bytes = kMinReferenceBytes};
  if (request.parts == nullptr) {
    Result<RowsReply> reply = stream_->Call(EncodeRowsRequest(request, encoding), on_wait);
    is_reusable_ = !stream_->IsClosing();
    return reply;
  }
  is_reusable_ = false;
  RowsRequest part;
  for (size_t next = 0;;) {
    // On error the destructor closes the socket, and the server forgets the parts that it has got.
    REVERB_ASSIGN_OR_RETURN(part.rows, request.parts->Encode(&next));
    if (next >= request.parts->size()) break;
    stream_->Stage(EncodeRowsRequest(part, encoding));
  }
  part.call = request.call;
  Result<RowsReply> reply = stream_->Call(EncodeRowsRequest(part, encoding), on_wait);
  is_reusable_ = !stream_->IsClosing();
  return reply;
}

}  // namespace reverb::internal
