#include "tensor/limiter_text.h"

#include <gtest/gtest.h>

namespace reverb::internal {
namespace {

TableInfo MakeTable() {
  TableInfo table;
  table.name = "replay";
  table.max_size = 1000;
  table.current_size = 4;
  table.rate_limiter = {.samples_per_insert = 2.5, .min_size_to_sample = 2, .min_diff = -3};
  table.counters = {.inserts = 4, .samples = 13};
  table.cursor = -3;
  table.insert_wait_reason = WaitReason::kMemory;
  table.sample_wait_reason = WaitReason::kTooManySamples;
  return table;
}

TEST(LimiterTextTest, DescribesTheTableAndWhySamplesWait) {
  EXPECT_EQ(
      DescribeSampleWait(MakeTable()),
      "table \"replay\" holds 4 of 1000 items; samples wait: too many samples per insert "
      "(samples_per_insert=2.5, min_size_to_sample=2, min_diff=-3, max_diff=+unbounded, 4 inserts and 13 "
      "samples so far, cursor -3)");
}

TEST(LimiterTextTest, DescribesWhyInsertsWait) {
  EXPECT_TRUE(DescribeInsertWait(MakeTable())
                  .starts_with("table \"replay\" holds 4 of 1000 items; inserts wait: store is full ("));
}

TEST(LimiterTextTest, DescribesThatNothingWaits) {
  TableInfo table = MakeTable();
  table.sample_wait_reason = WaitReason::kNone;
  EXPECT_TRUE(DescribeSampleWait(table).starts_with(
      "table \"replay\" holds 4 of 1000 items; no samples wait now (samples_per_insert=2.5"));
}

TEST(LimiterTextTest, ReasonsHaveDetails) {
  EXPECT_EQ(DetailOf(WaitReason::kNone), Detail::kNone);
  EXPECT_EQ(DetailOf(WaitReason::kMinSize), Detail::kRateLimited);
  EXPECT_EQ(DetailOf(WaitReason::kTooManySamples), Detail::kRateLimited);
  EXPECT_EQ(DetailOf(WaitReason::kTooManyInserts), Detail::kRateLimited);
  EXPECT_EQ(DetailOf(WaitReason::kMemory), Detail::kMemoryFull);
  EXPECT_EQ(DetailOf(WaitReason::kQueued), Detail::kQueued);
}

}  // namespace
}  // namespace reverb::internal
