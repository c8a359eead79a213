// Tests of the items that a TrajectoryWriterImpl holds until their chunks are complete: order, flush, close.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "client/trajectory_writer_testing.h"
#include "reverb/log.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::ColumnOf;
using test::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class TrajectoryWriterQueueTest : public TrajectoryWriterFixture {};

TEST_F(TrajectoryWriterQueueTest, ItemsWaitForTheirChunksInOrder) {
  Make(ConstantChunks(2, 4));
  ASSERT_OK(Step({0}));
  ASSERT_OK(Item({{{0, 0, 1}}}, 1));
  EXPECT_THAT(sink_.items, IsEmpty());
  ASSERT_OK(Step({1}));
  ASSERT_EQ(sink_.items.size(), 1u);
  ASSERT_OK(Step({2}));
  ASSERT_OK(Item({{{0, 1, 3}}}, 2));
  ASSERT_OK(Item({{{0, 0, 2}}}, 3));  // complete, but behind an incomplete one
  EXPECT_EQ(sink_.items.size(), 1u);
  ASSERT_OK(Step({3}));
  ASSERT_EQ(sink_.items.size(), 3u);
  EXPECT_EQ(sink_.items[1].priority, 2);
  EXPECT_THAT(ColumnOf<int64_t>(sink_.items[1], 0), ElementsAre(1, 2));
  EXPECT_EQ(sink_.items[2].priority, 3);
}

TEST_F(TrajectoryWriterQueueTest, WaitingItemsOutliveTheHistory) {
  Make(ConstantChunks(2, 2));
  ASSERT_OK(writer_->Configure(1, {.num_keep_alive_refs = 100, .max_chunk_length = 100}));
  ASSERT_OK(Step({0, 0}));
  ASSERT_OK(Step({1, 1}));
  ASSERT_OK(Item({{{0, 0, 2}}, {{1, 0, 1}}}));
  for (int64_t i = 2; i < 10; ++i) ASSERT_OK(Step({i, i}));
  EXPECT_THAT(sink_.items, IsEmpty());
  ASSERT_OK(writer_->Flush(0, {}));
  ASSERT_EQ(sink_.items.size(), 1u);
  EXPECT_THAT(ColumnOf<int64_t>(sink_.items[0], 0), ElementsAre(0, 1));
}

TEST_F(TrajectoryWriterQueueTest, FlushFinishesWhatAllButTheLastItemsNeed) {
  Make(ConstantChunks(10, 10));
  ASSERT_OK(writer_->Configure(1, {.num_keep_alive_refs = 10, .max_chunk_length = 10}));
  ASSERT_OK(Step({0, 0}));
  ASSERT_OK(Item({{{0, 0, 1}}}));
  ASSERT_OK(Item({{{1, 0, 1}}}));
  EXPECT_THAT(writer_->Flush(-1, {}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("-1")));
  ASSERT_OK(writer_->Flush(2, {}));
  EXPECT_THAT(sink_.items, IsEmpty());
  ASSERT_OK(writer_->Flush(1, {}));
  EXPECT_EQ(sink_.items.size(), 1u);
  EXPECT_EQ(writer_->waiting_items(), 1);
  EXPECT_THAT(sink_.awaited, ElementsAre(0, 0));
  sink_.confirms = false;
  EXPECT_THAT(writer_->Flush(0, {}), StatusIs(StatusCode::kDeadlineExceeded, StartsWith("Timeout exceeded")));
  EXPECT_EQ(sink_.items.size(), 2u);
}

TEST_F(TrajectoryWriterQueueTest, EndOfEpisodeClosesTheStepAlsoWhenTheWaitFails) {
  Make(ConstantChunks(3, 4));
  ASSERT_OK(Step({0}));
  ASSERT_OK(Step({1}, true));
  ASSERT_OK(Item({{{0, 0, 2}}}));
  sink_.confirms = false;
  EXPECT_THAT(writer_->EndEpisode(true, {}), StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_EQ(sink_.items.size(), 1u);
  EXPECT_FALSE(writer_->columns().step_is_open());
  EXPECT_EQ(writer_->episode_steps(), 0);
  EXPECT_THAT(Item({{{0, 1, 2}}}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("expired CellRef")));
  ASSERT_OK(Step({2}));
  EXPECT_TRUE(writer_->columns().HasCell(0, 2));
}

TEST_F(TrajectoryWriterQueueTest, RowsThatNoItemNeedsAreNotEncodedAtAClearingEnd) {
  Make(ConstantChunks(4, 4));
  ASSERT_OK(Step({0}));
  ASSERT_OK(writer_->EndEpisode(true, {}));
  for (int64_t i = 1; i < 5; ++i) ASSERT_OK(Step({i}));
  ASSERT_OK(Item({{{0, 1, 5}}}));
  ASSERT_EQ(sink_.items.size(), 1u);
  EXPECT_THAT(ColumnOf<int64_t>(sink_.items[0], 0), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(sink_.items[0].trajectory.slice(0, 0).chunk->header().first_step(), 0);
}

TEST_F(TrajectoryWriterQueueTest, ChunksThatWereSentAreForgottenOnce) {
  Make(ConstantChunks(1, 2));
  for (int64_t i = 0; i < 6; ++i) {
    ASSERT_OK(Step({i}));
    if (i % 2 == 0) {
      ASSERT_OK(Item({{{0, i, i + 1}}}));
    }
  }
  // 0 and 2 can no longer be used; 1 and 3 were never sent; 4 may be used again.
  ASSERT_EQ(sink_.items.size(), 3u);
  const auto id = [&](size_t item) { return sink_.items[item].trajectory.slice(0, 0).chunk->id(); };
  EXPECT_THAT(sink_.forgotten, ElementsAre(id(0), id(1)));
  ASSERT_OK(writer_->EndEpisode(true, {}));
  EXPECT_THAT(sink_.forgotten, ElementsAre(id(0), id(1), id(2)));
}

TEST_F(TrajectoryWriterQueueTest, WaitsForAFullSinkBeforeAcceptingTheItem) {
  Make(ConstantChunks(2, 2));
  ASSERT_OK(Step({0}));
  ASSERT_OK(Item({{{0, 0, 1}}}, 1));
  sink_.is_full = true;
  sink_.confirms = false;
  EXPECT_THAT(Item({{{0, 0, 1}}}, 2), StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_EQ(sink_.items.size(), 1u);  // the waiting item was completed and sent
  EXPECT_EQ(writer_->waiting_items(), 0);
  sink_.confirms = true;
  ASSERT_OK(Item({{{0, 0, 1}}}, 2));
  ASSERT_EQ(sink_.items.size(), 2u);
  EXPECT_EQ(sink_.waits_for_room, 2);
}

TEST_F(TrajectoryWriterQueueTest, CloseStopsWritingButNotReading) {
  Make(ConstantChunks(2, 2));
  ASSERT_OK(Step({5}));
  ASSERT_OK(Item({{{0, 0, 1}}}));
  writer_->Close();
  writer_->Close();
  EXPECT_TRUE(sink_.is_closed);
  EXPECT_THAT(sink_.items, IsEmpty());
  const auto closed = StatusIs(StatusCode::kCancelled, "TrajectoryWriter::Close has been called.");
  EXPECT_THAT(Step({6}), closed);
  EXPECT_THAT(Item({{{0, 0, 1}}}), closed);
  EXPECT_THAT(writer_->Flush(0, {}), closed);
  EXPECT_THAT(writer_->EndEpisode(true, {}), closed);
  EXPECT_EQ(writer_->episode_steps(), 1);
  const Result<Tensor> read = writer_->columns().Read(0, 0);
  ASSERT_OK(read);
  EXPECT_EQ(*reinterpret_cast<const int64_t*>(read->data()), 5);
}

TEST_F(TrajectoryWriterQueueTest, DestructionFlushes) {
  Make(ConstantChunks(2, 2));
  ASSERT_OK(Step({5}));
  ASSERT_OK(Item({{{0, 0, 1}}}));
  writer_.reset();
  EXPECT_EQ(sink_.items.size(), 1u);
  EXPECT_EQ(sink_.pending, 0);
  EXPECT_TRUE(sink_.is_closed);
}

TEST_F(TrajectoryWriterQueueTest, DestructionLogsOnlyLostItems) {
  std::vector<std::string> said;
  SetLogSink([&](LogLevel, std::string_view message) { said.emplace_back(message); });
  Make(ConstantChunks(2, 2));
  sink_.health = Status::Unavailable("the server is gone");
  writer_.reset();
  EXPECT_THAT(said, IsEmpty());
  sink_ = {};
  Make(ConstantChunks(2, 2));
  ASSERT_OK(Step({5}));
  ASSERT_OK(Item({{{0, 0, 1}}}));
  sink_.health = Status::Unavailable("the server is gone");
  writer_.reset();
  SetLogSink({});
  EXPECT_THAT(said, ElementsAre(HasSubstr("1 items that are not confirmed")));
}

TEST_F(TrajectoryWriterQueueTest, CloseReturnsTheNumberOfDiscardedItems) {
  Make(ConstantChunks(2, 2));
  ASSERT_OK(Step({5}));
  ASSERT_OK(Item({{{0, 0, 1}}}));
  ASSERT_OK(Step({6}));  // completes the chunk: the first item is sent, but not confirmed
  ASSERT_OK(Step({7}));
  ASSERT_OK(Item({{{0, 2, 3}}}));  // waits for its chunk
  EXPECT_EQ(sink_.items.size(), 1u);
  EXPECT_EQ(writer_->Close(), 2);
  EXPECT_EQ(writer_->Close(), 0);
}

TEST_F(TrajectoryWriterQueueTest, ReadReportsMissingCells) {
  Make(ConstantChunks(1, 2));
  for (int64_t i = 0; i < 3; ++i) ASSERT_OK(Step({i}));
  EXPECT_OK(writer_->columns().Read(0, 1));
  EXPECT_THAT(writer_->columns().Read(0, 0), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("expired")));
  EXPECT_THAT(writer_->columns().Read(9, 0), StatusIs(StatusCode::kFailedPrecondition));
}

}  // namespace
}  // namespace reverb::internal
