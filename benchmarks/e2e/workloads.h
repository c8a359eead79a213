// workloads.h — what each workload sets up, and which rows come of it.
#ifndef REVERB_BENCHMARKS_E2E_WORKLOADS_H_
#define REVERB_BENCHMARKS_E2E_WORKLOADS_H_

#include <functional>

#include "benchmarks/e2e/bench.h"
#include "benchmarks/e2e/report.h"
#include "reverb/status.h"

namespace reverb::bench {

// Receives rows as they are ready.
using RowSink = std::function<void(const Row&)>;

Status RunFlow(Flow flow, const BenchOptions& options, const RowSink& sink);
Status RunLatency(const BenchOptions& options, const RowSink& sink);
Status RunMixed(const BenchOptions& options, const RowSink& sink);
Status RunPer(const BenchOptions& options, const RowSink& sink);
Status RunTransitions(const BenchOptions& options, const RowSink& sink);
Status RunTables(const BenchOptions& options, const RowSink& sink);
Status RunClients(const BenchOptions& options, const RowSink& sink);

}  // namespace reverb::bench

#endif  // REVERB_BENCHMARKS_E2E_WORKLOADS_H_
