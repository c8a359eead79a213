#include "client/insert_pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <numeric>
#include <thread>

#include "base/background.h"
#include "client/fake_connection_testing.h"
#include "reverb/log.h"
#include "testing/status_matchers.h"
#include "testing/wait.h"

namespace reverb::internal {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using test::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class InsertPipelineTest : public ::testing::Test {
 protected:
  void Create(InsertPipeline::Options options = {}) {
    options.clock = &clock_;
    pipeline_ = InsertPipeline::Create(connection_, options);
  }
  ~InsertPipelineTest() override {
    if (pipeline_) pipeline_->Close();
    for (auto& stream : connection_->inserts) stream->events = nullptr;
  }
  Status Add(size_t bytes = 8) { return AddTo("t", bytes); }
  Status AddTo(const std::string& table, size_t bytes = 8) {
    return pipeline_->Add({.key = next_key_++, .table = table, .priority = 1, .trajectory = MakeRow(bytes)});
  }
  void AddMany(int count) {
    for (int i = 0; i < count; ++i) ASSERT_OK(Add());
  }
  // Waits until another thread has sent `count` messages; after this the stream's messages can be read.
  [[nodiscard]] bool AwaitMessages(int64_t count) {
    return test::WaitUntil([&] { return pipeline_->stats().sent_messages >= count; }) &&
           pipeline_->stats().sent_messages == count;
  }
  FakeInsertStream& stream(size_t index = 0) { return *connection_->inserts.at(index); }

  ManualClock clock_;
  uint64_t next_key_ = 100;
  std::shared_ptr<FakeConnection> connection_ = std::make_shared<FakeConnection>();
  std::shared_ptr<InsertPipeline> pipeline_;
};

TEST_F(InsertPipelineTest, SendsNothingBeforeTheWelcome) {
  Create();
  AddMany(3);
  ASSERT_EQ(connection_->inserts.size(), 1u);
  EXPECT_TRUE(stream().messages.empty());
  stream().Welcome();
  EXPECT_THAT(stream().numbers(), ElementsAre(1, 2, 3));
  EXPECT_EQ(stream().messages.size(), 1u) << "what has gathered goes together";
  EXPECT_NE(stream().hello.session_id, Id128{});
}

TEST_F(InsertPipelineTest, MessagesGrowWhileTheStreamIsBusy) {
  Create();
  stream().Welcome();
  stream().is_ready = false;
  AddMany(1200);
  ASSERT_EQ(stream().messages.size(), 1u);
  EXPECT_EQ(stream().messages[0].items.size(), 1u);
  stream().events->OnSent();
  ASSERT_EQ(stream().messages.size(), 2u);
  EXPECT_EQ(stream().messages[1].items.size(), 512u) << "but not beyond a bound";
  stream().events->OnSent();
  stream().events->OnSent();
  std::vector<uint64_t> all(1200);
  std::iota(all.begin(), all.end(), 1);
  EXPECT_EQ(stream().numbers(), all);
}

TEST_F(InsertPipelineTest, ItemsAddedTogetherAreSentTogether) {
  Create();
  stream().Welcome();
  std::vector<Item> items;
  for (uint64_t key = 1; key <= 64; ++key) {
    items.push_back({.key = key, .table = "t", .priority = 1, .trajectory = MakeRow(8)});
  }
  ASSERT_OK(pipeline_->AddAll(items));
  ASSERT_EQ(stream().messages.size(), 1u);
  EXPECT_EQ(stream().messages[0].items.size(), 64u);
  EXPECT_EQ(pipeline_->pending_items(), 64);
}

TEST_F(InsertPipelineTest, MessagesAreBoundedInBytes) {
  Create();
  stream().bytes_per_item = 100 << 10;
  AddMany(5);
  stream().Welcome();
  ASSERT_EQ(stream().messages.size(), 3u);
  EXPECT_EQ(stream().messages[0].items.size(), 2u);
}

TEST_F(InsertPipelineTest, TheServerMayChangeTheWindow) {
  Create();
  stream().bytes_per_item = 1000;
  stream().Welcome(0, 1, /*window=*/2500);
  AddMany(20);
  EXPECT_THAT(stream().numbers(), ElementsAre(1, 2));
  // Larger: at once.
  stream().events->OnReply({.insert_window_bytes = 10'000});
  EXPECT_EQ(stream().numbers().size(), 10u);
  stream().Confirm(1);
  const size_t sent = stream().numbers().size();
  // Smaller: what was sent must be confirmed first.
  stream().events->OnReply({.confirmed_through = 2, .insert_window_bytes = 1500});
  EXPECT_EQ(stream().numbers().size(), sent);
  stream().Confirm(sent);
  EXPECT_EQ(stream().numbers().size(), sent + 1);
}

TEST_F(InsertPipelineTest, RespectsTheServersWindow) {
  Create();
  stream().bytes_per_item = 1000;
  stream().Welcome(0, 1, /*window=*/2500);
  for (int i = 0; i < 10; ++i) ASSERT_OK(Add());
  EXPECT_THAT(stream().numbers(), ElementsAre(1, 2));
  stream().Confirm(1);
  EXPECT_THAT(stream().numbers(), ElementsAre(1, 2, 3));
  stream().Confirm(3);
  EXPECT_THAT(stream().numbers(), ElementsAre(1, 2, 3, 4, 5));
}

TEST_F(InsertPipelineTest, ResumesWhenAQuarterOfTheServersWindowIsFree) {
  Create();
  stream().bytes_per_item = 1000;
  stream().Welcome(0, 1, /*window=*/10'000);
  for (int i = 0; i < 20; ++i) ASSERT_OK(Add());
  EXPECT_EQ(stream().numbers().back(), 8u);
  const size_t messages = stream().messages.size();
  stream().Confirm(1);
  EXPECT_EQ(stream().numbers().back(), 11u);
  EXPECT_EQ(stream().messages.size(), messages + 1);
  stream().Confirm(2);
  stream().Confirm(3);
  EXPECT_EQ(stream().messages.size(), messages + 1) << "sent a small message";
  stream().Confirm(4);
  EXPECT_EQ(stream().numbers().back(), 14u);
  EXPECT_EQ(stream().messages.size(), messages + 2);
}

TEST_F(InsertPipelineTest, AnItemLargerThanTheWindowIsSentAlone) {
  Create();
  stream().bytes_per_item = 5000;
  stream().Welcome(0, 1, /*window=*/2500);
  AddMany(3);
  EXPECT_THAT(stream().numbers(), ElementsAre(1));
  stream().Confirm(1);
  EXPECT_THAT(stream().numbers(), ElementsAre(1, 2));
}

TEST_F(InsertPipelineTest, WaitsUntilConfirmed) {
  Create();
  stream().Welcome();
  AddMany(4);
  EXPECT_EQ(pipeline_->pending_items(), 4);
  const Status late = pipeline_->AwaitPending(2, {.timeout = 1ms});
  EXPECT_THAT(late, StatusIs(StatusCode::kDeadlineExceeded, StartsWith("Timeout exceeded")));
  EXPECT_THAT(std::string(late.message()), HasSubstr("fake:1"));
  stream().Confirm(2);
  EXPECT_OK(pipeline_->AwaitPending(2, {.timeout = 0ms}));
  EXPECT_EQ(pipeline_->stats().confirmed, 2);
}

TEST_F(InsertPipelineTest, CountsTheBytesOfChunksOnce) {
  Create({.window_bytes = 3000});
  stream().Welcome();
  const Trajectory shared = MakeRow(2000);
  for (int i = 0; i < 10; ++i) ASSERT_OK(pipeline_->Add({.key = 1, .table = "t", .trajectory = shared}));
  EXPECT_FALSE(pipeline_->is_full());
  EXPECT_FALSE(pipeline_->may_wait());
  ASSERT_OK(Add(2000));
  EXPECT_TRUE(pipeline_->is_full());
  EXPECT_TRUE(pipeline_->may_wait());
  EXPECT_THAT(pipeline_->WaitForRoom({.timeout = 1ms}), StatusIs(StatusCode::kDeadlineExceeded));
  stream().Confirm(9);
  EXPECT_TRUE(pipeline_->is_full()) << "one item still refers to the shared chunk";
  stream().Confirm(10);
  EXPECT_OK(pipeline_->WaitForRoom({}));
}

TEST_F(InsertPipelineTest, ForgetsAChunkAfterTheLastItemThatMayReferToIt) {
  Create();
  stream().Welcome();
  stream().is_ready = false;
  AddMany(1);
  AddMany(600);
  pipeline_->Forget(7);
  AddMany(1);
  stream().events->OnSent();  // 2 … 513
  EXPECT_TRUE(stream().messages.back().forget_chunks.empty());
  stream().events->OnSent();  // 514 … 602
  EXPECT_THAT(stream().messages.back().forget_chunks, ElementsAre(7));
}

TEST_F(InsertPipelineTest, ResendsUnconfirmedItems) {
  Create();
  stream().Welcome();
  AddMany(5);
  stream().Confirm(2);
  pipeline_->Forget(7);
  stream().Close(Status::Unavailable("gone"));
  EXPECT_EQ(connection_->inserts.size(), 1u) << "not at once";
  EXPECT_THAT(pipeline_->AwaitPending(0, {.timeout = 1ms}),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("cannot be reached")));
  AddMany(1);
  clock_.Advance(1s);
  ASSERT_EQ(connection_->inserts.size(), 2u);
  EXPECT_EQ(stream(1).hello.session_id, stream(0).hello.session_id);
  stream(1).Welcome(/*applied_through=*/3);
  EXPECT_THAT(stream(1).numbers(), ElementsAre(4, 5, 6)) << "3 had been applied";
  EXPECT_THAT(stream(1).messages[0].forget_chunks, ElementsAre(7))
      << "an unconfirmed item brings it along again";
  stream(1).Confirm(6);
  EXPECT_OK(pipeline_->AwaitPending(0, {}));
  EXPECT_EQ(pipeline_->stats().lost, 0);
  EXPECT_EQ(pipeline_->stats().connections, 2);
}

TEST_F(InsertPipelineTest, ReconnectDelaysGrow) {
  Create();
  connection_->refuse = true;
  stream().Close(Status::Unavailable("gone"));
  clock_.Advance(10s);
  const size_t attempts = connection_->inserts.size();
  EXPECT_GE(attempts, 6u);
  EXPECT_LE(attempts, 20u) << "10 s with pauses of 20 ms to 2 s";
  EXPECT_OK(pipeline_->status()) << "it looks for the server for ever";
}

TEST_F(InsertPipelineTest, GivesUpAfterTheReconnectTimeout) {
  Create({.reconnect_timeout = 3s});
  connection_->refuse = true;
  stream().Close(Status::Unavailable("gone"));
  clock_.Advance(10s);
  EXPECT_THAT(
      pipeline_->AwaitPending(0, {}),
      StatusIs(StatusCode::kUnavailable, HasSubstr("the server at fake:1 could not be reached for 3.")));
  EXPECT_THAT(Add(), StatusIs(StatusCode::kUnavailable, HasSubstr("nobody is there")));
}

TEST_F(InsertPipelineTest, GivesUpOnAServerThatNeverAnswers) {
  Create({.reconnect_timeout = 3s});
  stream().answers_cancel = true;
  clock_.Advance(2999ms);
  EXPECT_OK(pipeline_->status());
  clock_.Advance(1ms);
  EXPECT_THAT(
      pipeline_->AwaitPending(0, {}),
      StatusIs(StatusCode::kUnavailable, HasSubstr("the server at fake:1 could not be reached for 3.0 s;")));
  EXPECT_EQ(connection_->inserts.size(), 1u);
}

TEST_F(InsertPipelineTest, AServerThatAnswersInTimeIsKept) {
  Create({.reconnect_timeout = 3s});
  stream().Welcome();
  EXPECT_EQ(clock_.pending(), 0);
  clock_.Advance(10s);
  EXPECT_OK(Add());
  EXPECT_FALSE(stream().cancelled);
}

TEST_F(InsertPipelineTest, ASingleInsertReconnectsWhileItIsUnconfirmed) {
  Create({.reconnects = false});
  stream().Close(Status::Unavailable("not there yet"));
  clock_.Advance(1s);
  stream(1).Welcome();
  AddMany(1);
  EXPECT_OK(pipeline_->status());
  stream(1).Close(Status::Unavailable("cut"));
  clock_.Advance(1s);
  EXPECT_OK(pipeline_->status());
  ASSERT_EQ(connection_->inserts.size(), 3u);
  EXPECT_EQ(stream(2).hello.session_id, stream(1).hello.session_id);
  stream(2).Welcome(/*applied_through=*/1);
  EXPECT_OK(pipeline_->AwaitPending(0, {}));
  EXPECT_TRUE(stream(2).numbers().empty()) << "the server has it";
  // An idle one does not reconnect.
  stream(2).Close(Status::Unavailable("gone"));
  EXPECT_THAT(pipeline_->status(), StatusIs(StatusCode::kUnavailable, HasSubstr("gone")));
}

const Status kDamaged = Status::DataLoss("damaged on the way").WithDetail(Detail::kCorruptData);

TEST_F(InsertPipelineTest, DamagedMessagesAreResent) {
  for (const bool reconnects : {true, false}) {
    Create({.reconnects = reconnects});
    const size_t first = connection_->inserts.size() - 1;
    stream(first).Welcome();
    AddMany(20);
    // Retries as long as it makes progress.
    for (uint64_t i = 1; i <= 20; ++i) {
      stream(first + i - 1).Close(kDamaged);
      clock_.Advance(1s);
      ASSERT_EQ(connection_->inserts.size(), first + i + 1);
      EXPECT_EQ(stream(first + i).hello.session_id, stream(first).hello.session_id);
      stream(first + i).Welcome(i - 1);
      EXPECT_EQ(stream(first + i).numbers().front(), i);
      stream(first + i).Confirm(i);
    }
    EXPECT_OK(pipeline_->AwaitPending(0, {}));
    pipeline_->Close();
  }
}

TEST_F(InsertPipelineTest, RepeatedDamageIsAnError) {
  Create();
  stream().Welcome();
  AddMany(1);
  for (size_t i = 0; i < 100 && pipeline_->status().ok(); ++i) {
    connection_->inserts.back()->Close(kDamaged);
    clock_.Advance(1s);
    if (connection_->inserts.back()->events) connection_->inserts.back()->Welcome();
  }
  EXPECT_THAT(pipeline_->AwaitPending(0, {}), StatusIs(StatusCode::kDataLoss, Detail::kCorruptData));
  EXPECT_EQ(connection_->inserts.size(), 1u + Reconnection::kMaxDamaged);
}

TEST_F(InsertPipelineTest, ARestartOfTheServerIsNoticed) {
  std::vector<std::string> lines;
  SetLogSink([&lines](LogLevel, std::string_view line) { lines.emplace_back(line); });
  Create();
  stream().Welcome(0, /*life=*/1);
  AddMany(5);
  stream().Confirm(4);
  stream().Close(Status::Unavailable("gone"));
  clock_.Advance(1s);
  stream(1).Welcome(0, /*life=*/2);
  EXPECT_THAT(stream(1).numbers(), ElementsAre(5)) << "confirmed items are not kept";
  EXPECT_EQ(pipeline_->stats().lost, 4);
  ASSERT_FALSE(lines.empty());
  EXPECT_THAT(lines.back(), HasSubstr("4 are not in what it restored"));
  SetLogSink({});
}

TEST_F(InsertPipelineTest, FinalErrorsAreFinal) {
  Create();
  stream().Welcome();
  AddMany(1);
  stream().Close(Status::InvalidArgument("number 0"));
  EXPECT_THAT(pipeline_->AwaitPending(0, {}), StatusIs(StatusCode::kInvalidArgument));
  clock_.Advance(100s);
  EXPECT_EQ(connection_->inserts.size(), 1u);
}

TEST_F(InsertPipelineTest, AnInProcessServerIsNotReconnected) {
  connection_->is_in_process = true;
  Create();
  stream().Welcome();
  stream().Close(Status::Unavailable("the server is shutting down"));
  EXPECT_THAT(Add(), StatusIs(StatusCode::kUnavailable, HasSubstr("shutting down")));
}

TEST_F(InsertPipelineTest, ARejectionNamesTheItem) {
  Create();
  stream().Welcome();
  AddMany(3);
  stream().events->OnReply({.confirmed_through = 3, .rejections = {{2, Status::NotFound("no such table")}}});
  EXPECT_THAT(pipeline_->status(), StatusIs(StatusCode::kNotFound, HasSubstr("item 101 for table \"t\"")));
}

TEST_F(InsertPipelineTest, FinishesTheStreamOnlyIfAllIsConfirmed) {
  Create();
  stream().Welcome();
  AddMany(1);
  stream().Confirm(1);
  pipeline_->Close();
  EXPECT_TRUE(stream().finished);
  EXPECT_THAT(Add(), StatusIs(StatusCode::kCancelled));

  Create();
  stream(1).Welcome();
  AddMany(1);
  pipeline_->Close();
  EXPECT_TRUE(stream(1).cancelled);
}

TEST_F(InsertPipelineTest, RepliesOfAFormerStreamAreIgnored) {
  Create();
  stream().Welcome();
  AddMany(2);
  std::shared_ptr<InsertEvents> former = stream().events;
  stream().Close(Status::Unavailable("gone"));
  clock_.Advance(1s);
  stream(1).Welcome();
  former->OnReply({.confirmed_through = 2});
  EXPECT_EQ(pipeline_->pending_items(), 2);
}

TEST_F(InsertPipelineTest, ResentChunksAreForgottenAgain) {
  Create();
  stream().Welcome();
  AddMany(2);
  pipeline_->Forget(7);
  AddMany(1);
  EXPECT_THAT(stream().messages.back().forget_chunks, ElementsAre(7));
  stream().Close(Status::Unavailable("gone"));
  clock_.Advance(1s);
  stream(1).Welcome();
  ASSERT_EQ(stream(1).messages.size(), 1u);
  EXPECT_THAT(stream(1).messages[0].forget_chunks, ElementsAre(7)) << "items 1 and 2 brought it along again";
  stream(1).Confirm(3);
  stream(1).Close(Status::Unavailable("gone"));
  clock_.Advance(10s);
  stream(2).Welcome(3);
  AddMany(1);
  EXPECT_TRUE(stream(2).messages[0].forget_chunks.empty()) << "it was not sent a third time";
}

TEST_F(InsertPipelineTest, ManyChunksAreForgottenEvenWithoutItems) {
  Create();
  stream().Welcome();
  AddMany(1);
  const size_t before = stream().messages.size();
  for (uint64_t id = 1; id <= 200; ++id) pipeline_->Forget(id);
  size_t told = 0;
  for (size_t i = before; i < stream().messages.size(); ++i)
    told += stream().messages[i].forget_chunks.size();
  EXPECT_GE(told, 130u);
  EXPECT_LE(stream().messages.size(), before + 5);
}

TEST_F(InsertPipelineTest, AnotherThreadSendsIfSendMayBlock) {
  connection_->may_block = true;
  Create();
  stream().Welcome();
  AddMany(1);
  ASSERT_TRUE(AwaitMessages(1));
  EXPECT_NE(stream().last_sender, std::this_thread::get_id()) << "an item";
  for (uint64_t id = 1; id <= 64; ++id) pipeline_->Forget(id);
  ASSERT_TRUE(AwaitMessages(2));
  EXPECT_NE(stream().last_sender, std::this_thread::get_id()) << "chunks to forget";
  EXPECT_EQ(stream().messages[1].forget_chunks.size(), 64u);
  AddMany(1);
  EXPECT_THAT(pipeline_->AwaitPending(0, {.timeout = 1ms}), StatusIs(StatusCode::kDeadlineExceeded));
  ASSERT_TRUE(AwaitMessages(3));
  EXPECT_EQ(stream().last_sender, std::this_thread::get_id()) << "one who waits has nothing better to do";
}

TEST_F(InsertPipelineTest, TheWriterSendsIfTheOtherThreadIsLate) {
  std::promise<void> go_on;
  RunInBackground([busy = go_on.get_future().share()] { busy.wait(); });
  connection_->may_block = true;
  Create();
  stream().Welcome();
  AddMany(255);
  EXPECT_TRUE(stream().messages.empty());
  AddMany(1);
  ASSERT_EQ(stream().messages.size(), 1u);
  EXPECT_EQ(stream().messages[0].items.size(), 256u);
  EXPECT_EQ(stream().last_sender, std::this_thread::get_id());
  std::promise<void> done;
  go_on.set_value();
  RunInBackground([&] { done.set_value(); });  // after the pipeline's own
  done.get_future().wait();
  EXPECT_EQ(stream().messages.size(), 1u) << "it found nothing left to do";
}

TEST_F(InsertPipelineTest, DelayedItemsCarryForgottenChunks) {
  connection_->may_block = true;
  Create();
  stream().Welcome();
  AddMany(1);
  ASSERT_TRUE(AwaitMessages(1));
  AddMany(3);
  for (uint64_t id = 1; id <= 192; ++id) pipeline_->Forget(id);  // a few more would be kept for the next item
  EXPECT_TRUE(AwaitMessages(1)) << "nothing goes before the answer";
  stream().Confirm(1);
  ASSERT_TRUE(AwaitMessages(2));
  EXPECT_EQ(stream().messages[1].items.size(), 3u);
  EXPECT_EQ(stream().messages[1].forget_chunks.size(), 192u);
}

TEST_F(InsertPipelineTest, ManyDelayedItemsAreSentBeforeTheReply) {
  connection_->may_block = true;
  Create();
  stream().Welcome();
  AddMany(1);
  ASSERT_TRUE(AwaitMessages(1));
  AddMany(127);
  AddMany(1);
  ASSERT_TRUE(AwaitMessages(2));
  EXPECT_EQ(stream().messages[1].items.size(), 128u);
}

TEST_F(InsertPipelineTest, AnItemIsNotDelayedByItemsOfAnotherTable) {
  connection_->may_block = true;
  Create();
  stream().Welcome();
  ASSERT_OK(AddTo("full"));
  ASSERT_TRUE(AwaitMessages(1));
  ASSERT_OK(AddTo("full"));
  EXPECT_TRUE(AwaitMessages(1)) << "held: it can only go in after the first";
  ASSERT_OK(AddTo("empty"));
  ASSERT_TRUE(AwaitMessages(2));
  EXPECT_THAT(stream().numbers(), ElementsAre(1, 2, 3)) << "items leave in order";
}

TEST_F(InsertPipelineTest, AnItemIsDelayedForAFewMillisecondsAtMost) {
  connection_->may_block = true;
  Create();
  stream().Welcome();
  AddMany(1);
  ASSERT_TRUE(AwaitMessages(1));
  AddMany(2);
  EXPECT_TRUE(AwaitMessages(1));
  clock_.Advance(5ms);
  ASSERT_TRUE(AwaitMessages(2)) << "no reply came";
  EXPECT_THAT(stream().numbers(), ElementsAre(1, 2, 3));
  EXPECT_EQ(clock_.pending(), 0) << "nothing is held, so nothing is timed";
  AddMany(1);
  clock_.Advance(5ms);
  ASSERT_TRUE(AwaitMessages(3)) << "and so again";
}

TEST_F(InsertPipelineTest, ItemsAddedAfterAReplyHaveADelayOfTheirOwn) {
  connection_->may_block = true;
  Create();
  stream().Welcome();
  AddMany(1);
  ASSERT_TRUE(AwaitMessages(1));
  AddMany(1);  // sets the alarm
  stream().Confirm(1);
  ASSERT_TRUE(AwaitMessages(2));
  AddMany(1);
  clock_.Advance(2ms);
  EXPECT_TRUE(AwaitMessages(2)) << "the alarm was set for item 2";
  EXPECT_EQ(clock_.pending(), 1);
  clock_.Advance(2ms);
  ASSERT_TRUE(AwaitMessages(3));
  EXPECT_THAT(stream().numbers(), ElementsAre(1, 2, 3));
}

TEST_F(InsertPipelineTest, ADelayedItemIsSentWhenTheStreamIsReady) {
  connection_->may_block = true;
  Create();
  stream().Welcome();
  stream().is_ready = false;
  AddMany(1);
  ASSERT_TRUE(AwaitMessages(1));
  AddMany(1);
  clock_.Advance(5ms);
  EXPECT_TRUE(AwaitMessages(1)) << "the first is still being written";
  stream().events->OnSent();
  clock_.Advance(5ms);
  ASSERT_TRUE(AwaitMessages(2));
  EXPECT_THAT(stream().numbers(), ElementsAre(1, 2));
}

TEST_F(InsertPipelineTest, AnItemLargerThanAMessageIsAnError) {
  Create();
  InsertReply reply;
  reply.welcome.emplace();
  reply.welcome->limits.max_message_bytes = 1000;
  stream().bytes_per_item = 300;
  stream().events->OnReply(std::move(reply));
  stream().is_ready = false;
  AddMany(5);
  stream().events->OnSent();
  EXPECT_EQ(stream().messages.back().items.size(), 1u) << "messages keep to half of what is accepted";
  stream().bytes_per_item = 5000;
  stream().events->OnSent();
  EXPECT_THAT(pipeline_->status(), StatusIs(StatusCode::kResourceExhausted, HasSubstr("max_message_bytes")));
}

TEST_F(InsertPipelineTest, AWriterFarAheadWaitsOnlyWhileTheStreamMakesProgress) {
  Create();
  stream().Welcome();
  stream().is_ready = false;
  // The stream accepts only one message: after a short wait the writer continues.
  for (int i = 0; i < 20; ++i) ASSERT_OK(Add(1 << 20));
  EXPECT_EQ(pipeline_->pending_items(), 20);
  EXPECT_EQ(stream().numbers().size(), 1u);
}

}  // namespace
}  // namespace reverb::internal
