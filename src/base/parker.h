// parker.h — a place for one thread to sleep until somebody wakes it, once.
//
// Made for one wait, on the sleeper's stack. The sleeper hands its address to whoever will wake it,
// and must not leave before that one Unpark() has come: so the waker never touches a parker that is gone.
#ifndef REVERB_BASE_PARKER_H_
#define REVERB_BASE_PARKER_H_

#include <chrono>

#include "base/mutex.h"

namespace reverb::internal {

class alignas(16) Parker {
 public:
  // Sleeps until Unpark(); returns at once if it came already.
  void Park() EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    while (!token_) cv_.Wait(&mu_);
    token_ = false;
  }
  // False when the time-out passed first.
  bool ParkFor(std::chrono::nanoseconds timeout) EXCLUDES(mu_) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    MutexLock lock(&mu_);
    while (!token_) {
      const auto left = deadline - std::chrono::steady_clock::now();
      if (left <= left.zero()) return false;
      cv_.WaitFor(&mu_, left);
    }
    token_ = false;
    return true;
  }
  void Unpark() EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    token_ = true;
    cv_.NotifyOne();  // under the lock: afterwards the parker may be gone
  }

 private:
  Mutex mu_;
  CondVar cv_;
  bool token_ GUARDED_BY(mu_) = false;
};

}  // namespace reverb::internal

#endif  // REVERB_BASE_PARKER_H_
