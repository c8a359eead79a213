// log.h — how the library's own code writes to the sink of include/reverb/log.h.
//
// Threads: all functions and methods may be called concurrently, with any lock held that the
// sink does not take; re-entrantly too, as no lock is held while a sink runs.
#ifndef REVERB_BASE_LOG_H_
#define REVERB_BASE_LOG_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/mutex.h"
#include "reverb/log.h"

namespace reverb::internal {

// Hands `message` to the sink, if there is one.
void Log(LogLevel level, std::string_view message);

// False while lines are discarded, so that callers may spare themselves the formatting.
bool IsLogged();

// At most one line per key and interval. The first is let through at once; the first after a
// silence says how many were held back: "… (3 more like it since)".
//
// Remembers at most kMaxKeys keys; past that, keys that have been quiet for an interval are
// forgotten, and if all are busy a new key's lines are dropped.
class LogEvery {
 public:
  static constexpr size_t kMaxKeys = 1024;

  // `clock` must outlive this.
  LogEvery(Clock* clock, Duration interval) : clock_(clock), interval_(interval) {}

  // True when the line was let through.
  bool Log(LogLevel level, std::string_view key, std::string message) EXCLUDES(mu_);

 private:
  struct Entry {
    TimePoint last;  // when a line was let through
    int64_t suppressed = 0;
  };

  bool MakeRoom(TimePoint now) REQUIRES(mu_);

  Clock* const clock_;
  const Duration interval_;

  Mutex mu_;
  std::map<std::string, Entry, std::less<>> entries_ GUARDED_BY(mu_);
};

// How long a call waits before it says so (SetWaitLogAfter()).
Duration WaitLogAfter();
// A line about a wait that lasts; `key` names what is waited for.
void LogWait(std::string_view key, std::string message);

}  // namespace reverb::internal

#endif  // REVERB_BASE_LOG_H_
