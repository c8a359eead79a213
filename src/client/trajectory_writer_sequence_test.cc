// Tests of AppendSequence() and Stack().
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/trajectory_writer_testing.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::ColumnOf;
using test::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TrajectoryWriterSequenceTest : public TrajectoryWriterFixture {
 protected:
  // Appends sequences of int64 numbers, one for each column from 0 on.
  Status Sequence(const std::vector<std::vector<int64_t>>& columns) {
    std::vector<std::vector<int64_t>> dims;
    std::vector<ColumnValue> values;
    dims.reserve(columns.size());
    for (uint32_t c = 0; c < columns.size(); ++c) {
      dims.push_back({static_cast<int64_t>(columns[c].size())});
      values.push_back({c, {.dtype = DType::kInt64, .dims = dims.back(), .data = columns[c].data()}});
    }
    return writer_->AppendSequence(values);
  }
  static std::vector<int64_t> Numbers(int64_t first, int64_t count) {
    std::vector<int64_t> numbers(static_cast<size_t>(count));
    std::iota(numbers.begin(), numbers.end(), first);
    return numbers;
  }
  int64_t Number(uint32_t column, int64_t position) {
    const Result<Tensor> tensor = writer_->columns().Read(column, position);
    EXPECT_OK(tensor);
    return tensor.ok() ? *reinterpret_cast<const int64_t*>(tensor->data()) : -1;
  }
  // Returns the values of the stacked cells of column 0.
  std::vector<int64_t> Stacked(int64_t rows, std::optional<int64_t> end = {}) {
    const Result<std::vector<CellRange>> ranges = writer_->columns().Stack(0, rows, end);
    EXPECT_OK(ranges);
    std::vector<int64_t> values;
    if (!ranges.ok()) return values;
    for (const CellRange& range : *ranges) {
      for (int64_t at = range.begin; at < range.end; ++at) values.push_back(Number(0, at));
    }
    return values;
  }
};

// --- AppendSequence ---

TEST_F(TrajectoryWriterSequenceTest, ASequenceEqualsAsManyAppends) {
  for (const std::optional<int64_t> length : {std::optional<int64_t>(), std::optional<int64_t>(4)}) {
    sink_ = {};
    Make({.chunking = {.num_keep_alive_refs = 50, .max_chunk_length = length}, .seed = 1});
    ASSERT_OK(Step({100, 200}));
    ASSERT_OK(Sequence({Numbers(0, 30), Numbers(1000, 30)}));
    EXPECT_EQ(writer_->columns().position(), 31);
    EXPECT_EQ(writer_->episode_steps(), 31);
    ASSERT_OK(Step({101, 201}));
    for (int64_t i = 0; i < 30; ++i) {
      EXPECT_EQ(Number(0, 1 + i), i);
      EXPECT_EQ(Number(1, 1 + i), 1000 + i);
    }
    ASSERT_OK(Item({{{0, 0, 32}}, {{1, 30, 32}}}));
    ASSERT_OK(writer_->Flush(0, {}));
    std::vector<int64_t> expected = Numbers(0, 30);
    expected.insert(expected.begin(), 100);
    expected.push_back(101);
    EXPECT_EQ(ColumnOf<int64_t>(sink_.items[0], 0), expected);
    EXPECT_THAT(ColumnOf<int64_t>(sink_.items[0], 1), ElementsAre(1029, 201));
    const Trajectory& trajectory = sink_.items[0].trajectory;
    EXPECT_EQ(trajectory.slice(0, 0).chunk->header().rows(), length ? 4u : 32u);
    EXPECT_EQ(trajectory.slice(0, 0).chunk->header().last_step(), length ? 3 : 31);
  }
}

TEST_F(TrajectoryWriterSequenceTest, OnlyTheNewestRowsOfALongSequenceAreKept) {
  Make({.chunking = {.num_keep_alive_refs = 10}, .seed = 1});
  ASSERT_OK(Sequence({Numbers(0, 1000)}));
  EXPECT_EQ(writer_->columns().position(), 1000);
  EXPECT_FALSE(writer_->columns().HasCell(0, 989));
  ASSERT_OK(Item({{{0, 990, 1000}}}));
  EXPECT_EQ(ColumnOf<int64_t>(sink_.items[0], 0), Numbers(990, 10));
  EXPECT_THAT(Item({{{0, 989, 1000}}}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("expired")));
}

TEST_F(TrajectoryWriterSequenceTest, ASequenceIsOneChunkEvenAfterItemsOfEveryStep) {
  Make({.chunking = {.num_keep_alive_refs = 100}, .seed = 1});
  for (int64_t i = 0; i < 8; ++i) {
    ASSERT_OK(Step({i}));
    ASSERT_OK(Item({{{0, i, i + 1}}}));
  }
  ASSERT_OK(Sequence({Numbers(0, 90)}));
  ASSERT_OK(Item({{{0, 8, 98}}}));
  ASSERT_EQ(sink_.items.size(), 9u);
  EXPECT_EQ(ColumnOf<int64_t>(sink_.items[8], 0), Numbers(0, 90));
  EXPECT_EQ(sink_.items[8].trajectory.slice(0, 0).length, 90u);
}

TEST_F(TrajectoryWriterSequenceTest, WaitingItemsAreSentWhenTheirChunkIsFull) {
  Make(ConstantChunks(4, 8));
  ASSERT_OK(Step({0}));
  ASSERT_OK(Item({{{0, 0, 1}}}));
  ASSERT_OK(Sequence({Numbers(1, 2)}));
  EXPECT_TRUE(sink_.items.empty());
  ASSERT_OK(Sequence({Numbers(3, 3)}));
  EXPECT_EQ(sink_.items.size(), 1u);
  EXPECT_EQ(Number(0, 5), 5);
}

TEST_F(TrajectoryWriterSequenceTest, TheFirstRowClosesAnOpenStep) {
  Make({.chunking = {.num_keep_alive_refs = 10}, .seed = 1});
  ASSERT_OK(Step({7, 8}));
  ASSERT_OK(Step({std::nullopt, 9}, /*partial=*/true));
  EXPECT_THAT(Sequence({Numbers(0, 3), Numbers(0, 3)}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("already been set")));
  ASSERT_OK(Sequence({Numbers(0, 3)}));
  EXPECT_FALSE(writer_->columns().step_is_open());
  EXPECT_EQ(writer_->columns().position(), 4);
  EXPECT_EQ(Number(1, 1), 9);
  EXPECT_FALSE(writer_->columns().HasCell(1, 2));
  EXPECT_EQ(Number(0, 3), 2);
}

TEST_F(TrajectoryWriterSequenceTest, RowsMayHaveAnyShapeAndBeStrings) {
  Make({.chunking = {.num_keep_alive_refs = 10}, .seed = 1});
  const std::array<std::string_view, 6> words = {"", "a", "bc", "def", "", "g"};
  const std::array<float, 6> floats = {0, 1, 2, 3, 4, 5};
  const std::vector<int64_t> dims = {3, 2};
  const std::vector<int64_t> none = {3, 0};
  ASSERT_OK(writer_->AppendSequence(
      std::array{ColumnValue{0, {.dtype = DType::kString, .dims = dims, .data = words.data()}},
                 ColumnValue{1, {.dtype = DType::kFloat32, .dims = dims, .data = floats.data()}},
                 ColumnValue{2, {.dtype = DType::kFloat32, .dims = none, .data = nullptr}}}));
  EXPECT_THAT(writer_->columns().Read(0, 1).value().strings(), ElementsAre("bc", "def"));
  const Tensor last = writer_->columns().Read(1, 2).value();
  EXPECT_EQ(reinterpret_cast<const float*>(last.data())[1], 5);
  ASSERT_OK(Item({{{0, 0, 3}}, {{1, 0, 3}}, {{2, 0, 3}}}));
  EXPECT_THAT(ColumnOf<float>(sink_.items[0], 1), ElementsAre(0, 1, 2, 3, 4, 5));
  std::vector<std::string> texts;
  ASSERT_OK(sink_.items[0].trajectory.ReadStrings(0, &texts));
  EXPECT_THAT(texts, ElementsAre("", "a", "bc", "def", "", "g"));
}

TEST_F(TrajectoryWriterSequenceTest, InvalidSequencesHaveNoEffect) {
  Make({.chunking = {.num_keep_alive_refs = 10}, .seed = 1});
  ASSERT_OK(writer_->NameColumn(1, "b"));
  ASSERT_OK(Step({0, 1}));
  const auto rejects = [&](const Status& status, auto matcher) {
    EXPECT_THAT(status, StatusIs(StatusCode::kInvalidArgument, matcher));
    EXPECT_EQ(writer_->columns().position(), 1);
  };
  rejects(writer_->AppendSequence({}), HasSubstr("at least one column"));
  rejects(Sequence({Numbers(0, 3), Numbers(0, 4)}),
          AllOf(HasSubstr("column b has 4 steps"), HasSubstr("column 0 has 3")));
  rejects(Sequence({{}, {}}), AllOf(HasSubstr("column 0"), HasSubstr("at least one step")));
  const int64_t number = 1;
  rejects(writer_->AppendSequence(std::array{ColumnValue{1, test::Scalar(number)}}),
          AllOf(HasSubstr("column b"), HasSubstr("without dimensions")));
  const std::vector<int64_t> dims = {2, 2};
  const std::array<int64_t, 4> data = {};
  rejects(writer_->AppendSequence(
              std::array{ColumnValue{1, {.dtype = DType::kInt64, .dims = dims, .data = data.data()}}}),
          AllOf(HasSubstr("incompatible shape"), HasSubstr("[2]")));
  const std::vector<int64_t> two = {2};
  rejects(writer_->AppendSequence(
              std::array{ColumnValue{1, {.dtype = DType::kFloat64, .dims = two, .data = data.data()}}}),
          HasSubstr("Got double but expected int64"));
  ASSERT_OK(writer_->EndEpisode(true, {}));
  (void)writer_->Close();
  EXPECT_THAT(Sequence({Numbers(0, 2)}), StatusIs(StatusCode::kCancelled));
}

// --- Stack ---

TEST_F(TrajectoryWriterSequenceTest, StacksRepeatTheFirstStepOfTheEpisode) {
  Make({.chunking = {.num_keep_alive_refs = 5}, .seed = 1});
  ASSERT_OK(Step({10}));
  EXPECT_THAT(Stacked(4), ElementsAre(10, 10, 10, 10));
  ASSERT_OK(Step({11}));
  EXPECT_THAT(Stacked(4), ElementsAre(10, 10, 10, 11));
  EXPECT_THAT(Stacked(4, 1), ElementsAre(10, 10, 10, 10)) << "of the step before the newest";
  EXPECT_THAT(Stacked(1), ElementsAre(11));
  for (int64_t i = 12; i < 20; ++i) ASSERT_OK(Step({i}));
  EXPECT_THAT(Stacked(4), ElementsAre(16, 17, 18, 19));
  EXPECT_THAT(Stacked(4, 9), ElementsAre(15, 16, 17, 18));
}

TEST_F(TrajectoryWriterSequenceTest, StacksDoNotSpanEpisodes) {
  Make({.chunking = {.num_keep_alive_refs = 5}, .seed = 1});
  for (int64_t i = 0; i < 5; ++i) ASSERT_OK(Step({i}));
  ASSERT_OK(writer_->EndEpisode(/*clear=*/false, {}));
  EXPECT_THAT(writer_->columns().Stack(0, 2, {}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("it has 0 steps")));
  ASSERT_OK(Step({5}));
  EXPECT_THAT(Stacked(3), ElementsAre(5, 5, 5));
  ASSERT_OK(Step({6}, /*partial=*/true));
  EXPECT_THAT(Stacked(3), ElementsAre(5, 5, 6)) << "the open step is the newest";
}

TEST_F(TrajectoryWriterSequenceTest, StackedRowsAreStoredOnce) {
  Make({.chunking = {.num_keep_alive_refs = 4}, .seed = 1});
  for (int64_t i = 0; i < 2; ++i) {
    ASSERT_OK(Step({i}));
    const std::vector<CellRange> ranges = writer_->columns().Stack(0, 4, {}).value();
    ASSERT_OK(Item({ranges}));
  }
  ASSERT_EQ(sink_.items.size(), 2u);
  EXPECT_THAT(ColumnOf<int64_t>(sink_.items[0], 0), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(ColumnOf<int64_t>(sink_.items[1], 0), ElementsAre(0, 0, 0, 1));
  EXPECT_EQ(ChunksSent().size(), 2u);
  for (const uint32_t slice : {0, 1, 2}) {
    EXPECT_EQ(sink_.items[1].trajectory.slice(0, slice).chunk->id(),
              sink_.items[0].trajectory.slice(0, 0).chunk->id());
  }
}

TEST_F(TrajectoryWriterSequenceTest, InvalidStacksAreRejected) {
  Make({.chunking = {.num_keep_alive_refs = 4}, .seed = 1});
  ASSERT_OK(writer_->NameColumn(0, "frame"));
  const auto error = [&](uint32_t column, int64_t rows, std::optional<int64_t> end = {}) {
    return writer_->columns().Stack(column, rows, end);
  };
  EXPECT_THAT(error(0, 2), StatusIs(StatusCode::kInvalidArgument, HasSubstr("column frame has no values")));
  EXPECT_THAT(error(3, 2), StatusIs(StatusCode::kInvalidArgument, HasSubstr("column 3 has no values")));
  for (int64_t i = 0; i < 8; ++i) ASSERT_OK(Step({i}));
  EXPECT_THAT(error(0, 0), StatusIs(StatusCode::kInvalidArgument, HasSubstr("> 0 but got 0")));
  EXPECT_THAT(error(0, -1), StatusIs(StatusCode::kInvalidArgument, HasSubstr("> 0 but got -1")));
  EXPECT_THAT(error(0, 5), StatusIs(StatusCode::kInvalidArgument,
                                    AllOf(HasSubstr("cannot stack 5"), HasSubstr("newest 4 are kept"))));
  EXPECT_THAT(error(0, 2, 0), StatusIs(StatusCode::kInvalidArgument, HasSubstr("step -1")));
  EXPECT_THAT(error(0, 2, 9), StatusIs(StatusCode::kInvalidArgument, HasSubstr("it has 8 steps")));
  EXPECT_THAT(error(0, 4, 7),
              StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("column frame"), HasSubstr("step 3"),
                                                           HasSubstr("num_keep_alive_refs"))));
  ASSERT_OK(Step({std::nullopt, 1}));
  EXPECT_THAT(error(0, 2), StatusIs(StatusCode::kInvalidArgument, HasSubstr("step 8 of the episode has no")));
}

}  // namespace
}  // namespace reverb::internal
