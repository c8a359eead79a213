// What clients of one token, or of one name, may take together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <span>
#include <vector>

#include "access/access_testing.h"
#include "tensor/column.h"
#include "tensor/row.h"
#include "testing/status_matchers.h"
#include "testing/wait.h"

namespace reverb::internal {
namespace {

using ::reverb::test::IsOk;
using ::reverb::test::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

class AccessLimitsTest : public AccessFixture {
 protected:
  // Without tokens.
  void StartOpen(const UsageLimits& client_limits) {
    auto control = AccessControl::Start(std::nullopt, handler_, client_limits);
    ASSERT_OK(control);
    control_ = *std::move(control);
  }
};

// --- Streams ---

TEST_F(AccessLimitsTest, LimitsStreams) {
  const std::string text = Add({.name = "a", .write = true, .max_streams = 2});
  Start();
  const std::shared_ptr<RequestHandler> handler = Handler(text);
  auto first = handler->OpenInsert(test::ExampleHello(), std::make_shared<InsertPeerFake>());
  auto second = handler->OpenInsert(test::ExampleHello(), std::make_shared<InsertPeerFake>());
  ASSERT_OK(first);
  ASSERT_OK(second);
  EXPECT_THAT(handler->OpenInsert(test::ExampleHello(), std::make_shared<InsertPeerFake>()),
              StatusIs(StatusCode::kResourceExhausted, AllOf(HasSubstr("\"a\""), HasSubstr("max_streams"))));
  (*first)->OnGone();
  auto third = handler->OpenInsert(test::ExampleHello(), std::make_shared<InsertPeerFake>());
  ASSERT_OK(third);
  (*second)->OnGone();
  (*third)->OnGone();
}

// Passes an item with a chunk of so many bytes, as a transport does.
void Receive(RequestHandler& handler, InsertSession& session, uint64_t number, uint32_t bytes) {
  ColumnEncoder encoder(DType::kUint8, {bytes}, CodecPolicy::kNone);
  ChunkHeader header;
  header.rows = 1;
  std::vector<uint8_t> payload;
  const std::vector<uint8_t> row(bytes);
  header.columns.push_back(encoder.Encode(row, 1, &payload).value());
  uint8_t* to = nullptr;
  ASSERT_OK(handler.AllocateChunk(header, &to));
  InsertMessage message;
  message.items.push_back({.number = number, .key = number, .table = "replay"});
  session.OnMessage(std::move(message));
}

TEST_F(AccessLimitsTest, WritersPauseAboveTheRate) {
  const std::string text = Add({.name = "a", .write = true, .max_bytes_per_second = 1000});
  Start();
  auto peer = std::make_shared<InsertPeerFake>();
  const std::shared_ptr<RequestHandler> handler = Handler(text);
  auto session = handler->OpenInsert(test::ExampleHello(), peer);
  ASSERT_OK(session);
  TAKE_OR_FAIL(first, peer->reads);  // the fake session reads when it opens, and after each message
  EXPECT_TRUE(first);
  const auto start = std::chrono::steady_clock::now();
  Receive(*handler, **session, 1, 1000);
  TAKE_OR_FAIL(second, peer->reads);
  EXPECT_TRUE(second);
  // A second's worth, less the burst. The clock of the pause is the same as this one.
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(700));
  (*session)->OnGone();
}

TEST_F(AccessLimitsTest, WritersWaitWhileTooMuchIsUnconfirmed) {
  const std::string text = Add({.name = "a", .write = true, .max_waiting_bytes = 100});
  Start();
  auto first_peer = std::make_shared<InsertPeerFake>();
  auto second_peer = std::make_shared<InsertPeerFake>();
  const std::shared_ptr<RequestHandler> first_handler = Handler(text);
  const std::shared_ptr<RequestHandler> second_handler = Handler(text);
  auto first = first_handler->OpenInsert(test::ExampleHello(), first_peer);
  std::shared_ptr<InsertSessionFake> inner = handler_->inserts.Take().value();
  auto second = second_handler->OpenInsert(test::ExampleHello(), second_peer);
  ASSERT_OK(first);
  ASSERT_OK(second);
  EXPECT_EQ(first_peer->reads.total(), 1);
  Receive(*first_handler, **first, 1, 500);
  EXPECT_EQ(first_peer->reads.total(), 1) << "reads while 500 bytes wait and 100 are allowed";
  Receive(*second_handler, **second, 1, 1);
  EXPECT_EQ(second_peer->reads.total(), 1) << "the limit is that of all writers of the token";
  inner->peer->Reply({.confirmed_through = 1});
  EXPECT_EQ(first_peer->reads.total(), 2);
  EXPECT_EQ(second_peer->reads.total(), 2);
  (*first)->OnGone();
  (*second)->OnGone();
}

TEST_F(AccessLimitsTest, SamplersPauseAboveTheRate) {
  const std::string text = Add({.name = "a", .read = true, .max_bytes_per_second = 1000});
  Start();
  auto peer = std::make_shared<SamplePeerFake>();
  auto session = Handler(text)->OpenSample(test::ExampleHello(), peer);
  ASSERT_OK(session);
  std::shared_ptr<SampleSessionFake> inner = handler_->samples.Take().value();
  peer->reply_bytes = 1000;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(inner->peer->Reply({}).ready);
  TAKE_OR_FAIL(written, inner->written);
  EXPECT_TRUE(written);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(700));
  (*session)->OnGone();
}

// --- Rows ---

ChunkRef RowOf(int64_t bytes) {
  const std::vector<uint8_t> values(static_cast<size_t>(bytes));
  const TensorView view(DType::kUint8, std::span(&bytes, 1), values.data());
  return EncodeRow({&view, 1}).value();
}

// An operation on rows, and what has become of it.
struct RowsCallFake {
  std::shared_ptr<Mailbox<Status>> outcome = std::make_shared<Mailbox<Status>>();
  std::shared_ptr<PendingCall> pending;
};

RowsCallFake StartRows(RequestHandler& handler, RowsVerb verb, int64_t bytes = 0,
                       std::optional<Duration> timeout = {}, const std::string& client = "") {
  RowsRequest request;
  request.call.verb = verb;
  request.call.table = "rows";
  request.call.timeout = timeout;
  request.call.claim.holder = client;
  if (bytes > 0) request.rows.push_back({.key = "a", .chunk = RowOf(bytes)});
  RowsCallFake call;
  call.pending = handler.StartRows(std::move(request), [to = call.outcome](Result<RowsReply> reply) {
    to->Put(reply.status());
    return true;
  });
  return call;
}

TEST_F(AccessLimitsTest, RowsThatAreWrittenCountAndLaterOperationsWait) {
  const std::string text = Add({.name = "a", .read = true, .write = true, .max_bytes_per_second = 1000});
  Start();
  handler_->on_rows = [](const RowsRequest&) { return Result<RowsReply>(RowsReply()); };
  const std::shared_ptr<RequestHandler> handler = Handler(text);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(StartRows(*handler, RowsVerb::kPut, 1000).outcome->total(), 1) << "the first one starts at once";
  // What moves no data does not wait.
  EXPECT_EQ(StartRows(*handler, RowsVerb::kSettle).outcome->total(), 1);
  const RowsCallFake put = StartRows(*handler, RowsVerb::kPut, 10);
  const RowsCallFake get = StartRows(*handler, RowsVerb::kGet);
  EXPECT_EQ(put.outcome->total() + get.outcome->total(), 0);
  TAKE_OR_FAIL(written, *put.outcome);
  TAKE_OR_FAIL(read, *get.outcome);
  EXPECT_THAT(written, IsOk());
  EXPECT_THAT(read, IsOk());
  // A second's worth, less the burst. The clock of the pause is the same as this one.
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(700));
}

TEST_F(AccessLimitsTest, RowsThatAreReadCount) {
  const std::string text = Add({.name = "a", .read = true, .max_bytes_per_second = 1000});
  Start();
  handler_->on_rows = [](const RowsRequest&) {
    RowsReply reply;
    reply.rows.push_back({.key = "a", .num_segments = {1}, .segments = {{.chunk = RowOf(1000)}}});
    return Result<RowsReply>(reply);
  };
  const std::shared_ptr<RequestHandler> handler = Handler(text);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(StartRows(*handler, RowsVerb::kGet).outcome->total(), 1);
  const RowsCallFake claim = StartRows(*handler, RowsVerb::kClaim);
  EXPECT_EQ(claim.outcome->total(), 0);
  TAKE_OR_FAIL(claimed, *claim.outcome);
  EXPECT_THAT(claimed, IsOk());
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(700));
}

TEST_F(AccessLimitsTest, AnOperationThatCouldNotStartInTimeNamesTheLimit) {
  const std::string text = Add({.name = "a", .write = true, .max_bytes_per_second = 1});
  Start();
  handler_->on_rows = [](const RowsRequest&) { return Result<RowsReply>(RowsReply()); };
  const std::shared_ptr<RequestHandler> handler = Handler(text);
  EXPECT_EQ(StartRows(*handler, RowsVerb::kPut, 1000).outcome->total(), 1);
  for (const Duration timeout : {Duration(0), Duration(std::chrono::milliseconds(20))}) {
    const RowsCallFake late = StartRows(*handler, RowsVerb::kPut, 1, timeout);
    TAKE_OR_FAIL(status, *late.outcome);
    EXPECT_THAT(status, StatusIs(StatusCode::kDeadlineExceeded,
                                 AllOf(HasSubstr("token \"a\""), HasSubstr("max_bytes_per_second"))));
  }
  // Cancelling ends the wait, and so does the end of the token.
  const RowsCallFake cancelled = StartRows(*handler, RowsVerb::kPut, 1);
  const RowsCallFake removed = StartRows(*handler, RowsVerb::kPut, 1);
  EXPECT_EQ(cancelled.outcome->total() + removed.outcome->total(), 0);
  cancelled.pending->Cancel();
  TAKE_OR_FAIL(ended, *cancelled.outcome);
  EXPECT_THAT(ended, StatusIs(StatusCode::kCancelled));
  ASSERT_OK(RemoveToken(path_, "a"));
  TAKE_OR_FAIL(without, *removed.outcome);
  EXPECT_THAT(without, StatusIs(StatusCode::kUnauthenticated));
  EXPECT_EQ(control_->num_streams(), 0u);
}

TEST_F(AccessLimitsTest, PutsWaitWhileTooMuchWaitsForItsTable) {
  const std::string text = Add({.name = "a", .write = true, .max_waiting_bytes = 100});
  Start();
  handler_->on_rows = nullptr;  // operations wait until the test ends them
  const std::shared_ptr<RequestHandler> handler = Handler(text);
  const RowsCallFake first = StartRows(*handler, RowsVerb::kPut, 500);
  TAKE_OR_FAIL(finish_first, handler_->rows);
  const RowsCallFake second = StartRows(*handler, RowsVerb::kPut, 1);
  EXPECT_EQ(handler_->rows.total(), 1) << "500 bytes wait and 100 are allowed";
  (void)finish_first(RowsReply());
  TAKE_OR_FAIL(finish_second, handler_->rows);
  (void)finish_second(RowsReply());
  TAKE_OR_FAIL(status, *second.outcome);
  EXPECT_THAT(status, IsOk());
}

// --- Names of clients ---

Hello HelloOf(const std::string& client) {
  Hello hello = test::ExampleHello();
  hello.client_name = client;
  return hello;
}

TEST_F(AccessLimitsTest, ClientsOfOneNameShareTheirLimitsWithoutTokens) {
  StartOpen({.max_streams = 1});
  const auto open = [&](const std::string& name) {
    const auto handler = control_->Admit({.address = "10.0.0.1:5000"}).value();
    return handler->OpenSample(HelloOf(name), std::make_shared<SamplePeerFake>());
  };
  auto first = open("learner");
  ASSERT_OK(first);
  EXPECT_THAT(open("learner"), StatusIs(StatusCode::kResourceExhausted,
                                        AllOf(HasSubstr("client \"learner\""), HasSubstr("max_streams"))));
  auto other = open("actor");
  ASSERT_OK(other);
  (*first)->OnGone();
  auto again = open("learner");
  ASSERT_OK(again);
  (*other)->OnGone();
  (*again)->OnGone();
}

TEST_F(AccessLimitsTest, RowOperationsCountForTheNameOfTheirClient) {
  StartOpen({.max_bytes_per_second = 1});
  handler_->on_rows = [](const RowsRequest&) { return Result<RowsReply>(RowsReply()); };
  const auto handler = control_->Admit({.address = "10.0.0.1:5000"}).value();
  EXPECT_EQ(StartRows(*handler, RowsVerb::kPut, 1000, {}, "learner").outcome->total(), 1);
  EXPECT_EQ(StartRows(*handler, RowsVerb::kPut, 1000, {}, "actor").outcome->total(), 1);
  const RowsCallFake late = StartRows(*handler, RowsVerb::kGet, 0, Duration(0), "learner");
  TAKE_OR_FAIL(status, *late.outcome);
  EXPECT_THAT(status, StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("client \"learner\"")));
}

TEST_F(AccessLimitsTest, TheStricterOfTokenAndNameCounts) {
  const std::string text = Add({.name = "a", .read = true, .max_streams = 2});
  Start(/*trust_same_user=*/false, {.max_streams = 1});
  const auto handler = Handler(text);
  auto first = handler->OpenSample(HelloOf("x"), std::make_shared<SamplePeerFake>());
  ASSERT_OK(first);
  EXPECT_THAT(handler->OpenSample(HelloOf("x"), std::make_shared<SamplePeerFake>()),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("client \"x\"")));
  // What was refused was not counted for the token.
  auto second = handler->OpenSample(HelloOf("y"), std::make_shared<SamplePeerFake>());
  ASSERT_OK(second);
  EXPECT_THAT(handler->OpenSample(HelloOf("z"), std::make_shared<SamplePeerFake>()),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("token \"a\"")));
  (*first)->OnGone();
  (*second)->OnGone();
}

}  // namespace
}  // namespace reverb::internal
