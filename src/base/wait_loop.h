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
  explicit WaitLoop(WaitOptions&&) = delete;  // the options must outlive the loop

  // Sleeps until notified or for a slice; `mu` is held before and after. An error from on_wait ends the wait.
  Status Sleep(CondVar* cv, Mutex* mu) REQUIRES(mu) {
    cv->WaitFor(mu, NextSlice());
    return AfterSlice(mu);
  }
  // The same for a thread that can do what the others would notify it of: calls poll(slice) without the lock.
  // If that returns false, the next call sleeps: what changed meanwhile must be checked first.
  template <typename Poll>
  Status Sleep(CondVar* cv, Mutex* mu, const Poll& poll) REQUIRES(mu) {
    if (is_poll_refused_) {
      is_poll_refused_ = false;
      return Sleep(cv, mu);
    }
    mu->Unlock();
    is_poll_refused_ = !poll(NextSlice());
    mu->Lock();
    return is_poll_refused_ ? Status::Ok() : AfterSlice(mu);
  }
  // Returns true once, when the wait has lasted so long that it should be logged.
  bool ShouldLogNow() { return !was_logged_ && waited() > WaitLogAfter() && (was_logged_ = true); }
  bool expired() const { return options_.timeout && waited() >= *options_.timeout; }
  Duration waited() const { return std::chrono::steady_clock::now() - start_; }
  // Returns the options of the rest of this wait, for a call that is part of it. An expired wait leaves a
  // nanosecond, since a timeout of zero means to try once.
  WaitOptions Left() const {
    WaitOptions left = options_;
    if (left.timeout && *left.timeout > Duration(0))
      left.timeout = std::max<Duration>(*left.timeout - waited(), Duration(1));
    return left;
  }

 private:
  Duration NextSlice() const {
    return options_.timeout ? std::min(kSlice, std::max(*options_.timeout - waited(), Duration(0))) : kSlice;
  }
  Status AfterSlice(Mutex* mu) REQUIRES(mu) {
    const auto now = std::chrono::steady_clock::now();
    if (!options_.on_wait || now - last_call_ < kSlice) return Status::Ok();
    last_call_ = now;
    mu->Unlock();
    Status status = options_.on_wait();
    mu->Lock();
    return status;
  }

  const WaitOptions& options_;
  const Time start_;
  Time last_call_ = start_;
  bool was_logged_ = false;
  bool is_poll_refused_ = false;
};

}  // namespace reverb::internal

#endif  // REVERB_BASE_WAIT_LOOP_H_
