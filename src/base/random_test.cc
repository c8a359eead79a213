#include "base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace reverb::internal {
namespace {

TEST(RandomTest, ProducesTheSameNumbersInEveryRelease) {
  // Computed independently, with Python integers, from the published splitmix64 and xoshiro256++.
  Random random(42);
  EXPECT_EQ(random.state(), (Random::State{13679457532755275413u, 2949826092126892291u, 5139283748462763858u,
                                           6349198060258255764u}));
  for (const uint64_t expected :
       {15021278609987233951u, 5881210131331364753u, 18149643915985481100u, 12933668939759105464u}) {
    EXPECT_EQ(random.Next(), expected);
  }
}

TEST(RandomTest, FollowsTheReferenceFromAGivenState) {
  // The first outputs of xoshiro256++ from the state 1, 2, 3, 4 (the test vector of rand_xoshiro).
  Random random(0);
  random.set_state({1, 2, 3, 4});
  for (const uint64_t expected :
       {41943041ull, 58720359ull, 3588806011781223ull, 3591011842654386ull, 9228616714210784205ull,
        9973669472204895162ull, 14011001112246962877ull, 12406186145184390807ull, 15849039046786891736ull,
        10450023813501588000ull}) {
    EXPECT_EQ(random.Next(), expected);
  }
}

TEST(RandomTest, DifferentSeedsProduceDifferentNumbers) {
  std::set<uint64_t> firsts;
  for (uint64_t seed = 0; seed < 1000; ++seed) firsts.insert(Random(seed).Next());
  EXPECT_EQ(firsts.size(), 1000u);
}

TEST(RandomTest, ContinuesFromASavedState) {
  Random random(7);
  for (int i = 0; i < 10; ++i) random.Next();
  const Random::State saved = random.state();
  std::vector<uint64_t> expected;
  for (int i = 0; i < 10; ++i) expected.push_back(random.Next());
  Random restored(99);
  restored.set_state(saved);
  for (const uint64_t number : expected) EXPECT_EQ(restored.Next(), number);
}

TEST(RandomTest, TheAllZeroStateIsReplaced) {
  Random random(1);
  random.set_state({});
  EXPECT_NE(random.state(), Random::State{});
  EXPECT_NE(random.Next() | random.Next(), 0u);
}

TEST(RandomTest, BelowStaysBelow) {
  Random random(3);
  for (const uint64_t bound : {uint64_t{1}, uint64_t{2}, uint64_t{3}, uint64_t{1} << 63, ~uint64_t{0}}) {
    for (int i = 0; i < 1000; ++i) ASSERT_LT(random.Below(bound), bound);
  }
}

// Returns how far counts are from equal, in standard deviations of the statistic (normal for many cells).
double ChiSquareZ(const std::vector<int64_t>& counts, double expected) {
  double chi = 0;
  for (const int64_t count : counts) chi += (count - expected) * (count - expected) / expected;
  const double freedom = static_cast<double>(counts.size()) - 1;
  return (chi - freedom) / std::sqrt(2 * freedom);
}

TEST(RandomTest, BelowIsUniform) {
  for (const uint64_t bound : {10, 100, 1000}) {
    Random random(11);
    constexpr int kDraws = 200'000;
    std::vector<int64_t> counts(bound);
    for (int i = 0; i < kDraws; ++i) ++counts[random.Below(bound)];
    EXPECT_LT(std::abs(ChiSquareZ(counts, static_cast<double>(kDraws) / bound)), 4) << bound;
  }
}

TEST(RandomTest, BelowHasNoBiasForABoundThatDoesNotDivideTheRange) {
  // Three quarters of 2^64: without the rejection step, every third number is drawn twice as often.
  const uint64_t bound = uint64_t{3} << 62;
  Random random(13);
  constexpr int kDraws = 300'000;
  std::vector<int64_t> by_third(3);
  std::vector<int64_t> by_remainder(3);
  for (int i = 0; i < kDraws; ++i) {
    const uint64_t draw = random.Below(bound);
    ++by_third[draw >> 62];
    ++by_remainder[draw % 3];
  }
  EXPECT_LT(ChiSquareZ(by_third, kDraws / 3.0), 5);
  EXPECT_LT(ChiSquareZ(by_remainder, kDraws / 3.0), 5);
}

TEST(RandomTest, UnitIsUniformInItsInterval) {
  Random random(17);
  constexpr int kDraws = 200'000;
  std::vector<int64_t> counts(100);
  for (int i = 0; i < kDraws; ++i) {
    const double unit = random.Unit();
    ASSERT_GE(unit, 0.0);
    ASSERT_LT(unit, 1.0);
    ++counts[static_cast<size_t>(unit * 100)];
  }
  EXPECT_LT(std::abs(ChiSquareZ(counts, kDraws / 100.0)), 4);
}

TEST(RandomTest, EntropySeedsDiffer) {
  std::set<uint64_t> seeds;
  for (int i = 0; i < 100; ++i) seeds.insert(EntropySeed());
  EXPECT_EQ(seeds.size(), 100u);
}

}  // namespace
}  // namespace reverb::internal
