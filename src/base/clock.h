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
  // Nanoseconds since the Unix epoch, for people and for files.
  virtual int64_t WallNanos() const = 0;

  // Calls `callback` once, at `when` or soon after, on a thread of the clock's choosing and
  // with no lock of the clock held. It must be quick and must not block.
  virtual AlarmId CallAt(TimePoint when, std::function<void()> callback) = 0;
  // False when the callback has run, is running, or is unknown.
  virtual bool Cancel(AlarmId id) = 0;
};

// The process-wide real clock. Its thread ("rv-timer") starts with the first CallAt and
// lives as long as the process.
Clock* RealClock();

// Stands still until told otherwise. All methods may be called concurrently.
class ManualClock final : public Clock {
 public:
  TimePoint Now() const override;
  int64_t WallNanos() const override;
  AlarmId CallAt(TimePoint when, std::function<void()> callback) override;
  bool Cancel(AlarmId id) override;

  // Moves time forward, running what falls due in order of its time, on this thread.
  void Advance(Duration by) EXCLUDES(mu_);
  // Callbacks waiting for their time.
  int64_t pending() const EXCLUDES(mu_);

 private:
  struct Alarm {
    AlarmId id;
    std::function<void()> callback;
  };
  mutable Mutex mu_;
  TimePoint now_ GUARDED_BY(mu_){Duration(0)};
  AlarmId next_id_ GUARDED_BY(mu_) = 1;
  std::multimap<TimePoint, Alarm> alarms_ GUARDED_BY(mu_);
};

}  // namespace reverb::internal

#endif  // REVERB_BASE_CLOCK_H_
