// Tests of settings that contradict each other, and of the conversion between options and settings.
#include "reverb/table_options.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/table_state.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using ::reverb::test::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ContradictionsTest, OrdinaryTablesHaveNone) {
  const std::vector<TableOptions> tables = {
      {.name = "t"},
      TableOptions::Queue("q", 1),
      TableOptions::Stack("s", 100),
      {.name = "m", .max_size = 100, .rate_limiter = RateLimiterOptions::MinSize(100)},
      {.name = "r", .rate_limiter = *RateLimiterOptions::SampleToInsertRatio(8, 1000, 8000)},
      // IMPALA's table.
      {.name = "i",
       .max_size = 320,
       .max_times_sampled = 1,
       .rate_limiter = *RateLimiterOptions::SampleToInsertRatio(1, 1, 32)},
  };
  for (const TableOptions& options : tables) {
    EXPECT_THAT(FindContradictions(options.Settings()), IsEmpty()) << options.name;
  }
}

TEST(ContradictionsTest, ATableThatCanNeverBeSampled) {
  const TableOptions options{.name = "t", .max_size = 10, .rate_limiter = RateLimiterOptions::MinSize(100)};
  EXPECT_THAT(
      FindContradictions(options.Settings()),
      ElementsAre(AllOf(HasSubstr("table \"t\""), HasSubstr("min_size_to_sample 100 exceeds max_size 10"))));
  EXPECT_OK(options.Validate()) << "dm-reverb accepts it";
}

TEST(ContradictionsTest, BoundsThatAreTooClose) {
  const TableOptions options{.name = "t",
                             .rate_limiter = {.samples_per_insert = 4, .min_diff = 0, .max_diff = 3}};
  EXPECT_THAT(FindContradictions(options.Settings()), ElementsAre(HasSubstr("block each other forever")));
}

TEST(ContradictionsTest, ItemsThatLeaveTooEarly) {
  const TableOptions options{.name = "t",
                             .max_times_sampled = 2,
                             .rate_limiter = *RateLimiterOptions::SampleToInsertRatio(4, 10, 100)};
  EXPECT_THAT(FindContradictions(options.Settings()),
              ElementsAre(HasSubstr(
                  "max_times_sampled 2 allows fewer samples of an item than samples_per_insert 4")));
}

TEST(ContradictionsTest, AQueueThatEvicts) {
  TableOptions options = TableOptions::Queue("q", 100);
  options.max_size = 10;
  EXPECT_THAT(FindContradictions(options.Settings()),
              ElementsAre(AllOf(HasSubstr("allows 100 items"), HasSubstr("max_size is 10"))));
}

TEST(TableOptionsTest, SettingsReturn) {
  TableOptions options{.name = "t",
                       .sampler = SelectorOptions::Prioritized(0.7),
                       .remover = SelectorOptions::Lifo(),
                       .max_size = 12,
                       .max_times_sampled = 3,
                       .max_age = std::chrono::seconds(5),
                       .rate_limiter = RateLimiterOptions::MinSize(4)};
  options.signature = Signature::Leaf({"x", DType::kFloat32, {2}}).value();
  const auto back = TableOptions::FromSettings(options.Settings());
  ASSERT_OK(back);
  EXPECT_EQ(back->name, "t");
  EXPECT_EQ(back->sampler.ToString(), options.sampler.ToString());
  EXPECT_EQ(back->remover.ToString(), options.remover.ToString());
  EXPECT_EQ(back->max_size, 12);
  EXPECT_EQ(back->max_times_sampled, 3);
  EXPECT_EQ(back->max_age, std::chrono::seconds(5));
  EXPECT_EQ(back->rate_limiter, options.rate_limiter);
  EXPECT_EQ(back->signature, options.signature);
  TableSettings custom = options.Settings();
  custom.remover = {.kind = SelectorOptions::Kind::kCustom, .custom_name = "mine"};
  EXPECT_THAT(TableOptions::FromSettings(custom),
              StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("remover"), HasSubstr("mine"))));
  TableSettings damaged = options.Settings();
  damaged.signature = "?";
  EXPECT_THAT(TableOptions::FromSettings(damaged),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("\"t\"")));
}

}  // namespace
}  // namespace reverb::internal
