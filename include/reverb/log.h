// log.h — where the library's messages go.
//
// The library never prints. What it has to say beside the results of calls (a difference
// found at restore, a wait that lasts) is handed, as one line of text, to the sink the
// program has set; without one it is dropped.
//
// Threads: all functions may be called concurrently.
#ifndef REVERB_LOG_H_
#define REVERB_LOG_H_

#include <chrono>
#include <functional>
#include <optional>
#include <string_view>

namespace reverb {

enum class LogLevel {
  kDebug,
  kInfo,
  kWarning,
  kError,
};

// Called from any thread of the library, also concurrently: it must be quick and must not
// call back into the library, except to log or to set a sink. `message` has no trailing
// newline and is valid during the call only. What it throws is swallowed.
using LogSink = std::function<void(LogLevel, std::string_view message)>;

// Replaces the sink; an empty one discards, as at the start. Lines that other threads are
// handing to the former sink at this moment may still reach it after the return.
void SetLogSink(LogSink sink);

// A call that waits longer than this, for a rate limiter, for room or for a server, says so in the log, with
// the reason; once a minute for all that wait for the same thing. 2 s at the start; absent = never.
void SetWaitLogAfter(std::optional<std::chrono::nanoseconds> after);

}  // namespace reverb

#endif  // REVERB_LOG_H_
