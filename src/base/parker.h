// parker.h — lets one thread sleep until another one wakes it, once.
//
// Intended for a single wait, on the sleeping thread's stack. That thread passes the address to the thread
// that will wake it, and must not destroy the Parker before that Unpark() call: the waking thread then never
// accesses a destroyed Parker.
#ifndef REVERB_BASE_PARKER_H_
#define REVERB_BASE_PARKER_H_

#include <chrono>

#include "base/mutex.h"

namespace reverb::internal {

class alignas(16) Parker {
 public:
  // Sleeps until Unpark(); returns immediately if it was already called.
  void Park() EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    while (!token_) cv_.Wait(&mu_);
    token_ = false;
  }
  // Returns false if the timeout expired first.
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
    cv_.NotifyOne();  // under the lock: the parker may be destroyed afterwards
  }

 private:
  Mutex mu_;
  CondVar cv_;
  bool token_ GUARDED_BY(mu_) = false;
};

}  // namespace reverb::internal

#endif  // REVERB_BASE_PARKER_H_
