#include "base/strand.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/background.h"
#include "base/random.h"
#include "testing/effort.h"
#include "testing/seed.h"

namespace reverb::internal {
namespace {

using Next = Strand::Next;

// --- Individual behaviours ------------------------------------------------------------------------

TEST(StrandTest, RunsStepsUntilNothingIsDue) {
  Strand strand;
  int left = 3;
  EXPECT_FALSE(strand.Run([&] { return left-- > 0 ? Next::kAgain : Next::kWait; }));
  EXPECT_EQ(left, -1);
  EXPECT_FALSE(strand.is_running());
  EXPECT_FALSE(strand.is_closed());
}

TEST(StrandTest, ARunInsideAStepTakesNoStepButMakesAnotherFollow) {
  Strand strand;
  int steps = 0;
  const auto step = [&] {
    EXPECT_TRUE(strand.is_running());
    if (++steps == 1) {
      EXPECT_FALSE(strand.Run([]() -> Next {
        ADD_FAILURE() << "two steps at the same time";
        return Next::kWait;
      }));
    }
    return Next::kWait;
  };
  EXPECT_FALSE(strand.Run(step));
  EXPECT_EQ(steps, 2);
}

TEST(StrandTest, ScheduleIsGrantedOnceAndAnyRunServesIt) {
  Strand strand;
  EXPECT_TRUE(strand.Schedule());
  EXPECT_TRUE(strand.is_scheduled());
  EXPECT_FALSE(strand.is_running());
  EXPECT_FALSE(strand.Schedule());
  int steps = 0;
  const auto step = [&] {
    EXPECT_FALSE(strand.is_scheduled());
    // A running step is followed by another one: nothing has to be scheduled.
    if (++steps == 1) {
      EXPECT_FALSE(strand.Schedule());
    }
    return Next::kWait;
  };
  strand.Run(step);
  EXPECT_EQ(steps, 2);
  EXPECT_FALSE(strand.is_scheduled());
  strand.Run(step);  // the scheduled run, late
  EXPECT_EQ(steps, 3);
  EXPECT_TRUE(strand.Schedule());
}

TEST(StrandTest, AStepClosesTheStrand) {
  Strand strand;
  EXPECT_TRUE(strand.Run([] { return Next::kClose; }));
  EXPECT_TRUE(strand.is_closed());
  EXPECT_FALSE(strand.is_running());
  EXPECT_FALSE(strand.Close());
  EXPECT_FALSE(strand.Schedule());
  EXPECT_FALSE(strand.Run([]() -> Next {
    ADD_FAILURE() << "a step after the end";
    return Next::kWait;
  }));
}

TEST(StrandTest, CloseDuringAStepEndsTheRunThatCalledIt) {
  Strand strand;
  int steps = 0;
  EXPECT_TRUE(strand.Run([&] {
    ++steps;
    EXPECT_FALSE(strand.Close());
    EXPECT_TRUE(strand.is_closed());
    EXPECT_TRUE(strand.is_running());
    EXPECT_FALSE(strand.Close());
    EXPECT_FALSE(strand.Run([] { return Next::kWait; }));
    return Next::kAgain;
  }));
  EXPECT_EQ(steps, 1);
  EXPECT_FALSE(strand.is_running());
}

TEST(StrandTest, CloseOfAnIdleOrScheduledStrandIsImmediate) {
  Strand idle;
  EXPECT_TRUE(idle.Close());
  EXPECT_TRUE(idle.is_closed());
  Strand scheduled;
  EXPECT_TRUE(scheduled.Schedule());
  EXPECT_TRUE(scheduled.Close());
  EXPECT_FALSE(scheduled.is_scheduled());
  EXPECT_FALSE(scheduled.Run([] { return Next::kWait; }));
}

// --- All interleavings ----------------------------------------------------------------------------
//
// Events update guarded state with the lock held. Other actors can therefore interfere with a step only where
// it has released the lock, and their events can as well be called from there, on the same thread. The model
// does that: it tries every order of a bounded number of events, before a step and inside it.

// Chooses the next event.
class Decisions {
 public:
  virtual ~Decisions() = default;
  virtual size_t Pick(size_t choices) = 0;  // less than `choices`
};

// Enumerates all sequences of decisions, one per pass.
class AllDecisions final : public Decisions {
 public:
  size_t Pick(size_t choices) override {
    if (at_ == picks_.size()) picks_.push_back({0, choices});
    EXPECT_EQ(picks_[at_].second, choices) << "the model is not deterministic";
    return picks_[at_++].first;
  }
  // Advances to the next sequence; returns false after the last one.
  bool Advance() {
    at_ = 0;
    while (!picks_.empty() && picks_.back().first + 1 == picks_.back().second) picks_.pop_back();
    if (picks_.empty()) return false;
    ++picks_.back().first;
    return true;
  }

 private:
  std::vector<std::pair<size_t, size_t>> picks_;  // choice, number of choices
  size_t at_ = 0;
};

class RandomDecisions final : public Decisions {
 public:
  explicit RandomDecisions(uint64_t seed) : random_(seed) {}
  size_t Pick(size_t choices) override { return random_.Below(choices); }

 private:
  Random random_;
};

// The way in which the owner writes its step.
enum class Style {
  kOneByOne,   // sends one message, then requests another step
  kInBatches,  // sends all pending messages and relies on the strand to notice new ones
};

// Sends numbered messages to a receiver, and models the events of all actors.
class ModelSender {
 public:
  struct Bounds {
    int posts = 0;      // messages posted by actors that send themselves
    int deferrals = 0;  // messages posted by an actor that leaves sending to another thread
    int closes = 0;     // calls of Close()
    int ends = 0;       // requests to close after the messages so far
  };

  ModelSender(Style style, const Bounds& bounds, Decisions* decisions)
      : style_(style), left_(bounds), decisions_(decisions) {}

  // Runs events until the decisions end them. Returns an error, or an empty string.
  std::string Execute() {
    Interfere();
    // Everything promised happens eventually.
    while (promised_runs_ > 0) RunPromised();
    while (!is_ready_ && !is_closed_) MakeReady();
    Check(!strand_.is_running(), "a run is left over");
    Check(strand_.is_closed() == is_closed_, "the strand is closed and the model is not, or vice versa");
    Check(!strand_.is_scheduled(), "a scheduled run is left over");
    for (size_t i = 0; i < sent_.size(); ++i) Check(sent_[i] == static_cast<int>(i), "messages out of order");
    if (is_closed_) {
      Check(final_calls_ == 1, "not exactly one final call");
    } else {
      Check(final_calls_ == 0, "a final call without an end");
      Check(static_cast<int>(sent_.size()) == posted_, "a message was left behind");
      Check(!is_ending_, "the end was left behind");
    }
    return error_;
  }
  size_t num_sent() const { return sent_.size(); }

 private:
  void Check(bool condition, const char* what) {
    if (!condition && error_.empty()) error_ = what;
  }

  // Runs any number of events.
  void Interfere() {
    while (true) {
      std::vector<std::function<void()>> events;
      if (left_.posts > 0) events.push_back([this] { Post(); });
      if (left_.deferrals > 0) events.push_back([this] { Defer(); });
      if (promised_runs_ > 0) events.push_back([this] { RunPromised(); });
      if (!is_ready_) events.push_back([this] { MakeReady(); });
      if (left_.closes > 0) events.push_back([this] { Close(); });
      if (left_.ends > 0) events.push_back([this] { RequestEnd(); });
      const size_t pick = decisions_->Pick(events.size() + 1);
      if (pick == events.size()) return;
      events[pick]();
    }
  }

  void Post() {
    --left_.posts;
    if (!is_closed_ && !is_ending_) queue_.push_back(posted_++);
    Run();
  }
  void Defer() {
    --left_.deferrals;
    if (!is_closed_ && !is_ending_) queue_.push_back(posted_++);
    if (strand_.Schedule()) ++promised_runs_;
  }
  void RunPromised() {
    --promised_runs_;
    Run();
  }
  void MakeReady() {
    is_ready_ = true;
    Run();
  }
  void Close() {
    --left_.closes;
    is_closed_ = true;
    if (strand_.Close()) FinalCall();
  }
  void RequestEnd() {
    --left_.ends;
    is_ending_ = true;
    Run();
  }

  void Run() {
    if (strand_.Run([this] { return Step(); })) FinalCall();
  }
  Next Step() {
    Check(!is_closed_, "a step after the end");
    if (!is_ready_) return Next::kWait;
    if (queue_.empty()) {
      is_closed_ = is_ending_;
      return is_ending_ ? Next::kClose : Next::kWait;
    }
    std::deque<int> messages;
    if (style_ == Style::kOneByOne) {
      messages.push_back(queue_.front());
      queue_.pop_front();
    } else {
      messages.swap(queue_);
    }
    is_ready_ = false;
    Check(!is_sending_, "two sends at the same time");
    is_sending_ = true;
    Interfere();  // the lock is free
    Check(final_calls_ == 0, "the final call came before the last step had returned");
    sent_.insert(sent_.end(), messages.begin(), messages.end());
    is_sending_ = false;
    is_ready_ |= decisions_->Pick(2) == 1;
    if (style_ == Style::kInBatches && !(is_ready_ && is_ending_)) return Next::kWait;
    return Next::kAgain;
  }
  void FinalCall() {
    ++final_calls_;
    Check(!strand_.is_running() && !is_sending_, "the final call came during a step");
  }

  const Style style_;
  Bounds left_;
  Decisions* const decisions_;

  Strand strand_;
  std::deque<int> queue_;
  int posted_ = 0;
  bool is_ready_ = true;
  bool is_ending_ = false;
  bool is_sending_ = false;
  bool is_closed_ = false;  // by Close() or by a step
  int promised_runs_ = 0;
  int final_calls_ = 0;
  std::vector<int> sent_;
  std::string error_;
};

void ExploreAll(Style style, const ModelSender::Bounds& bounds, int64_t at_least) {
  AllDecisions decisions;
  int64_t sequences = 0;
  do {
    ModelSender sender(style, bounds, &decisions);
    ASSERT_EQ(sender.Execute(), "") << "in sequence " << sequences;
    ++sequences;
  } while (decisions.Advance());
  EXPECT_GE(sequences, at_least);
}

TEST(StrandModelTest, AllInterleavingsOfThreePosts) {
  for (const Style style : {Style::kOneByOne, Style::kInBatches}) {
    ExploreAll(style, {.posts = 2, .deferrals = 1}, 100);
  }
}

TEST(StrandModelTest, AllInterleavingsWithAClose) {
  for (const Style style : {Style::kOneByOne, Style::kInBatches}) {
    ExploreAll(style, {.posts = 1, .deferrals = 1, .closes = 2}, 1000);
  }
}

TEST(StrandModelTest, AllInterleavingsWithAnEnd) {
  for (const Style style : {Style::kOneByOne, Style::kInBatches}) {
    ExploreAll(style, {.posts = 1, .deferrals = 1, .closes = 1, .ends = 1}, 1000);
  }
}

TEST(StrandModelTest, LongRandomInterleavings) {
  const uint64_t seed = test::Seed();
  SCOPED_TRACE(test::SeedTrace(seed));
  Random random(seed);
  size_t sent = 0;
  for (int64_t i = 0; i < test::Effort(20'000, 2'000); ++i) {
    const auto below = [&](uint64_t bound) { return static_cast<int>(random.Below(bound)); };
    const ModelSender::Bounds bounds{
        .posts = below(20), .deferrals = below(20), .closes = below(2), .ends = below(2)};
    RandomDecisions decisions(random.Next());
    ModelSender sender(below(2) == 0 ? Style::kOneByOne : Style::kInBatches, bounds, &decisions);
    ASSERT_EQ(sender.Execute(), "") << "in run " << i;
    sent += sender.num_sent();
  }
  EXPECT_GT(sent, 0u);
}

// --- Threads --------------------------------------------------------------------------------------

// Counts events in steps that run without the lock. ThreadSanitizer checks `unguarded_`.
class Counter {
 public:
  void Add(bool is_deferred) EXCLUDES(mu_) {
    bool is_scheduled = false;
    {
      MutexLock lock(&mu_);
      ++due_;
      is_scheduled = is_deferred && strand_.Schedule();
    }
    if (is_scheduled) RunInBackground([this] { Run(); });
    if (!is_deferred) Run();
  }
  // Returns when no step runs any more.
  void Close() EXCLUDES(mu_) {
    bool is_last = false;
    {
      MutexLock lock(&mu_);
      is_last = strand_.Close();
      while (strand_.is_running()) changed_.Wait(&mu_);
    }
    if (is_last) ++final_calls_;
  }
  void Await(int64_t count) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    while (counted_ < count) changed_.Wait(&mu_);
  }
  // REQUIRES: no step runs.
  int64_t unguarded() const { return unguarded_; }
  int final_calls() const { return final_calls_; }

 private:
  void Run() EXCLUDES(mu_) {
    bool is_last = false;
    {
      MutexLock lock(&mu_);
      is_last = strand_.Run([this]() REQUIRES(mu_) { return Step(); });
      changed_.NotifyAll();
    }
    if (is_last) ++final_calls_;
  }
  Next Step() REQUIRES(mu_) {
    if (due_ == 0) return Next::kWait;
    const int64_t take = std::exchange(due_, 0);
    mu_.Unlock();
    unguarded_ += take;
    mu_.Lock();
    counted_ += take;
    return Next::kWait;  // new events have called Run()
  }

  Mutex mu_;
  CondVar changed_;
  Strand strand_ GUARDED_BY(mu_);
  int64_t due_ GUARDED_BY(mu_) = 0;
  int64_t counted_ GUARDED_BY(mu_) = 0;
  int64_t unguarded_ = 0;  // accessed by the running step only
  std::atomic<int> final_calls_ = 0;
};

void AddFromThreads(Counter* counter, int64_t per_thread) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([counter, t, per_thread] {
      for (int64_t i = 0; i < per_thread; ++i) counter->Add(/*is_deferred=*/(i + t) % 3 == 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Waits until tasks that were queued before have run.
void AwaitBackground() {
  Mutex mu;
  CondVar changed;
  bool is_done = false;
  RunInBackground([&] {
    MutexLock lock(&mu);
    is_done = true;
    changed.NotifyAll();
  });
  MutexLock lock(&mu);
  while (!is_done) changed.Wait(&mu);
}

TEST(StrandThreadsTest, EveryEventOfManyThreadsIsServed) {
  const int64_t per_thread = test::Effort(20'000, 5'000);
  Counter counter;
  AddFromThreads(&counter, per_thread);
  counter.Await(4 * per_thread);
  counter.Close();
  AwaitBackground();
  EXPECT_EQ(counter.unguarded(), 4 * per_thread);
  EXPECT_EQ(counter.final_calls(), 1);
}

TEST(StrandThreadsTest, CloseWaitsForTheRunningStep) {
  for (int64_t i = 0; i < test::Effort(300, 100); ++i) {
    Counter counter;
    std::thread closer([&counter, i] {
      for (int64_t spin = 0; spin < i; ++spin) std::this_thread::yield();
      counter.Close();
      const int64_t at_close = counter.unguarded();  // no step runs any more
      std::this_thread::yield();
      EXPECT_EQ(counter.unguarded(), at_close);
    });
    AddFromThreads(&counter, 20);
    closer.join();
    AwaitBackground();
    ASSERT_EQ(counter.final_calls(), 1);
  }
}

}  // namespace
}  // namespace reverb::internal
