// help.h — help texts, usage errors and the manual page; completion.cc has the scripts for shells.
//
// All are generated from the same description of commands and options, so that they stay consistent.
#ifndef REVERB_APPS_REVERB_HELP_H_
#define REVERB_APPS_REVERB_HELP_H_

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace reverb::program {

inline constexpr char kSummary[] = "Reverb: a data store for reinforcement-learning experience";

// Adds --help and --version and sets their format. Call after all commands were added.
void SetUpHelp(CLI::App* program);

// Prints the usage error and a suggestion to standard error. Returns the exit code.
int ExplainParseError(const CLI::App& program, const CLI::ParseError& error,
                      const std::vector<std::string>& words);

// Returns the manual page reverb(1).
std::string ManPage(const CLI::App& program);
// Returns the commands of the program, or the subcommands of a command, without hidden ones.
std::vector<const CLI::App*> Commands(const CLI::App& program);

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_HELP_H_
