// log_output.h — how `reverb serve` writes its log: lines of text or JSON on standard error.
//
// Text has a time stamp with the time zone in front of each line. If standard error is connected to the journal of
// systemd, which has its own time stamps, lines start with the priority instead, as sd-daemon(3) defines it. JSON
// is one object per line: time, level, message, and the fields of the record.
//
// A message that is the same as one of the last ten seconds is not written again; a summary with the number of
// repetitions follows.
#ifndef REVERB_APPS_REVERB_LOG_OUTPUT_H_
#define REVERB_APPS_REVERB_LOG_OUTPUT_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reverb/log.h"
#include "reverb/status.h"

namespace reverb::program {

enum class LogFormat : uint8_t { kText, kJson };

// [log] of the configuration file.
struct LogSettings {
  LogFormat format = LogFormat::kText;
  LogLevel level = LogLevel::kInfo;
  // How long a call waits before the server logs it; absent = waits are not logged.
  std::optional<std::chrono::nanoseconds> wait_after = std::chrono::seconds(2);
};

// The words of the file and of the flags.
std::vector<std::string> LogFormatNames();
std::vector<std::string> LogLevelNames();
// INVALID_ARGUMENT lists the words.
Result<LogFormat> ParseLogFormat(std::string_view word);
Result<LogLevel> ParseLogLevel(std::string_view word);

// "2026-11-17T10:23:32.120+01:00", in the local time zone.
std::string TimeStamp(std::chrono::system_clock::time_point time);

// Receives the library's log from its construction to the end of the process. Threads: all methods may be called
// concurrently.
class LogOutput {
 public:
  explicit LogOutput(const LogSettings& settings);
  // Writes pending summaries.
  ~LogOutput();
  LogOutput(const LogOutput&) = delete;
  LogOutput& operator=(const LogOutput&) = delete;

  // Replaces level and wait_after; the format stays.
  void Change(const LogSettings& settings);
  LogSettings settings() const;
  bool is_json() const;
  // Writes a record of the program itself.
  void Write(LogLevel level, std::string_view message, const std::vector<LogField>& fields = {});
  // Writes the summaries that are due. Called about once a second.
  void Tick();

 private:
  struct State;
  // Shared with the sink, which may still run on another thread when this is destroyed.
  std::shared_ptr<State> state_;
};

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_LOG_OUTPUT_H_
