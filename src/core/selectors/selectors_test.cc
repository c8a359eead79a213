// Tests the contract of all selectors, and compares each of them with a slow, simple model.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "core/selectors/selectors_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "reverb/selector.h"
#include "testing/effort.h"
#include "testing/seed.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using ::reverb::test::StatusIs;
using ::testing::HasSubstr;
using Kind = SelectorOptions::Kind;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// --- Options ---

TEST(SelectorOptionsTest, ToStringNamesKindAndParameters) {
  EXPECT_EQ(SelectorOptions::Fifo().ToString(), "fifo");
  EXPECT_EQ(SelectorOptions::Lifo().ToString(), "lifo");
  EXPECT_EQ(SelectorOptions::Uniform().ToString(), "uniform");
  EXPECT_EQ(SelectorOptions::Uniform(7).ToString(), "uniform(seed=7)");
  EXPECT_EQ(SelectorOptions::MinHeap().ToString(), "min_heap");
  EXPECT_EQ(SelectorOptions::MaxHeap().ToString(), "max_heap");
  EXPECT_EQ(SelectorOptions::Prioritized(0.8).ToString(), "prioritized(exponent=0.8)");
  EXPECT_EQ(SelectorOptions::Prioritized(1, 3).ToString(), "prioritized(exponent=1, seed=3)");
  SelectorOptions custom;
  custom.kind = Kind::kCustom;
  EXPECT_EQ(custom.ToString(), "custom");
  custom.custom_name = "mine";
  EXPECT_EQ(custom.ToString(), "custom(mine)");
}

TEST(SelectorOptionsTest, OnlyFiniteNonNegativeExponentsAreValid) {
  for (double exponent : {0.0, 0.5, 1.0, 2.0, 100.0}) {
    EXPECT_OK(SelectorOptions::Prioritized(exponent).Validate()) << exponent;
  }
  for (double exponent : {-0.1, kInfinity, -kInfinity, kNan}) {
    const Status status = SelectorOptions::Prioritized(exponent).Validate();
    EXPECT_THAT(status, StatusIs(StatusCode::kInvalidArgument, HasSubstr("priority_exponent"))) << exponent;
    EXPECT_THAT(MakeSelector(SelectorOptions::Prioritized(exponent)).status(),
                StatusIs(StatusCode::kInvalidArgument));
  }
  SelectorOptions fifo = SelectorOptions::Fifo();
  fifo.priority_exponent = kNan;  // not used by fifo
  EXPECT_OK(fifo.Validate());
}

TEST(SelectorOptionsTest, AnUnknownKindIsRejected) {
  SelectorOptions options;
  options.kind = static_cast<Kind>(99);
  EXPECT_THAT(options.Validate(), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(MakeSelector(options).status(), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_EQ(options.ToString(), "unknown(99)");
}

TEST(SelectorOptionsTest, ACustomSelectorCannotBeCreatedFromItsName) {
  SelectorOptions options;
  options.kind = Kind::kCustom;
  options.custom_name = "mine";
  EXPECT_OK(options.Validate());
  const auto result = MakeSelector(options);
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.status(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("custom(mine)")));
}

TEST(SelectorMassTest, IsTheSumOfTheWeights) {
  const auto mass = [](const SelectorOptions& options) {
    const std::unique_ptr<Selector> selector = MakeSelector(options).value();
    selector->Insert({.slot = 0, .priority = 4});
    selector->Insert({.slot = 1, .priority = 9});
    selector->Insert({.slot = 2, .priority = 16});
    selector->Delete(2);
    return selector->Mass();
  };
  EXPECT_EQ(mass(SelectorOptions::Uniform()), 2.0);
  EXPECT_EQ(mass(SelectorOptions::Prioritized(0.5)), 5.0);
  for (const SelectorOptions& ordered : {SelectorOptions::Fifo(), SelectorOptions::Lifo(),
                                         SelectorOptions::MinHeap(), SelectorOptions::MaxHeap()}) {
    EXPECT_EQ(mass(ordered), std::nullopt) << ordered.ToString();
  }
}

// --- A custom selector, with the defaults of the interface ---

class LargestSlot : public Selector {
 public:
  SelectorOptions options() const override {
    SelectorOptions options;
    options.kind = Kind::kCustom;
    options.custom_name = "largest";
    return options;
  }
  void Insert(const SelectorItem& item) override { items_[item.slot] = item; }
  void Update(std::span<const SelectorItem> items) override {
    for (const SelectorItem& item : items) items_[item.slot] = item;
  }
  void Delete(Slot slot) override { items_.erase(slot); }
  void Clear() override { items_.clear(); }
  void Sample(std::span<Selection> out) override {
    for (Selection& selection : out) selection = {items_.rbegin()->first, 1};
  }

 private:
  std::map<Slot, SelectorItem> items_;
};

TEST(CustomSelectorTest, DefaultsCheckForNanAndRestoreByInserting) {
  LargestSlot selector;
  EXPECT_OK(selector.CheckPriority(-kInfinity));
  EXPECT_THAT(selector.CheckPriority(kNan), StatusIs(StatusCode::kInvalidArgument, Detail::kInvalidPriority));
  EXPECT_EQ(selector.Capture(), nullptr);
  selector.Prefetch(5);

  const std::vector<SelectorItem> items = {{.slot = 4}, {.slot = 9}, {.slot = 2}};
  EXPECT_THAT(selector.Restore(items, "unexpected"), StatusIs(StatusCode::kDataLoss));
  EXPECT_OK(selector.Restore(items, ""));
  Selection pick;
  selector.Sample(std::span(&pick, 1));
  EXPECT_EQ(pick.slot, 9u);
}

// --- The common contract ---

struct Case {
  std::string name;
  SelectorOptions options;
};

class SelectorTest : public ::testing::TestWithParam<Case> {
 protected:
  const SelectorOptions& options() const { return GetParam().options; }
  Kind kind() const { return options().kind; }
  bool is_random() const { return kind() == Kind::kUniform || kind() == Kind::kPrioritized; }

  // Random inserts, updates and deletes; leaves at least one item.
  void Churn(MiniTable& table, Random& random, int operations) {
    for (int i = 0; i < operations; ++i) {
      const uint64_t choice = random.Below(4);
      if (table.size() == 0 || choice == 0 || (choice == 1 && table.size() < 500)) {
        table.Insert(RandomPriority(random));
      } else if (choice == 3) {
        table.Delete(RandomSlot(table, random));
      } else {
        std::vector<std::pair<Slot, double>> changes(1 + random.Below(random.Below(10) == 0 ? 150 : 6));
        for (auto& change : changes) change = {RandomSlot(table, random), RandomPriority(random)};
        table.Update(changes);
      }
    }
    if (table.size() == 0) table.Insert(1);
  }
  // Few distinct values, so that ties are common.
  static double RandomPriority(Random& random) { return static_cast<double>(random.Below(8)) / 4; }
  static Slot RandomSlot(const MiniTable& table, Random& random) {
    // Any slot will do; the map is ordered by slots, which are dense except for holes.
    auto it = table.items().lower_bound(
        static_cast<Slot>(random.Below(table.items().rbegin()->first + uint64_t{1})));
    return it->first;
  }
};

// Selectors that use a seed, and those that do not.
class RandomSelectorTest : public SelectorTest {};
class DeterministicSelectorTest : public SelectorTest {};

TEST_P(SelectorTest, ReturnsItsOptions) {
  MiniTable table(options());
  EXPECT_EQ(table.selector().options(), options());
}

TEST_P(SelectorTest, NanIsRejectedWithADetail) {
  MiniTable table(options());
  const Status status = table.selector().CheckPriority(kNan);
  EXPECT_THAT(status, StatusIs(StatusCode::kInvalidArgument, Detail::kInvalidPriority, HasSubstr("nan")));
}

TEST_P(SelectorTest, InfiniteAndNegativePrioritiesAreAllowedIfMeaningful) {
  MiniTable table(options());
  const bool legal = kind() != Kind::kPrioritized;
  for (double priority : {kInfinity, -kInfinity, -1.0}) {
    EXPECT_EQ(table.selector().CheckPriority(priority).ok(), legal) << priority;
  }
  EXPECT_OK(table.selector().CheckPriority(-0.0));
}

TEST_P(SelectorTest, ASingleItemIsAlwaysSelected) {
  MiniTable table(options());
  for (Slot slot : {0u, 1u, 63u, 64u, 5000u}) {
    table.InsertAt(slot, 0.5);
    EXPECT_EQ(table.Sample(), (Selection{slot, 1.0}));
    table.selector().Delete(slot);
  }
}

TEST_P(SelectorTest, ASelectorCanBeFilledAgainAfterClear) {
  MiniTable table(options());
  for (int i = 0; i < 1000; ++i) table.Insert(i);
  table.Clear();
  for (int i = 0; i < 3; ++i) table.Insert(1);
  for (const Selection& pick : table.Sample(100)) EXPECT_LT(pick.slot, 3u);
}

TEST_P(SelectorTest, PrefetchAcceptsAnySlot) {
  MiniTable table(options());
  table.selector().Prefetch(0);
  table.Insert(1);
  for (Slot slot : {0u, 1u, 1000u, UINT32_MAX}) table.selector().Prefetch(slot);
  EXPECT_EQ(table.Sample().slot, 0u) << "prefetching changes nothing";
}

TEST_P(SelectorTest, EmptySamplesAndUpdatesAreAllowed) {
  MiniTable table(options());
  table.selector().Update({});
  table.selector().Sample({});
  table.Insert(1);
  table.selector().Update({});
  table.selector().Sample({});
  EXPECT_EQ(table.Sample().slot, 0u);
}

TEST_P(DeterministicSelectorTest, SamplingChangesNothing) {
  MiniTable sampled(options());
  MiniTable untouched(options());
  Random random_sampled(1);
  Random random_untouched(1);
  for (int round = 0; round < 20; ++round) {
    Churn(sampled, random_sampled, 100);
    Churn(untouched, random_untouched, 100);
    (void)sampled.Sample(100);
  }
  EXPECT_EQ(sampled.Sample(), untouched.Sample());
}

TEST_P(SelectorTest, SamplingInBatchesEqualsSamplingOneByOne) {
  for (size_t n : {1, 2, 31, 32, 33, 64, 100, 257}) {
    MiniTable together(options());
    MiniTable apart(options());
    Random random_together(n);
    Random random_apart(n);
    Churn(together, random_together, 2000);
    Churn(apart, random_apart, 2000);
    for (int round = 0; round < 3; ++round) {
      const std::vector<Selection> picks = together.Sample(n);
      for (size_t i = 0; i < n; ++i) ASSERT_EQ(apart.Sample(), picks[i]) << i << " of " << n;
    }
  }
}

TEST_P(SelectorTest, UpdatingInBatchesEqualsUpdatingOneByOne) {
  MiniTable together(options());
  MiniTable apart(options());
  for (int i = 0; i < 2000; ++i) {
    together.Insert(1);
    apart.Insert(1);
  }
  Random random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::pair<Slot, double>> changes(1 + random.Below(200));
    // Narrow ranges produce repeated slots: the last update wins.
    const uint64_t range = 1 + random.Below(2000);
    for (auto& change : changes) change = {static_cast<Slot>(random.Below(range)), RandomPriority(random)};
    together.Update(changes);
    for (const auto& [slot, priority] : changes) apart.Update(slot, priority);
    ASSERT_EQ(together.Sample(8), apart.Sample(8)) << round;
  }
}

TEST_P(SelectorTest, TheSameSeedGivesTheSameSelections) {
  MiniTable a(options());
  MiniTable b(options());
  Random random_a(2);
  Random random_b(2);
  for (int round = 0; round < 20; ++round) {
    Churn(a, random_a, 100);
    Churn(b, random_b, 100);
    ASSERT_EQ(a.Sample(50), b.Sample(50));
  }
}

TEST_P(RandomSelectorTest, AnotherSeedOrNoneGivesOtherSelections) {
  SelectorOptions other = options();
  other.seed = *options().seed + 1;
  SelectorOptions unseeded = options();
  unseeded.seed.reset();
  std::vector<std::vector<Selection>> draws;
  for (const SelectorOptions& o : {options(), other, unseeded, unseeded}) {
    MiniTable table(o);
    for (int i = 0; i < 1000; ++i) table.Insert(1);
    for (const auto& earlier : draws) EXPECT_FALSE(earlier == table.Sample(100));
    draws.push_back(table.Sample(100));
  }
}

TEST_P(SelectorTest, ARestoredSelectorContinuesExactly) {
  MiniTable table(options());
  Random random(3);
  const int64_t rounds = test::Effort(15, 10);
  for (int64_t round = 0; round < rounds; ++round) {
    Churn(table, random, 700);
    const std::unique_ptr<Selector> copy = table.Copy();
    std::vector<Selection> picks(1000);
    copy->Sample(picks);
    ASSERT_EQ(table.Sample(1000), picks) << "round " << round;
  }
}

TEST_P(SelectorTest, ARestoredSelectorContinuesThroughFurtherChanges) {
  MiniTable table(options());
  MiniTable restored(options());
  Random random(4);
  Random random_restored(4);
  for (int round = 0; round < 50; ++round) {
    Churn(table, random, 100);
    Churn(restored, random_restored, 100);
    restored.ReplaceByCopy();
    ASSERT_EQ(table.Sample(100), restored.Sample(100)) << "round " << round;
  }
}

TEST_P(SelectorTest, ACaptureIsNotAffectedByLaterChanges) {
  MiniTable table(options());
  Random random(6);
  Churn(table, random, 5000);
  const std::vector<SelectorItem> items = table.ItemsByAge();
  std::string at_once;
  std::string later;
  const auto capture = table.selector().Capture();
  if (is_random()) {
    ASSERT_NE(capture, nullptr);
    capture->Encode(&at_once);
  } else {
    EXPECT_EQ(capture, nullptr);
  }
  std::vector<Selection> expected = table.Sample(200);
  Churn(table, random, 5000);
  if (capture != nullptr) capture->Encode(&later);
  EXPECT_EQ(at_once, later);

  std::unique_ptr<Selector> restored = *MakeSelector(options());
  ASSERT_OK(restored->Restore(items, later));
  std::vector<Selection> picks(200);
  restored->Sample(picks);
  EXPECT_EQ(picks, expected);
}

TEST_P(SelectorTest, AnEmptySelectorCanBeSavedAndRestored) {
  MiniTable table(options());
  std::unique_ptr<Selector> copy = table.Copy();
  copy->Insert({.slot = 2, .priority = 1});
  Selection pick;
  copy->Sample(std::span(&pick, 1));
  EXPECT_EQ(pick, (Selection{2, 1.0}));
}

TEST_P(SelectorTest, RestoreAcceptsItemsWithoutAState) {
  MiniTable table(options());
  Random random(7);
  Churn(table, random, 300);
  std::unique_ptr<Selector> copy = *MakeSelector(options());
  ASSERT_OK(copy->Restore(table.ItemsByAge(), ""));
  Selection pick;
  copy->Sample(std::span(&pick, 1));
  EXPECT_TRUE(table.items().contains(pick.slot));
}

TEST_P(SelectorTest, RestoreRejectsDamageAndLeavesTheSelectorEmpty) {
  MiniTable table(options());
  Random random(8);
  Churn(table, random, 300);
  const std::vector<SelectorItem> items = table.ItemsByAge();
  const std::string state = table.Encode();
  std::unique_ptr<Selector> selector = *MakeSelector(options());

  std::vector<SelectorItem> bad_priority = items;
  bad_priority.back().priority = kNan;
  std::vector<SelectorItem> same_slot = items;
  same_slot.push_back(items.front());
  for (const auto& bad : {bad_priority, same_slot}) {
    EXPECT_THAT(selector->Restore(bad, state), StatusIs(StatusCode::kDataLoss));
  }
  for (size_t length = 1; length < state.size(); ++length) {
    ASSERT_THAT(selector->Restore(items, state.substr(0, length)), StatusIs(StatusCode::kDataLoss)) << length;
  }
  EXPECT_THAT(selector->Restore(items, state + "x"), StatusIs(StatusCode::kDataLoss));
  std::string other_version = state.empty() ? "\2" : state;
  other_version[0] = 2;
  EXPECT_THAT(selector->Restore(items, other_version), StatusIs(StatusCode::kDataLoss));

  ASSERT_OK(selector->Restore(items, state));  // the failed attempts had no effect
  std::vector<Selection> picks(50);
  selector->Sample(picks);
  EXPECT_EQ(picks, table.Sample(50));
}

TEST_P(RandomSelectorTest, RandomBytesNeverCrashARestore) {
  MiniTable table(options());
  Random random(9);
  Churn(table, random, 100);
  const std::vector<SelectorItem> items = table.ItemsByAge();
  const std::string state = table.Encode();
  for (int round = 0; round < 5000; ++round) {
    std::string bytes = state;
    for (uint64_t flips = 1 + random.Below(4); flips > 0; --flips) {
      bytes[random.Below(bytes.size())] = static_cast<char>(random.Next());
    }
    std::unique_ptr<Selector> selector = *MakeSelector(options());
    if (selector->Restore(items, bytes).ok()) {
      Selection pick;
      selector->Sample(std::span(&pick, 1));
      ASSERT_TRUE(table.items().contains(pick.slot));
    }
  }
}

// --- Comparison with a model: the items in a map, everything recomputed for each call ---

class Model {
 public:
  explicit Model(const SelectorOptions& options) : options_(options), random_(options.seed.value_or(0)) {}

  void Insert(Slot slot) { dense_.push_back(slot); }
  void Delete(Slot slot) {
    *std::find(dense_.begin(), dense_.end(), slot) = dense_.back();
    dense_.pop_back();
  }
  void Clear() { dense_.clear(); }

  // Fails the test unless `pick` follows the rules.
  void ExpectPick(const std::map<Slot, SelectorItem>& items, const Selection& pick) {
    if (kind() == Kind::kUniform) {
      EXPECT_EQ(pick,
                (Selection{dense_[random_.Below(dense_.size())], 1.0 / static_cast<double>(dense_.size())}));
    } else if (kind() == Kind::kPrioritized) {
      ExpectPrioritized(items, pick);
    } else {
      const SelectorItem* best = nullptr;
      for (const auto& [slot, item] : items) {
        if (best == nullptr || IsBefore(item, *best)) best = &item;
      }
      EXPECT_EQ(pick, (Selection{best->slot, 1.0}));
    }
  }

 private:
  Kind kind() const { return options_.kind; }

  bool IsBefore(const SelectorItem& a, const SelectorItem& b) const {
    switch (kind()) {
      case Kind::kFifo:
        return a.inserted < b.inserted;
      case Kind::kLifo:
        return a.inserted > b.inserted;
      case Kind::kMinHeap:
        return std::pair(a.priority, a.touched) < std::pair(b.priority, b.touched);
      default:
        return std::pair(-a.priority, a.touched) < std::pair(-b.priority, b.touched);
    }
  }

  double Weight(const SelectorItem& item) const {
    return item.priority == 0 ? 0 : std::pow(item.priority, options_.priority_exponent);
  }

  void ExpectPrioritized(const std::map<Slot, SelectorItem>& items, const Selection& pick) {
    double total = 0;
    for (const auto& [slot, item] : items) total += Weight(item);
    if (total == 0) {
      auto it = items.begin();
      std::advance(it, random_.Below(items.size()));
      EXPECT_EQ(pick, (Selection{it->first, 1.0 / static_cast<double>(items.size())}));
      return;
    }
    const double point = random_.Unit() * total;
    const double slack = 1e-12 * total;
    double before = 0;
    for (const auto& [slot, item] : items) {
      if (slot == pick.slot) {
        const double weight = Weight(item);
        EXPECT_GT(weight, 0);
        EXPECT_NEAR(pick.probability, weight / total, 1e-12);
        EXPECT_GE(point, before - slack);
        EXPECT_LE(point, before + weight + slack);
        return;
      }
      before += Weight(item);
    }
    ADD_FAILURE() << "slot " << pick.slot << " is not there";
  }

  const SelectorOptions options_;
  Random random_;
  std::vector<Slot> dense_;  // like uniform: a delete moves the last one into the hole
};

TEST_P(SelectorTest, RandomOperationsAgreeWithTheModel) {
  MiniTable table(options());
  Model model(options());
  const uint64_t seed = test::Seed();
  SCOPED_TRACE(test::SeedTrace(seed));
  Random random(seed);
  size_t limit = 200;
  const int64_t steps = test::Effort(30'000, 15'000);
  for (int64_t step = 0; step < steps; ++step) {
    const uint64_t choice = random.Below(100);
    if (table.size() == 0 || (choice < 30 && table.size() < limit)) {
      model.Insert(table.Insert(RandomPriority(random)));
    } else if (choice < 55) {
      const Slot slot = RandomSlot(table, random);
      model.Delete(slot);
      table.Delete(slot);
    } else if (choice < 75) {
      std::vector<std::pair<Slot, double>> changes(1 + random.Below(choice == 74 ? 100 : 4));
      // Occasionally all zero, which Prioritized handles specially.
      const double factor = choice == 73 ? 0 : 1;
      for (auto& change : changes) change = {RandomSlot(table, random), factor * RandomPriority(random)};
      table.Update(changes);
    } else if (step % 5000 == 4999) {
      table.Clear();
      model.Clear();
      limit = 1 + random.Below(300);
    } else if (step % 1000 == 999) {
      table.ReplaceByCopy();
    } else {
      for (const Selection& pick : table.Sample(1 + random.Below(3))) model.ExpectPick(table.items(), pick);
      ASSERT_FALSE(::testing::Test::HasFailure()) << "step " << step;
    }
  }
}

const Case kDeterministic[] = {{"Fifo", SelectorOptions::Fifo()},
                               {"Lifo", SelectorOptions::Lifo()},
                               {"MinHeap", SelectorOptions::MinHeap()},
                               {"MaxHeap", SelectorOptions::MaxHeap()}};
const Case kRandom[] = {{"Uniform", SelectorOptions::Uniform(11)},
                        {"Prioritized0", SelectorOptions::Prioritized(0, 12)},
                        {"PrioritizedHalf", SelectorOptions::Prioritized(0.5, 13)},
                        {"PrioritizedPoint6", SelectorOptions::Prioritized(0.6, 14)},
                        {"Prioritized1", SelectorOptions::Prioritized(1, 15)},
                        {"Prioritized2", SelectorOptions::Prioritized(2, 16)}};
const auto kCaseName = [](const ::testing::TestParamInfo<Case>& info) { return info.param.name; };

INSTANTIATE_TEST_SUITE_P(Deterministic, SelectorTest, ::testing::ValuesIn(kDeterministic), kCaseName);
INSTANTIATE_TEST_SUITE_P(Random, SelectorTest, ::testing::ValuesIn(kRandom), kCaseName);
INSTANTIATE_TEST_SUITE_P(All, DeterministicSelectorTest, ::testing::ValuesIn(kDeterministic), kCaseName);
INSTANTIATE_TEST_SUITE_P(All, RandomSelectorTest, ::testing::ValuesIn(kRandom), kCaseName);

}  // namespace
}  // namespace reverb::internal
