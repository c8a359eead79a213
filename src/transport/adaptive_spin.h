// adaptive_spin.h — polls for a short time before a thread sleeps, as long as that pays.
//
// Waking a sleeping thread costs more than everything else that a small call does. A thread that expects an event
// soon therefore polls first. A poll in vain costs about as much as a wake-up: if more polls were in vain than
// succeeded, because the other side is slow or needs the processor, only few waits try again until some succeed.
//
// Threads: not thread-safe.
#ifndef REVERB_TRANSPORT_ADAPTIVE_SPIN_H_
#define REVERB_TRANSPORT_ADAPTIVE_SPIN_H_

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace reverb::internal {

// Returns for how long to poll: 0 on machines with one processor, which the other side needs.
Duration DefaultSpin();

class AdaptiveSpin {
 public:
  // `miss_weight`: how many successes make up for a poll in vain.
  explicit AdaptiveSpin(Duration most = DefaultSpin(), uint32_t miss_weight = 1)
      : most_(most), miss_weight_(miss_weight) {}

  // Calls is_ready() repeatedly, for `limit` at most. Returns whether it returned true; false at once while polling
  // does not pay.
  template <typename IsReady>
  bool Spin(Duration limit, const IsReady& is_ready) {
    if (most_ <= Duration(0) || (misses_ >= kMaxMisses * miss_weight_ && ++num_skipped_ % kRetryEvery != 0))
      return false;
    const auto end = std::chrono::steady_clock::now() + std::min(most_, limit);
    do {
      if (is_ready()) {
        if (misses_ > 0) --misses_;
        return true;
      }
    } while (std::chrono::steady_clock::now() < end);
    // Bounded, so that polling begins again soon when it pays again.
    misses_ = std::min(misses_ + miss_weight_, 2 * kMaxMisses * miss_weight_);
    return false;
  }

 private:
  static constexpr uint32_t kMaxMisses = 8;    // more than successes make up for
  static constexpr uint32_t kRetryEvery = 32;  // waits

  const Duration most_;
  const uint32_t miss_weight_;
  uint32_t misses_ = 0;  // times their weight, less the successes
  uint32_t num_skipped_ = 0;
};

}  // namespace reverb::internal

#endif  // REVERB_TRANSPORT_ADAPTIVE_SPIN_H_
