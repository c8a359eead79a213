// backoff.h — how long to wait before the next attempt to reach a server.
#ifndef REVERB_CLIENT_BACKOFF_H_
#define REVERB_CLIENT_BACKOFF_H_

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/duration_text.h"
#include "base/log.h"
#include "base/random.h"
#include "reverb/status.h"
#include "reverb/wait.h"
#include "transport/transport.h"

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

// Even with a short reconnect_timeout, a server gets this long to answer one attempt.
inline constexpr Duration kMinAttemptTimeout = std::chrono::seconds(1);

// The error when a server was looked for longer than reconnect_timeout.
inline Status CannotReach(const std::string& address, Duration searched, const Status& last_failure) {
  std::string text = "the server at " + address + " could not be reached for " + DurationText(searched) +
                     "; check the address, start the server, or allow more time (reconnect_timeout)";
  if (!last_failure.ok()) text += "; the last attempt: " + std::string(last_failure.message());
  return Status::Unavailable(std::move(text));
}

// One connection that is made anew when it breaks: since when it is lost and why, and when to try again.
class Reconnection {
 public:
  explicit Reconnection(uint64_t seed) : backoff_(seed) {}

  // So many connections in a row may end with damaged data, and nothing confirmed or received between them;
  // then it is not the network that damages it.
  static constexpr int kMaxDamaged = 8;

  void Opening(TimePoint now) {
    opened_at_ = now;
    if (!searching_since_) searching_since_ = now;
  }
  void Welcomed() {
    searching_since_.reset();
    is_lost_ = false;
  }
  // Data has arrived.
  void Progressed() { damaged_ = 0; }
  // When an attempt that the server has not answered is to be cancelled.
  // REQUIRES: after Opening(), before Welcomed().
  TimePoint AttemptDeadline(Duration timeout) const {
    return std::max(*searching_since_ + timeout, opened_at_ + kMinAttemptTimeout);
  }
  // The attempt under way is being cancelled because of that. Lost() follows.
  void AttemptTimedOut() { timed_out_ = true; }
  // How long to wait before the next attempt; nothing when there shall be none: the server was in this
  // process and does not come back, it was looked for longer than `timeout`, or the failure is not of the
  // passing sort. OK counts as the server's having gone.
  std::optional<Duration> Lost(Status status, TimePoint now, const Connection& connection,
                               const Timeout& timeout) {
    if (status.ok()) status = Status::Unavailable("the server ended the stream");
    if (std::exchange(timed_out_, false)) status = Status::Unavailable("the server did not answer");
    last_failure_ = std::move(status);
    is_lost_ = true;
    if (!searching_since_) searching_since_ = now;
    if (connection.in_process()) return std::nullopt;
    if (failed_by_damage()) {
      if (++damaged_ > kMaxDamaged) return std::nullopt;
      Log(LogLevel::kWarning, "connecting again: " + std::string(last_failure_.message()));
    } else if (!IsTransient(last_failure_)) {
      return std::nullopt;
    }
    const Duration searched = now - *searching_since_;
    const Duration pause = failed_by_damage() ? Backoff::kFirst : backoff_.Next(now - opened_at_);
    if (!timeout) return pause;
    if (searched < *timeout) return std::min(pause, *timeout - searched);  // the last attempt is in time
    last_failure_ = CannotReach(connection.address(), searched, last_failure_);
    return std::nullopt;
  }

  // The last attempt has failed, and none has succeeded since.
  bool is_lost() const { return is_lost_; }
  // Whether the last failure was data that did not arrive as it was sent.
  bool failed_by_damage() const { return last_failure_.detail() == Detail::kCorruptData; }
  const Status& last_failure() const { return last_failure_; }

 private:
  Backoff backoff_;
  TimePoint opened_at_;
  std::optional<TimePoint> searching_since_;  // absent while connected
  bool is_lost_ = false;
  bool timed_out_ = false;
  int damaged_ = 0;  // connections in a row
  Status last_failure_;
};

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_BACKOFF_H_
