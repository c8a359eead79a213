// `reverb bench`: the command line of bench/.
#include <unistd.h>

#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include "bench/bench.h"
#include "command.h"
#include "exit_codes.h"
#include "remote.h"
#include "terminal.h"

namespace reverb::program {

Command AddBench(CLI::App* program) {
  const auto options = std::make_shared<bench::BenchOptions>();
  CLI::App* const app =
      program->add_subcommand("bench", "Measure performance, compared with the limit of this machine");
  std::string workloads = "What to measure:";
  for (const auto& [name, summary] : bench::Workloads()) {
    workloads.append("\n  ").append(name).append(": ").append(summary);
  }
  app->add_option("WORKLOAD", options->workload, workloads)->required()->type_name("");
  const std::map<std::string, Transport> transports = {
      {"inproc", Transport::kInProcess}, {"local", Transport::kLocal}, {"grpc", Transport::kGrpc}};
  app->add_option_function<std::string>(
         "--transport",
         [options, transports](const std::string& name) { options->transport = transports.at(name); },
         "inproc: all in one process; local: a server process, through shared memory; grpc: a server process "
         "on loopback (default: grpc; transitions: inproc)")
      ->check(CLI::IsMember({"inproc", "local", "grpc"}))
      ->type_name("NAME");
  app->add_option("--address", options->address, "Measure a running server: insert, sample, mixed or latency")
      ->type_name("ADDRESS");
  app->add_option("--table", options->table,
                  "With --address: the table to use. The benchmark writes items into it!")
      ->type_name("TABLE");
  app->add_option("--size", options->size, "Bytes of an item")->type_name("B");
  app->add_option("--clients", options->clients,
                  "Clients, each with a connection; mixed: writers; tables: tables")
      ->type_name("N");
  app->add_option("--samplers", options->samplers, "mixed: samplers (default: as many as writers)")
      ->type_name("N");
  app->add_option("--seconds", options->seconds, "How long to measure each side, over all rounds")
      ->type_name("S")
      ->capture_default_str();
  app->add_option("--rounds", options->rounds, "Number of slices of each side, measured in turn")
      ->type_name("N")
      ->capture_default_str();
  app->add_flag("--json", options->json, "One line of JSON for each run instead of a table");
  app->footer(
      "Examples:\n"
      "  reverb bench insert --size 4000\n"
      "  reverb bench latency --address replay-host:8000 --table scratch\n"
      "\n"
      "The limit is the same bytes over plain gRPC, or a plain memory copy inside one process, measured in\n"
      "turn with the workload. ratio is the rate divided by the limit's rate; for latency, the time divided\n"
      "by the time of an empty call. A run is void if the limit itself is far below its expected value.\n"
      "\n"
      "With --address no server is started and there is no limit to compare with. Use a separate table:\n"
      "  reverb serve --host '[::]' --table scratch:uniform:fifo:100000");
  return {app, [options] {
            if (const std::string problem = bench::CheckOptions(*options); !problem.empty()) {
              std::fprintf(stderr, "reverb bench: %s\n", problem.c_str());
              return int{kBadUsage};
            }
            if (!options->address.empty()) {
              // Reports a wrong address or table before starting processes.
              const Remote remote{.command = "bench", .address = options->address};
              const Result<Client> client = remote.Connect();
              if (!client.ok()) return remote.Fail(client.status());
              const Result<ServerInfo> info = client->Info(remote.wait());
              if (!info.ok()) return remote.Fail(info.status());
              const Result<TableInfo> table = FindTable(*info, options->table);
              if (!table.ok()) return remote.Fail(table.status());
            }
            if (!IsTerminal(STDERR_FILENO)) return bench::RunBench(*options);
            return bench::RunBench(*options, [](const std::string& line) {
              const auto width = static_cast<size_t>(TerminalSize().columns) - 1;
              std::fprintf(stderr, "\r\x1b[K%s", CutToWidth(line, width).c_str());
              std::fflush(stderr);
            });
          }};
}

Command AddBenchProcess(CLI::App* program) {
  CLI::App* const app = program->add_subcommand(bench::kProcessCommand)->group("");
  return {app, bench::RunBenchProcess};
}

}  // namespace reverb::program
