// sample_lease.h — what a consumer does with the lease of a sample, or of a batch.
//
//   reverb::Batch batch;
//   if (sampler.NextBatch(64, &batch).ok()) {
//     Learn(batch.columns, batch.info.probabilities);
//     batch.info.lease.Ack().value();
//   }
//
// See SamplerOptions::lease. A SampleLease is a handle: copies refer to the same lease, which is settled once.
// Leases belong to the table: they can be settled after a reconnect, and after the Sampler was closed if auto_ack
// is off. Threads: all methods may be called concurrently.
#ifndef REVERB_SAMPLE_LEASE_H_
#define REVERB_SAMPLE_LEASE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "reverb/lease.h"
#include "reverb/status.h"
#include "reverb/wait.h"

namespace reverb {

namespace internal {
class HeldLeases;
}  // namespace internal

class SampleLease {
 public:
  SampleLease() = default;  // of a sample that is not leased

  // Returns whether there is a lease that was not settled yet. It may have expired.
  bool is_held() const;
  // The number of items.
  int64_t size() const;

  // The samples were consumed: the table counts them. Does nothing if the lease was settled before. After an
  // error, the lease is still held.
  Result<LeaseOutcome> Ack(const WaitOptions& wait = {}) const;
  // The samples were not consumed: other consumers may get the items at once.
  Result<LeaseOutcome> Release(const WaitOptions& wait = {}) const;
  // The lease ends `lease` from now. FAILED_PRECONDITION if it was settled.
  Result<LeaseOutcome> Extend(std::chrono::nanoseconds lease, const WaitOptions& wait = {}) const;

 private:
  friend class internal::HeldLeases;
  explicit SampleLease(std::shared_ptr<internal::HeldLeases> held) : held_(std::move(held)) {}
  std::shared_ptr<internal::HeldLeases> held_;
};

}  // namespace reverb

#endif  // REVERB_SAMPLE_LEASE_H_
