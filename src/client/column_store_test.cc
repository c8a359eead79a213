#include "client/column_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/shared_memory.h"
#include "client/fake_sink_testing.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::FakeSink;
using test::FakeSinkState;
using test::Scalar;
using test::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kEpisode = 17;

class ColumnStoreTest : public ::testing::Test {
 protected:
  void Make(int64_t chunk_length, int64_t keep, ColumnStore::Packing packing = ColumnStore::Packing::kSmall) {
    store_ = std::make_unique<ColumnStore>(
        ColumnStore::Options{.chunking = {.num_keep_alive_refs = keep, .max_chunk_length = chunk_length},
                             .packing = packing},
        kEpisode, &sink_);
  }
  // Appends int64 scalars; absent columns are left out.
  Status Step(const std::vector<std::optional<int64_t>>& values, bool closes_step = true) {
    std::vector<ColumnValue> present;
    for (uint32_t i = 0; i < values.size(); ++i) {
      if (values[i]) present.push_back({i, Scalar(*values[i])});
    }
    return store_->Append(present, closes_step);
  }
  Status Append(uint32_t column, const TensorView& value) {
    return store_->Append(std::array{ColumnValue{column, value}}, true);
  }
  // Returns the slot of the cell; null if there is none.
  ChunkSlot* SlotOf(uint32_t column, int64_t position) {
    std::vector<RowRun> runs;
    int64_t rows = 0;
    const Status status = store_->Resolve(CellRange::One(column, position), 0, &runs, &rows);
    return status.ok() ? runs.at(0).slot : nullptr;
  }
  // Returns offset and length of each run.
  std::vector<std::pair<uint32_t, uint32_t>> Runs(const CellRange& range) {
    std::vector<RowRun> runs;
    int64_t rows = 0;
    EXPECT_OK(store_->Resolve(range, 0, &runs, &rows));
    std::vector<std::pair<uint32_t, uint32_t>> result;
    for (const RowRun& run : runs) result.emplace_back(run.offset, run.length);
    return result;
  }
  int64_t Number(uint32_t column, int64_t position) {
    const Result<Tensor> tensor = store_->Read(column, position);
    EXPECT_OK(tensor);
    return tensor.ok() ? *reinterpret_cast<const int64_t*>(tensor->data()) : -1;
  }

  FakeSinkState state_;
  FakeSink sink_{&state_};
  std::unique_ptr<ColumnStore> store_;
};

// --- Validation ---

TEST_F(ColumnStoreTest, AFailedAppendStoresNothing) {
  Make(2, 4);
  ASSERT_OK(Step({1, 2}));
  const int64_t number = 3;
  const float wrong = 4;
  // Column 0 is valid, column 2 is new, column 1 has the wrong dtype.
  EXPECT_THAT(store_->Append(std::array{ColumnValue{0, Scalar(number)}, ColumnValue{2, Scalar(number)},
                                        ColumnValue{1, Scalar(wrong)}},
                             true),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("Got float but expected int64")));
  EXPECT_EQ(store_->position(), 1);
  EXPECT_FALSE(store_->HasCell(0, 1));
  EXPECT_FALSE(store_->is_known(2));
  EXPECT_FALSE(SlotOf(0, 0)->chunk) << "no row was added to the chunk";
  ASSERT_OK(Step({3, 4}));
  EXPECT_EQ(SlotOf(0, 0)->chunk->header().rows(), 2u);
  EXPECT_EQ(Number(1, 1), 4);
}

TEST_F(ColumnStoreTest, CheckReportsTheErrorOfAppendWithoutEffect) {
  Make(2, 4);
  const int64_t number = 1;
  ASSERT_OK(store_->Check(std::array{ColumnValue{0, Scalar(number)}}));
  EXPECT_FALSE(store_->is_known(0));
  EXPECT_EQ(store_->position(), 0);
  const std::array twice = {ColumnValue{0, Scalar(number)}, ColumnValue{0, Scalar(number)}};
  EXPECT_EQ(store_->Check(twice), store_->Append(twice, true));
  EXPECT_THAT(store_->Check(twice), StatusIs(StatusCode::kInvalidArgument, HasSubstr("already been set")));
  ASSERT_OK(Step({1}));
}

TEST_F(ColumnStoreTest, ValuesThatExceedAChunkAreRejectedWithoutReadingThem) {
  Make(1, 1);
  const uint8_t byte = 0;  // far less memory than the shape requires
  const std::vector<int64_t> huge = {int64_t{1} << 20, int64_t{1} << 20};
  EXPECT_THAT(Append(0, {.dtype = DType::kUint8, .dims = huge, .data = &byte}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("bytes allowed in a chunk")));
  const std::vector<int64_t> negative = {-1};
  EXPECT_THAT(Append(0, {.dtype = DType::kUint8, .dims = negative, .data = &byte}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("out of range")));
  const std::vector<int64_t> one = {1};
  EXPECT_THAT(Append(0, {.dtype = DType::kUint8, .dims = one, .data = nullptr}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("without data")));
  EXPECT_THAT(Append(1u << 30, Scalar(DType::kUint8, byte)),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("out of range")));
  EXPECT_EQ(store_->position(), 0);
}

TEST_F(ColumnStoreTest, APackedStepMustFitIntoAChunk) {
  Make(1, 1, ColumnStore::Packing::kAll);
  const uint8_t byte = 0;  // Check() does not read the values
  const std::vector<int64_t> dims = {static_cast<int64_t>(DecodeLimits{}.raw_bytes())};
  const ColumnValue largest{0, {.dtype = DType::kUint8, .dims = dims, .data = &byte}};
  ASSERT_OK(store_->Check(std::array{largest}));
  EXPECT_THAT(store_->Check(std::array{largest, ColumnValue{1, Scalar(DType::kUint8, byte)}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("a step takes more than")));
}

TEST_F(ColumnStoreTest, AColumnMayBeSetOnceInAStep) {
  Make(2, 4);
  ASSERT_OK(Step({1}, /*closes_step=*/false));
  EXPECT_TRUE(store_->step_is_open());
  EXPECT_THAT(Step({2}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("already been set")));
  ASSERT_OK(Step({std::nullopt, 2}));
  EXPECT_EQ(store_->position(), 1);
  EXPECT_EQ(Number(0, 0), 1);
  EXPECT_EQ(Number(1, 0), 2);
}

// --- Groups ---

TEST_F(ColumnStoreTest, SmallColumnsOfACallShareTheirChunks) {
  Make(2, 4);
  const int64_t number = 1;
  const std::vector<uint8_t> frame(2048);
  const std::vector<int64_t> frame_dims = {2048};
  const std::string_view text = "text";
  const std::array step = {
      ColumnValue{0, Scalar(number)},
      ColumnValue{1, {.dtype = DType::kUint8, .dims = frame_dims, .data = frame.data()}},
      ColumnValue{2, {.dtype = DType::kString, .dims = {}, .data = &text}},
      ColumnValue{3, Scalar(number)},
  };
  for (int i = 0; i < 2; ++i) ASSERT_OK(store_->Append(step, true));
  EXPECT_EQ(store_->group(0), store_->group(3));
  EXPECT_NE(store_->group(1), store_->group(0)) << "large rows";
  EXPECT_NE(store_->group(2), store_->group(0)) << "strings can be large";
  EXPECT_NE(store_->group(2), store_->group(1));
  EXPECT_EQ(SlotOf(0, 0), SlotOf(3, 1));
  EXPECT_EQ(SlotOf(0, 0)->chunk->header().num_columns(), 2u);
  EXPECT_EQ(SlotOf(1, 0)->chunk->header().num_columns(), 1u);
}

TEST_F(ColumnStoreTest, PackingAllPutsAllColumnsIntoOneGroup) {
  Make(1, 1, ColumnStore::Packing::kAll);
  const int64_t number = 1;
  const std::vector<uint8_t> frame(2048);
  const std::vector<int64_t> dims = {2048};
  ASSERT_OK(
      store_->Append(std::array{ColumnValue{0, Scalar(number)},
                                ColumnValue{1, {.dtype = DType::kUint8, .dims = dims, .data = frame.data()}}},
                     true));
  EXPECT_EQ(store_->group(0), store_->group(1));
  EXPECT_EQ(SlotOf(1, 0)->chunk->header().num_columns(), 2u);
}

TEST_F(ColumnStoreTest, AMissingColumnFinishesTheChunkAndSplitsTheGroup) {
  Make(4, 8);
  ASSERT_OK(Step({0, 10, 20}));
  ASSERT_OK(Step({1, 11, 21}));
  EXPECT_EQ(store_->group(0), store_->group(2));
  ASSERT_OK(Step({2, std::nullopt, 22}));
  ASSERT_TRUE(SlotOf(1, 1)->chunk);
  EXPECT_EQ(SlotOf(1, 1)->chunk->header().rows(), 2u);
  EXPECT_EQ(store_->group(0), store_->group(2));
  EXPECT_NE(store_->group(0), store_->group(1));
  // The split is permanent.
  ASSERT_OK(Step({3, 13, 23}));
  EXPECT_NE(SlotOf(0, 3), SlotOf(1, 3));
  EXPECT_EQ(SlotOf(0, 3), SlotOf(2, 3));
  EXPECT_EQ(Number(1, 3), 13);
  EXPECT_EQ(Number(2, 2), 22);
}

TEST_F(ColumnStoreTest, AConfiguredColumnHasItsOwnChunks) {
  Make(2, 4);
  ASSERT_OK(store_->Configure(1, {.num_keep_alive_refs = 3, .max_chunk_length = 1}));
  ASSERT_OK(Step({1, 2}));
  EXPECT_NE(store_->group(0), store_->group(1));
  EXPECT_EQ(store_->chunk_length(0), 2);
  EXPECT_EQ(store_->chunk_length(1), 1);
  EXPECT_THAT(store_->Configure(0, {.num_keep_alive_refs = 9, .max_chunk_length = 1}),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("Flush must be called")));
  ASSERT_OK(store_->Finish(SlotOf(0, 0)));
  ASSERT_OK(store_->Configure(0, {.num_keep_alive_refs = 9, .max_chunk_length = 1}));
  EXPECT_EQ(store_->chunk_length(0), 1);
  EXPECT_EQ(store_->max_keep_alive_refs(), 9);
}

// --- Chunks ---

TEST_F(ColumnStoreTest, AChunkIsFinishedWhenItIsFull) {
  Make(3, 6);
  ASSERT_OK(Step({0}));
  ASSERT_OK(Step({1}));
  ChunkSlot* const first = SlotOf(0, 0);
  EXPECT_EQ(SlotOf(0, 1), first);
  EXPECT_FALSE(first->chunk);
  EXPECT_EQ(Number(0, 1), 1) << "read from the buffer";
  ASSERT_OK(Step({2}));
  ASSERT_TRUE(first->chunk);
  EXPECT_EQ(first->chunk->header().rows(), 3u);
  EXPECT_EQ(Number(0, 1), 1) << "read from the chunk";
  ASSERT_OK(Step({3}));
  EXPECT_NE(SlotOf(0, 3), first);
}

TEST_F(ColumnStoreTest, FinishCompletesAChunkThatAnItemNeeds) {
  Make(4, 8);
  ASSERT_OK(Step({0}));
  ASSERT_OK(Step({1}));
  ChunkSlot* const slot = SlotOf(0, 0);
  ASSERT_OK(store_->Finish(slot));
  ASSERT_TRUE(slot->chunk);
  EXPECT_EQ(slot->chunk->header().rows(), 2u);
  const Chunk* const chunk = slot->chunk.get();
  ASSERT_OK(store_->Finish(slot));  // already complete
  EXPECT_EQ(slot->chunk.get(), chunk);
  ASSERT_OK(Step({2}));
  EXPECT_NE(SlotOf(0, 2), slot);
  EXPECT_EQ(Number(0, 0), 0);
  EXPECT_EQ(Number(0, 2), 2);
}

TEST_F(ColumnStoreTest, RunsJoinAdjacentRowsOfAChunk) {
  Make(3, 6);
  for (int64_t i = 0; i < 6; ++i) ASSERT_OK(Step({i}));
  using Pair = std::pair<uint32_t, uint32_t>;
  EXPECT_THAT(Runs({0, 0, 6, 1}), ElementsAre(Pair(0, 3), Pair(0, 3)));
  EXPECT_THAT(Runs({0, 1, 5, 1}), ElementsAre(Pair(1, 2), Pair(0, 2)));
  EXPECT_THAT(Runs({0, 0, 6, 2}), ElementsAre(Pair(0, 1), Pair(2, 1), Pair(1, 1)));
  EXPECT_THAT(Runs({0, 2, -1, -1}), ElementsAre(Pair(2, 1), Pair(1, 1), Pair(0, 1)));
  EXPECT_THAT(Runs({0, 3, 3, 1}), IsEmpty());
}

TEST_F(ColumnStoreTest, UnresolvableRangesAreErrors) {
  Make(1, 2);
  std::vector<RowRun> runs;
  int64_t rows = 0;
  const auto resolve = [&](const CellRange& range) { return store_->Resolve(range, 0, &runs, &rows); };
  EXPECT_THAT(resolve({0, 0, 1, 1}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("has no values")));
  ASSERT_OK(Step({0}));
  ASSERT_OK(Step({std::nullopt, 1}));
  ASSERT_OK(Step({2}));
  EXPECT_THAT(resolve({0, 0, 1, 0}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("stride")));
  EXPECT_THAT(resolve({0, 1, 2, 1}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("no value at position 1")));
  EXPECT_THAT(resolve({0, 3, 4, 1}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("no value at position 3")));
  ASSERT_OK(Step({3}));
  EXPECT_THAT(resolve({0, 0, 1, 1}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("expired")));
}

TEST_F(ColumnStoreTest, OldCellsExpire) {
  Make(1, 2);
  for (int64_t i = 0; i < 3; ++i) ASSERT_OK(Step({i}));
  EXPECT_FALSE(store_->HasCell(0, 0));
  EXPECT_TRUE(store_->HasCell(0, 1));
  EXPECT_THAT(store_->Read(0, 0),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("the newest 2 of the column are kept")));
  EXPECT_EQ(Number(0, 2), 2);
}

TEST_F(ColumnStoreTest, TheSinkForgetsSentChunksThatAreReleased) {
  Make(1, 1);
  ASSERT_OK(Step({0}));
  ChunkSlot* const sent = SlotOf(0, 0);
  sent->was_sent = true;
  const uint64_t id = sent->chunk->id();
  store_->Ref(sent);  // an item waits
  ASSERT_OK(Step({1}));
  EXPECT_THAT(state_.forgotten, IsEmpty());
  store_->Unref(sent);
  EXPECT_THAT(state_.forgotten, ElementsAre(id));
  ASSERT_OK(Step({2}));  // the chunk of step 1 was not sent
  EXPECT_THAT(state_.forgotten, ElementsAre(id));
}

TEST_F(ColumnStoreTest, DiscardedColumnsAreCheckedButNotStored) {
  Make(1, 2);
  ASSERT_OK(store_->Discard(1));
  ASSERT_OK(Step({0, 10}));
  EXPECT_TRUE(store_->HasCell(1, 0));
  EXPECT_EQ(SlotOf(1, 0), nullptr);
  EXPECT_EQ(SlotOf(0, 0)->chunk->header().num_columns(), 1u);
  const float wrong = 1;
  EXPECT_THAT(Append(1, Scalar(wrong)), StatusIs(StatusCode::kInvalidArgument, HasSubstr("wrong dtype")));
  ASSERT_OK(Step({1}));
  EXPECT_FALSE(store_->HasCell(1, 1));
}

TEST_F(ColumnStoreTest, StringsCanBeReadFromTheBufferAndFromTheChunk) {
  Make(3, 6);
  const std::vector<int64_t> dims = {2};
  const std::vector<std::array<std::string_view, 2>> rows = {{"", "a"}, {"long text", ""}, {"b", "c"}};
  for (const auto& row : rows) {
    ASSERT_OK(Append(0, {.dtype = DType::kString, .dims = dims, .data = row.data()}));
    for (int64_t i = 0; i < store_->position(); ++i) {
      const Result<Tensor> read = store_->Read(0, i);
      ASSERT_OK(read);
      EXPECT_THAT(read->strings(), ElementsAre(rows[i][0], rows[i][1])) << i;
    }
  }
  EXPECT_TRUE(SlotOf(0, 0)->chunk);
}

// --- Episodes ---

TEST_F(ColumnStoreTest, AnEpisodeFinishesChunksAndRestartsSteps) {
  Make(4, 8);
  ASSERT_OK(Step({0}));
  ASSERT_OK(Step({1}));
  ChunkSlot* const first = SlotOf(0, 1);
  ASSERT_OK(store_->StartEpisode(kEpisode + 1, /*clear=*/false));
  ASSERT_TRUE(first->chunk);
  EXPECT_EQ(first->chunk->header().episode_id(), kEpisode);
  EXPECT_EQ(first->chunk->header().last_step(), 1);
  EXPECT_TRUE(store_->HasCell(0, 0)) << "the history continues";
  EXPECT_EQ(store_->episode_begin(), 2);
  EXPECT_EQ(store_->history_begin(), 0);
  ASSERT_OK(Step({2}));
  ChunkSlot* const second = SlotOf(0, 2);
  EXPECT_NE(second, first) << "chunks do not span episodes";
  ASSERT_OK(store_->Finish(second));
  EXPECT_EQ(second->chunk->header().episode_id(), kEpisode + 1);
  EXPECT_EQ(second->chunk->header().first_step(), 0);
}

TEST_F(ColumnStoreTest, ClearDropsCellsAndKeepsOnlyChunksThatItemsNeed) {
  Make(4, 8);
  ASSERT_OK(Step({0}));
  ChunkSlot* const needed = SlotOf(0, 0);
  store_->Ref(needed);  // an item waits
  ASSERT_OK(store_->StartEpisode(kEpisode + 1, /*clear=*/true));
  ASSERT_TRUE(needed->chunk);
  EXPECT_FALSE(store_->HasCell(0, 0));
  EXPECT_EQ(store_->history_begin(), 1);
  store_->Unref(needed);

  ASSERT_OK(Step({1}));
  ChunkSlot* const unneeded = SlotOf(0, 1);
  ASSERT_OK(store_->StartEpisode(kEpisode + 2, /*clear=*/true));
  EXPECT_FALSE(unneeded->chunk) << "nothing was encoded";
  EXPECT_EQ(unneeded->refs, 0u);
  ASSERT_OK(Step({2}));
  EXPECT_EQ(Number(0, 2), 2) << "the row buffer was cleared";
  EXPECT_THAT(state_.forgotten, IsEmpty());
}

TEST_F(ColumnStoreTest, AnEpisodeClosesAnOpenStep) {
  Make(2, 4);
  ASSERT_OK(Step({0}, /*closes_step=*/false));
  EXPECT_EQ(store_->position(), 0);
  ASSERT_OK(store_->StartEpisode(kEpisode + 1, /*clear=*/false));
  EXPECT_EQ(store_->position(), 1);
  EXPECT_FALSE(store_->step_is_open());
  ASSERT_OK(Step({1}));
  EXPECT_EQ(Number(0, 1), 1);
}

// --- Payload memory ---

TEST_F(ColumnStoreTest, PayloadsAreInMemoryOfTheSource) {
  ManualClock clock;
  SharedMemory memory(&clock);
  store_ = std::make_unique<ColumnStore>(
      ColumnStore::Options{.chunking = {.num_keep_alive_refs = 1, .max_chunk_length = 1},
                           .codec = CodecPolicy::kNone,
                           .payload_source = &memory},
      kEpisode, &sink_);
  // Small, large, and larger than the memory that a store keeps.
  for (const int64_t elements : {10, 50, 5'000, 300'000}) {
    const std::vector<int64_t> numbers(static_cast<size_t>(elements), elements);
    const uint32_t column = store_->num_columns();
    const std::array<int64_t, 1> dims{elements};
    ASSERT_OK(Append(column, TensorView{DType::kInt64, dims, numbers.data()}));
    const ChunkRef chunk = SlotOf(column, store_->position() - 1)->chunk;
    ASSERT_TRUE(chunk);
    const size_t bytes = numbers.size() * sizeof(int64_t);
    EXPECT_EQ(memory.Contains(chunk->payload().data()), bytes >= Chunk::kMinSourcedBytes) << elements;
    EXPECT_EQ(std::memcmp(chunk->payload().data(), numbers.data(), bytes), 0);
  }
  store_.reset();
  for (int i = 0; i < 4; ++i) memory.ReleaseIdle();
  EXPECT_EQ(memory.stats().allocated_bytes, 0u);
}

}  // namespace
}  // namespace reverb::internal
