// log.h — how the library writes to the sink of include/reverb/log.h.
//
// Threads: all functions and methods may be called concurrently, also while holding locks that the sink does
// not take, and from within a sink, since no lock is held while a sink runs.
#ifndef REVERB_BASE_LOG_H_
#define REVERB_BASE_LOG_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "reverb/log.h"
#include "reverb/status.h"

namespace reverb::internal {

using LogFields = std::vector<LogField>;

// The values of the field "event", for records that users look for. They never change.
inline constexpr char kEventWait[] = "wait";              // a call has waited for longer than WaitLogAfter()
inline constexpr char kEventRefusal[] = "refusal";        // a request or an item was refused
inline constexpr char kEventDisconnect[] = "disconnect";  // a stream ended that its client had not closed
inline constexpr char kEventCheckpoint[] = "checkpoint";  // one was written or loaded, or could not be
inline constexpr char kEventTable[] = "table";            // one was created or removed

// Passes a record to the sink, if one is set.
void Log(LogLevel level, std::string_view message, const LogFields& fields = {});

// Returns false if messages are discarded, so that callers can skip formatting them.
bool IsLogged();

// Limits messages to one per key and interval. Logs the first one immediately; the next one after an interval
// reports how many were suppressed: "… (3 similar messages suppressed)", and as the field "suppressed".
//
// Remembers at most kMaxKeys keys. Beyond that, it forgets keys that were silent for an interval; if there
// are none, it drops the messages of new keys.
class LogEvery {
 public:
  static constexpr size_t kMaxKeys = 1024;

  // `clock` must outlive this.
  LogEvery(Clock* clock, Duration interval) : clock_(clock), interval_(interval) {}

  // Returns whether the message was logged.
  bool Log(LogLevel level, std::string_view key, std::string message, LogFields fields = {}) EXCLUDES(mu_);

 private:
  struct Entry {
    TimePoint last;  // time of the last logged message
    int64_t suppressed = 0;
  };

  bool MakeRoom(TimePoint now) REQUIRES(mu_);

  Clock* const clock_;
  const Duration interval_;

  Mutex mu_;
  std::map<std::string, Entry, std::less<>> entries_ GUARDED_BY(mu_);
};

// How long a call waits before it logs the wait (SetWaitLogAfter()).
Duration WaitLogAfter();
// Logs a long wait; `key` identifies what the call waits for.
void LogWait(std::string_view key, std::string message, LogFields fields = {});
// Logs that a server refused a request, once a minute for each key. Adds the fields "event" and "code".
void LogRefusal(std::string_view key, std::string message, const Status& status, LogFields fields = {});
// Counts a refusal. LogRefusal() does so too.
void CountRefusal(const Status& status);
// Returns how many requests and items the servers of this process have refused, for each StatusCode.
inline constexpr size_t kNumStatusCodes = 17;
std::array<int64_t, kNumStatusCodes> RefusalCounts();
// Returns whether a request that ended with this status was refused, as opposed to one that waited for too long or
// was ended by its client or by a server that stops.
bool IsRefusal(const Status& status);

}  // namespace reverb::internal

#endif  // REVERB_BASE_LOG_H_
