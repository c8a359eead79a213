#include "base/wait_loop.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>

#include "testing/wait.h"

namespace reverb::internal {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""ns;

TEST(WaitLoopTest, LeftIsTheRestOfTheTimeout) {
  const WaitOptions hour{.timeout = 1h, .on_wait = [] { return Status::Cancelled("now"); }};
  const WaitLoop loop(hour);
  ASSERT_TRUE(test::WaitUntil([&] { return loop.waited() > 0ns; }));
  EXPECT_LT(loop.Left().timeout, Timeout(1h));
  EXPECT_GT(loop.Left().timeout, Timeout(0ns));
  EXPECT_EQ(loop.Left().on_wait().code(), StatusCode::kCancelled);

  const WaitOptions forever;
  EXPECT_EQ(WaitLoop(forever).Left().timeout, std::nullopt);
  const WaitOptions once{.timeout = 0ns};
  EXPECT_EQ(WaitLoop(once).Left().timeout, Timeout(0ns));
  const WaitOptions brief{.timeout = 1ns};
  const WaitLoop expired(brief);
  ASSERT_TRUE(test::WaitUntil([&] { return expired.expired(); }));
  EXPECT_EQ(expired.Left().timeout, Timeout(1ns)) << "zero would mean to try once";
}

}  // namespace
}  // namespace reverb::internal
