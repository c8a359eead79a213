// transport_testing.h — fakes that record both ends of a transport.
#ifndef REVERB_TRANSPORT_TRANSPORT_TESTING_H_
#define REVERB_TRANSPORT_TRANSPORT_TESTING_H_

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/memory_budget.h"
#include "base/mutex.h"
#include "transport/transport.h"
#include "transport/wire_testing.h"

namespace reverb::internal {

// Far longer than any operation takes; a test that waits this long has failed.
inline constexpr Duration kLong = std::chrono::seconds(60);

// --- Waiting --------------------------------------------------------------------------------------

// A queue of events that a test waits for.
template <typename T>
class Mailbox {
 public:
  void Put(T value) {
    MutexLock lock(&mu_);
    values_.push_back(std::move(value));
    ++total_;
    changed_.NotifyAll();
  }
  std::optional<T> Take(Duration timeout = kLong) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    MutexLock lock(&mu_);
    while (values_.empty()) {
      const auto left = deadline - std::chrono::steady_clock::now();
      if (left <= left.zero()) return std::nullopt;
      changed_.WaitFor(&mu_, left);
    }
    std::optional<T> value(std::move(values_.front()));
    values_.pop_front();
    return value;
  }
  int64_t total() const {
    MutexLock lock(&mu_);
    return total_;
  }

 private:
  mutable Mutex mu_;
  CondVar changed_;
  std::deque<T> values_ GUARDED_BY(mu_);
  int64_t total_ GUARDED_BY(mu_) = 0;
};

#define TAKE_OR_FAIL(name, mailbox)                        \
  auto name##_taken = (mailbox).Take();                    \
  ASSERT_TRUE(name##_taken.has_value()) << "nothing came"; \
  auto& name = *name##_taken

// Waits until nothing else holds the object. For ends that cause no event.
template <typename T>
bool SoonUnshared(const std::shared_ptr<T>& object) {
  const auto deadline = std::chrono::steady_clock::now() + kLong;
  while (object.use_count() > 1 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  return object.use_count() == 1;
}

// --- Fake server ----------------------------------------------------------------------------------

struct InsertSessionFake final : InsertSession {
  explicit InsertSessionFake(std::shared_ptr<InsertPeer> p) : peer(std::move(p)) {}
  void OnMessage(InsertMessage message) override {
    if (on_message) on_message();
    messages.Put(std::move(message));
    if (keep_reading) peer->ReadNext();
  }
  void OnWritten() override { written.Put(true); }
  void OnDone() override {
    done.Put(true);
    if (end_when_done) peer->End(Status::Ok());
  }
  void OnGone() override { gone.Put(true); }

  const std::shared_ptr<InsertPeer> peer;
  std::atomic<bool> keep_reading{true};
  std::atomic<bool> end_when_done{true};
  std::function<void()> on_message;
  Mailbox<InsertMessage> messages;
  Mailbox<bool> written, done, gone;
};

struct SampleSessionFake final : SampleSession {
  explicit SampleSessionFake(std::shared_ptr<SamplePeer> p) : peer(std::move(p)) {}
  void OnRequest(SampleRequest request) override {
    requests.Put(std::move(request));
    peer->ReadNext();
  }
  void OnWritten() override {
    if (on_written) on_written();
    written.Put(true);
  }
  void OnDone() override {
    done.Put(true);
    peer->End(Status::Ok());
  }
  void OnGone() override { gone.Put(true); }

  const std::shared_ptr<SamplePeer> peer;
  std::function<void()> on_written;
  Mailbox<SampleRequest> requests;
  Mailbox<bool> written, done, gone;
};

class HandlerFake final : public RequestHandler {
 public:
  const Id128& life_id() const override { return life_id_; }
  const WireLimits& wire_limits() const override { return limits; }
  MemoryBudget* memory() const override { return budget; }

  Result<std::shared_ptr<InsertSession>> OpenInsert(const Hello& hello,
                                                    std::shared_ptr<InsertPeer> peer) override {
    hellos.Put(hello);
    if (!refusal.ok()) return refusal;
    auto session = std::make_shared<InsertSessionFake>(peer);
    if (prepare) prepare(session.get());
    inserts.Put(session);
    peer->ReadNext();
    if (welcome) peer->Reply({.welcome = test::ExampleWelcome()});
    return std::shared_ptr<InsertSession>(session);
  }
  Result<std::shared_ptr<SampleSession>> OpenSample(const Hello& hello,
                                                    std::shared_ptr<SamplePeer> peer) override {
    hellos.Put(hello);
    auto session = std::make_shared<SampleSessionFake>(peer);
    peer->ReadNext();
    peer->Reply({.welcome = test::ExampleWelcome()});
    samples.Put(session);  // last: one reply at a time
    return std::shared_ptr<SampleSession>(session);
  }
  Result<ChunkRef> AllocateChunk(const ChunkHeader& header, uint8_t** payload) override {
    return Chunk::Uninitialized(next_chunk_++, header, payload, {}, payload_source);
  }
  Result<ServerInfo> Info() override {
    if (on_info) on_info();
    return test::Filled<ServerInfo>();
  }
  Status Mutate(const MutateRequest& request) override {
    mutations.Put(request);
    if (on_mutate) on_mutate();
    return answer;
  }
  Status Reset(std::string_view table) override {
    texts.Put(std::string(table));
    return answer;
  }
  Status SetRateLimiter(const SetRateLimiterRequest& request) override {
    texts.Put(request.table);
    return answer;
  }
  Status CreateTable(const CreateTableRequest& request) override {
    texts.Put(test::Describe(request));
    return answer;
  }
  Status RemoveTable(std::string_view table) override {
    texts.Put(std::string(table));
    return answer;
  }
  Status ChangeTable(const ChangeTableRequest& request) override {
    texts.Put(test::Describe(request));
    return answer;
  }
  Result<InspectReply> Inspect(const InspectRequest& request) override {
    if (on_inspect) on_inspect();
    texts.Put(request.table);
    return inspected;
  }
  bool inspect_may_block() const override { return inspect_blocks; }
  Result<LeaseOutcome> SettleLeases(const SettleLeasesRequest& request) override {
    last_settled = request;
    return LeaseOutcome{.settled = static_cast<int64_t>(request.acks.size()),
                        .gone = static_cast<int64_t>(request.releases.size()),
                        .expired = static_cast<int64_t>(request.extends.size())};
  }
  SettleLeasesRequest last_settled;
  Result<std::string> Checkpoint() override {
    if (on_checkpoint) on_checkpoint();
    return std::string("/tmp/checkpoint-1");
  }

  std::shared_ptr<PendingCall> StartRows(RowsRequest request, const RowsDone& done) override {
    if (on_rows) {
      (void)done(on_rows(std::move(request)));
      return nullptr;
    }
    struct Waiting final : PendingCall {
      explicit Waiting(RowsDone d) : done(std::move(d)) {}
      void Cancel() override { (void)done(Status::Cancelled("the call was cancelled")); }
      const RowsDone done;
    };
    rows.Put(done);
    return std::make_shared<Waiting>([this, done](Result<RowsReply> reply) {
      cancelled_rows.Put(true);
      return done(std::move(reply));
    });
  }

  // Set before the server starts.
  WireLimits limits;
  MemoryBudget* budget = nullptr;
  bool welcome = true;
  Status refusal;
  Status answer;
  InspectReply inspected;
  std::function<void(InsertSessionFake*)> prepare;
  bool inspect_blocks = false;
  std::function<void()> on_info, on_checkpoint, on_mutate, on_inspect;
  std::function<Result<RowsReply>(RowsRequest)> on_rows;  // if empty, calls wait in `rows`
  PayloadSource* payload_source = nullptr;                // of received chunks

  Mailbox<Hello> hellos;
  Mailbox<std::shared_ptr<InsertSessionFake>> inserts;
  Mailbox<std::shared_ptr<SampleSessionFake>> samples;
  Mailbox<MutateRequest> mutations;
  Mailbox<std::string> texts;
  Mailbox<RowsDone> rows;
  Mailbox<bool> cancelled_rows;

 private:
  const Id128 life_id_ = test::Filled<ServerInfo>().server_life_id;
  std::atomic<uint64_t> next_chunk_{1'000'000};
};

// --- Fake clients ---------------------------------------------------------------------------------

struct InsertEventsFake final : InsertEvents {
  void OnReply(InsertReply reply) override { replies.Put(std::move(reply)); }
  void OnSent() override {
    sent.Put(true);
    if (on_sent) on_sent();
  }
  void OnClosed(Status status) override { closed.Put(std::move(status)); }

  std::function<void()> on_sent;
  Mailbox<InsertReply> replies;
  Mailbox<bool> sent;
  Mailbox<Status> closed;
};

struct SampleEventsFake final : SampleEvents {
  struct Got {
    SampleReply reply;
    uint64_t bytes = 0;
  };
  void OnReply(SampleReply reply, uint64_t bytes) override { replies.Put({std::move(reply), bytes}); }
  void OnClosed(Status status) override { closed.Put(std::move(status)); }

  Mailbox<Got> replies;
  Mailbox<Status> closed;
};

// --- Fixture --------------------------------------------------------------------------------------

// A connection to a HandlerFake.
class TransportTest : public testing::Test {
 protected:
  // An open insert stream with both of its ends.
  struct Insert {
    std::shared_ptr<InsertEventsFake> events = std::make_shared<InsertEventsFake>();
    std::shared_ptr<InsertStream> stream;
    std::shared_ptr<InsertSessionFake> session;
  };
  Insert OpenInsert() {
    Insert insert;
    insert.stream = connection_->OpenInsert(test::ExampleHello(), insert.events);
    insert.session = handler_->inserts.Take().value_or(nullptr);
    return insert;
  }
  struct SampleEnds {
    std::shared_ptr<SampleEventsFake> events = std::make_shared<SampleEventsFake>();
    std::shared_ptr<SampleStream> stream;
    std::shared_ptr<SampleSessionFake> session;
  };
  SampleEnds OpenSample() {
    SampleEnds sample;
    sample.stream = connection_->OpenSample(test::ExampleHello(), sample.events);
    sample.session = handler_->samples.Take().value_or(nullptr);
    return sample;
  }

  static InsertMessage MessageOf(uint64_t number, Trajectory trajectory) {
    InsertMessage message;
    message.items.push_back({.number = number,
                             .key = number * 7,
                             .table = "replay",
                             .priority = 1.5,
                             .trajectory = std::move(trajectory)});
    return message;
  }
  static InsertMessage Heartbeat() { return {.heartbeat = true}; }

  std::shared_ptr<HandlerFake> handler_ = std::make_shared<HandlerFake>();
  std::shared_ptr<Connection> connection_;
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_TRANSPORT_TESTING_H_
