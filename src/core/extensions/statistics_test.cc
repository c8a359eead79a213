#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "core/table.h"
#include "reverb/extensions.h"
#include "tensor/byte_io.h"
#include "testing/chunks.h"
#include "testing/seed.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using ::reverb::test::StatusIs;
using ::testing::HasSubstr;

class StatisticsTest : public ::testing::Test {
 protected:
  std::shared_ptr<ConcurrentTable> MakeTable(TableOptions options) {
    if (options.name.empty()) options.name = "t";
    options.extensions.push_back(statistics_);
    return ConcurrentTable::Create(std::move(options), {.store = store_, .clock = &clock_}).value();
  }
  Item MakeItem(uint64_t key, double priority) {
    return test::MakeItem(key, priority, test::MakeChunk(store_.get(), 1, static_cast<int64_t>(key), 1));
  }
  static std::vector<internal::Sample> Sample(ConcurrentTable* table, int64_t count) {
    std::vector<internal::Sample> samples;
    EXPECT_OK(table->Sample(count, /*allow_partial=*/false, {.timeout = Duration(0)}, &samples));
    return samples;
  }

  ManualClock clock_;
  const std::shared_ptr<ChunkStore> store_ = std::make_shared<ChunkStore>(ChunkStore::Options(), &clock_);
  const std::shared_ptr<StatisticsExtension> statistics_ = MakeStatistics();
};

TEST_F(StatisticsTest, CountsWhatHappens) {
  auto table = MakeTable({.sampler = SelectorOptions::Fifo(), .max_size = 3});
  const int64_t bytes = MakeItem(0, 0).trajectory.chunk_bytes();
  for (uint64_t key = 1; key <= 4; ++key)
    ASSERT_OK(table->Insert(MakeItem(key, static_cast<double>(key))));  // 1 goes
  Sample(table.get(), 3);                                               // 2, 3x
  ASSERT_OK(table->Insert(MakeItem(3, 10)));                            // an update
  const KeyPriority updates[] = {{2, -2}, {99, 5}};
  const uint64_t deletes[] = {2, 4, 77};
  ASSERT_OK(table->Mutate(updates, {}));
  ASSERT_OK(table->Mutate({}, deletes));

  const StatisticsSnapshot got = statistics_->Get();
  EXPECT_EQ(got.inserted, (StatisticsSnapshot::Count{4, 4 * bytes}));
  EXPECT_EQ(got.sampled, (StatisticsSnapshot::Count{3, 3 * bytes}));
  EXPECT_EQ(got.updated, (StatisticsSnapshot::Count{2, 2 * bytes}));
  EXPECT_EQ(got.deleted, (StatisticsSnapshot::Count{3, 3 * bytes}));
  EXPECT_EQ(got.insert_priority,
            (StatisticsSnapshot::PriorityRange{.count = 4, .mean = 2.5, .min = 1, .max = 4}));
  EXPECT_EQ(got.update_priority,
            (StatisticsSnapshot::PriorityRange{.count = 2, .mean = 4, .min = -2, .max = 10}));
  EXPECT_EQ(got.times_sampled_at_delete[0], 2);  // 1 and 4
  EXPECT_EQ(got.times_sampled_at_delete[2], 1);  // 2, sampled three times
  EXPECT_EQ(got.resets, 0);
}

TEST_F(StatisticsTest, CountsItemsUsedUpBySampling) {
  auto table = MakeTable({.sampler = SelectorOptions::Fifo(), .max_times_sampled = 5});
  for (uint64_t key = 1; key <= 2; ++key) ASSERT_OK(table->Insert(MakeItem(key, 1)));
  Sample(table.get(), 10);
  EXPECT_EQ(table->size(), 0);
  const StatisticsSnapshot got = statistics_->Get();
  EXPECT_EQ(got.sampled.items, 10);
  EXPECT_EQ(got.deleted.items, 2);
  EXPECT_EQ(got.times_sampled_at_delete[3], 2);  // 4..7 times
}

TEST_F(StatisticsTest, AResetIsCountedAndItsItemsAreNot) {
  auto table = MakeTable({});
  ASSERT_OK(table->Insert(MakeItem(1, 1)));
  table->Reset();
  ASSERT_OK(table->Insert(MakeItem(1, 1)));
  EXPECT_EQ(statistics_->Get().resets, 1);
  EXPECT_EQ(statistics_->Get().inserted.items, 2);
  EXPECT_EQ(statistics_->Get().deleted.items, 0);
}

TEST_F(StatisticsTest, ExtremePrioritiesLeaveFiniteNumbers) {
  constexpr double kLargest = std::numeric_limits<double>::max();
  auto table = MakeTable({.sampler = SelectorOptions::Fifo()});
  uint64_t key = 0;
  for (const double priority : {kLargest, -kLargest, kLargest, -kLargest}) {
    ASSERT_OK(table->Insert(MakeItem(++key, priority)));
  }
  // A table may take infinite priorities or refuse them; they are in no range either way.
  (void)table->Insert(MakeItem(++key, std::numeric_limits<double>::infinity()));
  const auto range = statistics_->Get().insert_priority;
  EXPECT_EQ(range.count, 4);
  EXPECT_EQ(range.min, -kLargest);
  EXPECT_EQ(range.max, kLargest);
  EXPECT_GE(range.mean, -kLargest / 2);
  EXPECT_LE(range.mean, kLargest / 2);
}

TEST_F(StatisticsTest, CanBeReadWhileTheTableWorks) {
  auto table = MakeTable({.max_size = 10});
  constexpr int kItems = 2'000;
  std::atomic<bool> done = false;
  std::thread reader([&] {
    int64_t last = 0;
    while (!done) {
      const StatisticsSnapshot got = statistics_->Get();
      ASSERT_GE(got.inserted.items, last);
      ASSERT_EQ(got.inserted.items, got.insert_priority.count);
      const auto& buckets = got.times_sampled_at_delete;
      ASSERT_EQ(std::accumulate(buckets.begin(), buckets.end(), int64_t{0}), got.deleted.items);
      last = got.inserted.items;
    }
  });
  for (uint64_t key = 1; key <= kItems; ++key) {
    EXPECT_OK(table->Insert(MakeItem(key, 1)));
    Sample(table.get(), 1);
  }
  done = true;
  reader.join();
  EXPECT_EQ(statistics_->Get().inserted.items, kItems);
  EXPECT_EQ(statistics_->Get().deleted.items, kItems - 10);
}

TEST_F(StatisticsTest, StateMakesTheRoundTripAndCountingGoesOn) {
  auto table = MakeTable({.sampler = SelectorOptions::Fifo(), .max_size = 2});
  for (uint64_t key = 1; key <= 5; ++key) {
    ASSERT_OK(table->Insert(MakeItem(key, 0.1 * static_cast<double>(key))));
    Sample(table.get(), 2);
  }
  table->Reset();
  auto restored = MakeStatistics();
  ASSERT_OK(restored->LoadState(statistics_->SaveState()));
  EXPECT_EQ(restored->Get(), statistics_->Get());
  EXPECT_NE(restored->Get(), StatisticsSnapshot());

  auto other = ConcurrentTable::Create({.name = "other", .extensions = {restored}},
                                       {.store = store_, .clock = &clock_})
                   .value();
  ASSERT_OK(other->Insert(MakeItem(1, 7)));
  EXPECT_EQ(restored->Get().inserted.items, 6);
  EXPECT_EQ(restored->Get().insert_priority.max, 7);
}

TEST_F(StatisticsTest, TheStateTravelsInASnapshot) {
  auto table = MakeTable({});
  ASSERT_OK(table->Insert(MakeItem(1, 1)));
  const Snapshot snapshot = ConcurrentTable::TakeSnapshot({&table, 1});
  ASSERT_EQ(snapshot.tables[0]->state().extension_states.size(), 1u);
  const auto& [name, state] = snapshot.tables[0]->state().extension_states[0];
  EXPECT_EQ(name, "statistics");
  auto restored = MakeStatistics();
  ASSERT_OK(restored->LoadState(state));
  EXPECT_EQ(restored->Get(), statistics_->Get());
}

TEST_F(StatisticsTest, AnEmptyStateMeansAFreshStart) {
  auto table = MakeTable({});
  ASSERT_OK(table->Insert(MakeItem(1, 1)));
  ASSERT_OK(statistics_->LoadState(""));
  EXPECT_EQ(statistics_->Get(), StatisticsSnapshot());
}

TEST_F(StatisticsTest, DamagedStatesAreRefusedAndChangeNothing) {
  auto table = MakeTable({.max_size = 2});
  for (uint64_t key = 1; key <= 300; ++key) ASSERT_OK(table->Insert(MakeItem(key, static_cast<double>(key))));
  const KeyPriority update{300, 5};
  ASSERT_OK(table->Mutate({&update, 1}, {}));
  const std::string good = statistics_->SaveState();
  const StatisticsSnapshot before = statistics_->Get();

  for (size_t length = 1; length < good.size(); ++length) {
    EXPECT_THAT(statistics_->LoadState(std::string_view(good).substr(0, length)),
                StatusIs(StatusCode::kDataLoss, Detail::kCorruptData));
  }
  EXPECT_THAT(statistics_->LoadState(good + '\0'), StatusIs(StatusCode::kDataLoss, HasSubstr("damaged")));
  std::string newer = good;
  newer[0] = 2;
  EXPECT_THAT(statistics_->LoadState(newer), StatusIs(StatusCode::kDataLoss, HasSubstr("version 2")));
  std::string huge = good.substr(0, 1);
  for (int i = 0; i < 50; ++i) PutVarint(&huge, std::numeric_limits<uint64_t>::max());
  EXPECT_THAT(statistics_->LoadState(huge), StatusIs(StatusCode::kDataLoss));
  EXPECT_EQ(statistics_->Get(), before);
}

TEST_F(StatisticsTest, RandomDamageIsSurvived) {
  auto table = MakeTable({.max_size = 2});
  for (uint64_t key = 1; key <= 300; ++key) ASSERT_OK(table->Insert(MakeItem(key, static_cast<double>(key))));
  const std::string good = statistics_->SaveState();
  const uint64_t seed = ::reverb::test::Seed();
  SCOPED_TRACE(::reverb::test::SeedTrace(seed));
  Random random(seed);
  uint64_t key = 1'000;
  for (int round = 0; round < 3'000; ++round) {
    std::string bad = good;
    for (uint64_t n = 1 + random.Below(4); n > 0; --n) {
      bad[random.Below(bad.size())] = static_cast<char>(random.Next());
    }
    auto victim = MakeStatistics();
    const Status status = victim->LoadState(bad);
    if (!status.ok()) {
      ASSERT_EQ(status.code(), StatusCode::kDataLoss);
      continue;
    }
    // Accepted, so it must be a state to go on from.
    ASSERT_EQ(victim->SaveState(), bad);
    auto other = ConcurrentTable::Create({.name = "other", .max_size = 1, .extensions = {victim}},
                                         {.store = store_, .clock = &clock_})
                     .value();
    for (int i = 0; i < 3; ++i) ASSERT_OK(other->Insert(MakeItem(++key, 1)));
  }
}

TEST_F(StatisticsTest, OneObjectServesOneTableAtATime) {
  auto table = MakeTable({});
  const ConcurrentTable::Environment environment{.store = store_, .clock = &clock_};
  EXPECT_THAT(ConcurrentTable::Create({.name = "second", .extensions = {statistics_}}, environment),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("statistics")));
  EXPECT_THAT(
      ConcurrentTable::Create({.name = "twice", .extensions = {MakeStatistics(), statistics_}}, environment),
      StatusIs(StatusCode::kInvalidArgument));
  table.reset();
  EXPECT_OK(ConcurrentTable::Create({.name = "second", .extensions = {statistics_}}, environment));
}

}  // namespace
}  // namespace reverb::internal
