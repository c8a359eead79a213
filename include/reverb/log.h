// log.h — the destination of the library's log records.
//
// The library never prints. It passes each record (a difference found at restore, a long wait, a refusal) to the
// sink that the program has set, and drops it if there is none. A record is one line of text for people, and
// fields with the same facts for programs.
//
// Threads: all functions may be called concurrently.
#ifndef REVERB_LOG_H_
#define REVERB_LOG_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

namespace reverb {

enum class LogLevel {
  kDebug,
  kInfo,
  kWarning,
  kError,
};

// Returns "debug", "info", "warning" or "error".
std::string_view LogLevelName(LogLevel level);

// A fact of a record. The names and their meanings never change; docs/operations.md lists them.
struct LogField {
  LogField(const char* field, std::string text);
  LogField(const char* field, const char* text);
  LogField(const char* field, int64_t number);
  LogField(const char* field, double number);

  const char* name;
  // Strings may contain any bytes: names of clients and tables come from clients.
  std::variant<std::string, int64_t, double> value;
};

// Valid during the call of the sink only.
struct LogRecord {
  LogLevel level = LogLevel::kInfo;
  std::string_view message;  // has no trailing newline
  std::span<const LogField> fields = {};

  // Returns the field of that name; null if there is none.
  const LogField* Find(std::string_view name) const;
};

// A sink is called from any thread of the library, also concurrently. It must be quick and must not call back into
// the library, except to log or to set a sink. The library ignores exceptions that the sink throws.
using LogRecordSink = std::function<void(const LogRecord&)>;
// A sink that ignores the fields.
using LogSink = std::function<void(LogLevel, std::string_view message)>;

// Replaces the sink. An empty sink drops all records, which is the default. Calls of the previous sink that
// are in progress on other threads may end after this function returns.
void SetLogSink(LogSink sink);
void SetLogRecordSink(LogRecordSink sink);

// Sets how long a call waits for a rate limiter, for room or for a server before it logs the reason; at most
// once a minute for all calls that wait for the same thing. A server logs calls of other processes that wait for
// longer than this, each once. The default is 2 s; absent = never.
void SetWaitLogAfter(std::optional<std::chrono::nanoseconds> after);

}  // namespace reverb

#endif  // REVERB_LOG_H_
