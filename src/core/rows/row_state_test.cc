#include "core/rows/row_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/chunk_store.h"
#include "testing/rows.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using ::reverb::test::IsOkAndHolds;
using ::reverb::test::KeysOf;
using ::reverb::test::MakeRow;
using ::reverb::test::StatusIs;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class RowStateTest : public ::testing::Test {
 protected:
  void Open(RowTableOptions options) {
    options.name = "rollouts";
    state_ = RowState::Create(std::move(options)).value();
  }
  // Returns the fate of the last row, or the first error.
  Result<RowFate> Put(const RowWriteMode& mode, std::vector<RowWrite> rows) {
    REVERB_ASSIGN_OR_RETURN(const RowState::Write write, state_->Prepare(mode, rows));
    Result<RowFate> fate = RowFate::kStored;
    for (RowWrite& row : rows) {
      fate = state_->Store(write, &row, &effects_);
      if (!fate.ok()) break;
    }
    return fate;
  }
  // Returns the keys of the claimed rows; empty if the claim has to wait.
  std::vector<std::string> Claim(const RowClaim& claim, const Where* where = nullptr) {
    EXPECT_OK(state_->CheckClaim(claim));
    Result<std::optional<ClaimedRows>> claimed = state_->Claim(claim, where);
    EXPECT_OK(claimed.status());
    if (!claimed.ok() || !*claimed) return {};
    lease_ = (*claimed)->lease;
    claimed_ = **std::move(claimed);
    return KeysOf(claimed_.rows);
  }
  LeaseOutcome Settle(RowSettlement settlement, const std::vector<std::string>& keys = {}) {
    return state_->Settle(lease_, keys, settlement, seconds(60), &effects_);
  }

  std::unique_ptr<RowState> state_;
  RowEffects effects_;
  uint64_t lease_ = 0;
  ClaimedRows claimed_;
};

TEST_F(RowStateTest, ARowIsReadyWhenItHasTheNeededColumns) {
  Open({.consumers = {"train"}});
  ASSERT_THAT(Put({.columns = {"tokens"}}, {MakeRow("a", {3}), MakeRow("b", {4})}),
              IsOkAndHolds(RowFate::kStored));
  const RowClaim claim{.consumer = "train", .count = 1, .needs = {"tokens", "advantages"}};
  EXPECT_THAT(Claim(claim), IsEmpty());
  ASSERT_THAT(Put({.columns = {"advantages"}}, {MakeRow("b", {4})}), IsOkAndHolds(RowFate::kStored));
  EXPECT_THAT(Claim(claim), ElementsAre("b"));
  EXPECT_THAT(claimed_.columns, ElementsAre("tokens", "advantages"));
  EXPECT_THAT(claimed_.rows[0].num_segments, ElementsAre(1, 1));
  EXPECT_EQ(claimed_.rows[0].segments[0].length(), 4);
}

TEST_F(RowStateTest, OnlySelectedColumnsAreReturned) {
  Open({.consumers = {"train"}});
  ASSERT_OK(Put({.columns = {"tokens", "logprobs", "text"}}, {MakeRow("a", {3, 2, -1})}).status());
  const RowClaim claim{.consumer = "train", .needs = {"logprobs"}, .select = {"text", "other"}};
  EXPECT_THAT(Claim(claim), ElementsAre("a"));
  EXPECT_THAT(claimed_.columns, ElementsAre("logprobs", "text", "other"));
  EXPECT_THAT(claimed_.rows[0].num_segments, ElementsAre(1, 1, 0));
}

TEST_F(RowStateTest, TagsArriveWithTheirRow) {
  Open({.consumers = {"train"}});
  ASSERT_OK(
      Put({.columns = {"tokens"}}, {MakeRow("a", {3}, "", {{"reward", 0.5}, {"split", std::string("math")}})})
          .status());
  ASSERT_OK(Put({}, {MakeRow("a", {}, "", {{"reward", int64_t{2}}, {"done", true}})}).status());
  EXPECT_THAT(Claim({.consumer = "train"}), ElementsAre("a"));
  EXPECT_THAT(claimed_.rows[0].tags, ElementsAre(RowTag{"split", std::string("math")},
                                                 RowTag{"reward", int64_t{2}}, RowTag{"done", true}));
}

TEST_F(RowStateTest, EachConsumerSeesEachRowOnce) {
  Open({.consumers = {"logprob", "train"}});
  ASSERT_OK(Put({.columns = {"tokens"}}, {MakeRow("a", {1})}).status());
  EXPECT_THAT(Claim({.consumer = "logprob"}), ElementsAre("a"));
  EXPECT_EQ(Settle(RowSettlement::kAcknowledge), LeaseOutcome{.settled = 1});
  EXPECT_THAT(Claim({.consumer = "logprob"}), IsEmpty());
  EXPECT_EQ(state_->size(), 1);
  EXPECT_THAT(Claim({.consumer = "train"}), ElementsAre("a"));
  EXPECT_EQ(Settle(RowSettlement::kAcknowledge), LeaseOutcome{.settled = 1});
  EXPECT_EQ(state_->size(), 0);
  EXPECT_EQ(state_->Counts().consumed, 1);
  EXPECT_EQ(Settle(RowSettlement::kAcknowledge), LeaseOutcome{.expired = 1});
}

TEST_F(RowStateTest, ReleasedAndExpiredRowsKeepTheirPlace) {
  Open({.consumers = {"train"}});
  ASSERT_OK(Put({.columns = {"x"}}, {MakeRow("a", {1}), MakeRow("b", {1}), MakeRow("c", {1})}).status());
  EXPECT_THAT(Claim({.consumer = "train", .count = 2, .lease = seconds(10)}), ElementsAre("a", "b"));
  EXPECT_EQ(Settle(RowSettlement::kRelease, {"b"}), LeaseOutcome{.settled = 1});
  EXPECT_THAT(Claim({.consumer = "train", .count = 2}), ElementsAre("b", "c"));
  Settle(RowSettlement::kRelease);
  EXPECT_EQ(state_->NextExpiry(), TimePoint() + seconds(10));
  state_->AdvanceTo(TimePoint() + seconds(10), &effects_);
  EXPECT_THAT(Claim({.consumer = "train", .count = 3}), ElementsAre("a", "b", "c"));
  EXPECT_EQ(state_->Counts().expired, 1);
}

TEST_F(RowStateTest, AnExtendedLeaseExpiresLater) {
  Open({.consumers = {"train"}});
  ASSERT_OK(Put({.columns = {"x"}}, {MakeRow("a", {1})}).status());
  EXPECT_THAT(Claim({.consumer = "train", .lease = seconds(10)}), ElementsAre("a"));
  state_->AdvanceTo(TimePoint() + seconds(5), &effects_);
  EXPECT_EQ(Settle(RowSettlement::kExtend), LeaseOutcome{.settled = 1});
  EXPECT_EQ(state_->NextExpiry(), TimePoint() + seconds(65));
}

TEST_F(RowStateTest, GroupsAreClaimedWhole) {
  Open({.group_size = 2, .consumers = {"train"}});
  ASSERT_OK(
      Put({.columns = {"x"}}, {MakeRow("a0", {1}, "a"), MakeRow("b0", {1}, "b"), MakeRow("b1", {1}, "b")})
          .status());
  EXPECT_THAT(Claim({.consumer = "train", .count = 4, .at_least = 1}), ElementsAre("b0", "b1"));
  Settle(RowSettlement::kRelease);
  ASSERT_OK(Put({.columns = {"x"}}, {MakeRow("a1", {1}, "a")}).status());
  // Three rows: one group fits.
  EXPECT_THAT(Claim({.consumer = "train", .count = 3}), ElementsAre("a0", "a1"));
  EXPECT_THAT(
      Put({.columns = {"x"}}, {MakeRow("a2", {1}, "a")}),
      StatusIs(StatusCode::kAlreadyExists, HasSubstr("would be one more than the 2 rows of group \"a\"")));
  EXPECT_THAT(
      state_->CheckClaim({.consumer = "train", .count = 1}),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("a claim of 1 row cannot have whole groups of 2")));
}

TEST_F(RowStateTest, DynamicSamplingLeavesOutGroupsWithoutDifferences) {
  Open({.group_size = 2, .consumers = {"train"}});
  ASSERT_OK(Put({.columns = {"x"}},
                {MakeRow("a0", {1}, "a", {{"reward", 1.0}}), MakeRow("a1", {1}, "a", {{"reward", 1.0}}),
                 MakeRow("b0", {1}, "b", {{"reward", 0.0}}), MakeRow("b1", {1}, "b", {{"reward", 1.0}})})
                .status());
  const Where where = Where::Parse("std(reward) > 0").value();
  EXPECT_THAT(Claim({.consumer = "train", .count = 2}, &where), ElementsAre("b0", "b1"));
  EXPECT_EQ(state_->DeleteWhere(Where::Parse("std(reward) == 0").value(), &effects_), 2);
  EXPECT_EQ(state_->size(), 2);
}

TEST_F(RowStateTest, StaleRowsAreDroppedAndTheirProducersStop) {
  Open({.consumers = {"train"}, .staleness = StalenessOptions{.max_lag = 1}});
  ASSERT_OK(Put({.columns = {"x"}, .version = 0}, {MakeRow("a", {1}), MakeRow("b", {1})}).status());
  EXPECT_THAT(Claim({.consumer = "train"}), ElementsAre("a"));
  ASSERT_OK(state_->SetVersion(2, &effects_));
  EXPECT_EQ(state_->size(), 1);  // the leased one
  EXPECT_THAT(Put({.columns = {"x"}, .version = 0}, {MakeRow("c", {1})}), IsOkAndHolds(RowFate::kRefused));
  EXPECT_THAT(Put({.columns = {"late"}, .create = false}, {MakeRow("b", {1})}),
              IsOkAndHolds(RowFate::kRefused));
  EXPECT_THAT(Put({.columns = {"x"}, .version = 1}, {MakeRow("d", {1})}), IsOkAndHolds(RowFate::kStored));
  Settle(RowSettlement::kRelease);
  EXPECT_EQ(state_->Counts().dropped_stale, 2);
  EXPECT_EQ(state_->Counts().accepted, 1);
  EXPECT_THAT(state_->SetVersion(1, &effects_), StatusIs(StatusCode::kFailedPrecondition));
}

TEST_F(RowStateTest, AnAcknowledgedRowCountsAlthoughItBecameStale) {
  Open({.consumers = {"train"}, .staleness = StalenessOptions{.max_lag = 0}});
  ASSERT_OK(Put({.columns = {"x"}}, {MakeRow("a", {1})}).status());
  EXPECT_THAT(Claim({.consumer = "train"}), ElementsAre("a"));
  ASSERT_OK(state_->SetVersion(1, &effects_));
  EXPECT_EQ(Settle(RowSettlement::kAcknowledge), LeaseOutcome{.settled = 1});
  EXPECT_EQ(state_->Counts().consumed, 1);
  EXPECT_EQ(state_->Counts().dropped_stale, 0);
  EXPECT_EQ(state_->size(), 0);
}

TEST_F(RowStateTest, OpenRowsGrowAndAreNotReady) {
  Open({.consumers = {"train"}});
  ASSERT_OK(Put({.columns = {"tokens"}, .version = 1, .open = true}, {MakeRow("a", {3})}).status());
  ASSERT_OK(Put({.columns = {"tokens"}, .version = 2, .append = true}, {MakeRow("a", {4})}).status());
  EXPECT_THAT(Claim({.consumer = "train"}), IsEmpty());
  EXPECT_THAT(state_->End(std::vector<std::string>{"a"}, RowEnding::kClose, &effects_),
              IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(Claim({.consumer = "train", .needs = {"tokens"}}), ElementsAre("a"));
  EXPECT_EQ(claimed_.rows[0].version, 1);
  EXPECT_THAT(claimed_.rows[0].num_segments, ElementsAre(2));
  EXPECT_EQ(claimed_.rows[0].segments[1].length(), 4);
  EXPECT_THAT(Put({.columns = {"tokens"}, .append = true}, {MakeRow("a", {4})}),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("row \"a\" is closed")));
  EXPECT_THAT(state_->End(std::vector<std::string>{"a"}, RowEnding::kAbort, &effects_),
              StatusIs(StatusCode::kFailedPrecondition));
}

TEST_F(RowStateTest, RequeuedRowsAreResumedByAnotherWorker) {
  Open({.consumers = {"train"}});
  ASSERT_OK(Put({.columns = {"tokens"}, .open = true}, {MakeRow("a", {3})}).status());
  EXPECT_THAT(Claim({.consumer = "resume"}), IsEmpty());
  ASSERT_OK(state_->End(std::vector<std::string>{"a"}, RowEnding::kRequeue, &effects_).status());
  EXPECT_THAT(Claim({.consumer = "resume", .lease = seconds(1)}), ElementsAre("a"));
  EXPECT_TRUE(claimed_.rows[0].is_open);
  // The worker dies, and another one takes over.
  state_->AdvanceTo(TimePoint() + seconds(2), &effects_);
  EXPECT_THAT(Claim({.consumer = "resume"}), ElementsAre("a"));
  ASSERT_OK(state_->End(std::vector<std::string>{"a"}, RowEnding::kClose, &effects_).status());
  EXPECT_THAT(Claim({.consumer = "train"}), ElementsAre("a"));
}

TEST_F(RowStateTest, RewritingAColumnIsRefusedUnlessAskedFor) {
  auto store = std::make_shared<ChunkStore>(ChunkStore::Options());
  Open({.consumers = {"train"}});
  RowWrite first = MakeRow("a", {3});
  first.chunk = store->Enter(first.chunk).value();
  const int64_t bytes = first.chunk->bytes();
  std::vector<RowWrite> rows;
  rows.push_back(std::move(first));
  ASSERT_OK(Put({.columns = {"x"}}, std::move(rows)).status());
  EXPECT_EQ(store->stored_bytes(), bytes);
  EXPECT_THAT(Put({.columns = {"x"}}, {MakeRow("a", {5})}),
              StatusIs(StatusCode::kAlreadyExists, HasSubstr("has column \"x\" already; pass overwrite")));
  ASSERT_OK(Put({.columns = {"x"}, .overwrite = true}, {MakeRow("a", {5})}).status());
  EXPECT_EQ(store->stored_bytes(), 0);
  EXPECT_EQ(effects_.released.size(), 1u);
  EXPECT_THAT(Claim({.consumer = "train", .needs = {"x"}}), ElementsAre("a"));
  EXPECT_EQ(claimed_.rows[0].segments[0].length(), 5);
}

TEST_F(RowStateTest, LengthsAreCheckedIfAskedFor) {
  Open({.consumers = {"train"}});
  ASSERT_OK(Put({.columns = {"tokens"}}, {MakeRow("a", {3})}).status());
  EXPECT_THAT(Put({.columns = {"lp"}, .same_length_as = "tokens"}, {MakeRow("a", {4})}),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("gets 4 elements of column \"lp\", but column \"tokens\" has 3")));
  EXPECT_THAT(Put({.columns = {"lp"}, .same_length_as = "other"}, {MakeRow("a", {4})}),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("has no column \"other\"")));
  EXPECT_OK(Put({.columns = {"lp"}, .same_length_as = "tokens"}, {MakeRow("a", {3})}).status());
  EXPECT_OK(Put({.columns = {"longer"}}, {MakeRow("a", {30})}).status());
}

TEST_F(RowStateTest, TokensBoundABatchWithoutSkippingRows) {
  Open({.consumers = {"train"}});
  ASSERT_OK(Put({.columns = {"tokens"}}, {MakeRow("a", {6}), MakeRow("b", {7}), MakeRow("c", {1})}).status());
  const RowClaim claim{.consumer = "train", .count = 3, .needs = {"tokens"}, .max_tokens = 10};
  EXPECT_THAT(Claim(claim), ElementsAre("a"));
  EXPECT_THAT(Claim({.consumer = "train", .count = 2, .needs = {"tokens"}, .max_tokens = 10}),
              ElementsAre("b", "c"));
  Settle(RowSettlement::kRelease);
  RowClaim small = claim;
  small.max_tokens = 5;
  EXPECT_THAT(state_->Claim(small),
              StatusIs(StatusCode::kFailedPrecondition,
                       HasSubstr("row \"b\" has 7 elements of column \"tokens\", more than max_tokens = 5")));
}

TEST_F(RowStateTest, ReservationsBoundWhatIsGenerated) {
  Open({.consumers = {"train"},
        .staleness = StalenessOptions{.max_lag = 1, .when_stale = WhenStale::kWait, .batch = 2},
        .max_running = 3});
  ASSERT_OK(state_->SetVersion(100, &effects_));  // where this run starts
  EXPECT_EQ(state_->Capacity(), 3);
  const Result<uint64_t> first = state_->Reserve(3, 100, seconds(10));
  ASSERT_OK(first.status());
  EXPECT_THAT(state_->Reserve(1, 100, seconds(10)), IsOkAndHolds(0u));
  EXPECT_EQ(state_->wait_reason(), RowWaitReason::kBusy);
  ASSERT_OK(Put({.columns = {"x"}, .reservation = *first},
                {MakeRow("a", {1}), MakeRow("b", {1}), MakeRow("c", {1})})
                .status());
  EXPECT_EQ(state_->Counts().running, 0);
  EXPECT_EQ(state_->Capacity(), 1);  // (1 + 0 + 1) x 2 - 3
  EXPECT_THAT(state_->Reserve(2, std::nullopt, seconds(10)), IsOkAndHolds(0u));
  EXPECT_EQ(state_->wait_reason(), RowWaitReason::kAhead);
  EXPECT_THAT(Put({.columns = {"x"}}, {MakeRow("d", {1})}), IsOkAndHolds(RowFate::kStored));
  EXPECT_THAT(Put({.columns = {"x"}}, {MakeRow("e", {1})}), IsOkAndHolds(RowFate::kWaits));
  ASSERT_OK(state_->SetVersion(101, &effects_));
  EXPECT_THAT(state_->Reserve(2, std::nullopt, seconds(10)), IsOkAndHolds(Not(0u)));
  EXPECT_EQ(state_->Capacity(), 0);
  // Its holder dies.
  state_->AdvanceTo(TimePoint() + seconds(10), &effects_);
  EXPECT_EQ(state_->Capacity(), 2);
  EXPECT_THAT(state_->Reserve(4, std::nullopt, seconds(1)),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("more than max_running = 3")));
}

TEST_F(RowStateTest, RowsOfAGroupDoNotWaitForRoom) {
  Open({.max_rows = 2, .group_size = 2, .consumers = {"train"}});
  EXPECT_THAT(Put({.columns = {"x"}}, {MakeRow("a0", {1}, "a"), MakeRow("b0", {1}, "b")}),
              IsOkAndHolds(RowFate::kStored));
  EXPECT_THAT(Put({.columns = {"x"}}, {MakeRow("c0", {1}, "c")}), IsOkAndHolds(RowFate::kWaits));
  EXPECT_EQ(state_->wait_reason(), RowWaitReason::kFull);
  EXPECT_THAT(Put({.columns = {"x"}}, {MakeRow("a1", {1}, "a")}), IsOkAndHolds(RowFate::kStored));
  EXPECT_THAT(Claim({.consumer = "train", .count = 2}), ElementsAre("a0", "a1"));
}

TEST_F(RowStateTest, ReasonsCountTheRowsThatAreNotReady) {
  Open({.consumers = {"train"}, .staleness = StalenessOptions{.max_lag = 0, .when_stale = WhenStale::kKeep}});
  const RowClaim claim{.consumer = "train",
                       .holder = "trainer-1",
                       .count = 1,
                       .needs = {"tokens", "adv"},
                       .lease = seconds(20)};
  ASSERT_OK(Put({.columns = {"tokens", "adv"}, .version = 0}, {MakeRow("old", {1, 1})}).status());
  ASSERT_OK(state_->SetVersion(1, &effects_));
  ASSERT_OK(Put({.columns = {"tokens", "adv"}}, {MakeRow("taken", {1, 1})}).status());
  EXPECT_THAT(Claim(claim), ElementsAre("taken"));
  ASSERT_OK(Put({.columns = {"tokens"}}, {MakeRow("a", {1}), MakeRow("b", {1})}).status());
  ASSERT_OK(Put({.columns = {"tokens"}, .open = true}, {MakeRow("open", {1})}).status());
  EXPECT_EQ(state_->Explain(claim),
            "consumer \"train\" waits for 1 row, 0 are ready, 2 rows lack \"adv\", 1 row is stale, 1 row is "
            "open, 1 row "
            "is leased by trainer-1 for 20.0 s");
  RowClaim filtered = claim;
  filtered.count = 2;
  filtered.needs = {"tokens"};
  const Where where = Where::Parse("key == 'a'").value();
  EXPECT_THAT(state_->Explain(filtered, &where), HasSubstr("waits for 2 rows, 1 is ready"));
  EXPECT_THAT(state_->Explain(filtered, &where), HasSubstr("1 row does not match the condition"));
}

TEST_F(RowStateTest, ManyKindsOfClaimsReplaceEachOthersViews) {
  Open({.consumers = {"train"}});
  std::vector<std::string> columns;
  for (int i = 0; i < 50; ++i) columns.push_back("c" + std::to_string(i));
  ASSERT_OK(Put({.columns = columns},
                {MakeRow("a", std::vector<int64_t>(50, 1)), MakeRow("b", std::vector<int64_t>(50, 2))})
                .status());
  for (int round = 0; round < 2; ++round) {
    for (const std::string& column : columns) {
      EXPECT_THAT(Claim({.consumer = "train", .needs = {column}}), ElementsAre("a"));
      const uint64_t lease = lease_;
      EXPECT_THAT(Claim({.consumer = "train", .needs = {column}}), ElementsAre("b"));
      Settle(RowSettlement::kRelease);
      lease_ = lease;
      Settle(RowSettlement::kRelease);
    }
  }
}

TEST_F(RowStateTest, BadArgumentsNameTheTableAndTheRemedy) {
  Open({.consumers = {"train"}});
  EXPECT_THAT(state_->CheckClaim({.consumer = "tain"}),
              StatusIs(StatusCode::kNotFound, HasSubstr("the consumers are \"train\", \"resume\"")));
  EXPECT_THAT(state_->CheckClaim({.consumer = "train", .max_tokens = 5}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("set token_column")));
  EXPECT_THAT(Put({.columns = {"x"}}, {MakeRow(std::string(257, 'k'), {1})}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("a key must have 1 to 256 bytes")));
  EXPECT_THAT(Put({.columns = {"x"}}, {MakeRow("a", {1}), MakeRow("a", {1})}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("the key \"a\" is given twice")));
  EXPECT_THAT(Put({.columns = {"x"}}, {MakeRow("a", {1}, "g")}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("create the table with group_size")));
  EXPECT_THAT(RowState::Create({.name = "t", .consumers = {"resume"}}),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(RowState::Create({.name = "t", .staleness = StalenessOptions{.when_stale = WhenStale::kWait}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("set batch")));
}

// 832 bytes of payload: 64 tokens in four columns.
TEST_F(RowStateTest, AShortRowTakesLittleBesidesItsData) {
  Open({.consumers = {"train"}});
  constexpr int64_t kRows = 1000;
  int64_t chunk_bytes = 0;
  ASSERT_OK(state_->CheckClaim({.consumer = "train"}));
  EXPECT_THAT(Claim({.consumer = "train", .needs = {"tokens"}}), IsEmpty());
  for (int64_t i = 0; i < kRows; ++i) {
    RowWrite row = MakeRow("prompt-17/sample-" + std::to_string(i), {26, 26, 26, 26}, "",
                           {{"prompt", int64_t{17}}, {"reward", 0.5}});
    chunk_bytes += row.chunk->bytes() - 4 * 26 * 8;
    std::vector<RowWrite> rows;
    rows.push_back(std::move(row));
    ASSERT_OK(Put({.columns = {"tokens", "logprobs", "mask", "adv"}}, std::move(rows)).status());
  }
  EXPECT_LE((state_->memory_bytes() + chunk_bytes) / kRows, 400);
}

TEST_F(RowStateTest, ExtremeVersionsAreStaleOrNot) {
  constexpr int64_t kFirst = std::numeric_limits<int64_t>::min(), kLast = std::numeric_limits<int64_t>::max();
  Open({.consumers = {"train"}, .staleness = StalenessOptions{.max_lag = 1, .batch = 2}});
  ASSERT_OK(state_->SetVersion(kLast, &effects_));
  EXPECT_THAT(Put({.columns = {"x"}, .version = kFirst}, {MakeRow("a", {1})}),
              IsOkAndHolds(RowFate::kRefused));
  EXPECT_THAT(Put({.columns = {"x"}, .version = -2}, {MakeRow("b", {1})}), IsOkAndHolds(RowFate::kRefused));
  EXPECT_THAT(Put({.columns = {"x"}, .version = kLast - 1}, {MakeRow("c", {1})}),
              IsOkAndHolds(RowFate::kStored));
  EXPECT_THAT(state_->Reserve(1, kFirst, seconds(1)),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("stale")));
  EXPECT_OK(state_->Reserve(1, kLast, seconds(1)).status());
}

TEST_F(RowStateTest, RowsOfLaterVersionsAreNotStale) {
  constexpr int64_t kFirst = std::numeric_limits<int64_t>::min(), kLast = std::numeric_limits<int64_t>::max();
  Open({.consumers = {"train"}, .staleness = StalenessOptions{.max_lag = kLast}});
  ASSERT_OK(state_->SetVersion(5, &effects_));
  EXPECT_THAT(Put({.columns = {"x"}, .version = kLast}, {MakeRow("a", {1})}), IsOkAndHolds(RowFate::kStored));
  EXPECT_THAT(Put({.columns = {"x"}, .version = -100}, {MakeRow("b", {1})}), IsOkAndHolds(RowFate::kStored));
  EXPECT_THAT(Put({.columns = {"x"}, .version = kFirst}, {MakeRow("c", {1})}),
              IsOkAndHolds(RowFate::kRefused));
}

}  // namespace
}  // namespace reverb::internal
