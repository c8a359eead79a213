#include "transport/local/event_loop.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>

#include "testing/wait.h"

namespace reverb::internal {
namespace {

using std::chrono_literals::operator""us;

// Counts the events of an eventfd.
struct Counter final : EventHandler {
  void OnEvents(uint32_t events) override {
    uint64_t value = 0;
    if ((events & EPOLLIN) != 0 && read(fd.get(), &value, sizeof value) == sizeof value) total += value;
  }
  void Add(uint64_t value) const { (void)!write(fd.get(), &value, sizeof value); }
  const Descriptor fd{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::atomic<uint64_t> total{0};
};

class EventLoopTest : public testing::TestWithParam<Duration> {
 protected:
  std::unique_ptr<EventLoop> loop_ = EventLoop::Start("rv-test", GetParam()).value();
};

INSTANTIATE_TEST_SUITE_P(Spin, EventLoopTest, testing::Values(Duration(0), Duration(200us)),
                         [](const auto& info) { return info.param > Duration(0) ? "spins" : "sleeps"; });

TEST_P(EventLoopTest, HandlersAreCalledUntilTheyAreRemoved) {
  const auto counter = std::make_shared<Counter>();
  const uint64_t id = loop_->Add(counter->fd.get(), EPOLLIN, counter);
  ASSERT_NE(id, 0u);
  for (uint64_t i = 1; i <= 100; ++i) {
    counter->Add(1);
    ASSERT_TRUE(test::WaitUntil([&] { return counter->total == i; }));
  }
  loop_->Modify(counter->fd.get(), id, 0);
  counter->Add(5);
  loop_->Modify(counter->fd.get(), id, EPOLLIN);
  EXPECT_TRUE(test::WaitUntil([&] { return counter->total == 105; })) << "events that came meanwhile";
  loop_->Remove(counter->fd.get(), id);
  counter->Add(1);
  std::atomic<bool> is_done{false};
  loop_->Post([&] { is_done = true; });
  ASSERT_TRUE(test::WaitUntil([&] { return is_done.load(); }));
  EXPECT_EQ(counter->total, 105u);
  EXPECT_EQ(counter.use_count(), 1);
}

TEST_P(EventLoopTest, PostedWorkRunsOnTheThreadInOrder) {
  std::atomic<int> next{0};
  std::atomic<bool> in_order{true};
  for (int i = 0; i < 1000; ++i) {
    loop_->Post([&, i] {
      in_order = in_order && loop_->is_this_thread() && next == i;
      ++next;
      if (i == 999) loop_->Post([&] { ++next; });
    });
  }
  loop_->Stop();
  EXPECT_EQ(next, 1001) << "Stop() waits for it";
  EXPECT_TRUE(in_order);
  EXPECT_FALSE(loop_->is_this_thread());
}

TEST_P(EventLoopTest, EventsComeBetweenWorkThatPostsItselfAgain) {
  constexpr int kMost = 1'000'000;
  const auto counter = std::make_shared<Counter>();
  ASSERT_NE(loop_->Add(counter->fd.get(), EPOLLIN, counter), 0u);
  std::atomic<bool> is_done{false};
  int turns = 0;
  std::function<void()> work = [&] {
    if (turns++ == 0) counter->Add(1);
    is_done = counter->total > 0 || turns == kMost;
    if (!is_done) loop_->Post(work);
  };
  loop_->Post(work);
  ASSERT_TRUE(test::WaitUntil([&] { return is_done.load(); }));
  loop_->Stop();
  EXPECT_LT(turns, kMost);
}

TEST(EventLoopStartTest, AClosedDescriptorCannotBeWatched) {
  const auto loop = EventLoop::Start("rv-test").value();
  const auto counter = std::make_shared<Counter>();
  EXPECT_EQ(loop->Add(-1, EPOLLIN, counter), 0u);
  EXPECT_EQ(counter.use_count(), 1);
}

}  // namespace
}  // namespace reverb::internal
