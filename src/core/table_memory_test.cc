// Tests tables whose store has a limit: inserts wait for space, or items are evicted.
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/table_testing.h"
#include "testing/chunks.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using namespace std::chrono_literals;
using ::reverb::test::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TableMemoryTest : public TableFixture {
 protected:
  void Limit(int64_t chunks, MemoryPolicy policy) {
    const int64_t one = test::MakeChunk(store_.get(), 0, 0, 1)->bytes();
    store_ = std::make_shared<ChunkStore>(ChunkStore::Options{.max_bytes = chunks * one, .policy = policy},
                                          &clock_);
  }
};

TEST_F(TableMemoryTest, InsertsWaitForSpaceAndReportTheReason) {
  Limit(2, MemoryPolicy::kBlock);
  auto table = Make({.sampler = SelectorOptions::Fifo(), .max_times_sampled = 1});
  for (uint64_t key : {1, 2}) ASSERT_OK(Insert(*table, key));
  auto blocked = InsertAsync(*table, {3});
  auto timed = InsertAsync(*table, {4}, 5ms);
  EXPECT_EQ(table->Info().insert_wait_reason, WaitReason::kMemory);
  clock_.Advance(5ms);
  EXPECT_THAT(timed->status, StatusIs(StatusCode::kDeadlineExceeded, Detail::kQueued));
  EXPECT_THAT(Insert(*table, 5), StatusIs(StatusCode::kDeadlineExceeded, Detail::kQueued));
  EXPECT_FALSE(blocked->done);
  EXPECT_THAT(Sample(*table, 1), ElementsAre(1));
  clock_.Advance(0ms);
  EXPECT_TRUE(blocked->done);
  EXPECT_OK(blocked->status);
  auto direct = InsertAsync(*table, {6}, 5ms);
  clock_.Advance(5ms);
  EXPECT_THAT(direct->status, StatusIs(StatusCode::kDeadlineExceeded, Detail::kMemoryFull));
  EXPECT_THAT(std::string(direct->status.message()), HasSubstr("max_bytes"));
}

TEST_F(TableMemoryTest, SpaceFreedInOneTableUnblocksAnother) {
  Limit(2, MemoryPolicy::kBlock);
  auto a = Make({.name = "a"});
  auto b = Make({.name = "b"});
  for (uint64_t key : {1, 2}) ASSERT_OK(Insert(*a, key));
  auto blocked = InsertAsync(*b, {3});
  EXPECT_FALSE(blocked->done);
  a->Reset();
  clock_.Advance(0ms);
  EXPECT_TRUE(blocked->done);
}

TEST_F(TableMemoryTest, AResetFreesSpaceDespiteASnapshot) {
  Limit(1, MemoryPolicy::kBlock);
  auto table = Make({});
  ASSERT_OK(Insert(*table, 1));
  const std::vector<std::shared_ptr<ConcurrentTable>> tables = {table};
  const Snapshot snapshot = ConcurrentTable::TakeSnapshot(tables);
  table->Reset();
  EXPECT_EQ(store_->stats().stored_bytes, 0);
  EXPECT_EQ(store_->stats().live_chunks, 1);
  ASSERT_OK(Insert(*table, 2));
}

TEST_F(TableMemoryTest, AStoredChunkNeedsNoSpace) {
  Limit(1, MemoryPolicy::kBlock);
  auto a = Make({.name = "a"});
  auto b = Make({.name = "b"});
  ChunkRef chunk = test::MakeChunk(store_.get(), 1, 0, 1);
  ASSERT_OK(a->Insert(test::MakeItem(1, 1, chunk), {.timeout = Duration(0)}));
  ASSERT_OK(b->Insert(test::MakeItem(1, 1, chunk), {.timeout = Duration(0)}));
  EXPECT_THAT(Insert(*b, 2), StatusIs(StatusCode::kDeadlineExceeded, Detail::kMemoryFull));
}

TEST_F(TableMemoryTest, ItemsAreEvictedByPolicy) {
  Limit(2, MemoryPolicy::kEvict);
  auto table = Make({.sampler = SelectorOptions::Fifo(), .remover = SelectorOptions::Fifo()});
  for (uint64_t key : {1, 2, 3, 4}) ASSERT_OK(Insert(*table, key));
  EXPECT_EQ(table->size(), 2);
  EXPECT_FALSE(table->Find(2));
  EXPECT_TRUE(table->Find(3));
  EXPECT_LE(store_->stats().stored_bytes, *store_->options().max_bytes);
  EXPECT_EQ(table->Info().evictions, 2);
}

TEST_F(TableMemoryTest, APriorityUpdateByInsertEvictsNothing) {
  Limit(2, MemoryPolicy::kEvict);
  auto table = Make({});
  for (uint64_t key : {1, 2}) ASSERT_OK(Insert(*table, key));
  ASSERT_OK(Insert(*table, 2, 5.0));
  EXPECT_EQ(table->size(), 2);
  EXPECT_EQ(table->Find(2)->priority, 5.0);
  EXPECT_EQ(table->Info().evictions, 0);
}

TEST_F(TableMemoryTest, AFullTableReplacesItsItemsWithoutWaiting) {
  Limit(2, MemoryPolicy::kBlock);
  auto table = Make({.remover = SelectorOptions::Fifo(), .max_size = 2});
  for (uint64_t key : {1, 2, 3, 4}) ASSERT_OK(Insert(*table, key));
  EXPECT_EQ(table->size(), 2);
}

TEST_F(TableMemoryTest, NothingIsEvictedIfItCannotHelp) {
  Limit(2, MemoryPolicy::kEvict);
  auto a = Make({.name = "a"});
  auto b = Make({.name = "b"});
  for (uint64_t key : {1, 2}) ASSERT_OK(Insert(*a, key));
  // The other table fills the store; evictions from this one cannot free space.
  EXPECT_THAT(Insert(*b, 3), StatusIs(StatusCode::kDeadlineExceeded, Detail::kMemoryFull));
  const uint64_t key = 1;
  ASSERT_OK(a->Mutate({}, {&key, 1}));
  ASSERT_OK(Insert(*b, 3));
  ASSERT_OK(Insert(*b, 4));
  EXPECT_EQ(b->size(), 1);
  EXPECT_EQ(a->size(), 1);
}

TEST_F(TableMemoryTest, AnItemThatCannotFitIsRejected) {
  Limit(1, MemoryPolicy::kBlock);
  auto table = Make({});
  EXPECT_THAT(table->Insert(test::MakeItem(1, 1, test::MakeChunk(store_.get(), 1, 0, 100))),
              StatusIs(StatusCode::kResourceExhausted, Detail::kMemoryFull));
}

// --- The memory limit of the server ---

class TableBudgetTest : public TableFixture {
 protected:
  // Of a limit for 16 chunks, 13 may be kept.
  static constexpr uint64_t kFits = 13;
  void LimitMemory(MemoryPolicy policy = MemoryPolicy::kBlock) {
    const int64_t one = test::MakeChunk(store_.get(), 0, 0, 1)->bytes();
    store_ = std::make_shared<ChunkStore>(ChunkStore::Options{.policy = policy, .memory_limit = 16 * one},
                                          &clock_);
  }
  void Fill(ConcurrentTable& table) {
    for (uint64_t key = 1; key <= kFits; ++key) ASSERT_OK(Insert(table, key));
  }
};

TEST_F(TableBudgetTest, InsertsWaitForMemoryAndReportTheReason) {
  LimitMemory();
  auto table = Make({.sampler = SelectorOptions::Fifo(), .max_times_sampled = 1});
  Fill(*table);
  auto timed = InsertAsync(*table, {100}, 5ms);
  EXPECT_EQ(table->Info().insert_wait_reason, WaitReason::kMemory);
  clock_.Advance(5ms);
  EXPECT_THAT(timed->status, StatusIs(StatusCode::kDeadlineExceeded, Detail::kMemoryFull));
  EXPECT_THAT(std::string(timed->status.message()), HasSubstr("memory_limit"));
  auto blocked = InsertAsync(*table, {101});
  EXPECT_FALSE(blocked->done);
  EXPECT_THAT(Sample(*table, 1), ElementsAre(1));
  clock_.Advance(0ms);
  EXPECT_TRUE(blocked->done);
  EXPECT_OK(blocked->status);
}

TEST_F(TableBudgetTest, DataInTransitDoesNotPreventInserts) {
  LimitMemory();
  auto table = Make({});
  std::vector<ChunkRef> in_transit;
  for (int i = 0; i < 100; ++i) in_transit.push_back(test::MakeChunk(store_.get(), 0, 0, 1));
  EXPECT_EQ(store_->budget().TransitLevel(), MemoryLevel::kFull);
  Fill(*table);
  EXPECT_EQ(table->size(), static_cast<int64_t>(kFits));
}

TEST_F(TableBudgetTest, AFullTableGoesOn) {
  LimitMemory();
  auto table = Make({.max_size = static_cast<int64_t>(kFits)});
  for (uint64_t key = 1; key <= 100; ++key) ASSERT_OK(Insert(*table, key));
  EXPECT_EQ(table->size(), static_cast<int64_t>(kFits));
}

TEST_F(TableBudgetTest, EvictsIfSoConfigured) {
  LimitMemory(MemoryPolicy::kEvict);
  auto table = Make({});
  for (uint64_t key = 1; key <= 100; ++key) ASSERT_OK(Insert(*table, key));
  EXPECT_EQ(table->size(), static_cast<int64_t>(kFits));
  EXPECT_EQ(table->Info().evictions, 100 - static_cast<int64_t>(kFits));
}

TEST_F(TableBudgetTest, ItemsThatNeverFitAreRejected) {
  LimitMemory();
  auto table = Make({});
  const Item large = test::MakeItem(1, 1, test::MakeChunk(store_.get(), 0, 0, 1000));
  EXPECT_THAT(table->CheckItem(large), StatusIs(StatusCode::kResourceExhausted, Detail::kMemoryFull));
}

TEST_F(TableBudgetTest, InsertsWaitForASnapshotThatKeepsRemovedData) {
  for (const MemoryPolicy policy : {MemoryPolicy::kBlock, MemoryPolicy::kEvict}) {
    LimitMemory(policy);
    auto table = Make({.max_size = static_cast<int64_t>(kFits)});
    Fill(*table);
    const std::vector<std::shared_ptr<ConcurrentTable>> tables = {table};
    auto snapshot = std::make_unique<Snapshot>(ConcurrentTable::TakeSnapshot(tables));
    auto blocked = InsertAsync(*table, {100, 101, 102});
    EXPECT_FALSE(blocked->done);
    EXPECT_EQ(table->Info().insert_wait_reason, WaitReason::kMemory);
    // It evicts no more than the insert needs, and what it evicts is kept for the snapshot.
    EXPECT_GE(table->size(), static_cast<int64_t>(kFits) - 1);
    EXPECT_EQ(store_->budget().usage().kept(), store_->budget().shares().kept);
    snapshot.reset();
    clock_.Advance(0ms);
    EXPECT_TRUE(blocked->done);
    EXPECT_OK(blocked->status);
    EXPECT_EQ(store_->budget().usage().parked, 0);
  }
}

TEST_F(TableBudgetTest, TheIndexIsCharged) {
  store_ = std::make_shared<ChunkStore>(ChunkStore::Options{.memory_limit = int64_t{1} << 30}, &clock_);
  {
    auto table = Make({.max_size = 100'000});
    for (uint64_t key = 1; key <= 10'000; ++key) ASSERT_OK(Insert(*table, key));
    EXPECT_GT(store_->budget().usage().index, 10'000 * 90);
    EXPECT_LT(store_->budget().usage().index, 10'000 * 200);
    table->Reset();
    EXPECT_LT(store_->budget().usage().index, 1 << 17);
  }
  EXPECT_EQ(store_->budget().usage().total(), 0);
}

}  // namespace
}  // namespace reverb::internal
