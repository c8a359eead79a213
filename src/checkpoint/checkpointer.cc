#include "checkpoint/checkpointer.h"

#include <pthread.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <utility>

#include "base/log.h"
#include "core/fetch_samples.h"

namespace reverb {

Status CheckpointOptions::Validate() const {
  if (path.empty()) {
    return Status::InvalidArgument("checkpoints: the path is empty; set the directory to write them to");
  }
  if (keep_latest < 1) {
    return Status::InvalidArgument("checkpoints: keep_latest is " + std::to_string(keep_latest) +
                                   "; it must be at least 1");
  }
  if (interval && *interval <= std::chrono::nanoseconds(0)) {
    return Status::InvalidArgument(
        "checkpoints: the interval is not positive; leave it out to disable periodic checkpoints");
  }
  return Status::Ok();
}

namespace internal {
namespace {

std::string Milliseconds(Duration duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f ms", std::chrono::duration<double, std::milli>(duration).count());
  return text;
}

}  // namespace

struct Checkpointer::PeriodicAlarm {
  Mutex mu;
  CondVar changed;
  bool is_due GUARDED_BY(mu) = false;
  bool is_stopped GUARDED_BY(mu) = false;
};

Checkpointer::Checkpointer(const CheckpointOptions& options, Environment environment, std::string loaded_path,
                           std::vector<LoadedSegment> loaded_segments)
    : options_(options),
      environment_(std::move(environment)),
      writer_(environment_.fs, {.root = options.path,
                                .keep_latest = options.keep_latest,
                                .shard = environment_.shard,
                                .release_pages = true,
                                .budget = environment_.budget}),
      result_(Status::NotFound("no checkpoint was written yet")),
      periodic_alarm_(std::make_shared<PeriodicAlarm>()) {
  if (!loaded_segments.empty()) writer_.Adopt(std::move(loaded_path), std::move(loaded_segments));
}

Checkpointer::~Checkpointer() { Stop(); }

void Checkpointer::Start() {
  if (!options_.interval) return;
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "rv-checkpoint");
    Run();
  });
}

void Checkpointer::SetAlarm() {
  if (is_stopped_) return;
  alarm_ =
      environment_.clock->CallAt(environment_.clock->Now() + *options_.interval, [alarm = periodic_alarm_] {
        MutexLock lock(&alarm->mu);
        alarm->is_due = true;
        alarm->changed.NotifyAll();
      });
}

void Checkpointer::Run() {
  while (true) {
    {
      MutexLock lock(&mu_);
      SetAlarm();
    }
    {
      MutexLock lock(&periodic_alarm_->mu);
      while (!periodic_alarm_->is_due && !periodic_alarm_->is_stopped)
        periodic_alarm_->changed.Wait(&periodic_alarm_->mu);
      if (periodic_alarm_->is_stopped) return;
      periodic_alarm_->is_due = false;
    }
    (void)Save();  // logs an error; the next attempt follows after the interval
  }
}

void Checkpointer::Stop() {
  Clock::AlarmId alarm = 0;
  {
    MutexLock lock(&mu_);
    if (std::exchange(is_stopped_, true)) return;
    alarm = alarm_;
  }
  if (alarm != 0) environment_.clock->Cancel(alarm);
  {
    MutexLock lock(&periodic_alarm_->mu);
    periodic_alarm_->is_stopped = true;
    periodic_alarm_->changed.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
  MutexLock lock(&mu_);
  while (is_writing_) changed_.Wait(&mu_);
}

Result<std::string> Checkpointer::Save() {
  {
    MutexLock lock(&mu_);
    const uint64_t wanted = num_started_ + 1;
    while (is_writing_) {
      changed_.Wait(&mu_);
      if (num_finished_ >= wanted) return result_;
    }
    is_writing_ = true;
    ++num_started_;
  }
  Result<std::string> result = Write();
  if (!result.ok()) {
    Log(LogLevel::kError,
        "a checkpoint under \"" + options_.path +
            "\" could not be written: " + std::string(result.status().message()),
        {{"event", kEventCheckpoint},
         {"path", options_.path},
         {"code", std::string(StatusCodeName(result.status().code()))}});
  }
  MutexLock lock(&mu_);
  is_writing_ = false;
  num_finished_ = num_started_;
  ++(result.ok() ? stats_.written : stats_.failed);
  stats_.last_status = result.status();
  result_ = result;
  changed_.NotifyAll();
  return result;
}

Result<std::string> Checkpointer::Write() {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<SavedWriter> writers;
  Duration locks_held{0};
  Duration row_locks_held{0};
  const auto list_rows = [&] {
    return environment_.row_tables ? environment_.row_tables()
                                   : std::vector<std::shared_ptr<ConcurrentRows>>();
  };
  const auto write = [&] {
    std::vector<std::shared_ptr<ConcurrentTable>> tables;
    Snapshot snapshot;
    // The writers' progress may include items of a table that was created after the list was read.
    for (bool is_complete = false; !is_complete;) {
      tables = environment_.tables();
      const std::vector<std::shared_ptr<ConcurrentRows>> row_tables = list_rows();
      // Row tables are copied before the others are locked, which therefore do not wait for it.
      ConcurrentRows::Snapshots rows = ConcurrentRows::TakeSnapshots(row_tables, [&] {
        snapshot = ConcurrentTable::TakeSnapshot(tables, [&] {
          if (environment_.save_writers) writers = environment_.save_writers();
          is_complete = environment_.tables() == tables && list_rows() == row_tables;
        });
      });
      snapshot.row_tables = std::move(rows.tables);
      snapshot.row_locks_held = rows.locks_held;
    }
    // A table that was removed meanwhile is empty, or will be gone with the next checkpoint.
    for (size_t i = tables.size(); i-- > 0;) {
      if (tables[i]->is_removed()) snapshot.tables.erase(snapshot.tables.begin() + static_cast<ptrdiff_t>(i));
    }
    locks_held = snapshot.locks_held;
    row_locks_held = snapshot.row_locks_held;
    return writer_.Write(snapshot, std::move(writers), environment_.clock->WallNanos());
  };
  Result<CheckpointWriter::Stats> written = write();
  // Data on disk that cannot be read costs the items that use it, and not all checkpoints from now on. Each attempt finds
  // all of it, unless it becomes more.
  constexpr int kMaxLosses = 3;
  for (int i = 0; i < kMaxLosses && !written.ok() && !writer_.lost_items().empty(); ++i) {
    DeleteLostItems();
    written = write();
  }
  REVERB_RETURN_IF_ERROR(written.status());
  const Duration took = std::chrono::steady_clock::now() - begin;
  if (IsLogged()) {
    Log(LogLevel::kInfo,
        "wrote checkpoint \"" + written->path + "\": " + std::to_string(written->chunks_written) +
            " new chunks, " + std::to_string(written->pages_written) + " of " +
            std::to_string(written->pages_total) + " pages, " +
            std::to_string(written->chunk_bytes + written->page_bytes) + " bytes in " + Milliseconds(took) +
            "; tables were locked for " + Milliseconds(locks_held) +
            (row_locks_held > Duration(0) ? ", row tables for " + Milliseconds(row_locks_held) : ""),
        {{"event", kEventCheckpoint},
         {"path", written->path},
         {"bytes", static_cast<int64_t>(written->chunk_bytes + written->page_bytes)},
         {"seconds", std::chrono::duration<double>(took).count()}});
  }
  std::string path = written->path;
  MutexLock lock(&mu_);
  stats_.locks_held = locks_held;
  stats_.row_locks_held = row_locks_held;
  stats_.took = took;
  stats_.finished_nanos = environment_.clock->WallNanos();
  stats_.last = *std::move(written);
  return path;
}

void Checkpointer::DeleteLostItems() {
  std::map<std::string, std::vector<uint64_t>> keys;
  for (const CheckpointWriter::LostItem& item : writer_.lost_items()) keys[item.table].push_back(item.key);
  for (const std::shared_ptr<ConcurrentTable>& table : environment_.tables()) {
    const auto found = keys.find(table->name());
    if (found != keys.end()) internal::DeleteLostItems(table.get(), found->second);
  }
}

Checkpointer::Stats Checkpointer::stats() const {
  MutexLock lock(&mu_);
  Stats stats = stats_;
  stats.is_writing = is_writing_;
  return stats;
}

}  // namespace internal
}  // namespace reverb
