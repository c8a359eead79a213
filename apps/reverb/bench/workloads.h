// workloads.h — runs the workloads and reports their rows.
#ifndef REVERB_APPS_BENCH_WORKLOADS_H_
#define REVERB_APPS_BENCH_WORKLOADS_H_

#include <functional>

#include "bench/bench.h"
#include "bench/report.h"
#include "reverb/status.h"

namespace reverb::bench {

// Receives rows when they are ready.
using RowSink = std::function<void(const Row&)>;

Status RunFlow(Flow flow, const BenchOptions& options, const RowSink& sink);
Status RunLatency(const BenchOptions& options, const RowSink& sink);
Status RunMixed(const BenchOptions& options, const RowSink& sink);
Status RunPer(const BenchOptions& options, const RowSink& sink);
Status RunTransitions(const BenchOptions& options, const RowSink& sink);
Status RunTables(const BenchOptions& options, const RowSink& sink);
Status RunClients(const BenchOptions& options, const RowSink& sink);

}  // namespace reverb::bench

#endif  // REVERB_APPS_BENCH_WORKLOADS_H_
