// Tests Uniform. Tests common to all selectors are in selectors_test.cc.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "core/selectors/selectors_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using ::reverb::test::StatusIs;
using ::testing::HasSubstr;

TEST(UniformTest, AllItemsAreEquallyLikely) {
  constexpr size_t kItems = 100;
  MiniTable table(SelectorOptions::Uniform(1));
  for (size_t i = 0; i < kItems; ++i) table.Insert(static_cast<double>(i));
  std::vector<size_t> counts(kItems);
  for (const Selection& pick : table.Sample(200'000)) {
    EXPECT_EQ(pick.probability, 0.01);
    ++counts[pick.slot];
  }
  EXPECT_TRUE(ChiSquareAccepts(counts, std::vector<double>(kItems, 1.0 / kItems)));
}

TEST(UniformTest, AllItemsAreEquallyLikelyAfterDeletes) {
  MiniTable table(SelectorOptions::Uniform(2));
  for (size_t i = 0; i < 1000; ++i) table.Insert(1);
  Random random(3);
  while (table.size() > 64) {
    const Slot slot = static_cast<Slot>(random.Below(1000));
    if (table.items().contains(slot)) table.Delete(slot);
  }
  std::vector<size_t> counts(1000);
  std::vector<double> expected(1000);
  for (const auto& [slot, item] : table.items()) expected[slot] = 1.0 / 64;
  for (const Selection& pick : table.Sample(100'000)) ++counts[pick.slot];
  EXPECT_TRUE(ChiSquareAccepts(counts, expected));
}

// Checks that the test above would detect a bias.
TEST(UniformTest, TheStatisticDetectsABiasOfOneInTwenty) {
  Random random(4);
  std::vector<size_t> counts(100);
  for (int i = 0; i < 200'000; ++i) ++counts[random.Below(100)];
  const std::vector<double> even(100, 0.01);
  EXPECT_TRUE(ChiSquareAccepts(counts, even));
  for (size_t i = 0; i < 50; ++i) counts[i] += counts[i] / 20;
  EXPECT_FALSE(ChiSquareAccepts(counts, even));
}

TEST(UniformTest, ProbabilityFollowsTheNumberOfItems) {
  MiniTable table(SelectorOptions::Uniform(5));
  for (int n = 1; n <= 10; ++n) {
    table.Insert(1);
    EXPECT_EQ(table.Sample().probability, 1.0 / n);
  }
}

TEST(UniformTest, GrowsAndShrinksOverManyPages) {
  MiniTable table(SelectorOptions::Uniform(6));
  for (int i = 0; i < 30'000; ++i) table.Insert(1);
  while (table.size() > 1) table.Delete(table.items().begin()->first);
  EXPECT_EQ(table.Sample(), (Selection{29'999, 1.0}));
  for (int i = 0; i < 10'000; ++i) table.Insert(1);
  for (const Selection& pick : table.Sample(1000)) EXPECT_TRUE(table.items().contains(pick.slot));
}

class UniformRestoreTest : public ::testing::Test {
 protected:
  static constexpr size_t kCountAt = 1 + 32;
  static constexpr size_t kSlotsAt = kCountAt + 4;

  UniformRestoreTest() {
    for (int i = 0; i < 10; ++i) table_.Insert(1);
    table_.Delete(3);
    items_ = table_.ItemsByAge();
    state_ = table_.Encode();
  }

  Status Restore(const std::string& state) {
    selector_ = *MakeSelector(SelectorOptions::Uniform(8));
    return selector_->Restore(items_, state);
  }

  MiniTable table_{SelectorOptions::Uniform(7)};
  std::vector<SelectorItem> items_;
  std::string state_;
  std::unique_ptr<Selector> selector_;
};

TEST_F(UniformRestoreTest, TheStateHasTheDocumentedFormat) {
  ASSERT_EQ(state_.size(), kSlotsAt + 4 * items_.size());
  EXPECT_EQ(state_[kCountAt], 9);
  EXPECT_EQ(state_[kSlotsAt + 4 * 3], 9);  // the last one filled the hole
  EXPECT_OK(Restore(state_));
}

TEST_F(UniformRestoreTest, ASlotWithoutAnItemIsRejected) {
  state_[kSlotsAt] = 3;
  EXPECT_THAT(Restore(state_), StatusIs(StatusCode::kDataLoss, Detail::kCorruptData, HasSubstr("slot 3")));
  state_[kSlotsAt + 3] = '\xff';  // far beyond all slots
  EXPECT_THAT(Restore(state_), StatusIs(StatusCode::kDataLoss));
}

TEST_F(UniformRestoreTest, ARepeatedSlotIsRejected) {
  state_[kSlotsAt] = state_[kSlotsAt + 4];
  EXPECT_THAT(Restore(state_), StatusIs(StatusCode::kDataLoss, HasSubstr("repeated")));
}

TEST_F(UniformRestoreTest, ACountThatDiffersFromTheItemsIsRejected) {
  state_[kCountAt] = 8;
  EXPECT_THAT(Restore(state_), StatusIs(StatusCode::kDataLoss));
  state_.resize(state_.size() - 4);  // now consistent with the count
  EXPECT_THAT(Restore(state_), StatusIs(StatusCode::kDataLoss, HasSubstr("9 items")));
  state_[kCountAt + 3] = '\xff';  // would need 16 GB
  EXPECT_THAT(Restore(state_), StatusIs(StatusCode::kDataLoss));
}

TEST_F(UniformRestoreTest, CanSampleFromAnAllZeroRandomState) {
  std::fill_n(state_.begin() + 1, 32, '\0');
  ASSERT_OK(Restore(state_));
  std::vector<Selection> picks(100);
  selector_->Sample(picks);
  EXPECT_FALSE(std::all_of(picks.begin(), picks.end(), [&](const Selection& p) { return p == picks[0]; }));
}

}  // namespace
}  // namespace reverb::internal
