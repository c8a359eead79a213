// Tests Fifo and Lifo. Tests common to all selectors are in selectors_test.cc.
#include <cstdint>
#include <vector>

#include "core/selectors/selectors_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace reverb::internal {
namespace {

using ::testing::ElementsAre;

// Samples and deletes until the table is empty.
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

TEST(FifoTest, PicksTheEarliestInserted) {
  MiniTable table(SelectorOptions::Fifo());
  for (Slot slot : {3, 1, 4, 0}) table.InsertAt(slot, 1);
  EXPECT_THAT(Drain(table), ElementsAre(3, 1, 4, 0));
}

TEST(LifoTest, PicksTheLatestInserted) {
  MiniTable table(SelectorOptions::Lifo());
  for (Slot slot : {3, 1, 4, 0}) table.InsertAt(slot, 1);
  EXPECT_THAT(Drain(table), ElementsAre(0, 4, 1, 3));
}

TEST(FifoTest, IgnoresUpdates) {
  MiniTable table(SelectorOptions::Fifo());
  for (Slot slot : {0, 1, 2}) table.InsertAt(slot, 1);
  table.Update(0, 100);
  EXPECT_THAT(Drain(table), ElementsAre(0, 1, 2));
}

TEST(LifoTest, IgnoresUpdates) {
  MiniTable table(SelectorOptions::Lifo());
  for (Slot slot : {0, 1, 2}) table.InsertAt(slot, 1);
  table.Update(0, 100);
  EXPECT_THAT(Drain(table), ElementsAre(2, 1, 0));
}

TEST(FifoTest, AReusedSlotGoesToTheEnd) {
  MiniTable table(SelectorOptions::Fifo());
  for (Slot slot : {0, 1, 2}) table.InsertAt(slot, 1);
  table.selector().Delete(0);
  table.InsertAt(0, 1);
  EXPECT_THAT(Drain(table), ElementsAre(1, 2, 0));
}

TEST(FifoTest, DeletesAtEitherEndAndInTheMiddleKeepTheOrder) {
  for (auto options : {SelectorOptions::Fifo(), SelectorOptions::Lifo()}) {
    MiniTable table(options);
    for (Slot slot = 0; slot < 7; ++slot) table.InsertAt(slot, 1);
    for (Slot slot : {0, 3, 6}) table.Delete(slot);
    if (options.kind == SelectorOptions::Kind::kFifo) {
      EXPECT_THAT(Drain(table), ElementsAre(1, 2, 4, 5));
    } else {
      EXPECT_THAT(Drain(table), ElementsAre(5, 4, 2, 1));
    }
  }
}

}  // namespace
}  // namespace reverb::internal
