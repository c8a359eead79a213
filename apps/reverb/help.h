// help.h — how the program explains itself: help, what was wrong with a command line, man page, completion.
//
// All of it is made from the same description of commands and options, so that none can lag behind.
#ifndef REVERB_APPS_REVERB_HELP_H_
#define REVERB_APPS_REVERB_HELP_H_

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace reverb::program {

inline constexpr char kSummary[] = "Reverb: a data store for reinforcement-learning experience";

// After all commands were added: --help, --version, and how they look.
void SetUpHelp(CLI::App* program);

// Says on standard error what is wrong and what may have been meant. Returns the exit code.
int ExplainParseError(const CLI::App& program, const CLI::ParseError& error,
                      const std::vector<std::string>& words);

// reverb(1), for man.
std::string ManPage(const CLI::App& program);
// A script that bash sources.
std::string BashCompletion(const CLI::App& program);

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_HELP_H_
