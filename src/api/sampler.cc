// The handle of include/reverb/sampler.h over the client's sampler and batcher.
#include "reverb/sampler.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <utility>

#include "api/gather_batch.h"
#include "api/sample_factory.h"
#include "api/sampler_rep.h"
#include "client/batcher.h"

namespace reverb {
namespace {

using internal::ColumnLayout;
using internal::ColumnTarget;

void FillInfo(std::span<const internal::Sample> samples, BatchInfo* info) {
  const size_t n = samples.size();
  info->keys.resize(n);
  info->priorities.resize(n);
  info->probabilities.resize(n);
  info->table_sizes.resize(n);
  info->times_sampled.resize(n);
  for (size_t i = 0; i < n; ++i) {
    info->keys[i] = samples[i].key;
    info->priorities[i] = samples[i].priority;
    info->probabilities[i] = samples[i].probability;
    info->table_sizes[i] = samples[i].table_size;
    info->times_sampled[i] = samples[i].times_sampled;
  }
}

// Allocates the tensors of the layout, or keeps those of the last batch that fit.
Status MakeColumns(std::span<const ColumnLayout> layout, int64_t n, const TensorPool* pool,
                   std::vector<Tensor>* columns) {
  columns->resize(layout.size());
  for (size_t c = 0; c < layout.size(); ++c) {
    Tensor& column = (*columns)[c];
    std::vector<int64_t> dims = layout[c].Dims(n);
    if (column.dtype() == layout[c].dtype && column.dims() == dims) continue;
    REVERB_ASSIGN_OR_RETURN(column, pool ? Tensor::Allocate(layout[c].dtype, std::move(dims), *pool)
                                         : Tensor::Allocate(layout[c].dtype, std::move(dims)));
  }
  return Status::Ok();
}

Status GatherTensors(std::span<const internal::Sample> samples, const BatchOptions& options,
                     const internal::ColumnNamer& names, Batch* batch) {
  REVERB_ASSIGN_OR_RETURN(const std::vector<ColumnLayout> layout, options.pad
                                                                      ? internal::PaddedLayoutOf(samples)
                                                                      : internal::LayoutOf(samples.front()));
  REVERB_RETURN_IF_ERROR(
      MakeColumns(layout, static_cast<int64_t>(samples.size()), options.pool, &batch->columns));
  batch->lengths.resize(options.pad ? layout.size() : 0);
  batch->squeezed.resize(layout.size());
  std::vector<ColumnTarget> targets(layout.size());
  for (size_t c = 0; c < layout.size(); ++c) {
    Tensor& column = batch->columns[c];
    batch->squeezed[c] = layout[c].squeeze;
    if (options.pad) {
      batch->lengths[c].resize(samples.size());
      targets[c].lengths = batch->lengths[c].data();
    }
    if (layout[c].dtype == DType::kString) {
      column.strings().clear();
      targets[c].strings = &column.strings();
    } else {
      targets[c].data = column.data();
    }
  }
  return internal::Gather(samples, layout, targets, names);
}

Status GatherInto(std::span<const internal::Sample> samples, const internal::ColumnNamer& names,
                  std::span<const ColumnMemory> columns) {
  REVERB_ASSIGN_OR_RETURN(const std::vector<ColumnLayout> layout, internal::LayoutOf(samples.front()));
  if (columns.size() != layout.size()) {
    return Status::InvalidArgument("memory was given for " + std::to_string(columns.size()) +
                                   " columns while the samples have " + std::to_string(layout.size()));
  }
  std::vector<ColumnTarget> targets(layout.size());
  for (size_t c = 0; c < layout.size(); ++c) {
    if (layout[c].dtype == DType::kString) {
      return Status::InvalidArgument("column " + std::to_string(c) + " holds strings, which need a Batch");
    }
    const size_t bytes = layout[c].sample_bytes * samples.size();
    if (columns[c].bytes != bytes) {
      return Status::InvalidArgument("column " + std::to_string(c) + " takes " + std::to_string(bytes) +
                                     " bytes but memory of " + std::to_string(columns[c].bytes) +
                                     " was given");
    }
    targets[c].data = static_cast<uint8_t*>(columns[c].data);
  }
  return internal::Gather(samples, layout, targets, names);
}

// Moves samples to the front of *left_over, in order.
void PutBack(std::vector<internal::Sample> samples, internal::Mutex* mu,
             std::vector<internal::Sample>* left_over) {
  internal::MutexLock lock(mu);
  for (internal::Sample& sample : *left_over) samples.push_back(std::move(sample));
  *left_over = std::move(samples);
}

// Moves up to n samples from *left_over to *samples.
void TakeLeftOver(internal::Mutex* mu, std::vector<internal::Sample>* left_over, int64_t n,
                  std::vector<internal::Sample>* samples) {
  internal::MutexLock lock(mu);
  const auto taken = std::min(left_over->size(), static_cast<size_t>(std::max<int64_t>(n, 0)));
  const auto end = left_over->begin() + static_cast<ptrdiff_t>(taken);
  std::move(left_over->begin(), end, std::back_inserter(*samples));
  left_over->erase(left_over->begin(), end);
}

Status CheckBatchSize(const internal::SampleSource& sampler, int64_t n) {
  const int64_t batch_size = sampler.batch_size();
  if (batch_size == 0 || n == batch_size) return Status::Ok();
  return Status::InvalidArgument("a batch of " + std::to_string(n) +
                                 " samples was requested from a sampler with batch_size " +
                                 std::to_string(batch_size));
}

}  // namespace

Status internal::GatherBatch(std::span<const Sample> samples, const BatchOptions& options,
                             const ColumnNamer& names, Batch* batch) {
  FillInfo(samples, &batch->info);
  return GatherTensors(samples, options, names, batch);
}

Sampler::Sampler(std::unique_ptr<Rep> rep) : rep_(std::move(rep)) {}
Sampler::Sampler(Sampler&&) noexcept = default;
Sampler& Sampler::operator=(Sampler&& other) noexcept {
  if (rep_) Close();
  rep_ = std::move(other.rep_);
  return *this;
}
Sampler::~Sampler() {
  if (rep_) Close();
}

Result<SampledTrajectory> Sampler::Next(const WaitOptions& wait) {
  std::vector<internal::Sample> one;
  REVERB_RETURN_IF_ERROR(rep_->Take(1, wait, &one));
  SampleLease lease = rep_->HandOut(one);
  return internal::SampleFactory::Make(std::move(one.front()), std::move(lease));
}

Status Sampler::NextSome(int64_t most, std::vector<SampledTrajectory>* out, const WaitOptions& wait) {
  std::vector<internal::Sample> samples;
  WaitOptions wait_left = wait;
  REVERB_RETURN_IF_ERROR(rep_->BeginTake(most, &wait_left, &samples));
  if (samples.empty()) REVERB_RETURN_IF_ERROR(rep_->sampler->NextSome(most, wait_left, &samples));
  for (internal::Sample& sample : samples) {
    SampleLease lease = rep_->HandOut({&sample, 1});
    out->push_back(internal::SampleFactory::Make(std::move(sample), std::move(lease)));
  }
  return Status::Ok();
}

Status Sampler::NextSome(int64_t most, Batch* batch, const BatchOptions& options, const WaitOptions& wait) {
  std::vector<internal::Sample> samples;
  WaitOptions wait_left = wait;
  REVERB_RETURN_IF_ERROR(rep_->BeginTake(most, &wait_left, &samples));
  if (samples.empty()) REVERB_RETURN_IF_ERROR(rep_->sampler->NextSome(most, wait_left, &samples));
  Status status = internal::GatherBatch(samples, options, {}, batch);
  if (status.ok()) batch->info.lease = rep_->HandOut(samples);
  if (status.code() != StatusCode::kInvalidArgument) {
    if (!status.ok()) rep_->GiveBack(std::move(samples));
    return status;
  }
  // Checks the layouts only if they differ, which is rare.
  const auto end =
      samples.begin() + static_cast<ptrdiff_t>(internal::NumWithSameLayout(samples, options.pad));
  std::vector<internal::Sample> rest(std::make_move_iterator(end), std::make_move_iterator(samples.end()));
  samples.erase(end, samples.end());
  if (!rest.empty()) rep_->GiveBack(std::move(rest));
  status = internal::GatherBatch(samples, options, rep_->column_names, batch);
  if (status.ok()) {
    batch->info.lease = rep_->HandOut(samples);
  } else if (rep_->leases != nullptr) {
    rep_->leases->Release(samples);
  }
  return status;
}

Status Sampler::NextBatch(int64_t n, Batch* batch, const BatchOptions& options, const WaitOptions& wait) {
  REVERB_RETURN_IF_ERROR(CheckBatchSize(*rep_->sampler, n));
  std::vector<internal::Sample> samples;
  REVERB_RETURN_IF_ERROR(rep_->Take(n, wait, &samples));
  Status status = internal::GatherBatch(samples, options, rep_->column_names, batch);
  if (status.ok()) {
    batch->info.lease = rep_->HandOut(samples);
  } else {
    rep_->GiveBack(std::move(samples));
  }
  return status;
}

Status Sampler::NextBatch(int64_t n, std::span<const ColumnMemory> columns, BatchInfo* info,
                          const WaitOptions& wait) {
  REVERB_RETURN_IF_ERROR(CheckBatchSize(*rep_->sampler, n));
  std::vector<internal::Sample> samples;
  REVERB_RETURN_IF_ERROR(rep_->Take(n, wait, &samples));
  FillInfo(samples, info);
  Status status = GatherInto(samples, rep_->column_names, columns);
  if (status.ok()) {
    info->lease = rep_->HandOut(samples);
  } else {
    rep_->GiveBack(std::move(samples));
  }
  return status;
}

bool Sampler::can_prepare() const { return rep_->sampler->can_prepare(); }

bool Sampler::Prepare(int64_t n, std::function<void()> ready) {
  if (rep_->leases != nullptr) return rep_->sampler->Prepare(n, std::move(ready));
  while (true) {
    int64_t missing = 0;
    {
      internal::MutexLock lock(&rep_->mu);
      missing = n - static_cast<int64_t>(rep_->left_over.size());
    }
    if (missing <= 0) return true;
    if (!rep_->sampler->Prepare(missing, ready)) return false;
    // Taken now: the server may wait for that before it sends the rest.
    std::vector<internal::Sample> some;
    const Status status = rep_->sampler->NextSome(missing, {.timeout = std::chrono::nanoseconds(0)}, &some);
    if (!status.ok()) return true;  // the next call reports it
    internal::MutexLock lock(&rep_->mu);
    std::ranges::move(some, std::back_inserter(rep_->left_over));
  }
}

Status Sampler::AckPrevious(const WaitOptions& wait) {
  return rep_->leases == nullptr ? Status::Ok() : rep_->leases->Acknowledge(wait);
}

Status Sampler::Rep::Take(int64_t n, const WaitOptions& wait, std::vector<internal::Sample>* samples) {
  WaitOptions wait_left = wait;
  REVERB_RETURN_IF_ERROR(BeginTake(n, &wait_left, samples));
  const int64_t missing = n - static_cast<int64_t>(samples->size());
  if (missing == 0 && n > 0) return Status::Ok();
  Status status = sampler->Next(missing, wait_left, samples);
  if (!status.ok() && !samples->empty()) GiveBack(std::move(*samples));
  return status;
}

Status Sampler::Rep::BeginTake(int64_t n, WaitOptions* wait, std::vector<internal::Sample>* samples) {
  if (leases == nullptr) {
    TakeLeftOver(&mu, &left_over, n, samples);
    return Status::Ok();
  }
  const internal::TimePoint began = internal::RealClock()->Now();
  REVERB_RETURN_IF_ERROR(leases->Acknowledge(*wait));
  if (wait->timeout) {
    const internal::Duration left = *wait->timeout - (internal::RealClock()->Now() - began);
    wait->timeout = std::max(left, internal::Duration(0));
  }
  return Status::Ok();
}

void Sampler::Rep::GiveBack(std::vector<internal::Sample> samples) {
  if (leases != nullptr) return leases->Release(samples);
  PutBack(std::move(samples), &mu, &left_over);
}

SampleLease Sampler::Rep::HandOut(std::span<const internal::Sample> samples) const {
  return leases == nullptr ? SampleLease() : leases->HandOut(samples);
}

void Sampler::Close() {
  rep_->sampler->Close();
  if (rep_->leases != nullptr) rep_->leases->Release();
}

Sampler::Stats Sampler::stats() const {
  const internal::SampleSource::Stats stats = rep_->sampler->stats();
  internal::MutexLock lock(&rep_->mu);
  const auto left = static_cast<int64_t>(rep_->left_over.size());
  return {.delivered = stats.delivered - left,
          .waiting = stats.waiting + left,
          .undelivered = stats.undelivered,
          .unanswered = stats.unanswered};
}

}  // namespace reverb
