#include "base/clock.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cassert>

#include "base/detached_thread.h"

namespace reverb::internal {

// ---------------------------------------------------------------------------------------
// AlarmQueue

void AlarmQueue::Add(Clock::AlarmId id, TimePoint when, std::function<void()> callback) {
  by_time_.emplace(std::pair(when, id), std::move(callback));
  times_.emplace(id, when);
}

std::optional<AlarmQueue::Due> AlarmQueue::Remove(Clock::AlarmId id) {
  const auto time = times_.find(id);
  if (time == times_.end()) return std::nullopt;
  const auto alarm = by_time_.find({time->second, id});
  assert(alarm != by_time_.end());
  Due due{time->second, std::move(alarm->second)};
  by_time_.erase(alarm);
  times_.erase(time);
  return due;
}

std::optional<AlarmQueue::Due> AlarmQueue::PopDue(TimePoint now) {
  if (by_time_.empty() || next() > now) return std::nullopt;
  return Remove(by_time_.begin()->first.second);
}

// ---------------------------------------------------------------------------------------
// The real clock

namespace {

class Timer;

// The timer of this process, created by the first CallAt. Null again in a child after fork(): the parent's
// threads may have been changing theirs at that moment, so the child does not use it.
std::atomic<Timer*> current_timer{nullptr};
// The parent's timer, in a child; kept reachable for leak checkers.
std::atomic<Timer*> parents_timer{nullptr};
// Outlives the timers, so that an ID from before a fork() never identifies an alarm created after it.
std::atomic<Clock::AlarmId> next_alarm_id{1};

// Alarms and the thread that runs them. Never destroyed once it is current.
class Timer {
 public:
  explicit Timer(Timer* parents) : parents_(parents) {}

  Clock::AlarmId CallAt(TimePoint when, std::function<void()> callback) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    // Under the lock: the queue requires ascending IDs.
    const Clock::AlarmId id = next_alarm_id.fetch_add(1, std::memory_order_relaxed);
    const bool is_first = alarms_.empty() || when < alarms_.next();
    alarms_.Add(id, when, std::move(callback));
    // When the system has no thread left, the alarm waits for a later call that gets one.
    if (!started_) started_ = StartThread();
    if (is_first) changed_.NotifyOne();
    return id;
  }

  bool Cancel(Clock::AlarmId id) EXCLUDES(mu_) {
    std::optional<AlarmQueue::Due> removed;  // destroyed after the lock is released
    MutexLock lock(&mu_);
    removed = alarms_.Remove(id);
    return removed.has_value();
  }

 private:
  bool StartThread() {
    return StartDetachedThread(
        "rv-timer",
        [](void* self) -> void* {
          static_cast<Timer*>(self)->Run();
          return nullptr;
        },
        this);
  }

  void Run() EXCLUDES(mu_) {
    // Becomes false only in a child that a callback forked, where this is the only thread.
    while (current_timer.load(std::memory_order_acquire) == this) {
      std::optional<AlarmQueue::Due> due = WaitForDue();
      if (due) due->callback();
    }
  }

  // Returns a callback that is due, or nothing if the wait ended for another reason.
  std::optional<AlarmQueue::Due> WaitForDue() EXCLUDES(mu_) {
    // Bounds the wait: adding a distant alarm to the time of day would overflow.
    constexpr Duration kLongestWait = std::chrono::hours(1);
    MutexLock lock(&mu_);
    if (alarms_.empty()) {
      changed_.Wait(&mu_);
      return std::nullopt;
    }
    const TimePoint now = std::chrono::steady_clock::now();
    if (alarms_.next() <= now) return alarms_.PopDue(now);
    // Compared before subtracting, for the same reason.
    const TimePoint latest = now + kLongestWait;
    changed_.WaitFor(&mu_, std::min(alarms_.next(), latest) - now);
    return std::nullopt;
  }

  [[maybe_unused]] Timer* const parents_;  // for leak checkers

  Mutex mu_;
  CondVar changed_;
  AlarmQueue alarms_ GUARDED_BY(mu_);
  bool started_ GUARDED_BY(mu_) = false;
};

Timer* CurrentTimer() {
  Timer* timer = current_timer.load(std::memory_order_acquire);
  if (timer != nullptr) return timer;
  Timer* const fresh = new Timer(parents_timer.load(std::memory_order_relaxed));
  if (current_timer.compare_exchange_strong(timer, fresh, std::memory_order_acq_rel)) return fresh;
  delete fresh;  // another thread has created one
  return timer;
}

class TheRealClock final : public Clock {
 public:
  TimePoint Now() const override { return std::chrono::steady_clock::now(); }

  int64_t WallNanos() const override {
    timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  }

  AlarmId CallAt(TimePoint when, std::function<void()> callback) override {
    return CurrentTimer()->CallAt(when, std::move(callback));
  }

  bool Cancel(AlarmId id) override {
    Timer* const timer = current_timer.load(std::memory_order_acquire);
    return timer != nullptr && timer->Cancel(id);
  }
};

}  // namespace

Clock* RealClock() {
  // Never destroyed: threads may use it while the process exits.
  static Clock* const clock = new TheRealClock();
  return clock;
}

namespace {

// Runs while the program is loaded, so that no thread can fork() during the registration. Registering fails
// only if memory is exhausted; then children have no timer.
[[maybe_unused]] const bool kTimerPreparedForFork = [] {
  RealClock();
  return pthread_atfork(nullptr, nullptr, [] {
           parents_timer.store(current_timer.load(std::memory_order_relaxed), std::memory_order_relaxed);
           current_timer.store(nullptr, std::memory_order_relaxed);
         }) == 0;
}();

}  // namespace

// ---------------------------------------------------------------------------------------
// ManualClock

TimePoint ManualClock::Now() const {
  MutexLock lock(&mu_);
  return now_;
}

int64_t ManualClock::WallNanos() const {
  constexpr int64_t kStart = 1'577'836'800'000'000'000;  // 2020-01-01T00:00:00Z
  return kStart + Now().time_since_epoch().count();
}

Clock::AlarmId ManualClock::CallAt(TimePoint when, std::function<void()> callback) {
  MutexLock lock(&mu_);
  const AlarmId id = next_id_++;
  alarms_.Add(id, when, std::move(callback));
  return id;
}

bool ManualClock::Cancel(AlarmId id) {
  std::optional<AlarmQueue::Due> removed;  // destroyed after the lock is released
  MutexLock lock(&mu_);
  removed = alarms_.Remove(id);
  return removed.has_value();
}

void ManualClock::Advance(Duration by) {
  assert(by >= Duration(0) && "time never goes backwards");
  TimePoint target;
  {
    MutexLock lock(&mu_);
    target = target_ = by < TimePoint::max() - target_ ? target_ + by : TimePoint::max();
  }
  while (true) {
    std::optional<AlarmQueue::Due> due;  // called and destroyed without the lock
    {
      MutexLock lock(&mu_);
      due = alarms_.PopDue(target);
      now_ = std::max(now_, due ? due->when : target);
    }
    if (!due) return;
    due->callback();
  }
}

int64_t ManualClock::pending() const {
  MutexLock lock(&mu_);
  return static_cast<int64_t>(alarms_.size());
}

}  // namespace reverb::internal
