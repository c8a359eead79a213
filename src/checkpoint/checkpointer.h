// checkpointer.h — writes a server's checkpoints, on request and periodically.
//
// Writes one checkpoint at a time. Callers that request one while another is being written share the next: a
// caller's earlier operations are in the checkpoint that it gets. Tables are locked only for the snapshot.
// The caller's thread writes the checkpoint; a thread of this object writes the periodic ones.
//
// Threads: all methods may be called concurrently.
#ifndef REVERB_CHECKPOINT_CHECKPOINTER_H_
#define REVERB_CHECKPOINT_CHECKPOINTER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/mutex.h"
#include "checkpoint/checkpoint_writer.h"
#include "core/rows/row_table.h"
#include "core/table.h"
#include "reverb/checkpoint.h"
#include "reverb/status.h"

namespace reverb::internal {

class Checkpointer {
 public:
  struct Environment {
    FileSystem* fs = PosixFileSystem();
    Clock* clock = RealClock();
    // Returns the tables that exist now. Also called while tables are locked.
    std::function<std::vector<std::shared_ptr<ConcurrentTable>>()> tables;
    // The same for row tables. Empty if the server has no row tables.
    std::function<std::vector<std::shared_ptr<ConcurrentRows>>()> row_tables = {};
    // Returns the writers' progress. Called while the tables are locked.
    std::function<std::vector<SavedWriter>()> save_writers;
    uint32_t shard = 0;              // of the server
    MemoryBudget* budget = nullptr;  // of the server; see CheckpointWriter::Options
  };
  struct Stats {
    int64_t written = 0;
    int64_t failed = 0;
    Duration locks_held{0};      // by the last snapshot
    Duration row_locks_held{0};  // likewise, of row tables
    Duration took{0};            // the last checkpoint, from the snapshot until it was durable
    // When the last checkpoint became durable, since the Unix epoch; 0 before the first one.
    int64_t finished_nanos = 0;
    CheckpointWriter::Stats last;
    Status last_status;  // of the latest attempt
    bool is_writing = false;
  };

  // `loaded_path` is the checkpoint that the tables were loaded from; `loaded_segments` is empty unless it is
  // under options.path.
  Checkpointer(const CheckpointOptions& options, Environment environment, std::string loaded_path,
               std::vector<LoadedSegment> loaded_segments);
  ~Checkpointer();  // calls Stop()

  // Starts periodic checkpoints, if the options request them.
  void Start();
  // Stops periodic checkpoints and waits for one that is being written. Save() still works.
  void Stop() EXCLUDES(mu_);

  // Writes a checkpoint of the current state, or of a later one. Returns its path once it is durable.
  Result<std::string> Save() EXCLUDES(mu_);

  Stats stats() const EXCLUDES(mu_);
  const std::string& path() const { return options_.path; }

 private:
  Result<std::string> Write();
  // Deletes the items whose data the writer could not read.
  void DeleteLostItems();
  void Run();
  void SetAlarm() REQUIRES(mu_);

  const CheckpointOptions options_;
  const Environment environment_;
  CheckpointWriter writer_;  // used by the thread that set is_writing_

  mutable Mutex mu_;
  CondVar changed_;
  bool is_writing_ GUARDED_BY(mu_) = false;
  uint64_t num_started_ GUARDED_BY(mu_) = 0;
  uint64_t num_finished_ GUARDED_BY(mu_) = 0;
  Result<std::string> result_ GUARDED_BY(mu_);  // of the last checkpoint
  Stats stats_ GUARDED_BY(mu_);

  // --- Periodic checkpoints ---
  struct PeriodicAlarm;  // outlives a callback that is already running
  const std::shared_ptr<PeriodicAlarm> periodic_alarm_;
  Clock::AlarmId alarm_ GUARDED_BY(mu_) = 0;
  bool is_stopped_ GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace reverb::internal

#endif  // REVERB_CHECKPOINT_CHECKPOINTER_H_
