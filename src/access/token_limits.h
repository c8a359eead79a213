// token_limits.h — what the clients that use one token may take together: streams, bytes per second, waiting bytes.
//
// Threads: all methods may be called concurrently.
#ifndef REVERB_ACCESS_TOKEN_LIMITS_H_
#define REVERB_ACCESS_TOKEN_LIMITS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "reverb/access.h"

namespace reverb::internal {

class TokenLimits {
 public:
  explicit TokenLimits(const TokenOptions& options)
      : max_streams_(options.max_streams),
        max_bytes_per_second_(options.max_bytes_per_second),
        max_waiting_bytes_(options.max_waiting_bytes) {}

  bool limits_bytes() const { return max_bytes_per_second_ || max_waiting_bytes_; }

  // Returns false if there are as many as allowed.
  bool EnterStream() EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    if (max_streams_ && streams_ >= *max_streams_) return false;
    ++streams_;
    return true;
  }
  void LeaveStream() EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    --streams_;
  }

  // Counts bytes that were transferred. Returns how long to pause before the next ones.
  Duration Charge(uint64_t bytes, TimePoint now) EXCLUDES(mu_);

  // Counts bytes of items that wait for their tables; negative: that wait no longer, which lets readers go on.
  void AddWaiting(int64_t bytes) EXCLUDES(mu_);
  // Calls `read` when fewer bytes wait than allowed: now, or within AddWaiting().
  void WhenRoom(std::function<void()> read) EXCLUDES(mu_);

 private:
  const std::optional<int64_t> max_streams_;
  const std::optional<int64_t> max_bytes_per_second_;
  const std::optional<int64_t> max_waiting_bytes_;

  Mutex mu_;
  int64_t streams_ GUARDED_BY(mu_) = 0;
  TimePoint paid_until_ GUARDED_BY(mu_){};  // the time that the bytes so far take at the permitted rate
  int64_t waiting_bytes_ GUARDED_BY(mu_) = 0;
  std::vector<std::function<void()>> readers_ GUARDED_BY(mu_);
};

}  // namespace reverb::internal

#endif  // REVERB_ACCESS_TOKEN_LIMITS_H_
