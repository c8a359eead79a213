// command.h — the subcommands of the program, each added to the command line by one function.
//
// The `run` function of a command owns its options; main() calls it if the command line names the command.
#ifndef REVERB_APPS_REVERB_COMMAND_H_
#define REVERB_APPS_REVERB_COMMAND_H_

#include <functional>
#include <vector>

#include <CLI/CLI.hpp>

namespace reverb::program {

struct Command {
  CLI::App* app = nullptr;
  std::function<int()> run;  // returns the exit code
};

Command AddServe(CLI::App* program);
Command AddInfo(CLI::App* program);
Command AddTop(CLI::App* program);
Command AddPeek(CLI::App* program);
Command AddSample(CLI::App* program);
Command AddSet(CLI::App* program);
Command AddReset(CLI::App* program);
Command AddDelete(CLI::App* program);
Command AddTables(CLI::App* program);
Command AddCheckpoint(CLI::App* program);
Command AddToken(CLI::App* program);
Command AddExportTable(CLI::App* program);
Command AddImportTable(CLI::App* program);
Command AddDoctor(CLI::App* program);
Command AddBench(CLI::App* program);
Command AddBenchProcess(CLI::App* program);
Command AddCompletion(CLI::App* program);
Command AddMan(CLI::App* program);

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_COMMAND_H_
