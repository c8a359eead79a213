#include "base/fork.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <mutex>

namespace reverb::internal {
namespace {

// Returns the exit status of a child that runs `function`.
template <typename F>
int RunInChild(F&& function) {
  const pid_t child = fork();
  if (child == 0) _exit(function());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ForkTest, ChildrenAndGrandchildrenHaveOtherGenerations) {
  const uint64_t mine = ForkGeneration();
  EXPECT_EQ(RunInChild([&] { return ForkGeneration() == mine + 1 ? 0 : 1; }), 0);
  EXPECT_EQ(RunInChild([&] { return RunInChild([&] { return ForkGeneration() == mine + 2 ? 0 : 1; }); }), 0);
  EXPECT_EQ(ForkGeneration(), mine);
}

struct Counter {
  std::mutex mu;
  int count = 0;
};
constinit PerProcess<Counter> counters;

TEST(ForkTest, AChildGetsObjectsOfItsOwn) {
  Counter& mine = counters.get();
  mine.count = 7;
  EXPECT_EQ(&counters.get(), &mine);
  const std::lock_guard held(mine.mu);  // as another thread might hold it during fork()
  EXPECT_EQ(RunInChild([&] {
              Counter& own = counters.get();
              const std::lock_guard lock(own.mu);
              return &own != &mine && own.count == 0 && &counters.get() == &own ? 0 : 1;
            }),
            0);
  EXPECT_EQ(counters.get().count, 7);
}

}  // namespace
}  // namespace reverb::internal
