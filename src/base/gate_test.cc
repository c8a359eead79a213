#include "base/gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace reverb::internal {
namespace {

using std::chrono::seconds;

// Only a hang waits that long.
constexpr seconds kPatience(60);

TEST(GateTest, CountsThoseInside) {
  Gate gate;
  EXPECT_EQ(gate.inside(), 0);
  std::optional<Gate::Pass> first = gate.Enter();
  ASSERT_TRUE(first.has_value());
  {
    std::optional<Gate::Pass> second = gate.Enter();
    ASSERT_TRUE(second.has_value());
    EXPECT_EQ(gate.inside(), 2);
  }
  EXPECT_EQ(gate.inside(), 1);
  first.reset();
  EXPECT_EQ(gate.inside(), 0);
}

TEST(GateTest, AClosedGateTurnsNewcomersAway) {
  Gate gate;
  EXPECT_FALSE(gate.is_closed());
  gate.Close();
  EXPECT_TRUE(gate.is_closed());
  EXPECT_FALSE(gate.Enter().has_value());
  EXPECT_EQ(gate.inside(), 0);
  gate.Close();  // again is fine
}

TEST(GateTest, AMovedPassLeavesOnce) {
  Gate gate;
  std::optional<Gate::Pass> pass = gate.Enter();
  ASSERT_TRUE(pass.has_value());
  auto moved = std::make_unique<Gate::Pass>(*std::move(pass));
  pass.reset();
  EXPECT_EQ(gate.inside(), 1);
  std::optional<Gate::Pass> other = gate.Enter();
  ASSERT_TRUE(other.has_value());
  *moved = *std::move(other);  // leaves for what it held before
  EXPECT_EQ(gate.inside(), 1);
  other.reset();
  moved.reset();
  EXPECT_EQ(gate.inside(), 0);
}

TEST(GateTest, CloseForSaysWhetherAllHaveLeft) {
  Gate gate;
  std::optional<Gate::Pass> pass = gate.Enter();
  EXPECT_FALSE(gate.CloseFor(Duration(0)));
  EXPECT_TRUE(gate.is_closed());
  EXPECT_FALSE(gate.Enter().has_value());
  EXPECT_FALSE(gate.CloseFor(std::chrono::milliseconds(1)));
  pass.reset();
  EXPECT_TRUE(gate.CloseFor(Duration(0)));
  EXPECT_TRUE(gate.CloseFor(Duration::max()));
}

TEST(GateTest, CloseReturnsWhenTheLastOneLeaves) {
  Gate gate;
  std::optional<Gate::Pass> first = gate.Enter();
  std::optional<Gate::Pass> second = gate.Enter();
  std::promise<void> closed;
  std::future<void> is_closed = closed.get_future();
  std::thread closer([&] {
    gate.Close();
    closed.set_value();
  });
  std::thread timed_closer([&] { EXPECT_TRUE(gate.CloseFor(kPatience)); });
  while (!gate.is_closed()) std::this_thread::yield();
  first.reset();
  EXPECT_EQ(is_closed.wait_for(seconds(0)), std::future_status::timeout);
  second.reset();
  EXPECT_EQ(is_closed.wait_for(kPatience), std::future_status::ready);
  closer.join();
  timed_closer.join();
}

TEST(GateTest, MayBeDestroyedAsSoonAsCloseReturns) {
  for (int round = 0; round < 200; ++round) {
    auto gate = std::make_unique<Gate>();
    std::atomic<int> entered{0};
    std::vector<std::thread> sessions;
    for (int i = 0; i < 3; ++i) {
      sessions.emplace_back([&, g = gate.get()] {
        std::optional<Gate::Pass> pass = g->Enter();
        EXPECT_TRUE(pass.has_value());
        ++entered;
        // The gate is not touched after the pass has died.
      });
    }
    while (entered < 3) std::this_thread::yield();
    gate->Close();
    gate.reset();
    for (std::thread& session : sessions) session.join();
  }
}

TEST(GateTest, WhoGotInIsAlwaysWaitedFor) {
  Gate gate;
  std::atomic<int> working{0};
  std::atomic<bool> closed{false};
  std::atomic<int> late{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      while (std::optional<Gate::Pass> pass = gate.Enter()) {
        ++working;
        if (closed) ++late;
        --working;
      }
    });
  }
  while (working == 0) std::this_thread::yield();
  gate.Close();
  closed = true;
  EXPECT_EQ(working, 0);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(late, 0);
}

#ifndef NDEBUG
TEST(GateDeathTest, DestroyingItWithSomebodyInsideIsCaught) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(
      {
        auto gate = std::make_unique<Gate>();
        std::optional<Gate::Pass> pass = gate->Enter();
        gate.reset();
      },
      "somebody inside");
}
#endif

}  // namespace
}  // namespace reverb::internal
