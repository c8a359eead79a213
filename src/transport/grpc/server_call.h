// server_call.h — one call as the server's gRPC sees it, and what all calls of a server share.
//
// Ownership: a ServerCall keeps itself alive until gRPC's OnDone(). Sessions may hold it for longer; its
// methods then do nothing.
// Threads: see the sections of ServerCall. All methods of ServerCore may be called concurrently.
#ifndef REVERB_TRANSPORT_GRPC_SERVER_CALL_H_
#define REVERB_TRANSPORT_GRPC_SERVER_CALL_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/memory_budget.h"
#include "base/mutex.h"
#include "base/strand.h"
#include "transport/grpc/callback_threads.h"
#include "transport/grpc/grpc_internal.h"
#include "transport/grpc/grpc_server.h"
#include "transport/grpc/server_methods.h"
#include "transport/task_threads.h"
#include "transport/transport.h"
#include "transport/wire.h"

namespace reverb::internal {

class ServerCall;

// The state that all calls of a server share.
class ServerCore {
 public:
  ServerCore(const GrpcServer::Options& options, std::shared_ptr<RequestHandler> handler)
      : handler_(std::move(handler)),
        gate_(options.gate),
        traffic_(options.traffic),
        max_calls_(options.max_streams) {}

  RequestHandler* handler() const { return handler_.get(); }
  const WireLimits& limits() const { return handler_->wire_limits(); }
  TaskThreads* tasks() { return &tasks_; }
  const std::shared_ptr<TrafficCounters>& traffic() const { return traffic_; }
  // Returns the handler for the requests of this call's client. An error refuses the call.
  Result<std::shared_ptr<RequestHandler>> HandlerFor(const grpc::CallbackServerContext& context,
                                                     GrpcMethod method) const;

  // Registers a call. An error refuses it.
  Status Admit(const std::shared_ptr<ServerCall>& call, GrpcMethod method) EXCLUDES(mu_);
  void Leave(ServerCall* call) EXCLUDES(mu_);

  Health health() const EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    return stopping_ ? Health::kNotServing : Health::kServing;
  }
  // Refuses new calls from now on and notifies all open ones.
  void BeginStop() EXCLUDES(mu_);

 private:
  // Set once in the constructor; read without a lock.
  const std::shared_ptr<RequestHandler> handler_;
  const std::shared_ptr<AccessGate> gate_;          // null: everybody may do everything
  const std::shared_ptr<TrafficCounters> traffic_;  // null: messages are not counted
  const size_t max_calls_;

  TaskThreads tasks_;

  mutable Mutex mu_;
  bool stopping_ GUARDED_BY(mu_) = false;
  std::unordered_map<ServerCall*, std::weak_ptr<ServerCall>> calls_ GUARDED_BY(mu_);
};

// The base of all kinds of calls (call_kinds.h). Keeps to the order that gRPC requires of its callers.
//
// gRPC deletes its half of a call after Finish, once no operation is in progress. So Finish comes last: after
// the last write has completed, when no thread is inside a Start function. The strand starts all operations,
// and its final call is Finish. No lock is held while calling gRPC: it may free buffers, and with them
// chunks.
class ServerCall : public grpc::ServerGenericBidiReactor {
 public:
  explicit ServerCall(std::shared_ptr<ServerCore> core)
      : traffic_(core->traffic()),
        core_(std::move(core)),
        out_charge_(core_->handler()->memory(), MemoryPart::kReplies) {}

  // Waits for the first message.
  void Begin(std::shared_ptr<ServerCall> self, grpc::CallbackServerContext* context,
             std::shared_ptr<RequestHandler> handler) {
    self_ = std::move(self);
    context_ = context;
    handler_ = std::move(handler);
    Read();
  }
  void BeginRefused(std::shared_ptr<ServerCall> self, const Status& why) {
    self_ = std::move(self);
    EndCall(why);
  }
  // The server stops. Streams end with `why`; single calls continue.
  virtual void OnStopping(const Status& /*why*/) {}

  void OnReadDone(bool ok) final;
  void OnWriteDone(bool ok) final;
  void OnCancel() final {
    const CallbackThreads::Scope in_callback;
    EndCall(Status::Cancelled("the client cancelled the call or disconnected"));
  }
  void OnDone() final {
    const CallbackThreads::Scope in_callback;
    HandleGone();
    {
      MutexLock lock(&mu_);
      out_charge_ = {};  // an answer that comes later charges nothing: the handler may be gone
    }
    core_->Leave(this);
    // A session that outlives the call must not keep the handler alive through it.
    core_.reset();
    handler_.reset();
    const std::shared_ptr<ServerCall> self = std::move(self_);
  }

 protected:
  // --- Only in HandleMessage() and the other Handle functions ---

  ServerCore* core() const { return core_.get(); }
  const std::shared_ptr<ServerCore>& shared_core() const { return core_; }
  const std::shared_ptr<ServerCall>& self() const { return self_; }
  // The handler for this call's client.
  const std::shared_ptr<RequestHandler>& handler() const { return handler_; }
  ReceivedMessage* received() { return &received_; }
  TrafficCounters* traffic() const { return traffic_.get(); }
  std::string PeerAddress() const;

  // --- From any thread; these do nothing once the call is over ---

  void CountOut(const WireMessage& message) const {
    if (traffic_ != nullptr) traffic_->CountOut(message.total_bytes());
  }
  // Accepts one more message.
  void Read() EXCLUDES(mu_) {
    {
      MutexLock lock(&mu_);
      ++num_wanted_;
    }
    Advance();
  }
  // REQUIRES: the previous message was written.
  // Returns false if the call is ending: then the message is dropped.
  bool Write(WireMessage message) EXCLUDES(mu_);
  void EndCall(const Status& status) EXCLUDES(mu_) { SetEnding({ToGrpcStatus(status), std::nullopt}); }
  // Ends the call after one more message.
  void EndWith(WireMessage last, const Status& status) EXCLUDES(mu_) {
    if (is_sealed()) last.Seal(num_written_);
    CountOut(last);
    SetEnding({ToGrpcStatus(status), ToByteBuffer(last)}, last.total_bytes());
  }
  bool IsEnding() const EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    return ending_.has_value();
  }

  // --- What each kind of call implements ---

  // Returns whether messages have checksums. Those of gRPC's health protocol have none.
  virtual bool is_sealed() const { return true; }
  // Returns whether messages are charged to the server's memory until they are written. Sessions that charge theirs
  // themselves are not charged twice.
  virtual bool charges_messages() const { return true; }
  // Returns whether a message may be empty, and then has no checksum.
  virtual bool may_be_empty() const { return false; }
  // A message is in received(). The next one is read only after this has returned.
  virtual void HandleMessage() = 0;
  virtual void HandleWritten() {}
  // The client will send nothing more.
  virtual void HandleDone() = 0;
  // The last call.
  virtual void HandleGone() {}

 private:
  struct Ending {
    grpc::Status status;
    std::optional<grpc::ByteBuffer> last;
  };
  enum class ReadState : uint8_t {
    kIdle,
    kReading,  // from StartRead until HandleMessage() has returned
    kOver,     // nothing more will come
  };
  enum class WriteState : uint8_t {
    kIdle,
    kQueued,   // out_ waits for the strand
    kWriting,  // out_ belongs to gRPC
  };

  // `last_bytes`: of the last message.
  void SetEnding(Ending ending, uint64_t last_bytes = 0) EXCLUDES(mu_);
  // Starts the operations that are due.
  void Advance() EXCLUDES(mu_);
  Strand::Next Step() REQUIRES(mu_);
  void HandleReadEnd() EXCLUDES(mu_);
  Status CheckReceived() {
    if (!is_sealed() || (may_be_empty() && received_.buffer()->Length() == 0)) return Status::Ok();
    const uint64_t most = core_->limits().max_message_bytes;
    if (received_.buffer()->Length() > most + kSealBytes) return TooLarge(received_.buffer()->Length(), most);
    return received_.Unseal(num_received_++);
  }
  static Status TooLarge(uint64_t bytes, uint64_t most);

  // Set by Begin(), reset by OnDone(); used only in callbacks from gRPC.
  const std::shared_ptr<TrafficCounters> traffic_;  // a session may write when the core is gone
  std::shared_ptr<ServerCore> core_;
  std::shared_ptr<ServerCall> self_;
  std::shared_ptr<RequestHandler> handler_;
  grpc::CallbackServerContext* context_ = nullptr;
  // Belongs to gRPC from StartRead to OnReadDone, then to HandleMessage().
  ReceivedMessage received_;
  uint64_t num_received_ = 0;
  uint64_t num_written_ = 0;  // belongs to Write(), of which there is one at a time

  mutable Mutex mu_;
  Strand strand_ GUARDED_BY(mu_);           // calls the Start functions; closed by Finish
  int64_t num_wanted_ GUARDED_BY(mu_) = 0;  // messages that the session accepts
  ReadState read_ GUARDED_BY(mu_) = ReadState::kIdle;
  WriteState write_ GUARDED_BY(mu_) = WriteState::kIdle;
  grpc::ByteBuffer out_;
  MemoryCharge out_charge_ GUARDED_BY(mu_);  // of what belongs to gRPC
  // Set once; not changed afterwards, so that gRPC may use `last`.
  std::optional<Ending> ending_ GUARDED_BY(mu_);
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_GRPC_SERVER_CALL_H_
