// The program `reverb`: one subcommand for each chore.
#include <cstdio>
#include <map>
#include <string>

#include <CLI/CLI.hpp>

#include "benchmarks/e2e/bench.h"

namespace {

constexpr int kBadArguments = 2;

// Adds `reverb bench`. *options is filled when the command line is read.
CLI::App* AddBench(CLI::App* app, reverb::bench::BenchOptions* options) {
  CLI::App* const bench =
      app->add_subcommand("bench", "Measure speed, beside what this machine could do at best");
  std::string workloads = "What to measure:";
  for (const auto& [name, summary] : reverb::bench::Workloads()) {
    workloads.append("\n  ").append(name).append(": ").append(summary);
  }
  bench->add_option("WORKLOAD", options->workload, workloads)->required();
  const std::map<std::string, bool> transports = {{"inproc", true}, {"grpc", false}};
  bench
      ->add_option_function<std::string>(
          "--transport",
          [options, transports](const std::string& name) { options->in_process = transports.at(name); },
          "inproc: all in one process; grpc: a server process on loopback (default: grpc; transitions: "
          "inproc)")
      ->check(CLI::IsMember({"inproc", "grpc"}))
      ->type_name("NAME");
  bench->add_option("--size", options->size, "Bytes of an item")->type_name("B");
  bench
      ->add_option("--clients", options->clients,
                   "Clients, each with a connection; mixed: writers; tables: tables")
      ->type_name("N");
  bench->add_option("--samplers", options->samplers, "mixed: samplers (default: as many as writers)")
      ->type_name("N");
  bench->add_option("--seconds", options->seconds, "How long each side is measured, over all rounds")
      ->type_name("S")
      ->capture_default_str();
  bench->add_option("--rounds", options->rounds, "Slices of each side, measured in turn")
      ->type_name("N")
      ->capture_default_str();
  bench->add_flag("--json", options->json, "One line of JSON for each run instead of a table");
  bench->footer(
      "The limit is the same bytes over bare gRPC, or a plain memory copy inside one process, measured in\n"
      "turn with the workload. ratio is rate over the limit's rate; for latency, time over the time of an\n"
      "empty call. A run is void when the limit itself is far below what it should be.");
  return bench;
}

}  // namespace

int main(int argc, char** argv) {
  reverb::bench::TuneMalloc();

  CLI::App app("Reverb: a data store for reinforcement-learning experience", "reverb");
  app.require_subcommand(1);
  reverb::bench::BenchOptions bench_options;
  const CLI::App* const bench = AddBench(&app, &bench_options);
  const CLI::App* const bench_process = app.add_subcommand(reverb::bench::kProcessCommand)->group("");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kBadArguments;
  }

  if (bench_process->parsed()) return reverb::bench::RunBenchProcess();
  if (bench->parsed()) {
    if (const std::string problem = reverb::bench::CheckOptions(bench_options); !problem.empty()) {
      std::fprintf(stderr, "reverb bench: %s\n", problem.c_str());
      return kBadArguments;
    }
    return reverb::bench::RunBench(bench_options);
  }
  return kBadArguments;
}
