#include "transport/grpc/grpc_server.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <pthread.h>

#include <array>
#include <cassert>
#include <chrono>
#include <deque>
#include <functional>
#include <list>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "transport/grpc/grpc_internal.h"
#include "transport/grpc/listener.h"
#include "transport/wire.h"

namespace reverb::internal {

namespace {

// --- Methods --------------------------------------------------------------------------------------

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

std::optional<Method> FindMethod(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, Method>, 10> kMethods = {{
      {kInsertMethod, Method::kInsert},
      {kSampleMethod, Method::kSample},
      {kMutateMethod, Method::kMutate},
      {kResetMethod, Method::kReset},
      {kInfoMethod, Method::kInfo},
      {kInspectMethod, Method::kInspect},
      {kSetRateLimiterMethod, Method::kSetRateLimiter},
      {kCheckpointMethod, Method::kCheckpoint},
      {kHealthCheckMethod, Method::kHealthCheck},
      {kHealthWatchMethod, Method::kHealthWatch},
  }};
  for (const auto& [known, method] : kMethods) {
    if (known == name) return method;
  }
  return std::nullopt;
}

bool IsHealth(Method method) { return method == Method::kHealthCheck || method == Method::kHealthWatch; }

// Answers with what `status` says, or with an empty message.
Result<WireMessage> EmptyIfOk(Status status) {
  if (!status.ok()) return status;
  return EncodeEmpty();
}

// Decodes a request, does what it asks, encodes the answer.
Result<WireMessage> Serve(Method method, ByteSlices request, RequestHandler* handler) {
  const WireLimits& limits = handler->wire_limits();
  switch (method) {
    case Method::kMutate: {
      REVERB_ASSIGN_OR_RETURN(const MutateRequest mutate, DecodeMutateRequest(request, limits));
      return EmptyIfOk(handler->Mutate(mutate));
    }
    case Method::kReset: {
      REVERB_ASSIGN_OR_RETURN(const std::string table, DecodeResetRequest(request, limits));
      return EmptyIfOk(handler->Reset(table));
    }
    case Method::kSetRateLimiter: {
      REVERB_ASSIGN_OR_RETURN(const SetRateLimiterRequest set, DecodeSetRateLimiterRequest(request, limits));
      return EmptyIfOk(handler->SetRateLimiter(set));
    }
    case Method::kInfo: {
      REVERB_RETURN_IF_ERROR(DecodeEmpty(request, limits));
      REVERB_ASSIGN_OR_RETURN(const ServerInfo info, handler->Info());
      return EncodeServerInfo(info);
    }
    case Method::kInspect: {
      REVERB_ASSIGN_OR_RETURN(const InspectRequest inspect, DecodeInspectRequest(request, limits));
      REVERB_ASSIGN_OR_RETURN(const InspectReply reply, handler->Inspect(inspect));
      return EncodeInspectReply(reply);
    }
    case Method::kCheckpoint: {
      REVERB_RETURN_IF_ERROR(DecodeEmpty(request, limits));
      REVERB_ASSIGN_OR_RETURN(const std::string path, handler->Checkpoint());
      return EncodeCheckpointReply(path);
    }
    default:
      return Status::Internal("this method is not a single call");
  }
}

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

// --- Health ---------------------------------------------------------------------------------------

// Numbers of grpc.health.v1.HealthCheckResponse.ServingStatus.
enum class Health : uint32_t { kServing = 1, kNotServing = 2, kServiceUnknown = 3 };

WireMessage EncodeHealth(Health health) {
  WireWriter writer;
  writer.Uint(1, static_cast<uint32_t>(health));
  return writer.Finish();
}

// HealthCheckRequest: the name of a service.
Result<std::string> DecodeHealthRequest(ByteSlices slices, const WireLimits& limits) {
  std::string service;
  ProtoReader reader(slices);
  while (reader.Next()) {
    if (reader.field() == 1) reader.Read(&service, limits.max_name_bytes);
  }
  REVERB_RETURN_IF_ERROR(reader.status("HealthCheckRequest"));
  return service;
}

bool IsOurs(std::string_view service) { return service.empty() || service == "reverb.v1.Reverb"; }

// --- Threads for what takes long ------------------------------------------------------------------

class TaskThreads {
 public:
  ~TaskThreads() { JoinAll(); }

  // False when there are too many already, or JoinAll() was called.
  bool Start(std::function<void()> work) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    if (closed_) return false;
    Reap();
    if (tasks_.size() >= kMaxTasks) return false;
    Task& task = tasks_.emplace_back();
    try {
      task.thread = std::thread([this, &task, work = std::move(work)] {
        pthread_setname_np(pthread_self(), "rv-checkpoint");
        work();
        MutexLock done_lock(&mu_);
        task.done = true;
      });
    } catch (const std::system_error&) {  // no more threads to be had
      tasks_.pop_back();
      return false;
    }
    return true;
  }

  void JoinAll() EXCLUDES(mu_) {
    std::list<Task> tasks;
    {
      MutexLock lock(&mu_);
      closed_ = true;
      tasks.swap(tasks_);
    }
    for (Task& task : tasks) task.thread.join();
  }

 private:
  static constexpr size_t kMaxTasks = 16;
  struct Task {
    std::thread thread;
    bool done = false;  // the thread is past its last use of anything
  };

  void Reap() REQUIRES(mu_) {
    tasks_.remove_if([](Task& task) {
      if (task.done) task.thread.join();
      return task.done;
    });
  }

  Mutex mu_;
  bool closed_ GUARDED_BY(mu_) = false;
  std::list<Task> tasks_ GUARDED_BY(mu_);
};

// --- What all calls share -------------------------------------------------------------------------

class ServerCall;

class ServerCore {
 public:
  ServerCore(const GrpcServer::Options& options, std::shared_ptr<RequestHandler> handler)
      : handler_(std::move(handler)), max_calls_(options.max_streams) {}

  RequestHandler* handler() const { return handler_.get(); }
  const WireLimits& limits() const { return handler_->wire_limits(); }
  TaskThreads* tasks() { return &tasks_; }

  // An error refuses the call.
  Status Admit(const std::shared_ptr<ServerCall>& call, Method method) EXCLUDES(mu_);
  void Leave(ServerCall* call) EXCLUDES(mu_);

  Health health() const EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    return stopping_ ? Health::kNotServing : Health::kServing;
  }
  // Admits nobody from here on and tells all calls.
  void BeginStop() EXCLUDES(mu_);

 private:
  // Set once in the constructor; read without a lock.
  const std::shared_ptr<RequestHandler> handler_;
  const size_t max_calls_;

  TaskThreads tasks_;

  mutable Mutex mu_;
  bool stopping_ GUARDED_BY(mu_) = false;
  std::unordered_map<ServerCall*, std::weak_ptr<ServerCall>> calls_ GUARDED_BY(mu_);
};

// --- One call -------------------------------------------------------------------------------------

// A call as gRPC sees it, and the order in which things may be asked of gRPC.
//
// gRPC deletes its half of a call once it was finished and nothing else is under way. So Finish comes last:
// when no write is under way and no thread is inside a Start function; and nothing is started afterwards.
// No lock is held while calling gRPC: it may free buffers, and with them chunks, which has consequences.
//
// Keeps itself alive until gRPC's OnDone(). Sessions may hold it for longer; it is inert then.
class ServerCall : public grpc::ServerGenericBidiReactor {
 public:
  explicit ServerCall(std::shared_ptr<ServerCore> core) : core_(std::move(core)) {}

  // Waits for the first message.
  void Begin(std::shared_ptr<ServerCall> self, grpc::CallbackServerContext* context) {
    self_ = std::move(self);
    context_ = context;
    Read();
  }
  void BeginRefused(std::shared_ptr<ServerCall> self, const Status& why) {
    self_ = std::move(self);
    EndCall(why);
  }
  // The server stops; `why` is how a stream ends now. Single calls go on.
  virtual void OnStopping(const Status& /*why*/) {}

  void OnReadDone(bool ok) final;
  void OnWriteDone(bool ok) final;
  void OnCancel() final { EndCall(Status::Cancelled("the client cancelled the call, or is gone")); }
  void OnDone() final {
    HandleGone();
    core_->Leave(this);
    // A session that is kept must not keep the handler by way of this object.
    core_.reset();
    const std::shared_ptr<ServerCall> self = std::move(self_);
  }

 protected:
  // In HandleMessage() and the other Handle functions only.
  ServerCore* core() const { return core_.get(); }
  const std::shared_ptr<ServerCore>& shared_core() const { return core_; }
  const std::shared_ptr<ServerCall>& self() const { return self_; }
  ReceivedMessage* received() { return &received_; }
  std::string PeerAddress() const { return ReadablePeer(context_->peer()); }

  // --- From any thread; all do nothing when the call is over ---

  // Lets one more message come.
  void Read() EXCLUDES(mu_) {
    {
      MutexLock lock(&mu_);
      ++wanted_;
    }
    Advance();
  }
  // REQUIRES: the last one was written.
  void Write(WireMessage message) EXCLUDES(mu_);
  void EndCall(const Status& status) EXCLUDES(mu_) { SetEnding({ToGrpcStatus(status), std::nullopt}); }
  // Ends the call after one more message.
  void EndWith(WireMessage last, const Status& status) EXCLUDES(mu_) {
    if (is_sealed()) last.Seal(num_written_);
    SetEnding({ToGrpcStatus(status), ToByteBuffer(last)});
  }
  bool IsEnding() const EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    return ending_.has_value();
  }

  // --- What kinds of calls do ---

  // Whether messages have checksums: those of this protocol do.
  virtual bool is_sealed() const { return true; }
  // Whether a message may be empty, and then without one.
  virtual bool may_be_empty() const { return false; }
  // A message is in received(). Another one comes only after this has returned.
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
  enum class Step { kNothing, kRead, kFinish };

  void SetEnding(Ending ending) EXCLUDES(mu_);
  // Starts what is due.
  void Advance() EXCLUDES(mu_);
  // With kFinish: how, for as long as this object lives.
  Step NextStep(const Ending** ending) EXCLUDES(mu_);
  void Started() EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    --starting_;
  }
  void HandleReadEnd() EXCLUDES(mu_);
  Status CheckReceived() {
    if (!is_sealed() || (may_be_empty() && received_.buffer()->Length() == 0)) return Status::Ok();
    return received_.Unseal(num_received_++);
  }

  // Set by Begin(), reset by OnDone(); for reactions of gRPC only.
  std::shared_ptr<ServerCore> core_;
  std::shared_ptr<ServerCall> self_;
  grpc::CallbackServerContext* context_ = nullptr;
  // Belongs to gRPC from StartRead to OnReadDone, then to HandleMessage().
  ReceivedMessage received_;
  uint64_t num_received_ = 0;
  uint64_t num_written_ = 0;  // belongs to Write(), of which there is one at a time

  mutable Mutex mu_;
  int64_t wanted_ GUARDED_BY(mu_) = 0;      // messages that may come
  bool reading_ GUARDED_BY(mu_) = false;    // from StartRead until HandleMessage() has returned
  bool read_over_ GUARDED_BY(mu_) = false;  // nothing more will come
  bool writing_ GUARDED_BY(mu_) = false;
  grpc::ByteBuffer out_;                   // belongs to gRPC while writing_
  int starting_ GUARDED_BY(mu_) = 0;       // threads inside a Start function
  bool finished_ GUARDED_BY(mu_) = false;  // Finish was called, or is being called
  // Set once; not changed afterwards, so that gRPC may use `last`.
  std::optional<Ending> ending_ GUARDED_BY(mu_);
};

ServerCall::Step ServerCall::NextStep(const Ending** ending) {
  MutexLock lock(&mu_);
  if (finished_) return Step::kNothing;
  if (ending_) {
    if (writing_ || starting_ > 0) return Step::kNothing;
    finished_ = true;
    *ending = &*ending_;
    return Step::kFinish;
  }
  if (wanted_ == 0 || reading_ || read_over_) return Step::kNothing;
  --wanted_;
  reading_ = true;
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
        StartRead(received_.buffer());
        Started();
        break;
      case Step::kFinish:
        if (ending->last) {
          StartWriteAndFinish(&*ending->last, grpc::WriteOptions(), ending->status);
        } else {
          Finish(ending->status);
        }
        return;
    }
  }
}

void ServerCall::Write(WireMessage message) {
  if (is_sealed()) message.Seal(num_written_++);
  grpc::ByteBuffer buffer = ToByteBuffer(message);
  bool broken = false;
  {
    MutexLock lock(&mu_);
    if (ending_) return;
    broken = writing_;
    if (!broken) {
      writing_ = true;
      ++starting_;
      out_.Swap(&buffer);
    }
  }
  if (broken) {
    assert(false && "a reply before the last one was written");
    EndCall(Status::Internal("a reply was sent before the last one was written"));
    return;
  }
  StartWrite(&out_);
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

void ServerCall::OnWriteDone(bool ok) {
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
}

void ServerCall::OnReadDone(bool ok) {
  if (!ok) return HandleReadEnd();
  if (IsEnding()) {
    received_.buffer()->Clear();
  } else if (const Status intact = CheckReceived(); !intact.ok()) {
    EndCall(intact);
  } else {
    HandleMessage();
  }
  {
    MutexLock lock(&mu_);
    reading_ = false;
  }
  Advance();
}

void ServerCall::HandleReadEnd() {
  {
    MutexLock lock(&mu_);
    reading_ = false;
    read_over_ = true;
  }
  if (context_->IsCancelled()) {
    // gRPC does not say why. If it was the client's wish, nobody will read this.
    EndCall(Status::ResourceExhausted("a message could not be received: it has more than the " +
                                      std::to_string(core_->limits().max_message_bytes) +
                                      " bytes that this server accepts, or the connection broke"));
  } else if (!IsEnding()) {
    HandleDone();
  }
  Advance();
}

Status ServerCore::Admit(const std::shared_ptr<ServerCall>& call, Method method) {
  MutexLock lock(&mu_);
  if (stopping_ && !IsHealth(method)) return Status::Unavailable("the server is stopping");
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

// --- Kinds of calls -------------------------------------------------------------------------------

// Says no to a call that was not admitted.
class RefusedCall final : public ServerCall {
 public:
  using ServerCall::ServerCall;

 protected:
  void HandleMessage() override {}
  void HandleDone() override {}
};

class SingleCall final : public ServerCall {
 public:
  SingleCall(std::shared_ptr<ServerCore> core, Method method)
      : ServerCall(std::move(core)), method_(method) {}

 protected:
  bool is_sealed() const override { return !IsHealth(method_); }
  bool may_be_empty() const override { return true; }
  void HandleMessage() override {
    if (method_ == Method::kCheckpoint) return Detach();
    Answer(core());
  }
  void HandleDone() override { EndCall(Status::InvalidArgument("the call came without a request")); }

 private:
  void Answer(ServerCore* core) {
    Result<WireMessage> reply = method_ == Method::kHealthCheck
                                    ? CheckHealth(core)
                                    : Serve(method_, received()->Open(), core->handler());
    received()->Release();
    if (reply.ok()) {
      EndWith(*std::move(reply), Status::Ok());
    } else {
      EndCall(reply.status());
    }
  }

  Result<WireMessage> CheckHealth(ServerCore* core) {
    REVERB_ASSIGN_OR_RETURN(const std::string service,
                            DecodeHealthRequest(received()->Open(), core->limits()));
    if (!IsOurs(service)) return Status::NotFound("there is no service \"" + service + "\" here");
    return EncodeHealth(core->health());
  }

  // gRPC's threads are few and must not be kept.
  void Detach() {
    const auto call = std::static_pointer_cast<SingleCall>(self());
    const bool started = core()->tasks()->Start([call, core = shared_core()] { call->Answer(core.get()); });
    if (!started)
      EndCall(Status::Unavailable("too many checkpoints are being written, or the server is stopping"));
  }

  const Method method_;
};

class HealthWatchCall final : public ServerCall {
 public:
  using ServerCall::ServerCall;
  void OnStopping(const Status& why) override { EndWith(EncodeHealth(Health::kNotServing), why); }

 protected:
  bool is_sealed() const override { return false; }
  void HandleMessage() override {
    const Result<std::string> service = DecodeHealthRequest(received()->Open(), core()->limits());
    received()->Release();
    if (!service.ok()) return EndCall(service.status());
    // If the server begins to stop just now, this is not sent: the call is ending already.
    Write(EncodeHealth(IsOurs(*service) ? core()->health() : Health::kServiceUnknown));
  }
  void HandleDone() override { EndCall(Status::InvalidArgument("the call came without a request")); }
};

// A stream with a session of the service behind it.
template <typename Session, typename Peer>
class SessionCall : public ServerCall, public Peer {
 public:
  using ServerCall::ServerCall;

  void ReadNext() final { Read(); }
  void End(Status status) final { EndCall(status); }
  void OnStopping(const Status& why) final { EndCall(why); }
  std::string address() const final { return address_; }

 protected:
  // Called before the session is opened.
  void NoteAddress() { address_ = PeerAddress(); }
  // Null before the greeting was accepted.
  std::shared_ptr<Session> session() const EXCLUDES(session_mu_) {
    MutexLock lock(&session_mu_);
    return session_;
  }
  void Open(Result<std::shared_ptr<Session>> opened) EXCLUDES(session_mu_) {
    if (!opened.ok()) return EndCall(opened.status());
    const std::shared_ptr<Session> session = *std::move(opened);
    bool written = false;
    {
      MutexLock lock(&session_mu_);
      session_ = session;
      written = written_early_;
    }
    if (written) session->OnWritten();
  }

  void HandleWritten() override {
    std::shared_ptr<Session> session;
    {
      MutexLock lock(&session_mu_);
      session = session_;
      if (session == nullptr) written_early_ = true;
    }
    if (session != nullptr) session->OnWritten();
  }
  void HandleDone() final {
    if (const std::shared_ptr<Session> session = this->session()) return session->OnDone();
    EndCall(Status::InvalidArgument("the stream ended before its greeting"));
  }
  void HandleGone() override {
    std::shared_ptr<Session> session;
    {
      MutexLock lock(&session_mu_);
      session.swap(session_);
    }
    if (session != nullptr) session->OnGone();
  }

 private:
  std::string address_;  // set before the session is there
  mutable Mutex session_mu_;
  std::shared_ptr<Session> session_ GUARDED_BY(session_mu_);
  // A reply that the session sent while it was being opened has left already.
  bool written_early_ GUARDED_BY(session_mu_) = false;
};

class InsertCall final : public SessionCall<InsertSession, InsertPeer> {
 public:
  explicit InsertCall(std::shared_ptr<ServerCore> core) : SessionCall(std::move(core)) {
    RequestHandler* const handler = this->core()->handler();
    decoder_.emplace([handler](const ChunkHeader& header,
                               uint8_t** payload) { return handler->AllocateChunk(header, payload); },
                     handler->wire_limits());
  }

  bool Reply(InsertReply reply) override {
    if (!IsEnding()) Write(EncodeInsertReply(reply));
    return false;
  }

 protected:
  void HandleMessage() override {
    const std::shared_ptr<InsertSession> session = this->session();
    if (session == nullptr) return Greet();
    Result<InsertMessage> message = decoder_->Decode(received()->Open());
    received()->Release();
    if (!message.ok()) return EndCall(message.status());
    session->OnMessage(*std::move(message));
  }
  void HandleGone() override {
    decoder_.reset();  // with the chunks of its window
    SessionCall::HandleGone();
  }

 private:
  void Greet() {
    const Result<Hello> hello = DecodeInsertHello(received()->Open(), core()->limits());
    received()->Release();
    if (!hello.ok()) return EndCall(hello.status());
    NoteAddress();
    Open(core()->handler()->OpenInsert(*hello, std::static_pointer_cast<InsertCall>(self())));
  }

  // For HandleMessage() and HandleGone(), which do not run at the same time.
  std::optional<InsertDecoder> decoder_;
};

class SampleCall final : public SessionCall<SampleSession, SamplePeer> {
 public:
  using SessionCall::SessionCall;

  Sent Reply(SampleReply reply) override {
    if (IsEnding()) return {};
    WireMessage message = EncodeSampleReply(reply);
    uint64_t bytes = kSealBytes + message.total_bytes();
    if (bytes > kMaxPartBytes) {
      std::vector<WireMessage> parts = SplitIntoParts(std::move(message));
      bytes = 0;
      for (const WireMessage& part : parts) bytes += kSealBytes + part.total_bytes();
      message = std::move(parts.front());
      MutexLock lock(&parts_mu_);
      parts_.assign(std::move_iterator(parts.begin() + 1), std::move_iterator(parts.end()));
    }
    Write(std::move(message));
    return {.bytes = bytes, .ready = false};
  }

 protected:
  // The session hears of it when the last part has left.
  void HandleWritten() override {
    WireMessage next;
    {
      MutexLock lock(&parts_mu_);
      if (!parts_.empty()) {
        next = std::move(parts_.front());
        parts_.pop_front();
      }
    }
    if (next.total_bytes() > 0) return Write(std::move(next));
    SessionCall::HandleWritten();
  }
  void HandleGone() override {
    std::deque<WireMessage> unsent;  // freed without the lock
    {
      MutexLock lock(&parts_mu_);
      unsent.swap(parts_);
    }
    SessionCall::HandleGone();
  }
  void HandleMessage() override {
    Result<SampleStreamMessage> message = DecodeSampleRequest(received()->Open(), core()->limits());
    received()->Release();
    if (!message.ok()) return EndCall(message.status());
    std::shared_ptr<SampleSession> session = this->session();
    if ((session == nullptr) != message->hello.has_value()) {
      return EndCall(Status::InvalidArgument(
          session == nullptr ? "message SampleRequest: the first of a stream must greet"
                             : "message SampleRequest: only the first of a stream may greet"));
    }
    if (session == nullptr) {
      NoteAddress();
      Open(core()->handler()->OpenSample(*message->hello, std::static_pointer_cast<SampleCall>(self())));
      session = this->session();
      if (session == nullptr || !AsksForSomething(message->request)) return;
    }
    session->OnRequest(std::move(message->request));
  }

 private:
  Mutex parts_mu_;
  std::deque<WireMessage> parts_ GUARDED_BY(parts_mu_);  // of the reply that is being written

  // The greeting may come alone.
  static bool AsksForSomething(const SampleRequest& request) {
    return !request.table.empty() || request.taken_bytes > 0;
  }
};

std::shared_ptr<ServerCall> MakeCall(Method method, const std::shared_ptr<ServerCore>& core) {
  switch (method) {
    case Method::kInsert:
      return std::make_shared<InsertCall>(core);
    case Method::kSample:
      return std::make_shared<SampleCall>(core);
    case Method::kHealthWatch:
      return std::make_shared<HealthWatchCall>(core);
    default:
      return std::make_shared<SingleCall>(core, method);
  }
}

grpc::ServerGenericBidiReactor* Refuse(const std::shared_ptr<ServerCore>& core, const Status& why) {
  auto call = std::make_shared<RefusedCall>(core);
  RefusedCall* const reactor = call.get();
  reactor->BeginRefused(std::move(call), why);
  return reactor;
}

}  // namespace

// --- The server -----------------------------------------------------------------------------------

class GrpcServer::Impl final : public grpc::CallbackGenericService {
 public:
  Impl(const Options& options, std::shared_ptr<RequestHandler> handler)
      : core_(std::make_shared<ServerCore>(options, std::move(handler))) {}
  ~Impl() override { Stop(Duration(0)); }

  Status Listen(const std::string& address);
  int port() const { return port_; }
  void Stop(Duration grace) EXCLUDES(stop_mu_);

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override;

 private:
  const std::shared_ptr<ServerCore> core_;
  int port_ = 0;

  // Held by Stop() all along, so that a second caller waits too.
  Mutex stop_mu_;
  std::unique_ptr<grpc::Server> server_ GUARDED_BY(stop_mu_);
  std::unique_ptr<Listener> listener_ GUARDED_BY(stop_mu_);
};

Status GrpcServer::Impl::Listen(const std::string& address) {
  InitGrpc();
  MutexLock lock(&stop_mu_);
  REVERB_ASSIGN_OR_RETURN(listener_, Listener::Bind(address));
  port_ = listener_->port();
  grpc::ServerBuilder builder;
  using ConnectionType = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor =
      builder.experimental().AddExternalConnectionAcceptor(ConnectionType::FROM_FD,
                                                           grpc::InsecureServerCredentials());
  builder.RegisterCallbackGenericService(this);
  builder.SetMaxReceiveMessageSize(MaxReceiveBytes(core_->limits().max_message_bytes));
  // Clients ping to find out whether a quiet server is alive; and the server finds clients that vanished
  // without a word.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    return Status::FailedPrecondition("cannot listen on \"" + address + "\": gRPC could not start a server");
  }
  return listener_->Start([acceptor = std::move(acceptor)](int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    acceptor->HandleNewConnection(&connection);
  });
}

void GrpcServer::Impl::Stop(Duration grace) {
  core_->BeginStop();
  MutexLock lock(&stop_mu_);
  // First: gRPC does not close connections that it is handed after Shutdown().
  if (listener_ != nullptr) listener_->Stop();
  if (server_ == nullptr) return;
  // Comes back when every call had its OnDone(), which does not wait for this lock.
  server_->Shutdown(std::chrono::system_clock::now() +
                    std::chrono::duration_cast<std::chrono::system_clock::duration>(grace));
  // A checkpoint may go on after its client has left.
  core_->tasks()->JoinAll();
  server_.reset();
}

grpc::ServerGenericBidiReactor* GrpcServer::Impl::CreateReactor(grpc::GenericCallbackServerContext* context) {
  const std::optional<Method> method = FindMethod(context->method());
  if (!method) {
    return Refuse(core_, Status::Unimplemented("this server has no method " + context->method()));
  }
  std::shared_ptr<ServerCall> call = MakeCall(*method, core_);
  if (const Status admitted = core_->Admit(call, *method); !admitted.ok()) return Refuse(core_, admitted);
  ServerCall* const reactor = call.get();
  reactor->Begin(std::move(call), context);
  return reactor;
}

Result<std::unique_ptr<GrpcServer>> GrpcServer::Start(const Options& options,
                                                      std::shared_ptr<RequestHandler> handler) {
  auto impl = std::make_unique<Impl>(options, std::move(handler));
  REVERB_RETURN_IF_ERROR(impl->Listen(options.address));
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(impl)));
}

GrpcServer::GrpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrpcServer::~GrpcServer() = default;
int GrpcServer::port() const { return impl_->port(); }
void GrpcServer::Stop(Duration grace) { impl_->Stop(grace); }

}  // namespace reverb::internal
