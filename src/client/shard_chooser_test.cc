#include "client/shard_chooser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

namespace reverb::internal {
namespace {

using Weights = std::vector<std::vector<double>>;  // of the items of each shard

std::vector<ShardChooser::Candidate> CandidatesOf(const Weights& shards, const std::vector<size_t>& usable) {
  std::vector<ShardChooser::Candidate> candidates;
  for (const size_t i : usable) {
    candidates.push_back({.index = i,
                          .mass = {.is_weighted = true,
                                   .mass = std::accumulate(shards[i].begin(), shards[i].end(), 0.0),
                                   .size = static_cast<int64_t>(shards[i].size())}});
  }
  return candidates;
}

// Returns the position of a draw in proportion to the weights; by size if all are 0, like a prioritized selector.
size_t Pick(const std::vector<double>& weights, Random* random) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (!(total > 0)) return random->Below(weights.size());
  double point = random->Unit() * total;
  for (size_t i = 0; i < weights.size(); ++i) {
    if ((point -= weights[i]) < 0) return i;
  }
  return weights.size() - 1;
}

// Draws from the shards and compares the counts of all items with those that one table expects. Returns the
// distance of the chi-square statistic from its mean, in standard deviations.
double ChiSquareDeviation(const Weights& shards, const std::vector<size_t>& usable, ShardChooser* chooser,
                          Random* random) {
  constexpr int kDraws = 40'000;
  chooser->SetCandidates(CandidatesOf(shards, usable), shards.size());
  double total = 0;
  size_t items = 0;
  for (const size_t i : usable) {
    total += std::accumulate(shards[i].begin(), shards[i].end(), 0.0);
    items += shards[i].size();
  }
  std::map<std::pair<size_t, size_t>, int> counts;
  for (int i = 0; i < kDraws; ++i) {
    const size_t shard = chooser->Choose().value();
    ++counts[{shard, Pick(shards[shard], random)}];
  }
  double statistic = 0;
  int cells = 0;
  for (const size_t i : usable) {
    const double mass = std::accumulate(shards[i].begin(), shards[i].end(), 0.0);
    for (size_t k = 0; k < shards[i].size(); ++k) {
      const double expected = kDraws * (total > 0 ? shards[i][k] / total : 1.0 / static_cast<double>(items));
      const int count = counts[{i, k}];
      if (expected == 0) {
        EXPECT_EQ(count, 0);
        continue;
      }
      const double in_shard = mass > 0 ? shards[i][k] / mass : 1.0 / static_cast<double>(shards[i].size());
      EXPECT_NEAR(chooser->Probability(i, in_shard), expected / kDraws, 1e-12);
      statistic += (count - expected) * (count - expected) / expected;
      ++cells;
    }
  }
  EXPECT_EQ(chooser->total_size(), static_cast<int64_t>(items));
  const double freedom = std::max(1, cells - 1);
  return (statistic - freedom) / std::sqrt(2 * freedom);
}

std::vector<size_t> AllOf(const Weights& shards) {
  std::vector<size_t> all(shards.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Weights Uniform(std::initializer_list<size_t> sizes) {
  Weights shards;
  for (const size_t size : sizes) shards.emplace_back(size, 1.0);
  return shards;
}

Weights Prioritized(std::initializer_list<size_t> sizes) {
  Random random(3);
  Weights shards = Uniform(sizes);
  for (auto& shard : shards) {
    for (double& weight : shard) weight = random.Below(10) == 0 ? 0 : std::pow(random.Unit() * 4, 0.8);
  }
  return shards;
}

TEST(ShardChooserTest, SamplesAreThoseOfOneTable) {
  for (const Weights& shards :
       {Uniform({100}), Uniform({100, 900}), Uniform({1, 700, 30, 250, 19}), Prioritized({100}),
        Prioritized({40, 500}), Prioritized({1, 300, 30, 150, 19})}) {
    ShardChooser chooser(11);
    Random random(12);
    EXPECT_LT(ChiSquareDeviation(shards, AllOf(shards), &chooser, &random), 5) << shards.size() << " shards";
  }
}

TEST(ShardChooserTest, AShardThatWasLostAndReturns) {
  const Weights shards = Prioritized({100, 200, 300});
  ShardChooser chooser(21);
  Random random(22);
  EXPECT_LT(ChiSquareDeviation(shards, {0, 1, 2}, &chooser, &random), 5);
  EXPECT_LT(ChiSquareDeviation(shards, {0, 2}, &chooser, &random), 5);
  EXPECT_LT(ChiSquareDeviation(shards, {0, 1, 2}, &chooser, &random), 5);
}

TEST(ShardChooserTest, WithoutAPositivePriorityTheSizesCount) {
  Weights shards = Uniform({100, 300});
  for (auto& shard : shards) std::ranges::fill(shard, 0);
  ShardChooser chooser(31);
  Random random(32);
  EXPECT_LT(ChiSquareDeviation(shards, {0, 1}, &chooser, &random), 5);
  // As in one table, items of priority 0 are not picked as long as another one is positive.
  shards[0][7] = 0.5;
  EXPECT_LT(ChiSquareDeviation(shards, {0, 1}, &chooser, &random), 5);
}

TEST(ShardChooserTest, ShardsWithAnOrderTakeTurns) {
  ShardChooser chooser(1);
  const std::vector<ShardChooser::Candidate> three{{.index = 0, .mass = {.size = 1}},
                                                   {.index = 1, .mass = {.size = 1000}},
                                                   {.index = 2, .mass = {.size = 5}}};
  chooser.SetCandidates({three[0], three[1]}, 3);
  std::map<size_t, int> counts;
  for (int i = 0; i < 100; ++i) ++counts[*chooser.Choose()];
  EXPECT_THAT(counts, testing::ElementsAre(testing::Pair(0, 50), testing::Pair(1, 50)));
  EXPECT_EQ(chooser.Probability(0, 1.0), 1.0);
  // One that joins does not catch up.
  chooser.SetCandidates(three, 3);
  counts.clear();
  for (int i = 0; i < 99; ++i) ++counts[*chooser.Choose()];
  EXPECT_THAT(counts, testing::ElementsAre(testing::Pair(0, 33), testing::Pair(1, 33), testing::Pair(2, 33)));
  // Nor does one after a time in which none could be sampled.
  chooser.SetCandidates({three[0]}, 3);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(*chooser.Choose(), 0u);
  chooser.SetCandidates({}, 3);
  chooser.SetCandidates(three, 3);
  counts.clear();
  for (int i = 0; i < 99; ++i) ++counts[*chooser.Choose()];
  EXPECT_THAT(counts, testing::ElementsAre(testing::Pair(0, 33), testing::Pair(1, 33), testing::Pair(2, 33)));
}

TEST(ShardChooserTest, EmptyShardsAreNotChosen) {
  ShardChooser chooser(1);
  EXPECT_EQ(chooser.Choose(), std::nullopt);
  chooser.SetCandidates({{.index = 0, .mass = {.is_weighted = true, .mass = 0, .size = 0}}}, 2);
  EXPECT_EQ(chooser.Choose(), std::nullopt);
  chooser.SetCandidates({{.index = 0, .mass = {.is_weighted = true, .mass = 0, .size = 0}},
                         {.index = 1, .mass = {.is_weighted = true, .mass = 2, .size = 2}}},
                        2);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(chooser.Choose(), 1u);
  chooser.Remove(0);
  EXPECT_EQ(chooser.Choose(), 0u) << "those behind it move up";
}

}  // namespace
}  // namespace reverb::internal
