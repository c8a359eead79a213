// Tests of max_age, and of limits that change while a table is in use.
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/table.h"
#include "core/table_testing.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using namespace std::chrono_literals;
using ::reverb::test::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class TableAgeTest : public TableFixture {
 protected:
  static std::vector<uint64_t> Contents(ConcurrentTable& table) {
    uint64_t cursor = 0;
    return Keys(table.Peek(1000, &cursor));
  }
};

TEST_F(TableAgeTest, ItemsAreNotSampledOnceTheyReachMaxAge) {
  auto table = Make({.sampler = SelectorOptions::Fifo(), .max_age = 10s});
  ASSERT_OK(Insert(*table, 1));
  clock_.Advance(4s);
  ASSERT_OK(Insert(*table, 2));
  clock_.Advance(6s - 1ns);
  EXPECT_THAT(Sample(*table, 1), ElementsAre(1));
  clock_.Advance(1ns);
  EXPECT_THAT(Sample(*table, 1), ElementsAre(2));
  const TableInfo info = table->Info();
  EXPECT_EQ(info.max_age_nanos, Duration(10s).count());
  EXPECT_EQ(info.aged_out, 1);
  EXPECT_EQ(info.expirations, 0);
  EXPECT_EQ(info.counters.deletes, 1);
  EXPECT_EQ(info.current_size, 1);
}

TEST_F(TableAgeTest, MemoryIsFreedWithoutACall) {
  auto table = Make({.max_age = 1s});
  for (uint64_t key = 1; key <= 100; ++key) ASSERT_OK(Insert(*table, key));
  EXPECT_EQ(store_->stats().live_chunks, 100);
  clock_.Advance(1100ms);
  EXPECT_EQ(store_->stats().live_chunks, 0);
  EXPECT_EQ(clock_.pending(), 0) << "an empty table needs no alarm";
}

TEST_F(TableAgeTest, OneAlarmServesManyItems) {
  auto table = Make({.max_age = 1s});
  for (uint64_t key = 1; key <= 100; ++key) {
    ASSERT_OK(Insert(*table, key));
    clock_.Advance(10us);
  }
  EXPECT_EQ(clock_.pending(), 1);
}

TEST_F(TableAgeTest, APriorityUpdateDoesNotRenewAnItem) {
  auto table = Make({.max_age = 10s});
  ASSERT_OK(Insert(*table, 1));
  clock_.Advance(9s);
  ASSERT_OK(Insert(*table, 1, 5));
  const KeyPriority update{1, 7};
  ASSERT_OK(table->Mutate({&update, 1}, {}));
  EXPECT_EQ(table->size(), 1);
  clock_.Advance(1s);
  EXPECT_EQ(table->size(), 0);
  ASSERT_OK(table->Mutate({&update, 1}, {}));
  EXPECT_EQ(table->Info().unknown_keys, 1);
}

TEST_F(TableAgeTest, AKeyThatReturnsStartsAnew) {
  auto table = Make({.max_age = 10s});
  ASSERT_OK(Insert(*table, 1));
  clock_.Advance(9s);
  const uint64_t key = 1;
  ASSERT_OK(table->Mutate({}, {&key, 1}));
  ASSERT_OK(Insert(*table, 1));
  clock_.Advance(9s);
  EXPECT_EQ(table->size(), 1);
  clock_.Advance(1s);
  EXPECT_EQ(table->size(), 0);
}

TEST_F(TableAgeTest, ItemsThatLeftEarlierTakeNoMemory) {
  auto table = Make(TableOptions{.name = "q",
                                 .sampler = SelectorOptions::Fifo(),
                                 .max_size = 10,
                                 .max_times_sampled = 1,
                                 .max_age = 3600s});
  for (uint64_t key = 1; key <= 20'000; ++key) {
    ASSERT_OK(Insert(*table, key));
    ASSERT_THAT(Sample(*table, 1), ElementsAre(key));
  }
  EXPECT_EQ(table->Info().aged_out, 0);
  clock_.Advance(7200s);
  EXPECT_EQ(table->Info().aged_out, 0);
  EXPECT_EQ(table->Info().expirations, 20'000);
}

TEST_F(TableAgeTest, ASampleWaitsForFreshItems) {
  auto table = Make(
      {.sampler = SelectorOptions::Fifo(), .max_age = 1s, .rate_limiter = RateLimiterOptions::MinSize(2)});
  ASSERT_OK(Insert(*table, 1));
  clock_.Advance(1s);
  Pending* const sample = SampleAsync(*table, 1);
  ASSERT_OK(Insert(*table, 2));
  EXPECT_FALSE(sample->done) << "the first item is gone";
  ASSERT_OK(Insert(*table, 3));
  ASSERT_TRUE(sample->done);
  EXPECT_THAT(sample->keys, ElementsAre(2));
}

TEST_F(TableAgeTest, AWaitingInsertContinuesWhenItemsAge) {
  // The cursor may reach 2, unless the table has fewer than min_size items.
  auto table = Make({.max_age = 1s, .rate_limiter = {.min_size_to_sample = 2, .min_diff = 0, .max_diff = 2}});
  for (uint64_t key : {1, 2}) ASSERT_OK(Insert(*table, key));
  Pending* const insert = InsertAsync(*table, {3});
  EXPECT_FALSE(insert->done);
  clock_.Advance(1100ms);
  ASSERT_TRUE(insert->done);
  EXPECT_OK(insert->status);
  EXPECT_THAT(Contents(*table), ElementsAre(3));
}

TEST_F(TableAgeTest, StepsOfTheWallClockDoNotMatterWhileTheTableExists) {
  // The manual clock's wall time advances with its steady time; restoring uses the former.
  auto table = Make({.max_age = 10s});
  ASSERT_OK(Insert(*table, 1));
  clock_.Advance(5s);
  const std::shared_ptr<ConcurrentTable> tables[] = {table};
  const Snapshot snapshot = ConcurrentTable::TakeSnapshot(tables);
  EXPECT_EQ(snapshot.tables[0]->state().max_age_nanos, Duration(10s).count());
  clock_.Advance(5s);
  EXPECT_EQ(table->size(), 0);
}

TEST_F(TableAgeTest, RestoredItemsContinueToAge) {
  auto restored = Make({.sampler = SelectorOptions::Fifo(), .max_age = 10s});
  clock_.Advance(100s);
  const auto item = [&](uint64_t key, Duration age) {
    SavedItem saved;
    static_cast<internal::Sample&>(saved) = {
        .key = key, .priority = 1, .inserted_at = clock_.WallNanos() - age.count()};
    saved.trajectory = MakeItem(key).trajectory;
    return saved;
  };
  restored->BeginRestore(0, 4);
  // From the future of a clock that was set back; without a time; too old.
  std::vector<SavedItem> items = {item(1, 7s), item(2, -50s), item(3, 10s), item(4, 3s)};
  ASSERT_OK(restored->RestoreItems(items));
  ASSERT_OK(restored->FinishRestore({.counters = {.inserts = 4}, .counts = {}}));
  EXPECT_THAT(Contents(*restored), UnorderedElementsAre(1, 2, 4));
  EXPECT_EQ(restored->Info().aged_out, 1);
  clock_.Advance(3s);
  EXPECT_THAT(Contents(*restored), UnorderedElementsAre(2, 4));
  clock_.Advance(4s);
  EXPECT_THAT(Contents(*restored), UnorderedElementsAre(2));
  clock_.Advance(3s);
  EXPECT_THAT(Contents(*restored), IsEmpty());
}

TEST_F(TableAgeTest, CountersThatDoNotAddUpAreNotRestored) {
  for (const int64_t uncounted : {-1, 3}) {
    auto restored = Make(TableOptions::Queue("q", 5));
    restored->BeginRestore(0, 0);
    EXPECT_THAT(restored->FinishRestore(
                    {.counters = {.inserts = 2, .deletes = 2, .uncounted_inserts = uncounted}, .counts = {}}),
                StatusIs(StatusCode::kDataLoss, HasSubstr("its limiter")));
  }
  auto restored = Make(TableOptions::Queue("q", 5));
  restored->BeginRestore(0, 0);
  ASSERT_OK(restored->FinishRestore(
      {.counters = {.inserts = 2, .deletes = 2, .uncounted_inserts = 2}, .counts = {}}));
  EXPECT_EQ(restored->Info().cursor, 0);
}

TEST_F(TableAgeTest, ANegativeAgeIsRefused) {
  const auto made =
      ConcurrentTable::Create({.name = "t", .max_age = -1s}, {.store = store_, .clock = &clock_});
  EXPECT_THAT(made.status(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("max_age")));
}

TEST_F(TableAgeTest, TheLongestAgeNeverComes) {
  auto table = Make({.max_age = Duration::max()});
  ASSERT_OK(Insert(*table, 1));
  EXPECT_EQ(clock_.pending(), 0);
  clock_.Advance(24h * 365);
  EXPECT_EQ(table->size(), 1);
}

// --- Change() ---

TEST_F(TableAgeTest, ASmallerMaxSizeEvicts) {
  auto table = Make({.sampler = SelectorOptions::Fifo(), .max_size = 20'000});
  for (uint64_t key = 1; key <= 10'000; ++key) ASSERT_OK(Insert(*table, key));
  ASSERT_OK(table->Change({.max_size = 3}));
  EXPECT_THAT(Contents(*table), UnorderedElementsAre(9'998, 9'999, 10'000));
  EXPECT_EQ(table->Info().evictions, 9'997);
  EXPECT_EQ(store_->stats().live_chunks, 3);
  ASSERT_OK(Insert(*table, 10'001));
  EXPECT_THAT(Contents(*table), UnorderedElementsAre(9'999, 10'000, 10'001));
  ASSERT_OK(table->Change({.max_size = 4}));
  ASSERT_OK(Insert(*table, 10'002));
  EXPECT_EQ(table->size(), 4);
  EXPECT_EQ(table->Info().max_size, 4);
}

TEST_F(TableAgeTest, AChangeOfTheLimiterWakesWaitingCalls) {
  auto table = MakeQueue(1);
  ASSERT_OK(Insert(*table, 1));
  Pending* const insert = InsertAsync(*table, {2});
  EXPECT_FALSE(insert->done);
  ASSERT_OK(table->Change({.max_size = 2, .rate_limiter = RateLimiterOptions::Queue(2)}));
  EXPECT_TRUE(insert->done);
  EXPECT_OK(insert->status);
  EXPECT_EQ(table->size(), 2);
}

TEST_F(TableAgeTest, MaxTimesSampledChanges) {
  auto table = Make({.sampler = SelectorOptions::Fifo()});
  for (uint64_t key : {1, 2}) ASSERT_OK(Insert(*table, key));
  EXPECT_THAT(Sample(*table, 3), ElementsAre(1, 1, 1));
  ASSERT_OK(table->Change({.max_times_sampled = 2}));
  EXPECT_EQ(table->max_times_sampled(), 2);
  EXPECT_THAT(Sample(*table, 3), ElementsAre(1, 2, 2));
  EXPECT_EQ(table->size(), 0);
}

TEST_F(TableAgeTest, AnAgeGivenLaterCountsFromTheInsert) {
  auto table = Make({});
  ASSERT_OK(Insert(*table, 1));
  clock_.Advance(6s);
  ASSERT_OK(Insert(*table, 2));
  clock_.Advance(6s);
  ASSERT_OK(table->Change({.max_age = 10s}));
  EXPECT_THAT(Contents(*table), ElementsAre(2));
  ASSERT_OK(table->Change({.max_age = 20s}));
  clock_.Advance(10s);
  EXPECT_EQ(table->size(), 1);
  ASSERT_OK(table->Change({.max_age = 0s}));
  clock_.Advance(1h);
  EXPECT_EQ(table->size(), 1);
}

TEST_F(TableAgeTest, AnInvalidChangeChangesNothing) {
  auto table = Make({.max_size = 5});
  EXPECT_THAT(table->Change({.max_size = 0, .max_times_sampled = 3}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("max_size is 0")));
  EXPECT_THAT(table->Change({.max_times_sampled = 3, .max_age = -1s}),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_EQ(table->Info().max_times_sampled, 0);
  EXPECT_EQ(table->Info().max_size, 5);
}

// --- The limiter after items left that nobody sampled ---

TEST_F(TableAgeTest, AQueueKeepsItsCapacityWhenItemsAge) {
  TableOptions options = TableOptions::Queue("q", 5);
  options.max_age = 10s;
  auto table = Make(options);
  for (int round = 0; round < 3; ++round) {
    for (uint64_t key = 1; key <= 5; ++key) ASSERT_OK(Insert(*table, key));
    EXPECT_FALSE(table->CanInsert(1).value());
    EXPECT_EQ(table->Info().cursor, 5);
    clock_.Advance(11s);
    EXPECT_EQ(table->Info().cursor, 0);
    EXPECT_TRUE(table->CanInsert(5).value());
    EXPECT_FALSE(table->CanInsert(6).value());
  }
  const TableInfo info = table->Info();
  EXPECT_EQ(info.counters.inserts, 15);
  EXPECT_EQ(info.counters.samples, 0);
  EXPECT_EQ(info.counters.deletes, 15);
  EXPECT_EQ(info.counters.uncounted_inserts, 15);
  for (uint64_t key = 1; key <= 5; ++key) ASSERT_OK(Insert(*table, key));
  EXPECT_THAT(Sample(*table, 5), ElementsAre(1, 2, 3, 4, 5));
}

TEST_F(TableAgeTest, OnlyItemsThatWereNotSampledAreWrittenOff) {
  TableOptions options = TableOptions::Queue("q", 4);
  options.max_age = 10s;
  auto table = Make(options);
  for (uint64_t key = 1; key <= 3; ++key) ASSERT_OK(Insert(*table, key));
  EXPECT_THAT(Sample(*table, 2), ElementsAre(1, 2));
  clock_.Advance(5s);
  ASSERT_OK(Insert(*table, 4));
  clock_.Advance(5s);
  EXPECT_EQ(table->Info().cursor, 1) << "item 4 is there and was not sampled";
  EXPECT_EQ(table->Info().counters.uncounted_inserts, 1);
  EXPECT_TRUE(table->CanInsert(3).value());
  EXPECT_FALSE(table->CanInsert(4).value());
}

TEST_F(TableAgeTest, AQueueKeepsItsCapacityWhenItShrinks) {
  auto table = MakeQueue(100);
  for (uint64_t key = 1; key <= 100; ++key) ASSERT_OK(Insert(*table, key));
  ASSERT_OK(table->Change({.max_size = 50, .rate_limiter = RateLimiterOptions::Queue(50)}));
  EXPECT_EQ(table->Info().cursor, 50);
  EXPECT_EQ(Sample(*table, 50).size(), 50);
  EXPECT_TRUE(table->CanInsert(50).value());
  EXPECT_FALSE(table->CanInsert(51).value());
}

TEST_F(TableAgeTest, AWaitingInsertContinuesWhenItemsOfAQueueAge) {
  TableOptions options = TableOptions::Queue("q", 3);
  options.max_age = 1s;
  auto table = Make(options);
  for (uint64_t key : {1, 2, 3}) ASSERT_OK(Insert(*table, key));
  Pending* const insert = InsertAsync(*table, {4, 5, 6});
  EXPECT_FALSE(insert->done);
  clock_.Advance(1100ms);
  ASSERT_TRUE(insert->done);
  EXPECT_THAT(Contents(*table), UnorderedElementsAre(4, 5, 6));
}

TEST_F(TableAgeTest, ATableThatKeepsSampledItemsKeepsItsRatio) {
  // Other items are sampled instead of those that aged.
  auto table =
      Make({.max_age = 10s, .rate_limiter = RateLimiterOptions::SampleToInsertRatio(2, 1, 0, 100).value()});
  for (uint64_t key = 1; key <= 10; ++key) ASSERT_OK(Insert(*table, key));
  clock_.Advance(11s);
  EXPECT_EQ(table->Info().cursor, 20);
  EXPECT_EQ(table->Info().counters.uncounted_inserts, 0);
  ASSERT_OK(Insert(*table, 11));
  EXPECT_EQ(Sample(*table, 22).size(), 22);
}

TEST_F(TableAgeTest, DeletesAndEvictionsDoNotChangeTheCursor) {
  TableOptions options = TableOptions::Queue("q", 4);
  options.max_age = 10s;
  auto table = Make(options);
  for (uint64_t key : {1, 2}) ASSERT_OK(Insert(*table, key));
  const uint64_t key = 1;
  ASSERT_OK(table->Mutate({}, {&key, 1}));
  EXPECT_EQ(table->Info().cursor, 2);
}

// --- Many items that age together ---

TEST_F(TableAgeTest, TheAlarmRemovesManyItemsInParts) {
  constexpr int64_t kItems = 10'000;
  auto table = Make({.max_size = kItems, .max_age = 1s});
  for (uint64_t key = 1; key <= kItems; ++key) ASSERT_OK(Insert(*table, key));
  std::vector<int64_t> seen;
  // Due after the first alarm of the table, and before all that is due later.
  clock_.CallAt(clock_.Now() + 1s + Duration(1s) / 128, [&] { seen.push_back(store_->stats().live_chunks); });
  clock_.Advance(1100ms);
  ASSERT_EQ(seen.size(), 1);
  EXPECT_GT(seen[0], 0) << "other work of the clock's thread has to wait for all items";
  EXPECT_LT(seen[0], kItems);
  EXPECT_EQ(store_->stats().live_chunks, 0);
  EXPECT_EQ(clock_.pending(), 0);
}

TEST_F(TableAgeTest, NoOldItemIsSampledBetweenTheParts) {
  constexpr int64_t kItems = 10'000;
  auto table = Make({.sampler = SelectorOptions::Fifo(), .max_size = kItems + 1, .max_age = 1s});
  for (uint64_t key = 1; key <= kItems; ++key) ASSERT_OK(Insert(*table, key));
  clock_.Advance(500ms);
  ASSERT_OK(Insert(*table, kItems + 1));
  std::vector<uint64_t> sampled;
  int64_t size = 0;
  clock_.CallAt(clock_.Now() + 500ms + Duration(1s) / 128, [&] {
    sampled = Sample(*table, 1);
    size = table->size();
  });
  clock_.Advance(600ms);
  EXPECT_THAT(sampled, ElementsAre(kItems + 1));
  EXPECT_EQ(size, 1);
}

TEST_F(TableAgeTest, AnAgeGivenLaterRemovesManyItems) {
  constexpr int64_t kItems = 10'000;
  auto table = Make({.max_size = kItems});
  for (uint64_t key = 1; key <= kItems; ++key) ASSERT_OK(Insert(*table, key));
  clock_.Advance(2s);
  ASSERT_OK(Insert(*table, kItems + 1));
  ASSERT_OK(table->Change({.max_age = 1s}));
  EXPECT_EQ(store_->stats().live_chunks, 1);
  EXPECT_EQ(table->Info().aged_out, kItems - 1) << "one was evicted";
}

// --- Remove() ---

TEST_F(TableAgeTest, RemovingATableEndsWaitsAndFreesItems) {
  auto table = MakeQueue(1);
  ASSERT_OK(Insert(*table, 1));
  auto empty = Make({.name = "empty"});
  Pending* const insert = InsertAsync(*table, {2});
  Pending* const sample = SampleAsync(*empty, 1);
  table->Remove();
  empty->Remove();
  const auto is_removed = StatusIs(StatusCode::kNotFound, HasSubstr("was removed from the server"));
  EXPECT_THAT(insert->status, is_removed);
  EXPECT_THAT(sample->status, is_removed);
  EXPECT_TRUE(table->is_removed());
  EXPECT_THAT(Insert(*table, 3), is_removed);
  EXPECT_EQ(table->size(), 0);
  pendings_.clear();
  EXPECT_EQ(store_->stats().live_chunks, 0);
}

}  // namespace
}  // namespace reverb::internal
