#include "core/table.h"

#include <atomic>
#include <deque>
#include <limits>
#include <set>
#include <thread>
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

class TableTest : public TableFixture {};

TEST_F(TableTest, SampleWaitsUntilMinSizeIsReached) {
  auto table = Make({.sampler = SelectorOptions::Fifo(), .rate_limiter = RateLimiterOptions::MinSize(3)});
  ASSERT_OK(Insert(*table, 1));
  auto sample = SampleAsync(*table, 1);
  ASSERT_OK(Insert(*table, 2));
  EXPECT_FALSE(sample->done);
  ASSERT_OK(Insert(*table, 3));
  EXPECT_TRUE(sample->done);
  EXPECT_OK(sample->status);
  EXPECT_THAT(sample->keys, ElementsAre(1));
}

TEST_F(TableTest, ATimeoutNamesTableReasonAndDuration) {
  auto table = Make({.name = "per", .rate_limiter = RateLimiterOptions::MinSize(100)});
  for (uint64_t key : {1, 2, 3}) ASSERT_OK(Insert(*table, key));
  auto sample = SampleAsync(*table, 1, true, 200ms);
  clock_.Advance(199ms);
  EXPECT_FALSE(sample->done);
  clock_.Advance(1ms);
  ASSERT_TRUE(sample->done);
  EXPECT_EQ(sample->status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(sample->status.detail(), Detail::kRateLimited);
  const std::string text(sample->status.message());
  EXPECT_THAT(text, HasSubstr("table \"per\""));
  EXPECT_THAT(text, HasSubstr("200ms"));
  EXPECT_THAT(text, HasSubstr("size 3, min_size_to_sample 100"));
  EXPECT_THAT(text, HasSubstr("Timeout exceeded"));
}

TEST_F(TableTest, ATimeoutOfZeroTriesOnce) {
  auto table = MakeQueue(1);
  ASSERT_OK(Insert(*table, 1));
  EXPECT_THAT(Insert(*table, 2), StatusIs(StatusCode::kDeadlineExceeded, Detail::kRateLimited));
  EXPECT_EQ(table->Info().waiting_inserts, 0);
  EXPECT_EQ(clock_.pending(), 0);
  // Only this item: the insert that timed out must not take effect later.
  EXPECT_THAT(Sample(*table, 1), ElementsAre(1));
  EXPECT_EQ(table->size(), 0);
}

TEST_F(TableTest, ATimedOutInsertIsNotAppliedLater) {
  auto table = MakeQueue(1);
  auto insert = InsertAsync(*table, {1, 2, 3}, 50ms);
  EXPECT_EQ(table->size(), 1);
  clock_.Advance(50ms);
  ASSERT_TRUE(insert->done);
  EXPECT_THAT(insert->status, StatusIs(StatusCode::kDeadlineExceeded, Detail::kRateLimited));
  EXPECT_EQ(insert->progress, 1) << "tells how much of it went in";
  EXPECT_THAT(Sample(*table, 5), ElementsAre(1));
  EXPECT_TRUE(Sample(*table, 5).empty());
}

TEST_F(TableTest, InsertsAndSamplesRunInOrderOfArrival) {
  auto table = MakeQueue(2);
  std::vector<Pending*> inserts;
  for (uint64_t key = 1; key <= 6; ++key) inserts.push_back(InsertAsync(*table, {key}));
  EXPECT_TRUE(inserts[1]->done);
  EXPECT_FALSE(inserts[2]->done);
  EXPECT_EQ(table->Info().waiting_inserts, 4);
  std::vector<uint64_t> drawn;
  for (int i = 0; i < 6; ++i) {
    for (uint64_t key : Sample(*table, 1)) drawn.push_back(key);
  }
  EXPECT_THAT(drawn, ElementsAre(1, 2, 3, 4, 5, 6));
  for (const auto& insert : inserts) EXPECT_TRUE(insert->done);
}

TEST_F(TableTest, ABlockedCallerIsNotOvertakenByALaterOne) {
  auto table = Make({.sampler = SelectorOptions::Fifo(),
                     .max_times_sampled = 1,
                     .rate_limiter = RateLimiterOptions::Queue(10)});
  auto large = SampleAsync(*table, 3, false);
  auto small = SampleAsync(*table, 1);
  ASSERT_OK(Insert(*table, 1));
  ASSERT_OK(Insert(*table, 2));
  EXPECT_FALSE(large->done);
  EXPECT_FALSE(small->done) << "the first in line holds what it has drawn";
  ASSERT_OK(Insert(*table, 3));
  EXPECT_TRUE(large->done);
  EXPECT_THAT(large->keys, ElementsAre(1, 2, 3));
  EXPECT_FALSE(small->done);
  ASSERT_OK(Insert(*table, 4));
  EXPECT_THAT(small->keys, ElementsAre(4));
}

TEST_F(TableTest, SamplesDrawnBeforeATimeoutAreReturned) {
  auto table = MakeQueue(10);
  auto sample = SampleAsync(*table, 3, false, 10ms);
  ASSERT_OK(Insert(*table, 1));
  clock_.Advance(10ms);
  ASSERT_TRUE(sample->done);
  EXPECT_EQ(sample->status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(sample->keys, ElementsAre(1));
}

TEST_F(TableTest, APartialSampleReturnsAvailableItems) {
  auto table = MakeQueue(10);
  ASSERT_OK(Insert(*table, 1));
  ASSERT_OK(Insert(*table, 2));
  EXPECT_THAT(Sample(*table, 5), ElementsAre(1, 2));
}

TEST_F(TableTest, OnlySamplesThatWaitedAreMarkedRateLimited) {
  auto table = Make({.sampler = SelectorOptions::Fifo(), .rate_limiter = RateLimiterOptions::MinSize(1)});
  std::vector<bool> flags;
  const auto record = [&](Operation& op) { flags.push_back(op.own_samples.at(0).rate_limited); };
  table->SampleAsync(1, true, {}, record);
  ASSERT_OK(Insert(*table, 1));
  table->SampleAsync(1, true, {}, record);
  EXPECT_THAT(flags, ElementsAre(true, false));
}

TEST_F(TableTest, PriorityUpdatesDoNotQueueBehindBlockedInserts) {
  auto table = MakeQueue(1);
  ASSERT_OK(Insert(*table, 1, 1.0));
  auto blocked = InsertAsync(*table, {2});
  EXPECT_FALSE(blocked->done);
  ASSERT_OK(Insert(*table, 1, 7.0)) << "the key is there, so this only sets its priority";
  EXPECT_EQ(table->Find(1)->priority, 7.0);
  const KeyPriority update{1, 8.0};
  ASSERT_OK(table->Mutate({&update, 1}, {}));
  EXPECT_EQ(table->Find(1)->priority, 8.0);
  EXPECT_FALSE(blocked->done);
}

TEST_F(TableTest, AttemptsReportTheReasonInsteadOfWaiting) {
  auto table = MakeQueue(2);
  std::vector<Item> items;
  for (uint64_t key = 1; key <= 3; ++key) {
    items.push_back(MakeItem(key));
    items.back().number = 10 + key;
  }
  std::atomic<uint64_t> last_stored{0};
  ConcurrentTable::Attempt attempt = table->TryInsert(items, &last_stored);
  EXPECT_OK(attempt.status);
  EXPECT_EQ(attempt.progress, 2);
  EXPECT_EQ(attempt.reason, WaitReason::kTooManyInserts);
  EXPECT_EQ(last_stored, 12u);
  EXPECT_FALSE(items[2].trajectory.empty()) << "the item that was not stored stays with the caller";

  std::vector<internal::Sample> samples;
  attempt = table->TrySample(5, &samples);
  EXPECT_OK(attempt.status);
  EXPECT_EQ(attempt.progress, 2);
  EXPECT_EQ(attempt.reason, WaitReason::kNone) << "fewer samples than requested are enough";
  EXPECT_THAT(Keys(samples), ElementsAre(1, 2));
  attempt = table->TrySample(5, &samples);
  EXPECT_OK(attempt.status);
  EXPECT_EQ(attempt.progress, 0);
  EXPECT_EQ(attempt.reason, WaitReason::kMinSize);
  EXPECT_THAT(table->TrySample(0, &samples).status, StatusIs(StatusCode::kInvalidArgument));
  EXPECT_EQ(table->Info().waiting_samples, 0);

  table->Close();
  EXPECT_THAT(table->TrySample(1, &samples).status, StatusIs(StatusCode::kCancelled));
  EXPECT_THAT(table->TryInsert({&items[2], 1}).status, StatusIs(StatusCode::kCancelled));
}

TEST_F(TableTest, AttemptsQueueBehindWaitingOperations) {
  auto table = MakeQueue(1);
  ASSERT_OK(Insert(*table, 1));
  auto blocked = InsertAsync(*table, {2});
  Item item = MakeItem(3);
  const ConcurrentTable::Attempt attempt = table->TryInsert({&item, 1});
  EXPECT_EQ(attempt.reason, WaitReason::kQueued);
  EXPECT_EQ(attempt.progress, 0);
  EXPECT_FALSE(blocked->done);
  EXPECT_EQ(table->Info().waiting_inserts, 1);
}

TEST_F(TableTest, ADeleteUnblocksInserts) {
  auto table =
      Make({.max_size = 10, .rate_limiter = {.min_size_to_sample = 1, .min_diff = 0, .max_diff = 2}});
  for (uint64_t key : {1, 2}) ASSERT_OK(Insert(*table, key));
  auto blocked = InsertAsync(*table, {3});
  const uint64_t first[] = {1}, second[] = {2};
  ASSERT_OK(table->Mutate({}, first));
  EXPECT_FALSE(blocked->done) << "the cursor does not move with deletes";
  ASSERT_OK(table->Mutate({}, second));
  EXPECT_TRUE(blocked->done) << "the table is back at its minimum size";
}

TEST_F(TableTest, ChangingTheLimiterUnblocksWaitingOperations) {
  auto table = Make({.rate_limiter = RateLimiterOptions::MinSize(5)});
  ASSERT_OK(Insert(*table, 1));
  auto sample = SampleAsync(*table, 1);
  EXPECT_THAT(table->SetRateLimiter({.samples_per_insert = 0}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_FALSE(sample->done);
  ASSERT_OK(table->SetRateLimiter(RateLimiterOptions::MinSize(1)));
  EXPECT_TRUE(sample->done);
}

TEST_F(TableTest, ResetKeepsWaitingOperations) {
  auto table = MakeQueue(1);
  ASSERT_OK(Insert(*table, 1));
  auto insert = InsertAsync(*table, {2});
  table->Reset();
  EXPECT_TRUE(insert->done) << "goes in under the fresh limiter";
  EXPECT_OK(insert->status);
  EXPECT_THAT(Sample(*table, 5), ElementsAre(2));
  EXPECT_EQ(store_->stats().live_chunks, 0);
}

TEST_F(TableTest, CloseFailsAllWaitingOperations) {
  auto table = MakeQueue(1);
  auto sample = SampleAsync(*table, 1);
  ASSERT_OK(Insert(*table, 1));
  ASSERT_TRUE(sample->done);
  ASSERT_OK(Insert(*table, 2));
  auto insert = InsertAsync(*table, {3}, 1h);
  auto other = Make({.name = "empty"});
  auto waiting = SampleAsync(*other, 1);
  table->Close();
  other->Close();
  EXPECT_THAT(insert->status, StatusIs(StatusCode::kCancelled, Detail::kTableClosed));
  EXPECT_THAT(waiting->status, StatusIs(StatusCode::kCancelled, Detail::kTableClosed));
  EXPECT_THAT(Insert(*table, 4), StatusIs(StatusCode::kCancelled, Detail::kTableClosed));
  std::vector<internal::Sample> samples;
  EXPECT_THAT(table->Sample(1, true, {}, &samples), StatusIs(StatusCode::kCancelled, Detail::kTableClosed));
  // Reads and changes still work.
  EXPECT_EQ(table->Info().current_size, 1);
  EXPECT_TRUE(table->Info().closed);
  const KeyPriority update{2, 5.0};
  EXPECT_OK(table->Mutate({&update, 1}, {}));
  EXPECT_EQ(table->Find(2)->priority, 5.0);
}

TEST_F(TableTest, CancelEndsOneWaitAndNoOther) {
  auto table = Make({});
  auto first = SampleAsync(*table, 1);
  auto second = SampleAsync(*table, 1, true, 1h);
  table->Cancel(first->handle);
  EXPECT_THAT(first->status, StatusIs(StatusCode::kCancelled, Detail::kNone));
  EXPECT_FALSE(second->done);
  ASSERT_OK(Insert(*table, 1));
  EXPECT_OK(second->status);
  table->Cancel(second->handle);  // too late: nothing happens
  EXPECT_OK(second->status);
}

TEST_F(TableTest, ASynchronousWaitCanBeCancelledFromAnotherThread) {
  auto table = Make({});
  Cancellation cancellation;
  Status status;
  std::thread sampler([&] {
    std::vector<internal::Sample> samples;
    status = table->Sample(1, true, {.cancellation = &cancellation}, &samples);
  });
  while (table->Info().waiting_samples == 0) std::this_thread::yield();
  cancellation.Cancel();
  sampler.join();
  EXPECT_THAT(status, StatusIs(StatusCode::kCancelled, Detail::kNone));
  std::vector<internal::Sample> samples;
  EXPECT_THAT(table->Sample(1, true, {.cancellation = &cancellation}, &samples),
              StatusIs(StatusCode::kCancelled, Detail::kNone))
      << "and stays cancelled";
}

TEST_F(TableTest, TheNextInLineWaitsForItsOwnReason) {
  auto table = Make({.rate_limiter = RateLimiterOptions::MinSize(2)});
  auto first = SampleAsync(*table, 1, true, 10ms);
  auto second = SampleAsync(*table, 1, true, 20ms);
  clock_.Advance(10ms);
  EXPECT_TRUE(first->done);
  EXPECT_EQ(table->Info().sample_wait_reason, WaitReason::kMinSize);
  clock_.Advance(10ms);
  EXPECT_THAT(second->status, StatusIs(StatusCode::kDeadlineExceeded, Detail::kRateLimited));
}

TEST_F(TableTest, SynchronousCallersWakeWhenTheirTurnComes) {
  auto table = MakeQueue(1);
  std::vector<uint64_t> drawn;
  std::thread consumer([&] {
    std::vector<internal::Sample> samples;
    for (int i = 0; i < 100; ++i) ASSERT_OK(table->Sample(1, true, {}, &samples));
    drawn = Keys(samples);
  });
  for (uint64_t key = 0; key < 100; ++key) ASSERT_OK(table->Insert(MakeItem(key)));
  consumer.join();
  ASSERT_EQ(drawn.size(), 100u);
  for (uint64_t key = 0; key < 100; ++key) EXPECT_EQ(drawn[key], key);
}

TEST_F(TableTest, ASampleThatWaitsSeesEveryItemOfABatch) {
  auto table = Make({.sampler = SelectorOptions::Fifo(), .max_size = 1});
  auto sample = SampleAsync(*table, 1);
  std::vector<Item> items;
  for (uint64_t key : {1, 2, 3}) items.push_back(MakeItem(key));
  ASSERT_OK(table->Insert(items));
  EXPECT_THAT(sample->keys, ElementsAre(1)) << "not the last, which has evicted the others";
}

TEST_F(TableTest, ALongRunOfCallbacksIsHandedOff) {
  auto table = MakeQueue(1);
  int64_t callbacks = 0;
  // Each callback triggers the next one.
  std::function<void(Operation&)> next = [&](Operation&) {
    if (++callbacks == 10'000) return;
    std::vector<Item> items;
    items.push_back(MakeItem(7));  // the key exists: never waits
    table->InsertAsync(std::move(items), {}, next);
  };
  ASSERT_OK(Insert(*table, 7));
  std::vector<Item> items;
  items.push_back(MakeItem(7));
  table->InsertAsync(std::move(items), {}, next);
  EXPECT_LT(callbacks, 10'000) << "the caller got away";
  for (int i = 0; i < 1000 && callbacks < 10'000; ++i) clock_.Advance(0ms);
  EXPECT_EQ(callbacks, 10'000);
}

TEST_F(TableTest, ACallbackMayHoldTheLastReference) {
  auto table = Make({});
  Status status;
  ConcurrentTable* const raw = table.get();
  raw->SampleAsync(1, true, 5ms, [&status, table](Operation& op) { status = op.status; });
  bool other = false;
  raw->SampleAsync(1, true, {}, [&other](Operation&) { other = true; });
  table.reset();
  clock_.Advance(5ms);  // the first operation ends, and with it the table
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(other) << "who waited in it was told";
}

TEST_F(TableTest, ChunksOfAnotherStoreAreRefused) {
  auto table = Make({});
  ChunkStore other{{}};
  EXPECT_THAT(table->Insert(test::MakeItem(1, 1, test::MakeChunk(&other, 1, 0, 1))),
              StatusIs(StatusCode::kInvalidArgument));
}

TEST_F(TableTest, CallbacksRunInTheOrderOperationsEnd) {
  auto table = MakeQueue(3);
  std::vector<Pending*> pending;
  for (uint64_t key = 0; key < 8; ++key) pending.push_back(InsertAsync(*table, {key}));
  for (int i = 0; i < 5; ++i) (void)Sample(*table, 1);
  ASSERT_EQ(order_.size(), 8u);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(order_[i], pending[i]);
}

TEST_F(TableTest, ACallbackMayCallTheTable) {
  auto table = MakeQueue(1);
  std::vector<uint64_t> drawn;
  // Each callback requests the next sample.
  std::function<void(Operation&)> next = [&](Operation& op) {
    for (const internal::Sample& sample : op.own_samples) drawn.push_back(sample.key);
    if (drawn.size() < 500) table->SampleAsync(1, true, {}, next);
  };
  table->SampleAsync(1, true, {}, next);
  for (uint64_t key = 0; key < 500; ++key) ASSERT_OK(Insert(*table, key));
  EXPECT_EQ(drawn.size(), 500u);
}

TEST_F(TableTest, ARejectedItemFailsOnlyItsCall) {
  auto table = Make({.sampler = SelectorOptions::Prioritized(1.0, 1)});
  std::vector<Item> items;
  items.push_back(MakeItem(1, 1.0));
  items.push_back(MakeItem(2, -1.0));
  int64_t applied = -1;
  EXPECT_THAT(table->Insert(items, {}, &applied),
              StatusIs(StatusCode::kInvalidArgument, Detail::kInvalidPriority));
  EXPECT_EQ(applied, 0);
  EXPECT_EQ(table->size(), 0);
  auto async = InsertAsync(*table, {3});
  EXPECT_OK(async->status);
  EXPECT_THAT(table->CheckItem(MakeItem(4, std::numeric_limits<double>::quiet_NaN())),
              StatusIs(StatusCode::kInvalidArgument, Detail::kInvalidPriority));
  const KeyPriority updates[] = {{3, 5.0}, {3, std::numeric_limits<double>::infinity()}};
  EXPECT_THAT(table->Mutate(updates, {}), StatusIs(StatusCode::kInvalidArgument, Detail::kInvalidPriority));
  EXPECT_EQ(table->Find(3)->priority, 1.0) << "all or nothing";
  ASSERT_OK(Insert(*table, 5));
  EXPECT_EQ(Sample(*table, 4).size(), 4u) << "the table goes on";
}

TEST_F(TableTest, RequestingZeroOrTooManySamplesIsAnError) {
  auto table = Make({});
  std::vector<internal::Sample> samples;
  EXPECT_THAT(table->Sample(0, true, {}, &samples), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(table->Sample(std::numeric_limits<int64_t>::max(), true, {}, &samples),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_FALSE(table->CanSample(0).ok());
  EXPECT_FALSE(table->CanInsert(-1).ok());
  EXPECT_TRUE(*table->CanInsert(1'000'000'000));
  EXPECT_FALSE(*table->CanSample(1'000'000'000));
}

TEST_F(TableTest, AnEmptyInsertIsDoneAtOnce) {
  auto table = MakeQueue(1);
  EXPECT_OK(table->Insert(std::span<Item>(), {}));
}

// --- Information ---

TEST_F(TableTest, InfoReportsWaitsByReason) {
  auto table = Make({.rate_limiter = RateLimiterOptions::MinSize(2)});
  (void)SampleAsync(*table, 1);
  (void)SampleAsync(*table, 1);
  clock_.Advance(3s);
  TableInfo info = table->Info();
  EXPECT_EQ(info.waiting_samples, 2);
  EXPECT_EQ(info.sample_wait_reason, WaitReason::kMinSize);
  EXPECT_EQ(info.longest_wait_nanos, Duration(3s).count());
  EXPECT_EQ(info.work_time.waiting_for_inserts_nanos, Duration(3s).count());
  ASSERT_OK(Insert(*table, 1));
  ASSERT_OK(Insert(*table, 2));
  clock_.Advance(1s);
  info = table->Info();
  EXPECT_EQ(info.waiting_samples, 0);
  EXPECT_EQ(info.waits[static_cast<int>(WaitReason::kMinSize)].count, 1);
  EXPECT_EQ(info.waits[static_cast<int>(WaitReason::kMinSize)].total_nanos, Duration(3s).count());
  EXPECT_EQ(info.waits[static_cast<int>(WaitReason::kQueued)].count, 1);
  EXPECT_EQ(info.work_time.idle_nanos, Duration(1s).count());
  EXPECT_EQ(info.counters.inserts, 2);
  EXPECT_EQ(info.counters.samples, 2);
  EXPECT_EQ(info.current_size, 2);
  EXPECT_GT(info.referenced_bytes, 0);
}

TEST_F(TableTest, InfoReportsRates) {
  auto table = Make({});
  for (int second = 0; second < 20; ++second) {
    for (int i = 0; i < 50; ++i) ASSERT_OK(Insert(*table, static_cast<uint64_t>(second * 50 + i)));
    (void)Sample(*table, 100);
    clock_.Advance(1s);
    (void)table->Info();
  }
  const TableInfo info = table->Info();
  EXPECT_NEAR(info.inserts_per_second, 50, 5);
  EXPECT_NEAR(info.samples_per_second, 100, 10);
}

TEST_F(TableTest, PeekingDoesNotCountAsSampling) {
  auto table = Make({});
  for (uint64_t key = 0; key < 10; ++key) ASSERT_OK(Insert(*table, key));
  std::set<uint64_t> seen;
  uint64_t cursor = 0;
  for (;;) {
    const std::vector<internal::Sample> page = table->Peek(3, &cursor);
    if (page.empty()) break;
    for (const internal::Sample& item : page) {
      EXPECT_EQ(item.times_sampled, 0);
      seen.insert(item.key);
    }
  }
  EXPECT_EQ(seen.size(), 10u);
  EXPECT_EQ(table->Info().counters.samples, 0);
}

TEST_F(TableTest, BadOptionsAreErrors) {
  const auto create = [&](TableOptions options) {
    return ConcurrentTable::Create(std::move(options), {.store = store_}).status();
  };
  EXPECT_THAT(create({}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(create({.name = "t", .max_size = 0}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(create({.name = "t", .max_size = int64_t{1} << 40}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(create({.name = "t", .sampler = SelectorOptions::Prioritized(-1)}),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(create({.name = "t", .rate_limiter = {.min_size_to_sample = 0}}),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(create({.name = "t", .extensions = {nullptr}}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(create({.name = "t", .custom_sampler = [] { return nullptr; }}),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(ConcurrentTable::Create({.name = "t"}, {}).status(), StatusIs(StatusCode::kInvalidArgument));
  for (const int64_t most : {0, -1}) {
    const auto store = std::make_shared<ChunkStore>(ChunkStore::Options{.max_bytes = most});
    EXPECT_THAT(ConcurrentTable::Create({.name = "t"}, {.store = store}).status(),
                StatusIs(StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("max_bytes"), HasSubstr(std::to_string(most)), HasSubstr("none"))));
  }
}

// A custom selector that ignores priorities and picks the largest slot.
class HighestSlot final : public Selector {
 public:
  Status CheckPriority(double) const override { return Status::Ok(); }
  SelectorOptions options() const override {
    return {.kind = SelectorOptions::Kind::kCustom, .custom_name = "highest_slot"};
  }
  void Insert(const SelectorItem& item) override { slots_.insert(item.slot); }
  void Update(std::span<const SelectorItem>) override {}
  void Delete(Slot slot) override { slots_.erase(slot); }
  void Clear() override { slots_.clear(); }
  void Sample(std::span<Selection> out) override {
    for (Selection& pick : out) pick = {*slots_.rbegin(), 1.0};
  }

 private:
  std::set<Slot> slots_;
};

TEST_F(TableTest, ACustomSelectorWorks) {
  auto table = Make({.custom_sampler = [] { return std::make_unique<HighestSlot>(); }});
  for (uint64_t key : {10, 11, 12}) ASSERT_OK(Insert(*table, key));
  EXPECT_THAT(Sample(*table, 2), ElementsAre(12, 12));
  EXPECT_EQ(table->Info().sampler.custom_name, "highest_slot");
  EXPECT_THAT(Insert(*table, 13, std::numeric_limits<double>::quiet_NaN()),
              StatusIs(StatusCode::kInvalidArgument, Detail::kInvalidPriority));
}

// --- Snapshots ---

TEST_F(TableTest, ASnapshotIsConsistentAcrossTables) {
  auto a = Make({.name = "a"});
  auto b = Make({.name = "b"});
  ASSERT_OK(Insert(*a, 1));
  ASSERT_OK(Insert(*b, 2));
  const std::vector<std::shared_ptr<ConcurrentTable>> tables = {b, a};
  Snapshot snapshot = ConcurrentTable::TakeSnapshot(tables);
  a->Reset();
  b->Reset();
  ASSERT_OK(Insert(*a, 3));
  ASSERT_EQ(snapshot.tables.size(), 2u);
  EXPECT_EQ(snapshot.tables[0]->state().name, "b");
  EXPECT_EQ(snapshot.tables[0]->item(0).key, 2u);
  EXPECT_EQ(snapshot.tables[1]->item(0).key, 1u);
  EXPECT_EQ(store_->stats().live_chunks, 3) << "what the snapshot shows stays alive";
  snapshot = {};
  EXPECT_EQ(store_->stats().live_chunks, 1);
  EXPECT_TRUE(ConcurrentTable::TakeSnapshot({}).tables.empty());
}

TEST_F(TableTest, APartialInsertStopsWhereItWouldHaveToWait) {
  auto table = MakeQueue(3);
  std::vector<uint64_t> left;
  const auto insert = [&](std::vector<uint64_t> keys) {
    Pending* const pending = &pendings_.emplace_back();
    std::vector<Item> items;
    for (const uint64_t key : keys) items.push_back(MakeItem(key));
    table->InsertAsync(
        std::move(items), {},
        [this, pending, &left](Operation& op) {
          Recorder(pending)(op);
          left.clear();
          for (size_t i = static_cast<size_t>(op.progress); i < op.own_items.size(); ++i) {
            EXPECT_FALSE(op.own_items[i].trajectory.empty()) << "what is not in comes back";
            left.push_back(op.own_items[i].key);
          }
        },
        /*allow_partial=*/true);
    return pending;
  };
  Pending* const first = insert({1, 2, 3, 4, 5});
  EXPECT_TRUE(first->done);
  EXPECT_OK(first->status);
  EXPECT_EQ(first->progress, 3);
  EXPECT_THAT(left, testing::ElementsAre(4, 5));
  Pending* const second = insert({4, 5});
  EXPECT_FALSE(second->done) << "at least one has to go in";
  Pending* const third = insert({6});
  SampleAsync(*table, 1);
  EXPECT_TRUE(second->done);
  EXPECT_EQ(second->progress, 1);
  EXPECT_THAT(left, testing::ElementsAre(5));
  EXPECT_FALSE(third->done);
  SampleAsync(*table, 1);
  EXPECT_TRUE(third->done) << "others come before the rest is put in line again";
}

}  // namespace
}  // namespace reverb::internal
