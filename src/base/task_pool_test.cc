#include "base/task_pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <latch>

#include "testing/thread_sanitizer.h"
#include "testing/wait.h"

namespace reverb::internal {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""ms;

TEST(TaskPoolTest, ThreadsAreReused) {
  TaskPool pool(1h);
  for (int i = 0; i < 1000; ++i) {
    std::latch done(1);
    ASSERT_TRUE(pool.Run([&] { done.count_down(); }));
    done.wait();
  }
  EXPECT_LE(pool.num_started(), 100);
  EXPECT_EQ(pool.num_threads(), pool.num_started());
}

TEST(TaskPoolTest, ATaskNeverWaitsForAnother) {
  TaskPool pool(1h);
  constexpr int kTasks = 32;
  std::latch all(kTasks), done(kTasks);
  for (int i = 0; i < kTasks; ++i) {
    // Returns only when all tasks run.
    ASSERT_TRUE(pool.Run([&] {
      all.arrive_and_wait();
      done.count_down();
    }));
  }
  done.wait();
  EXPECT_EQ(pool.num_started(), kTasks);
}

TEST(TaskPoolTest, IdleThreadsEnd) {
  TaskPool pool(1ms);
  std::atomic<int> ran = 0;
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(pool.Run([&] { ++ran; }));
  EXPECT_TRUE(test::WaitUntil([&] { return pool.num_threads() == 0; }));
  EXPECT_EQ(ran, 8);
  ASSERT_TRUE(pool.Run([&] { ++ran; }));
  EXPECT_TRUE(test::WaitUntil([&] { return ran == 9; }));
}

TEST(TaskPoolTest, ManyThreadsMayUseAPool) {
  std::atomic<int> ran = 0;
  {
    TaskPool pool(1ms);
    TaskPool callers(1h);
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(callers.Run([&] {
        for (int k = 0; k < 500; ++k) {
          if (!pool.Run([&] { ++ran; })) ++ran;
        }
      }));
    }
  }
  EXPECT_EQ(ran, 2000) << "a pool that is destroyed has run its tasks";
}

#if !defined(REVERB_TSAN)
TEST(TaskPoolTest, AChildHasItsOwnThreads) {
  std::latch done(1);
  ASSERT_TRUE(ProcessTaskPool().Run([&] { done.count_down(); }));
  done.wait();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::latch ran(1);
    if (!ProcessTaskPool().Run([&] { ran.count_down(); })) _exit(2);
    ran.wait();
    _exit(ProcessTaskPool().num_started() == 1 ? 0 : 3);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}
#endif

}  // namespace
}  // namespace reverb::internal
