#include "base/clock.h"
#include "testing/effort.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "testing/thread_sanitizer.h"

namespace reverb::internal {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;

// Reached only if the test hangs.
constexpr seconds kPatience(60);

TEST(ManualClockTest, StandsStillUntilAdvanced) {
  ManualClock clock;
  const TimePoint start = clock.Now();
  const int64_t wall = clock.WallNanos();
  EXPECT_EQ(clock.Now(), start);
  clock.Advance(seconds(3));
  EXPECT_EQ(clock.Now() - start, seconds(3));
  EXPECT_EQ(clock.WallNanos() - wall, 3'000'000'000);
}

TEST(ManualClockTest, RunsACallbackWhenItsTimeHasComeAndNotBefore) {
  ManualClock clock;
  int runs = 0;
  const Clock::AlarmId id = clock.CallAt(clock.Now() + milliseconds(10), [&] { ++runs; });
  EXPECT_NE(id, 0u);
  EXPECT_EQ(clock.pending(), 1);
  clock.Advance(milliseconds(9));
  EXPECT_EQ(runs, 0);
  clock.Advance(milliseconds(1));
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(clock.pending(), 0);
  clock.Advance(hours(1));
  EXPECT_EQ(runs, 1);
}

TEST(ManualClockTest, RunsCallbacksInOrderOfTimeThenOfAdding) {
  ManualClock clock;
  std::vector<std::string> order;
  const TimePoint start = clock.Now();
  clock.CallAt(start + seconds(2), [&] { order.push_back("two"); });
  clock.CallAt(start + seconds(1), [&] { order.push_back("one, first"); });
  clock.CallAt(start + seconds(1), [&] { order.push_back("one, second"); });
  clock.Advance(seconds(5));
  EXPECT_THAT(order, ElementsAre("one, first", "one, second", "two"));
}

TEST(ManualClockTest, ACallbackSeesTheRequestedTime) {
  ManualClock clock;
  const TimePoint start = clock.Now();
  TimePoint seen;
  clock.CallAt(start + seconds(2), [&] { seen = clock.Now(); });
  clock.Advance(seconds(10));
  EXPECT_EQ(seen, start + seconds(2));
  EXPECT_EQ(clock.Now(), start + seconds(10));
}

TEST(ManualClockTest, ACallbackMayAddAnotherThatFallsDueInTheSameAdvance) {
  ManualClock clock;
  std::vector<int64_t> ticks;
  std::function<void()> tick = [&] {
    ticks.push_back(clock.Now().time_since_epoch() / seconds(1));
    clock.CallAt(clock.Now() + seconds(1), tick);
  };
  clock.CallAt(clock.Now() + seconds(1), tick);
  clock.Advance(milliseconds(3500));
  EXPECT_THAT(ticks, ElementsAre(1, 2, 3));
  EXPECT_EQ(clock.pending(), 1);
}

TEST(ManualClockTest, APastTimeFallsDueInTheNextAdvanceNotInCallAt) {
  ManualClock clock;
  clock.Advance(seconds(5));
  bool ran = false;
  clock.CallAt(clock.Now() - seconds(1), [&] { ran = true; });
  EXPECT_FALSE(ran);
  clock.Advance(Duration(0));
  EXPECT_TRUE(ran);
  EXPECT_EQ(clock.Now().time_since_epoch(), seconds(5));
}

TEST(ManualClockTest, CancelStopsCallbacksThatHaveNotStarted) {
  ManualClock clock;
  bool ran = false;
  bool cancelled_inside = true;
  const Clock::AlarmId stopped = clock.CallAt(clock.Now() + seconds(1), [&] { ran = true; });
  Clock::AlarmId self = 0;
  self = clock.CallAt(clock.Now() + seconds(1), [&] { cancelled_inside = clock.Cancel(self); });
  EXPECT_TRUE(clock.Cancel(stopped));
  EXPECT_FALSE(clock.Cancel(stopped));
  EXPECT_FALSE(clock.Cancel(0));
  EXPECT_FALSE(clock.Cancel(12345));
  clock.Advance(seconds(1));
  EXPECT_FALSE(ran);
  EXPECT_FALSE(cancelled_inside) << "a running callback cannot be cancelled";
  EXPECT_FALSE(clock.Cancel(self));
}

// Its captures may call back when they are destroyed, which deadlocks if the clock's lock is held.
struct CallsOnDeath {
  std::function<void()> call;
  ~CallsOnDeath() { call(); }
};

TEST(ManualClockTest, NoLockIsHeldWhileACallbackIsDestroyed) {
  ManualClock clock;
  int64_t seen = -1;
  auto probe = std::make_shared<CallsOnDeath>(CallsOnDeath{[&] { seen = clock.pending(); }});
  const Clock::AlarmId id = clock.CallAt(clock.Now() + seconds(1), [probe] {});
  probe.reset();
  EXPECT_TRUE(clock.Cancel(id));
  EXPECT_EQ(seen, 0);
}

TEST(ManualClockTest, ConcurrentAdvancesAddUp) {
  ManualClock clock;
  std::atomic<int> runs{0};
  for (int i = 1; i <= 400; ++i) clock.CallAt(clock.Now() + milliseconds(i), [&] { ++runs; });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) clock.Advance(milliseconds(1));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(clock.Now().time_since_epoch(), milliseconds(400));
  EXPECT_EQ(runs, 400);
}

TEST(ManualClockTest, AnEndlessAdvanceStopsAtTheEndOfTime) {
  ManualClock clock;
  clock.Advance(seconds(1));
  clock.Advance(Duration::max());
  EXPECT_EQ(clock.Now(), TimePoint::max());
}

TEST(RealClockTest, TimeGoesOnAndWallTimeIsThisCentury) {
  const TimePoint first = RealClock()->Now();
  EXPECT_GE(RealClock()->Now(), first);
  EXPECT_GT(RealClock()->WallNanos(), 1'600'000'000'000'000'000);
  EXPECT_EQ(RealClock(), RealClock());
}

TEST(RealClockTest, CallsBackOnATimerThreadNotBeforeTheTime) {
  Clock* const clock = RealClock();
  std::promise<std::pair<TimePoint, std::string>> called;
  const TimePoint when = clock->Now() + milliseconds(5);
  clock->CallAt(when, [&] {
    std::string name;
    std::ifstream("/proc/thread-self/comm") >> name;
    called.set_value({clock->Now(), name});
  });
  std::future<std::pair<TimePoint, std::string>> future = called.get_future();
  ASSERT_EQ(future.wait_for(kPatience), std::future_status::ready);
  const auto [at, name] = future.get();
  EXPECT_GE(at, when);
  EXPECT_EQ(name, "rv-timer");
}

TEST(RealClockTest, AnEarlierAlarmOvertakesALaterOne) {
  Clock* const clock = RealClock();
  std::promise<void> called;
  const Clock::AlarmId far = clock->CallAt(clock->Now() + hours(1), [] {});
  const Clock::AlarmId never = clock->CallAt(TimePoint::max(), [] {});
  clock->CallAt(clock->Now(), [&] { called.set_value(); });
  EXPECT_EQ(called.get_future().wait_for(kPatience), std::future_status::ready);
  EXPECT_TRUE(clock->Cancel(far));
  EXPECT_TRUE(clock->Cancel(never));
  EXPECT_FALSE(clock->Cancel(far));
}

TEST(RealClockTest, ACallbackMayUseTheClock) {
  Clock* const clock = RealClock();
  std::promise<bool> done;
  clock->CallAt(clock->Now(), [&] {
    const Clock::AlarmId later = clock->CallAt(clock->Now() + hours(1), [] {});
    const bool cancelled = clock->Cancel(later);
    clock->CallAt(clock->Now(), [&done, cancelled] { done.set_value(cancelled); });
  });
  std::future<bool> future = done.get_future();
  ASSERT_EQ(future.wait_for(kPatience), std::future_status::ready);
  EXPECT_TRUE(future.get());
}

TEST(RealClockTest, EachAlarmRunsOrIsCancelledNeverBoth) {
  Clock* const clock = RealClock();
  constexpr int kThreads = 4;
  constexpr int kAlarms = 500;
  std::atomic<int> ran{0};
  std::atomic<int> cancelled{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kAlarms; ++i) {
        const Clock::AlarmId id = clock->CallAt(clock->Now(), [&] { ++ran; });
        if (i % 2 == 0 && clock->Cancel(id)) ++cancelled;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // Alarms run in order of time, so when this one runs the others have.
  std::promise<void> last;
  clock->CallAt(clock->Now(), [&] { last.set_value(); });
  ASSERT_EQ(last.get_future().wait_for(kPatience), std::future_status::ready);
  EXPECT_EQ(ran + cancelled, kThreads * kAlarms);
}

TEST(RealClockTest, AForkedChildHasATimerOfItsOwnAndNoneOfTheParentsAlarms) {
#ifdef REVERB_TSAN
  GTEST_SKIP() << "ThreadSanitizer does not follow threads of a forked child";
#else
  Clock* const clock = RealClock();
  // Keeps the timer's lock busy, so that many forks happen while it is held.
  std::atomic<bool> stop{false};
  // Not under AddressSanitizer, whose allocator may itself be locked at a fork.
  std::thread busy([&] {
    while (!stop && !test::kSanitized) clock->Cancel(clock->CallAt(clock->Now() + hours(1), [] {}));
  });
  const Clock::AlarmId parents = clock->CallAt(clock->Now() + hours(1), [] {});
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(30);  // a deadlock ends by a signal
      if (clock->Cancel(parents)) _exit(1);
      std::promise<void> called;
      const Clock::AlarmId mine = clock->CallAt(clock->Now(), [&] { called.set_value(); });
      if (mine <= parents) _exit(2);
      if (called.get_future().wait_for(kPatience) != std::future_status::ready) _exit(3);
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  stop = true;
  busy.join();
  EXPECT_TRUE(clock->Cancel(parents));
#endif
}

}  // namespace
}  // namespace reverb::internal
