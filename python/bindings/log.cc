#include "log.h"

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "errors.h"
#include "gil.h"
#include "python_api.h"
#include "reverb/log.h"

namespace reverb::python {

std::atomic<bool> log_is_waiting{false};

namespace {

constexpr size_t kMaxRecords = 1000;

struct Record {
  LogLevel level;
  std::string message;
  std::vector<LogField> fields;
};

struct Queue {
  std::mutex mu;
  std::deque<Record> records;
  size_t dropped = 0;
};
// Never destroyed: the library's threads may log at exit.
std::atomic<Queue*> the_queue{nullptr};
Queue& TheQueue() {
  Queue* queue = the_queue.load(std::memory_order_acquire);
  if (queue != nullptr) return *queue;
  auto fresh = std::make_unique<Queue>();
  if (!the_queue.compare_exchange_strong(queue, fresh.get(), std::memory_order_acq_rel)) return *queue;
  return *fresh.release();
}

void Put(const LogRecord& record) {
  Queue& queue = TheQueue();
  const std::lock_guard lock(queue.mu);
  if (queue.records.size() >= kMaxRecords) {
    ++queue.dropped;
  } else {
    queue.records.push_back(
        {record.level, std::string(record.message), {record.fields.begin(), record.fields.end()}});
  }
  log_is_waiting.store(true, std::memory_order_relaxed);
}

int PythonLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return 10;
    case LogLevel::kInfo:
      return 20;
    case LogLevel::kWarning:
      return 30;
    case LogLevel::kError:
      return 40;
  }
  return 40;
}

// Returns the fields as the dict that becomes attributes of logging.LogRecord: reverb_event, reverb_table, ...
// The prefix keeps them apart from the attributes that logging itself sets.
nb::dict ExtraOf(const Record& record) {
  nb::dict extra;
  for (const LogField& field : record.fields) {
    const std::string name = std::string("reverb_") + field.name;
    if (const auto* text = std::get_if<std::string>(&field.value)) {
      extra[name.c_str()] = Text(*text);
    } else if (const auto* count = std::get_if<int64_t>(&field.value)) {
      extra[name.c_str()] = *count;
    } else {
      extra[name.c_str()] = std::get<double>(field.value);
    }
  }
  return extra;
}

Lazy get_logger("logging", "getLogger");
bool wants_warnings_at_exit = true;  // with the GIL

}  // namespace

void ReplaceLogAfterFork() {
  the_queue.store(nullptr, std::memory_order_relaxed);
  log_is_waiting.store(false, std::memory_order_relaxed);
}

void PrepareLogForExit() {
  EmitLog();
  try {
    const nb::object logger = nb::borrow(get_logger.get())("reverb");
    wants_warnings_at_exit = nb::cast<bool>(logger.attr("isEnabledFor")(PythonLevel(LogLevel::kWarning)));
  } catch (nb::python_error& error) {
    error.discard_as_unraisable("reverb at exit");
  } catch (const nb::cast_error&) {  // a logger of another class
  }
}

void EmitWaitingLog() {
  // A handler may call the extension, and so this function.
  static thread_local bool is_emitting = false;
  if (is_emitting) return;
  std::deque<Record> records;
  size_t dropped = 0;
  {
    Queue& queue = TheQueue();
    const std::lock_guard lock(queue.mu);
    records.swap(queue.records);
    dropped = std::exchange(queue.dropped, 0);
    log_is_waiting.store(false, std::memory_order_relaxed);
  }
  if (IsFinalizing()) {
    // The logging module may be partly destroyed; without handlers it would write to sys.stderr.
    for (const Record& record : records) {
      if (wants_warnings_at_exit && record.level >= LogLevel::kWarning) {
        PySys_FormatStderr("%s\n", record.message.c_str());
      }
    }
    return;
  }
  is_emitting = true;
  try {
    const nb::object log = nb::borrow(get_logger.get())("reverb").attr("log");
    for (const Record& record : records) {
      log(PythonLevel(record.level), "%s", Text(record.message), "extra"_a = ExtraOf(record));
    }
    if (dropped > 0)
      log(PythonLevel(LogLevel::kWarning), "%d messages were dropped: the log queue was full", dropped);
  } catch (nb::python_error& error) {
    ReportOrRaiseLater(error);
  }
  is_emitting = false;
}

void Warn(std::string_view message) { Put({.level = LogLevel::kWarning, .message = message}); }
void Inform(std::string_view message) { Put({.level = LogLevel::kInfo, .message = message}); }

void BindLog(nb::module_& module) {
  SetLogRecordSink(Put);
  module.def(
      "set_wait_log_after",
      [](std::optional<double> seconds) { SetWaitLogAfter(TimeoutFromSeconds(seconds, "seconds")); },
      "seconds"_a.none(),
      "Sets the time after which a call that waits for a rate limiter, for memory or for a server is logged "
      "to logging.getLogger(\"reverb\"), with the reason; at most once a minute for the same reason. The "
      "default is two seconds; None disables it.");
  module.def("_emit_log", &EmitLog, "Passes queued messages to logging.getLogger(\"reverb\").");
}

}  // namespace reverb::python
