// limit_memory.h — the least that a store inside the process must do: copy the bytes.
#ifndef REVERB_BENCHMARKS_E2E_LIMIT_MEMORY_H_
#define REVERB_BENCHMARKS_E2E_LIMIT_MEMORY_H_

#include <memory>
#include <vector>

#include "benchmarks/e2e/loop.h"

namespace reverb::bench {

// For kLimitCopy: Job::writers loops that copy in, then Job::samplers loops that copy out. For the other
// kinds one loop. Each has a store of its own, as large as the job's table.
Result<std::vector<std::unique_ptr<Loop>>> MakeMemoryLimitLoops(const Job& job);

}  // namespace reverb::bench

#endif  // REVERB_BENCHMARKS_E2E_LIMIT_MEMORY_H_
