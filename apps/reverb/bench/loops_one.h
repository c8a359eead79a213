// loops_one.h — measures the latency of single samples, inserts and updates.
#ifndef REVERB_APPS_BENCH_LOOPS_ONE_H_
#define REVERB_APPS_BENCH_LOOPS_ONE_H_

#include <memory>
#include <vector>

#include "bench/loop.h"

namespace reverb::bench {

Result<std::vector<std::unique_ptr<Loop>>> MakeOneLoops(const Job& job, const Connector& connect);

}  // namespace reverb::bench

#endif  // REVERB_APPS_BENCH_LOOPS_ONE_H_
