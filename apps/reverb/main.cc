// The program `reverb`.
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "command.h"
#include "exit_codes.h"
#include "help.h"
#include "tune_malloc.h"
#include "version.h"

int main(int argc, char** argv) {
  using namespace reverb::program;  // NOLINT: this file is that program
  TuneMalloc();

  CLI::App program(kSummary, "reverb");
  const std::vector<Command> commands = {
      AddServe(&program),  AddInfo(&program),       AddTop(&program),         AddPeek(&program),
      AddSample(&program), AddSet(&program),        AddReset(&program),       AddDelete(&program),
      AddTables(&program), AddCheckpoint(&program), AddToken(&program), AddExportTable(&program), AddImportTable(&program),
      AddDoctor(&program), AddBench(&program),      AddCompletion(&program),  AddBenchProcess(&program),
      AddMan(&program)};
  SetUpHelp(&program);
  if (argc < 2) {
    std::fputs(program.help().c_str(), stderr);
    return kBadUsage;
  }
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words[0] == "help") {  // `reverb help serve` is `reverb serve --help`
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  try {
    program.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // expects reverse order
  } catch (const CLI::Success& asked) {                                     // help or version
    return program.exit(asked);
  } catch (const CLI::ParseError& error) {
    return ExplainParseError(program, error, words);
  }
  for (const Command& command : commands) {
    if (command.app->parsed()) return command.run();
  }
  return kBadUsage;
}
