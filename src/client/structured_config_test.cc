#include "client/structured_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::IsOk;
using test::StatusIs;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Left = PatternCondition::Left;
using Comparison = PatternCondition::Comparison;

StructuredConfig With(const PatternNode& node) {
  return {.pattern = {node}, .table = "table", .conditions = {}, .priority = 1.0};
}
StructuredConfig With(const PatternCondition& condition) {
  StructuredConfig config = With(PatternNode{.stop = -1});
  config.conditions.push_back(condition);
  return config;
}

TEST(StructuredConfigTest, NodesAreChecked) {
  const auto bad = StatusIs(StatusCode::kInvalidArgument, StartsWith("pattern node 0: "));
  EXPECT_OK(With(PatternNode{.stop = -1}).Validate());
  EXPECT_OK(With(PatternNode{.start = -2}).Validate());
  EXPECT_OK(With(PatternNode{.start = -2, .stop = 0, .step = 2}).Validate());
  EXPECT_THAT(With(PatternNode{.source = -1, .stop = -1}).Validate(), bad);
  EXPECT_THAT(With(PatternNode{.source = 1 << 20, .stop = -1}).Validate(), bad);
  EXPECT_THAT(With(PatternNode{}).Validate(), bad);
  EXPECT_THAT(With(PatternNode{.start = 0}).Validate(), bad);
  EXPECT_THAT(With(PatternNode{.start = -1, .stop = 1}).Validate(), bad);
  EXPECT_THAT(With(PatternNode{.start = -1, .stop = -1}).Validate(), bad);
  EXPECT_THAT(With(PatternNode{.start = -1, .stop = -2}).Validate(), bad);
  EXPECT_THAT(With(PatternNode{.stop = 0}).Validate(), bad);
  EXPECT_THAT(With(PatternNode{.stop = -1, .step = 1}).Validate(), bad);
  EXPECT_THAT(With(PatternNode{.start = -1, .step = 0}).Validate(), bad);
  EXPECT_THAT(With(PatternNode{.start = -(int64_t{1} << 62)}).Validate(), bad);
}

TEST(StructuredConfigTest, ConditionsAreChecked) {
  const auto bad = StatusIs(StatusCode::kInvalidArgument, StartsWith("condition 0: "));
  EXPECT_THAT(With(PatternCondition{.comparison = Comparison::kEqual}).Validate(), bad);
  EXPECT_THAT(With(PatternCondition{.left = Left::kStepIndex}).Validate(), bad);
  EXPECT_THAT(
      With(PatternCondition{.left = Left::kData, .source = -1, .comparison = Comparison::kEqual}).Validate(),
      bad);
  EXPECT_THAT(
      With(PatternCondition{.left = Left::kStepIndex, .comparison = Comparison::kModuloEqual}).Validate(),
      bad);
  EXPECT_THAT(
      With(PatternCondition{
               .left = Left::kStepIndex, .comparison = Comparison::kModuloEqual, .modulo = 2, .value = -1})
          .Validate(),
      bad);
  EXPECT_OK(With(PatternCondition{.left = Left::kEndEpisode, .comparison = Comparison::kEqual, .value = 1})
                .Validate());
  EXPECT_THAT(With(PatternCondition{.left = Left::kEndEpisode, .comparison = Comparison::kEqual, .value = 0})
                  .Validate(),
              bad);
  EXPECT_THAT(
      With(PatternCondition{.left = Left::kEndEpisode, .comparison = Comparison::kAtLeast, .value = 1})
          .Validate(),
      bad);
  EXPECT_THAT(
      With(PatternCondition{
               .left = Left::kEndEpisode, .comparison = Comparison::kEqual, .value = 1, .inverse = true})
          .Validate(),
      bad);
}

TEST(StructuredConfigTest, OtherFieldsAreChecked) {
  StructuredConfig config = With(PatternNode{.stop = -1});
  config.pattern.clear();
  EXPECT_THAT(config.Validate(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("at least one node")));
  config = With(PatternNode{.stop = -1});
  config.table.clear();
  EXPECT_THAT(config.Validate(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("table")));
  config = With(PatternNode{.stop = -1});
  config.priority = std::nan("");
  EXPECT_THAT(config.Validate(), StatusIs(StatusCode::kInvalidArgument));
  config.priority = TdErrorPriority{.source = -1};
  EXPECT_THAT(config.Validate(), StatusIs(StatusCode::kInvalidArgument));

  StructuredWriterOptions options;
  EXPECT_THAT(options.Validate(), StatusIs(StatusCode::kInvalidArgument));
  options.configs = {With(PatternNode{.stop = -1}), With(PatternNode{})};
  EXPECT_THAT(options.Validate(),
              StatusIs(StatusCode::kInvalidArgument,
                       StartsWith("Invalid configuration at position 1: pattern node 0")));
}

TEST(StructuredConfigTest, AMissingLengthConditionIsAdded) {
  StructuredConfig config = With(PatternNode{.start = -3, .stop = -1});
  config.pattern.push_back({.stop = -2});
  EXPECT_EQ(MaxAge(config), 3);
  AddBufferLengthCondition(&config);
  ASSERT_EQ(config.conditions.size(), 1u);
  EXPECT_EQ(config.conditions[0].value, 3);
  AddBufferLengthCondition(&config);
  EXPECT_EQ(config.conditions.size(), 1u);
  config.conditions[0].value = 9;  // larger values are fine
  AddBufferLengthCondition(&config);
  EXPECT_EQ(config.conditions.size(), 1u);
  config.conditions[0].value = 2;
  AddBufferLengthCondition(&config);
  EXPECT_EQ(config.conditions.size(), 2u);
}

TEST(StructuredConfigTest, ComparisonsAndTheirInverse) {
  const auto holds = [](Comparison comparison, int64_t modulo, int64_t value, int64_t left) {
    PatternCondition condition{.comparison = comparison, .modulo = modulo, .value = value};
    const bool result = Holds(condition, left);
    condition.inverse = true;
    EXPECT_EQ(Holds(condition, left), !result);
    return result;
  };
  EXPECT_TRUE(holds(Comparison::kEqual, 0, 3, 3));
  EXPECT_FALSE(holds(Comparison::kEqual, 0, 3, 4));
  EXPECT_TRUE(holds(Comparison::kAtLeast, 0, 3, 3));
  EXPECT_FALSE(holds(Comparison::kAtLeast, 0, 3, 2));
  EXPECT_TRUE(holds(Comparison::kModuloEqual, 3, 1, 7));
  EXPECT_FALSE(holds(Comparison::kModuloEqual, 3, 2, -1));  // -1 % 3 is -1
}

}  // namespace
}  // namespace reverb::internal
