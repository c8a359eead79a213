// adaptive_spin.h — polls for a short time before a thread sleeps, as long as that pays.
//
// Waking a sleeping thread costs more than everything else that a small call does. A thread that expects an event
// soon therefore polls first. A poll in vain costs about as much as a wake-up: if more polls were in vain than
// succeeded, because the other side is slow or needs the processor, only few waits try again until some succeed.
//
// Threads: not thread-safe.
#ifndef REVERB_TRANSPORT_LOCAL_ADAPTIVE_SPIN_H_
#define REVERB_TRANSPORT_LOCAL_ADAPTIVE_SPIN_H_

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace reverb::internal {

// Returns for how long to poll: 0 on machines with one processor, which the other side needs.
Duration DefaultSpin();

class AdaptiveSpin {
 public:
  explicit AdaptiveSpin(Duration most = DefaultSpin()) : most_(most) {}

  // Calls is_ready() repeatedly, for `limit` at most. Returns whether it returned true; false at once while polling
  // does not pay.
  template <typename IsReady>
  bool Spin(Duration limit, const IsReady& is_ready) {
    if (most_ <= Duration(0) || (num_misses_ >= kMaxMisses && ++num_skipped_ % kRetryEvery != 0))
      return false;
    const auto end = std::chrono::steady_clock::now() + std::min(most_, limit);
    do {
      if (is_ready()) {
        if (num_misses_ > 0) --num_misses_;
        return true;
      }
    } while (std::chrono::steady_clock::now() < end);
    ++num_misses_;
    return false;
  }

 private:
  static constexpr uint32_t kMaxMisses = 8;    // more than successes
  static constexpr uint32_t kRetryEvery = 32;  // waits

  const Duration most_;
  uint32_t num_misses_ = 0;
  uint32_t num_skipped_ = 0;
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_LOCAL_ADAPTIVE_SPIN_H_
