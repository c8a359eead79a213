// backoff.h — attempts to reach a server: when the next one follows, and when to stop.
#ifndef REVERB_CLIENT_BACKOFF_H_
#define REVERB_CLIENT_BACKOFF_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
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

// Pauses that double with each attempt up to a bound, with jitter, so that the clients of a server do not
// reconnect at the same moment. Starts over after a connection that lasted.
class Backoff {
 public:
  static constexpr Duration kMin = std::chrono::milliseconds(20);
  static constexpr Duration kMax = std::chrono::seconds(2);
  static constexpr Duration kStableAfter = std::chrono::seconds(2);

  explicit Backoff(uint64_t seed) : random_(seed) {}

  // Called after a connection that lasted for `lived`.
  Duration Next(Duration lived) {
    if (lived >= kStableAfter) next_ = kMin;
    const Duration base = next_;
    next_ = std::min(next_ * 2, kMax);
    return Duration(static_cast<int64_t>(static_cast<double>(base.count()) * (0.5 + random_.Unit())));
  }

 private:
  Random random_;
  Duration next_ = kMin;
};

// Returns whether a retry on a new connection may succeed.
inline bool IsTransient(const Status& status) {
  return status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kCancelled;
}

// Minimum time for a server to answer an attempt, even with a shorter reconnect_timeout.
inline constexpr Duration kMinAttemptTimeout = std::chrono::seconds(1);

// Returns the error for a server that could not be reached within reconnect_timeout.
inline Status CannotReach(const std::string& address, Duration searched, const Status& last_failure) {
  std::string text = "the server at " + address + " could not be reached for " + DurationText(searched) +
                     "; check the address, start the server, or allow more time (reconnect_timeout)";
  if (!last_failure.ok()) text += "; the last attempt: " + std::string(last_failure.message());
  return Status::Unavailable(std::move(text));
}

// Tracks the attempts to keep one stream to a server open: their number and state, since when and why the
// server is unreachable, and when to try again. The owner's lock guards it.
class Reconnection {
 public:
  explicit Reconnection(uint64_t seed) : backoff_(seed) {}

  // Maximum number of connections in a row that may end with damaged data and without progress. Beyond that
  // the network is not the cause.
  static constexpr int kMaxDamaged = 8;

  // Starts the next attempt and returns its number. Callbacks of a stream carry it, so that those of a former
  // stream are recognized.
  uint64_t Opening(TimePoint now) {
    state_ = State::kOpening;
    opened_at_ = now;
    if (!searching_since_) searching_since_ = now;
    return ++attempt_;
  }
  // Calls `on_timeout`, without locks, if the server has not answered in time. `timeout` bounds the whole
  // search. REQUIRES: after Opening().
  void BoundAttempt(Clock* clock, Duration timeout, std::function<void()> on_timeout) {
    clock_ = clock;
    alarm_ = clock->CallAt(std::max(*searching_since_ + timeout, opened_at_ + kMinAttemptTimeout),
                           std::move(on_timeout));
  }
  // The server has answered.
  void Welcomed() {
    state_ = State::kWelcomed;
    CancelAlarm();
    searching_since_.reset();
    is_lost_ = false;
  }
  // Data has arrived.
  void Progressed() { damaged_ = 0; }
  // Returns whether to cancel the stream, because the server has not answered this attempt. Over() follows.
  bool TimeOut(uint64_t attempt) {
    if (!IsCurrent(attempt) || state_ != State::kOpening) return false;
    timed_out_ = true;
    return true;
  }
  // The stream of the attempt is closed. Returns whether the server had answered.
  bool Over() {
    CancelAlarm();
    return std::exchange(state_, State::kOver) == State::kWelcomed;
  }
  // Returns how long to wait before the next attempt; absent if there must be none: the server was in this
  // process and cannot come back, it was searched for longer than `timeout`, or the error is permanent. OK
  // means that the server closed the stream. REQUIRES: after Over().
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
      Log(LogLevel::kWarning, "reconnecting: " + std::string(last_failure_.message()));
    } else if (!IsTransient(last_failure_)) {
      return std::nullopt;
    }
    const Duration searched = now - *searching_since_;
    const Duration pause = failed_by_damage() ? Backoff::kMin : backoff_.Next(now - opened_at_);
    if (!timeout) return pause;
    if (searched < *timeout) return std::min(pause, *timeout - searched);  // the last attempt is in time
    last_failure_ = CannotReach(connection.address(), searched, last_failure_);
    return std::nullopt;
  }

  uint64_t attempt() const { return attempt_; }
  bool IsCurrent(uint64_t attempt) const { return attempt == attempt_; }
  bool is_welcomed() const { return state_ == State::kWelcomed; }
  // Returns whether no stream is open or being opened.
  bool is_over() const { return state_ == State::kOver; }
  // Returns whether the last attempt has failed, and none has succeeded since.
  bool is_lost() const { return is_lost_; }
  // Returns whether the last failure was damaged data.
  bool failed_by_damage() const { return last_failure_.detail() == Detail::kCorruptData; }
  const Status& last_failure() const { return last_failure_; }

 private:
  enum class State : uint8_t { kOver, kOpening, kWelcomed };

  void CancelAlarm() {
    if (clock_ != nullptr) clock_->Cancel(alarm_);
  }

  Backoff backoff_;
  uint64_t attempt_ = 0;
  State state_ = State::kOver;
  Clock* clock_ = nullptr;
  Clock::AlarmId alarm_ = 0;  // of BoundAttempt()
  TimePoint opened_at_;
  std::optional<TimePoint> searching_since_;  // absent while connected
  bool is_lost_ = false;
  bool timed_out_ = false;
  int damaged_ = 0;  // connections in a row
  Status last_failure_;
};

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_BACKOFF_H_
