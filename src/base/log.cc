#include "base/log.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "base/fork.h"

namespace reverb {
namespace internal {
namespace {

struct SinkHolder {
  Mutex mu;
  // Shared, so that a sink that is replaced while it runs lives until it returns.
  std::shared_ptr<const LogRecordSink> sink GUARDED_BY(mu);
};

// Avoids the lock if there is no sink, the usual case.
std::atomic<bool> has_sink{false};

SinkHolder& Holder();

// A child of fork() must not inherit the mutex locked by a thread that it does not have.
void LockForFork() NO_THREAD_SAFETY_ANALYSIS { Holder().mu.Lock(); }
void UnlockAfterFork() NO_THREAD_SAFETY_ANALYSIS { Holder().mu.Unlock(); }

SinkHolder& Holder() {
  // Never destroyed: threads may log while the process exits.
  static SinkHolder* const holder = new SinkHolder();
  return *holder;
}

}  // namespace

bool IsLogged() { return has_sink.load(std::memory_order_acquire); }

void Log(LogLevel level, std::string_view message, const LogFields& fields) {
  if (!IsLogged()) return;
  std::shared_ptr<const LogRecordSink> sink;
  {
    SinkHolder& holder = Holder();
    MutexLock lock(&holder.mu);
    sink = holder.sink;
  }
  if (sink == nullptr) return;
  try {
    (*sink)(LogRecord{.level = level, .message = message, .fields = fields});
  } catch (...) {
    // A failure to log must not fail the operation that logs.
  }
}

bool LogEvery::Log(LogLevel level, std::string_view key, std::string message, LogFields fields) {
  const TimePoint now = clock_->Now();
  {
    MutexLock lock(&mu_);
    auto entry = entries_.find(key);
    if (entry == entries_.end()) {
      if (!MakeRoom(now)) return false;
      entries_.emplace(key, Entry{now, 0});
    } else if (now - entry->second.last < interval_) {
      ++entry->second.suppressed;
      return false;
    } else {
      const int64_t suppressed = std::exchange(entry->second.suppressed, 0);
      entry->second.last = now;
      if (suppressed > 0) {
        message += " (" + std::to_string(suppressed) + " similar messages suppressed)";
        fields.push_back({"suppressed", suppressed});
      }
    }
  }
  internal::Log(level, message, fields);
  return true;
}

bool LogEvery::MakeRoom(TimePoint now) {
  if (entries_.size() < kMaxKeys) return true;
  std::erase_if(entries_, [&](const auto& item) { return now - item.second.last >= interval_; });
  return entries_.size() < kMaxKeys;
}

namespace {

constexpr Duration kLogWaitsEvery = std::chrono::minutes(1);
std::atomic<Duration> wait_log_after{std::chrono::seconds(2)};

struct WaitLog : LogEvery {
  WaitLog() : LogEvery(RealClock(), kLogWaitsEvery) {}
};
constinit PerProcess<WaitLog> waits;
constinit PerProcess<WaitLog> refusals;

}  // namespace

Duration WaitLogAfter() { return wait_log_after.load(std::memory_order_relaxed); }

void LogWait(std::string_view key, std::string message, LogFields fields) {
  if (!IsLogged()) return;
  fields.insert(fields.begin(), {"event", kEventWait});
  waits.get().Log(LogLevel::kWarning, key, std::move(message), std::move(fields));
}

bool IsRefusal(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
    case StatusCode::kCancelled:
    case StatusCode::kDeadlineExceeded:
    case StatusCode::kAborted:
    case StatusCode::kUnavailable:
      return false;
    default:
      return true;
  }
}

namespace {
std::array<std::atomic<int64_t>, kNumStatusCodes> refusal_counts{};
}  // namespace

void CountRefusal(const Status& status) {
  refusal_counts[static_cast<size_t>(status.code()) % kNumStatusCodes].fetch_add(1,
                                                                                 std::memory_order_relaxed);
}

std::array<int64_t, kNumStatusCodes> RefusalCounts() {
  std::array<int64_t, kNumStatusCodes> counts{};
  for (size_t i = 0; i < kNumStatusCodes; ++i) counts[i] = refusal_counts[i].load(std::memory_order_relaxed);
  return counts;
}

void LogRefusal(std::string_view key, std::string message, const Status& status, LogFields fields) {
  CountRefusal(status);
  if (!IsLogged()) return;
  fields.insert(fields.begin(), {"event", kEventRefusal});
  fields.push_back({"code", std::string(StatusCodeName(status.code()))});
  refusals.get().Log(LogLevel::kWarning, key, std::move(message), std::move(fields));
}

}  // namespace internal

void SetWaitLogAfter(std::optional<std::chrono::nanoseconds> after) {
  internal::wait_log_after.store(after.value_or(internal::Duration::max()), std::memory_order_relaxed);
}

std::string_view LogLevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "error";
}

LogField::LogField(const char* field, std::string text) : name(field), value(std::move(text)) {}
LogField::LogField(const char* field, const char* text) : name(field), value(std::string(text)) {}
LogField::LogField(const char* field, int64_t number) : name(field), value(number) {}
LogField::LogField(const char* field, double number) : name(field), value(number) {}

const LogField* LogRecord::Find(std::string_view name) const {
  const auto found = std::ranges::find(fields, name, &LogField::name);
  return found == fields.end() ? nullptr : &*found;
}

void SetLogSink(LogSink sink) {
  if (!sink) return SetLogRecordSink({});
  SetLogRecordSink([sink = std::move(sink)](const LogRecord& record) { sink(record.level, record.message); });
}

void SetLogRecordSink(LogRecordSink sink) {
  // Creates the holder before the handlers need it. Registers them here, because nothing locks without a
  // sink.
  internal::SinkHolder& holder = internal::Holder();
  static const int registered =
      pthread_atfork(internal::LockForFork, internal::UnlockAfterFork, internal::UnlockAfterFork);
  static_cast<void>(registered);

  std::shared_ptr<const LogRecordSink> next =
      sink ? std::make_shared<const LogRecordSink>(std::move(sink)) : nullptr;
  {
    internal::MutexLock lock(&holder.mu);
    internal::has_sink.store(next != nullptr, std::memory_order_release);
    holder.sink.swap(next);
  }
  // Destroys the previous sink, now in `next`, outside the lock.
}

}  // namespace reverb
