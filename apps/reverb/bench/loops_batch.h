// loops_batch.h — learners that sample batches of 256 into existing arrays.
#ifndef REVERB_APPS_BENCH_LOOPS_BATCH_H_
#define REVERB_APPS_BENCH_LOOPS_BATCH_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "bench/loop.h"

namespace reverb::bench {

inline constexpr int64_t kLearnerBatch = 256;

// The columns of a transition: observation, next observation, action, reward.
inline constexpr std::array<int64_t, 4> kTransitionColumns = {400, 400, 28, 4};
inline constexpr int64_t kTransitionBytes = 832;

inline constexpr int64_t kFramesPerChunk = 40;

Result<std::vector<std::unique_ptr<Loop>>> MakeBatchLoops(const Job& job, const Connector& connect);

}  // namespace reverb::bench

#endif  // REVERB_APPS_BENCH_LOOPS_BATCH_H_
