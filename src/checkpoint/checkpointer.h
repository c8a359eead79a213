// checkpointer.h — when a server's checkpoints are written, and by whom.
//
// One is written at a time. Who asks while one is being written gets the next, together with all others who
// ask meanwhile: what a caller had done before it asked is in what it gets. Tables are held up only for the
// snapshot; the writing is done on the caller's thread, or on a thread of this object for those that come
// with time.
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
#include "core/table.h"
#include "reverb/checkpoint.h"
#include "reverb/status.h"

namespace reverb::internal {

class Checkpointer {
 public:
  struct Environment {
    FileSystem* fs = PosixFileSystem();
    Clock* clock = RealClock();
    std::vector<std::shared_ptr<ConcurrentTable>> tables;
    // How far the writers have come. Called while the tables are locked.
    std::function<std::vector<SavedWriter>()> save_writers;
  };
  struct Stats {
    int64_t written = 0;
    int64_t failed = 0;
    Duration locks_held{0};  // by the last snapshot
    Duration took{0};        // the last one, from the snapshot until it was durable
    CheckpointWriter::Stats last;
  };

  // What the tables were loaded from, if it lies under options.path; else there are no segments.
  Checkpointer(const CheckpointOptions& options, Environment environment, std::string loaded_path,
               std::vector<LoadedSegment> loaded_segments);
  ~Checkpointer();  // Stop()

  // Begins with those that come with time, if the options say so.
  void Start();
  // Ends these and waits for one that is being written. Save() still works.
  void Stop() EXCLUDES(mu_);

  // The path of a checkpoint of now, or later, when it is durable.
  Result<std::string> Save() EXCLUDES(mu_);

  Stats stats() const EXCLUDES(mu_);

 private:
  Result<std::string> Write();
  void Run();
  void SetAlarm() REQUIRES(mu_);

  const CheckpointOptions options_;
  const Environment environment_;
  CheckpointWriter writer_;  // used by the one that is_writing_

  mutable Mutex mu_;
  CondVar changed_;
  bool is_writing_ GUARDED_BY(mu_) = false;
  uint64_t begun_ GUARDED_BY(mu_) = 0;  // how many were
  uint64_t ended_ GUARDED_BY(mu_) = 0;
  Result<std::string> result_ GUARDED_BY(mu_);  // of the last
  Stats stats_ GUARDED_BY(mu_);

  // --- Those that come with time ---
  struct PeriodicAlarm;  // outlives an alarm that is on its way
  const std::shared_ptr<PeriodicAlarm> periodic_alarm_;
  Clock::AlarmId alarm_ GUARDED_BY(mu_) = 0;
  bool is_stopped_ GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace reverb::internal

#endif  // REVERB_CHECKPOINT_CHECKPOINTER_H_
