// Tests Prioritized. Tests common to all selectors are in selectors_test.cc; see also sum_tree_test.cc.
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "core/selectors/selectors_testing.h"
#include "core/selectors/sum_tree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using ::reverb::test::StatusIs;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// --- Accepted priorities ---

TEST(PrioritizedTest, RejectsPrioritiesThatCannotBeWeights) {
  MiniTable table(SelectorOptions::Prioritized(1));
  const auto refused = [](const std::string& text) {
    return StatusIs(StatusCode::kInvalidArgument, Detail::kInvalidPriority, HasSubstr(text));
  };
  EXPECT_THAT(table.selector().CheckPriority(std::nan("")), refused("NaN"));
  EXPECT_THAT(table.selector().CheckPriority(-0.5), refused("priority -0.5: must not be negative"));
  EXPECT_THAT(table.selector().CheckPriority(-kInfinity), refused("must not be negative"));
  EXPECT_THAT(table.selector().CheckPriority(kInfinity), refused("priority inf: must be finite"));
  EXPECT_THAT(table.selector().CheckPriority(1e299), refused("priority 1e+299: is too large"));
  for (double priority : {0.0, -0.0, 5e-324, 1.0, 1e290, SumTree::kMaxWeight}) {
    EXPECT_OK(table.selector().CheckPriority(priority)) << priority;
  }
}

TEST(PrioritizedTest, TheLargestPriorityDependsOnTheExponent) {
  EXPECT_OK((*MakeSelector(SelectorOptions::Prioritized(0)))->CheckPriority(1e308));
  EXPECT_OK((*MakeSelector(SelectorOptions::Prioritized(0.5)))->CheckPriority(1e308));
  EXPECT_OK((*MakeSelector(SelectorOptions::Prioritized(2)))->CheckPriority(1e149));
  EXPECT_THAT((*MakeSelector(SelectorOptions::Prioritized(2)))->CheckPriority(1e160),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_OK((*MakeSelector(SelectorOptions::Prioritized(100)))->CheckPriority(900));
  EXPECT_THAT((*MakeSelector(SelectorOptions::Prioritized(100)))->CheckPriority(1000),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT((*MakeSelector(SelectorOptions::Prioritized(100)))->CheckPriority(1e4),
              StatusIs(StatusCode::kInvalidArgument));
}

TEST(PrioritizedTest, CanSampleFromManyLargestPriorities) {
  MiniTable table(SelectorOptions::Prioritized(1, 1));
  for (int i = 0; i < 1000; ++i) table.Insert(SumTree::kMaxWeight);
  std::set<Slot> seen;
  for (const Selection& pick : table.Sample(20'000)) {
    EXPECT_EQ(pick.probability, 1.0 / 1000);
    seen.insert(pick.slot);
  }
  EXPECT_EQ(seen.size(), 1000u);
}

// --- Probabilities ---

// The trace of the contract: priorities {a: 1, b: 0.1, c: 0}.
TEST(PrioritizedTest, ProbabilityIsProportionalToTheWeight) {
  MiniTable table(SelectorOptions::Prioritized(1, 2));
  const Slot a = table.Insert(1);
  const Slot b = table.Insert(0.1);
  const Slot c = table.Insert(0);
  std::set<Slot> seen;
  for (const Selection& pick : table.Sample(1000)) {
    EXPECT_NE(pick.slot, c);
    EXPECT_DOUBLE_EQ(pick.probability, pick.slot == a ? 1 / 1.1 : 0.1 / 1.1);
    seen.insert(pick.slot);
  }
  EXPECT_EQ(seen, (std::set<Slot>{a, b}));

  table.Update(a, 0);
  table.Update(b, 0);
  seen.clear();
  for (const Selection& pick : table.Sample(1000)) {
    EXPECT_EQ(pick.probability, 1.0 / 3);
    seen.insert(pick.slot);
  }
  EXPECT_EQ(seen, (std::set<Slot>{a, b, c}));
}

TEST(PrioritizedTest, WithExponentZeroAllNonzeroPrioritiesAreEqual) {
  MiniTable table(SelectorOptions::Prioritized(0, 3));
  const Slot zero = table.Insert(0);
  for (double priority : {1e-300, 1.0, 1e300}) table.Insert(priority);
  for (const Selection& pick : table.Sample(500)) {
    EXPECT_NE(pick.slot, zero);
    EXPECT_EQ(pick.probability, 1.0 / 3);
  }
}

TEST(PrioritizedTest, AnUpdateChangesTheWeight) {
  MiniTable table(SelectorOptions::Prioritized(1, 4));
  const Slot a = table.Insert(0);
  const Slot b = table.Insert(1);
  EXPECT_EQ(table.Sample(), (Selection{b, 1.0}));
  table.Update(a, 5);
  table.Update(b, 0);
  EXPECT_EQ(table.Sample(), (Selection{a, 1.0}));
}

class PrioritizedDistributionTest : public ::testing::TestWithParam<double> {};

// Chi-square at a significance of 1e-6, fixed seed.
TEST_P(PrioritizedDistributionTest, DrawsFollowTheWeights) {
  constexpr size_t kItems = 200;
  const double exponent = GetParam();
  MiniTable table(SelectorOptions::Prioritized(exponent, 5));
  std::vector<double> expected(kItems);
  double total = 0;
  for (size_t i = 0; i < kItems; ++i) {
    const double priority = i % 10 == 0 ? 0 : 1 + static_cast<double>(i % 7);
    table.Insert(priority);
    expected[i] = priority == 0 ? 0 : std::pow(priority, exponent);
    total += expected[i];
  }
  for (double& e : expected) e /= total;
  std::vector<size_t> counts(kItems);
  for (const Selection& pick : table.Sample(400'000)) {
    ASSERT_NEAR(pick.probability, expected[pick.slot], 1e-15);
    ++counts[pick.slot];
  }
  EXPECT_TRUE(ChiSquareAccepts(counts, expected));

  // The test would detect an exponent that is off by a tenth.
  double wrong_total = 0;
  std::vector<double> wrong(kItems);
  for (size_t i = 0; i < kItems; ++i) {
    wrong[i] = expected[i] == 0 ? 0 : std::pow(1 + static_cast<double>(i % 7), exponent + 0.1);
    wrong_total += wrong[i];
  }
  for (double& w : wrong) w /= wrong_total;
  EXPECT_FALSE(ChiSquareAccepts(counts, wrong));
}

INSTANTIATE_TEST_SUITE_P(Exponents, PrioritizedDistributionTest, ::testing::Values(0.0, 0.5, 0.6, 1.0, 2.0));

// Chi-square at a significance of 1e-6, fixed seed.
TEST(PrioritizedTest, WhileAllWeightsAreZeroAllItemsAreEquallyLikely) {
  MiniTable table(SelectorOptions::Prioritized(1, 6));
  std::vector<double> expected(300);
  for (Slot slot = 0; slot < 300; slot += 3) {
    table.InsertAt(slot, 0);
    expected[slot] = 0.01;
  }
  std::vector<size_t> counts(300);
  for (const Selection& pick : table.Sample(100'000)) {
    EXPECT_EQ(pick.probability, 0.01);
    ++counts[pick.slot];
  }
  EXPECT_TRUE(ChiSquareAccepts(counts, expected));
}

TEST(PrioritizedTest, AWeightThatUnderflowsCountsAsZero) {
  MiniTable table(SelectorOptions::Prioritized(2, 7));
  const Slot tiny = table.Insert(1e-200);
  table.Insert(1e-200);
  EXPECT_EQ(table.Sample().probability, 0.5);
  const Slot one = table.Insert(1);
  for (const Selection& pick : table.Sample(100)) EXPECT_EQ(pick, (Selection{one, 1.0}));
  table.Delete(one);
  table.Update(tiny, 1e-100);
  EXPECT_EQ(table.Sample(), (Selection{tiny, 1.0}));
}

// --- Values that are numerically difficult for sum trees ---

TEST(PrioritizedTest, ATinyWeightIsExactAfterManyLargerOnesWereDeleted) {
  MiniTable table(SelectorOptions::Prioritized(1, 8));
  const Slot tiny = table.Insert(1e-15);
  std::vector<Slot> others;
  for (int i = 0; i < 10'000; ++i) others.push_back(table.Insert(0.3));
  for (Slot slot : others) table.Delete(slot);
  // The total must be exactly 1e-15, otherwise this would not be exactly 1.
  for (const Selection& pick : table.Sample(100)) ASSERT_EQ(pick, (Selection{tiny, 1.0}));
}

TEST(PrioritizedTest, ItemsWithoutWeightAreNeverSampledWhateverTheRounding) {
  Random random(9);
  const double weights[] = {0,   5e-324, 1e-310, 1e-300,         1e-15,
                            0.1, 0.3,    1e15,   1e300 / 0x1p33, SumTree::kMaxWeight};
  for (int round = 0; round < 300; ++round) {
    MiniTable table(SelectorOptions::Prioritized(1, 100 + round));
    const uint64_t kinds = 2 + random.Below(std::size(weights) - 1);
    const uint64_t zeros = random.Below(10);
    const int n = 1 + static_cast<int>(random.Below(700));
    for (int i = 0; i < n; ++i) table.Insert(random.Below(10) < zeros ? 0 : weights[random.Below(kinds)]);
    table.Insert(weights[1 + random.Below(kinds - 1)]);
    for (const Selection& pick : table.Sample(200)) {
      ASSERT_TRUE(table.items().contains(pick.slot));
      ASSERT_GT(table.items().at(pick.slot).priority, 0);
    }
  }
}

TEST(PrioritizedTest, SelectionsDoNotDependOnHistory) {
  MiniTable busy(SelectorOptions::Prioritized(1, 10));
  MiniTable fresh(SelectorOptions::Prioritized(1, 10));
  Random random(11);
  // One had thousands of items and deleted them, the other never grew.
  for (int i = 0; i < 5000; ++i) busy.Insert(random.Unit() * 1e9);
  for (Slot slot = 0; slot < 5000; ++slot) busy.Delete(slot);
  for (Slot slot = 0; slot < 40; slot += 2) {
    const double priority = random.Unit();
    busy.InsertAt(slot, priority);
    fresh.InsertAt(slot, priority);
  }
  EXPECT_EQ(busy.Sample(1000), fresh.Sample(1000));
  for (Slot slot = 0; slot < 40; slot += 2) {
    busy.Update(slot, 0);
    fresh.Update(slot, 0);
  }
  EXPECT_EQ(busy.Sample(1000), fresh.Sample(1000));
}

TEST(PrioritizedTest, ABatchMayContainTheSameItemTwice) {
  MiniTable table(SelectorOptions::Prioritized(1, 12));
  for (int i = 0; i < 10; ++i) table.Insert(1);
  const std::vector<std::pair<Slot, double>> changes = {{1, 5.0}, {2, 0.0}, {1, 0.0},
                                                        {2, 3.0}, {1, 1.0}, {2, 4.0}};
  table.Update(changes);
  for (const Selection& pick : table.Sample(100))
    EXPECT_EQ(pick.probability, (pick.slot == 2 ? 4.0 : 1.0) / 13);
}

}  // namespace
}  // namespace reverb::internal
