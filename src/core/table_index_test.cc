// Tests what a table counts as its index: the memory that it takes besides chunks.
#include <chrono>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/table_state_testing.h"

namespace reverb::internal {
namespace {

using namespace std::chrono_literals;
using ::testing::Optional;

class TableIndexTest : public TableStateTest {
 protected:
  static constexpr int64_t kItems = 20'000;
  // The keys are in hash tables, whose sizes depend on a seed.
  static void ExpectAbout(int64_t bytes, int64_t expected) {
    EXPECT_NEAR(static_cast<double>(bytes), static_cast<double>(expected), static_cast<double>(kItems) * 2);
  }
  std::unique_ptr<TableState> Filled(TableOptions options) {
    options.max_size = kItems;
    std::unique_ptr<TableState> state = Make(std::move(options));
    for (int64_t key = 1; key <= kItems; ++key) Insert(state.get(), static_cast<uint64_t>(key));
    return state;
  }
};

TEST_F(TableIndexTest, EachSelectorCountsWithItsSize) {
  const int64_t fifo =
      Filled({.sampler = SelectorOptions::Fifo(), .remover = SelectorOptions::Fifo()})->index_bytes();
  const int64_t uniform =
      Filled({.sampler = SelectorOptions::Uniform(), .remover = SelectorOptions::Fifo()})->index_bytes();
  const int64_t heaps =
      Filled({.sampler = SelectorOptions::MaxHeap(), .remover = SelectorOptions::MinHeap()})->index_bytes();
  ExpectAbout(uniform, fifo);
  ExpectAbout(heaps - fifo, 2 * kItems * (28 - 8));  // a heap has entries of 24 bytes and positions of 4
}

TEST_F(TableIndexTest, TheAgesOfItemsCount) {
  const int64_t without = Filled({})->index_bytes();
  const std::unique_ptr<TableState> state = Filled({.max_age = 1h});
  ExpectAbout(state->index_bytes() - without, kItems * 16);
  // Those that left earlier take nothing.
  for (uint64_t key = kItems + 1; key <= 4 * kItems; ++key) Insert(state.get(), key);
  ExpectAbout(state->index_bytes() - without, kItems * 16);
  Reset(state.get());
  EXPECT_EQ(state->index_bytes(), Make({})->index_bytes());
}

TEST_F(TableIndexTest, LeasesCount) {
  const std::unique_ptr<TableState> state = Filled({});
  const int64_t before = state->index_bytes();
  std::vector<internal::Sample> samples;
  ASSERT_OK(state->SampleLeased(kItems / 2, {}, nullptr, false, false, TimePoint(1h), &samples));
  EXPECT_GT(state->index_bytes(), before + kItems / 2 * 60);
  EXPECT_LT(state->index_bytes(), before + kItems / 2 * 240);
}

// No operation looks for items that left earlier: the next time is always that of the oldest item that is present.
TEST_F(TableIndexTest, TheNextTimeIsThatOfAnItemThatIsPresent) {
  const std::unique_ptr<TableState> state = Make({.max_age = 10s});
  Effects effects;
  for (uint64_t key = 1; key <= 5; ++key) {
    state->AdvanceTo(TimePoint(std::chrono::seconds(key)), &effects);
    Insert(state.get(), key);
  }
  EXPECT_THAT(state->NextAged(), Optional(TimePoint(11s)));
  Delete(state.get(), {2, 1});
  EXPECT_THAT(state->NextAged(), Optional(TimePoint(13s)));
  Delete(state.get(), {3, 4, 5});
  EXPECT_EQ(state->NextAged(), std::nullopt);
}

}  // namespace
}  // namespace reverb::internal
