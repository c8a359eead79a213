// Tests the sum tree and the slot set, with every instruction set of this processor.
#include "core/selectors/sum_tree.h"

#include <hwy/targets.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "core/selectors/slot_set.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace reverb::internal {
namespace {

constexpr double kDenormal = 5e-324;

// The definition, implemented independently of sum_tree.cc: the total of the weights [first, first + width),
// where width is a power of 8.
double TotalByDefinition(const std::vector<double>& weights, size_t first, size_t width) {
  if (first >= weights.size()) return 0;
  if (width == 1) return weights[first];
  double c[8];
  for (size_t i = 0; i < 8; ++i) c[i] = TotalByDefinition(weights, first + i * width / 8, width / 8);
  return ((c[0] + c[1]) + (c[2] + c[3])) + ((c[4] + c[5]) + (c[6] + c[7]));
}

Slot FindByDefinition(const std::vector<double>& weights, double point) {
  size_t width = 8;
  while (width < weights.size()) width *= 8;
  size_t first = 0;
  for (; width > 1; width /= 8) {
    double c[8];
    for (size_t i = 0; i < 8; ++i) c[i] = TotalByDefinition(weights, first + i * width / 8, width / 8);
    const double p1 = c[0] + c[1];
    const double p3 = p1 + (c[2] + c[3]);
    const double q1 = c[4] + c[5];
    const double p[8] = {c[0],      p1,      p1 + c[2],        p3,
                         p3 + c[4], p3 + q1, p3 + (q1 + c[6]), p3 + (q1 + (c[6] + c[7]))};
    point = std::min(point, std::nextafter(p[7], 0.0));
    size_t child = 0;
    while (p[child] <= point) ++child;
    if (child > 0) point -= p[child - 1];
    first += child * width / 8;
  }
  return static_cast<Slot>(first);
}

double TotalByDefinition(const std::vector<double>& weights) {
  size_t width = 8;
  while (width < weights.size()) width *= 8;
  return TotalByDefinition(weights, 0, width);
}

// Trees created while an instance exists use the given instruction set.
class SumTreeTest : public ::testing::TestWithParam<int64_t> {
 protected:
  SumTreeTest() { Choose(GetParam()); }
  ~SumTreeTest() override { Choose(0); }

  static void Choose(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }

  static void Fill(SumTree& tree, const std::vector<double>& weights) {
    for (size_t i = 0; i < weights.size(); ++i) {
      tree.Reserve(static_cast<Slot>(i));
      tree.SetWeightOnly(static_cast<Slot>(i), weights[i]);
    }
    tree.RefreshAll();
  }
  static Slot FindOne(const SumTree& tree, double point) {
    Slot slot;
    tree.Find(&point, &slot, 1);
    return slot;
  }
  // Every sum is bit-identical to that of a new tree with the same weights.
  static void ExpectExact(const SumTree& tree) {
    SumTree fresh;
    for (size_t i = tree.capacity(); i-- > 0;) {
      fresh.Reserve(static_cast<Slot>(i));
      fresh.SetWeightOnly(static_cast<Slot>(i), tree[static_cast<Slot>(i)]);
    }
    fresh.RefreshAll();
    ASSERT_EQ(std::bit_cast<uint64_t>(tree.total()), std::bit_cast<uint64_t>(fresh.total()));
    ASSERT_EQ(tree.levels().depth, fresh.levels().depth);
    for (int level = 0; level < tree.levels().depth; ++level) {
      ASSERT_EQ(std::memcmp(tree.levels().values[level], fresh.levels().values[level],
                            tree.levels().size(level) * sizeof(double)),
                0)
          << "level " << level;
    }
  }
  // Covers the whole range of valid weights, including zeros.
  static double RandomWeight(Random& random) {
    switch (random.Below(8)) {
      case 0:
        return 0;
      case 1:
        return random.Unit() * 0x1p-1022;  // mostly denormal
      case 2:
        return std::ldexp(0.5 + random.Unit() / 2, static_cast<int>(random.Below(2000)) - 1010);
      default:
        return random.Unit();
    }
  }
};

TEST_P(SumTreeTest, AnEmptyTreeHasNoWeights) {
  SumTree tree;
  EXPECT_EQ(tree.capacity(), 0u);
  EXPECT_EQ(tree.total(), 0);
  tree.RefreshAll();
  tree.Refresh(nullptr, 0);
  tree.Prefetch(7);
  tree.Clear();
  EXPECT_EQ(tree.total(), 0);
}

TEST_P(SumTreeTest, GrowsOnDemandAndKeepsItsWeights) {
  SumTree tree;
  std::vector<double> weights;
  Random random(1);
  for (Slot slot = 0; slot < 5000; ++slot) {
    tree.Reserve(slot);
    weights.push_back(random.Unit());
    tree.Set(slot, weights.back());
    if (std::has_single_bit(slot)) {
      ASSERT_EQ(tree.total(), TotalByDefinition(weights)) << slot;
      ExpectExact(tree);
    }
  }
  EXPECT_EQ(tree.capacity(), 8192u);
  for (Slot slot = 0; slot < 5000; ++slot) ASSERT_EQ(tree[slot], weights[slot]);
  tree.Clear();
  EXPECT_EQ(tree.capacity(), 0u);
  EXPECT_EQ(tree.total(), 0);
}

TEST_P(SumTreeTest, GrowsOverSeveralLevelsAtOnce) {
  SumTree tree;
  tree.Reserve(0);
  tree.Set(0, 0.7);
  tree.Reserve(100'000);
  EXPECT_EQ(tree.total(), 0.7);
  tree.Set(100'000, 0.1);
  EXPECT_EQ(tree.total(), 0.7 + 0.1);
  EXPECT_EQ(FindOne(tree, 0.69), 0u);
  EXPECT_EQ(FindOne(tree, 0.71), 100'000u);
  ExpectExact(tree);
}

TEST_P(SumTreeTest, SumsNeverDrift) {
  constexpr Slot kSlots = 20'000;
  SumTree tree;
  tree.Reserve(kSlots - 1);
  Random random(2);
  int updates = 0;
  while (updates < 1'000'000) {
    if (random.Below(2) == 0) {
      for (int i = 0; i < 50; ++i) tree.Set(static_cast<Slot>(random.Below(kSlots)), RandomWeight(random));
      updates += 50;
    } else {
      Slot slots[SumTree::kRefreshGroup];
      const size_t n = 1 + random.Below(SumTree::kRefreshGroup);
      const uint64_t range = random.Below(2) == 0 ? kSlots : 1 + random.Below(200);
      for (size_t i = 0; i < n; ++i) {
        slots[i] = static_cast<Slot>(random.Below(range));
        tree.SetWeightOnly(slots[i], RandomWeight(random));
      }
      tree.Refresh(slots, n);
      updates += static_cast<int>(n);
    }
    if (updates % 1000 == 0) {
      ExpectExact(tree);
      if (HasFatalFailure()) return;
    }
  }
  ExpectExact(tree);
  std::vector<double> weights(kSlots);
  for (Slot slot = 0; slot < kSlots; ++slot) weights[slot] = tree[slot];
  EXPECT_EQ(tree.total(), TotalByDefinition(weights));
}

TEST_P(SumTreeTest, FindAgreesWithTheDefinitionForEveryInstructionSet) {
  Random random(3);
  for (int round = 0; round < 60; ++round) {
    std::vector<double> weights(1 + random.Below(round % 10 == 0 ? 2000 : 100));
    for (double& weight : weights) weight = RandomWeight(random);
    weights[random.Below(weights.size())] = round % 3 == 0 ? kDenormal : 1;
    SumTree tree;
    Fill(tree, weights);
    ASSERT_EQ(std::bit_cast<uint64_t>(tree.total()), std::bit_cast<uint64_t>(TotalByDefinition(weights)));
    double points[SumTree::kFindGroup];
    Slot slots[SumTree::kFindGroup];
    for (size_t n : {size_t{1}, size_t{2}, size_t{7}, SumTree::kFindGroup}) {
      for (size_t i = 0; i < n; ++i) {
        const uint64_t choice = random.Below(10);
        points[i] = choice == 0   ? 0
                    : choice == 1 ? std::nextafter(tree.total(), 0.0)
                    : choice == 2 ? tree.total()
                                  : random.Unit() * tree.total();
      }
      std::vector<Slot> expected;
      for (size_t i = 0; i < n; ++i) expected.push_back(FindByDefinition(weights, points[i]));
      tree.Find(points, slots, n);
      for (size_t i = 0; i < n; ++i) {
        ASSERT_EQ(slots[i], expected[i]) << "round " << round << ", " << i << " of " << n;
        ASSERT_GT(weights[slots[i]], 0);
      }
    }
  }
}

TEST_P(SumTreeTest, NeverFindsASlotWithoutWeight) {
  const double kinds[] = {0,   kDenormal, 2 * kDenormal,  0x1p-1022,          1e-300, 0.1, 0.2,
                          0.3, 1e16,      1e300 / 0x1p33, SumTree::kMaxWeight};
  Random random(4);
  for (int round = 0; round < 2000; ++round) {
    const size_t first = random.Below(std::size(kinds));
    const size_t last = first + random.Below(std::size(kinds) - first);
    const uint64_t zeros = random.Below(8);
    SumTree tree;
    std::vector<double> weights(1 + random.Below(600));
    for (double& weight : weights)
      weight = random.Below(8) < zeros ? 0 : kinds[first + random.Below(last - first + 1)];
    weights[random.Below(weights.size())] = kinds[1 + random.Below(std::size(kinds) - 1)];
    Fill(tree, weights);
    // Rounding matters at the boundaries between prefix sums.
    double running = 0;
    for (int i = 0; i < 100; ++i) {
      running += weights[random.Below(weights.size())];
      for (double point : {running, std::nextafter(running, 0.0), random.Unit() * tree.total(), tree.total(),
                           std::nextafter(tree.total(), 0.0)}) {
        ASSERT_GT(weights[FindOne(tree, std::min(point, tree.total()))], 0) << round;
      }
    }
  }
}

TEST_P(SumTreeTest, EveryWeightIsFoundByTheMiddleOfItsInterval) {
  SumTree tree;
  std::vector<double> weights(1000);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<double>(i % 5);  // sums are exact
  Fill(tree, weights);
  double before = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] > 0) {
      ASSERT_EQ(FindOne(tree, before), i);
      ASSERT_EQ(FindOne(tree, before + weights[i] / 2), i);
      ASSERT_EQ(FindOne(tree, std::nextafter(before + weights[i], 0.0)), i);
    }
    before += weights[i];
  }
}

TEST_P(SumTreeTest, TheLargestSumIsFinite) {
  // As with 2^32 largest weights: the sums of each level are exact multiples of the level below.
  double sum = SumTree::kMaxWeight;
  for (int i = 0; i < 32; ++i) sum += sum;
  EXPECT_TRUE(std::isfinite(sum));
}

INSTANTIATE_TEST_SUITE_P(EveryInstructionSet, SumTreeTest,
                         ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

TEST(SlotSetTest, SelectsByRank) {
  SlotSet set;
  std::set<Slot> model;
  Random random(5);
  for (int step = 0; step < 20'000; ++step) {
    const Slot slot = static_cast<Slot>(random.Below(random.Below(2) == 0 ? 1'000'000 : 300));
    ASSERT_EQ(set.Contains(slot), model.contains(slot));
    if (model.insert(slot).second) {
      set.Insert(slot);
    } else if (random.Below(2) == 0) {
      model.erase(slot);
      set.Erase(slot);
    }
    ASSERT_EQ(set.size(), model.size());
  }
  uint64_t rank = 0;
  for (Slot slot : model) ASSERT_EQ(set.Select(rank++), slot);
  set.Clear();
  EXPECT_EQ(set.size(), 0u);
  EXPECT_FALSE(set.Contains(1));
  set.Insert(70);
  EXPECT_EQ(set.Select(0), 70u);
}

}  // namespace
}  // namespace reverb::internal
