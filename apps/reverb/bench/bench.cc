#include "bench/bench.h"

#include <signal.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "bench/contest.h"
#include "bench/payload.h"
#include "bench/workloads.h"

namespace reverb::bench {
namespace {

using Function = Status (*)(const BenchOptions&, const RowSink&);

Status RunInsert(const BenchOptions& options, const RowSink& sink) {
  return RunFlow(Flow::kInsert, options, sink);
}
Status RunSample(const BenchOptions& options, const RowSink& sink) {
  return RunFlow(Flow::kSample, options, sink);
}

constexpr std::array<WorkloadName, 8> kWorkloads = {{
    {"insert",
     "items of one float32 tensor written and confirmed; 400 B, 4 kB, 40 kB and 400 kB unless --size"},
    {"sample", "the same items sampled in batches of 64 into existing arrays"},
    {"latency", "one sample, one insert, one update at a time"},
    {"mixed", "writers and samplers of one table whose rate limiter keeps them in step"},
    {"per", "prioritized replay: batches of 256 with 256 updates each"},
    {"transitions", "batches of 256 four-column transitions, and of single frames from compressed chunks"},
    {"tables", "1 to 8 tables, each with a writer and a sampler"},
    {"clients", "1 to 200 clients in four processes, each with its own connection"},
}};
constexpr std::array<Function, kWorkloads.size()> kFunctions = {
    RunInsert, RunSample, RunLatency, RunMixed, RunPer, RunTransitions, RunTables, RunClients};

constexpr int64_t kMaxSize = int64_t{16} << 20;
constexpr int kMaxClients = 1000;

// Returns why a running server cannot be measured; empty if it can.
std::string CheckAddress(const BenchOptions& options) {
  if (options.address.empty()) return options.table.empty() ? "" : "--table is for --address only";
  if (options.table.empty()) {
    return "--address needs --table, the table to measure; `reverb info " + options.address + "` lists them";
  }
  if (options.table.find_first_of(" \n") != std::string::npos) {
    return "--table: a table with spaces in its name cannot be measured";
  }
  if (options.transport == Transport::kInProcess) {
    return "--transport inproc: a running server is in another process";
  }
  constexpr std::array<std::string_view, 4> kPossible = {"insert", "sample", "mixed", "latency"};
  if (std::ranges::find(kPossible, options.workload) == kPossible.end()) {
    return options.workload +
           " needs its own servers; with --address choose insert, sample, mixed or latency";
  }
  if (options.size && options.workload == "sample")
    return "--size: the table determines the size of its items";
  return {};
}

}  // namespace

std::span<const WorkloadName> Workloads() { return kWorkloads; }

std::string CheckOptions(const BenchOptions& options) {
  const std::string& workload = options.workload;
  if (std::ranges::find(kWorkloads, workload, &WorkloadName::name) == kWorkloads.end()) {
    std::string names;
    for (const WorkloadName& known : kWorkloads) names.append(names.empty() ? "" : ", ").append(known.name);
    return "there is no workload \"" + workload + "\"; choose one of " + names;
  }
  if (options.size && (*options.size < 4 || *options.size > kMaxSize || *options.size % 4 != 0)) {
    return "--size " + std::to_string(*options.size) +
           " is out of range; give a multiple of 4 (float32 values) from 4 to " + std::to_string(kMaxSize) +
           " bytes";
  }
  if (const std::string problem = CheckAddress(options); !problem.empty()) return problem;
  if (options.size && workload == "transitions") return "--size: transitions have a fixed size";
  for (const std::optional<int>& count : {options.clients, options.samplers}) {
    if (count && (*count < 1 || *count > kMaxClients)) {
      return std::to_string(*count) + " clients are not possible; give 1 to " + std::to_string(kMaxClients);
    }
  }
  if (options.clients && (workload == "latency" || workload == "per" || workload == "transitions")) {
    return "--clients: " + workload + " has one client";
  }
  if (options.samplers && workload != "mixed") return "--samplers is for the workload mixed only";
  if (options.transport == Transport::kInProcess && workload == "clients") {
    return "--transport inproc: the workload clients is about connections";
  }
  if (!(options.seconds >= 0.1 && options.seconds <= 3600)) return "--seconds must be from 0.1 to 3600";
  if (options.rounds < 1 || options.rounds > 1000) return "--rounds must be from 1 to 1000";
  return {};
}

int RunBench(const BenchOptions& options, const BenchProgress& progress) {
  signal(SIGPIPE, SIG_IGN);  // a process that died is reported as an error
  if (!options.json) std::printf("%s\n", TableHeading().c_str());
  int rows = 0;
  if (progress) {
    Contest::SetProgress([&](int round, int rounds, size_t side, size_t sides) {
      std::string line = options.workload + ", measurement " + std::to_string(rows + 1) + ": round " +
                         std::to_string(round + 1) + " of " + std::to_string(rounds);
      if (sides > 1) line += ", " + std::to_string(side + 1) + " of " + std::to_string(sides) + " sides";
      progress(line);
    });
  }
  const RowSink print = [&](const Row& row) {
    ++rows;
    if (progress) progress("");
    std::printf("%s\n", (options.json ? ToJson(row) : ToText(row)).c_str());
    std::fflush(stdout);
  };
  std::fflush(stdout);  // processes must not inherit buffered output
  const auto found = std::ranges::find(kWorkloads, options.workload, &WorkloadName::name);
  const Status status = kFunctions[static_cast<size_t>(found - kWorkloads.begin())](options, print);
  if (progress) progress("");
  if (status.ok()) return 0;
  std::fprintf(stderr, "reverb bench %s: %s\n", options.workload.c_str(), status.ToString().c_str());
  return 1;
}

int RunBenchProcess() {
  ServeContest();
  return 0;
}

}  // namespace reverb::bench
