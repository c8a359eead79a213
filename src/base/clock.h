// clock.h — an interface to time, so that tests can control it and need not sleep.
//
// A Clock returns the time and runs callbacks at a given time. The real one runs all callbacks of the process
// on one thread; the manual one runs them inside Advance().
#ifndef REVERB_BASE_CLOCK_H_
#define REVERB_BASE_CLOCK_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/mutex.h"

namespace reverb::internal {

using Duration = std::chrono::nanoseconds;
// Time since an arbitrary start; never goes backwards.
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

class Clock {
 public:
  // Identifies a pending callback; 0 is never used.
  using AlarmId = uint64_t;

  virtual ~Clock() = default;

  virtual TimePoint Now() const = 0;
  // Returns nanoseconds since the Unix epoch, for display and for files. Accurate to some milliseconds; costs
  // a fourth of Now(), which matters because every insert calls it.
  virtual int64_t WallNanos() const = 0;

  // Calls `callback` once, at `when` or soon after, on a thread that the clock chooses, without holding a
  // lock of the clock. It must be quick and must not block.
  virtual AlarmId CallAt(TimePoint when, std::function<void()> callback) = 0;
  // Returns false if the callback has run, is running, or is unknown.
  virtual bool Cancel(AlarmId id) = 0;
};

// Returns the process-wide real clock. Its thread ("rv-timer") starts with the first CallAt and runs as long
// as the process. A child created by fork() starts without alarms: those of the parent fire in the parent
// only, and the first CallAt in the child starts a thread there.
Clock* RealClock();

// Pending callbacks, by time and by ID; callbacks with the same time keep the order in which they were added.
// The caller provides locking.
class AlarmQueue {
 public:
  struct Due {
    TimePoint when;
    std::function<void()> callback;
  };

  // REQUIRES: IDs are unique and ascending.
  void Add(Clock::AlarmId id, TimePoint when, std::function<void()> callback);
  // Removes and returns the callback, so that the caller can destroy it without holding its lock.
  std::optional<Due> Remove(Clock::AlarmId id);
  // Removes and returns the earliest callback if its time is not after `now`.
  std::optional<Due> PopDue(TimePoint now);
  // Returns the earliest time. REQUIRES: not empty.
  TimePoint next() const { return by_time_.begin()->first.first; }
  bool empty() const { return by_time_.empty(); }
  size_t size() const { return by_time_.size(); }

 private:
  std::map<std::pair<TimePoint, Clock::AlarmId>, std::function<void()>> by_time_;
  std::unordered_map<Clock::AlarmId, TimePoint> times_;
};

// Changes its time only in Advance(); its wall clock starts in the year 2020. A callback that is already due
// when it is added runs in the next Advance(), even if that advances by zero.
// Threads: all methods may be called concurrently, and from callbacks.
class ManualClock final : public Clock {
 public:
  TimePoint Now() const override;
  int64_t WallNanos() const override;
  AlarmId CallAt(TimePoint when, std::function<void()> callback) override;
  bool Cancel(AlarmId id) override;

  // Advances the time and runs the callbacks that become due, in order of their times, on this thread,
  // including those that callbacks add. In a callback, Now() is the requested time or later.
  void Advance(Duration by) EXCLUDES(mu_);
  // Returns the number of pending callbacks.
  int64_t pending() const EXCLUDES(mu_);

 private:
  mutable Mutex mu_;
  TimePoint now_ GUARDED_BY(mu_){Duration(0)};
  // The time after all current calls of Advance(); now_ approaches it while their callbacks run.
  TimePoint target_ GUARDED_BY(mu_){Duration(0)};
  AlarmId next_id_ GUARDED_BY(mu_) = 1;
  AlarmQueue alarms_ GUARDED_BY(mu_);
};

}  // namespace reverb::internal

#endif  // REVERB_BASE_CLOCK_H_
