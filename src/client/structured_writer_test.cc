#include "client/structured_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "client/fake_sink_testing.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::ColumnOf;
using test::FakeSink;
using test::FakeSinkState;
using test::IsOk;
using test::Scalar;
using test::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Left = PatternCondition::Left;
using Comparison = PatternCondition::Comparison;
using Leaves = std::vector<std::optional<TensorView>>;

class StructuredWriterTest : public ::testing::Test {
 protected:
  void Make(std::vector<StructuredConfig> configs, std::optional<int64_t> chunk_length = {}) {
    StructuredWriterOptions options{
        .configs = std::move(configs), .paths = {"a", "b/c"}, .max_chunk_length = chunk_length, .seed = 1};
    ASSERT_OK(options.Validate());
    writer_ = std::make_unique<StructuredWriterImpl>(std::move(options), std::make_unique<FakeSink>(&sink_));
  }
  Status Step(const std::vector<std::optional<int64_t>>& values, bool partial = false) {
    Leaves leaves;
    for (const auto& value : values) {
      leaves.push_back(value ? std::optional(Scalar(*value)) : std::nullopt);
    }
    return partial ? writer_->AppendPartial(leaves) : writer_->Append(leaves);
  }
  // Returns the first column of each item so far, as a number whose digits are the rows.
  std::vector<int64_t> Items() const {
    std::vector<int64_t> items;
    for (const Item& item : sink_.items) {
      int64_t digits = 0;
      for (const int64_t row : ColumnOf<int64_t>(item, 0)) digits = 10 * digits + row;
      items.push_back(digits);
    }
    return items;
  }

  FakeSinkState sink_;
  std::unique_ptr<StructuredWriterImpl> writer_;
};

StructuredConfig Config(std::vector<PatternNode> pattern, std::vector<PatternCondition> conditions = {}) {
  return {
      .pattern = std::move(pattern), .table = "table", .conditions = std::move(conditions), .priority = 1.0};
}

TEST_F(StructuredWriterTest, PatternsCountFromTheNewestStep) {
  Make({Config(
      {{.source = 0, .start = -3, .stop = -1}, {.source = 1, .stop = -1}, {.source = 0, .start = -3}})});
  for (int64_t i = 0; i < 4; ++i) ASSERT_OK(Step({i, 10 * i}));
  ASSERT_EQ(sink_.items.size(), 2u);
  EXPECT_THAT(ColumnOf<int64_t>(sink_.items[0], 0), ElementsAre(0, 1));
  EXPECT_THAT(ColumnOf<int64_t>(sink_.items[0], 1), ElementsAre(20));
  EXPECT_THAT(ColumnOf<int64_t>(sink_.items[0], 2), ElementsAre(0, 1, 2));
  EXPECT_FALSE(sink_.items[0].trajectory.squeeze(0));
  EXPECT_TRUE(sink_.items[0].trajectory.squeeze(1));
  EXPECT_THAT(ColumnOf<int64_t>(sink_.items[1], 2), ElementsAre(1, 2, 3));
}

// Also if chunks are long enough to hold all these rows.
TEST_F(StructuredWriterTest, EverySecondRow) {
  Make({Config({{.source = 0, .start = -5, .step = 2}})}, 5);
  for (int64_t i = 0; i < 8; ++i) ASSERT_OK(Step({i}));
  ASSERT_OK(writer_->Flush(0, {}));
  EXPECT_THAT(Items(), ElementsAre(24, 135, 246, 357));
}

TEST_F(StructuredWriterTest, StepIndexAndModulo) {
  Make({Config(
      {{.stop = -1}},
      {{.left = Left::kStepIndex, .comparison = Comparison::kModuloEqual, .modulo = 2, .value = 1}})});
  for (int64_t i = 0; i < 5; ++i) ASSERT_OK(Step({i}));
  ASSERT_OK(writer_->EndEpisode(true, {}));
  for (int64_t i = 5; i < 8; ++i) ASSERT_OK(Step({i}));  // the index restarts
  EXPECT_THAT(Items(), ElementsAre(1, 3, 6));
}

TEST_F(StructuredWriterTest, StepsSinceAppliedCountsTheCurrentStep) {
  Make({Config({{.stop = -1}},
               {{.left = Left::kStepsSinceApplied, .comparison = Comparison::kAtLeast, .value = 4}})});
  for (int64_t i = 0; i < 9; ++i) ASSERT_OK(Step({i}));
  EXPECT_THAT(Items(), ElementsAre(3, 7));
}

TEST_F(StructuredWriterTest, DataConditions) {
  // Leaf 1 is used by conditions only; leaf 2 is not used at all.
  Make({Config({{.stop = -1}},
               {{.left = Left::kData, .source = 1, .comparison = Comparison::kEqual, .value = 1}}),
        Config({{.stop = -1}}, {{.left = Left::kData,
                                 .source = 1,
                                 .comparison = Comparison::kEqual,
                                 .value = 1,
                                 .inverse = true}})});
  const int64_t unused = 0;
  const auto step = [&](int64_t value, std::optional<TensorView> condition) {
    return writer_->Append(Leaves{Scalar(value), condition, Scalar(unused)});
  };
  const bool yes = true, no = false;
  ASSERT_OK(step(1, Scalar(DType::kBool, yes)));
  ASSERT_OK(step(2, Scalar(DType::kBool, no)));
  ASSERT_OK(step(3, std::nullopt));  // false, inverted or not
  EXPECT_THAT(Items(), ElementsAre(1, 2));
  EXPECT_EQ(sink_.items[0].trajectory.slice(0, 0).chunk->header().num_columns(), 1u);
  EXPECT_THAT(
      step(4, Scalar(unused)),
      StatusIs(StatusCode::kInvalidArgument,
               "Tensor of wrong dtype provided for column 1 (path=b/c). Got int64 but expected bool."));
}

TEST_F(StructuredWriterTest, IntegersAreTruncatedTo32BitsAndOtherDTypesAreNoCondition) {
  const PatternCondition five{.left = Left::kData, .source = 1, .comparison = Comparison::kEqual, .value = 5};
  Make({Config({{.stop = -1}}, {five})});
  const int64_t value = 1, wide = (int64_t{7} << 32) + 5;
  ASSERT_OK(writer_->Append(Leaves{Scalar(value), Scalar(wide)}));
  EXPECT_EQ(sink_.items.size(), 1u);
  Make({Config({{.stop = -1}}, {five})});
  const float real = 5;
  ASSERT_OK(writer_->Append(Leaves{Scalar(value), Scalar(real)}));
  EXPECT_EQ(sink_.items.size(), 1u);
  Make({Config({{.stop = -1}}, {five})});
  const std::array<int64_t, 2> two = {5, 5};
  const std::vector<int64_t> dims = {2};
  ASSERT_OK(writer_->Append(Leaves{Scalar(value), TensorView{DType::kInt64, dims, two.data()}}));
  EXPECT_EQ(sink_.items.size(), 1u);
}

TEST_F(StructuredWriterTest, EndOfEpisode) {
  Make(
      {Config({{.start = -2}}, {{.left = Left::kEndEpisode, .comparison = Comparison::kEqual, .value = 1}})});
  for (int64_t i = 1; i < 4; ++i) ASSERT_OK(Step({i}));
  EXPECT_THAT(sink_.items, IsEmpty());
  ASSERT_OK(writer_->EndEpisode(true, {}));
  EXPECT_THAT(Items(), ElementsAre(23));
  ASSERT_OK(writer_->EndEpisode(true, {}));  // nothing new
  ASSERT_OK(Step({4}));
  ASSERT_OK(writer_->EndEpisode(true, {}));  // too short
  EXPECT_THAT(Items(), ElementsAre(23));
}

TEST_F(StructuredWriterTest, PatternsReachBackAcrossAnEndWithoutClear) {
  Make({Config({{.start = -2}})});
  ASSERT_OK(Step({1}));
  ASSERT_OK(writer_->EndEpisode(false, {}));
  ASSERT_OK(Step({2}));
  ASSERT_OK(writer_->EndEpisode(true, {}));
  ASSERT_OK(Step({3}));
  EXPECT_THAT(Items(), ElementsAre(12));
}

TEST_F(StructuredWriterTest, PartialStepsApplyOnceWhenTheirCellsExist) {
  Make({Config({{.source = 0, .stop = -1}}), Config({{.source = 1, .stop = -1}})});
  ASSERT_OK(Step({1, {}}, true));
  EXPECT_THAT(Items(), ElementsAre(1));
  EXPECT_TRUE(writer_->step_is_open());
  EXPECT_THAT(Step({1, {}}, true),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("present in previous AppendPartial call")));
  ASSERT_OK(Step({{}, 2}));
  EXPECT_THAT(Items(), ElementsAre(1, 2));
  EXPECT_FALSE(writer_->step_is_open());
  ASSERT_OK(Step({{}, {}}));
  EXPECT_THAT(Items(), ElementsAre(1, 2));
  ASSERT_OK(Step({3, {}}, true));
  ASSERT_OK(writer_->EndEpisode(true, {}));  // closes the step
  EXPECT_FALSE(writer_->step_is_open());
  EXPECT_THAT(Items(), ElementsAre(1, 2, 3));
}

TEST_F(StructuredWriterTest, MissingCellsPreventTheItem) {
  Make({Config({{.source = 0, .start = -2}})});
  ASSERT_OK(Step({1, 0}));
  ASSERT_OK(Step({{}, 0}));
  ASSERT_OK(Step({3, 0}));
  EXPECT_THAT(sink_.items, IsEmpty());
  ASSERT_OK(Step({4, 0}));
  EXPECT_THAT(Items(), ElementsAre(34));
}

TEST_F(StructuredWriterTest, NumberOfLeavesIsFixed) {
  Make({Config({{.source = 1, .stop = -1}})});
  EXPECT_THAT(Step({1}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("leaf 1")));
  ASSERT_OK(Step({1, 1, 1}));
  EXPECT_THAT(Step({1, 1}), StatusIs(StatusCode::kInvalidArgument,
                                     "Flattened data has an unexpected length, got 2 but wanted 3."));
}

TEST_F(StructuredWriterTest, TdErrorIsThePriority) {
  StructuredConfig config = Config({{.source = 0, .start = -3}, {.source = 1, .stop = -1}});
  config.priority = TdErrorPriority{.max_priority_weight = 0.5, .source = 0};
  StructuredConfig other = Config({{.source = 1, .stop = -1}});
  other.priority = TdErrorPriority{.max_priority_weight = 0.5, .source = 0};  // not in its pattern
  Make({config, other});
  const int64_t x = 0;
  for (const double td : {-6.0, 1.0, 2.0, 3.0}) ASSERT_OK(writer_->Append(Leaves{Scalar(td), Scalar(x)}));
  std::vector<double> priorities;
  for (const Item& item : sink_.items) priorities.push_back(item.priority);
  EXPECT_THAT(priorities, ElementsAre(0, 0, 0.5 * 6 + 0.5 * 3, 0, 0.5 * 3 + 0.5 * 2, 0));
}

TEST_F(StructuredWriterTest, InvalidPrioritiesFailWhenApplied) {
  StructuredConfig config = Config({{.stop = -1}});
  config.priority = TdErrorPriority{.source = 0};
  Make({config});
  const bool flag = true;
  EXPECT_THAT(writer_->Append(Leaves{Scalar(DType::kBool, flag)}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("TD error")));
  config.priority = std::monostate{};
  Make({config});
  EXPECT_THAT(Step({1}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("no priority")));
}

TEST_F(StructuredWriterTest, ConfigsApplyInOrder) {
  Make({Config({{.source = 1, .stop = -1}}), Config({{.source = 0, .stop = -1}})});
  ASSERT_OK(Step({1, 2}));
  ASSERT_OK(Step({3, 4}));
  EXPECT_THAT(Items(), ElementsAre(2, 1, 4, 3));
}

}  // namespace
}  // namespace reverb::internal
