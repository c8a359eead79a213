#include "base/memory_budget.h"

#include <gtest/gtest.h>

#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace reverb::internal {
namespace {

constexpr int64_t kMiB = 1 << 20;

TEST(MemoryBudgetTest, SharesAddUpToTheLimit) {
  for (const int64_t limit : {int64_t{1}, 100 * kMiB, int64_t{1} << 40}) {
    const MemoryBudget::Shares shares = MemoryBudget::SharesOf(limit);
    EXPECT_EQ(shares.kept + shares.transit + shares.control, limit);
    EXPECT_GE(shares.kept, limit * 3 / 4);
    EXPECT_LE(shares.control, MemoryBudget::kMaxControlBytes);
  }
}

TEST(MemoryBudgetTest, CountsPartsOfChunksOnce) {
  MemoryBudget budget;
  budget.Open(100 * kMiB, RealClock());
  budget.Add(MemoryPart::kChunks, 10 * kMiB);
  EXPECT_EQ(budget.usage().transit(), 10 * kMiB);
  budget.Add(MemoryPart::kWaiting, 4 * kMiB);
  budget.Add(MemoryPart::kStored, 3 * kMiB);
  budget.Add(MemoryPart::kParked, 1 * kMiB);
  budget.Add(MemoryPart::kIndex, 2 * kMiB);
  budget.Add(MemoryPart::kReplies, 5 * kMiB);
  const MemoryBudget::Usage usage = budget.usage();
  EXPECT_EQ(usage.total(), 17 * kMiB);
  EXPECT_EQ(usage.kept(), 6 * kMiB);
  EXPECT_EQ(usage.transit(), 11 * kMiB);
}

TEST(MemoryBudgetTest, HasRoomUpToTheShareExactly) {
  MemoryBudget budget;
  budget.Open(16 * kMiB, RealClock());
  const int64_t share = budget.shares().kept;
  budget.Add(MemoryPart::kStored, share - 100);
  EXPECT_TRUE(budget.HasRoomToKeep(100));
  EXPECT_FALSE(budget.HasRoomToKeep(101));
  budget.Add(MemoryPart::kStored, -1);
  EXPECT_TRUE(budget.HasRoomToKeep(101));
  // Data in transit has its own share.
  budget.Add(MemoryPart::kChunks, share);
  EXPECT_TRUE(budget.HasRoomToKeep(101));
  // Many small charges on several threads: none of them passes a granule.
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { budget.Add(MemoryPart::kIndex, 10); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(budget.HasRoomToKeep(21));
  EXPECT_FALSE(budget.HasRoomToKeep(22));
}

TEST(MemoryBudgetTest, LevelsFollowTheShares) {
  MemoryBudget budget;
  budget.Open(800 * kMiB, RealClock());
  EXPECT_EQ(budget.TransitLevel(), MemoryLevel::kRoomy);
  budget.Add(MemoryPart::kReceiving, 60 * kMiB);
  EXPECT_EQ(budget.TransitLevel(), MemoryLevel::kTight);
  budget.Add(MemoryPart::kChunks, 60 * kMiB);
  EXPECT_EQ(budget.TransitLevel(), MemoryLevel::kFull);
  EXPECT_EQ(budget.KeptLevel(), MemoryLevel::kRoomy);
  // Items get into their tables.
  budget.Add(MemoryPart::kStored, 60 * kMiB);
  budget.Add(MemoryPart::kReceiving, -60 * kMiB);
  EXPECT_EQ(budget.TransitLevel(), MemoryLevel::kRoomy);
  budget.Add(MemoryPart::kIndex, 300 * kMiB);
  EXPECT_EQ(budget.KeptLevel(), MemoryLevel::kTight);
  budget.Add(MemoryPart::kIndex, 400 * kMiB);
  EXPECT_EQ(budget.KeptLevel(), MemoryLevel::kFull);
}

TEST(MemoryBudgetTest, ApproximateSumsStayWithinTheirError) {
  MemoryBudget budget;
  budget.Open(64 * kMiB, RealClock());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int j = 0; j < 10'000; ++j) budget.Add(MemoryPart::kStored, 100 + i);
      for (int j = 0; j < 9'000; ++j) budget.Add(MemoryPart::kStored, -100 - i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const int64_t exact = budget.usage().stored;
  EXPECT_EQ(exact, 1000 * (100 + 101 + 102 + 103));
  EXPECT_LE(budget.kept(), exact);
  EXPECT_GE(budget.kept(), exact - budget.max_error());
  EXPECT_LT(budget.max_error(), 3 * kMiB);
}

TEST(MemoryBudgetTest, WithoutALimitThereIsAlwaysRoom) {
  MemoryBudget budget;
  budget.Open(std::nullopt, RealClock());
  budget.Add(MemoryPart::kStored, int64_t{1} << 50);
  budget.Add(MemoryPart::kReplies, int64_t{1} << 50);
  EXPECT_TRUE(budget.HasRoomToKeep(int64_t{1} << 50));
  EXPECT_EQ(budget.TransitLevel(), MemoryLevel::kRoomy);
  EXPECT_FALSE(budget.limit().has_value());
}

TEST(MemoryBudgetTest, WakesWaitersWhenKeptBytesDecrease) {
  ManualClock clock;
  MemoryBudget budget;
  budget.Open(kMiB, &clock);
  budget.Add(MemoryPart::kParked, 100);
  budget.Add(MemoryPart::kReplies, 100);
  int woken = 0;
  budget.WaitForRoom([&] { ++woken; });
  const uint64_t stopped = budget.WaitForRoom([&] { woken += 100; });
  budget.StopWaiting(stopped);
  budget.Add(MemoryPart::kReplies, -100);
  clock.Advance(Duration(0));
  EXPECT_EQ(woken, 0);
  budget.Add(MemoryPart::kParked, -1);
  clock.Advance(Duration(0));
  EXPECT_EQ(woken, 1);
  // Each is called once.
  budget.Add(MemoryPart::kParked, -1);
  clock.Advance(Duration(0));
  EXPECT_EQ(woken, 1);
}

TEST(MemoryBudgetTest, AChargeEndsWithItsObject) {
  MemoryBudget budget;
  budget.Open(kMiB, RealClock());
  {
    MemoryCharge charge(&budget, MemoryPart::kSessions, 100);
    EXPECT_EQ(budget.usage().sessions, 100);
    charge.Set(300);
    MemoryCharge moved(std::move(charge));
    EXPECT_EQ(budget.usage().sessions, 300);
    moved = MemoryCharge(&budget, MemoryPart::kReplies, 7);
    EXPECT_EQ(budget.usage().sessions, 0);
    EXPECT_EQ(budget.usage().replies, 7);
  }
  EXPECT_EQ(budget.usage().total(), 0);
}

}  // namespace
}  // namespace reverb::internal
