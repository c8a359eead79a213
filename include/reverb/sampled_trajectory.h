// sampled_trajectory.h — an item that was sampled or inspected, with its data.
//
//   reverb::SampledTrajectory sample = sampler.Next().value();
//   reverb::Tensor observations = sample.column(0).value();
//
// A SampledTrajectory is a handle: copies refer to the same data, which is decoded on request. Threads: all
// methods may be called concurrently.
#ifndef REVERB_SAMPLED_TRAJECTORY_H_
#define REVERB_SAMPLED_TRAJECTORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "reverb/sample_lease.h"
#include "reverb/status.h"
#include "reverb/tensor.h"

namespace reverb {

namespace internal {
struct Sample;
struct SampleFactory;
}  // namespace internal

class SampledTrajectory {
 public:
  uint64_t key() const;
  double priority() const;
  double probability() const;     // of having been picked; 0 for an inspected item
  int64_t table_size() const;     // when the item was picked
  int32_t times_sampled() const;  // including this sample
  // The time of the insert, by the clock of the table's host, since the Unix epoch.
  int64_t inserted_at_nanos() const;

  // The lease that the item was sampled under; see SamplerOptions::lease.
  const SampleLease& lease() const { return lease_; }

  uint32_t num_columns() const;
  // REQUIRES: index < num_columns().
  bool is_squeezed(uint32_t index) const;
  // Decodes the rows of a column: [time, …], or […] if the column is squeezed.
  Result<Tensor> column(uint32_t index) const { return Decode(index, nullptr); }
  // Decodes into memory of a pool.
  Result<Tensor> column(uint32_t index, const TensorPool& pool) const { return Decode(index, &pool); }
  // Returns the size of all decoded columns; strings do not count.
  size_t decoded_bytes() const;

 private:
  friend class Table;
  friend struct internal::SampleFactory;
  explicit SampledTrajectory(internal::Sample sample);
  Result<Tensor> Decode(uint32_t index, const TensorPool* pool) const;
  std::shared_ptr<const internal::Sample> sample_;
  SampleLease lease_;
};

}  // namespace reverb

#endif  // REVERB_SAMPLED_TRAJECTORY_H_
