// `reverb export` and `reverb import`: run by the Python package, which has the formats.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "command.h"
#include "exit_codes.h"

namespace reverb::program {
namespace {

// Returns the interpreter that has the package: the one that the user names, or the one beside this program, where
// pip installs both, or the first one on the path.
std::string FindPython() {
  const char* const chosen = std::getenv("REVERB_PYTHON");
  if (chosen != nullptr && *chosen != '\0') return chosen;
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string beside = program.parent_path() / "python3";
  return !error && ::access(beside.c_str(), X_OK) == 0 ? beside : "python3";
}

// Replaces this process by `python3 -m reverb COMMAND WORDS...`.
int RunPython(const std::string& command, const std::vector<std::string>& words) {
  const std::string python = FindPython();
  std::vector<std::string> all = {python, "-m", "reverb", command};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> arguments;
  for (std::string& word : all) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execvp(python.c_str(), arguments.data());
  std::fprintf(
      stderr,
      "reverb %s: cannot run %s: %s. The Python package does this; install it and set REVERB_PYTHON to "
      "its interpreter, or run `python3 -m reverb %s` there.\n",
      command.c_str(), python.c_str(), std::strerror(errno), command.c_str());
  return kFailed;
}

Command Add(CLI::App* program, const char* name, const char* description, const char* footer) {
  CLI::App* const app = program->add_subcommand(name, description);
  app->prefix_command();
  app->footer(footer);
  return {app, [app, name] { return RunPython(name, app->remaining()); }};
}

}  // namespace

Command AddExportTable(CLI::App* program) {
  return Add(
      program, "export", "Write the items of a table to a file of another format",
      "Example:\n"
      "  reverb export /data/run7 --table replay --format parquet -o replay.parquet\n"
      "\n"
      "The Python package does this: REVERB_PYTHON is its interpreter (by default the python3 beside this\n"
      "program, or else on the path). `python3 -m reverb export --help` shows all options.");
}

Command AddImportTable(CLI::App* program) {
  return Add(
      program, "import", "Write the items of such a file to a checkpoint or a server",
      "Example:\n"
      "  reverb import replay.parquet --format parquet --to /data/new\n"
      "\n"
      "The Python package does this: REVERB_PYTHON is its interpreter (by default the python3 beside this\n"
      "program, or else on the path). `python3 -m reverb import --help` shows all options.");
}

}  // namespace reverb::program
