// What the admin port reads of a table: a survey of its items, and waits by kind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <vector>

#include "core/table.h"
#include "core/table_testing.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using namespace std::chrono_literals;
using ::testing::IsEmpty;

class TableSurveyTest : public TableFixture {};

TEST_F(TableSurveyTest, ShowsAllItemsOfASmallTable) {
  auto table = Make({});
  EXPECT_THAT(table->Survey(10), IsEmpty());
  ASSERT_OK(Insert(*table, 1, 0.5));
  const int64_t first = clock_.WallNanos();
  clock_.Advance(2s);
  ASSERT_OK(Insert(*table, 2, 4));
  const std::vector<ItemMark> marks = table->Survey(10);
  ASSERT_EQ(marks.size(), 2u);
  EXPECT_EQ(marks[0].priority, 0.5);
  EXPECT_EQ(marks[0].inserted_at, first);
  EXPECT_EQ(marks[1].inserted_at - marks[0].inserted_at, Duration(2s).count());
  EXPECT_EQ(marks[0].times_sampled + marks[1].times_sampled, 0);
  EXPECT_EQ(Sample(*table, 3).size(), 3u);
  const std::vector<ItemMark> later = table->Survey(10);
  EXPECT_EQ(later[0].times_sampled + later[1].times_sampled, 3);
  EXPECT_THAT(table->Survey(0), IsEmpty());
}

TEST_F(TableSurveyTest, SpreadsOverALargeTable) {
  auto table = Make({});
  for (uint64_t key = 1; key <= 1000; ++key) ASSERT_OK(Insert(*table, key, static_cast<double>(key)));
  const std::vector<ItemMark> marks = table->Survey(100);
  EXPECT_EQ(marks.size(), 100u);
  std::set<int64_t> hundreds;
  for (const ItemMark& mark : marks) hundreds.insert(static_cast<int64_t>(mark.priority - 1) / 100);
  EXPECT_EQ(hundreds.size(), 10u);
}

TEST_F(TableSurveyTest, TellsQueuedInsertsFromQueuedSamples) {
  auto table = MakeQueue(1);
  ASSERT_OK(Insert(*table, 1));
  (void)InsertAsync(*table, {2});
  (void)InsertAsync(*table, {3});
  clock_.Advance(3s);
  EXPECT_EQ(Sample(*table, 1).size(), 1u);  // the second insert becomes the first in the queue
  TableInfo info = table->Info();
  EXPECT_EQ(info.queued_inserts.count, 1);
  EXPECT_EQ(info.queued_inserts.total_nanos, Duration(3s).count());
  EXPECT_EQ(Sample(*table, 1).size(), 1u);
  EXPECT_EQ(Sample(*table, 1).size(), 1u);

  (void)SampleAsync(*table, 1);
  (void)SampleAsync(*table, 1);
  clock_.Advance(5s);
  ASSERT_OK(Insert(*table, 4));
  ASSERT_OK(Insert(*table, 5));
  info = table->Info();
  EXPECT_EQ(info.queued_inserts.count, 1);
  EXPECT_EQ(info.waits[static_cast<int>(WaitReason::kQueued)].total_nanos, Duration(8s).count());
}

}  // namespace
}  // namespace reverb::internal
