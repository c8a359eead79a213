// backoff.h — how long to wait before the next attempt to reach a server.
#ifndef REVERB_CLIENT_BACKOFF_H_
#define REVERB_CLIENT_BACKOFF_H_

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "base/random.h"
#include "reverb/status.h"

namespace reverb::internal {

// Doubles from attempt to attempt up to a bound, with jitter, lest all clients of a server come back at
// the same moment; starts afresh after a connection that lasted.
class Backoff {
 public:
  static constexpr Duration kFirst = std::chrono::milliseconds(20);
  static constexpr Duration kMost = std::chrono::seconds(2);
  static constexpr Duration kLasted = std::chrono::seconds(2);

  explicit Backoff(uint64_t seed) : random_(seed) {}

  // After a connection that lived for `lived`.
  Duration Next(Duration lived) {
    if (lived >= kLasted) next_ = kFirst;
    const Duration base = next_;
    next_ = std::min(next_ * 2, kMost);
    return Duration(static_cast<int64_t>(static_cast<double>(base.count()) * (0.5 + random_.Unit())));
  }

 private:
  Random random_;
  Duration next_ = kFirst;
};

// Errors after which the same may work on a new connection.
inline bool IsTransient(const Status& status) {
  return status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kCancelled;
}

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_BACKOFF_H_
