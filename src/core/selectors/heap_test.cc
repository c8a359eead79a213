// Tests MinHeap and MaxHeap. Tests common to all selectors are in selectors_test.cc.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "base/random.h"
#include "core/selectors/selectors_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace reverb::internal {
namespace {

using ::testing::ElementsAre;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<Slot> Drain(MiniTable& table) {
  std::vector<Slot> order;
  while (table.size() > 0) {
    const Selection pick = table.Sample();
    EXPECT_EQ(pick.probability, 1.0);
    order.push_back(pick.slot);
    table.Delete(pick.slot);
  }
  return order;
}

TEST(HeapTest, MinPicksTheSmallestAndMaxTheLargest) {
  MiniTable min(SelectorOptions::MinHeap());
  MiniTable max(SelectorOptions::MaxHeap());
  for (double priority : {5.0, -2.0, 7.0, 0.0}) {
    min.Insert(priority);
    max.Insert(priority);
  }
  EXPECT_THAT(Drain(min), ElementsAre(1, 3, 0, 2));
  EXPECT_THAT(Drain(max), ElementsAre(2, 0, 3, 1));
}

TEST(HeapTest, AnUpdateReorders) {
  MiniTable table(SelectorOptions::MinHeap());
  for (double priority : {1.0, 2.0, 3.0, 4.0}) table.Insert(priority);
  table.Update(0, 10);
  EXPECT_EQ(table.Sample().slot, 1u);
  table.Update(3, -1);
  EXPECT_THAT(Drain(table), ElementsAre(3, 1, 2, 0));
}

// The trace of the contract: insert 2, 0, 1 with equal priority, then update 2 with the same priority.
TEST(HeapTest, AmongEqualsTheLeastRecentlyUpdatedComesFirst) {
  for (auto options : {SelectorOptions::MinHeap(), SelectorOptions::MaxHeap()}) {
    MiniTable table(options);
    for (Slot slot : {2, 0, 1}) table.InsertAt(slot, 1);
    table.Update(2, 1);
    EXPECT_THAT(Drain(table), ElementsAre(0, 1, 2)) << options.ToString();
  }
}

TEST(HeapTest, ALaterUpdateInABatchCountsAsMoreRecent) {
  MiniTable table(SelectorOptions::MaxHeap());
  for (Slot slot = 0; slot < 4; ++slot) table.InsertAt(slot, 1);
  const std::vector<std::pair<Slot, double>> changes = {{2, 1.0}, {0, 1.0}, {2, 1.0}};
  table.Update(changes);
  EXPECT_THAT(Drain(table), ElementsAre(1, 3, 0, 2));
}

TEST(HeapTest, ZeroesOfEitherSignAreEqual) {
  for (auto options : {SelectorOptions::MinHeap(), SelectorOptions::MaxHeap()}) {
    MiniTable table(options);
    for (double priority : {0.0, -0.0, 0.0, -0.0}) table.Insert(priority);
    EXPECT_THAT(Drain(table), ElementsAre(0, 1, 2, 3));
  }
}

TEST(HeapTest, InfinitiesAreOrdinaryPriorities) {
  MiniTable min(SelectorOptions::MinHeap());
  MiniTable max(SelectorOptions::MaxHeap());
  for (double priority : {1.0, kInfinity, -kInfinity, kInfinity, -1e308}) {
    min.Insert(priority);
    max.Insert(priority);
  }
  EXPECT_THAT(Drain(min), ElementsAre(2, 4, 0, 1, 3));
  EXPECT_THAT(Drain(max), ElementsAre(1, 3, 0, 4, 2));
}

TEST(HeapTest, DrainsThousandsInOrder) {
  MiniTable table(SelectorOptions::MinHeap());
  Random random(1);
  std::vector<std::pair<double, Slot>> expected;
  for (int i = 0; i < 5000; ++i) {
    const double priority = random.Unit();
    expected.emplace_back(priority, table.Insert(priority));
  }
  std::sort(expected.begin(), expected.end());
  const std::vector<Slot> order = Drain(table);
  ASSERT_EQ(order.size(), expected.size());
  for (size_t i = 0; i < order.size(); ++i) ASSERT_EQ(order[i], expected[i].second) << i;
}

}  // namespace
}  // namespace reverb::internal
