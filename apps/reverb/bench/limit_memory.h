// limit_memory.h — the limit within one process: copies the bytes.
#ifndef REVERB_APPS_BENCH_LIMIT_MEMORY_H_
#define REVERB_APPS_BENCH_LIMIT_MEMORY_H_

#include <memory>
#include <vector>

#include "bench/loop.h"

namespace reverb::bench {

// For kLimitCopy: Job::writers loops that copy in, then Job::samplers loops that copy out. For the other
// kinds one loop. Each has its own store, as large as the job's table.
Result<std::vector<std::unique_ptr<Loop>>> MakeMemoryLimitLoops(const Job& job);

}  // namespace reverb::bench

#endif  // REVERB_APPS_BENCH_LIMIT_MEMORY_H_
