// fetch_samples.h — the payloads of samples that a table with a disk tier has drawn.
#ifndef REVERB_CORE_FETCH_SAMPLES_H_
#define REVERB_CORE_FETCH_SAMPLES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/table.h"
#include "reverb/status.h"
#include "tensor/item.h"

namespace reverb::internal {

struct FetchedSamples {
  std::vector<Sample> samples;  // in the same order, with readable trajectories
  int64_t lost = 0;             // the others: their data is lost, and they were deleted from the table
  Status status;                // another error, which may pass
  std::vector<Sample> unread;   // those that could not be read because of it
};

// Replaces the tiered chunks of the samples by resident ones, which are read together from disk if necessary. Calls
// `done` once: before this returns if all are in memory, otherwise on another thread. Deletes the items whose data is
// lost. `table` may be null: then nothing is deleted.
void FetchSamples(PayloadTier* tier, const std::shared_ptr<ConcurrentTable>& table,
                  std::vector<Sample> samples, std::function<void(FetchedSamples)> done);
// Waits for the result. Not to be called on threads that serve others.
FetchedSamples FetchSamplesAndWait(PayloadTier* tier, const std::shared_ptr<ConcurrentTable>& table,
                                   std::vector<Sample> samples);

// Deletes the items with these keys, whose data on disk cannot be read, and logs it. REQUIRES: there are some.
void DeleteLostItems(ConcurrentTable* table, std::span<const uint64_t> keys);

}  // namespace reverb::internal

#endif  // REVERB_CORE_FETCH_SAMPLES_H_
