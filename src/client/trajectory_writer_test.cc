#include "client/trajectory_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "client/fake_sink_testing.h"
#include "client/trajectory_writer_testing.h"
#include "testing/effort.h"
#include "testing/seed.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::ColumnOf;
using test::Scalar;
using test::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class TrajectoryWriterTest : public TrajectoryWriterFixture {
 protected:
  void CompareWithAModel(uint64_t seed);
  // Appends a sequence of some of the columns, and calls keep_cell(column, position, value) for each cell.
  template <typename KeepCell>
  void AppendRandomSequence(Random* random, uint32_t columns, KeepCell keep_cell) {
    const int64_t begin = writer_->columns().position();
    const std::vector<int64_t> dims = {1 + static_cast<int64_t>(random->Below(70))};
    std::vector<std::vector<int64_t>> rows(columns);
    std::vector<ColumnValue> values;
    for (uint32_t c = 0; c < columns; ++c) {
      if (c > 0 && random->Below(3) == 0) continue;
      for (int64_t i = 0; i < dims[0]; ++i) rows[c].push_back(static_cast<int64_t>(random->Next()));
      values.push_back({c, {.dtype = DType::kInt64, .dims = dims, .data = rows[c].data()}});
    }
    ASSERT_OK(writer_->AppendSequence(values));
    for (const ColumnValue& value : values) {
      for (int64_t i = 0; i < dims[0]; ++i) {
        keep_cell(value.column, begin + i, rows[value.column][static_cast<size_t>(i)]);
      }
    }
  }
};

// --- Options ---

TEST(ChunkingOptionsTest, InvalidOptionsHaveTheDocumentedErrors) {
  EXPECT_THAT((ChunkingOptions{.num_keep_alive_refs = 0}.Validate()),
              StatusIs(StatusCode::kInvalidArgument, "num_keep_alive_refs must be > 0 but got 0."));
  EXPECT_THAT((ChunkingOptions{.num_keep_alive_refs = 2, .max_chunk_length = -1}.Validate()),
              StatusIs(StatusCode::kInvalidArgument, "max_chunk_length must be > 0 but got -1."));
  EXPECT_THAT(
      (ChunkingOptions{.num_keep_alive_refs = 2, .max_chunk_length = 3}.Validate()),
      StatusIs(StatusCode::kInvalidArgument, "num_keep_alive_refs (2) must be >= max_chunk_length (3)."));
  EXPECT_THAT((ChunkingOptions{.throughput_weight = std::nan("")}.Validate()),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_OK((ChunkingOptions{.num_keep_alive_refs = 2, .max_chunk_length = 2}.Validate()));
}

// --- Appending ---

TEST_F(TrajectoryWriterTest, ErrorsNameColumnActualAndExpectedSpec) {
  Make(ConstantChunks(1, 2));
  ASSERT_OK(writer_->NameColumn(1, "obs/pixels"));
  const std::vector<float> data(6);
  const std::vector<int64_t> dims = {3}, other = {1, 2};
  ASSERT_OK(writer_->Append(std::array{ColumnValue{1, {DType::kFloat32, dims, data.data()}}}));
  EXPECT_THAT(
      writer_->Append(std::array{ColumnValue{1, {DType::kFloat64, dims, data.data()}}}),
      StatusIs(StatusCode::kInvalidArgument,
               "Tensor of wrong dtype provided for column obs/pixels. Got double but expected float."));
  EXPECT_THAT(writer_->Append(std::array{ColumnValue{1, {DType::kFloat32, other, data.data()}}}),
              StatusIs(StatusCode::kInvalidArgument,
                       "Tensor of incompatible shape provided for column obs/pixels. Got [1,2] which is "
                       "incompatible with [3]."));
  EXPECT_THAT(writer_->Append(std::array{ColumnValue{1, {DType::kFloat32, {}, data.data()}}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("Got [] which")));
}

TEST_F(TrajectoryWriterTest, FailingAppendChangesNothing) {
  Make(ConstantChunks(2, 4));
  ASSERT_OK(Step({1, 10}));
  const float wrong = 0;
  const int64_t right = 2;
  // The first value and the new column are valid, the last value is not.
  EXPECT_THAT(writer_->Append(std::array{ColumnValue{0, Scalar(right)}, ColumnValue{2, Scalar(right)},
                                         ColumnValue{1, Scalar(wrong)}}),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_EQ(writer_->columns().position(), 1);
  EXPECT_FALSE(writer_->columns().HasCell(0, 1));
  EXPECT_FALSE(writer_->columns().is_known(2));
  ASSERT_OK(Step({2, 20}));
  ASSERT_OK(Item({{{0, 0, 2}}, {{1, 0, 2}}}));
  ASSERT_EQ(sink_.items.size(), 1u);
  EXPECT_THAT(ColumnOf<int64_t>(sink_.items[0], 0), ElementsAre(1, 2));
  EXPECT_THAT(ColumnOf<int64_t>(sink_.items[0], 1), ElementsAre(10, 20));
}

TEST_F(TrajectoryWriterTest, InvalidValuesAreRejected) {
  Make(ConstantChunks(1, 2));
  const int64_t value = 0;
  const std::vector<int64_t> negative = {-1}, huge = {1 << 20, 1 << 20};
  EXPECT_THAT(writer_->Append(std::array{ColumnValue{1u << 30, Scalar(value)}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("out of range")));
  EXPECT_THAT(writer_->Append(std::array{ColumnValue{0, {static_cast<DType>(99), {}, &value}}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("99")));
  EXPECT_THAT(writer_->Append(std::array{ColumnValue{0, {DType::kInt64, negative, &value}}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("-1")));
  EXPECT_THAT(writer_->Append(std::array{ColumnValue{0, {DType::kInt64, huge, &value}}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("smaller tensors")));
  EXPECT_THAT(writer_->Append(std::array{ColumnValue{0, {DType::kString, huge, &value}}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("smaller tensors")));
  EXPECT_THAT(writer_->Append(std::array{ColumnValue{0, {DType::kInt64, {}, nullptr}}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("without data")));
  EXPECT_EQ(writer_->columns().position(), 0);
}

// For any chunk length, so also right after the end of a chunk.
TEST_F(TrajectoryWriterTest, AColumnGivenTwiceInAStepIsRejected) {
  for (const int64_t length : {1, 2, 3}) {
    Make(ConstantChunks(length, 4));
    ASSERT_OK(writer_->NameColumn(0, "a"));
    ASSERT_OK(Step({1, {}}, /*partial=*/true));
    EXPECT_THAT(Step({2, {}}, true), StatusIs(StatusCode::kInvalidArgument,
                                              StartsWith("Field a has already been set in the active step")));
    EXPECT_THAT(Step({3, 3}), StatusIs(StatusCode::kInvalidArgument));
    ASSERT_OK(Step({{}, 3}));
    EXPECT_EQ(writer_->columns().position(), 1);
    ASSERT_OK(Step({4}));
    const int64_t value = 0;
    EXPECT_THAT(writer_->Append(std::array{ColumnValue{0, Scalar(value)}, ColumnValue{0, Scalar(value)}}),
                StatusIs(StatusCode::kInvalidArgument));
  }
}

TEST_F(TrajectoryWriterTest, StepsAreCounted) {
  Make(ConstantChunks(1, 2));
  ASSERT_OK(Step({1}));
  ASSERT_OK(Step({{}}));  // a step without values counts too
  ASSERT_OK(Step({2}, true));
  EXPECT_TRUE(writer_->columns().step_is_open());
  EXPECT_EQ(writer_->episode_steps(), 2);
  EXPECT_EQ(writer_->history_length(), 3);
  ASSERT_OK(Step({}));
  EXPECT_EQ(writer_->episode_steps(), 3);
  ASSERT_OK(writer_->EndEpisode(false, {}));
  EXPECT_EQ(writer_->episode_steps(), 0);
  EXPECT_EQ(writer_->history_length(), 3);
  ASSERT_OK(writer_->EndEpisode(true, {}));
  EXPECT_EQ(writer_->history_length(), 0);
  EXPECT_EQ(writer_->columns().position(), 3);
}

// --- Chunks ---

TEST_F(TrajectoryWriterTest, SmallColumnsShareChunksLargeOnesDoNot) {
  Make(ConstantChunks(2, 4));
  const std::vector<float> large(500);
  const std::vector<int64_t> dims = {500};
  const int64_t a = 1;
  const double b = 2;
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK(writer_->Append(std::array{ColumnValue{0, Scalar(a)},
                                         ColumnValue{1, {DType::kFloat32, dims, large.data()}},
                                         ColumnValue{2, Scalar(b)}}));
  }
  ASSERT_OK(Item({{{0, 0, 2}}, {{1, 0, 2}}, {{2, 0, 2}}}));
  ASSERT_EQ(sink_.items.size(), 1u);
  const Trajectory& trajectory = sink_.items[0].trajectory;
  EXPECT_EQ(trajectory.num_chunks(), 2u);
  EXPECT_EQ(trajectory.slice(0, 0).chunk, trajectory.slice(2, 0).chunk);
  EXPECT_EQ(trajectory.slice(0, 0).chunk_column, 0u);
  EXPECT_EQ(trajectory.slice(2, 0).chunk_column, 1u);
  EXPECT_EQ(trajectory.slice(1, 0).length, 2u);
  EXPECT_THAT(ColumnOf<double>(sink_.items[0], 2), ElementsAre(2, 2));
}

TEST_F(TrajectoryWriterTest, AGroupIsSplitIfAColumnIsMissing) {
  Make(ConstantChunks(4, 8));
  ASSERT_OK(Step({0, 10, 20}));
  ASSERT_OK(Step({1, 11, 21}));
  EXPECT_EQ(writer_->columns().group(0), writer_->columns().group(1));
  ASSERT_OK(Step({{}, 12, 22}));  // finishes the chunk of two rows
  EXPECT_NE(writer_->columns().group(0), writer_->columns().group(1));
  EXPECT_EQ(writer_->columns().group(1), writer_->columns().group(2));
  ASSERT_OK(Step({3, 13, 23}));
  ASSERT_OK(Item({{{0, 0, 2}, {0, 3, 4}}, {{1, 0, 4}}, {{2, 1, 3}}}));
  ASSERT_OK(writer_->Flush(0, {}));
  ASSERT_EQ(sink_.items.size(), 1u);
  EXPECT_THAT(ColumnOf<int64_t>(sink_.items[0], 0), ElementsAre(0, 1, 3));
  EXPECT_THAT(ColumnOf<int64_t>(sink_.items[0], 1), ElementsAre(10, 11, 12, 13));
  EXPECT_THAT(ColumnOf<int64_t>(sink_.items[0], 2), ElementsAre(21, 22));
}

TEST_F(TrajectoryWriterTest, ColumnsOfAPartialAppendAreNotPackedWithTheRest) {
  Make(ConstantChunks(2, 8));
  for (int64_t i = 0; i < 2; ++i) {
    ASSERT_OK(Step({i, {}}, true));
    ASSERT_OK(Step({{}, 10 + i}));
  }
  EXPECT_NE(writer_->columns().group(0), writer_->columns().group(1));
  ASSERT_OK(Item({{{0, 0, 2}}, {{1, 0, 2}}}));
  ASSERT_EQ(sink_.items.size(), 1u);
  EXPECT_THAT(ColumnOf<int64_t>(sink_.items[0], 1), ElementsAre(10, 11));
}

TEST_F(TrajectoryWriterTest, ChunksRecordTheirStepsAndNeverSpanEpisodes) {
  Make(ConstantChunks(3, 8));
  ASSERT_OK(Step({0, 0}));
  ASSERT_OK(Step({1, {}}));  // splits: chunk of step 0
  ASSERT_OK(Step({2, 2}));
  ASSERT_OK(Step({3, {}}));  // column 0: steps 1-3; column 1: step 2
  ASSERT_OK(Step({4, 4}));
  ASSERT_OK(writer_->EndEpisode(false, {}));
  ASSERT_OK(Step({5, 5}));
  ASSERT_OK(Item({{{0, 0, 6}}, {{1, 2, 6, 2}, {1, 5, 6}}}));
  ASSERT_OK(writer_->Flush(0, {}));
  ASSERT_EQ(sink_.items.size(), 1u);
  const Trajectory& trajectory = sink_.items[0].trajectory;
  ASSERT_EQ(trajectory.num_slices(0), 4u);
  const auto header = [&](uint32_t column, uint32_t slice) {
    return trajectory.slice(column, slice).chunk->header();
  };
  EXPECT_EQ(header(0, 1).first_step(), 1);
  EXPECT_EQ(header(0, 1).last_step(), 3);
  EXPECT_EQ(header(0, 2).first_step(), 4);
  EXPECT_EQ(header(0, 2).rows(), 1u);
  EXPECT_EQ(header(0, 3).first_step(), 0);
  EXPECT_NE(header(0, 2).episode_id(), header(0, 3).episode_id());
  EXPECT_EQ(header(0, 0).episode_id(), header(0, 2).episode_id());
  // Sparse: two rows from three steps.
  EXPECT_EQ(header(1, 0).first_step(), 2);
  EXPECT_EQ(header(1, 0).last_step(), 4);
  EXPECT_EQ(header(1, 0).rows(), 2u);
}

TEST_F(TrajectoryWriterTest, ConfigureRequiresAnEmptyBuffer) {
  Make(ConstantChunks(2, 4));
  // the column does not exist yet
  ASSERT_OK(writer_->Configure(1, {.num_keep_alive_refs = 9, .max_chunk_length = 3}));
  ASSERT_OK(Step({0, 0}));
  EXPECT_NE(writer_->columns().group(0), writer_->columns().group(1));
  EXPECT_EQ(writer_->columns().chunk_length(1), 3);
  EXPECT_EQ(writer_->columns().max_keep_alive_refs(), 9);
  EXPECT_THAT(writer_->Configure(0, {.num_keep_alive_refs = 1, .max_chunk_length = 1}),
              StatusIs(StatusCode::kFailedPrecondition, "Flush must be called before ApplyConfig."));
  ASSERT_OK(Step({1, 1}));
  ASSERT_OK(writer_->Configure(0, {.num_keep_alive_refs = 1, .max_chunk_length = 1}));
  EXPECT_FALSE(writer_->columns().HasCell(0, 0));
  EXPECT_TRUE(writer_->columns().HasCell(0, 1));
  EXPECT_THAT(writer_->Configure(0, {.num_keep_alive_refs = 0}), StatusIs(StatusCode::kInvalidArgument));
}

TEST_F(TrajectoryWriterTest, LargeRowsAndStringsRoundTrip) {
  for (const int64_t length : {1, 2}) {
    sink_.items.clear();
    Make(ConstantChunks(length, 4));
    std::vector<float> large(20'000);
    const std::vector<int64_t> large_dims = {20'000}, pair = {2};
    Random random(3);
    std::vector<float> all;
    for (int i = 0; i < 4; ++i) {
      for (float& x : large) x = i < 2 ? static_cast<float>(random.Unit()) : static_cast<float>(i);
      all.insert(all.end(), large.begin(), large.end());
      const std::string text(i * 1000, 'x');
      const std::array<std::string_view, 2> strings = {text, "y"};
      ASSERT_OK(writer_->Append(std::array{ColumnValue{0, {DType::kFloat32, large_dims, large.data()}},
                                           ColumnValue{1, {DType::kString, pair, strings.data()}}}));
      const Result<Tensor> read = writer_->columns().Read(1, i);  // from the buffer or the chunk
      ASSERT_OK(read);
      EXPECT_THAT(read->strings(), ElementsAre(text, "y"));
      const Result<Tensor> floats = writer_->columns().Read(0, i);
      ASSERT_OK(floats);
      EXPECT_EQ(std::memcmp(floats->data(), large.data(), floats->num_bytes()), 0);
    }
    ASSERT_OK(Item({{{0, 0, 4}}, {{1, 0, 4}}}));
    ASSERT_EQ(sink_.items.size(), 1u);
    EXPECT_EQ(ColumnOf<float>(sink_.items[0], 0), all);
    std::vector<std::string> texts;
    ASSERT_OK(sink_.items[0].trajectory.ReadStrings(1, &texts));
    ASSERT_EQ(texts.size(), 8u);
    EXPECT_EQ(texts[6], std::string(3000, 'x'));
  }
}

TEST_F(TrajectoryWriterTest, EmptyTensorsAreValidValues) {
  Make(ConstantChunks(2, 4));
  const std::vector<int64_t> dims = {0, 3};
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK(writer_->Append(std::array{ColumnValue{0, {DType::kFloat32, dims, nullptr}}}));
  }
  ASSERT_OK(writer_->columns().Read(0, 2));
  ASSERT_OK(Item({{{0, 0, 3}}}));
  ASSERT_OK(writer_->Flush(0, {}));
  ASSERT_EQ(sink_.items.size(), 1u);
  EXPECT_EQ(sink_.items[0].trajectory.length(0), 3);
}

TEST_F(TrajectoryWriterTest, ItemsOfEveryStepTuneTheChunkLength) {
  Make({.chunking = {.num_keep_alive_refs = 10}, .compression = Compression::kNone, .seed = 1});
  int64_t longest = 0;
  for (int64_t i = 0; i < 2000; ++i) {
    ASSERT_OK(Step({7, 8}));
    if (i >= 9) {
      ASSERT_OK(Item({{{0, i - 9, i + 1}}, {{1, i - 9, i + 1}}}));
    }
    longest = std::max(longest, writer_->columns().chunk_length(0));
  }
  EXPECT_GE(longest, 9);  // the overhead of a chunk outweighs the two numbers of a step
}

// --- Items ---

TEST_F(TrajectoryWriterTest, ItemsMayConsistOfAnyRowsOfAChunk) {
  Make(ConstantChunks(10, 10));
  for (int64_t i = 0; i < 10; ++i) ASSERT_OK(Step({i}));
  ASSERT_OK(Item({{{0, 5, 10, 2}}}));
  ASSERT_OK(Item({{CellRange::One(0, 0), CellRange::One(0, 2)}}));
  ASSERT_OK(Item({{CellRange::One(0, 1), CellRange::One(0, 1)}}));
  ASSERT_OK(Item({{{0, 9, -1, -3}}}));
  ASSERT_OK(Item({{{0, 2, 4}, {0, 4, 6}}}));
  ASSERT_EQ(sink_.items.size(), 5u);
  EXPECT_THAT(ColumnOf<int64_t>(sink_.items[0], 0), ElementsAre(5, 7, 9));
  EXPECT_THAT(ColumnOf<int64_t>(sink_.items[1], 0), ElementsAre(0, 2));
  EXPECT_THAT(ColumnOf<int64_t>(sink_.items[2], 0), ElementsAre(1, 1));
  EXPECT_THAT(ColumnOf<int64_t>(sink_.items[3], 0), ElementsAre(9, 6, 3, 0));
  EXPECT_THAT(ColumnOf<int64_t>(sink_.items[4], 0), ElementsAre(2, 3, 4, 5));
  EXPECT_EQ(sink_.items[4].trajectory.num_slices(0), 1u);
}

TEST_F(TrajectoryWriterTest, ItemsAreCheckedInTheDocumentedOrder) {
  Make(ConstantChunks(1, 2));
  const double nan = std::nan("");
  ASSERT_OK(Step({0, 0}));
  ASSERT_OK(Step({1, {}}));
  ASSERT_OK(Step({2, 2}));
  sink_.health = Status::Internal("broken");
  EXPECT_THAT(Item({}, nan), StatusIs(StatusCode::kInvalidArgument, "trajectory must not be empty."));
  EXPECT_THAT(Item({{}, {{0, 2, 2}}}, nan),
              StatusIs(StatusCode::kInvalidArgument, "trajectory must not be empty."));
  EXPECT_THAT(Item({{{0, 0, 1}}}, nan),
              StatusIs(StatusCode::kInvalidArgument, "`priority` must not be nan."));
  EXPECT_THAT(Item({{{0, 0, 1}}}), StatusIs(StatusCode::kInternal, "broken"));
  EXPECT_THAT(Step({3}), StatusIs(StatusCode::kInternal, "broken"));
  EXPECT_THAT(writer_->Flush(0, {}), StatusIs(StatusCode::kInternal, "broken"));
  sink_.health = Status::Ok();
  EXPECT_THAT(Item({{{0, 1, 2}}, {{0, 0, 3}}}),
              StatusIs(StatusCode::kInvalidArgument, "Error in column 1: Column contains expired CellRef."));
  EXPECT_THAT(Item({{{1, 1, 2}}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("cannot contain any None")));
  EXPECT_THAT(Item({{{0, 3, 4}}}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("position 3")));
  EXPECT_THAT(Item({{{7, 0, 1}}}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("column 7")));
  EXPECT_THAT(Item({{{0, 1, 3}}, {}}), StatusIs(StatusCode::kInvalidArgument,
                                                StartsWith("Error in column 1: Column must not be empty")));
  EXPECT_THAT(Item({{{0, 1, 3, 0}}}), StatusIs(StatusCode::kInvalidArgument));
  const std::array<CellRange, 1> two = {CellRange{0, 1, 3}};
  EXPECT_THAT(writer_->CreateItem("table", 1, std::array{ItemColumn{two, true}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("exactly one row")));
  EXPECT_THAT(sink_.items, IsEmpty());
  // Far out of range, in both directions.
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(Item({{{0, kMost - 1, kMost}}}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(Item({{{0, -kMost, 0}}}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_OK(Item({{{0, 2, kMost, kMost}}}));
}

TEST_F(TrajectoryWriterTest, RowsOfAColumnMustHaveOneDTypeAndShape) {
  Make(ConstantChunks(1, 2));
  const int64_t a = 1;
  const float b = 2, vector[] = {1, 2};
  const std::vector<int64_t> dims = {2};
  ASSERT_OK(writer_->Append(std::array{ColumnValue{0, Scalar(a)}, ColumnValue{1, Scalar(b)},
                                       ColumnValue{2, {DType::kFloat32, dims, vector}},
                                       ColumnValue{3, Scalar(b)}}));
  EXPECT_THAT(
      Item({{{0, 0, 1}, {1, 0, 1}}}),
      StatusIs(StatusCode::kInvalidArgument,
               "Error in column 0: Column references tensors with different dtypes: int64 != float."));
  EXPECT_THAT(Item({{{1, 0, 1}, {2, 0, 1}}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("[] not compatible with [2]")));
  ASSERT_OK(Item({{{1, 0, 1}, {3, 0, 1}}}));
  EXPECT_THAT(ColumnOf<float>(sink_.items.at(0), 0), ElementsAre(2, 2));
}

TEST_F(TrajectoryWriterTest, SignaturesAreChecked) {
  TableSignatures signatures;
  signatures["any"] = std::nullopt;
  signatures["table"] = std::vector<TensorSpec>{{"a", DType::kInt64, Shape({2})},
                                                {"b", DType::kInt64, Shape({})},
                                                {"c", DType::kInt64, Shape({Shape::kUnknownDim})}};
  TrajectoryWriterOptions options = ConstantChunks(1, 4);
  options.signatures = std::make_shared<SignatureSource>(signatures);
  Make(options);
  for (int64_t i = 0; i < 3; ++i) ASSERT_OK(Step({i}));
  const std::array<CellRange, 1> two = {CellRange{0, 0, 2}}, one = {CellRange{0, 2, 3}};
  EXPECT_OK(
      writer_->CreateItem("table", 1, std::array{ItemColumn{two}, ItemColumn{one, true}, ItemColumn{two}}));
  EXPECT_OK(writer_->CreateItem("any", 1, std::array{ItemColumn{two}}));
  EXPECT_THAT(
      writer_->CreateItem("other", 1, std::array{ItemColumn{two}}),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("'other' since the table could not be found.")));
  EXPECT_THAT(writer_->CreateItem("table", 1, std::array{ItemColumn{two}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("1 columns but the table signature has 3")));
  EXPECT_THAT(
      writer_->CreateItem("table", 1, std::array{ItemColumn{one}, ItemColumn{one, true}, ItemColumn{two}}),
      StatusIs(StatusCode::kInvalidArgument,
               ::testing::AllOf(HasSubstr("column 'a'"), HasSubstr("int64[2]"), HasSubstr("int64[1]"))));
  EXPECT_EQ(sink_.items.size(), 2u);
}

TEST_F(TrajectoryWriterTest, KeysAreSeeded) {
  Make(ConstantChunks(1, 1));
  ASSERT_OK(Step({0}));
  ASSERT_OK(Item({{{0, 0, 1}}}, 0.5));
  ASSERT_OK(Item({{{0, 0, 1}}}));
  Make(ConstantChunks(1, 1));
  ASSERT_OK(Step({0}));
  ASSERT_OK(Item({{{0, 0, 1}}}));
  EXPECT_EQ(sink_.items[0].key, sink_.items[2].key);
  EXPECT_NE(sink_.items[0].key, sink_.items[1].key);
  EXPECT_EQ(sink_.items[0].priority, 0.5);
  EXPECT_EQ(sink_.items[0].table, "table");
}

// --- Against a model ---

// Steps with random columns left out, in one call or several, items over any stored cells, flushes and ends:
// the sink receives what was appended, and chunks are forgotten if and only if nothing can refer to them any
// more.
void TrajectoryWriterTest::CompareWithAModel(uint64_t seed) {
  SCOPED_TRACE(test::SeedTrace(seed));
  Random random(seed);
  for (int round = 0; round < test::Effort(60, 15); ++round) {
    sink_ = {};
    const int64_t keep = 1 + static_cast<int64_t>(random.Below(random.Below(3) == 0 ? 60 : 12));
    const uint64_t item_rate = 1 + random.Below(2) * 19;  // items after every step, or after few
    TrajectoryWriterOptions options = {.chunking = {.num_keep_alive_refs = keep}, .seed = random.Next()};
    if (random.Below(2)) options.chunking.max_chunk_length = 1 + static_cast<int64_t>(random.Below(keep));
    Make(options);
    constexpr uint32_t kColumns = 4;
    const uint64_t sparse = random.Below(4);
    std::vector<std::map<int64_t, int64_t>> model(kColumns);  // the stored cells
    std::vector<std::vector<std::vector<int64_t>>> expected;  // item, column, row
    const auto keep_cell = [&](uint32_t column, int64_t position, int64_t value) {
      model[column][position] = value;
      if (static_cast<int64_t>(model[column].size()) > keep) model[column].erase(model[column].begin());
    };
    for (int step = 0; step < 300; ++step) {
      const int64_t position = writer_->columns().position();
      std::vector<std::optional<int64_t>> first(kColumns), second(kColumns);
      for (uint32_t c = 0; c < kColumns; ++c) {
        if (sparse > 0 && random.Below(4 * sparse) == 0) continue;
        const bool early = sparse > 1 && random.Below(8) == 0;
        (early ? first : second)[c] = static_cast<int64_t>(random.Next());
      }
      if (sparse > 1) {
        ASSERT_OK(Step(first, true));
      }
      ASSERT_OK(Step(second));
      for (uint32_t c = 0; c < kColumns; ++c) {
        if (first[c] || second[c]) keep_cell(c, position, first[c] ? *first[c] : *second[c]);
      }
      if (random.Below(30) == 0) {
        ASSERT_NO_FATAL_FAILURE(AppendRandomSequence(&random, kColumns, keep_cell));
      }
      for (uint64_t n = random.Below(item_rate) == 0 ? random.Below(3) : 0; n > 0; --n) {
        std::vector<std::vector<CellRange>> item;
        std::vector<std::vector<int64_t>> rows;
        for (uint32_t c = 0; c < kColumns; ++c) {
          if (model[c].empty() || random.Below(3) == 0) continue;
          item.emplace_back();
          rows.emplace_back();
          for (uint64_t m = 1 + random.Below(5); m > 0; --m) {
            auto cell = model[c].begin();
            std::advance(cell, random.Below(model[c].size()));
            // A run over all existing cells.
            const int64_t stride = random.Below(3) == 0 ? -1 - static_cast<int64_t>(random.Below(2))
                                                        : 1 + static_cast<int64_t>(random.Below(2));
            int64_t end = cell->first;
            for (; model[c].contains(end) && random.Below(6) != 0; end += stride) {
              rows.back().push_back(model[c][end]);
            }
            item.back().push_back({c, cell->first, end, stride});
          }
          if (!rows.back().empty()) continue;
          item.pop_back();
          rows.pop_back();
        }
        if (item.empty()) continue;
        ASSERT_OK(Item(item));
        expected.push_back(std::move(rows));
      }
      if (random.Below(20) == 0) {
        ASSERT_OK(writer_->Flush(static_cast<int64_t>(random.Below(3)), {}));
      }
      if (random.Below(60) == 0) {
        const bool clear = random.Below(2);
        ASSERT_OK(writer_->EndEpisode(clear, {}));
        if (clear) {
          for (auto& column : model) column.clear();
        }
      }
      for (uint32_t c = 0; c < kColumns; ++c) {
        for (const auto& [at, value] : model[c]) {
          const Result<Tensor> read = writer_->columns().Read(c, at);
          ASSERT_OK(read);
          ASSERT_EQ(*reinterpret_cast<const int64_t*>(read->data()), value);
        }
      }
    }
    ASSERT_OK(writer_->Flush(0, {}));
    ASSERT_EQ(sink_.items.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(sink_.items[i].trajectory.num_columns(), expected[i].size());
      for (uint32_t c = 0; c < expected[i].size(); ++c) {
        ASSERT_EQ(ColumnOf<int64_t>(sink_.items[i], c), expected[i][c]) << "item " << i << " column " << c;
      }
    }
    ASSERT_OK(writer_->EndEpisode(true, {}));
    const std::set<uint64_t> forgotten(sink_.forgotten.begin(), sink_.forgotten.end());
    EXPECT_EQ(forgotten.size(), sink_.forgotten.size());
    EXPECT_EQ(forgotten, ChunksSent());
  }
}

TEST_F(TrajectoryWriterTest, RandomUseAgreesWithAModel) { CompareWithAModel(test::Seed()); }

// The tuned length becomes smaller while an item waits for a chunk of the previous length.
TEST_F(TrajectoryWriterTest, RowsThatAnItemWaitsForStayInOneChunk) { CompareWithAModel(16); }

}  // namespace
}  // namespace reverb::internal
