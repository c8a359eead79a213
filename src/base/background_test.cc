#include "base/background.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "testing/thread_sanitizer.h"

namespace reverb::internal {
namespace {

// Reached only if the test hangs.
constexpr std::chrono::seconds kPatience(60);

TEST(BackgroundTest, RunsInOrderOnALowPriorityThread) {
  std::vector<int> order;  // accessed by that thread until the last task
  std::promise<std::pair<std::string, int>> done;
  for (int i = 0; i < 100; ++i) RunInBackground([&order, i] { order.push_back(i); });
  RunInBackground([&] {
    std::string name;
    std::ifstream("/proc/thread-self/comm") >> name;
    done.set_value({name, sched_getscheduler(0)});
  });
  std::future<std::pair<std::string, int>> future = done.get_future();
  ASSERT_EQ(future.wait_for(kPatience), std::future_status::ready);
  const auto [name, policy] = future.get();
  EXPECT_EQ(name, "rv-background");
  // The thread inherits another policy if the test runs under one.
  EXPECT_EQ(policy, sched_getscheduler(0) == SCHED_OTHER ? SCHED_BATCH : sched_getscheduler(0));
  ASSERT_EQ(order.size(), 100u);
  EXPECT_TRUE(std::ranges::is_sorted(order));
}

TEST(BackgroundTest, ATaskMayAddAnother) {
  std::promise<void> done;
  RunInBackground([&] { RunInBackground([&] { done.set_value(); }); });
  EXPECT_EQ(done.get_future().wait_for(kPatience), std::future_status::ready);
}

TEST(BackgroundTest, AForkedChildHasAThreadOfItsOwn) {
#ifdef REVERB_TSAN
  GTEST_SKIP() << "ThreadSanitizer does not follow threads of a forked child";
#else
  std::promise<void> parents;
  RunInBackground([&] { parents.set_value(); });
  ASSERT_EQ(parents.get_future().wait_for(kPatience), std::future_status::ready);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(30);  // a deadlock ends by a signal
    std::promise<void> called;
    RunInBackground([&] { called.set_value(); });
    _exit(called.get_future().wait_for(kPatience) == std::future_status::ready ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
#endif
}

}  // namespace
}  // namespace reverb::internal
