// Streams and single calls within one process, over a fake request handler.
#include "transport/inproc/inproc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::IsOkAndHolds;
using test::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct FakeInsertSession final : InsertSession {
  void OnMessage(InsertMessage message) override {
    messages.push_back(std::move(message));
    thread = std::this_thread::get_id();
  }
  void OnWritten() override {}
  void OnDone() override { ++done; }
  void OnGone() override { ++gone; }

  std::vector<InsertMessage> messages;
  std::thread::id thread;
  int done = 0;
  int gone = 0;
};

struct FakeSampleSession final : SampleSession {
  void OnRequest(SampleRequest request) override { requests.push_back(std::move(request)); }
  void OnWritten() override {}
  void OnDone() override { ++done; }
  void OnGone() override { ++gone; }

  std::vector<SampleRequest> requests;
  int done = 0;
  int gone = 0;
};

struct FakeInsertEvents final : InsertEvents {
  void OnReply(InsertReply reply) override { replies.push_back(std::move(reply)); }
  void OnSent() override {}
  void OnClosed(Status status) override { closed.push_back(std::move(status)); }

  std::vector<InsertReply> replies;
  std::vector<Status> closed;
};

struct FakeSampleEvents final : SampleEvents {
  void OnReply(SampleReply reply, uint64_t bytes) override {
    replies.push_back(std::move(reply));
    reply_bytes.push_back(bytes);
  }
  void OnClosed(Status status) override { closed.push_back(std::move(status)); }

  std::vector<SampleReply> replies;
  std::vector<uint64_t> reply_bytes;
  std::vector<Status> closed;
};

struct FakeHandler final : RequestHandler {
  explicit FakeHandler(uint8_t life = 1) { id.fill(life); }

  const Id128& life_id() const override { return id; }
  const WireLimits& wire_limits() const override { return limits; }
  Result<std::shared_ptr<InsertSession>> OpenInsert(const Hello& hello,
                                                    std::shared_ptr<InsertPeer> peer) override {
    client_name = hello.client_name;
    insert_peer = peer;
    if (!refusal.ok()) return refusal;
    if (on_open_insert) on_open_insert(*peer);
    return std::shared_ptr<InsertSession>(inserts);
  }
  Result<std::shared_ptr<SampleSession>> OpenSample(const Hello& hello,
                                                    std::shared_ptr<SamplePeer> peer) override {
    client_name = hello.client_name;
    sample_peer = peer;
    if (!refusal.ok()) return refusal;
    return std::shared_ptr<SampleSession>(samples);
  }
  Result<ChunkRef> AllocateChunk(const ChunkHeader&, uint8_t**) override {
    return Status::Unimplemented("chunks are shared within one process");
  }
  Result<ServerInfo> Info() override {
    ServerInfo info;
    info.server_name = "fake";
    return info;
  }
  Status Mutate(const MutateRequest& request) override { return Called("Mutate " + request.table); }
  Status Reset(std::string_view table) override { return Called("Reset " + std::string(table)); }
  Status SetRateLimiter(const SetRateLimiterRequest& request) override {
    return Called("SetRateLimiter " + request.table);
  }
  Status CreateTable(const CreateTableRequest& request) override {
    return Called("CreateTable " + request.table.name);
  }
  Status RemoveTable(std::string_view table) override { return Called("RemoveTable " + std::string(table)); }
  Status ChangeTable(const ChangeTableRequest& request) override {
    return Called("ChangeTable " + request.table);
  }
  Result<InspectReply> Inspect(const InspectRequest& request) override {
    REVERB_RETURN_IF_ERROR(Called("Inspect " + request.table));
    InspectReply reply;
    reply.next_cursor = request.cursor + 1;
    return reply;
  }
  Result<std::string> Checkpoint() override { return std::string("/path"); }
  Result<LeaseOutcome> SettleLeases(const SettleLeasesRequest& request) override {
    calls.push_back("settle " + request.table);
    return LeaseOutcome{.settled = 1, .gone = 2, .expired = 3};
  }

  Status Called(std::string call) {
    calls.push_back(std::move(call));
    return answer;
  }

  Id128 id{};
  WireLimits limits;
  Status refusal;
  Status answer;
  std::function<void(InsertPeer&)> on_open_insert;
  std::string client_name;
  std::vector<std::string> calls;
  std::shared_ptr<FakeInsertSession> inserts = std::make_shared<FakeInsertSession>();
  std::shared_ptr<FakeSampleSession> samples = std::make_shared<FakeSampleSession>();
  std::shared_ptr<InsertPeer> insert_peer;
  std::shared_ptr<SamplePeer> sample_peer;
};

Hello NamedHello() {
  Hello hello;
  hello.client_name = "actor";
  return hello;
}

class InprocTest : public ::testing::Test {
 protected:
  // The handler holds its peers and the streams hold their sessions: break the cycle.
  ~InprocTest() override {
    handler_->insert_peer = nullptr;
    handler_->sample_peer = nullptr;
  }

  std::shared_ptr<FakeHandler> handler_ = std::make_shared<FakeHandler>();
  std::shared_ptr<Connection> connection_ = ConnectInproc(handler_);
  std::shared_ptr<FakeInsertEvents> insert_events_ = std::make_shared<FakeInsertEvents>();
  std::shared_ptr<FakeSampleEvents> sample_events_ = std::make_shared<FakeSampleEvents>();
};

// --- Insert streams ---

TEST_F(InprocTest, InsertMessagesArriveOnTheSendersThreadInOrder) {
  const auto stream = connection_->OpenInsert(NamedHello(), insert_events_);
  EXPECT_EQ(handler_->client_name, "actor");
  for (const uint64_t chunk : {7, 8}) {
    InsertMessage message;
    message.forget_chunks = {chunk};
    const InsertStream::Sent sent = stream->Send(std::move(message));
    EXPECT_TRUE(sent.ready);
    EXPECT_EQ(sent.bytes, 0u) << "shared chunks count against no window";
  }
  ASSERT_EQ(handler_->inserts->messages.size(), 2u);
  EXPECT_THAT(handler_->inserts->messages[0].forget_chunks, ElementsAre(7));
  EXPECT_THAT(handler_->inserts->messages[1].forget_chunks, ElementsAre(8));
  EXPECT_EQ(handler_->inserts->thread, std::this_thread::get_id());
  stream->Finish();
  EXPECT_EQ(handler_->inserts->done, 1);
  EXPECT_EQ(handler_->inserts->gone, 0) << "the session ends the stream";
}

TEST_F(InprocTest, InsertRepliesReachTheClientUntilTheStreamEnds) {
  const auto stream = connection_->OpenInsert({}, insert_events_);
  EXPECT_TRUE(handler_->insert_peer->Reply({.confirmed_through = 5}));
  handler_->insert_peer->End(Status::Unavailable("the server stops"));
  EXPECT_FALSE(handler_->insert_peer->Reply({.confirmed_through = 6}));
  ASSERT_EQ(insert_events_->replies.size(), 1u);
  EXPECT_EQ(insert_events_->replies[0].confirmed_through, 5u);
  EXPECT_THAT(insert_events_->closed,
              ElementsAre(StatusIs(StatusCode::kUnavailable, HasSubstr("the server stops"))));
  EXPECT_EQ(handler_->inserts->gone, 1);
}

TEST_F(InprocTest, AReplyBeforeOpenReturnsReachesTheClient) {
  handler_->on_open_insert = [](InsertPeer& peer) { EXPECT_TRUE(peer.Reply({.confirmed_through = 3})); };
  const auto stream = connection_->OpenInsert({}, insert_events_);
  ASSERT_EQ(insert_events_->replies.size(), 1u);
  EXPECT_EQ(insert_events_->replies[0].confirmed_through, 3u);
}

TEST_F(InprocTest, AStreamThatEndsBeforeOpenReturnsEndsOnBothSidesOnce) {
  handler_->on_open_insert = [](InsertPeer& peer) { peer.End(Status::FailedPrecondition("too late")); };
  const auto stream = connection_->OpenInsert({}, insert_events_);
  EXPECT_THAT(insert_events_->closed, ElementsAre(StatusIs(StatusCode::kFailedPrecondition)));
  EXPECT_EQ(handler_->inserts->gone, 1);
  EXPECT_FALSE(stream->Send({}).ready);
  EXPECT_TRUE(handler_->inserts->messages.empty());
}

TEST_F(InprocTest, ARejectedStreamClosesWithTheHandlersError) {
  handler_->refusal = Status::ResourceExhausted("too many streams");
  const auto inserts = connection_->OpenInsert({}, insert_events_);
  const auto samples = connection_->OpenSample({}, sample_events_);
  EXPECT_THAT(insert_events_->closed,
              ElementsAre(StatusIs(StatusCode::kResourceExhausted, HasSubstr("too many streams"))));
  EXPECT_THAT(sample_events_->closed, ElementsAre(StatusIs(StatusCode::kResourceExhausted)));
  EXPECT_FALSE(inserts->Send({}).ready);
  samples->Send({});
  EXPECT_TRUE(handler_->samples->requests.empty());
}

TEST_F(InprocTest, CancelEndsBothSidesOnce) {
  const auto stream = connection_->OpenInsert({}, insert_events_);
  stream->Cancel();
  stream->Cancel();
  stream->Finish();
  handler_->insert_peer->End(Status::Ok());
  EXPECT_THAT(insert_events_->closed, ElementsAre(StatusIs(StatusCode::kCancelled)));
  EXPECT_EQ(handler_->inserts->gone, 1);
  EXPECT_EQ(handler_->inserts->done, 0);
}

TEST_F(InprocTest, AnEndedStreamReleasesBothSides) {
  const std::weak_ptr<FakeInsertEvents> events = insert_events_;
  const std::weak_ptr<FakeInsertSession> session = handler_->inserts;
  const auto stream = connection_->OpenInsert({}, std::exchange(insert_events_, nullptr));
  handler_->inserts = nullptr;
  EXPECT_FALSE(events.expired());
  EXPECT_FALSE(session.expired());
  handler_->insert_peer->End(Status::Ok());
  EXPECT_TRUE(events.expired());
  EXPECT_TRUE(session.expired());
}

// --- Sample streams ---

TEST_F(InprocTest, SampleRequestsAndRepliesPassThrough) {
  const auto stream = connection_->OpenSample(NamedHello(), sample_events_);
  SampleRequest request;
  request.request_id = 4;
  request.table = "replay";
  stream->Send(std::move(request));
  ASSERT_EQ(handler_->samples->requests.size(), 1u);
  EXPECT_EQ(handler_->samples->requests[0].table, "replay");

  EXPECT_TRUE(handler_->sample_peer->shares_memory());
  SampleReply reply;
  reply.request_id = 4;
  const SamplePeer::Sent sent = handler_->sample_peer->Reply(std::move(reply));
  EXPECT_TRUE(sent.ready);
  EXPECT_EQ(sent.bytes, 0u);
  ASSERT_EQ(sample_events_->replies.size(), 1u);
  EXPECT_EQ(sample_events_->replies[0].request_id, 4u);
  EXPECT_THAT(sample_events_->reply_bytes, ElementsAre(0u));

  stream->Finish();
  EXPECT_EQ(handler_->samples->done, 1);
  stream->Cancel();
  EXPECT_EQ(handler_->samples->gone, 1);
  EXPECT_FALSE(handler_->sample_peer->Reply({}).ready);
  EXPECT_THAT(sample_events_->closed, ElementsAre(StatusIs(StatusCode::kCancelled)));
}

// --- Single calls ---

TEST_F(InprocTest, SingleCallsReturnTheHandlersResults) {
  EXPECT_TRUE(connection_->in_process());
  EXPECT_EQ(connection_->Info({}).value().server_name, "fake");
  EXPECT_OK(connection_->Mutate({.table = "a"}, {}));
  EXPECT_OK(connection_->Reset("b", {}));
  EXPECT_OK(connection_->SetRateLimiter({.table = "c"}, {}));
  EXPECT_EQ(connection_->Inspect({.table = "d", .cursor = 8}, {}).value().next_cursor, 9u);
  EXPECT_THAT(connection_->Checkpoint({}), IsOkAndHolds("/path"));
  CreateTableRequest create;
  create.table.name = "e";
  EXPECT_OK(connection_->CreateTable(create, {}));
  EXPECT_OK(connection_->ChangeTable({.table = "f", .changes = {}}, {}));
  EXPECT_OK(connection_->RemoveTable("g", {}));
  EXPECT_THAT(handler_->calls, ElementsAre("Mutate a", "Reset b", "SetRateLimiter c", "Inspect d",
                                           "CreateTable e", "ChangeTable f", "RemoveTable g"));
  handler_->answer = Status::NotFound("no table");
  EXPECT_THAT(connection_->Reset("b", {}), StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(connection_->Inspect({}, {}).status(), StatusIs(StatusCode::kNotFound));
}

TEST_F(InprocTest, AForkedChildCannotUseTheConnection) {
  RegisterInprocServer(handler_);
  const pid_t child = fork();
  if (child == 0) {
    const bool is_rejected = connection_->Reset("t", {}).code() == StatusCode::kFailedPrecondition;
    connection_->OpenInsert({}, insert_events_);
    const bool is_closed = insert_events_->closed.size() == 1 &&
                           insert_events_->closed[0].code() == StatusCode::kFailedPrecondition;
    const bool is_unknown = !IsInprocServer(handler_->id) && ConnectInproc(handler_->id) == nullptr;
    _exit(is_rejected && is_closed && is_unknown && handler_->calls.empty() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_OK(connection_->Reset("t", {})) << "the parent's connection still works";
  UnregisterInprocServer(handler_->id);
}

// --- The registry ---

TEST(InprocRegistryTest, FindsServersByLifeIdUntilTheyAreUnregistered) {
  const auto one = std::make_shared<FakeHandler>(1), two = std::make_shared<FakeHandler>(2);
  EXPECT_FALSE(HasInprocServers());
  RegisterInprocServer(one);
  EXPECT_TRUE(HasInprocServers());
  EXPECT_TRUE(IsInprocServer(one->id));
  EXPECT_FALSE(IsInprocServer(two->id));
  EXPECT_EQ(ConnectInproc(two->id), nullptr);
  const std::shared_ptr<Connection> connection = ConnectInproc(one->id);
  ASSERT_NE(connection, nullptr);
  EXPECT_OK(connection->Reset("t", {}));
  EXPECT_THAT(one->calls, ElementsAre("Reset t"));
  UnregisterInprocServer(one->id);
  EXPECT_FALSE(IsInprocServer(one->id));
  EXPECT_FALSE(HasInprocServers());
  EXPECT_OK(connection->Reset("t", {})) << "existing connections stay usable";
}

TEST(InprocRegistryTest, DoesNotKeepServersAlive) {
  auto handler = std::make_shared<FakeHandler>(3);
  const Id128 id = handler->id;
  RegisterInprocServer(handler);
  handler = nullptr;
  EXPECT_FALSE(IsInprocServer(id));
  EXPECT_EQ(ConnectInproc(id), nullptr);
  UnregisterInprocServer(id);
}

}  // namespace
}  // namespace reverb::internal
