#include "core/rows/row_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "storage/chunk_tier.h"
#include "testing/fake_file_system.h"
#include "testing/rows.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using ::reverb::test::IsOk;
using ::reverb::test::KeysOf;
using ::reverb::test::MakeRow;
using ::reverb::test::StatusIs;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Handle = std::shared_ptr<RowOperation>;

class RowTableTest : public ::testing::Test {
 protected:
  void Open(RowTableOptions options, ChunkStore::Options store = {}) {
    options.name = "rollouts";
    store_ = std::make_shared<ChunkStore>(store, &clock_);
    table_ = ConcurrentRows::Create(std::move(options), {.store = store_, .clock = &clock_}).value();
  }
  // Finished operations are appended to done_.
  Handle Start(Handle operation) {
    operation->on_done = [this](RowOperation& done) { done_.push_back(&done); };
    table_->Start(operation);
    return operation;
  }
  Handle Put(RowWriteMode mode, std::vector<RowWrite> rows, std::optional<Duration> timeout = {}) {
    auto operation = std::make_shared<RowOperation>(RowOperation::Kind::kWrite);
    operation->mode = std::move(mode);
    operation->rows = std::move(rows);
    operation->timeout = timeout;
    return Start(operation);
  }
  Handle Claim(RowClaim claim, std::optional<Duration> timeout = {}) {
    auto operation = std::make_shared<RowOperation>(RowOperation::Kind::kClaim);
    operation->claim = std::move(claim);
    operation->timeout = timeout;
    return Start(operation);
  }
  Handle Reserve(int64_t count) {
    auto operation = std::make_shared<RowOperation>(RowOperation::Kind::kReserve);
    operation->count = count;
    operation->lease = seconds(60);
    return Start(operation);
  }

  ManualClock clock_;
  std::vector<RowOperation*> done_;  // outlives the table, which ends all waits
  std::shared_ptr<ChunkStore> store_;
  std::shared_ptr<ConcurrentRows> table_;
};

TEST_F(RowTableTest, TheWriteThatMakesARowReadyFinishesTheClaim) {
  Open({.consumers = {"train"}});
  const Handle claim = Claim({.consumer = "train", .needs = {"tokens", "adv"}});
  Put({.columns = {"tokens"}}, {MakeRow("a", {3})});
  EXPECT_FALSE(claim->is_finished);
  EXPECT_EQ(table_->Info().waiting_claims, 1);
  EXPECT_THAT(table_->Info().claim_reason, HasSubstr("1 row lacks \"adv\""));
  const Handle put = Put({.columns = {"adv"}}, {MakeRow("a", {3})});
  EXPECT_THAT(done_, ElementsAre(::testing::_, put.get(), claim.get()));
  EXPECT_THAT(claim->status, IsOk());
  EXPECT_THAT(KeysOf(claim->claimed.rows), ElementsAre("a"));
}

TEST_F(RowTableTest, ATagThatMeetsTheConditionFinishesTheClaim) {
  Open({.consumers = {"train"}});
  Put({.columns = {"x"}}, {MakeRow("a", {1})});
  const Handle claim = Claim({.consumer = "train", .where = "reward > 0"});
  Put({}, {MakeRow("a", {}, "", {{"reward", -1.0}})});
  EXPECT_FALSE(claim->is_finished);
  Put({}, {MakeRow("a", {}, "", {{"reward", 1.0}})});
  EXPECT_TRUE(claim->is_finished);
}

TEST_F(RowTableTest, ClaimsForTheSameRowsAreServedInOrder) {
  Open({.consumers = {"log", "train"}});
  const Handle first = Claim({.consumer = "train", .count = 2});
  const Handle second = Claim({.consumer = "train", .count = 1});
  const Handle other = Claim({.consumer = "log", .count = 1});
  Put({.columns = {"x"}}, {MakeRow("a", {1})});
  EXPECT_FALSE(first->is_finished);
  EXPECT_FALSE(second->is_finished);
  EXPECT_TRUE(other->is_finished);
  Put({.columns = {"x"}}, {MakeRow("b", {1})});
  EXPECT_TRUE(first->is_finished);
  EXPECT_FALSE(second->is_finished);
  table_->Cancel(second);
  EXPECT_THAT(second->status, StatusIs(StatusCode::kCancelled));
}

TEST_F(RowTableTest, ATimeoutNamesTheReasons) {
  Open({.consumers = {"train"}});
  Put({.columns = {"tokens"}}, {MakeRow("a", {3})});
  const Handle now = Claim({.consumer = "train", .needs = {"adv"}}, Duration(0));
  EXPECT_THAT(
      now->status,
      StatusIs(StatusCode::kDeadlineExceeded, Detail::kRateLimited,
               HasSubstr("table \"rollouts\": no rows to claim now: consumer \"train\" waits for 1 row")));
  const Handle later = Claim({.consumer = "train", .needs = {"adv"}}, seconds(5));
  clock_.Advance(milliseconds(4999));
  EXPECT_FALSE(later->is_finished);
  clock_.Advance(milliseconds(1));
  EXPECT_THAT(later->status, StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("within 5.0 s: consumer")));
}

TEST_F(RowTableTest, AnExpiredLeaseFinishesAWaitingClaim) {
  Open({.consumers = {"train"}});
  Put({.columns = {"x"}}, {MakeRow("a", {1})});
  const Handle lost = Claim({.consumer = "train", .lease = seconds(10)});
  const Handle next = Claim({.consumer = "train"});
  clock_.Advance(seconds(9));
  EXPECT_FALSE(next->is_finished);
  clock_.Advance(seconds(1));
  EXPECT_THAT(KeysOf(next->claimed.rows), ElementsAre("a"));
  EXPECT_EQ(table_->Settle(lost->claimed.lease, {}, RowSettlement::kAcknowledge, {}),
            LeaseOutcome{.expired = 1});
  EXPECT_EQ(table_->Settle(next->claimed.lease, {}, RowSettlement::kAcknowledge, {}),
            LeaseOutcome{.settled = 1});
}

TEST_F(RowTableTest, NewRowsWaitForRoomAndLateColumnsDoNot) {
  Open({.max_rows = 2, .consumers = {"train"}});
  const Handle put = Put({.columns = {"x"}}, {MakeRow("a", {1}), MakeRow("b", {1}), MakeRow("c", {1})});
  EXPECT_FALSE(put->is_finished);
  EXPECT_EQ(put->stored, 2);
  const Handle behind = Put({.columns = {"x"}}, {MakeRow("d", {1})}, seconds(1));
  const Handle late = Put({.columns = {"y"}}, {MakeRow("a", {1}), MakeRow("b", {1})});
  EXPECT_TRUE(late->is_finished);
  const Handle claim = Claim({.consumer = "train", .count = 1, .needs = {"y"}});
  table_->Settle(claim->claimed.lease, {}, RowSettlement::kAcknowledge, {});
  EXPECT_TRUE(put->is_finished);
  EXPECT_THAT(put->status, IsOk());
  EXPECT_EQ(put->stored, 3);
  EXPECT_FALSE(behind->is_finished);
  clock_.Advance(seconds(1));
  EXPECT_THAT(behind->status,
              StatusIs(StatusCode::kDeadlineExceeded,
                       HasSubstr("stored 0 of 1 rows within 1.0 s: the table has 2 rows (max_rows = 2)")));
}

TEST_F(RowTableTest, AWriteWithAnErrorStoresNothing) {
  Open({.consumers = {"train"}});
  Put({.columns = {"x"}}, {MakeRow("b", {1})});
  const Handle put = Put({.columns = {"x"}}, {MakeRow("a", {1}), MakeRow("b", {1})});
  EXPECT_THAT(put->status, StatusIs(StatusCode::kAlreadyExists));
  EXPECT_EQ(put->stored, 0);
  EXPECT_EQ(table_->Info().counts.rows, 1);
}

TEST_F(RowTableTest, NewRowsWaitForMemory) {
  const int64_t bytes = MakeRow("a", {100}).chunk->bytes();
  Open({.consumers = {"train"}}, {.max_bytes = bytes + bytes / 2});
  EXPECT_TRUE(Put({.columns = {"x"}}, {MakeRow("a", {100})})->is_finished);
  const Handle put = Put({.columns = {"x"}}, {MakeRow("b", {100})});
  EXPECT_FALSE(put->is_finished);
  EXPECT_THAT(table_->Delete(std::vector<std::string>{"a"}), test::IsOkAndHolds(1));
  // The store reports room on the clock's thread.
  clock_.Advance(seconds(1));
  EXPECT_TRUE(put->is_finished);
  EXPECT_THAT(put->status, IsOk());
  EXPECT_THAT(Put({.columns = {"x"}}, {MakeRow("c", {1000})})->status,
              StatusIs(StatusCode::kResourceExhausted));
}

TEST_F(RowTableTest, NewRowsWaitForTheMemoryLimit) {
  Open({.consumers = {"train"}}, {.memory_limit = 1 << 20});
  int64_t rows = 0;
  Handle put;
  do {
    put = Put({.columns = {"x"}}, {MakeRow("row" + std::to_string(++rows), {10'000})});
  } while (put->is_finished && rows < 1000);
  ASSERT_FALSE(put->is_finished);
  EXPECT_EQ(table_->Info().counts.rows, rows - 1);
  EXPECT_THAT(table_->Delete(std::vector<std::string>{"row1"}), test::IsOkAndHolds(1));
  clock_.Advance(seconds(1));
  EXPECT_THAT(put->status, IsOk());
}

TEST_F(RowTableTest, RowsThatJoinAGroupDoNotWaitBehindOthers) {
  Open({.max_rows = 4, .group_size = 2, .consumers = {"train"}});
  for (const std::string group : {"g1", "g2", "g3", "g4"}) {
    EXPECT_TRUE(Put({.columns = {"x"}}, {MakeRow(group + "a", {1}, group)})->is_finished);
  }
  const Handle waits = Put({.columns = {"x"}}, {MakeRow("g5a", {1}, "g5")});
  EXPECT_FALSE(waits->is_finished);
  const Handle joins = Put({.columns = {"x"}}, {MakeRow("g1b", {1}, "g1")});
  EXPECT_THAT(joins->status, IsOk());
  EXPECT_TRUE(joins->is_finished);
  // Rows of one write that have to wait do not hold back those that need not.
  const Handle mixed = Put({.columns = {"x"}}, {MakeRow("g6a", {1}, "g6"), MakeRow("g2b", {1}, "g2"),
                                                MakeRow("g6b", {1}, "g6"), MakeRow("g3b", {1}, "g3")});
  EXPECT_FALSE(mixed->is_finished);
  EXPECT_EQ(mixed->stored, 2);
  const Handle claim = Claim({.consumer = "train", .count = 6});
  ASSERT_TRUE(claim->is_finished);
  EXPECT_THAT(KeysOf(claim->claimed.rows), ElementsAre("g1a", "g1b", "g2a", "g2b", "g3a", "g3b"));
  table_->Settle(claim->claimed.lease, {}, RowSettlement::kAcknowledge, {});
  EXPECT_TRUE(waits->is_finished);
  EXPECT_THAT(mixed->status, IsOk());
  EXPECT_TRUE(mixed->is_finished);
  EXPECT_EQ(mixed->stored, 4);
}

TEST_F(RowTableTest, AWaitingRowGoesOnOnceItsGroupExists) {
  Open({.max_rows = 2, .group_size = 2, .consumers = {"train"}});
  Put({.columns = {"x"}}, {MakeRow("g1a", {1}, "g1"), MakeRow("g1b", {1}, "g1")});
  const Handle first = Put({.columns = {"x"}},
                           {MakeRow("g2a", {1}, "g2"), MakeRow("g3a", {1}, "g3"), MakeRow("g4a", {1}, "g4")});
  const Handle second = Put({.columns = {"x"}}, {MakeRow("g2b", {1}, "g2")});
  EXPECT_FALSE(second->is_finished);
  EXPECT_EQ(table_->Info().waiting_writes, 2);
  const Handle claim = Claim({.consumer = "train", .count = 2});
  table_->Settle(claim->claimed.lease, {}, RowSettlement::kAcknowledge, {});
  EXPECT_FALSE(first->is_finished);
  EXPECT_EQ(first->stored, 2);
  EXPECT_TRUE(second->is_finished);
  EXPECT_TRUE(Claim({.consumer = "train", .count = 2})->is_finished);
}

TEST_F(RowTableTest, RowsThatJoinAGroupDoNotWaitForMemory) {
  const int64_t bytes = MakeRow("a", {100}).chunk->bytes();
  Open({.group_size = 2, .consumers = {"train"}}, {.max_bytes = 2 * bytes + bytes / 2});
  Put({.columns = {"x"}}, {MakeRow("g1a", {100}, "g1"), MakeRow("g2a", {100}, "g2")});
  const Handle waits = Put({.columns = {"x"}}, {MakeRow("g3a", {100}, "g3")});
  EXPECT_FALSE(waits->is_finished);
  EXPECT_TRUE(Put({.columns = {"x"}}, {MakeRow("g1b", {100}, "g1")})->is_finished);
  const Handle claim = Claim({.consumer = "train", .count = 2});
  ASSERT_TRUE(claim->is_finished);
  table_->Settle(claim->claimed.lease, {}, RowSettlement::kAcknowledge, {});
  // The store reports room on the clock's thread.
  clock_.Advance(seconds(1));
  EXPECT_TRUE(waits->is_finished);
}

TEST_F(RowTableTest, WaitingWritesLeaveRoomInTransit) {
  Open({.max_rows = 1, .consumers = {"train"}}, {.memory_limit = 8 << 20});
  const MemoryBudget& budget = store_->budget();
  const auto put = [&](const std::string& key) { return Put({.columns = {"x"}}, {MakeRow(key, {25'000})}); };
  ASSERT_TRUE(put("a")->is_finished);
  const int64_t bytes = budget.usage().stored;
  const Handle first = put("b");
  const Handle second = put("c");
  EXPECT_FALSE(second->is_finished);
  EXPECT_EQ(budget.usage().waiting, 2 * bytes);
  // Half of the share for data in transit is left to columns of rows that exist.
  ASSERT_GT(3 * bytes, budget.shares().transit / 2);
  const Handle third = put("d");
  EXPECT_THAT(
      third->status,
      StatusIs(StatusCode::kUnavailable, Detail::kMemoryFull,
               HasSubstr("table \"rollouts\": stored 0 of 1 rows: the table has 1 rows (max_rows = 1)")));
  EXPECT_THAT(third->status, StatusIs(StatusCode::kUnavailable, HasSubstr("put the rest again later")));
  third->rows.clear();
  EXPECT_EQ(budget.usage().transit(), 2 * bytes);
  EXPECT_TRUE(Put({.columns = {"y"}}, {MakeRow("a", {25'000})})->is_finished);
  // A write that no longer waits makes room.
  EXPECT_THAT(table_->Delete(std::vector<std::string>{"a"}), test::IsOkAndHolds(1));
  EXPECT_TRUE(first->is_finished);
  EXPECT_EQ(budget.usage().waiting, bytes);
  const Handle fourth = put("e");
  EXPECT_FALSE(fourth->is_finished);
  table_->Cancel(second);
  table_->Cancel(fourth);
  EXPECT_EQ(budget.usage().waiting, 0);
}

TEST_F(RowTableTest, NoWriteWaitsWhileDataInTransitIsFull) {
  Open({.max_rows = 1, .consumers = {"train"}}, {.memory_limit = 8 << 20});
  Put({.columns = {"x"}}, {MakeRow("a", {1})});
  const MemoryCharge others(&store_->budget(), MemoryPart::kReceiving, store_->budget().shares().transit);
  EXPECT_THAT(Put({.columns = {"x"}}, {MakeRow("b", {1000})})->status, StatusIs(StatusCode::kUnavailable));
  // Without data there is nothing to bound.
  EXPECT_FALSE(Put({}, {MakeRow("c", {})})->is_finished);
}

TEST_F(RowTableTest, TheIndexIsCharged) {
  Open({.consumers = {"train"}}, {.memory_limit = int64_t{1} << 30});
  constexpr int kRows = 10'000;
  const MemoryBudget& budget = store_->budget();
  std::vector<std::string> keys;
  for (int i = 0; i < kRows; ++i) {
    keys.push_back("a key of a row that takes some memory " + std::to_string(i));
    Put({.columns = {"x"}}, {MakeRow(keys.back(), {1})});
  }
  const int64_t full = budget.usage().index;
  EXPECT_GT(full, kRows * 60);
  EXPECT_LT(full, kRows * 400);
  ASSERT_THAT(table_->Delete(keys), test::IsOkAndHolds(kRows));
  // Slots are kept, keys are not.
  EXPECT_LT(budget.usage().index, full - kRows * 40);
  table_.reset();
  EXPECT_EQ(budget.usage().index, 0);
}

TEST_F(RowTableTest, RemovedRowsThatASnapshotShowsCountAsParked) {
  Open({.consumers = {"train"}}, {.memory_limit = int64_t{1} << 30});
  const MemoryBudget& budget = store_->budget();
  Put({.columns = {"x"}}, {MakeRow("a", {1000}), MakeRow("b", {1000}), MakeRow("c", {1000})});
  const int64_t stored = budget.usage().stored;
  ConcurrentRows::Snapshots snapshots = ConcurrentRows::TakeSnapshots(std::vector{table_});
  EXPECT_THAT(table_->Delete(std::vector<std::string>{"a"}), test::IsOkAndHolds(1));
  // Replaced data stays for the snapshot, too.
  Put({.columns = {"x"}, .overwrite = true}, {MakeRow("b", {1000})});
  EXPECT_EQ(budget.usage().stored, 2 * stored / 3);
  EXPECT_EQ(budget.usage().parked, 2 * stored / 3);
  EXPECT_EQ(budget.usage().transit(), 0);
  EXPECT_EQ(snapshots.tables[0]->num_rows(), 3u);
  // The table may be gone before the snapshot.
  table_.reset();
  EXPECT_EQ(budget.usage().stored, 0);
  EXPECT_EQ(budget.usage().parked, 4 * stored / 3);
  snapshots.tables.clear();
  EXPECT_EQ(budget.usage().parked, 0);
  EXPECT_EQ(budget.usage().chunks, 0);
}

TEST_F(RowTableTest, RemovedRowsAreFreedOnceTheSnapshotWasReadSoFar) {
  Open({.consumers = {"train"}}, {.memory_limit = int64_t{1} << 30});
  const MemoryBudget& budget = store_->budget();
  constexpr size_t kRows = 5000;
  std::vector<std::string> keys;
  std::vector<RowWrite> rows;
  for (size_t i = 0; i < kRows; ++i) {
    keys.push_back("row " + std::to_string(i));
    rows.push_back(MakeRow(keys.back(), {10}));
  }
  Put({.columns = {"x"}}, std::move(rows))->rows.clear();
  const int64_t one = budget.usage().stored / static_cast<int64_t>(kRows);
  const int64_t index = budget.usage().index;
  ConcurrentRows::Snapshots snapshots = ConcurrentRows::TakeSnapshots(std::vector{table_});
  const RowTableSnapshot& shown = *snapshots.tables[0];
  EXPECT_GT(budget.usage().index, index + static_cast<int64_t>(kRows) * 60) << "the records of the snapshot";
  ASSERT_THAT(table_->Delete(std::span(keys).first(1000)), test::IsOkAndHolds(1000));
  EXPECT_EQ(budget.usage().parked, 1000 * one);
  shown.ReleaseThrough(2999);
  EXPECT_EQ(budget.usage().parked, 0);
  EXPECT_EQ(budget.usage().chunks, budget.usage().stored);
  // Of rows that are removed now, it has read two pages of 1024.
  ASSERT_THAT(table_->Delete(std::span(keys).subspan(1000)), test::IsOkAndHolds(4000));
  EXPECT_EQ(budget.usage().parked, (static_cast<int64_t>(kRows) - 2048) * one);
  EXPECT_EQ(shown.row(3000).key, keys[3000]);
  // A second snapshot may show what the first one has read.
  Put({.columns = {"x"}}, {MakeRow("late", {10})})->rows.clear();
  ConcurrentRows::Snapshots second = ConcurrentRows::TakeSnapshots(std::vector{table_});
  shown.ReleaseThrough(kRows - 1);
  ASSERT_THAT(table_->Delete(std::vector<std::string>{"late"}), test::IsOkAndHolds(1));
  EXPECT_EQ(second.tables[0]->row(0).key, "late");
  EXPECT_GE(budget.usage().parked, one);
  snapshots.tables.clear();
  EXPECT_EQ(second.tables[0]->row(0).key, "late");
  second.tables.clear();
  EXPECT_EQ(budget.usage().chunks, 0);
  table_.reset();
  EXPECT_EQ(budget.usage().index, 0);
}

TEST_F(RowTableTest, ParkedRowsOfATieredStoreCountWithTheirPinnedData) {
  test::FakeFileSystem files;
  Result<ChunkTierPtr> tier = ChunkTier::Open(
      &files, {.path = "/tier", .memory_limit = 1 << 20, .disk_limit = 1 << 20, .min_payload_bytes = 1});
  ASSERT_THAT(tier.status(), IsOk());
  store_ = std::make_shared<ChunkStore>(ChunkStore::Options{.memory_limit = int64_t{1} << 30}, &clock_,
                                        *std::move(tier));
  table_ = ConcurrentRows::Create({.name = "rollouts"}, {.store = store_, .clock = &clock_}).value();
  const MemoryBudget& budget = store_->budget();
  Put({.columns = {"x"}}, {MakeRow("a", {1000})})->rows.clear();
  const MemoryBudget::Usage before = budget.usage();
  ConcurrentRows::Snapshots snapshots = ConcurrentRows::TakeSnapshots(std::vector{table_});
  EXPECT_THAT(table_->Delete(std::vector<std::string>{"a"}), test::IsOkAndHolds(1));
  EXPECT_EQ(budget.usage().stored, 0);
  EXPECT_EQ(budget.usage().parked, before.stored);
  EXPECT_EQ(budget.usage().transit(), before.transit());
  snapshots.tables.clear();
  EXPECT_EQ(budget.usage().parked, 0);
  table_.reset();
  store_.reset();
}

TEST_F(RowTableTest, ReservationsWaitForTheTrainer) {
  Open({.consumers = {"train"}, .staleness = StalenessOptions{.max_lag = 0, .batch = 2}});
  const Handle first = Reserve(2);
  EXPECT_TRUE(first->is_finished);
  const Handle second = Reserve(1);
  EXPECT_FALSE(second->is_finished);
  Put({.columns = {"x"}, .reservation = first->reservation}, {MakeRow("a", {1}), MakeRow("b", {1})});
  EXPECT_FALSE(second->is_finished);
  EXPECT_THAT(table_->SetVersion(1), IsOk());
  EXPECT_TRUE(second->is_finished);
  EXPECT_EQ(second->table_version, 1);
}

TEST_F(RowTableTest, ClosingEndsAllWaits) {
  Open({.max_rows = 1, .consumers = {"train"}});
  Put({.columns = {"x"}}, {MakeRow("a", {1})});
  const Handle put = Put({.columns = {"x"}}, {MakeRow("b", {1})});
  const Handle claim = Claim({.consumer = "train", .needs = {"y"}});
  table_->Close();
  EXPECT_THAT(put->status, StatusIs(StatusCode::kCancelled, Detail::kTableClosed));
  EXPECT_THAT(claim->status, StatusIs(StatusCode::kCancelled, Detail::kTableClosed));
  EXPECT_THAT(Claim({.consumer = "train"})->status, StatusIs(StatusCode::kCancelled));
  table_->Remove();
  EXPECT_THAT(table_->Get(std::vector<std::string>{"a"}, {}), IsEmpty());
}

TEST_F(RowTableTest, ABadConditionFailsTheClaim) {
  Open({.consumers = {"train"}});
  EXPECT_THAT(Claim({.consumer = "train", .where = "reward ="})->status,
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("write == to compare")));
}

// Producers, a stage and two trainers: each row is consumed once by each consumer, in whole groups.
TEST(RowTableThreadsTest, EveryRowIsConsumedOnceByEachConsumer) {
  constexpr int kGroups = 100;
  constexpr int kGroupSize = 4;
  auto store = std::make_shared<ChunkStore>(ChunkStore::Options());
  const std::shared_ptr<ConcurrentRows> table =
      ConcurrentRows::Create(
          {.name = "rows", .max_rows = 64, .group_size = kGroupSize, .consumers = {"stage", "train"}},
          {.store = store})
          .value();
  // Runs an operation to its end on this thread.
  const auto run = [&](const Handle& operation) {
    Mutex mu;
    CondVar done_signal;
    bool is_done = false;
    operation->on_done = [&](RowOperation&) {
      MutexLock lock(&mu);
      is_done = true;
      done_signal.NotifyAll();
    };
    table->Start(operation);
    MutexLock lock(&mu);
    while (!is_done) done_signal.Wait(&mu);
  };
  std::vector<std::thread> threads;
  for (int producer = 0; producer < 2; ++producer) {
    threads.emplace_back([&, producer] {
      for (int group = producer; group < kGroups; group += 2) {
        auto put = std::make_shared<RowOperation>(RowOperation::Kind::kWrite);
        put->mode.columns = {"tokens"};
        for (int i = 0; i < kGroupSize; ++i) {
          put->rows.push_back(
              MakeRow(std::to_string(group) + "/" + std::to_string(i), {8}, "g" + std::to_string(group)));
        }
        run(put);
        EXPECT_THAT(put->status, IsOk());
      }
    });
  }
  threads.emplace_back([&] {
    for (int rows = 0; rows < kGroups * kGroupSize;) {
      auto claim = std::make_shared<RowOperation>(RowOperation::Kind::kClaim);
      claim->claim = {
          .consumer = "stage", .count = 7, .at_least = 1, .needs = {"tokens"}, .whole_groups = false};
      run(claim);
      ASSERT_THAT(claim->status, IsOk());
      auto put = std::make_shared<RowOperation>(RowOperation::Kind::kWrite);
      put->mode.columns = {"adv"};
      for (const RowRecord& row : claim->claimed.rows) put->rows.push_back(MakeRow(row.key, {8}));
      run(put);
      EXPECT_THAT(put->status, IsOk());
      rows += static_cast<int>(claim->claimed.rows.size());
      table->Settle(claim->claimed.lease, {}, RowSettlement::kAcknowledge, {});
    }
  });
  Mutex mu;
  std::set<std::string> trained;
  std::atomic<int> left = kGroups / 2;
  for (int trainer = 0; trainer < 2; ++trainer) {
    threads.emplace_back([&] {
      while (left.fetch_sub(1) > 0) {
        auto claim = std::make_shared<RowOperation>(RowOperation::Kind::kClaim);
        claim->claim = {.consumer = "train", .count = 2 * kGroupSize, .needs = {"tokens", "adv"}};
        run(claim);
        ASSERT_THAT(claim->status, IsOk());
        EXPECT_EQ(claim->claimed.rows.size(), 2u * kGroupSize);
        {
          MutexLock lock(&mu);
          for (const RowRecord& row : claim->claimed.rows)
            EXPECT_TRUE(trained.insert(row.key).second) << row.key;
        }
        table->Settle(claim->claimed.lease, {}, RowSettlement::kAcknowledge, {});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(trained.size(), size_t{kGroups} * kGroupSize);
  EXPECT_EQ(table->Info().counts.rows, 0);
  EXPECT_EQ(table->Info().counts.consumed, kGroups * kGroupSize);
  EXPECT_EQ(store->stored_bytes(), 0);
}

}  // namespace
}  // namespace reverb::internal
