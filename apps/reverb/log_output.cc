#include "log_output.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <mutex>
#include <utility>
#include <variant>

#include "json.h"
#include "terminal.h"
#include "text.h"

namespace reverb::program {
namespace {

using SystemClock = std::chrono::system_clock;
using SteadyClock = std::chrono::steady_clock;

constexpr std::chrono::seconds kRepeatInterval(10);
constexpr size_t kMaxRemembered = 256;
constexpr size_t kMaxTextBytes = 16384;  // of a line

constexpr LogLevel kLogLevels[] = {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError};

// Returns whether standard error is the journal's socket, which systemd announces by device and inode.
bool IsJournal() {
  const char* const stream = std::getenv("JOURNAL_STREAM");
  struct stat status {};
  unsigned long long device = 0, inode = 0;
  if (stream == nullptr || std::sscanf(stream, "%llu:%llu", &device, &inode) != 2) return false;
  return fstat(STDERR_FILENO, &status) == 0 && status.st_dev == device && status.st_ino == inode;
}

// The priorities of syslog(3).
const char* Priority(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "<7>";
    case LogLevel::kInfo:
      return "<6>";
    case LogLevel::kWarning:
      return "<4>";
    case LogLevel::kError:
      return "<3>";
  }
  return "<3>";
}

// Writes a line with one system call, so that lines of several processes do not mix.
void WriteLine(const std::string& line) {
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t written = write(STDERR_FILENO, line.data() + done, line.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // there is no place to report it
    done += static_cast<size_t>(written);
  }
}

std::string JsonLine(const LogRecord& record, SystemClock::time_point time) {
  JsonWriter json;
  json.BeginObject()
      .Field("time", TimeStamp(time))
      .Field("level", LogLevelName(record.level))
      .Field("message", record.message);
  for (const LogField& field : record.fields) {
    std::visit([&](const auto& value) { json.Field(field.name, value); }, field.value);
  }
  return json.End().text() + "\n";
}

// The message contains most fields; the text adds the others that identify what it is about.
std::string TextLine(const LogRecord& record) {
  std::string text = std::string(LogLevelName(record.level)) + ": " + ShowName(record.message, kMaxTextBytes);
  for (const char* name : {"table", "client", "session"}) {
    const LogField* const field = record.Find(name);
    if (field == nullptr) continue;
    const auto* const value = std::get_if<std::string>(&field->value);
    if (value != nullptr && record.message.find(*value) == std::string_view::npos) {
      text += " " + std::string(name) + "=" + ShowName(*value);
    }
  }
  return text + "\n";
}

// Returns whether the record is one of the audit log that must not be left out as a repetition. Those of refused calls
// may be: clients without rights can cause any number.
bool IsDoneByAdministrator(const LogRecord& record) {
  const LogField* const event = record.Find("event");
  const auto* const value = event == nullptr ? nullptr : std::get_if<std::string>(&event->value);
  return value != nullptr && *value == "audit" && record.level == LogLevel::kInfo;
}

template <typename T>
Result<T> ParseWord(std::string_view word, const std::vector<std::string>& words,
                    const std::vector<T>& values) {
  const auto found = std::ranges::find(words, word);
  if (found != words.end()) return values[static_cast<size_t>(found - words.begin())];
  return Status::InvalidArgument("expected one of " + Join(words, ", ") + "; got " + Quote(word));
}

}  // namespace

std::vector<std::string> LogFormatNames() { return {"text", "json"}; }

std::vector<std::string> LogLevelNames() {
  std::vector<std::string> names;
  for (const LogLevel level : kLogLevels) names.emplace_back(LogLevelName(level));
  return names;
}

Result<LogFormat> ParseLogFormat(std::string_view word) {
  return ParseWord<LogFormat>(word, LogFormatNames(), {LogFormat::kText, LogFormat::kJson});
}

Result<LogLevel> ParseLogLevel(std::string_view word) {
  return ParseWord<LogLevel>(word, LogLevelNames(), {std::begin(kLogLevels), std::end(kLogLevels)});
}

std::string TimeStamp(SystemClock::time_point time) {
  const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch());
  const std::time_t seconds = static_cast<std::time_t>(millis.count() / 1000);
  std::tm local{};
  localtime_r(&seconds, &local);
  const long minutes = local.tm_gmtoff / 60;
  const long distance = std::abs(minutes);
  return Format("%04d-%02d-%02dT%02d:%02d:%02d.%03d%c%02ld:%02ld", local.tm_year + 1900, local.tm_mon + 1,
                local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec,
                static_cast<int>(millis.count() % 1000), minutes < 0 ? '-' : '+', distance / 60,
                distance % 60);
}

struct LogOutput::State {
  const bool is_journal = IsJournal();
  const bool is_terminal = IsTerminal(STDERR_FILENO);

  mutable std::mutex mu;
  LogSettings settings;
  // The messages of the last seconds, and how often each came again.
  struct Recent {
    SteadyClock::time_point since;
    int64_t repeated = 0;
    std::vector<LogField> fields;
  };
  std::map<std::pair<LogLevel, std::string>, Recent> recent;

  void Receive(const LogRecord& record) {
    const std::lock_guard lock(mu);
    if (record.level < settings.level) return;
    if (IsDoneByAdministrator(record)) return Print(record);
    const SteadyClock::time_point now = SteadyClock::now();
    Summarize(now);
    const auto [entry, is_new] = recent.try_emplace({record.level, std::string(record.message)});
    if (!is_new) {
      ++entry->second.repeated;
      return;
    }
    entry->second.since = now;
    entry->second.fields.assign(record.fields.begin(), record.fields.end());
    Print(record);
    // A message that is different each time need not be remembered.
    if (recent.size() > kMaxRemembered) {
      std::erase_if(recent, [](const auto& item) { return item.second.repeated == 0; });
    }
    if (recent.size() > kMaxRemembered) Summarize(SteadyClock::time_point::max());
  }

  // Writes how often messages from before the interval came again, and forgets them.
  void Summarize(SteadyClock::time_point now) {
    for (auto entry = recent.begin(); entry != recent.end();) {
      auto& [key, value] = *entry;
      if (now != SteadyClock::time_point::max() && now - value.since < kRepeatInterval) {
        ++entry;
        continue;
      }
      if (value.repeated > 0) {
        const std::string message = key.second + " (repeated " + ShowCount(value.repeated, "time") + " in " +
                                    ShowDuration(kRepeatInterval) + ")";
        value.fields.push_back({"repeated", value.repeated});
        Print({.level = key.first, .message = message, .fields = value.fields});
      }
      entry = recent.erase(entry);
    }
  }

  void Print(const LogRecord& record) const {
    const SystemClock::time_point time = SystemClock::now();
    if (settings.format == LogFormat::kJson) return WriteLine(JsonLine(record, time));
    // On a terminal the line replaces a progress line.
    const std::string begin = is_journal ? Priority(record.level) : TimeStamp(time) + " ";
    WriteLine((is_terminal ? "\r\033[K" : "") + begin + TextLine(record));
  }
};

LogOutput::LogOutput(const LogSettings& settings) : state_(std::make_shared<State>()) {
  state_->settings = settings;
  SetWaitLogAfter(settings.wait_after);
  SetLogRecordSink([state = state_](const LogRecord& record) { state->Receive(record); });
}

LogOutput::~LogOutput() {
  const std::lock_guard lock(state_->mu);
  state_->Summarize(SteadyClock::time_point::max());
}

void LogOutput::Change(const LogSettings& settings) {
  const std::lock_guard lock(state_->mu);
  state_->settings.level = settings.level;
  state_->settings.wait_after = settings.wait_after;
  SetWaitLogAfter(settings.wait_after);
}

LogSettings LogOutput::settings() const {
  const std::lock_guard lock(state_->mu);
  return state_->settings;
}

bool LogOutput::is_json() const { return settings().format == LogFormat::kJson; }

void LogOutput::Write(LogLevel level, std::string_view message, const std::vector<LogField>& fields) {
  state_->Receive({.level = level, .message = message, .fields = fields});
}

void LogOutput::Tick() {
  const std::lock_guard lock(state_->mu);
  state_->Summarize(SteadyClock::now());
}

}  // namespace reverb::program
