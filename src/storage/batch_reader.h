// batch_reader.h — reads many parts of files at the same time.
//
// With io_uring, one thread keeps up to `depth` reads in flight, and a few others run what follows a read. Where the
// kernel lacks io_uring or forbids it, and for files without a descriptor, threads read with ordinary calls.
//
// Threads: all methods may be called concurrently.
#ifndef REVERB_STORAGE_BATCH_READER_H_
#define REVERB_STORAGE_BATCH_READER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/file_system.h"
#include "base/mutex.h"
#include "reverb/status.h"
#include "storage/io_ring.h"

namespace reverb::internal {

// Receives the results of reads.
class ReadSink {
 public:
  virtual ~ReadSink() = default;
  // Called once for each read, on a thread of the reader; those of different reads may run concurrently.
  virtual void OnRead(size_t index, Status status) = 0;
};

class BatchReader {
 public:
  struct Options {
    uint32_t depth = 256;        // reads in flight
    uint32_t max_threads = 16;   // that read, where io_uring is not used
    uint32_t max_finishers = 4;  // that run sinks
    bool use_io_uring = true;
  };
  // Offsets, sizes and addresses are aligned as BlockFile requires.
  struct Read {
    std::shared_ptr<const BlockFile> file;
    uint64_t offset = 0;
    std::span<uint8_t> out;
    std::shared_ptr<ReadSink> sink;
    size_t index = 0;  // that the sink gets
  };

  explicit BatchReader(const Options& options);
  ~BatchReader() { Stop(); }
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;

  // Starts the reads. They end with CANCELLED after Stop().
  void Submit(std::vector<Read> reads) EXCLUDES(mu_);
  // Waits for the reads in flight and ends those that wait with CANCELLED. Idempotent. REQUIRES: not called by a
  // sink.
  void Stop() EXCLUDES(mu_);

  bool uses_io_uring() const { return ring_ != nullptr; }

 private:
  // A read that a thread performs, unless it was performed, and whose sink is called then.
  struct Task {
    Read read;
    bool is_read = false;
    Status status = {};
  };

  void AddTask(Task task) REQUIRES(mu_);
  void RunTasks() EXCLUDES(mu_);
  void RunRing() EXCLUDES(mu_);
  // Waits for completions and adds their tasks. Returns false if the ring is broken.
  bool AwaitRing(std::vector<Read>* in_flight, std::vector<size_t>* free) EXCLUDES(mu_);

  const Options options_;
  const std::unique_ptr<IoRing> ring_;  // null: not used

  Mutex mu_;
  CondVar ring_wanted_;
  CondVar task_added_;
  std::deque<Read> waiting_ GUARDED_BY(mu_);  // for the ring
  std::deque<Task> tasks_ GUARDED_BY(mu_);
  bool is_ring_waiting_ GUARDED_BY(mu_) = false;  // in the kernel: needs Wake()
  bool is_ring_broken_ GUARDED_BY(mu_) = false;
  bool is_stopped_ GUARDED_BY(mu_) = false;
  bool is_ring_done_ GUARDED_BY(mu_) = true;
  size_t idle_ GUARDED_BY(mu_) = 0;
  std::vector<std::thread> threads_ GUARDED_BY(mu_);
  std::thread ring_thread_ GUARDED_BY(mu_);
};

}  // namespace reverb::internal

#endif  // REVERB_STORAGE_BATCH_READER_H_
