// grpc_server_call.h — what the calls of a GrpcServer have in common: the order in which gRPC is asked for
// things, and what they share with each other.
//
// Ownership: a ServerCall keeps itself alive until gRPC is done with it; sessions may hold it for longer, it
// is inert then. ServerCore is shared by all calls and the server. Threads: reactions of gRPC come on the
// server's completion threads, reading, writing and the rest at the same time on different ones. What is said
// to be for any thread is.
#ifndef REVERB_TRANSPORT_GRPC_GRPC_SERVER_CALL_H_
#define REVERB_TRANSPORT_GRPC_GRPC_SERVER_CALL_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/mutex.h"
#include "reverb/status.h"
#include "transport/grpc/completion_threads.h"
#include "transport/grpc/grpc_internal.h"
#include "transport/grpc/task_threads.h"
#include "transport/transport.h"
#include "transport/wire.h"

namespace reverb::internal {

enum class Method {
  kInsert,
  kSample,
  kMutate,
  kReset,
  kInfo,
  kInspect,
  kSetRateLimiter,
  kCheckpoint,
  kHealthCheck,
  kHealthWatch,
};

class ServerCall;

// What all calls share.
class ServerCore {
 public:
  // `max_calls`: at the same time.
  ServerCore(std::shared_ptr<RequestHandler> handler, size_t max_calls)
      : handler_(std::move(handler)), max_calls_(max_calls) {}

  RequestHandler* handler() const { return handler_.get(); }
  const WireLimits& limits() const { return handler_->wire_limits(); }
  TaskThreads* tasks() { return &tasks_; }

  // An error refuses the call.
  Status Admit(const std::shared_ptr<ServerCall>& call, Method method) EXCLUDES(mu_);
  void Leave(ServerCall* call) EXCLUDES(mu_);
  // Admits nobody from here on and tells all calls.
  void BeginStop() EXCLUDES(mu_);
  bool stopping() const EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    return stopping_;
  }

  // Whoever uses the completion queue, admitted or not, says so and when it is over.
  void BeginUse() EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    ++users_;
  }
  void EndUse() EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    if (--users_ == 0) unused_.NotifyAll();
  }
  void AwaitUnused() EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    while (users_ > 0) unused_.Wait(&mu_);
  }

 private:
  // Set once in the constructor; read without a lock.
  const std::shared_ptr<RequestHandler> handler_;
  const size_t max_calls_;

  TaskThreads tasks_;

  mutable Mutex mu_;
  CondVar unused_;
  bool stopping_ GUARDED_BY(mu_) = false;
  size_t users_ GUARDED_BY(mu_) = 0;
  std::unordered_map<ServerCall*, std::weak_ptr<ServerCall>> calls_ GUARDED_BY(mu_);
};

// gRPC's half of a call, from when it is awaited.
class CallIo {
 public:
  CallIo() { context_.AsyncNotifyWhenDone(&over_tag_); }
  CallIo(const CallIo&) = delete;
  CallIo& operator=(const CallIo&) = delete;

  grpc::GenericServerContext* context() { return &context_; }
  grpc::GenericServerAsyncReaderWriter* stream() { return &stream_; }

  // Who is told when gRPC sees the end of the call. True: it has come already.
  bool Attach(ServerCall* call) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    call_ = call;
    return over_;
  }

 private:
  void OnOver(bool ok) EXCLUDES(mu_);

  MethodTag<CallIo, &CallIo::OnOver> over_tag_{this};
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};

  Mutex mu_;
  ServerCall* call_ GUARDED_BY(mu_) = nullptr;
  bool over_ GUARDED_BY(mu_) = false;
};

// One call. Finish comes last: when no write is under way and no thread is inside a function of gRPC that
// starts something; and nothing is started afterwards. The call is over once all that was started has come
// back, gRPC has told the end, and no reaction runs.
// No lock is held while calling gRPC: it may free buffers, and with them chunks, which has consequences.
class ServerCall {
 public:
  explicit ServerCall(std::shared_ptr<ServerCore> core) : core_(std::move(core)) {}
  virtual ~ServerCall() = default;
  ServerCall(const ServerCall&) = delete;
  ServerCall& operator=(const ServerCall&) = delete;

  // Waits for the first message.
  void Begin(std::shared_ptr<ServerCall> self, std::unique_ptr<CallIo> io);
  void BeginRefused(std::shared_ptr<ServerCall> self, std::unique_ptr<CallIo> io, const Status& why);
  // The server stops; `why` is how a stream ends now. Single calls go on.
  virtual void OnStopping(const Status& /*why*/) {}

 protected:
  // In HandleMessage() and the other Handle functions only.
  ServerCore* core() const { return core_.get(); }
  const std::shared_ptr<ServerCore>& shared_core() const { return core_; }
  const std::shared_ptr<ServerCall>& self() const { return self_; }
  ReceivedMessage* received() { return &received_; }
  // For people.
  std::string PeerAddress() const;

  // --- From any thread; all do nothing when the call is over ---

  // Lets one more message come.
  void Read() EXCLUDES(mu_);
  // REQUIRES: the last one was written.
  void Write(const WireMessage& message) EXCLUDES(mu_);
  void EndCall(const Status& status) EXCLUDES(mu_) { SetEnding({ToGrpcStatus(status), std::nullopt}); }
  // Ends the call after one more message.
  void EndWith(const WireMessage& last, const Status& status) EXCLUDES(mu_) {
    SetEnding({ToGrpcStatus(status), ToByteBuffer(last)});
  }
  bool IsEnding() const EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    return ending_.has_value();
  }

  // --- What kinds of calls do ---

  // A message is in received(). Another one comes only after this has returned.
  virtual void HandleMessage() = 0;
  virtual void HandleWritten() {}
  // The client will send nothing more.
  virtual void HandleDone() = 0;
  // The last call.
  virtual void HandleGone() {}

 private:
  friend class CallIo;

  struct Ending {
    grpc::Status status;
    std::optional<grpc::ByteBuffer> last;
  };
  enum class Step { kNothing, kRead, kFinish };

  void Take(std::shared_ptr<ServerCall> self, std::unique_ptr<CallIo> io);
  void SetEnding(Ending ending) EXCLUDES(mu_);
  // Starts what is due.
  void Advance() EXCLUDES(mu_);
  // With kFinish: how, for as long as this object lives.
  Step NextStep(const Ending** ending) EXCLUDES(mu_);
  void Started() EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    --starting_;
  }

  // Reactions of gRPC. The last of them destroys the call, unless somebody holds it.
  void OnRead(bool ok) EXCLUDES(mu_);
  void OnWritten(bool ok) EXCLUDES(mu_);
  void OnFinished(bool /*ok*/) EXCLUDES(mu_) { Settle(); }
  void OnOver() EXCLUDES(mu_);
  void HandleReadEnd() EXCLUDES(mu_);
  // Something that was awaited of gRPC has come and was reacted to.
  void Settle() EXCLUDES(mu_);

  // Set by Begin(), reset when the call is over; for reactions of gRPC, and for Advance() until then.
  std::shared_ptr<ServerCore> core_;
  std::shared_ptr<ServerCall> self_;
  std::unique_ptr<CallIo> io_;
  // Belongs to gRPC from the start of a read until it is done, then to HandleMessage().
  ReceivedMessage received_;

  MethodTag<ServerCall, &ServerCall::OnRead> read_tag_{this};
  MethodTag<ServerCall, &ServerCall::OnWritten> write_tag_{this};
  MethodTag<ServerCall, &ServerCall::OnFinished> finish_tag_{this};

  mutable Mutex mu_;
  bool begun_ GUARDED_BY(mu_) = false;      // io_ is there
  int64_t wanted_ GUARDED_BY(mu_) = 0;      // messages that may come
  bool reading_ GUARDED_BY(mu_) = false;    // from the start of a read until HandleMessage() has returned
  bool read_over_ GUARDED_BY(mu_) = false;  // nothing more will come
  bool writing_ GUARDED_BY(mu_) = false;
  grpc::ByteBuffer out_;                   // belongs to gRPC while writing_
  int starting_ GUARDED_BY(mu_) = 0;       // threads inside a function that starts something
  bool finished_ GUARDED_BY(mu_) = false;  // Finish was called, or is being called
  // What gRPC still owes. Two from the beginning: that the call is finished, and that it is over.
  int awaited_ GUARDED_BY(mu_) = 2;
  // Set once; not changed afterwards, so that gRPC may use `last`.
  std::optional<Ending> ending_ GUARDED_BY(mu_);
};

// The kinds of calls. Single ones: all but the streams of the next two.
std::shared_ptr<ServerCall> MakeSingleCall(Method method, std::shared_ptr<ServerCore> core);
std::shared_ptr<ServerCall> MakeHealthWatchCall(std::shared_ptr<ServerCore> core);
std::shared_ptr<ServerCall> MakeInsertCall(std::shared_ptr<ServerCore> core);
std::shared_ptr<ServerCall> MakeSampleCall(std::shared_ptr<ServerCore> core);
// One that was not admitted.
std::shared_ptr<ServerCall> MakeRefusedCall(std::shared_ptr<ServerCore> core);

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_GRPC_GRPC_SERVER_CALL_H_
