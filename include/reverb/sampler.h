// sampler.h — a stream of samples from one table, one by one or as batches.
//
//   auto sampler = client.NewSampler({.table = "replay"}).value();
//   reverb::Batch batch;
//   while (sampler.NextBatch(256, &batch).ok()) Learn(batch.columns, batch.info.probabilities);
//
// A Sampler prefetches samples, at most `max_samples` in total. It can be moved, not copied. Threads: all
// methods may be called concurrently; Close() ends the waits of other threads.
#ifndef REVERB_SAMPLER_H_
#define REVERB_SAMPLER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "reverb/sample_lease.h"
#include "reverb/sampled_trajectory.h"
#include "reverb/status.h"
#include "reverb/tensor.h"
#include "reverb/wait.h"

namespace reverb {

// Which differences between the samples of a batch the consumer cannot handle. A table that removes sampled
// items (max_times_sampled) checks them before it removes any.
// The numbers are sent over the network: never change them.
enum class BatchCheck : uint8_t {
  kNone = 0,
  kSameLayout = 1,  // number of columns, dtypes, shapes of rows, squeezed columns: for batches with padding
  kSameShape = 2,   // lengths as well
};
inline constexpr int kNumBatchChecks = 3;

struct SamplerOptions {
  std::string table = {};
  int64_t max_samples = -1;  // in total; -1 = no limit
  // Bounds the samples of each worker that are requested or received and not yet returned.
  int64_t max_in_flight_samples_per_worker = 100;
  // Starts with a window of one sample and doubles it, up to that bound, whenever the consumer has to wait.
  // For consumers that may stop early: prefetched samples are then lost.
  bool grow_window = false;
  // With grow_window: prefetches at most one sample plus this share of the samples returned so far. For
  // tables that remove sampled items, so that stopping early loses few of them. 0 = no such bound.
  double max_share_ahead = 0;
  // Requests max_in_flight_samples_per_worker samples at a time, once as many can be taken, also inside one
  // process and with `exact`. The number of drawn samples is then a multiple of it, until max_samples ends them.
  bool whole_windows = false;
  // Number of streams, each with its own connection; -1 = one. Only a single stream keeps the table's order.
  int32_t num_workers = -1;
  // Disables prefetching: every draw sees the priorities of all earlier updates.
  bool exact = false;
  // The samples of a batch; 0 = requests of any size. With it, NextBatch() must be called with this number, and
  // max_samples must be a multiple of it. A single server draws a batch by one request; several servers give
  // their shares of it.
  int64_t batch_size = 0;
  // Draws a whole batch, or nothing: a batch that the table cannot provide now waits, and takes nothing if the
  // wait ends. Requires batch_size. With several servers this holds for the share of each server; shares that
  // were drawn when the wait ends are part of the next batch.
  bool all_or_nothing = false;
  // INVALID_ARGUMENT, which ends the sampler, for a batch with such differences; its items stay in the table.
  BatchCheck check = BatchCheck::kNone;
  // The same for a sample whose columns have different lengths or are squeezed: the consumer splits samples
  // into steps.
  bool timesteps = false;
  // Above 0: samples are leased for this long, from the time at which the server draws them. Their items stay in
  // the table, but no other sampler gets them before they are acknowledged, released, or the lease has expired.
  // Only acknowledged samples count (max_times_sampled, rate limiter). The items of a batch are distinct, and leased
  // together: INVALID_ARGUMENT for more than the table can hold or its limiter allows. Disables prefetching, like
  // `exact`, because a lease would run while its sample waits here.
  std::chrono::nanoseconds lease{0};
  // With `lease`: each call acknowledges what the call before it returned, and Close() releases what the last
  // one returned, unless the caller has settled it (SampledTrajectory::lease(), BatchInfo::lease). For one
  // consumer at a time: threads that share a Sampler turn it off and settle each lease themselves.
  bool auto_ack = true;
  // How long the table's rate limiter may block a consumer before the sampler ends; of several servers, those of
  // all of them.
  Timeout rate_limiter_timeout = {};
  // How long to retry an unreachable server before Next() fails; absent = forever.
  Timeout reconnect_timeout = {};
  // Bounds the bytes of each worker that are requested or received and not yet returned. Larger windows help
  // on slow networks only: data that waits long has left the processor's caches when it is read.
  uint64_t receive_window_bytes = uint64_t{16} << 20;
};

// Describes the samples of a batch, one element per sample.
struct BatchInfo {
  std::vector<uint64_t> keys;
  std::vector<double> priorities;
  std::vector<double> probabilities;
  std::vector<int64_t> table_sizes;
  std::vector<int32_t> times_sampled;
  SampleLease lease = {};  // of all samples, with SamplerOptions::lease
};

struct Batch {
  BatchInfo info;
  // [B, T, …], or [B, …] if the column is squeezed. The next batch reuses memory of the right size.
  std::vector<Tensor> columns;
  // For each column, whether it is squeezed: its samples have no time dimension.
  std::vector<bool> squeezed;
  // With BatchOptions::pad: for each column, the number of rows of each sample without padding. Else empty.
  std::vector<std::vector<int64_t>> lengths;
};

struct BatchOptions {
  // Pads samples that are shorter than the longest of their batch with zeros (or empty strings) at the end.
  // Otherwise samples of different lengths are INVALID_ARGUMENT.
  bool pad = false;
  // Allocates columns, for callers that do not reuse the Batch; null = the heap.
  const TensorPool* pool = nullptr;
};

// The caller's memory for one column of a batch. `bytes` must be the exact size of the column.
struct ColumnMemory {
  void* data = nullptr;
  size_t bytes = 0;
};

class Sampler {
 public:
  struct Stats {
    int64_t delivered = 0;    // returned to the caller
    int64_t waiting = 0;      // received and not yet returned
    int64_t undelivered = 0;  // received and dropped by Close()
    int64_t unanswered = 0;   // requested on a connection that ended first: the server may have drawn them
  };

  Sampler(Sampler&&) noexcept;
  Sampler& operator=(Sampler&&) noexcept;
  ~Sampler();  // Close()

  // OUT_OF_RANGE after max_samples; CANCELLED after Close(). DEADLINE_EXCEEDED if the table allowed no sample
  // within rate_limiter_timeout, which ends this sampler, or if no sample arrived within `wait`, after which
  // the next call continues to wait; its detail is kRateLimited if the table's rate limiter is the reason.
  Result<SampledTrajectory> Next(const WaitOptions& wait = {});

  // Waits for the first sample, then appends all received samples to *out, at most `most`.
  Status NextSome(int64_t most, std::vector<SampledTrajectory>* out, const WaitOptions& wait = {});

  // The same as a batch: of the received samples those up to the first one with another layout.
  Status NextSome(int64_t most, Batch* batch, const BatchOptions& options, const WaitOptions& wait = {});

  // Returns exactly n samples as one tensor per column. INVALID_ARGUMENT if their layouts differ. After an
  // error the next call returns the samples that this call had received.
  Status NextBatch(int64_t n, Batch* batch, const WaitOptions& wait = {}) {
    return NextBatch(n, batch, BatchOptions(), wait);
  }
  Status NextBatch(int64_t n, Batch* batch, const BatchOptions& options, const WaitOptions& wait = {});
  // Writes into memory of the caller, one block per column; columns of strings are not supported.
  Status NextBatch(int64_t n, std::span<const ColumnMemory> columns, BatchInfo* info,
                   const WaitOptions& wait = {});

  // For consumers that must not wait, of one server (can_prepare), one at a time. Requests samples, and returns true if
  // NextBatch(n), or NextSome() for n = 1, would not wait for them. Otherwise calls `ready` once, on any thread, when it
  // is worth calling again; it must be quick. With `lease`, those calls still wait for acknowledging.
  bool can_prepare() const;
  bool Prepare(int64_t n, std::function<void()> ready);

  // Acknowledges what the last call returned, with `lease` and `auto_ack`: for consumers that take no more
  // samples. An error if `wait` ended before the server answered.
  Status AckPrevious(const WaitOptions& wait = {});

  // Releases what was not acknowledged.
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
