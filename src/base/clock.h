// clock.h — time as an object, so that tests move it by hand and never sleep.
//
// A Clock tells the time and calls back at a time. The real one serves all
// callbacks of the process from one thread; the manual one runs them inside Advance().
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
// Since an arbitrary start; never goes backwards.
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

class Clock {
 public:
  // Names a pending callback; 0 is never used.
  using AlarmId = uint64_t;

  virtual ~Clock() = default;

  virtual TimePoint Now() const = 0;
  // Nanoseconds since the Unix epoch, for people and for files: right to some milliseconds, and a fourth of
  // the price of Now(), which matters when every insert asks.
  virtual int64_t WallNanos() const = 0;

  // Calls `callback` once, at `when` or soon after, on a thread of the clock's choosing and
  // with no lock of the clock held. It must be quick and must not block.
  virtual AlarmId CallAt(TimePoint when, std::function<void()> callback) = 0;
  // False when the callback has run, is running, or is unknown.
  virtual bool Cancel(AlarmId id) = 0;
};

// The process-wide real clock. Its thread ("rv-timer") starts with the first CallAt and
// lives as long as the process. A child made by fork() starts without alarms: those of the
// parent fire in the parent only, and the first CallAt in the child starts a thread there.
Clock* RealClock();

// Pending callbacks, by time and by name; those of one time stay in the order they were added.
// No lock of its own.
class AlarmQueue {
 public:
  struct Due {
    TimePoint when;
    std::function<void()> callback;
  };

  // REQUIRES: ids are unique and grow.
  void Add(Clock::AlarmId id, TimePoint when, std::function<void()> callback);
  // Takes the callback out, so that the caller can destroy it outside its lock.
  std::optional<Due> Remove(Clock::AlarmId id);
  // Takes out the earliest if its time is not after `now`.
  std::optional<Due> PopDue(TimePoint now);
  // The earliest time. REQUIRES: not empty.
  TimePoint next() const { return by_time_.begin()->first.first; }
  bool empty() const { return by_time_.empty(); }
  size_t size() const { return by_time_.size(); }

 private:
  std::map<std::pair<TimePoint, Clock::AlarmId>, std::function<void()>> by_time_;
  std::unordered_map<Clock::AlarmId, TimePoint> times_;
};

// Stands still until told otherwise; its wall clock starts in the year 2020. A callback whose
// time has already come when it is added runs in the next Advance(), be it by zero.
// All methods may be called concurrently, and from callbacks.
class ManualClock final : public Clock {
 public:
  TimePoint Now() const override;
  int64_t WallNanos() const override;
  AlarmId CallAt(TimePoint when, std::function<void()> callback) override;
  bool Cancel(AlarmId id) override;

  // Moves time forward, running what falls due in order of its time, on this thread, also what
  // those callbacks add. In a callback Now() is the time it asked for, or later.
  void Advance(Duration by) EXCLUDES(mu_);
  // Callbacks waiting for their time.
  int64_t pending() const EXCLUDES(mu_);

 private:
  mutable Mutex mu_;
  TimePoint now_ GUARDED_BY(mu_){Duration(0)};
  // Where all calls of Advance() together lead; now_ follows while their callbacks run.
  TimePoint target_ GUARDED_BY(mu_){Duration(0)};
  AlarmId next_id_ GUARDED_BY(mu_) = 1;
  AlarmQueue alarms_ GUARDED_BY(mu_);
};

}  // namespace reverb::internal

#endif  // REVERB_BASE_CLOCK_H_
