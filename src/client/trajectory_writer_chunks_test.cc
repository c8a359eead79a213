// Tests of tuned chunk lengths: which chunks a TrajectoryWriterImpl makes of rows that items refer to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "client/trajectory_writer_testing.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::ColumnOf;
using test::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TrajectoryWriterOptions TunedChunks(int64_t keep) {
  return {.chunking = {.num_keep_alive_refs = keep}, .seed = 1};
}

class TrajectoryWriterChunksTest : public TrajectoryWriterFixture {
 protected:
  // Appends `steps` rows of random floats to column 0.
  void Rows(int64_t steps, int64_t floats = 64) {
    const std::vector<int64_t> dims = {floats};
    std::vector<float> row(static_cast<size_t>(floats));
    for (int64_t i = 0; i < steps; ++i) {
      for (float& value : row) value = static_cast<float>(random_.Next());
      ASSERT_OK(writer_->Append(
          std::array{ColumnValue{0, {.dtype = DType::kFloat32, .dims = dims, .data = row.data()}}}));
    }
  }
  // Creates an item of the newest `rows` rows up to `back` steps before the newest.
  void ItemOfNewest(int64_t rows, int64_t back = 0) {
    const int64_t end = writer_->columns().position() - back;
    ASSERT_OK(Item({{{0, end - rows, end}}}));
  }
  // Returns the numbers of rows of the chunks of an item.
  std::vector<uint32_t> ChunkRows(size_t item) const {
    std::vector<uint32_t> rows;
    sink_.items[item].trajectory.ForEachChunk(
        [&](const Chunk* chunk) { rows.push_back(chunk->header().rows()); });
    return rows;
  }
  // Returns the bytes of all chunks that items refer to.
  uint64_t StoredBytes() const {
    uint64_t bytes = 0;
    std::set<uint64_t> ids;
    for (const internal::Item& item : sink_.items) {
      item.trajectory.ForEachChunk([&](const Chunk* chunk) {
        if (ids.insert(chunk->id()).second) bytes += chunk->bytes();
      });
    }
    return bytes;
  }
  // Writes `items` items of `length` steps, one every `period` steps, in episodes, and returns StoredBytes().
  uint64_t Bytes(const TrajectoryWriterOptions& options, int items, int64_t length, int64_t period,
                 int64_t episode, int64_t floats) {
    sink_ = {};
    random_ = Random(5);
    Make(options);
    for (int made = 0; made < items;) {
      for (int64_t step = 1; step <= episode && made < items; ++step) {
        Rows(1, floats);
        if (step < length || (step - length) % period != 0) continue;
        ItemOfNewest(length);
        ++made;
      }
      EXPECT_OK(writer_->EndEpisode(true, {}));
    }
    EXPECT_EQ(sink_.items.size(), static_cast<size_t>(items));
    return StoredBytes();
  }

  Random random_{5};
};

TEST_F(TrajectoryWriterChunksTest, AnItemOfNewRowsIsOneChunkFromTheFirstOn) {
  Make(TunedChunks(1000));
  for (size_t item = 0; item < 20; ++item) {
    Rows(1000 - static_cast<int64_t>(item), 1);
    ItemOfNewest(1000 - static_cast<int64_t>(item));
    ASSERT_EQ(sink_.items.size(), item + 1) << "an item is sent when it is created";
    EXPECT_THAT(ChunkRows(item), ElementsAre(1000 - item));
    ASSERT_OK(writer_->EndEpisode(true, {}));
  }
}

TEST_F(TrajectoryWriterChunksTest, CollectedRowsAreBoundedByBytesAndByTheRowsKept) {
  Make(TunedChunks(1000));
  Rows(200, 1764);  // 7,056 bytes each
  ItemOfNewest(200);
  EXPECT_THAT(ChunkRows(0), ElementsAre(38, 38, 38, 38, 38, 10));
  sink_ = {};
  Make(TunedChunks(7));
  Rows(16);
  ItemOfNewest(7);
  EXPECT_THAT(ChunkRows(0), ElementsAre(7, 2)) << "a chunk never has more rows than are kept";
}

TEST_F(TrajectoryWriterChunksTest, OverlappingSequencesGetAChunkForEachPeriod) {
  Make(TunedChunks(80));
  Rows(80);
  ItemOfNewest(80);
  for (int i = 0; i < 30; ++i) {
    Rows(40);
    ItemOfNewest(80);
  }
  EXPECT_THAT(ChunkRows(0), ElementsAre(80));
  EXPECT_THAT(ChunkRows(1), ElementsAre(80, 40));
  for (size_t i = 2; i <= 30; ++i) EXPECT_THAT(ChunkRows(i), ElementsAre(40, 40)) << i;
}

TEST_F(TrajectoryWriterChunksTest, ItemsAreSentWhenTheyAreCreatedAndContainNoOtherRows) {
  Make(TunedChunks(100));
  for (size_t item = 0; item < 9; ++item) {
    Rows(50);
    ItemOfNewest(4);
    ASSERT_EQ(sink_.items.size(), item + 1);
    EXPECT_THAT(ChunkRows(item), ElementsAre(4)) << "the 46 rows before them are other chunks";
  }
  // Rows in the middle of those that were collected, and then those around them.
  Rows(50);
  ItemOfNewest(10, 20);
  EXPECT_THAT(ChunkRows(9), ElementsAre(10));
  ItemOfNewest(50);
  EXPECT_THAT(ChunkRows(10), ElementsAre(10, 10, 10, 10, 10));
}

TEST_F(TrajectoryWriterChunksTest, RowsFarApartAreSeparateChunks) {
  Make(TunedChunks(100));
  Rows(100);
  ASSERT_OK(Item({{CellRange::One(0, 90), CellRange::One(0, 10)}, {{0, 10, 12}, CellRange::One(0, 90)}}));
  ASSERT_EQ(sink_.items.size(), 1u);
  EXPECT_THAT(ChunkRows(0), ::testing::UnorderedElementsAre(1, 2));
  EXPECT_EQ(ColumnOf<float>(sink_.items[0], 0).size(), 2 * 64u);
  for (int64_t position = 0; position < 100; ++position) {
    const Result<Tensor> row = writer_->columns().Read(0, position);
    ASSERT_OK(row);
  }
  const Tensor first = writer_->columns().Read(0, 90).value();
  EXPECT_EQ(ColumnOf<float>(sink_.items[0], 0)[0], *reinterpret_cast<const float*>(first.data()));
}

TEST_F(TrajectoryWriterChunksTest, SmallGapsStayInTheChunk) {
  Make(TunedChunks(10));
  for (int64_t i = 0; i < 8; ++i) ASSERT_OK(Step({i}));
  ASSERT_OK(Item({{CellRange::One(0, 0), CellRange::One(0, 6)}}));
  EXPECT_THAT(ColumnOf<int64_t>(sink_.items[0], 0), ElementsAre(0, 6));
  EXPECT_THAT(ChunkRows(0), ElementsAre(7)) << "another chunk would take more than 40 bytes";
}

TEST_F(TrajectoryWriterChunksTest, StringsAreCutAtTheirRows) {
  Make(TunedChunks(50));
  const std::vector<std::string> words = {"", "a", "bc", std::string(300, 'd'), "efg"};
  for (size_t i = 0; i < 40; ++i) {
    const std::string_view word = words[i % words.size()];
    ASSERT_OK(
        writer_->Append(std::array{ColumnValue{0, {.dtype = DType::kString, .dims = {}, .data = &word}}}));
  }
  ASSERT_OK(Item({{{0, 17, 20}}}));
  ASSERT_EQ(sink_.items.size(), 1u);
  EXPECT_THAT(ChunkRows(0), ElementsAre(3));
  ASSERT_OK(Item({{{0, 0, 40}}}));
  EXPECT_THAT(ChunkRows(1), ElementsAre(3, 3, 3, 3, 3, 2, 3, 3, 3, 3, 3, 3, 3, 2));
  for (int64_t i = 0; i < 40; ++i) {
    EXPECT_EQ(writer_->columns().Read(0, i).value().strings()[0],
              words[static_cast<size_t>(i) % words.size()]);
  }
}

TEST_F(TrajectoryWriterChunksTest, ItemsOfEveryStepGetTheLengthsOfTheTuner) {
  Make(TunedChunks(2));
  Rows(1);
  int64_t longest = 0;
  for (int i = 0; i < 100; ++i) {
    Rows(1);
    ItemOfNewest(2);
    longest = std::max(longest, writer_->columns().chunk_length(0));
  }
  EXPECT_THAT(ChunkRows(0), ElementsAre(2)) << "both rows of the first item are new";
  EXPECT_THAT(ChunkRows(1), ElementsAre(2, 1));
  EXPECT_THAT(ChunkRows(5), ElementsAre(1, 1));
  EXPECT_EQ(longest, 2) << "the tuner goes up by two, to the maximum";
}

TEST_F(TrajectoryWriterChunksTest, ItemsCreatedAtTheEndOfAnEpisodeGetChunksOfTheirLength) {
  Make(TunedChunks(1000));
  for (int episode = 0; episode < 3; ++episode) {
    sink_.items.clear();
    Rows(101);
    const int64_t end = writer_->columns().position();
    for (int64_t i = 100; i > 0; --i) ASSERT_OK(Item({{{0, end - i - 1, end - i + 1}}}));
    ASSERT_EQ(sink_.items.size(), 100u);
    EXPECT_THAT(ChunkRows(0), ElementsAre(2));
    EXPECT_THAT(ChunkRows(1), ElementsAre(2, 2));
    EXPECT_THAT(ChunkRows(99), ElementsAre(2, 1)) << "the last row was left over";
    ASSERT_OK(writer_->EndEpisode(true, {}));
  }
}

TEST_F(TrajectoryWriterChunksTest, ItemsThatWaitDoNotCountAgainWhenTheyAreSent) {
  Make(TunedChunks(10));
  // Its chunks are complete after an even number of rows; items of odd numbers wait for one more row.
  ASSERT_OK(writer_->Configure(1, {.num_keep_alive_refs = 4, .max_chunk_length = 2}));
  ASSERT_OK(Step({0, 0}));
  for (int64_t end = 3; end < 50; end += 2) {
    for (int64_t row = end - 2; row < end; ++row) ASSERT_OK(Step({row, row}));
    ASSERT_OK(Item({{{0, end - 2, end}}, {CellRange::One(1, end - 1)}}));
  }
  ASSERT_EQ(sink_.items.size(), 23u) << "the last one waits";
  EXPECT_THAT(ChunkRows(22), ElementsAre(2, 2)) << "rows are collected, since each second one has an item";
}

TEST_F(TrajectoryWriterChunksTest, RowsThatNoItemNeedsAreNotEncoded) {
  Make(TunedChunks(10));
  for (int64_t i = 0; i < 5; ++i) ASSERT_OK(Step({i}));
  ASSERT_OK(writer_->EndEpisode(true, {}));
  ASSERT_OK(Step({5}));
  ASSERT_OK(Item({{{0, 5, 6}}}));
  EXPECT_THAT(ColumnOf<int64_t>(sink_.items[0], 0), ElementsAre(5));
  EXPECT_THAT(ChunkRows(0), ElementsAre(1));
}

TEST_F(TrajectoryWriterChunksTest, CollectedRowsDoNotPreventConfigure) {
  Make(TunedChunks(10));
  for (int64_t i = 0; i < 5; ++i) ASSERT_OK(Step({i}));
  ASSERT_OK(writer_->Configure(0, {.num_keep_alive_refs = 8, .max_chunk_length = 2}));
  ASSERT_OK(Step({5}));
  ASSERT_OK(Item({{{0, 0, 6}}}));
  EXPECT_THAT(sink_.items, IsEmpty()) << "the new chunk is not full";
  EXPECT_THAT(writer_->Configure(0, {.num_keep_alive_refs = 8, .max_chunk_length = 2}),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("Flush must be called")));
  ASSERT_OK(writer_->Flush(0, {}));
  EXPECT_THAT(ChunkRows(0), ElementsAre(5, 1));
}

// The sizes are those of incompressible data; every machine gets the same ones.
struct Workload {
  const char* name;
  int64_t keep, length, period, episode, floats;
};

TEST_F(TrajectoryWriterChunksTest, StoredBytesAreCloseToThoseOfTheBestFixedLength) {
  for (const Workload& work : {
           Workload{"tokens", 1000, 1000, 1000, 1000, 1},
           Workload{"episodes", 200, 200, 200, 200, 64},
           Workload{"episodes of large rows", 40, 40, 40, 40, 1764},
           Workload{"sequences 80/40", 80, 80, 40, 400, 64},
           Workload{"a few of many steps", 1000, 4, 100, 1000, 64},
       }) {
    SCOPED_TRACE(work.name);
    for (const int items : {1, 5}) {
      uint64_t best = UINT64_MAX;
      for (const int64_t length : {4, 40, 200, 1000}) {
        if (length > work.keep) break;
        best = std::min(best, Bytes(ConstantChunks(length, work.keep), items, work.length, work.period,
                                    work.episode, work.floats));
      }
      const uint64_t tuned =
          Bytes(TunedChunks(work.keep), items, work.length, work.period, work.episode, work.floats);
      EXPECT_LE(static_cast<double>(tuned), 1.2 * static_cast<double>(best)) << items << " items";
    }
  }
}

TEST_F(TrajectoryWriterChunksTest, ItemsOfEveryStepStoreNoMoreThanWithSingleRows) {
  for (const Workload& work : {
           Workload{"single steps", 1, 1, 1, 50, 64},
           Workload{"single steps of a long history", 1000, 1, 1, 50, 64},
           Workload{"transitions", 2, 2, 1, 50, 64},
           Workload{"transitions of short episodes", 2, 2, 1, 4, 64},
           Workload{"transitions of large rows", 2, 2, 1, 50, 1764},
           Workload{"five steps", 6, 6, 1, 50, 64},
           Workload{"five steps of short episodes", 6, 6, 1, 12, 64},
       }) {
    SCOPED_TRACE(work.name);
    for (const int items : {1, 10, 60}) {
      const uint64_t single =
          Bytes(ConstantChunks(1, work.keep), items, work.length, work.period, work.episode, work.floats);
      const uint64_t tuned =
          Bytes(TunedChunks(work.keep), items, work.length, work.period, work.episode, work.floats);
      EXPECT_LE(tuned, single) << items << " items";
    }
  }
}

}  // namespace
}  // namespace reverb::internal
