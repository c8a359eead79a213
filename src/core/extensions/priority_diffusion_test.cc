#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "core/table.h"
#include "reverb/extensions.h"
#include "testing/chunks.h"
#include "testing/seed.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using ::reverb::test::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

using Rule = PriorityDiffusionOptions::Rule;

// Records the updates that its table reports.
class UpdateWatcher final : public TableExtension {
 public:
  std::string name() const override { return "update_watcher"; }
  void OnUpdate(const ItemView& item, Context&) override { seen.emplace_back(item.key, item.priority); }
  std::vector<std::pair<uint64_t, double>> seen;
};

class PriorityDiffusionTest : public ::testing::Test {
 protected:
  std::shared_ptr<ConcurrentTable> MakeTable(const PriorityDiffusionOptions& diffusion,
                                             TableOptions options = {}) {
    if (options.name.empty()) options.name = "t";
    options.extensions.insert(options.extensions.begin(), MakePriorityDiffusion(diffusion).value());
    return ConcurrentTable::Create(std::move(options), {.store = store_, .clock = &clock_}).value();
  }
  Item MakeItem(uint64_t key, uint64_t episode, int64_t step, double priority) {
    return test::MakeItem(key, priority, test::MakeChunk(store_.get(), episode, step, 1));
  }
  // Inserts items first..last of one episode, each with ten times its key as priority.
  void Fill(ConcurrentTable* table, uint64_t first, uint64_t last, double priority, uint64_t episode = 1) {
    for (uint64_t key = first; key <= last; ++key) {
      ASSERT_OK(table->Insert(MakeItem(key, episode, 10 * static_cast<int64_t>(key), priority)));
    }
  }
  static void Update(ConcurrentTable* table, uint64_t key, double priority) {
    const KeyPriority update{key, priority};
    ASSERT_OK(table->Mutate({&update, 1}, {}));
  }
  static void Delete(ConcurrentTable* table, uint64_t key) { ASSERT_OK(table->Mutate({}, {&key, 1})); }
  static std::map<uint64_t, double> Priorities(ConcurrentTable* table) {
    std::map<uint64_t, double> priorities;
    uint64_t cursor = 0;
    for (const internal::Sample& item : table->Peek(1'000'000, &cursor)) priorities[item.key] = item.priority;
    return priorities;
  }

  ManualClock clock_;
  const std::shared_ptr<ChunkStore> store_ = std::make_shared<ChunkStore>(ChunkStore::Options(), &clock_);
};

TEST_F(PriorityDiffusionTest, ABatchOfUpdatesSpreadsInOrder) {
  auto table = MakeTable({});
  Fill(table.get(), 1, 2, 1.0);
  const KeyPriority updates[] = {{1, 10}, {2, 7}};
  ASSERT_OK(table->Mutate(updates, {}));
  EXPECT_THAT(Priorities(table.get()), ElementsAre(Pair(1, 10), Pair(2, 7))) << "the last value wins";
}

TEST_F(PriorityDiffusionTest, OptionsAreChecked) {
  EXPECT_OK(PriorityDiffusionOptions().Validate());
  for (const double decay : {0.0, 1.0, -0.5, 2.0, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(MakePriorityDiffusion({.decay = decay}),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("decay")));
  }
  EXPECT_THAT(MakePriorityDiffusion({.radius = 0}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("radius")));
  EXPECT_THAT(MakePriorityDiffusion({.rule = static_cast<Rule>(7)}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("rule")));
}

TEST_F(PriorityDiffusionTest, AnUpdateSpreadsBeforeItReturns) {
  auto table = MakeTable({.decay = 0.5, .radius = 2});
  Fill(table.get(), 1, 7, 1);
  Update(table.get(), 4, 8);
  EXPECT_THAT(Priorities(table.get()), ElementsAre(Pair(1, 1), Pair(2, 2), Pair(3, 4), Pair(4, 8), Pair(5, 4),
                                                   Pair(6, 2), Pair(7, 1)));
}

TEST_F(PriorityDiffusionTest, TheSelectorsSeeTheSpreadPriorities) {
  auto table =
      MakeTable({.decay = 0.5, .radius = 1}, {.sampler = SelectorOptions::MaxHeap(), .max_times_sampled = 1});
  Fill(table.get(), 1, 5, 1);
  Update(table.get(), 2, 100);
  Update(table.get(), 3, 60);  // its 30 does not lower the 100 of item 2, and item 2 does not spread again
  std::vector<internal::Sample> samples;
  ASSERT_OK(table->Sample(3, /*allow_partial=*/false, {}, &samples));
  EXPECT_EQ(samples[0].key, 2u);
  EXPECT_EQ(samples[0].priority, 100);
  EXPECT_EQ(samples[1].key, 3u);
  EXPECT_EQ(samples[1].priority, 60);
}

TEST_F(PriorityDiffusionTest, MaxNeverLowersAndSetDoes) {
  for (const Rule rule : {Rule::kMax, Rule::kSet}) {
    auto table = MakeTable({.decay = 0.5, .rule = rule, .radius = 1});
    Fill(table.get(), 1, 3, 10);
    Update(table.get(), 2, 4);
    const double neighbour = rule == Rule::kMax ? 10 : 2;
    EXPECT_THAT(Priorities(table.get()), ElementsAre(Pair(1, neighbour), Pair(2, 4), Pair(3, neighbour)));
  }
}

TEST_F(PriorityDiffusionTest, MaxComparesWithTheResultOfEarlierUpdates) {
  auto table = MakeTable({.decay = 0.5, .radius = 1});
  Fill(table.get(), 1, 3, 1);
  Update(table.get(), 1, 20);  // item 2 becomes 10
  Update(table.get(), 3, 12);  // 6 is less than 10
  EXPECT_THAT(Priorities(table.get()), ElementsAre(Pair(1, 20), Pair(2, 10), Pair(3, 12)));
  Update(table.get(), 2, 0);  // a caller may lower a priority
  Update(table.get(), 3, 12);
  EXPECT_THAT(Priorities(table.get()), ElementsAre(Pair(1, 20), Pair(2, 6), Pair(3, 12)));
}

TEST_F(PriorityDiffusionTest, StaysWithinTheEpisode) {
  auto table = MakeTable({.decay = 0.5, .radius = 10});
  Fill(table.get(), 1, 3, 1, /*episode=*/1);
  Fill(table.get(), 4, 6, 1, /*episode=*/2);
  Update(table.get(), 3, 8);
  EXPECT_THAT(Priorities(table.get()),
              ElementsAre(Pair(1, 2), Pair(2, 4), Pair(3, 8), Pair(4, 1), Pair(5, 1), Pair(6, 1)));
}

TEST_F(PriorityDiffusionTest, ItemsAreOrderedByStepThenKeyWhateverTheInsertionOrder) {
  auto table = MakeTable({.decay = 0.5, .radius = 2});
  // In order: 9 (step 0), 3 and 5 and 8 (step 7), 1 (step 100).
  for (const auto& [key, step] :
       std::vector<std::pair<uint64_t, int64_t>>{{1, 100}, {8, 7}, {3, 7}, {9, 0}, {5, 7}}) {
    ASSERT_OK(table->Insert(MakeItem(key, 1, step, 0)));
  }
  Update(table.get(), 5, 8);
  EXPECT_THAT(Priorities(table.get()),
              ElementsAre(Pair(1, 2), Pair(3, 4), Pair(5, 8), Pair(8, 4), Pair(9, 2)));
}

TEST_F(PriorityDiffusionTest, OrdersByTheFirstRowNotByTheChunk) {
  auto table = MakeTable({.decay = 0.5, .radius = 1});
  const ChunkRef chunk = test::MakeChunk(store_.get(), 1, 100, 4);
  for (uint32_t i = 0; i < 4; ++i) {  // keys in reverse order of steps
    ASSERT_OK(
        table->Insert({.key = 10 - i, .priority = 0, .trajectory = Trajectory::Single(chunk, i, 1).value()}));
  }
  Update(table.get(), 10, 8);
  EXPECT_THAT(Priorities(table.get()), ElementsAre(Pair(7, 0), Pair(8, 0), Pair(9, 4), Pair(10, 8)));
}

TEST_F(PriorityDiffusionTest, AnInsertOfAnExistingKeySpreadsAndANewOneDoesNot) {
  auto table = MakeTable({.decay = 0.5, .radius = 1});
  Fill(table.get(), 1, 2, 1);
  ASSERT_OK(table->Insert(MakeItem(3, 1, 30, 100)));
  EXPECT_THAT(Priorities(table.get()), ElementsAre(Pair(1, 1), Pair(2, 1), Pair(3, 100)));
  ASSERT_OK(table->Insert(MakeItem(1, 77, 77, 6)));  // only its priority is used
  EXPECT_THAT(Priorities(table.get()), ElementsAre(Pair(1, 6), Pair(2, 3), Pair(3, 100)));
}

TEST_F(PriorityDiffusionTest, SpreadPrioritiesDoNotSpreadFurther) {
  auto watcher = std::make_shared<UpdateWatcher>();
  auto table = MakeTable({.decay = 0.5, .radius = 1}, {.extensions = {watcher}});
  Fill(table.get(), 1, 5, 0);
  Update(table.get(), 3, 8);
  // Items 1 and 5 are out of reach of 3, but not of 2 and 4; updates of 2 and 4 are not reported.
  EXPECT_THAT(Priorities(table.get()),
              ElementsAre(Pair(1, 0), Pair(2, 4), Pair(3, 8), Pair(4, 4), Pair(5, 0)));
  EXPECT_THAT(watcher->seen, ElementsAre(Pair(3, 8)));
}

TEST_F(PriorityDiffusionTest, DeletedItemsAreSkipped) {
  auto table = MakeTable({.decay = 0.5, .radius = 1});
  Fill(table.get(), 1, 4, 0);
  Delete(table.get(), 2);
  Update(table.get(), 3, 8);
  EXPECT_THAT(Priorities(table.get()), ElementsAre(Pair(1, 4), Pair(3, 8), Pair(4, 4)));
  EXPECT_EQ(table->Info().unknown_keys, 0);  // it did not refer to deleted items
}

TEST_F(PriorityDiffusionTest, AResetClearsAllEpisodes) {
  auto table = MakeTable({.decay = 0.5, .radius = 3});
  Fill(table.get(), 1, 4, 0);
  table->Reset();
  Fill(table.get(), 3, 4, 0);
  Update(table.get(), 3, 8);
  EXPECT_THAT(Priorities(table.get()), ElementsAre(Pair(3, 8), Pair(4, 4)));
  EXPECT_EQ(table->Info().unknown_keys, 0);
}

TEST_F(PriorityDiffusionTest, NonFinitePrioritiesDoNotSpread) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  struct AnyPriority final : TableExtension::Context {
    void UpdatePriority(uint64_t key, double) override { keys.push_back(key); }
    void AfterUnlock(std::function<void()>) override {}
    std::vector<uint64_t> keys;
  };
  // Calls the hooks directly, since tables may reject such priorities before they call a hook.
  for (const Rule rule : {Rule::kMax, Rule::kSet}) {
    auto extension = MakePriorityDiffusion({.rule = rule}).value();
    AnyPriority context;
    extension->OnInsert({.key = 1, .priority = 0, .episode_id = 1, .first_step = 0}, context);
    extension->OnInsert({.key = 2, .priority = 0, .episode_id = 1, .first_step = 1}, context);
    for (const double priority : {kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN()}) {
      extension->OnUpdate({.key = 1, .priority = priority, .episode_id = 1, .first_step = 0}, context);
    }
    EXPECT_THAT(context.keys, ElementsAre());
    extension->OnUpdate({.key = 1, .priority = 2, .episode_id = 1, .first_step = 0}, context);
    EXPECT_THAT(context.keys, ElementsAre(2));
  }
}

TEST_F(PriorityDiffusionTest, AnObjectBelongsToOneTable) {
  auto extension = MakePriorityDiffusion({}).value();
  const ConcurrentTable::Environment environment{.store = store_, .clock = &clock_};
  auto first = ConcurrentTable::Create({.name = "first", .extensions = {extension}}, environment);
  ASSERT_OK(first);
  EXPECT_THAT(ConcurrentTable::Create({.name = "second", .extensions = {extension}}, environment),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("priority_diffusion")));
}

TEST_F(PriorityDiffusionTest, ManyThreadsMayUpdate) {
  auto table = MakeTable({.decay = 0.5, .radius = 3}, {.max_size = 50});
  Fill(table.get(), 1, 50, 1);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Random random(t);
      std::vector<internal::Sample> samples;
      for (uint64_t i = 0; i < 500; ++i) {
        Update(table.get(), 1 + random.Below(50), random.Unit());
        const uint64_t key = 100 + 1'000 * t + i;
        ASSERT_OK(
            table->Insert(MakeItem(key, 1 + random.Below(3), static_cast<int64_t>(random.Below(500)), 1)));
        Update(table.get(), key, 2);
        ASSERT_OK(table->Sample(1, /*allow_partial=*/true, {}, &samples));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(table->size(), 50);
}

// A slow, simple implementation of the same rules.
class Model {
 public:
  struct Entry {
    uint64_t key;
    uint64_t episode;
    int64_t step;
    double priority;
    int32_t times_sampled = 0;
  };

  Model(const PriorityDiffusionOptions& options, size_t max_size, int32_t max_times_sampled)
      : options_(options), max_size_(max_size), max_times_sampled_(max_times_sampled) {}

  void Insert(const Entry& entry) {
    if (std::ranges::find(entries_, entry.key, &Entry::key) != entries_.end())
      return Update(entry.key, entry.priority);
    entries_.push_back(entry);
    if (entries_.size() > max_size_) entries_.erase(entries_.begin());
  }
  void Delete(uint64_t key) {
    std::erase_if(entries_, [key](const Entry& entry) { return entry.key == key; });
  }
  void SampleOldest() {
    if (++entries_.front().times_sampled >= max_times_sampled_) entries_.erase(entries_.begin());
  }
  void Reset() { entries_.clear(); }
  void Update(uint64_t key, double priority) {
    const auto centre = std::ranges::find(entries_, key, &Entry::key);
    if (centre == entries_.end()) return;
    centre->priority = priority;
    std::vector<Entry*> line;
    for (Entry& entry : entries_) {
      if (entry.episode == centre->episode) line.push_back(&entry);
    }
    std::ranges::sort(line, {}, [](const Entry* entry) { return std::tuple(entry->step, entry->key); });
    const auto at = std::ranges::find(line, &*centre) - line.begin();
    for (ptrdiff_t i = 0; i < static_cast<ptrdiff_t>(line.size()); ++i) {
      const ptrdiff_t distance = std::abs(i - at);
      if (distance == 0 || distance > options_.radius) continue;
      double spread = priority;
      for (ptrdiff_t d = 0; d < distance; ++d) spread *= options_.decay;
      line[i]->priority = options_.rule == Rule::kSet ? spread : std::max(line[i]->priority, spread);
    }
  }

  bool empty() const { return entries_.empty(); }
  std::map<uint64_t, double> Priorities() const {
    std::map<uint64_t, double> priorities;
    for (const Entry& entry : entries_) priorities[entry.key] = entry.priority;
    return priorities;
  }

 private:
  const PriorityDiffusionOptions options_;
  const size_t max_size_;
  const int32_t max_times_sampled_;
  std::vector<Entry> entries_;  // oldest first
};

TEST_F(PriorityDiffusionTest, RandomOperationsAgreeWithTheModel) {
  const uint64_t seed = ::reverb::test::Seed();
  SCOPED_TRACE(::reverb::test::SeedTrace(seed));
  Random random(seed);
  for (const Rule rule : {Rule::kMax, Rule::kSet}) {
    for (const int32_t radius : {1, 3, 1'000}) {
      constexpr int64_t kMaxSize = 60;
      constexpr int32_t kMaxTimesSampled = 3;
      const PriorityDiffusionOptions options{.decay = 0.7, .rule = rule, .radius = radius};
      auto table = MakeTable(options, {.sampler = SelectorOptions::Fifo(),
                                       .remover = SelectorOptions::Fifo(),
                                       .max_size = kMaxSize,
                                       .max_times_sampled = kMaxTimesSampled});
      Model model(options, kMaxSize, kMaxTimesSampled);
      for (int step = 0; step < 3'000; ++step) {
        const uint64_t key = 1 + random.Below(120);
        const double priority = random.Unit() * 10;
        const uint64_t dice = random.Below(1'000);
        if (dice < 450) {
          const uint64_t episode = random.Below(4);
          const auto first_step = static_cast<int64_t>(random.Below(20));
          ASSERT_OK(table->Insert(MakeItem(key, episode, first_step, priority)));
          model.Insert({.key = key, .episode = episode, .step = first_step, .priority = priority});
        } else if (dice < 800) {
          Update(table.get(), key, priority);
          model.Update(key, priority);
        } else if (dice < 900) {
          Delete(table.get(), key);
          model.Delete(key);
        } else if (dice < 998) {
          if (model.empty()) continue;
          std::vector<internal::Sample> samples;
          ASSERT_OK(table->Sample(1, /*allow_partial=*/false, {.timeout = Duration(0)}, &samples));
          model.SampleOldest();
        } else {
          table->Reset();
          model.Reset();
        }
        ASSERT_EQ(Priorities(table.get()), model.Priorities()) << "step " << step << ", radius " << radius;
      }
    }
  }
}

}  // namespace
}  // namespace reverb::internal
