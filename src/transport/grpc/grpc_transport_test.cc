#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/random.h"
#include "testing/effort.h"
#include "testing/status_matchers.h"
#include "transport/grpc/grpc_connection.h"
#include "transport/grpc/grpc_internal.h"
#include "transport/grpc/grpc_server.h"
#include "transport/transport.h"
#include "transport/wire_testing.h"

namespace reverb::internal {
namespace {

using namespace std::chrono_literals;  // NOLINT: literals only
using test::AllKinds;
using test::Contents;
using test::MakeChunk;
using test::StatusIs;
using testing::AllOf;
using testing::HasSubstr;

// Far more than anything takes; a test that waits so long has failed.
constexpr Duration kLong = 60s;

// --- Waiting --------------------------------------------------------------------------------------

// What happened, in order, for a test to wait for.
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

// For what leaves no event behind.
template <typename T>
bool SoonUnshared(const std::shared_ptr<T>& object) {
  const auto deadline = std::chrono::steady_clock::now() + kLong;
  while (object.use_count() > 1 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  return object.use_count() == 1;
}

// --- A server that records ------------------------------------------------------------------------

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
    samples.Put(session);
    peer->ReadNext();
    peer->Reply({.welcome = test::ExampleWelcome()});
    return std::shared_ptr<SampleSession>(session);
  }
  Result<ChunkRef> AllocateChunk(const ChunkHeader& header, uint8_t** payload) override {
    return Chunk::Uninitialized(next_chunk_++, header, payload);
  }
  Result<ServerInfo> Info() override {
    if (on_info) on_info();
    return test::Filled<ServerInfo>();
  }
  Status Mutate(const MutateRequest& request) override {
    mutations.Put(request);
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
  Result<InspectReply> Inspect(const InspectRequest& request) override {
    texts.Put(request.table);
    return inspected;
  }
  Result<std::string> Checkpoint() override {
    if (on_checkpoint) on_checkpoint();
    return std::string("/tmp/checkpoint-1");
  }

  // To be set before the server starts.
  WireLimits limits;
  bool welcome = true;
  Status refusal;
  Status answer;
  InspectReply inspected;
  std::function<void(InsertSessionFake*)> prepare;
  std::function<void()> on_info, on_checkpoint;

  Mailbox<Hello> hellos;
  Mailbox<std::shared_ptr<InsertSessionFake>> inserts;
  Mailbox<std::shared_ptr<SampleSessionFake>> samples;
  Mailbox<MutateRequest> mutations;
  Mailbox<std::string> texts;

 private:
  const Id128 life_id_ = test::Filled<ServerInfo>().server_life_id;
  std::atomic<uint64_t> next_chunk_{1'000'000};
};

// --- Clients that record --------------------------------------------------------------------------

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

// A stream of plain bytes, for what our own client never sends.
class RawStream final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  RawStream(const std::string& address, const std::string& method) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    grpc::GenericStub stub(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
    stub.PrepareBidiStreamingCall(&context_, method, {}, this);
    AddHold();
    StartRead(&in_);
    StartCall();
  }
  ~RawStream() override {
    context_.TryCancel();
    if (!over_) (void)Wait();
  }

  void Send(WireMessage message) {
    message.Seal(num_sent_++);
    Send(message.Flatten());
  }
  // Waits until it was written.
  void Send(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    out_ = grpc::ByteBuffer(&slice, 1);
    StartWrite(&out_);
    (void)written_.Take();
  }
  void Close() { StartWritesDone(); }
  std::optional<std::string> Receive() { return received_.Take(); }
  Status Wait() {
    over_ = true;
    RemoveHold();
    return FromGrpcStatus(status_.Take().value_or(grpc::Status(grpc::StatusCode::UNKNOWN, "nothing came")));
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    std::vector<grpc::Slice> slices;
    (void)in_.Dump(&slices);
    std::string bytes;
    for (const grpc::Slice& slice : slices) bytes.append(slice.begin(), slice.end());
    received_.Put(std::move(bytes));
    StartRead(&in_);
  }
  void OnWriteDone(bool ok) override { written_.Put(ok); }
  void OnDone(const grpc::Status& status) override { status_.Put(status); }

 private:
  grpc::ClientContext context_;
  grpc::ByteBuffer in_, out_;
  bool over_ = false;
  uint64_t num_sent_ = 0;  // with a checksum
  Mailbox<bool> written_;
  Mailbox<std::string> received_;
  Mailbox<grpc::Status> status_;
};

// --- Fixture --------------------------------------------------------------------------------------

class GrpcTransportTest : public testing::Test {
 protected:
  void StartServer(GrpcServer::Options options = {}) {
    if (options.address == GrpcServer::Options().address) options.address = "127.0.0.1:0";
    auto server = GrpcServer::Start(options, handler_);
    ASSERT_OK(server);
    server_ = *std::move(server);
    connection_ = ConnectGrpc(address()).value();
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(server_->port()); }
  // One where nobody listens.
  static std::string DeadAddress() {
    auto server = GrpcServer::Start({.address = "127.0.0.1:0"}, std::make_shared<HandlerFake>()).value();
    return "127.0.0.1:" + std::to_string(server->port());
  }

  // An open insert stream with both its ends.
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
  std::unique_ptr<GrpcServer> server_;
  std::shared_ptr<Connection> connection_;
};

// --- Single calls ---------------------------------------------------------------------------------

TEST_F(GrpcTransportTest, SingleCallsMakeTheRoundTrip) {
  Random random(1);
  const ChunkRef chunk = MakeChunk(1, AllKinds(), 10, &random);
  handler_->inspected = {.next_cursor = 3, .items = test::RandomSamples({chunk}, {0, 3, 6}, 2, &random)};
  StartServer();
  const auto info = connection_->Info({});
  ASSERT_OK(info);
  EXPECT_EQ(test::Describe(*info), test::Describe(test::Filled<ServerInfo>()));

  ASSERT_OK(connection_->Mutate(test::Filled<MutateRequest>(), {}));
  TAKE_OR_FAIL(mutation, handler_->mutations);
  EXPECT_EQ(test::Describe(mutation), test::Describe(test::Filled<MutateRequest>()));

  ASSERT_OK(connection_->Reset("some table", {.timeout = kLong}));
  EXPECT_EQ(handler_->texts.Take(), "some table");
  ASSERT_OK(connection_->SetRateLimiter(test::Filled<SetRateLimiterRequest>(), {.timeout = Duration(0)}));
  EXPECT_EQ(handler_->texts.Take(), test::Filled<SetRateLimiterRequest>().table);

  const auto inspected = connection_->Inspect(test::Filled<InspectRequest>(), {});
  ASSERT_OK(inspected);
  EXPECT_EQ(inspected->next_cursor, 3u);
  ASSERT_EQ(inspected->items.size(), 2u);
  EXPECT_EQ(Contents(inspected->items[1].trajectory), Contents(handler_->inspected.items[1].trajectory));

  EXPECT_THAT(connection_->Checkpoint({}), test::IsOkAndHolds("/tmp/checkpoint-1"));
  EXPECT_EQ(connection_->address(), address());
  EXPECT_FALSE(connection_->in_process());
}

TEST_F(GrpcTransportTest, ErrorsKeepTheirDetail) {
  handler_->answer =
      Status(StatusCode::kDeadlineExceeded, "table \"per\": no room, grüße", Detail::kRateLimited);
  StartServer();
  EXPECT_EQ(connection_->Reset("per", {.timeout = kLong}), handler_->answer);
}

TEST_F(GrpcTransportTest, VeryLongErrorTextsAreCut) {
  std::string text = "x";
  for (int i = 0; i < 40'000; ++i) text += "ü";
  handler_->answer = Status(StatusCode::kInvalidArgument, text, Detail::kInvalidPriority);
  StartServer();
  const Status status = connection_->Reset("per", {});
  EXPECT_THAT(status, StatusIs(StatusCode::kInvalidArgument, Detail::kInvalidPriority));
  EXPECT_GT(status.message().size(), 1000u);
  EXPECT_TRUE(text.starts_with(status.message()));
  EXPECT_EQ(status.message().size() % 2, 1u) << "cut inside a character";
}

TEST_F(GrpcTransportTest, ACallToNobodyEndsAtItsDeadline) {
  const std::string address = DeadAddress();
  const auto connection = ConnectGrpc(address).value();
  EXPECT_THAT(connection->Info({.timeout = 200ms}),
              StatusIs(StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("Info"), HasSubstr(address), HasSubstr("within 0.2 s"),
                             HasSubstr("could not be reached"))));
  EXPECT_THAT(connection->Reset("t", {.timeout = Duration(0)}),
              StatusIs(StatusCode::kUnavailable, HasSubstr(address)));
}

TEST_F(GrpcTransportTest, ACallThatIsNotAnsweredEndsAtItsDeadline) {
  Mailbox<bool> release;
  handler_->on_info = [&] { (void)release.Take(); };
  StartServer();
  ASSERT_OK(connection_->Reset("t", {}));  // connected
  EXPECT_THAT(connection_->Info({.timeout = 100ms}),
              StatusIs(StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr(address()), Not(HasSubstr("could not be reached")))));
  release.Put(true);
  server_->Stop(Duration(0));  // waits for the handler, which uses `release`
}

TEST_F(GrpcTransportTest, OnWaitMayGiveUp) {
  const auto connection = ConnectGrpc(DeadAddress()).value();
  int calls = 0;
  const auto caller = std::this_thread::get_id();
  const Status status =
      connection->Reset("t", {.timeout = {}, .on_wait = [&] {
                                EXPECT_EQ(std::this_thread::get_id(), caller);
                                return ++calls < 3 ? Status::Ok() : Status::Cancelled("a signal came");
                              }});
  EXPECT_THAT(status, StatusIs(StatusCode::kCancelled, "a signal came"));
  EXPECT_EQ(calls, 3);
}

TEST_F(GrpcTransportTest, ACallWaitsForTheServerToCome) {
  const std::string address = DeadAddress();
  const auto connection = ConnectGrpc(address).value();
  const Status status = connection->Reset("t", {.timeout = kLong, .on_wait = [&] {
                                                  if (server_ != nullptr) return Status::Ok();
                                                  auto server =
                                                      GrpcServer::Start({.address = address}, handler_);
                                                  if (!server.ok()) return server.status();
                                                  server_ = *std::move(server);
                                                  return Status::Ok();
                                                }});
  EXPECT_OK(status);
}

// --- Insert streams -------------------------------------------------------------------------------

TEST_F(GrpcTransportTest, AnInsertStreamCarriesItemsAndReplies) {
  StartServer();
  Insert insert = OpenInsert();
  ASSERT_NE(insert.session, nullptr);
  TAKE_OR_FAIL(hello, handler_->hellos);
  EXPECT_EQ(hello.client_name, test::ExampleHello().client_name);
  EXPECT_EQ(hello.session_id, test::ExampleHello().session_id);
  TAKE_OR_FAIL(welcome, insert.events->replies);
  ASSERT_TRUE(welcome.welcome.has_value());
  EXPECT_EQ(welcome.welcome->server_life_id, test::ExampleWelcome().server_life_id);
  ASSERT_TRUE(insert.session->written.Take());

  // One after the other in both directions; every fifth chunk is used again, large and small ones.
  Random random(7);
  const auto count = static_cast<uint64_t>(test::Effort(500, 100));
  std::vector<std::string> contents;
  ChunkRef chunk;
  for (uint64_t number = 1; number <= count; ++number) {
    if (number % 5 == 1) chunk = MakeChunk(number, AllKinds(), 1 + random.Below(20), &random);
    InsertMessage message = MessageOf(number, test::RandomTrajectory({chunk}, {0, 2, 3, 6, 9}, &random));
    contents.push_back(Contents(message.items[0].trajectory));
    const uint64_t expected = insert.stream->NewBytes(message.items[0].trajectory);
    const InsertStream::Sent sent = insert.stream->Send(std::move(message));
    EXPECT_FALSE(sent.ready);
    EXPECT_NEAR(static_cast<double>(sent.bytes), static_cast<double>(expected), 500);
    ASSERT_TRUE(insert.events->sent.Take());
  }
  for (uint64_t number = 1; number <= count; ++number) {
    TAKE_OR_FAIL(message, insert.session->messages);
    ASSERT_EQ(message.items.size(), 1u);
    EXPECT_EQ(message.items[0].number, number);
    EXPECT_EQ(message.items[0].key, number * 7);
    ASSERT_EQ(Contents(message.items[0].trajectory), contents[number - 1]) << "item " << number;
    EXPECT_FALSE(insert.session->peer->Reply({.confirmed_through = number}));
    ASSERT_TRUE(insert.session->written.Take());
  }
  for (uint64_t number = 1; number <= count; ++number) {
    TAKE_OR_FAIL(reply, insert.events->replies);
    EXPECT_EQ(reply.confirmed_through, number);
  }
  insert.stream->Finish();
  EXPECT_TRUE(insert.session->done.Take());
  EXPECT_TRUE(insert.session->gone.Take());
  TAKE_OR_FAIL(status, insert.events->closed);
  EXPECT_OK(status);

  // All is over: calls to either end do nothing.
  EXPECT_EQ(insert.stream->Send(Heartbeat()).bytes, 0u);
  insert.stream->Finish();
  insert.stream->Cancel();
  insert.session->peer->ReadNext();
  insert.session->peer->Reply({});
  insert.session->peer->End(Status::Ok());
}

TEST_F(GrpcTransportTest, SendMayFollowTheOpeningAtOnce) {
  StartServer();
  auto events = std::make_shared<InsertEventsFake>();
  const auto stream = connection_->OpenInsert(test::ExampleHello(), events);
  stream->Send(Heartbeat());
  stream->Finish();
  TAKE_OR_FAIL(status, events->closed);
  EXPECT_OK(status);
  TAKE_OR_FAIL(session, handler_->inserts);
  TAKE_OR_FAIL(message, session->messages);
  EXPECT_TRUE(message.heartbeat);
}

TEST_F(GrpcTransportTest, StreamsOutliveTheirConnection) {
  StartServer();
  Insert insert = OpenInsert();
  connection_.reset();
  insert.stream->Send(Heartbeat());
  EXPECT_TRUE(insert.session->messages.Take());
  insert.stream->Finish();
  TAKE_OR_FAIL(status, insert.events->closed);
  EXPECT_OK(status);
}

TEST_F(GrpcTransportTest, NothingIsReadUntilTheSessionAsks) {
  handler_->prepare = [](InsertSessionFake* session) { session->keep_reading = false; };
  StartServer();
  Insert insert = OpenInsert();
  for (int i = 0; i < 5; ++i) {
    insert.stream->Send(Heartbeat());
    ASSERT_TRUE(insert.events->sent.Take());
  }
  ASSERT_TRUE(insert.session->messages.Take());
  // Another stream gets everything through meanwhile, on the same connection.
  Insert other = OpenInsert();
  other.session->keep_reading = true;
  for (int i = 0; i < 20; ++i) {
    other.stream->Send(Heartbeat());
    ASSERT_TRUE(other.session->messages.Take());
    ASSERT_TRUE(other.events->sent.Take());
  }
  EXPECT_EQ(insert.session->messages.total(), 1);
  insert.session->peer->ReadNext();
  insert.session->peer->ReadNext();
  ASSERT_TRUE(insert.session->messages.Take());
  ASSERT_TRUE(insert.session->messages.Take());
  EXPECT_EQ(insert.session->messages.total(), 3);
}

TEST_F(GrpcTransportTest, MessagesAreHandedOverOneAtATime) {
  std::atomic<int> inside{0}, most{0};
  handler_->prepare = [&](InsertSessionFake* session) {
    InsertPeer* const peer = session->peer.get();
    session->keep_reading = false;
    session->on_message = [&inside, &most, peer] {
      most = std::max(most.load(), ++inside);
      peer->ReadNext();  // the next one may come, but not before this has returned
      std::this_thread::yield();
      --inside;
    };
  };
  StartServer();
  Insert insert = OpenInsert();
  for (int i = 0; i < 200; ++i) {
    insert.stream->Send(Heartbeat());
    ASSERT_TRUE(insert.events->sent.Take());
  }
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(insert.session->messages.Take());
  EXPECT_EQ(most, 1);
}

TEST_F(GrpcTransportTest, EndComesAfterTheReplyUnderWay) {
  StartServer();
  for (int i = 0; i < 50; ++i) {
    Insert insert = OpenInsert();
    ASSERT_TRUE(insert.session->written.Take());
    insert.session->peer->Reply({.confirmed_through = 17});
    insert.session->peer->End(Status(StatusCode::kFailedPrecondition, "enough", Detail::kTableClosed));
    TAKE_OR_FAIL(welcome, insert.events->replies);
    EXPECT_TRUE(welcome.welcome.has_value());
    TAKE_OR_FAIL(reply, insert.events->replies);
    EXPECT_EQ(reply.confirmed_through, 17u);
    TAKE_OR_FAIL(status, insert.events->closed);
    EXPECT_THAT(status, StatusIs(StatusCode::kFailedPrecondition, Detail::kTableClosed, "enough"));
    EXPECT_TRUE(insert.session->gone.Take());
  }
}

TEST_F(GrpcTransportTest, ARefusedStreamIsClosedWithTheReason) {
  handler_->refusal = Status::FailedPrecondition("this server speaks version 9");
  StartServer();
  auto events = std::make_shared<InsertEventsFake>();
  const auto stream = connection_->OpenInsert(test::ExampleHello(), events);
  TAKE_OR_FAIL(status, events->closed);
  EXPECT_EQ(status, handler_->refusal);
}

TEST_F(GrpcTransportTest, CancelReachesTheSession) {
  StartServer();
  Insert insert = OpenInsert();
  insert.stream->Cancel();
  TAKE_OR_FAIL(status, insert.events->closed);
  EXPECT_THAT(status, StatusIs(StatusCode::kCancelled));
  EXPECT_TRUE(insert.session->gone.Take());
  EXPECT_EQ(insert.session->done.total(), 0);

  SampleEnds sample = OpenSample();
  sample.stream->Cancel();
  EXPECT_TRUE(sample.events->closed.Take());
  EXPECT_TRUE(sample.session->gone.Take());
}

TEST_F(GrpcTransportTest, AClientThatDiesLeavesNothingBehind) {
  StartServer();
  {
    RawStream raw(address(), kInsertMethod);
    raw.Send(EncodeInsertHello(test::ExampleHello()));
    ASSERT_TRUE(raw.Receive());
  }
  TAKE_OR_FAIL(session, handler_->inserts);
  EXPECT_TRUE(session->gone.Take());
}

TEST_F(GrpcTransportTest, AStreamToNobodyIsClosed) {
  const std::string address = DeadAddress();
  const auto connection = ConnectGrpc(address).value();
  auto events = std::make_shared<InsertEventsFake>();
  const auto stream = connection->OpenInsert(test::ExampleHello(), events);
  stream->Send(Heartbeat());
  TAKE_OR_FAIL(status, events->closed);
  EXPECT_THAT(status, StatusIs(StatusCode::kUnavailable, HasSubstr(address)));
  auto sample_events = std::make_shared<SampleEventsFake>();
  const auto sample = connection->OpenSample(test::ExampleHello(), sample_events);
  TAKE_OR_FAIL(sample_status, sample_events->closed);
  EXPECT_THAT(sample_status, StatusIs(StatusCode::kUnavailable, HasSubstr(address)));
}

// --- Sample streams -------------------------------------------------------------------------------

TEST_F(GrpcTransportTest, ASampleStreamCarriesRequestsAndSamples) {
  StartServer();
  SampleEnds sample = OpenSample();
  ASSERT_NE(sample.session, nullptr);
  TAKE_OR_FAIL(welcome, sample.events->replies);
  EXPECT_TRUE(welcome.reply.welcome.has_value());
  EXPECT_GT(welcome.bytes, 0u);
  ASSERT_TRUE(sample.session->written.Take());
  // Many at once: those that cannot leave are kept.
  for (uint64_t id = 1; id <= 200; ++id) {
    sample.stream->Send({.request_id = id, .table = "replay", .count = 10, .timeout = Duration(0)});
  }
  for (uint64_t id = 1; id <= 200; ++id) {
    TAKE_OR_FAIL(request, sample.session->requests);
    ASSERT_EQ(request.request_id, id);
    EXPECT_EQ(request.count, 10);
  }
  Random random(3);
  const ChunkRef chunk = MakeChunk(1, AllKinds(), 30, &random);
  for (uint64_t id = 1; id <= 20; ++id) {
    SampleReply reply{.request_id = id, .samples = test::RandomSamples({chunk}, {0, 2, 6, 9}, 8, &random)};
    const std::vector<Sample> want = reply.samples;
    const SamplePeer::Sent sent = sample.session->peer->Reply(std::move(reply));
    EXPECT_FALSE(sent.ready);
    ASSERT_TRUE(sample.session->written.Take());
    TAKE_OR_FAIL(got, sample.events->replies);
    EXPECT_EQ(got.bytes, sent.bytes) << "both sides count the same credit";
    EXPECT_EQ(got.reply.request_id, id);
    ASSERT_EQ(got.reply.samples.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(Contents(got.reply.samples[i].trajectory), Contents(want[i].trajectory));
    }
  }
  sample.stream->Finish();
  TAKE_OR_FAIL(status, sample.events->closed);
  EXPECT_OK(status);
  EXPECT_TRUE(sample.session->gone.Take());
}

TEST_F(GrpcTransportTest, TheFirstRequestMayComeWithTheGreeting) {
  StartServer();
  RawStream raw(address(), kSampleMethod);
  raw.Send(EncodeSampleRequest(test::ExampleSampleRequest()));
  TAKE_OR_FAIL(session, handler_->samples);
  TAKE_OR_FAIL(request, session->requests);
  EXPECT_EQ(request.table, test::ExampleSampleRequest().request.table);
  raw.Send(EncodeSampleRequest(test::ExampleSampleRequest()));
  EXPECT_THAT(raw.Wait(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("only the first")));
}

TEST_F(GrpcTransportTest, ALargeReplyTravelsInParts) {
  StartServer();
  SampleEnds sample = OpenSample();
  ASSERT_TRUE(sample.events->replies.Take());
  ASSERT_TRUE(sample.session->written.Take());
  Random random(3);
  const ChunkRef chunk = MakeChunk(1, {{DType::kUint8, {1 << 20}}}, 10, &random);
  for (uint64_t id = 1; id <= 3; ++id) {
    const Sample one{.trajectory = Trajectory::Single(chunk, 0, 10).value()};
    const SamplePeer::Sent sent = sample.session->peer->Reply({.request_id = id, .samples = {one}});
    TAKE_OR_FAIL(got, sample.events->replies);
    ASSERT_TRUE(sample.session->written.Take()) << "once, after the last part";
    EXPECT_EQ(sample.session->written.total(), static_cast<int64_t>(id) + 1);
    EXPECT_EQ(got.bytes, sent.bytes) << "both sides count the same credit";
    EXPECT_EQ(got.reply.request_id, id);
    EXPECT_EQ(Contents(got.reply.samples.at(0).trajectory), Contents(one.trajectory));
  }
}

// --- Damage on the way ---

TEST_F(GrpcTransportTest, DamagedAndLostMessagesEndTheStreamWithDataLoss) {
  StartServer();
  const auto corrupt = StatusIs(StatusCode::kDataLoss, Detail::kCorruptData, HasSubstr("on the way"));
  for (const bool is_lost : {false, true}) {
    RawStream raw(address(), kInsertMethod);
    raw.Send(EncodeInsertHello(test::ExampleHello()));
    TAKE_OR_FAIL(session, handler_->inserts);
    WireMessage heartbeat = InsertEncoder().Encode(Heartbeat());
    heartbeat.Seal(is_lost ? 2 : 1);
    std::string bytes = heartbeat.Flatten();
    if (!is_lost) bytes.back() = static_cast<char>(bytes.back() ^ 2);
    raw.Send(bytes);
    EXPECT_THAT(raw.Wait(), corrupt);
    EXPECT_TRUE(session->gone.Take());
    EXPECT_EQ(session->messages.total(), 0);
  }
  RawStream raw(address(), kSampleMethod);
  raw.Send(EncodeSampleRequest(test::ExampleSampleRequest()).Flatten());
  EXPECT_THAT(raw.Wait(), corrupt) << "no checksum";
  RawStream call(address(), kResetMethod);
  call.Send(EncodeResetRequest("t").Flatten());
  EXPECT_THAT(call.Wait(), corrupt) << "no checksum";
  RawStream info(address(), kInfoMethod);
  info.Send("");  // may be without
  EXPECT_TRUE(info.Receive());
}

// --- What is not understood -----------------------------------------------------------------------

TEST_F(GrpcTransportTest, GarbageEndsItsStreamAndNoOther) {
  StartServer();
  Insert good = OpenInsert();
  RawStream raw(address(), kInsertMethod);
  raw.Send(EncodeInsertHello(test::ExampleHello()));
  ASSERT_TRUE(raw.Receive());
  raw.Send("\xff\xff\xff\xff garbage");
  EXPECT_THAT(raw.Wait(), StatusIs(StatusCode::kDataLoss, Detail::kCorruptData, HasSubstr("checksum")));
  TAKE_OR_FAIL(session, handler_->inserts);
  EXPECT_TRUE(session->gone.Take());

  good.stream->Send(Heartbeat());
  EXPECT_TRUE(good.session->messages.Take());

  RawStream call(address(), kInfoMethod);
  call.Send("\x0b");
  EXPECT_THAT(call.Wait(), StatusIs(StatusCode::kDataLoss));
}

TEST_F(GrpcTransportTest, AStreamMustGreet) {
  StartServer();
  {
    RawStream raw(address(), kInsertMethod);
    raw.Send(WireMessage());
    EXPECT_THAT(raw.Wait(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("greet")));
  }
  {
    RawStream raw(address(), kInsertMethod);
    raw.Close();
    EXPECT_THAT(raw.Wait(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("greeting")));
  }
  {
    RawStream raw(address(), kSampleMethod);
    raw.Send(EncodeSampleRequest({.hello = std::nullopt, .request = {.table = "t"}}));
    EXPECT_THAT(raw.Wait(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("greet")));
  }
  EXPECT_EQ(handler_->hellos.total(), 0);
}

TEST_F(GrpcTransportTest, UnknownMethodsAndMissingRequestsAreRefused) {
  StartServer();
  RawStream unknown(address(), "/reverb.v1.Reverb/Frobnicate");
  EXPECT_THAT(unknown.Wait(),
              StatusIs(StatusCode::kUnimplemented, HasSubstr("/reverb.v1.Reverb/Frobnicate")));
  RawStream empty(address(), kInfoMethod);
  empty.Close();
  EXPECT_THAT(empty.Wait(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("without a request")));
}

TEST_F(GrpcTransportTest, MessagesBeyondTheLimitAreRefused) {
  handler_->limits.max_message_bytes = 10'000;
  StartServer();
  // A little: by the decoder. Much: by gRPC, before it takes memory for it.
  for (const size_t bytes : {size_t{20'000}, size_t{1'000'000}}) {
    WireWriter writer;
    writer.Bytes(1000, std::string(bytes, 'x'));
    const WireMessage large = writer.Finish();
    RawStream raw(address(), kInsertMethod);
    raw.Send(large);
    EXPECT_THAT(raw.Wait(), StatusIs(StatusCode::kResourceExhausted, HasSubstr("10000"))) << bytes;
    RawStream call(address(), kResetMethod);
    call.Send(large);
    EXPECT_THAT(call.Wait(), StatusIs(StatusCode::kResourceExhausted, HasSubstr("10000"))) << bytes;
  }
  EXPECT_OK(connection_->Reset("t", {}));
}

TEST_F(GrpcTransportTest, RepliesBeyondTheClientsLimitsEndTheStream) {
  StartServer();
  for (const uint64_t limit : {uint64_t{100}, uint64_t{1000}}) {
    connection_ = ConnectGrpc(address(), {.limits = {.max_message_bytes = limit}}).value();
    Insert insert = OpenInsert();
    ASSERT_TRUE(insert.session->written.Take());
    InsertReply reply;
    // Just beyond the first limit, and beyond what gRPC takes with the second.
    const size_t rejections = limit == 100 ? 10 : 10'000;
    for (size_t i = 0; i < rejections; ++i) reply.rejections.push_back({i, Status::NotFound("not here")});
    insert.session->peer->Reply(std::move(reply));
    TAKE_OR_FAIL(status, insert.events->closed);
    EXPECT_THAT(status, StatusIs(StatusCode::kResourceExhausted));
    EXPECT_TRUE(insert.session->gone.Take());
  }
}

TEST_F(GrpcTransportTest, MoreStreamsThanAllowedAreRefused) {
  StartServer({.address = "127.0.0.1:0", .max_streams = 2});
  Insert first = OpenInsert();
  Insert second = OpenInsert();
  auto events = std::make_shared<InsertEventsFake>();
  const auto third = connection_->OpenInsert(test::ExampleHello(), events);
  TAKE_OR_FAIL(status, events->closed);
  EXPECT_THAT(status, StatusIs(StatusCode::kResourceExhausted, HasSubstr("max_streams")));
  EXPECT_THAT(connection_->Reset("t", {}), StatusIs(StatusCode::kResourceExhausted));
  first.stream->Cancel();
  ASSERT_TRUE(first.session->gone.Take());
  // The place is free a moment after OnGone().
  const Status freed = connection_->Reset("t", {});
  EXPECT_TRUE(freed.ok() || freed.code() == StatusCode::kResourceExhausted);
  EXPECT_EQ(handler_->inserts.total(), 2);
}

// --- Health ---------------------------------------------------------------------------------------

// HealthCheckRequest and HealthCheckResponse, by hand.
std::string HealthRequest(std::string_view service) {
  return service.empty() ? ""
                         : std::string("\x0a") + static_cast<char>(service.size()) + std::string(service);
}
constexpr char kServing[] = "\x08\x01";
constexpr char kNotServing[] = "\x08\x02";
constexpr char kServiceUnknown[] = "\x08\x03";

TEST_F(GrpcTransportTest, HealthIsTold) {
  StartServer();
  for (const char* service : {"", "reverb.v1.Reverb"}) {
    RawStream check(address(), kHealthCheckMethod);
    check.Send(HealthRequest(service));
    EXPECT_EQ(check.Receive(), kServing);
    EXPECT_OK(check.Wait());
  }
  RawStream unknown(address(), kHealthCheckMethod);
  unknown.Send(HealthRequest("other"));
  EXPECT_THAT(unknown.Wait(), StatusIs(StatusCode::kNotFound, HasSubstr("other")));

  RawStream watch_unknown(address(), kHealthWatchMethod);
  watch_unknown.Send(HealthRequest("other"));
  EXPECT_EQ(watch_unknown.Receive(), kServiceUnknown);
  RawStream watch(address(), kHealthWatchMethod);
  watch.Send(HealthRequest(""));
  EXPECT_EQ(watch.Receive(), kServing);
  server_->Stop(10s);
  EXPECT_EQ(watch.Receive(), kNotServing);
  EXPECT_THAT(watch.Wait(), StatusIs(StatusCode::kUnavailable));
}

// --- Starting and stopping ------------------------------------------------------------------------

TEST_F(GrpcTransportTest, ATakenPortIsAnError) {
  StartServer();
  EXPECT_THAT(
      GrpcServer::Start({.address = address()}, handler_),
      StatusIs(StatusCode::kFailedPrecondition, AllOf(HasSubstr(address()), HasSubstr("another port"))));
}

TEST_F(GrpcTransportTest, AddressesNeedAPort) {
  for (const char* address : {"", "localhost", "localhost:", "localhost:http", ":80"}) {
    EXPECT_THAT(ConnectGrpc(address), StatusIs(StatusCode::kInvalidArgument, HasSubstr("host:port")))
        << address;
  }
  EXPECT_OK(ConnectGrpc("[::1]:80"));
  EXPECT_OK(ConnectGrpc("unix:/tmp/reverb"));
}

TEST_F(GrpcTransportTest, StopEndsQuietStreams) {
  StartServer();
  Insert insert = OpenInsert();
  SampleEnds sample = OpenSample();
  server_->Stop(10s);
  TAKE_OR_FAIL(status, insert.events->closed);
  EXPECT_THAT(status, StatusIs(StatusCode::kUnavailable, HasSubstr("stopping")));
  TAKE_OR_FAIL(sample_status, sample.events->closed);
  EXPECT_THAT(sample_status, StatusIs(StatusCode::kUnavailable));
  // Told before Stop() returned.
  EXPECT_EQ(insert.session->gone.total(), 1);
  EXPECT_EQ(sample.session->gone.total(), 1);
  server_->Stop(10s);
  server_.reset();
  insert.session->peer->ReadNext();
  insert.session->peer->Reply({});
  insert.session->peer->End(Status::Ok());
}

TEST_F(GrpcTransportTest, StopEndsBusyStreamsSoon) {
  StartServer();
  Random random(5);
  const ChunkRef chunk = MakeChunk(1, {{DType::kUint8, {1000}}}, 10, &random);
  std::vector<Insert> inserts;
  std::vector<SampleEnds> samples;
  for (int i = 0; i < 4; ++i) {
    Insert insert = OpenInsert();
    InsertStream* const stream = insert.stream.get();
    auto next = std::make_shared<std::atomic<uint64_t>>(1);
    insert.events->on_sent = [stream, next, chunk] {
      InsertMessage message = MessageOf((*next)++, Trajectory::Single(chunk, 0, 10).value());
      message.forget_chunks = {1};  // so that it is sent every time
      stream->Send(std::move(message));
    };
    insert.events->on_sent();
    inserts.push_back(std::move(insert));

    SampleEnds sample = OpenSample();
    ASSERT_TRUE(sample.session->written.Take());
    SamplePeer* const peer = sample.session->peer.get();
    sample.session->on_written = [peer] { peer->Reply({.request_id = 1}); };
    sample.session->on_written();
    samples.push_back(std::move(sample));
  }
  for (Insert& insert : inserts) {
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(insert.session->messages.Take());
  }
  for (SampleEnds& sample : samples) {
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(sample.events->replies.Take());
  }
  const auto begin = std::chrono::steady_clock::now();
  server_->Stop(500ms);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 2s);
  for (Insert& insert : inserts) {
    EXPECT_EQ(insert.session->gone.total(), 1);
    TAKE_OR_FAIL(status, insert.events->closed);
    EXPECT_THAT(status, StatusIs(StatusCode::kUnavailable));
  }
  for (SampleEnds& sample : samples) {
    EXPECT_EQ(sample.session->gone.total(), 1);
    TAKE_OR_FAIL(status, sample.events->closed);
    EXPECT_THAT(status, StatusIs(StatusCode::kUnavailable));
  }
}

TEST_F(GrpcTransportTest, StopWithoutGraceCancels) {
  handler_->prepare = [](InsertSessionFake* session) { session->end_when_done = false; };
  StartServer();
  Insert insert = OpenInsert();
  server_->Stop(Duration(0));
  TAKE_OR_FAIL(status, insert.events->closed);
  EXPECT_THAT(status, StatusIs(StatusCode::kUnavailable));
  EXPECT_EQ(insert.session->gone.total(), 1);
}

TEST_F(GrpcTransportTest, StopWaitsForACheckpoint) {
  Mailbox<bool> begun, release;
  std::atomic<bool> written{false};
  handler_->on_checkpoint = [&] {
    begun.Put(true);
    (void)release.Take();
    written = true;
  };
  StartServer();
  // Its client gives up once it has begun; the server does not.
  EXPECT_THAT(
      connection_->Checkpoint(
          {.timeout = kLong,
           .on_wait = [&] { return begun.total() == 0 ? Status::Ok() : Status::Cancelled("enough"); }}),
      StatusIs(StatusCode::kCancelled, "enough"));
  EXPECT_OK(connection_->Reset("t", {}));  // gRPC's threads are free
  std::thread stopper([&] {
    server_->Stop(Duration(0));
    EXPECT_TRUE(written);
  });
  release.Put(true);
  stopper.join();
}

// --- Ends -----------------------------------------------------------------------------------------

TEST_F(GrpcTransportTest, EveryStreamEndsExactlyOnceOnBothSides) {
  StartServer();
  const auto count = static_cast<int>(test::Effort(200, 60));
  std::vector<Insert> inserts;
  for (int i = 0; i < count; ++i) {
    Insert insert = OpenInsert();
    ASSERT_NE(insert.session, nullptr);
    switch (i % 5) {
      case 0:
        insert.stream->Finish();
        break;
      case 1:
        insert.stream->Cancel();
        break;
      case 2:
        insert.session->peer->End(Status(StatusCode::kAborted, "enough"));
        break;
      case 3:
        insert.stream->Send(Heartbeat());
        insert.stream->Finish();
        insert.session->peer->End(Status::Ok());
        insert.session->peer->End(Status::Ok());
        break;
      case 4:
        insert.stream->Send(Heartbeat());
        insert.stream->Cancel();
        insert.session->peer->End(Status::Ok());
        insert.stream->Cancel();
        break;
    }
    ASSERT_TRUE(insert.events->closed.Take());
    ASSERT_TRUE(insert.session->gone.Take());
    inserts.push_back(std::move(insert));
  }
  server_->Stop(10s);
  connection_.reset();
  for (const Insert& insert : inserts) {
    EXPECT_EQ(insert.events->closed.total(), 1);
    EXPECT_EQ(insert.session->gone.total(), 1);
    // Both ends have let go; a client's does so a moment after OnClosed().
    EXPECT_EQ(insert.session.use_count(), 1);
    EXPECT_TRUE(SoonUnshared(insert.events));
    EXPECT_TRUE(SoonUnshared(insert.stream));
  }
}

TEST_F(GrpcTransportTest, TheLastChannelMayGoOnACallbackThread) {
  const std::string address = DeadAddress();
  for (int i = 0; i < 20; ++i) {
    const auto events = std::make_shared<InsertEventsFake>();
    // From here on the stream holds itself, and with it the channel.
    (void)ConnectGrpc(address).value()->OpenInsert(test::ExampleHello(), events);
    ASSERT_TRUE(events->closed.Take());
  }
}

TEST_F(GrpcTransportTest, ALocalSocketServesToo) {
  const std::string path = testing::TempDir() + "reverb-" + std::to_string(getpid()) + ".sock";
  server_ = GrpcServer::Start({.address = "unix:" + path}, handler_).value();
  connection_ = ConnectGrpc("unix:" + path).value();
  EXPECT_OK(connection_->Reset("t", {.timeout = kLong}));
}

TEST_F(GrpcTransportTest, EndsMayMeetEverythingElse) {
  StartServer();
  const auto count = static_cast<int>(test::Effort(200, 60));
  for (int i = 0; i < count; ++i) {
    Insert insert = OpenInsert();
    ASSERT_TRUE(insert.session->written.Take());
    std::atomic<bool> go{false};
    const auto run = [&go](std::function<void()> work) {
      return std::thread([&go, work = std::move(work)] {
        while (!go) std::this_thread::yield();
        work();
      });
    };
    std::vector<std::thread> threads;
    threads.push_back(run([&] { insert.session->peer->Reply({.confirmed_through = 1}); }));
    threads.push_back(run([&] { insert.session->peer->ReadNext(); }));
    threads.push_back(run([&] { insert.stream->Send(Heartbeat()); }));
    threads.push_back(run([&] { insert.stream->Finish(); }));
    threads.push_back(run([&] {
      if (i % 2 == 0) {
        insert.stream->Cancel();
      } else {
        insert.session->peer->End(Status(StatusCode::kAborted, "enough"));
      }
    }));
    go = true;
    for (std::thread& thread : threads) thread.join();
    ASSERT_TRUE(insert.events->closed.Take());
    ASSERT_TRUE(insert.session->gone.Take());
  }
}

}  // namespace
}  // namespace reverb::internal
