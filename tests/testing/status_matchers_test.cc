// Checks that the matchers also fail.
#include "testing/status_matchers.h"

#include <gtest/gtest-spi.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "testing/seed.h"

namespace reverb::test {
namespace {

using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pointee;

TEST(StatusMatchersTest, IsOkMatchesStatusAndResult) {
  EXPECT_OK(Status::Ok());
  EXPECT_OK(Result<int>(3));
  EXPECT_THAT(Status::NotFound("x"), Not(IsOk()));
  EXPECT_THAT(Result<int>(Status::NotFound("x")), Not(IsOk()));
}

TEST(StatusMatchersTest, AFailureShowsTheStatus) {
  EXPECT_NONFATAL_FAILURE(EXPECT_OK(Status::NotFound("no such table")), "NOT_FOUND: no such table");
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(Result<int>(3), IsOkAndHolds(4)), "holds 3");
}

TEST(StatusMatchersTest, StatusIsComparesCodeDetailAndMessage) {
  const Status status = Status::DeadlineExceeded("table \"per\": late").WithDetail(Detail::kRateLimited);
  EXPECT_THAT(status, StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_THAT(status, StatusIs(StatusCode::kDeadlineExceeded, Detail::kRateLimited));
  EXPECT_THAT(status, StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("per")));
  EXPECT_THAT(status, StatusIs(StatusCode::kDeadlineExceeded, "table \"per\": late"));
  EXPECT_THAT(status, StatusIs(StatusCode::kDeadlineExceeded, Detail::kRateLimited, HasSubstr("late")));
  EXPECT_THAT(Result<int>(status), StatusIs(StatusCode::kDeadlineExceeded, Detail::kRateLimited));

  EXPECT_THAT(status, Not(StatusIs(StatusCode::kCancelled)));
  EXPECT_THAT(status, Not(StatusIs(StatusCode::kDeadlineExceeded, Detail::kNone)));
  EXPECT_THAT(status, Not(StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("early"))));
  EXPECT_THAT(status, Not(StatusIs(StatusCode::kDeadlineExceeded, "late")));
}

TEST(StatusMatchersTest, IsOkAndHoldsMatchesTheValue) {
  const Result<int> three = 3;
  EXPECT_THAT(three, IsOkAndHolds(3));
  EXPECT_THAT(three, IsOkAndHolds(Gt(2)));
  EXPECT_THAT(three, Not(IsOkAndHolds(4)));
  EXPECT_THAT(Result<int>(Status::Internal("x")), Not(IsOkAndHolds(3)));
  EXPECT_THAT(Result<std::string>(std::string("abc")), IsOkAndHolds(HasSubstr("b")));
  EXPECT_THAT(Result<std::unique_ptr<int>>(std::make_unique<int>(5)), IsOkAndHolds(Pointee(5)));
}

TEST(SeedTest, ComesFromTheEnvironmentWhenSetThere) {
  const char* const before = std::getenv("REVERB_TEST_SEED");
  const std::string saved = before ? before : "";
  setenv("REVERB_TEST_SEED", "77", 1);
  EXPECT_EQ(Seed(), 77u);
  setenv("REVERB_TEST_SEED", "0x10", 1);
  EXPECT_EQ(Seed(), 16u);
  unsetenv("REVERB_TEST_SEED");
  EXPECT_EQ(Seed(), kDefaultSeed);
  EXPECT_THAT(SeedTrace(77), HasSubstr("REVERB_TEST_SEED=77"));
  if (before) setenv("REVERB_TEST_SEED", saved.c_str(), 1);
}

}  // namespace
}  // namespace reverb::test
