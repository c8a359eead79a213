#include "transport/adaptive_spin.h"

#include <gtest/gtest.h>

#include <chrono>

namespace reverb::internal {
namespace {

using namespace std::chrono_literals;

// Returns how many of `waits` waits poll at all, if no event comes.
int NumVainPolls(AdaptiveSpin* spin, int waits) {
  int polls = 0;
  for (int i = 0; i < waits; ++i) {
    bool has_polled = false;
    EXPECT_FALSE(spin->Spin(1us, [&] {
      has_polled = true;
      return false;
    }));
    polls += has_polled ? 1 : 0;
  }
  return polls;
}

TEST(AdaptiveSpinTest, ReturnsAsSoonAsTheEventIsThere) {
  AdaptiveSpin spin(1h);
  int polls = 0;
  EXPECT_TRUE(spin.Spin(1h, [&] { return ++polls == 3; }));
  EXPECT_EQ(polls, 3);
}

TEST(AdaptiveSpinTest, PollsRarelyAfterSeveralVainAttempts) {
  AdaptiveSpin spin(1us);
  EXPECT_EQ(NumVainPolls(&spin, 8), 8);
  EXPECT_EQ(NumVainPolls(&spin, 3200), 100);
}

TEST(AdaptiveSpinTest, PollsAgainAfterSuccesses) {
  AdaptiveSpin spin(1us);
  NumVainPolls(&spin, 8);
  int found = 0;
  for (int i = 0; i < 32 && found == 0; ++i) found += spin.Spin(1us, [] { return true; });
  EXPECT_EQ(found, 1);
  // From the first success on, each wait polls.
  for (int i = 0; i < 7; ++i) found += spin.Spin(1us, [] { return true; });
  EXPECT_EQ(found, 8);
  EXPECT_EQ(NumVainPolls(&spin, 8), 8);
}

TEST(AdaptiveSpinTest, PollsAgainSoonAfterManyVainAttempts) {
  AdaptiveSpin spin(1us);
  NumVainPolls(&spin, 100'000);
  int found = 0;
  for (int i = 0; i < 1000; ++i) found += spin.Spin(1us, [] { return true; });
  EXPECT_GT(found, 500);
}

// Returns how many of `waits` waits poll at all. Each `period`-th event is there, and the others are not; the other way
// round if `is_there`.
int NumPolls(AdaptiveSpin* spin, int period, bool is_there, int waits) {
  int polls = 0;
  for (int i = 0; i < waits; ++i) {
    bool has_polled = false;
    (void)spin->Spin(1us, [&] {
      has_polled = true;
      return (i % period == period - 1) != is_there;
    });
    polls += has_polled ? 1 : 0;
  }
  return polls;
}

TEST(AdaptiveSpinTest, PollsRarelyIfFewAttemptsSucceed) {
  AdaptiveSpin spin(1us);
  EXPECT_EQ(NumPolls(&spin, 2, /*is_there=*/false, 1000), 1000);
  EXPECT_LT(NumPolls(&spin, 4, /*is_there=*/false, 1000), 200);
}

TEST(AdaptiveSpinTest, AVainAttemptMayWeighMoreThanASuccess) {
  AdaptiveSpin spin(1us, /*miss_weight=*/3);
  EXPECT_EQ(NumPolls(&spin, 4, /*is_there=*/true, 1000), 1000);
  EXPECT_LT(NumPolls(&spin, 2, /*is_there=*/true, 1000), 200);
}

TEST(AdaptiveSpinTest, NeverPollsWithoutATime) {
  AdaptiveSpin spin(0us);
  EXPECT_EQ(NumVainPolls(&spin, 100), 0);
}

}  // namespace
}  // namespace reverb::internal
