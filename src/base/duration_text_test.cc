#include "base/duration_text.h"

#include <gtest/gtest.h>

namespace reverb::internal {
namespace {

TEST(DurationTextTest, HasTenthsOfSecondsAndMillisecondsBelow) {
  EXPECT_EQ(DurationText(Duration(0)), "0.0 s");
  EXPECT_EQ(DurationText(std::chrono::microseconds(900)), "0.0 s");
  EXPECT_EQ(DurationText(std::chrono::milliseconds(50)), "50 ms");
  EXPECT_EQ(DurationText(std::chrono::milliseconds(99)), "99 ms");
  EXPECT_EQ(DurationText(std::chrono::milliseconds(100)), "0.1 s");
  EXPECT_EQ(DurationText(std::chrono::milliseconds(1550)), "1.5 s");
  EXPECT_EQ(DurationText(std::chrono::minutes(5)), "300.0 s");
}

}  // namespace
}  // namespace reverb::internal
