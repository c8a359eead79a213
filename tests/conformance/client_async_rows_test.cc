// Operations on row tables that no thread waits for, and batches for several ranks, over every transport.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "conformance/client_rows_testing.h"
#include "reverb/async_rows.h"
#include "testing/status_matchers.h"
#include "testing/wait.h"

namespace reverb::test {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Receives the outcome of an operation.
template <typename T>
class Inbox {
 public:
  AsyncRows::Done<T> done() {
    return [state = state_](Result<T> result) {
      internal::MutexLock lock(&state->mu);
      EXPECT_FALSE(state->result.has_value()) << "called twice";
      state->result.emplace(std::move(result));
      return state->accepts.load();
    };
  }
  bool has_result() const {
    internal::MutexLock lock(&state_->mu);
    return state_->result.has_value();
  }
  Result<T> Await() const {
    EXPECT_TRUE(WaitUntil([&] { return has_result(); }));
    internal::MutexLock lock(&state_->mu);
    return *state_->result;
  }
  void Refuse() { state_->accepts = false; }

 private:
  struct State {
    internal::Mutex mu;
    std::optional<Result<T>> result GUARDED_BY(mu);
    std::atomic<bool> accepts{true};
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

class AsyncRowsTest : public RowsFixture {
 protected:
  static int64_t WaitingClaims(const Rows& rows) { return rows.Info(kPatience).value().waiting_claims; }
};

TEST_P(AsyncRowsTest, AWriteEndsTheWaitOfAClaim) {
  const Rows rows = StartRows({.consumers = {"train"}});
  const AsyncRows async(rows);
  Inbox<RowBatch> inbox;
  (void)async.Claim({.consumer = "train", .count = 2, .needs = {"tokens"}}, {}, inbox.done());
  ASSERT_TRUE(WaitUntil([&] { return WaitingClaims(rows) == 1; }));
  EXPECT_FALSE(inbox.has_result());
  PutTokens(rows, {{"a", 1}, {"b", 2}});
  const Result<RowBatch> batch = inbox.Await();
  ASSERT_OK(batch.status());
  EXPECT_THAT(Keys(*batch), ElementsAre("a", "b"));
  Inbox<LeaseOutcome> settled;
  (void)async.Settle(*batch, RowSettlement::kAcknowledge, {}, {}, {}, settled.done());
  EXPECT_THAT(settled.Await(), IsOkAndHolds(LeaseOutcome{.settled = 2}));
}

TEST_P(AsyncRowsTest, TheServerKnowsTheReasonOfATimeout) {
  const AsyncRows async(StartRows({.consumers = {"train"}}));
  Inbox<RowBatch> inbox;
  (void)async.Claim({.consumer = "train", .count = 2}, milliseconds(20), inbox.done());
  EXPECT_THAT(inbox.Await(), StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("waits for 2 rows")));
}

TEST_P(AsyncRowsTest, ACancelledOperationIsGoneAtTheServer) {
  const Rows rows = StartRows({.consumers = {"train"}});
  const AsyncRows async(rows);
  std::vector<Inbox<RowBatch>> inboxes(20);
  std::vector<AsyncCall> calls;
  for (auto& inbox : inboxes) {
    calls.push_back(async.Claim({.consumer = "train", .count = 1}, {}, inbox.done()));
  }
  ASSERT_TRUE(WaitUntil([&] { return WaitingClaims(rows) == 20; }));
  for (const AsyncCall& call : calls) call.Cancel();
  for (const auto& inbox : inboxes) EXPECT_THAT(inbox.Await(), StatusIs(StatusCode::kCancelled));
  ASSERT_TRUE(WaitUntil([&] { return WaitingClaims(rows) == 0; }));
  PutTokens(rows, {{"a", 1}});
  EXPECT_OK(rows.Claim({.consumer = "train", .count = 1}, {.timeout = seconds(0)}).status());
}

// Whatever comes first: the row is with the caller, or free.
TEST_P(AsyncRowsTest, NoRowIsLostWhenTheClaimIsCancelledAsItBecomesReady) {
  const Rows rows = StartRows({.consumers = {"train"}});
  const AsyncRows async(rows);
  for (int i = 0; i < 200; ++i) {
    const std::string key = std::to_string(i);
    Inbox<RowBatch> inbox;
    const AsyncCall call =
        async.Claim({.consumer = "train", .count = 1, .lease = hours(1)}, {}, inbox.done());
    std::thread writer([&] { PutTokens(rows, {{key, 1}}); });
    if (i % 2 == 0) std::this_thread::yield();
    call.Cancel();
    writer.join();
    Result<RowBatch> batch = inbox.Await();
    if (!batch.ok()) batch = rows.Claim({.consumer = "train", .count = 1}, kPatience);
    ASSERT_OK(batch.status());
    ASSERT_THAT(Keys(*batch), ElementsAre(key));
    ASSERT_OK(batch->Acknowledge({}, kPatience).status());
  }
}

TEST_P(AsyncRowsTest, AResultThatNobodyTakesIsGivenBack) {
  const Rows rows =
      StartRows({.consumers = {"train"}, .staleness = StalenessOptions{.max_lag = 0, .batch = 4}});
  const AsyncRows async(rows);
  PutTokens(rows, {{"a", 1}});
  Inbox<RowBatch> claimed;
  claimed.Refuse();
  (void)async.Claim({.consumer = "train", .count = 1, .lease = hours(1)}, {}, claimed.done());
  ASSERT_OK(claimed.Await().status());
  EXPECT_OK(rows.Claim({.consumer = "train", .count = 1}, kPatience).status());
  Inbox<Rows::Reservation> reserved;
  reserved.Refuse();
  (void)async.Reserve(3, {}, hours(1), {}, reserved.done());
  ASSERT_OK(reserved.Await().status());
  ASSERT_TRUE(WaitUntil([&] { return rows.Info(kPatience).value().counts.running == 0; }));
}

TEST_P(AsyncRowsTest, AClaimThatCannotBeReadToTheEndIsGivenBack) {
  if (in_process()) GTEST_SKIP() << "replies in the process have no size";
  const Rows rows = StartRows({.consumers = {"train"}});
  const Rows small = ClientThatCannotReadTheRest(rows);
  const RowClaim claim{.consumer = "train", .count = 2, .needs = {"x"}, .lease = hours(1)};
  Inbox<RowBatch> inbox;
  (void)AsyncRows(small).Claim(claim, std::nullopt, inbox.done());
  EXPECT_THAT(inbox.Await(), StatusIs(StatusCode::kResourceExhausted));
  EXPECT_THAT(Keys(rows.Claim(claim, kPatience).value()), ElementsAre("a", "b"));
}

TEST_P(AsyncRowsTest, ManyWaitWithoutThreads) {
  const Rows rows = StartRows({.consumers = {"train"}});
  const AsyncRows async(rows);
  constexpr int kClaims = 1000;
  std::vector<Inbox<RowBatch>> inboxes(kClaims);
  for (auto& inbox : inboxes) (void)async.Claim({.consumer = "train", .count = 1}, {}, inbox.done());
  ASSERT_TRUE(WaitUntil([&] { return WaitingClaims(rows) == kClaims; }));
  std::map<std::string, int64_t> lengths;
  for (int i = 0; i < kClaims; ++i) lengths[std::to_string(i)] = 1;
  PutTokens(rows, lengths);
  for (const auto& inbox : inboxes) ASSERT_THAT(inbox.Await().value().rows(), SizeIs(1));
}

TEST_P(AsyncRowsTest, AServerThatStopsEndsTheWait) {
  const Rows rows = StartRows({.consumers = {"train"}});
  Inbox<RowBatch> inbox;
  (void)AsyncRows(rows).Claim({.consumer = "train", .count = 1}, seconds(1), inbox.done());
  ASSERT_TRUE(WaitUntil([&] { return WaitingClaims(rows) == 1; }));
  server_->Stop();
  EXPECT_FALSE(inbox.Await().ok());
}

// --- Ranks ---

RowClaim PartOf(int64_t rank, int64_t ranks, int64_t count) {
  return {.consumer = "train", .count = count, .needs = {"tokens"}, .ranks = ranks, .rank = rank};
}

TEST_P(AsyncRowsTest, RanksShareABatchBalancedByTokens) {
  const Rows rows = StartRows({.consumers = {"train"}});
  PutTokens(rows, {{"a", 8}, {"b", 7}, {"c", 2}, {"d", 1}});
  // The first that comes decides; the order of the others does not matter.
  const RowBatch second = rows.Claim(PartOf(1, 2, 4), kPatience).value();
  const RowBatch first = rows.Claim(PartOf(0, 2, 4), kPatience).value();
  EXPECT_THAT(Keys(first), ElementsAre("a", "d"));
  EXPECT_THAT(Keys(second), ElementsAre("b", "c"));
  EXPECT_EQ(first.step(), 0);
  EXPECT_EQ(second.step(), 0);
  EXPECT_THAT(first.Acknowledge({}, kPatience), IsOkAndHolds(LeaseOutcome{.settled = 2}));
  EXPECT_EQ(rows.Info(kPatience).value().counts.leases, 1);  // each rank has a lease of its own
  EXPECT_THAT(second.Acknowledge({}, kPatience), IsOkAndHolds(LeaseOutcome{.settled = 2}));
}

TEST_P(AsyncRowsTest, ARankThatIsAheadDoesNotWaitForTheOthers) {
  const Rows rows = StartRows({.consumers = {"train"}});
  PutTokens(rows, {{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}});
  EXPECT_EQ(rows.Claim(PartOf(0, 2, 2), kPatience).value().step(), 0);
  EXPECT_EQ(rows.Claim(PartOf(0, 2, 2), kPatience).value().step(), 1);
  Inbox<RowBatch> ahead;
  (void)AsyncRows(rows).Claim(PartOf(0, 2, 2), {}, ahead.done());
  ASSERT_TRUE(WaitUntil([&] { return WaitingClaims(rows) == 1; }));
  // The other one gets its parts in order, past the one that waits.
  EXPECT_THAT(Keys(rows.Claim(PartOf(1, 2, 2), kPatience).value()), ElementsAre("b"));
  EXPECT_THAT(Keys(rows.Claim(PartOf(1, 2, 2), kPatience).value()), ElementsAre("d"));
  Inbox<RowBatch> other;
  (void)AsyncRows(rows).Claim(PartOf(1, 2, 2), {}, other.done());
  ASSERT_TRUE(WaitUntil([&] { return WaitingClaims(rows) == 2; }));
  PutTokens(rows, {{"e", 1}, {"f", 1}});
  EXPECT_THAT(Keys(ahead.Await().value()), ElementsAre("e"));
  EXPECT_THAT(Keys(other.Await().value()), ElementsAre("f"));
}

TEST_P(AsyncRowsTest, RanksThatDisagreeAreNamed) {
  const Rows rows = StartRows({.consumers = {"train"}});
  Inbox<RowBatch> first;
  (void)AsyncRows(rows).Claim(PartOf(0, 2, 4), {}, first.done());
  ASSERT_TRUE(WaitUntil([&] { return WaitingClaims(rows) == 1; }));
  EXPECT_THAT(
      rows.Claim(PartOf(1, 2, 6), kPatience),
      StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("rank 1 (trainer-1) claims with count = 6"),
                                                   HasSubstr("rank 0 (trainer-1) with 4"))));
  PutTokens(rows, {{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}});
  ASSERT_OK(first.Await().status());
  EXPECT_THAT(rows.Claim(PartOf(2, 3, 4), kPatience),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("ranks = 3")));
  EXPECT_THAT(rows.Claim(PartOf(2, 2, 4), kPatience),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("rank is 2, but must be 0 to 1")));
}

TEST_P(AsyncRowsTest, WhatDoesNotDivideIsDroppedOrUneven) {
  const Rows rows = StartRows({.consumers = {"train", "other"}});
  PutTokens(rows, {{"a", 1}, {"b", 1}, {"c", 1}});
  RowClaim claim = PartOf(0, 2, 3);
  claim.drop_last = true;
  EXPECT_THAT(Keys(rows.Claim(claim, kPatience).value()), ElementsAre("a"));
  claim.rank = 1;
  EXPECT_THAT(Keys(rows.Claim(claim, kPatience).value()), ElementsAre("b"));
  EXPECT_THAT(Keys(rows.Claim({.consumer = "train", .count = 1}, kPatience).value()), ElementsAre("c"));
  // Fewer rows than ranks.
  RowClaim few = PartOf(0, 4, 8);
  few.consumer = "other";
  few.at_least = 1;
  size_t total = 0;
  for (few.rank = 3; few.rank >= 0; --few.rank) {
    const RowBatch part = rows.Claim(few, kPatience).value();
    EXPECT_EQ(part.step(), 0);
    total += part.rows().size();
    if (few.rank == 3) {
      EXPECT_THAT(part.rows(), IsEmpty());
      EXPECT_OK(part.Acknowledge({}, kPatience).status());
    }
  }
  EXPECT_EQ(total, 3u);
}

TEST_P(AsyncRowsTest, WholeGroupsStayTogetherUnlessToldOtherwise) {
  const Rows rows = StartRows({.group_size = 2, .consumers = {"train", "other"}});
  PutTokens(rows, {{"1/0", 9}, {"1/1", 1}}, "1");
  PutTokens(rows, {{"2/0", 1}, {"2/1", 8}}, "2");
  EXPECT_THAT(Keys(rows.Claim(PartOf(0, 2, 4), kPatience).value()), ElementsAre("1/0", "1/1"));
  EXPECT_THAT(Keys(rows.Claim(PartOf(1, 2, 4), kPatience).value()), ElementsAre("2/0", "2/1"));
  RowClaim claim = PartOf(0, 2, 4);
  claim.consumer = "other";
  claim.split_groups = true;
  EXPECT_THAT(Keys(rows.Claim(claim, kPatience).value()), ElementsAre("1/0", "2/0"));
}

TEST_P(AsyncRowsTest, ThePartOfARankThatDiedComesBack) {
  const Rows rows = StartRows({.consumers = {"train"}});
  PutTokens(rows, {{"a", 1}, {"b", 1}});
  RowClaim claim = PartOf(0, 2, 2);
  claim.lease = milliseconds(50);
  const RowBatch first = rows.Claim(claim, kPatience).value();
  ASSERT_OK(first.Acknowledge({}, kPatience).status());
  // Rank 1 never comes: its row is in a later batch.
  claim.at_least = 1;
  claim.lease = hours(1);
  const RowBatch next = rows.Claim(claim, kPatience).value();
  EXPECT_THAT(Keys(next), ElementsAre("b"));
  EXPECT_EQ(next.step(), 1);
  claim.rank = 1;
  EXPECT_THAT(rows.Claim(claim, kPatience).value().rows(), IsEmpty());
}

TEST_P(AsyncRowsTest, ANamedStepCanBeFetchedAgain) {
  const Rows rows = StartRows({.consumers = {"train"}});
  PutTokens(rows, {{"a", 1}, {"b", 1}});
  RowClaim claim = PartOf(1, 2, 2);
  claim.step = 7;
  EXPECT_THAT(Keys(rows.Claim(claim, kPatience).value()), ElementsAre("b"));
  // A rank that was restarted gets the same part.
  const RowBatch again = rows.Claim(claim, kPatience).value();
  EXPECT_THAT(Keys(again), ElementsAre("b"));
  ASSERT_OK(again.Acknowledge({}, kPatience).status());
  EXPECT_THAT(rows.Claim(claim, kPatience), StatusIs(StatusCode::kFailedPrecondition,
                                                     HasSubstr("the part of rank 1 of step 7 was settled")));
  claim.rank = 0;
  const RowBatch first = rows.Claim(claim, kPatience).value();
  EXPECT_EQ(first.step(), 7);
  ASSERT_OK(first.Acknowledge({}, kPatience).status());
  EXPECT_THAT(rows.Claim(claim, kPatience),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("step 7 is over")));
}

INSTANTIATE_TEST_SUITE_P(Transports, AsyncRowsTest, REVERB_ALL_TRANSPORTS, TransportName);

}  // namespace
}  // namespace reverb::test
