#include "transport/inproc/inproc.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "base/fork.h"
#include "base/mutex.h"

namespace reverb::internal {
namespace {

// The references of a stream to its session and its events, until the stream ends.
template <typename Session, typename Events>
class Link {
 public:
  explicit Link(std::shared_ptr<Events> events) : events_(std::move(events)) {}

  // Called when the handler has accepted or rejected the stream.
  void Opened(Result<std::shared_ptr<Session>> session) EXCLUDES(mu_) {
    if (!session.ok()) return Close(std::move(session).status());
    {
      MutexLock lock(&mu_);
      if (!closed_) {
        session_ = *std::move(session);
        return;
      }
    }
    (*session)->OnGone();  // the stream ended before it was open
  }
  void Close(Status status) EXCLUDES(mu_) {
    std::shared_ptr<Session> session;
    std::shared_ptr<Events> events;
    {
      MutexLock lock(&mu_);
      closed_ = true;
      session = std::move(session_);
      events = std::move(events_);
    }
    if (session) session->OnGone();
    if (events) events->OnClosed(std::move(status));
  }
  // Return null after the end.
  std::shared_ptr<Session> session() const EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    return session_;
  }
  std::shared_ptr<Events> events() const EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    return events_;
  }

 private:
  mutable Mutex mu_;
  bool closed_ GUARDED_BY(mu_) = false;
  std::shared_ptr<Session> session_ GUARDED_BY(mu_);
  std::shared_ptr<Events> events_ GUARDED_BY(mu_);
};

Status Cancelled() { return Status::Cancelled("the stream was cancelled by the client"); }

class InprocInsert final : public InsertStream, public InsertPeer {
 public:
  explicit InprocInsert(std::shared_ptr<InsertEvents> events) : link_(std::move(events)) {}
  void Opened(Result<std::shared_ptr<InsertSession>> session) { link_.Opened(std::move(session)); }

  InsertStream::Sent Send(InsertMessage message) override {
    const std::shared_ptr<InsertSession> session = link_.session();
    if (!session) return {};
    session->OnMessage(std::move(message));
    return {.bytes = 0, .ready = true};
  }
  uint64_t NewBytes(const Trajectory&) const override { return 0; }
  void Finish() override {
    if (const auto session = link_.session()) session->OnDone();
  }
  void Cancel() override { link_.Close(Cancelled()); }

  void ReadNext() override {}
  bool Reply(InsertReply reply) override {
    const std::shared_ptr<InsertEvents> events = link_.events();
    if (events) events->OnReply(std::move(reply));
    return events != nullptr;
  }
  void End(Status status) override { link_.Close(std::move(status)); }

 private:
  Link<InsertSession, InsertEvents> link_;
};

class InprocSample final : public SampleStream, public SamplePeer {
 public:
  explicit InprocSample(std::shared_ptr<SampleEvents> events) : link_(std::move(events)) {}
  void Opened(Result<std::shared_ptr<SampleSession>> session) { link_.Opened(std::move(session)); }

  void Send(SampleRequest request) override {
    if (const auto session = link_.session()) session->OnRequest(std::move(request));
  }
  void Finish() override {
    if (const auto session = link_.session()) session->OnDone();
  }
  void Cancel() override { link_.Close(Cancelled()); }

  bool shares_memory() const override { return true; }
  void ReadNext() override {}
  SamplePeer::Sent Reply(SampleReply reply) override {
    const std::shared_ptr<SampleEvents> events = link_.events();
    if (events) events->OnReply(std::move(reply), 0);
    return {.bytes = 0, .ready = events != nullptr};
  }
  void End(Status status) override { link_.Close(std::move(status)); }

 private:
  Link<SampleSession, SampleEvents> link_;
};

// The result of an operation on a row table, for the thread that waits for it.
class RowsOutcome {
 public:
  bool Set(Result<RowsReply> reply) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    if (is_abandoned_) return false;
    reply_ = std::move(reply);
    is_set_.NotifyAll();
    return true;
  }
  Result<RowsReply> Await(PendingCall* pending, const WaitOptions& wait) EXCLUDES(mu_) {
    constexpr std::chrono::milliseconds kWaitStep(50);
    const auto start = std::chrono::steady_clock::now();
    Status given_up;
    {
      MutexLock lock(&mu_);
      while (!reply_ && given_up.ok()) {
        if (is_set_.WaitFor(&mu_, kWaitStep) || reply_) continue;
        mu_.Unlock();
        if (wait.on_wait) given_up = wait.on_wait();
        // Zero lets the operation try once, which it has done by now.
        if (given_up.ok() && wait.timeout && std::chrono::steady_clock::now() - start >= *wait.timeout) {
          given_up = Status::DeadlineExceeded("the operation on the row table took longer than allowed");
        }
        mu_.Lock();
      }
      if (reply_) return *std::move(reply_);
      is_abandoned_ = true;
    }
    if (pending != nullptr) pending->Cancel();
    return given_up;
  }

 private:
  Mutex mu_;
  CondVar is_set_;
  std::optional<Result<RowsReply>> reply_ GUARDED_BY(mu_);
  bool is_abandoned_ GUARDED_BY(mu_) = false;
};

class InprocConnection final : public Connection {
 public:
  explicit InprocConnection(std::shared_ptr<RequestHandler> handler) : handler_(std::move(handler)) {}

  std::string address() const override { return "this process"; }
  bool in_process() const override { return true; }
  PayloadSource* payload_source() override { return handler_->payload_source(); }

  std::shared_ptr<InsertStream> OpenInsert(const Hello& hello,
                                           std::shared_ptr<InsertEvents> events) override {
    auto stream = std::make_shared<InprocInsert>(std::move(events));
    const Status status = Check();
    stream->Opened(status.ok() ? handler_->OpenInsert(hello, stream) : status);
    return stream;
  }
  std::shared_ptr<SampleStream> OpenSample(const Hello& hello,
                                           std::shared_ptr<SampleEvents> events) override {
    auto stream = std::make_shared<InprocSample>(std::move(events));
    const Status status = Check();
    stream->Opened(status.ok() ? handler_->OpenSample(hello, stream) : status);
    return stream;
  }

  Result<ServerInfo> Info(const WaitOptions&) override {
    REVERB_RETURN_IF_ERROR(Check());
    return handler_->Info();
  }
  Status Mutate(const MutateRequest& request, const WaitOptions&) override {
    REVERB_RETURN_IF_ERROR(Check());
    return handler_->Mutate(request);
  }
  Status Reset(std::string_view table, const WaitOptions&) override {
    REVERB_RETURN_IF_ERROR(Check());
    return handler_->Reset(table);
  }
  Status SetRateLimiter(const SetRateLimiterRequest& request, const WaitOptions&) override {
    REVERB_RETURN_IF_ERROR(Check());
    return handler_->SetRateLimiter(request);
  }
  Status CreateTable(const CreateTableRequest& request, const WaitOptions&) override {
    REVERB_RETURN_IF_ERROR(Check());
    return handler_->CreateTable(request);
  }
  Status RemoveTable(std::string_view table, const WaitOptions&) override {
    REVERB_RETURN_IF_ERROR(Check());
    return handler_->RemoveTable(table);
  }
  Status ChangeTable(const ChangeTableRequest& request, const WaitOptions&) override {
    REVERB_RETURN_IF_ERROR(Check());
    return handler_->ChangeTable(request);
  }
  Result<InspectReply> Inspect(const InspectRequest& request, const WaitOptions&) override {
    REVERB_RETURN_IF_ERROR(Check());
    return handler_->Inspect(request);
  }
  Result<std::string> Checkpoint(const WaitOptions&) override {
    REVERB_RETURN_IF_ERROR(Check());
    return handler_->Checkpoint();
  }
  Result<LeaseOutcome> SettleLeases(const SettleLeasesRequest& request, const WaitOptions&) override {
    REVERB_RETURN_IF_ERROR(Check());
    return handler_->SettleLeases(request);
  }
  Result<RowsReply> Rows(const RowsRequest& request, const WaitOptions& wait) override {
    REVERB_RETURN_IF_ERROR(Check());
    // Shared: an operation that is cancelled below may still be finishing on another thread.
    const auto outcome = std::make_shared<RowsOutcome>();
    REVERB_ASSIGN_OR_RETURN(RowsRequest whole, EncodeParts(request));
    const std::shared_ptr<PendingCall> pending = handler_->StartRows(
        std::move(whole), [outcome](Result<RowsReply> reply) { return outcome->Set(std::move(reply)); });
    return outcome->Await(pending.get(), wait);
  }
  std::shared_ptr<PendingCall> StartRows(RowsRequest request, RowsReplied done) override {
    if (Status status = Check(); !status.ok()) {
      done(std::move(status), /*was_sent=*/false);
      return nullptr;
    }
    return handler_->StartRows(std::move(request), [done = std::move(done)](Result<RowsReply> reply) {
      done(std::move(reply), /*was_sent=*/true);
      return true;  // a caller who has given up gives back what it got
    });
  }

 private:
  // A child created by fork() has a copy of the server's memory that no thread serves: inserted data would be
  // lost without an error.
  Status Check() const {
    if (generation_ == ForkGeneration()) return Status::Ok();
    return Status::FailedPrecondition(
        "this client uses a server of its own process without a socket, and the process was forked; in the "
        "child, connect "
        "to the server's address");
  }

  const std::shared_ptr<RequestHandler> handler_;
  const uint64_t generation_ = ForkGeneration();
};

// The servers of this process. A child created by fork() inherits none.
struct Registry {
  Mutex mu;
  std::map<Id128, std::weak_ptr<RequestHandler>> servers GUARDED_BY(mu);
};
constinit PerProcess<Registry> registries;
Registry& TheRegistry() { return registries.get(); }

std::shared_ptr<RequestHandler> FindServer(const Id128& life_id) {
  Registry& registry = TheRegistry();
  MutexLock lock(&registry.mu);
  const auto found = registry.servers.find(life_id);
  return found == registry.servers.end() ? nullptr : found->second.lock();
}

}  // namespace

void RegisterInprocServer(const std::shared_ptr<RequestHandler>& handler) {
  Registry& registry = TheRegistry();
  MutexLock lock(&registry.mu);
  registry.servers[handler->life_id()] = handler;
}

void UnregisterInprocServer(const Id128& life_id) {
  Registry& registry = TheRegistry();
  MutexLock lock(&registry.mu);
  registry.servers.erase(life_id);
}

bool HasInprocServers() {
  Registry& registry = TheRegistry();
  MutexLock lock(&registry.mu);
  return !registry.servers.empty();
}

bool IsInprocServer(const Id128& life_id) { return FindServer(life_id) != nullptr; }

std::shared_ptr<Connection> ConnectInproc(const Id128& life_id) {
  std::shared_ptr<RequestHandler> handler = FindServer(life_id);
  return handler ? ConnectInproc(std::move(handler)) : nullptr;
}

std::shared_ptr<Connection> ConnectInproc(std::shared_ptr<RequestHandler> handler) {
  return std::make_shared<InprocConnection>(std::move(handler));
}

}  // namespace reverb::internal
