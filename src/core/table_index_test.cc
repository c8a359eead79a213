// Tests what a table counts as its index: the memory that it takes besides chunks.
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/table_state_testing.h"
#include "core/table_testing.h"

namespace reverb::internal {
namespace {

using namespace std::chrono_literals;
using ::testing::Optional;

class TableIndexTest : public TableStateTest {
 protected:
  static constexpr int64_t kItems = 20'000;
  // The keys are in hash tables, whose sizes depend on a seed.
  static void ExpectAbout(int64_t bytes, int64_t expected) {
    EXPECT_NEAR(static_cast<double>(bytes), static_cast<double>(expected), static_cast<double>(kItems) * 2);
  }
  std::unique_ptr<TableState> Filled(TableOptions options) {
    options.max_size = kItems;
    std::unique_ptr<TableState> state = Make(std::move(options));
    for (int64_t key = 1; key <= kItems; ++key) Insert(state.get(), static_cast<uint64_t>(key));
    return state;
  }
};

TEST_F(TableIndexTest, EachSelectorCountsWithItsSize) {
  const int64_t fifo =
      Filled({.sampler = SelectorOptions::Fifo(), .remover = SelectorOptions::Fifo()})->index_bytes();
  const int64_t uniform =
      Filled({.sampler = SelectorOptions::Uniform(), .remover = SelectorOptions::Fifo()})->index_bytes();
  const int64_t heaps =
      Filled({.sampler = SelectorOptions::MaxHeap(), .remover = SelectorOptions::MinHeap()})->index_bytes();
  ExpectAbout(uniform, fifo);
  ExpectAbout(heaps - fifo, 2 * kItems * (28 - 8));  // a heap has entries of 24 bytes and positions of 4
}

TEST_F(TableIndexTest, TheAgesOfItemsCount) {
  const int64_t without = Filled({})->index_bytes();
  const std::unique_ptr<TableState> state = Filled({.max_age = 1h});
  ExpectAbout(state->index_bytes() - without, kItems * 16);
  // Those that left earlier take nothing.
  for (uint64_t key = kItems + 1; key <= 4 * kItems; ++key) Insert(state.get(), key);
  ExpectAbout(state->index_bytes() - without, kItems * 16);
  Reset(state.get());
  EXPECT_EQ(state->index_bytes(), Make({})->index_bytes());
}

TEST_F(TableIndexTest, LeasesCount) {
  const std::unique_ptr<TableState> state = Filled({});
  const int64_t before = state->index_bytes();
  std::vector<internal::Sample> samples;
  ASSERT_OK(state->SampleLeased(kItems / 2, {}, nullptr, false, false, TimePoint(1h), &samples));
  EXPECT_GT(state->index_bytes(), before + kItems / 2 * 60);
  EXPECT_LT(state->index_bytes(), before + kItems / 2 * 240);
}

// No operation looks for items that left earlier: the next time is always that of the oldest item that is present.
TEST_F(TableIndexTest, TheNextTimeIsThatOfAnItemThatIsPresent) {
  const std::unique_ptr<TableState> state = Make({.max_age = 10s});
  Effects effects;
  for (uint64_t key = 1; key <= 5; ++key) {
    state->AdvanceTo(TimePoint(std::chrono::seconds(key)), &effects);
    Insert(state.get(), key);
  }
  EXPECT_THAT(state->NextAged(), Optional(TimePoint(11s)));
  Delete(state.get(), {2, 1});
  EXPECT_THAT(state->NextAged(), Optional(TimePoint(13s)));
  Delete(state.get(), {3, 4, 5});
  EXPECT_EQ(state->NextAged(), std::nullopt);
}

class SnapshotChargeTest : public TableFixture {
 protected:
  static constexpr uint64_t kItems = 20'000;

  SnapshotChargeTest() {
    store_ = std::make_shared<ChunkStore>(ChunkStore::Options{.memory_limit = int64_t{1} << 30}, &clock_);
    table_ = Make({.max_size = 1'000'000});
    for (uint64_t key = 1; key <= kItems; ++key) EXPECT_OK(Insert(*table_, key));
  }
  void UpdateAll() {
    std::vector<KeyPriority> updates;
    for (uint64_t key = 1; key <= kItems; ++key) updates.push_back({key, 2.0});
    EXPECT_OK(table_->Mutate(updates, {}));
  }
  Snapshot Take() { return ConcurrentTable::TakeSnapshot(std::vector{table_}); }
  MemoryBudget::Usage usage() const { return store_->budget().usage(); }

  std::shared_ptr<ConcurrentTable> table_;
};

TEST_F(SnapshotChargeTest, PagesThatASnapshotKeepsCount) {
  constexpr auto kSlotBytes = static_cast<int64_t>(kItems * sizeof(SlotRecord));
  const int64_t before = usage().index;
  UpdateAll();
  EXPECT_EQ(usage().index, before) << "nothing is copied without a snapshot";
  Snapshot first = Take();
  UpdateAll();
  EXPECT_GE(usage().index, before + kSlotBytes);
  EXPECT_LE(usage().index, before + kSlotBytes * 11 / 10);
  Snapshot second = Take();
  UpdateAll();
  EXPECT_GE(usage().index, before + 2 * kSlotBytes);
  second.tables.clear();
  first.tables.clear();
  EXPECT_EQ(usage().index, before);
}

TEST_F(SnapshotChargeTest, TheSlotsOfATableThatWasResetCount) {
  const int64_t before = usage().index;
  Snapshot snapshot = Take();
  table_->Reset();
  EXPECT_GE(usage().index, static_cast<int64_t>(kItems * sizeof(SlotRecord)));
  snapshot.tables.clear();
  EXPECT_LT(usage().index, before / 10);
}

TEST_F(SnapshotChargeTest, AnInsertThatWaitsContinuesWhenTheSnapshotIsGone) {
  // Nothing but the copied slots leaves no room.
  const int64_t kept = usage().kept();
  store_ =
      std::make_shared<ChunkStore>(ChunkStore::Options{.memory_limit = kept / 13 * 16 + (1 << 20)}, &clock_);
  table_ = Make({.max_size = 1'000'000});
  for (uint64_t key = 1; key <= kItems; ++key) ASSERT_OK(Insert(*table_, key));
  Snapshot snapshot = Take();
  UpdateAll();
  auto blocked = InsertAsync(*table_, {kItems + 1});
  EXPECT_FALSE(blocked->done);
  EXPECT_EQ(usage().parked, 0);
  snapshot.tables.clear();
  clock_.Advance(0ms);
  EXPECT_TRUE(blocked->done);
  EXPECT_OK(blocked->status);
}

TEST_F(SnapshotChargeTest, WhatAResetRemovesIsFreedPageByPage) {
  const int64_t stored = usage().stored;
  Snapshot snapshot = Take();
  const TableSnapshot& shown = *snapshot.tables[0];
  const size_t half = shown.num_pages() / 2;
  for (size_t page = 0; page < half / 2; ++page) shown.ReleasePage(page);
  constexpr uint64_t kLater = 1000;
  for (uint64_t key = kItems + 1; key <= kItems + kLater; ++key) ASSERT_OK(Insert(*table_, key));
  const auto left = [&](size_t pages) {
    return static_cast<double>(stored) * static_cast<double>(shown.num_pages() - pages) /
           static_cast<double>(shown.num_pages());
  };
  const double tolerance = static_cast<double>(stored) / static_cast<double>(shown.num_pages());
  table_->Reset();
  EXPECT_EQ(usage().stored, 0);
  // Neither what was written nor what came later is kept.
  EXPECT_NEAR(static_cast<double>(usage().parked), left(half / 2), tolerance);
  EXPECT_EQ(usage().chunks, usage().parked);
  for (size_t page = half / 2; page < half; ++page) shown.ReleasePage(page);
  EXPECT_NEAR(static_cast<double>(usage().parked), left(half), tolerance);
  EXPECT_EQ(usage().chunks, usage().parked);
  EXPECT_EQ(shown.item(half * TableSnapshot::kSlotsPerPage).key, half * TableSnapshot::kSlotsPerPage + 1);
  for (size_t page = half; page < shown.num_pages(); ++page) shown.ReleasePage(page);
  EXPECT_EQ(usage().chunks, 0);
}

TEST_F(SnapshotChargeTest, PagesAreReleasedWhileTheTableIsReset) {
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    Snapshot snapshot = Take();
    const int64_t shown = table_->size();
    int64_t read = 0;
    std::thread reader([&] {
      const TableSnapshot& table = *snapshot.tables[0];
      for (size_t page = 0; page < table.num_pages(); ++page) {
        table.ForEachItem(page, [&](size_t slot, const SlotRecord& record) {
          read += table.item(slot).trajectory.chunk_bytes() > 0 && record.key == slot + 1 ? 1 : 0;
        });
        table.ReleasePage(page);
      }
    });
    table_->Reset();
    for (uint64_t key = 1; key <= kItems / 10; ++key) ASSERT_OK(Insert(*table_, key));
    reader.join();
    EXPECT_EQ(read, shown);
    EXPECT_EQ(usage().chunks, usage().stored);
  }
}

TEST_F(SnapshotChargeTest, AnOlderSnapshotKeepsWhatAResetRemoves) {
  const int64_t stored = usage().stored;
  Snapshot older = Take();
  ASSERT_OK(Insert(*table_, kItems + 1));
  Snapshot newer = Take();
  table_->Reset();
  for (size_t page = 0; page < newer.tables[0]->num_pages(); ++page) newer.tables[0]->ReleasePage(page);
  EXPECT_GE(usage().parked, stored);
  newer.tables.clear();
  EXPECT_GE(usage().parked, stored);
  EXPECT_EQ(older.tables[0]->item(kItems - 1).key, kItems);
  for (size_t page = 0; page < older.tables[0]->num_pages(); ++page) older.tables[0]->ReleasePage(page);
  EXPECT_EQ(usage().chunks, 0);
}

}  // namespace
}  // namespace reverb::internal
