#include "core/rows/rank_claims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "testing/rows.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using ::reverb::test::KeysOf;
using ::reverb::test::MakeRow;
using ::reverb::test::StatusIs;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(DivideAmongRanksTest, LongUnitsAreSpreadAndCountsAreEqual) {
  const std::vector<int64_t> sizes = {9, 1, 1, 1, 8, 1, 7, 2};
  EXPECT_THAT(DivideAmongRanks(sizes, 2, /*equal_counts=*/true),
              ElementsAre(ElementsAre(0, 1, 2, 7), ElementsAre(3, 4, 5, 6)));
  // By size alone one long unit outweighs many short ones.
  const std::vector<int64_t> uneven = {10, 1, 1, 1};
  EXPECT_THAT(DivideAmongRanks(uneven, 2, /*equal_counts=*/false),
              ElementsAre(ElementsAre(0), ElementsAre(1, 2, 3)));
}

TEST(DivideAmongRanksTest, FewerUnitsThanRanks) {
  const std::vector<int64_t> sizes = {3, 4};
  EXPECT_THAT(DivideAmongRanks(sizes, 4, true),
              ElementsAre(ElementsAre(1), ElementsAre(0), IsEmpty(), IsEmpty()));
  EXPECT_THAT(DivideAmongRanks({}, 2, true), ElementsAre(IsEmpty(), IsEmpty()));
}

TEST(DivideAmongRanksTest, UnitsWithoutASizeAreSpread) {
  const std::vector<int64_t> sizes(5, 0);
  EXPECT_THAT(DivideAmongRanks(sizes, 2, false), ElementsAre(ElementsAre(0, 2, 4), ElementsAre(1, 3)));
}

class RankClaimsTest : public ::testing::Test {
 protected:
  RankClaimsTest() {
    for (int i = 0; i < 4; ++i) Put("k" + std::to_string(i));
  }
  void Put(const std::string& key) {
    const RowWriteMode mode{.columns = {"tokens"}};
    RowWrite row = MakeRow(key, {2});
    const RowState::Write write = state_->Prepare(mode, {&row, 1}).value();
    ASSERT_OK(state_->Store(write, &row, &effects_).status());
  }
  RowClaim Part(int64_t rank) const {
    return {
        .consumer = "train", .count = 2, .needs = {"tokens"}, .lease = seconds(10), .ranks = 2, .rank = rank};
  }
  ClaimedRows Take(const RowClaim& claim) {
    EXPECT_OK(state_->CheckClaim(claim));
    return ranks_.Claim(claim, nullptr, &effects_).value().value();
  }

  RowEffects effects_;
  std::unique_ptr<RowState> state_ =
      RowState::Create({.name = "rollouts", .consumers = {"train"}}, /*first_id=*/1).value();
  RankClaims ranks_{state_.get()};
};

TEST_F(RankClaimsTest, TheLeaseOfAPartStartsWhenItsRankComes) {
  EXPECT_THAT(KeysOf(Take(Part(0)).rows), ElementsAre("k0"));
  state_->AdvanceTo(TimePoint(seconds(9)), &effects_);
  const ClaimedRows second = Take(Part(1));
  EXPECT_THAT(KeysOf(second.rows), ElementsAre("k1"));
  state_->AdvanceTo(TimePoint(seconds(18)), &effects_);
  EXPECT_TRUE(state_->HasLease(second.lease));
  EXPECT_EQ(state_->Counts().expired, 1);  // that of rank 0
}

TEST_F(RankClaimsTest, APartThatWasNotReceivedIsKeptForItsRank) {
  const ClaimedRows lost = Take(Part(0));
  ASSERT_TRUE(ranks_.Return(lost.lease));
  const ClaimedRows again = Take(Part(0));
  EXPECT_EQ(again.step, lost.step);
  EXPECT_EQ(again.lease, lost.lease);
  EXPECT_FALSE(ranks_.Return(12345));
}

TEST_F(RankClaimsTest, ARowThatWasDeletedIsNotInThePart) {
  (void)Take(Part(0));
  const std::string deleted = "k1";
  state_->Delete({&deleted, 1}, &effects_);
  Put(deleted);  // another row of that key
  EXPECT_THAT(Take(Part(1)).rows, IsEmpty());
}

TEST_F(RankClaimsTest, ThoseThatGaveUpDoNotBindTheOthers) {
  RowClaim many = Part(0);
  many.count = 8;
  ASSERT_OK(state_->CheckClaim(many));
  EXPECT_FALSE(ranks_.Claim(many, nullptr, &effects_).value().has_value());
  EXPECT_THAT(
      ranks_.Claim(Part(1), nullptr, &effects_),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("rank 1 claims with count = 2 and rank 0 with 8")));
  ranks_.StopWaiting(many);
  EXPECT_THAT(KeysOf(Take(Part(1)).rows), ElementsAre("k1"));
}

}  // namespace
}  // namespace reverb::internal
