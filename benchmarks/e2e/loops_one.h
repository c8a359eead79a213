// loops_one.h — one sample, one insert, one update at a time: how long each takes.
#ifndef REVERB_BENCHMARKS_E2E_LOOPS_ONE_H_
#define REVERB_BENCHMARKS_E2E_LOOPS_ONE_H_

#include <memory>
#include <vector>

#include "benchmarks/e2e/loop.h"

namespace reverb::bench {

Result<std::vector<std::unique_ptr<Loop>>> MakeOneLoops(const Job& job, const Connector& connect);

}  // namespace reverb::bench

#endif  // REVERB_BENCHMARKS_E2E_LOOPS_ONE_H_
