// sampler.h — a stream of samples from one table, singly or as batches.
//
//   auto sampler = client.NewSampler({.table = "replay"}).value();
//   reverb::Batch batch;
//   while (sampler.NextBatch(256, &batch).ok()) Learn(batch.columns, batch.info.probabilities);
//
// Samples are fetched ahead of the consumer, never more in all than `max_samples`. A Sampler is moved, not
// copied. Threads: all methods may be called concurrently; Close() ends the waits of others.
#ifndef REVERB_SAMPLER_H_
#define REVERB_SAMPLER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "reverb/status.h"
#include "reverb/table.h"
#include "reverb/tensor.h"
#include "reverb/wait.h"

namespace reverb {

namespace internal {
class SamplerImpl;
}  // namespace internal

struct SamplerOptions {
  std::string table = {};
  int64_t max_samples = -1;  // in all; -1 = no limit
  // How many samples of each worker may be on their way or waiting to be taken.
  int64_t max_in_flight_samples_per_worker = 100;
  // The window begins with one sample and doubles, up to that, whenever the consumer finds nothing waiting.
  // For those who may stop early: what was fetched ahead is then lost to others.
  bool grow_window = false;
  // With grow_window: no more is fetched ahead than one sample and this share of what was handed out. For
  // tables whose samples take items away, so that who stops early loses little. 0 = no such bound.
  double max_share_ahead = 0;
  // Streams, each with a connection of its own; -1 = one. One alone keeps the order of the table.
  int32_t num_workers = -1;
  // Nothing is fetched ahead: every draw sees the priorities of all updates that came before it.
  bool exact = false;
  // How long the table's rate limiter may keep a waiting consumer; then the samples end.
  Timeout rate_limiter_timeout = {};
  // How long a server that cannot be reached is looked for before Next() fails; absent = for ever.
  Timeout reconnect_timeout = {};
  // Bytes of each worker that may be on their way or waiting to be taken. More is for slow networks: what
  // waits long has left the processor's caches when it is taken.
  uint64_t receive_window_bytes = uint64_t{16} << 20;
};

// About the samples of a batch, one element each.
struct BatchInfo {
  std::vector<uint64_t> keys;
  std::vector<double> priorities;
  std::vector<double> probabilities;
  std::vector<int64_t> table_sizes;
  std::vector<int32_t> times_sampled;
};

struct Batch {
  BatchInfo info;
  // [B, T, …], or [B, …] where the column is squeezed. Memory that fits is used again by the next batch.
  std::vector<Tensor> columns;
  // With BatchOptions::pad, for each column the rows of each sample that are not padding; else empty.
  std::vector<std::vector<int64_t>> lengths;
};

struct BatchOptions {
  // Samples that are shorter than the longest of their batch get zeros (or empty strings) at their end.
  // Without, they are INVALID_ARGUMENT.
  bool pad = false;
  // Where the memory of columns comes from, for those that do not give the Batch back; null = the heap.
  const TensorPool* pool = nullptr;
};

// Memory of the caller for one column of a batch: `bytes` is exactly what the column takes.
struct ColumnMemory {
  void* data = nullptr;
  size_t bytes = 0;
};

class Sampler {
 public:
  struct Stats {
    int64_t delivered = 0;    // handed out
    int64_t waiting = 0;      // received, to be handed out
    int64_t undelivered = 0;  // received and dropped by Close()
    int64_t unanswered = 0;   // asked for on a connection that ended first: may have been drawn
  };

  Sampler(Sampler&&) noexcept;
  Sampler& operator=(Sampler&&) noexcept;
  ~Sampler();  // Close()

  // OUT_OF_RANGE after max_samples; DEADLINE_EXCEEDED when the table allowed no sample in
  // rate_limiter_timeout (the end of this sampler), or none came within `wait` (and the next call goes on
  // waiting); its detail is kRateLimited where the table's limiter is why; CANCELLED after Close().
  Result<SampledTrajectory> Next(const WaitOptions& wait = {});

  // Appends between one and `most` samples to *out: those that are here already, after waiting for the first.
  Status NextSome(int64_t most, std::vector<SampledTrajectory>* out, const WaitOptions& wait = {});

  // Exactly n samples as one tensor per column. All have the same layout, or it is INVALID_ARGUMENT. Samples
  // that an error leaves over are handed out by the next call.
  Status NextBatch(int64_t n, Batch* batch, const WaitOptions& wait = {}) {
    return NextBatch(n, batch, BatchOptions(), wait);
  }
  Status NextBatch(int64_t n, Batch* batch, const BatchOptions& options, const WaitOptions& wait = {});
  // The same into memory of the caller, one for each column; not for columns of strings.
  Status NextBatch(int64_t n, std::span<const ColumnMemory> columns, BatchInfo* info,
                   const WaitOptions& wait = {});

  void Close();
  Stats stats() const;

 private:
  friend class Client;
  struct Rep;
  explicit Sampler(std::unique_ptr<Rep> rep);
  std::unique_ptr<Rep> rep_;
};

}  // namespace reverb

#endif  // REVERB_SAMPLER_H_
