#include "core/selectors/slot_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <vector>

#include "base/random.h"
#include "testing/seed.h"

namespace reverb::internal {
namespace {

using ::testing::ElementsAre;

std::vector<Slot> Drain(SlotList* list) {
  std::vector<Slot> slots;
  while (!list->empty()) {
    slots.push_back(list->first());
    list->Remove(list->first());
  }
  return slots;
}

TEST(SlotListTest, KeepsTheOrderInWhichSlotsWereAdded) {
  SlotList list;
  EXPECT_EQ(list.first(), SlotList::kNone);
  for (const Slot slot : {7u, 2u, 5u}) list.Append(slot);
  list.Prepend(9);
  EXPECT_TRUE(list.Contains(9));
  EXPECT_FALSE(list.Contains(3));
  EXPECT_EQ(list.last(), 5u);
  EXPECT_THAT(Drain(&list), ElementsAre(9, 7, 2, 5));
  EXPECT_EQ(list.last(), SlotList::kNone);
  list.Append(7);
  list.Clear();
  EXPECT_FALSE(list.Contains(7));
  EXPECT_TRUE(list.empty());
}

TEST(SlotListTest, DoesWhatAListDoes) {
  Random random(test::Seed());
  SlotList list;
  std::list<Slot> model;
  for (int i = 0; i < 20'000; ++i) {
    const auto slot = static_cast<Slot>(random.Below(100));
    const auto found = std::ranges::find(model, slot);
    ASSERT_EQ(list.Contains(slot), found != model.end());
    if (found != model.end()) {
      list.Remove(slot);
      model.erase(found);
    } else if (random.Below(2) == 0) {
      list.Append(slot);
      model.push_back(slot);
    } else {
      list.Prepend(slot);
      model.push_front(slot);
    }
    ASSERT_EQ(list.first(), model.empty() ? SlotList::kNone : model.front());
    ASSERT_EQ(list.last(), model.empty() ? SlotList::kNone : model.back());
  }
  EXPECT_EQ(Drain(&list), std::vector<Slot>(model.begin(), model.end()));
}

}  // namespace
}  // namespace reverb::internal
