// backoff.h — how long to wait before the next attempt to reach a server.
#ifndef REVERB_CLIENT_BACKOFF_H_
#define REVERB_CLIENT_BACKOFF_H_

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "reverb/status.h"
#include "reverb/wait.h"

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

// One connection that is made anew when it breaks: since when it is lost and why, and when to try again.
class Reconnection {
 public:
  explicit Reconnection(uint64_t seed) : backoff_(seed) {}

  // So many connections in a row may end with damaged data, and nothing confirmed or received between them;
  // then it is not the network that damages it.
  static constexpr int kMaxDamaged = 8;

  void Opening(TimePoint now) { opened_at_ = now; }
  // Data has arrived.
  void Progressed() { damaged_ = 0; }
  void Welcomed() { lost_at_.reset(); }
  // How long to wait before the next attempt; nothing when there shall be none: the server was in this
  // process and does not come back, it was looked for longer than `timeout`, or the failure is not of the
  // passing sort. OK counts as the server's having gone.
  std::optional<Duration> Lost(Status status, TimePoint now, bool in_process, const Timeout& timeout) {
    last_failure_ = status.ok() ? Status::Unavailable("the server ended the stream") : std::move(status);
    if (!lost_at_) lost_at_ = now;
    const bool gave_up = timeout && now - *lost_at_ >= *timeout;
    if (in_process || gave_up) return std::nullopt;
    if (failed_by_damage()) {
      if (++damaged_ > kMaxDamaged) return std::nullopt;
      Log(LogLevel::kWarning, "connecting again: " + std::string(last_failure_.message()));
      return Backoff::kFirst;
    }
    if (!IsTransient(last_failure_)) return std::nullopt;
    return backoff_.Next(now - opened_at_);
  }

  bool is_lost() const { return lost_at_.has_value(); }
  // Whether the last failure was data that did not arrive as it was sent.
  bool failed_by_damage() const { return last_failure_.detail() == Detail::kCorruptData; }
  const Status& last_failure() const { return last_failure_; }

 private:
  Backoff backoff_;
  TimePoint opened_at_;
  std::optional<TimePoint> lost_at_;
  int damaged_ = 0;  // connections in a row
  Status last_failure_;
};

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_BACKOFF_H_
