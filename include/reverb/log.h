// log.h — the destination of the library's log messages.
//
// The library never prints. It passes each message (a difference found at restore, a long wait) as one line
// of text to the sink that the program has set, and drops it if there is none.
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

// Called from any thread of the library, also concurrently. It must be quick and must not call back into the
// library, except to log or to set a sink. `message` has no trailing newline and is valid during the call
// only. The library ignores exceptions that the sink throws.
using LogSink = std::function<void(LogLevel, std::string_view message)>;

// Replaces the sink. An empty sink drops all messages, which is the default. Calls of the previous sink that
// are in progress on other threads may end after this function returns.
void SetLogSink(LogSink sink);

// Sets how long a call waits for a rate limiter, for room or for a server before it logs the reason; at most
// once a minute for all calls that wait for the same thing. The default is 2 s; absent = never.
void SetWaitLogAfter(std::optional<std::chrono::nanoseconds> after);

}  // namespace reverb

#endif  // REVERB_LOG_H_
