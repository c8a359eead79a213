#include "access/checked_streams.h"

#include <deque>
#include <string>
#include <utility>

#include "access/rights.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace reverb::internal {
namespace {

// Keeps a stream counted and registered while it is open.
class OpenStream {
 public:
  static Result<std::unique_ptr<OpenStream>> Enter(std::shared_ptr<AccessControl> control,
                                                   StreamClient client, std::function<void(Status)> end) {
    REVERB_RETURN_IF_ERROR(client.usage.EnterStream());
    std::unique_ptr<OpenStream> stream(new OpenStream(std::move(control), std::move(client)));
    if (stream->client_.token == nullptr) return stream;
    REVERB_ASSIGN_OR_RETURN(stream->id_, stream->control_->AddStream(stream->client_.token, std::move(end)));
    return stream;
  }
  ~OpenStream() {
    if (id_ != 0) control_->RemoveStream(id_);
    client_.usage.LeaveStream();
  }
  OpenStream(const OpenStream&) = delete;
  OpenStream& operator=(const OpenStream&) = delete;

  const AccessToken* token() const { return client_.token.get(); }

 private:
  OpenStream(std::shared_ptr<AccessControl> control, StreamClient client)
      : control_(std::move(control)), client_(std::move(client)) {}

  const std::shared_ptr<AccessControl> control_;
  const StreamClient client_;
  uint64_t id_ = 0;  // 0: not registered
};

// Remembers which table was permitted last: most streams use one.
class TableCheck {
 public:
  Status Check(const AccessToken* token, Method method, const std::string& table) {
    if (token == nullptr || token->is_for_all_tables() || (was_checked_ && table == last_))
      return Status::Ok();
    REVERB_RETURN_IF_ERROR(token->Check(*NeedOf(method), MethodName(method), table));
    was_checked_ = true;
    last_ = table;
    return Status::Ok();
  }

 private:
  bool was_checked_ = false;
  std::string last_;
};

// --- Insert ---------------------------------------------------------------------------------------

// The peer that the service sees if bytes are limited: delays reading. The bytes of a message wait until its last
// item is confirmed.
class LimitedInsertPeer final : public InsertPeer, public std::enable_shared_from_this<LimitedInsertPeer> {
 public:
  LimitedInsertPeer(Usage usage, std::shared_ptr<InsertPeer> peer)
      : usage_(std::move(usage)), peer_(std::move(peer)) {}

  void ReadNext() override {
    const Duration pause = usage_.Charge(0, RealClock()->Now());
    CallAfter(pause, [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (self == nullptr) return;
      self->usage_.WhenRoom([weak] {
        if (const auto reader = weak.lock()) reader->peer_->ReadNext();
      });
    });
  }
  bool Reply(InsertReply reply) override {
    Release(reply.confirmed_through);
    return peer_->Reply(std::move(reply));
  }
  void End(Status status) override { peer_->End(std::move(status)); }
  std::string address() const override { return peer_->address(); }

  void OnMessage(const InsertMessage& message, uint64_t bytes) {
    (void)usage_.Charge(bytes, RealClock()->Now());
    if (message.items.empty()) return;
    {
      MutexLock lock(&mu_);
      waiting_.push_back({message.items.back().number, static_cast<int64_t>(bytes)});
    }
    usage_.AddWaiting(static_cast<int64_t>(bytes));
  }
  void OnGone() { Release(UINT64_MAX); }

 private:
  struct WaitingMessage {
    uint64_t last_item;
    int64_t bytes;
  };
  void Release(uint64_t confirmed_through) EXCLUDES(mu_) {
    int64_t bytes = 0;
    {
      MutexLock lock(&mu_);
      while (!waiting_.empty() && waiting_.front().last_item <= confirmed_through) {
        bytes += waiting_.front().bytes;
        waiting_.pop_front();
      }
    }
    if (bytes > 0) usage_.AddWaiting(-bytes);
  }

  const Usage usage_;
  const std::shared_ptr<InsertPeer> peer_;
  Mutex mu_;
  std::deque<WaitingMessage> waiting_ GUARDED_BY(mu_);
};

class CheckedInsert final : public InsertSession {
 public:
  CheckedInsert(std::unique_ptr<OpenStream> stream, std::shared_ptr<InsertPeer> peer,
                std::shared_ptr<LimitedInsertPeer> limited,
                std::shared_ptr<std::atomic<uint64_t>> received_bytes)
      : stream_(std::move(stream)),
        peer_(std::move(peer)),
        limited_(std::move(limited)),
        received_bytes_(std::move(received_bytes)) {}
  void SetInner(std::shared_ptr<InsertSession> inner) { inner_ = std::move(inner); }

  void OnMessage(InsertMessage message) override {
    if (is_refused_) return;
    for (const Item& item : message.items) {
      Status status = tables_.Check(stream_->token(), Method::kInsert, item.table);
      if (status.ok()) continue;
      is_refused_ = true;
      return peer_->End(std::move(status));
    }
    if (limited_ != nullptr) limited_->OnMessage(message, received_bytes_->exchange(0));
    inner_->OnMessage(std::move(message));
  }
  void OnWritten() override { inner_->OnWritten(); }
  void OnDone() override { inner_->OnDone(); }
  void OnGone() override {
    inner_->OnGone();
    if (limited_ != nullptr) limited_->OnGone();
    stream_.reset();
  }

 private:
  std::unique_ptr<OpenStream> stream_;
  const std::shared_ptr<InsertPeer> peer_;
  const std::shared_ptr<LimitedInsertPeer> limited_;  // null if no bytes are limited
  const std::shared_ptr<std::atomic<uint64_t>> received_bytes_;
  std::shared_ptr<InsertSession> inner_;
  // Used by OnMessage(), of which there is one at a time.
  TableCheck tables_;
  bool is_refused_ = false;
};

// --- Sample ---------------------------------------------------------------------------------------

// The peer that the service sees if bytes are limited: delays OnWritten(), after which the next samples are drawn.
class LimitedSamplePeer final : public SamplePeer, public std::enable_shared_from_this<LimitedSamplePeer> {
 public:
  LimitedSamplePeer(Usage usage, std::shared_ptr<SamplePeer> peer)
      : usage_(std::move(usage)), peer_(std::move(peer)) {}
  void SetSession(const std::shared_ptr<SampleSession>& session) EXCLUDES(mu_) {
    bool is_due = false;
    {
      MutexLock lock(&mu_);
      session_ = session;
      is_due = std::exchange(is_written_early_, false);
    }
    if (is_due) session->OnWritten();
  }

  bool shares_memory() const override { return peer_->shares_memory(); }
  bool sends_references() const override { return peer_->sends_references(); }
  void ReadNext() override { peer_->ReadNext(); }
  Sent Reply(SampleReply reply) override {
    const Sent sent = peer_->Reply(std::move(reply));
    const Duration pause = usage_.Charge(sent.bytes, RealClock()->Now());
    if (sent.bytes == 0 || pause <= Duration(0)) return sent;
    if (!sent.ready) {
      MutexLock lock(&mu_);
      pause_ = pause;
    } else {
      CallAfter(pause, [weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->Written();
      });
    }
    return {.bytes = sent.bytes, .ready = false};
  }
  void End(Status status) override { peer_->End(std::move(status)); }
  std::string address() const override { return peer_->address(); }

  // The transport has written a reply.
  void OnWritten() EXCLUDES(mu_) {
    Duration pause{0};
    {
      MutexLock lock(&mu_);
      pause = std::exchange(pause_, Duration(0));
    }
    CallAfter(pause, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->Written();
    });
  }
  void OnGone() EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    session_.reset();
  }

 private:
  void Written() EXCLUDES(mu_) {
    std::shared_ptr<SampleSession> session;
    {
      MutexLock lock(&mu_);
      session = session_.lock();
      if (session == nullptr) is_written_early_ = true;
    }
    if (session != nullptr) session->OnWritten();
  }

  const Usage usage_;
  const std::shared_ptr<SamplePeer> peer_;
  Mutex mu_;
  Duration pause_ GUARDED_BY(mu_){0};  // after the reply that is being written
  bool is_written_early_ GUARDED_BY(mu_) = false;
  std::weak_ptr<SampleSession> session_ GUARDED_BY(mu_);
};

class CheckedSample final : public SampleSession {
 public:
  CheckedSample(std::unique_ptr<OpenStream> stream, std::shared_ptr<SamplePeer> peer,
                std::shared_ptr<LimitedSamplePeer> limited)
      : stream_(std::move(stream)), peer_(std::move(peer)), limited_(std::move(limited)) {}
  void SetInner(const std::shared_ptr<SampleSession>& inner) {
    inner_ = inner;
    if (limited_ != nullptr) limited_->SetSession(inner);
  }

  void OnRequest(SampleRequest request) override {
    if (is_refused_) return;
    // A request without a table returns credit, or ends the stream.
    if (!request.table.empty()) {
      Status status = tables_.Check(stream_->token(), Method::kSample, request.table);
      if (!status.ok()) {
        is_refused_ = true;
        return peer_->End(std::move(status));
      }
    }
    inner_->OnRequest(std::move(request));
  }
  void OnWritten() override { limited_ != nullptr ? limited_->OnWritten() : inner_->OnWritten(); }
  void OnDone() override { inner_->OnDone(); }
  void OnGone() override {
    if (limited_ != nullptr) limited_->OnGone();
    inner_->OnGone();
    stream_.reset();
  }

 private:
  std::unique_ptr<OpenStream> stream_;
  const std::shared_ptr<SamplePeer> peer_;
  const std::shared_ptr<LimitedSamplePeer> limited_;  // null if no bytes are limited
  std::shared_ptr<SampleSession> inner_;
  // Used by OnRequest(), of which there is one at a time.
  TableCheck tables_;
  bool is_refused_ = false;
};

template <typename Peer>
std::function<void(Status)> EndOf(const std::shared_ptr<Peer>& peer) {
  return [weak = std::weak_ptr<Peer>(peer)](Status why) {
    if (const std::shared_ptr<Peer> open = weak.lock()) open->End(std::move(why));
  };
}

}  // namespace

void CallAfter(Duration pause, std::function<void()> call) {
  if (pause <= Duration(0)) return call();
  RealClock()->CallAt(RealClock()->Now() + pause, std::move(call));
}

Result<std::shared_ptr<InsertSession>> OpenCheckedInsert(
    const std::shared_ptr<AccessControl>& control, RequestHandler* handler, StreamClient client,
    const Hello& hello, std::shared_ptr<InsertPeer> peer,
    std::shared_ptr<std::atomic<uint64_t>> received_bytes) {
  const bool is_limited = client.usage.limits_bytes();
  auto limited = is_limited ? std::make_shared<LimitedInsertPeer>(client.usage, peer) : nullptr;
  REVERB_ASSIGN_OR_RETURN(std::unique_ptr<OpenStream> stream,
                          OpenStream::Enter(control, std::move(client), EndOf(peer)));
  auto session = std::make_shared<CheckedInsert>(std::move(stream), peer, limited, std::move(received_bytes));
  REVERB_ASSIGN_OR_RETURN(std::shared_ptr<InsertSession> inner,
                          handler->OpenInsert(hello, is_limited ? limited : std::move(peer)));
  session->SetInner(std::move(inner));
  return std::shared_ptr<InsertSession>(std::move(session));
}

Result<std::shared_ptr<SampleSession>> OpenCheckedSample(const std::shared_ptr<AccessControl>& control,
                                                         RequestHandler* handler, StreamClient client,
                                                         const Hello& hello,
                                                         std::shared_ptr<SamplePeer> peer) {
  const bool is_limited = client.usage.limits_bytes();
  auto limited = is_limited ? std::make_shared<LimitedSamplePeer>(client.usage, peer) : nullptr;
  REVERB_ASSIGN_OR_RETURN(std::unique_ptr<OpenStream> stream,
                          OpenStream::Enter(control, std::move(client), EndOf(peer)));
  auto session = std::make_shared<CheckedSample>(std::move(stream), peer, limited);
  REVERB_ASSIGN_OR_RETURN(const std::shared_ptr<SampleSession> inner,
                          handler->OpenSample(hello, is_limited ? limited : std::move(peer)));
  session->SetInner(inner);
  return std::shared_ptr<SampleSession>(std::move(session));
}

}  // namespace reverb::internal
