// gather_batch.h — combines samples into a Batch.
#ifndef REVERB_API_GATHER_BATCH_H_
#define REVERB_API_GATHER_BATCH_H_

#include <span>

#include "client/batcher.h"
#include "reverb/sampler.h"
#include "reverb/status.h"
#include "tensor/item.h"

namespace reverb::internal {

// INVALID_ARGUMENT, naming the sample and the column, if their layouts differ. REQUIRES: at least one sample.
Status GatherBatch(std::span<const Sample> samples, const BatchOptions& options, const ColumnNamer& names,
                   Batch* batch);

}  // namespace reverb::internal

#endif  // REVERB_API_GATHER_BATCH_H_
