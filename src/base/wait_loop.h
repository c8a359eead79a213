// wait_loop.h — how a caller's thread waits in this library: in short slices, so that the caller can cancel.
#ifndef REVERB_BASE_WAIT_LOOP_H_
#define REVERB_BASE_WAIT_LOOP_H_

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "reverb/status.h"
#include "reverb/wait.h"

namespace reverb::internal {

// One wait of one thread. Measures real time, whatever clock the owner uses.
class WaitLoop {
 public:
  static constexpr Duration kSlice = std::chrono::milliseconds(50);
  using Time = std::chrono::steady_clock::time_point;

  explicit WaitLoop(const WaitOptions& options)
      : options_(options), start_(std::chrono::steady_clock::now()) {}

  // Sleeps until notified or for a slice; `mu` is held before and after. An error from on_wait ends the wait.
  Status Sleep(CondVar* cv, Mutex* mu) REQUIRES(mu) {
    Duration slice = kSlice;
    if (options_.timeout) slice = std::min(slice, std::max(*options_.timeout - waited(), Duration(0)));
    cv->WaitFor(mu, slice);
    const auto now = std::chrono::steady_clock::now();
    if (!options_.on_wait || now - last_call_ < kSlice) return Status::Ok();
    last_call_ = now;
    mu->Unlock();
    Status status = options_.on_wait();
    mu->Lock();
    return status;
  }
  // Returns true once, when the wait has lasted so long that it should be logged.
  bool ShouldLogNow() { return !was_logged_ && waited() > WaitLogAfter() && (was_logged_ = true); }
  bool expired() const { return options_.timeout && waited() >= *options_.timeout; }
  Duration waited() const { return std::chrono::steady_clock::now() - start_; }

 private:
  const WaitOptions& options_;
  const Time start_;
  Time last_call_ = start_;
  bool was_logged_ = false;
};

}  // namespace reverb::internal

#endif  // REVERB_BASE_WAIT_LOOP_H_
