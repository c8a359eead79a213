// bench.h — `reverb bench`: how fast the whole way is, from a client's call to the table and back.
//
// Every workload runs beside its limit: the same bytes over the same transport with nothing behind it (or a
// plain copy, inside one process). Both have their own processes, and slices of both are measured in turn, so
// that a noisy machine spoils both alike. README.md says what is measured against what. A server that runs
// already is measured alone: nothing of ours is on its machine.
#ifndef REVERB_BENCHMARKS_E2E_BENCH_H_
#define REVERB_BENCHMARKS_E2E_BENCH_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace reverb::bench {

struct BenchOptions {
  std::string workload = {};
  std::optional<bool> in_process = {};  // absent: what the workload is mostly about
  std::optional<int64_t> size = {};     // bytes of an item; absent: the workload's own, or all of the paper's
  std::optional<int> clients = {};
  std::optional<int> samplers = {};  // `mixed` only; absent: as many as writers
  double seconds = 5;                // of each side, over all rounds
  int rounds = 5;
  bool json = false;
  // A server that runs already, and its table that is written to and sampled from; empty: servers of our own.
  std::string address = {};
  std::string table = {};
};

struct WorkloadName {
  std::string_view name;
  std::string_view summary;
};
std::span<const WorkloadName> Workloads();

// What is wrong with the options, as a sentence; empty when nothing is.
std::string CheckOptions(const BenchOptions& options);

// Measures and prints. The exit status of the program: 0, or 1 with the reason on stderr.
int RunBench(const BenchOptions& options);

// A process that RunBench() started: serves its commands until standard input ends.
int RunBenchProcess();

// How RunBench() starts such a process: the argument it gives to this same program.
inline constexpr char kProcessCommand[] = "bench-process";

}  // namespace reverb::bench

#endif  // REVERB_BENCHMARKS_E2E_BENCH_H_
