#include "reverb/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace reverb {
namespace {

TEST(StatusTest, IsOkByDefault) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kOk);
  EXPECT_EQ(status.detail(), Detail::kNone);
  EXPECT_EQ(status.message(), "");
  EXPECT_EQ(status.ToString(), "OK");
}

TEST(StatusTest, AnOkCodeDropsMessageAndDetail) {
  const Status status(StatusCode::kOk, "ignored", Detail::kQueued);
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status, Status::Ok());
  EXPECT_EQ(status.detail(), Detail::kNone);
}

TEST(StatusTest, TextHasCodeMessageAndDetail) {
  EXPECT_EQ(Status::NotFound("no table \"per\"").ToString(), "NOT_FOUND: no table \"per\"");
  EXPECT_EQ(Status::DeadlineExceeded("late").WithDetail(Detail::kRateLimited).ToString(),
            "DEADLINE_EXCEEDED: late [RATE_LIMITED]");
  EXPECT_EQ(Status::DataLoss("x").WithDetail(static_cast<Detail>(200)).ToString(),
            "DATA_LOSS: x [detail 200]");
}

TEST(StatusTest, EveryCodeHasAUniqueName) {
  std::vector<std::string_view> names;
  for (int code = 0; code <= 16; ++code) names.push_back(StatusCodeName(static_cast<StatusCode>(code)));
  EXPECT_THAT(names,
              testing::ElementsAre("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED",
                                   "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED",
                                   "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
                                   "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"));
}

TEST(StatusTest, AnUndefinedCodeIsUnknown) {
  EXPECT_EQ(StatusCodeName(static_cast<StatusCode>(99)), "UNKNOWN");
}

TEST(StatusTest, CopiesAreIndependent) {
  Status first = Status::Internal("first");
  const Status copy = first;
  first = Status::NotFound("second");
  EXPECT_EQ(copy, Status::Internal("first"));
  EXPECT_FALSE(copy == first);
  const Status* const alias = &first;
  first = *alias;
  EXPECT_EQ(first.message(), "second");
  first = Status::Ok();
  EXPECT_TRUE(first.ok());
}

TEST(StatusTest, EqualityComparesTheDetail) {
  EXPECT_FALSE(Status::Unavailable("x") == Status::Unavailable("x").WithDetail(Detail::kMemoryFull));
}

TEST(ResultTest, HoldsAValueOrAnError) {
  const Result<std::string> good = std::string("value");
  EXPECT_TRUE(good.ok());
  EXPECT_EQ(*good, "value");
  EXPECT_EQ(good->size(), 5u);
  EXPECT_TRUE(good.status().ok());
  const Result<std::string> bad = Status::NotFound("none");
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.status(), Status::NotFound("none"));
}

// Holds in every build type: the accessors do not use assert, which would print another text.
TEST(ResultDeathTest, TakingTheValueOfAnErrorPrintsItAndAborts) {
  const Result<std::string> bad = Status::NotFound("no table \"per\"");
  Result<std::string> changeable = bad;
  const char* const text = "reverb: a Result has no value: NOT_FOUND: no table \"per\"";
  EXPECT_DEATH((void)bad.value(), text);
  EXPECT_DEATH((void)*bad, text);
  EXPECT_DEATH((void)bad->size(), text);
  EXPECT_DEATH((void)changeable.value(), text);
  EXPECT_DEATH((void)std::move(changeable).value(), text);
  EXPECT_DEATH((void)*std::move(changeable), text);
}

TEST(ResultDeathTest, TakingAPointerOfAnErrorPrintsItAndAborts) {
  Result<std::unique_ptr<int>> bad = Status::FailedPrecondition("the port is taken");
  const char* const text = "reverb: a Result has no value: FAILED_PRECONDITION: the port is taken";
  EXPECT_DEATH((void)bad.value(), text);
  EXPECT_DEATH((void)**bad, text);
  EXPECT_DEATH((void)bad->get(), text);
  EXPECT_DEATH((void)std::move(bad).value(), text);
}

TEST(ResultDeathTest, AMovedErrorStillHasNoValue) {
  Result<std::string> bad = Status::NotFound("none");
  const Result<std::string> taken = std::move(bad);
  EXPECT_DEATH((void)taken.value(), "a Result has no value: NOT_FOUND: none");
  EXPECT_FALSE(bad.ok());  // NOLINT(bugprone-use-after-move)
  EXPECT_DEATH((void)bad.value(), "a Result has no value: its error was moved away");
  Result<std::string> asked = Status::NotFound("none");
  EXPECT_EQ(std::move(asked).status(), Status::NotFound("none"));
  EXPECT_DEATH((void)*asked,
               "a Result has no value: its error was moved away");  // NOLINT(bugprone-use-after-move)
}

#ifdef NDEBUG
TEST(ResultTest, AResultOfAnOkStatusIsAnError) {
  const Result<int> result = Status::Ok();
  EXPECT_EQ(result.status(), Status::Internal("a Result was created from a Status that is OK"));
}
#endif

TEST(StatusTest, PrefixedKeepsCodeAndDetail) {
  EXPECT_EQ(Status(StatusCode::kDataLoss, "cut short", Detail::kCorruptData).Prefixed("chunk 5"),
            Status(StatusCode::kDataLoss, "chunk 5: cut short", Detail::kCorruptData));
  EXPECT_EQ(Status::Ok().Prefixed("chunk 5"), Status::Ok());
}

Result<std::unique_ptr<int>> Half(int n) {
  if (n % 2 != 0) return Status::InvalidArgument("odd");
  return std::make_unique<int>(n / 2);
}

Status Quarter(int n, int* out) {
  REVERB_ASSIGN_OR_RETURN(std::unique_ptr<int> half, Half(n));
  REVERB_ASSIGN_OR_RETURN(const std::unique_ptr<int> quarter, Half(*half));
  *out = *quarter;
  return Status::Ok();
}

Status Both(int a, int b) {
  int ignored;
  REVERB_RETURN_IF_ERROR(Quarter(a, &ignored));
  REVERB_RETURN_IF_ERROR(Quarter(b, &ignored));
  return Status::Ok();
}

TEST(ResultTest, MacrosReturnErrorsAndMoveValues) {
  int out = 0;
  EXPECT_TRUE(Quarter(12, &out).ok());
  EXPECT_EQ(out, 3);
  EXPECT_EQ(Quarter(6, &out), Status::InvalidArgument("odd"));
  EXPECT_TRUE(Both(4, 8).ok());
  EXPECT_EQ(Both(4, 6).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace reverb
