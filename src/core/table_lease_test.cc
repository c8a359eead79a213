// Tests of leases: the rules in TableState, and the waits and alarms of ConcurrentTable.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/table.h"
#include "core/table_state_testing.h"
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

class TableStateLeaseTest : public TableStateTest {
 protected:
  static constexpr TimePoint At(int64_t seconds) { return TimePoint(std::chrono::seconds(seconds)); }

  std::vector<LeaseGrant> Lease(TableState* state, int64_t n, int64_t until = 30) {
    std::vector<internal::Sample> samples;
    EXPECT_OK(state->SampleLeased(n, {}, nullptr, false, false, At(until), &samples));
    std::vector<LeaseGrant> grants;
    for (const internal::Sample& sample : samples) grants.push_back({sample.key, sample.lease_id});
    return grants;
  }
  static std::vector<uint64_t> KeysOf(const std::vector<LeaseGrant>& grants) {
    std::vector<uint64_t> keys;
    for (const LeaseGrant& grant : grants) keys.push_back(grant.key);
    return keys;
  }
  static LeaseOutcome Ack(TableState* state, const std::vector<LeaseGrant>& grants) {
    Effects effects;
    return state->Acknowledge(grants, &effects);
  }
  static void AdvanceTo(TableState* state, int64_t seconds) {
    Effects effects;
    EXPECT_FALSE(state->AdvanceTo(At(seconds), &effects));
  }
};

TEST_F(TableStateLeaseTest, ReleasedItemsComeBackToTheirPlace) {
  const auto order_of = [&](const SelectorOptions& sampler) {
    auto state = Make({.sampler = sampler, .max_times_sampled = 1});
    for (uint64_t key = 1; key <= 5; ++key) Insert(state.get(), key, static_cast<double>(key));
    const auto grants = Lease(state.get(), 3);
    Insert(state.get(), 6, 6);
    EXPECT_EQ(state->Release(std::vector{grants[1], grants[0], grants[2]}), (LeaseOutcome{.settled = 3}));
    return SampleKeys(state.get(), 10);
  };
  EXPECT_THAT(order_of(SelectorOptions::Fifo()), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(order_of(SelectorOptions::Lifo()), ElementsAre(6, 5, 4, 3, 2, 1));
  EXPECT_THAT(order_of(SelectorOptions::MinHeap()), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(order_of(SelectorOptions::MaxHeap()), ElementsAre(6, 5, 4, 3, 2, 1));
  EXPECT_THAT(order_of(SelectorOptions::Uniform(1)), UnorderedElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(order_of(SelectorOptions::Prioritized(1, 2)), UnorderedElementsAre(1, 2, 3, 4, 5, 6));
}

TEST_F(TableStateLeaseTest, OnlyAnAcknowledgedSampleCounts) {
  auto state = Make({.sampler = SelectorOptions::Fifo(), .max_times_sampled = 2});
  Insert(state.get(), 1);
  Insert(state.get(), 2);
  const auto grants = Lease(state.get(), 1);
  EXPECT_EQ(state->Find(1)->times_sampled, 0);
  EXPECT_EQ(Info(*state).counters.samples, 0);
  EXPECT_EQ(Info(*state).leases.leased, 1);
  EXPECT_EQ(Ack(state.get(), grants), (LeaseOutcome{.settled = 1}));
  EXPECT_EQ(state->Find(1)->times_sampled, 1);
  EXPECT_EQ(Info(*state).counters.samples, 1);
  EXPECT_EQ(Ack(state.get(), grants), (LeaseOutcome{.settled = 1})) << "repeated, after a lost reply";
  EXPECT_EQ(state->Find(1)->times_sampled, 1) << "counted once";
  EXPECT_EQ(Info(*state).counters.samples, 1);
  EXPECT_EQ(Info(*state).leases.late, 0);
  EXPECT_EQ(Ack(state.get(), Lease(state.get(), 1)), (LeaseOutcome{.settled = 1}));
  EXPECT_THAT(Keys(*state), ElementsAre(2)) << "sampled twice";
  EXPECT_EQ(Info(*state).expirations, 1);
}

TEST_F(TableStateLeaseTest, ALateAcknowledgementDoesNotSettleALaterGrant) {
  auto state = Make({.sampler = SelectorOptions::Fifo(), .max_times_sampled = 1});
  Insert(state.get(), 1);
  const auto first = Lease(state.get(), 1, 10);
  AdvanceTo(state.get(), 9);
  EXPECT_THAT(Lease(state.get(), 1), IsEmpty());
  AdvanceTo(state.get(), 10);
  const auto second = Lease(state.get(), 1, 20);
  ASSERT_THAT(KeysOf(second), ElementsAre(1));
  EXPECT_EQ(Ack(state.get(), first), (LeaseOutcome{.expired = 1}));
  EXPECT_THAT(Keys(*state), ElementsAre(1));
  EXPECT_EQ(Ack(state.get(), second), (LeaseOutcome{.settled = 1}));
  EXPECT_THAT(Keys(*state), IsEmpty());
  const LeaseCounts counts = Info(*state).leases;
  EXPECT_EQ(counts.granted, 2);
  EXPECT_EQ(counts.acknowledged, 1);
  EXPECT_EQ(counts.expired, 1);
  EXPECT_EQ(counts.late, 1);
}

TEST_F(TableStateLeaseTest, AnExtendedLeaseLastsLonger) {
  auto state = Make({.sampler = SelectorOptions::Fifo()});
  Insert(state.get(), 1);
  const auto grants = Lease(state.get(), 1, 10);
  EXPECT_EQ(state->Extend(grants, At(30)), (LeaseOutcome{.settled = 1}));
  AdvanceTo(state.get(), 29);
  EXPECT_EQ(state->num_leased(), 1);
  AdvanceTo(state.get(), 30);
  EXPECT_EQ(state->num_leased(), 0);
  EXPECT_FALSE(state->depends_on_time());
}

TEST_F(TableStateLeaseTest, LeasesCannotExceedTheRatio) {
  auto state = Make({.sampler = SelectorOptions::Fifo(),
                     .rate_limiter = {.samples_per_insert = 1, .min_diff = 0, .max_diff = 4}});
  for (uint64_t key = 1; key <= 4; ++key) Insert(state.get(), key);
  auto grants = Lease(state.get(), 3);
  ASSERT_EQ(grants.size(), 3u);
  EXPECT_THAT(Sample(state.get(), 5), ::testing::SizeIs(1)) << "the limiter allows four in all";
  EXPECT_FALSE(state->CanSample());
  EXPECT_EQ(state->SampleWaitReason(), WaitReason::kLeased);
  EXPECT_EQ(state->Release({&grants[0], 1}), (LeaseOutcome{.settled = 1}));
  EXPECT_TRUE(state->CanSample());
}

TEST_F(TableStateLeaseTest, ALeaseOfAnItemThatLeftCountsItsSample) {
  auto state = Make({.sampler = SelectorOptions::Fifo(),
                     .max_size = 2,
                     .rate_limiter = {.samples_per_insert = 1, .min_diff = 0, .max_diff = 100}});
  Insert(state.get(), 1);
  Insert(state.get(), 2);
  const auto grants = Lease(state.get(), 2);
  Insert(state.get(), 3);  // evicts 1
  Delete(state.get(), {2});
  EXPECT_THAT(Keys(*state), ElementsAre(3));
  EXPECT_EQ(state->num_leased(), 0);
  EXPECT_EQ(Ack(state.get(), grants), (LeaseOutcome{.gone = 2}));
  EXPECT_EQ(Info(*state).counters.samples, 2);
  EXPECT_THAT(SampleKeys(state.get(), 5), ElementsAre(3)) << "one insert is left to be sampled";
}

TEST_F(TableStateLeaseTest, LeasesOfItemsThatLeftAreBounded) {
  auto state = Make({.sampler = SelectorOptions::Lifo(), .max_size = 4});
  std::vector<LeaseGrant> grants;
  for (uint64_t key = 1; key <= 100; ++key) {
    Insert(state.get(), key);  // evicts the oldest, which is leased
    grants.push_back(Lease(state.get(), 1, 1'000'000).at(0));
  }
  EXPECT_EQ(Info(*state).leases.expired, 92);
  EXPECT_EQ(Ack(state.get(), grants), (LeaseOutcome{.settled = 4, .gone = 4, .expired = 92}))
      << "the oldest leases ended";
  EXPECT_FALSE(state->has_leases());
  Effects effects;
  state->Change({.max_size = 1}, {.now = At(1), .wall_nanos = 1});
  while (state->EvictExcess(1, &effects)) {
  }
  for (uint64_t key = 201; key <= 210; ++key) {
    Insert(state.get(), key);
    Lease(state.get(), 1, 1'000'000);
  }
  EXPECT_EQ(Info(*state).leases.expired, 92 + 8) << "one leased item, one lease of an item that left";
}

TEST_F(TableStateLeaseTest, AFailedWholeBatchKeepsTheOrderOfReturnedItems) {
  auto state = Make({.sampler = SelectorOptions::Fifo(),
                     .max_times_sampled = 1,
                     .rate_limiter = RateLimiterOptions::MinSize(1)});
  for (uint64_t key = 1; key <= 4; ++key) Insert(state.get(), key);
  const auto grants = Lease(state.get(), 3);
  EXPECT_EQ(state->Release(std::vector{grants[0], grants[2]}), (LeaseOutcome{.settled = 2}));
  std::vector<internal::Sample> samples;
  Effects effects;
  ASSERT_OK(state->SampleBatch(4, {}, nullptr, /*whole=*/true, false, &samples, &effects));
  EXPECT_THAT(samples, IsEmpty());
  state->Release({&grants[1], 1});
  EXPECT_THAT(SampleKeys(state.get(), 4), ElementsAre(1, 2, 3, 4));
}

TEST_F(TableStateLeaseTest, AResetForgetsLeases) {
  auto state = Make({.sampler = SelectorOptions::Fifo()});
  Insert(state.get(), 1);
  Insert(state.get(), 2);
  const auto grants = Lease(state.get(), 2);
  EXPECT_EQ(Ack(state.get(), {grants[1]}), (LeaseOutcome{.settled = 1}));
  Reset(state.get());
  Insert(state.get(), 1);
  EXPECT_EQ(Ack(state.get(), grants), (LeaseOutcome{.expired = 2}));
  EXPECT_EQ(Info(*state).counters.samples, 0);
  EXPECT_THAT(SampleKeys(state.get(), 1), ElementsAre(1));
}

TEST_F(TableStateLeaseTest, HooksRunWhenASampleIsAcknowledged) {
  std::vector<std::string> log;
  auto recorder = std::make_shared<Recorder>("r", &log);
  recorder->then = [](const std::string& what, const ItemView& item, TableExtension::Context& context) {
    if (what == "sample") context.UpdatePriority(item.key, 7);
  };
  auto state = Make({.sampler = SelectorOptions::MaxHeap(), .extensions = {recorder}});
  Insert(state.get(), 1, 1);
  Insert(state.get(), 2, 2);
  log.clear();
  const auto grants = Lease(state.get(), 2);
  EXPECT_THAT(log, IsEmpty());
  EXPECT_EQ(state->Release({&grants[0], 1}), (LeaseOutcome{.settled = 1}));
  EXPECT_THAT(log, IsEmpty());
  Ack(state.get(), {grants[1]});
  EXPECT_THAT(log, ElementsAre("r: sample 1 priority 1 times 1"));
  EXPECT_THAT(SampleKeys(state.get(), 1), ElementsAre(1)) << "has priority 7 now";
}

TEST_F(TableStateLeaseTest, BatchRulesThatAnItemViolatesLeaseNothing) {
  auto state = Make({.sampler = SelectorOptions::Fifo(), .max_times_sampled = 1});
  Insert(state.get(), 1);
  Item longer{.key = 2,
              .priority = 1,
              .trajectory = Trajectory::Single(test::MakeChunk(&store_, 1, 0, 2), 0, 2).value()};
  Effects effects;
  state->InsertOrAssign(std::move(longer), 5, &effects);
  std::vector<internal::Sample> samples;
  EXPECT_THAT(
      state->SampleLeased(2, {.check = BatchCheck::kSameShape}, nullptr, false, false, At(9), &samples),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("no item was removed")));
  EXPECT_THAT(samples, IsEmpty());
  EXPECT_EQ(state->num_leased(), 0);
  EXPECT_EQ(Info(*state).leases.granted, 0);
  EXPECT_THAT(SampleKeys(state.get(), 2), ElementsAre(1, 2));
}

class TableLeaseTest : public TableFixture {
 protected:
  std::vector<LeaseGrant> Lease(ConcurrentTable& table, int64_t n, Duration lease = 30s) {
    std::vector<internal::Sample> samples;
    (void)table.Sample(n, true, {.timeout = Duration(0)}, &samples, {.lease = lease});
    std::vector<LeaseGrant> grants;
    for (const internal::Sample& sample : samples) grants.push_back({sample.key, sample.lease_id});
    return grants;
  }
};

TEST_F(TableLeaseTest, AnExpiredLeaseWakesAWaitingSampler) {
  auto table = MakeQueue(3);
  ASSERT_OK(Insert(*table, 1));
  ASSERT_OK(Insert(*table, 2));
  ASSERT_EQ(Lease(*table, 2, 10s).size(), 2u);
  Pending* const waiting = SampleAsync(*table, 1);
  EXPECT_EQ(table->Info().sample_wait_reason, WaitReason::kLeased);
  clock_.Advance(10s - 1ns);
  EXPECT_FALSE(waiting->done);
  clock_.Advance(1ns);
  ASSERT_TRUE(waiting->done);
  EXPECT_THAT(waiting->keys, ElementsAre(1)) << "in the order of the queue";
  EXPECT_THAT(Sample(*table, 2), ElementsAre(2));
  EXPECT_EQ(table->Info().leases.expired, 2);
  EXPECT_EQ(clock_.pending(), 0) << "no alarm is needed without leases";
}

TEST_F(TableLeaseTest, AReleaseWakesAWaitingSamplerAndAnAckAWaitingInsert) {
  auto table = MakeQueue(2);
  ASSERT_OK(Insert(*table, 1));
  ASSERT_OK(Insert(*table, 2));
  const auto grants = Lease(*table, 2);
  Pending* const insert = InsertAsync(*table, {3});
  Pending* const sample = SampleAsync(*table, 1);
  EXPECT_FALSE(insert->done) << "leased items occupy the queue";
  EXPECT_FALSE(sample->done);
  EXPECT_EQ(table->Release({&grants[1], 1}), (LeaseOutcome{.settled = 1}));
  EXPECT_TRUE(sample->done);
  EXPECT_THAT(sample->keys, ElementsAre(2));
  EXPECT_TRUE(insert->done) << "the sample made room";
  Pending* const second = InsertAsync(*table, {4});
  EXPECT_FALSE(second->done);
  EXPECT_EQ(table->Acknowledge({&grants[0], 1}), (LeaseOutcome{.settled = 1}));
  EXPECT_TRUE(second->done);
  EXPECT_THAT(Sample(*table, 5), ElementsAre(3, 4));
}

TEST_F(TableLeaseTest, ATimeoutNamesTheLeases) {
  auto table = MakeQueue(3);
  ASSERT_OK(Insert(*table, 1));
  ASSERT_EQ(Lease(*table, 1).size(), 1u);
  std::vector<internal::Sample> samples;
  EXPECT_THAT(
      table->Sample(1, false, {.timeout = Duration(0)}, &samples),
      StatusIs(StatusCode::kDeadlineExceeded, Detail::kRateLimited,
               ::testing::AllOf(HasSubstr("items are leased"), HasSubstr("items that are leased: 1"))));
}

TEST_F(TableLeaseTest, AWholeBatchWaitsForLeasedItems) {
  auto table = MakeQueue(4);
  for (uint64_t key = 1; key <= 4; ++key) ASSERT_OK(Insert(*table, key));
  const auto grants = Lease(*table, 1);
  Pending* const pending = &pendings_.emplace_back();
  pending->handle = table->SampleAsync(4, true, {}, Recorder(pending),
                                       {.rules = {.all_or_nothing = true}, .lease = Duration(1min)});
  EXPECT_FALSE(pending->done);
  table->Release(grants);
  ASSERT_TRUE(pending->done);
  EXPECT_THAT(pending->keys, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(
      table->SampleAsync(5, true, {}, [](Operation&) {}, {.rules = {.all_or_nothing = true}, .lease = 1min})
          ->status,
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("5 samples can never be leased together")));
}

TEST_F(TableLeaseTest, ATableWhoseItemsAreAllLeasedCannotBeSampled) {
  auto table = Make({.sampler = SelectorOptions::Fifo()});
  ASSERT_OK(Insert(*table, 1));
  EXPECT_THAT(table->CanSample(1), test::IsOkAndHolds(true));
  const auto grants = Lease(*table, 1);
  EXPECT_THAT(table->CanSample(1), test::IsOkAndHolds(false));
  table->Release(grants);
  EXPECT_THAT(table->CanSample(3), test::IsOkAndHolds(true)) << "the same item three times";
}

TEST_F(TableLeaseTest, OnlyIndependentSamplesAreDrawnInParts) {
  EXPECT_TRUE(BatchOrder().is_divisible());
  EXPECT_FALSE((BatchOrder{.rules = {.all_or_nothing = true}}.is_divisible()));
  EXPECT_FALSE((BatchOrder{.rules = {.check = BatchCheck::kSameShape}}.is_divisible()));
  EXPECT_FALSE((BatchOrder{.lease = 1s}.is_divisible()));
}

TEST_F(TableLeaseTest, ASnapshotShowsLeasedItemsAsNotSampled) {
  for (const SelectorOptions& sampler : AllSelectors()) {
    auto table = Make({.sampler = sampler, .max_times_sampled = 1});
    for (uint64_t key = 1; key <= 6; ++key) ASSERT_OK(Insert(*table, key));
    const auto grants = Lease(*table, 4);
    ASSERT_EQ(grants.size(), 4u) << sampler.ToString();
    const Snapshot snapshot = ConcurrentTable::TakeSnapshot({&table, 1});
    EXPECT_EQ(table->Acknowledge(grants), (LeaseOutcome{.settled = 4}));
    const TableSnapshot& taken = *snapshot.tables[0];
    EXPECT_EQ(taken.size(), 6);
    EXPECT_EQ(taken.state().counters.samples, 0);
    for (size_t slot = 0; slot < taken.num_slots(); ++slot) EXPECT_EQ(taken.slot(slot).times_sampled, 0);
    EXPECT_EQ(Sample(*table, 10).size(), 2u) << sampler.ToString();
  }
}

}  // namespace
}  // namespace reverb::internal
