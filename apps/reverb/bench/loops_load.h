// loops_load.h — writers and samplers at full speed: items of one float32 tensor, none shared.
#ifndef REVERB_APPS_BENCH_LOOPS_LOAD_H_
#define REVERB_APPS_BENCH_LOOPS_LOAD_H_

#include <functional>
#include <memory>
#include <vector>

#include "bench/loop.h"

namespace reverb::bench {

// Job::writers loops that insert, then Job::samplers loops that sample.
Result<std::vector<std::unique_ptr<Loop>>> MakeLoadLoops(const Job& job, const Connector& connect);

// Returns the limiter that keeps samples and inserts in step: four samples per insert.
Result<RateLimiterOptions> InStepLimiter();

// Writes Job::items items of Job::size bytes, chunk and sequence length 1, all of priority 1.
Status Fill(const Client& client, const Job& job, int table);

}  // namespace reverb::bench

#endif  // REVERB_APPS_BENCH_LOOPS_LOAD_H_
