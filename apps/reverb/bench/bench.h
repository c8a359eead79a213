// bench.h — `reverb bench`: measures end-to-end performance, from a client's call to the table and back.
//
// Every workload is compared with its limit: the same bytes over the same transport without a data store (or
// a plain copy, inside one process). Both run in their own processes, and slices of both are measured in
// turn, so that noise of the machine affects both equally. benchmarks/README.md describes the comparisons. A
// running server is measured without a limit, since the benchmark cannot start processes on its machine.
#ifndef REVERB_APPS_BENCH_BENCH_H_
#define REVERB_APPS_BENCH_BENCH_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "reverb/client.h"

namespace reverb::bench {

struct BenchOptions {
  std::string workload = {};
  std::optional<Transport> transport = {};  // absent: the default of the workload
  std::optional<int64_t> size = {};         // bytes of an item; absent: the default of the workload
  std::optional<int> clients = {};
  std::optional<int> samplers = {};  // `mixed` only; absent: as many as writers
  double seconds = 5;                // of each side, over all rounds
  int rounds = 5;
  bool json = false;
  // A running server and its table to write to and sample from; empty: starts its own servers.
  std::string address = {};
  std::string table = {};
};

struct WorkloadName {
  std::string_view name;
  std::string_view summary;
};
std::span<const WorkloadName> Workloads();

// Returns a problem of the options; empty if they are valid.
std::string CheckOptions(const BenchOptions& options);

// Receives a line about the progress of RunBench(), without a line break; empty: remove it.
using BenchProgress = std::function<void(const std::string& line)>;

// Measures and prints the results. Returns the exit code: 0, or 1 with the reason on stderr.
int RunBench(const BenchOptions& options, const BenchProgress& progress = {});

// Runs in a process that RunBench() started: executes its commands until standard input ends.
int RunBenchProcess();

// The argument with which RunBench() starts this program as such a process.
inline constexpr char kProcessCommand[] = "bench-process";

}  // namespace reverb::bench

#endif  // REVERB_APPS_BENCH_BENCH_H_
