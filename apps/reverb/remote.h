// remote.h — what commands that talk to a server have in common.
#ifndef REVERB_APPS_REVERB_REMOTE_H_
#define REVERB_APPS_REVERB_REMOTE_H_

#include <string>

#include <CLI/CLI.hpp>

#include "reverb/client.h"
#include "reverb/server_info.h"
#include "reverb/status.h"
#include "reverb/wait.h"

namespace reverb::program {

// A check for options that are a time in seconds. Unlike CLI::Range it refuses NaN.
CLI::Validator SecondsBetween(double least, double most);

// Where the server is and how long to wait for it: the words ADDRESS and --timeout of a command line.
struct Remote {
  std::string command = {};  // whose error messages these are
  std::string address = {};
  double timeout_seconds = 5;

  void AddTo(CLI::App* app);
  // UNAVAILABLE when nothing listens there, which is found out at once.
  Result<Client> Connect() const;
  WaitOptions wait() const;

  // Says on standard error what went wrong and what to do about it. Returns the exit code.
  int Fail(const Status& status) const;
};

// Why a table hands out no sample now.
std::string WhyNoSample(const TableInfo& table);

// `app` gets the word TABLE.
void AddTableName(CLI::App* app, std::string* table);
// NOT_FOUND, with the tables that there are, when the server has none of that name.
Result<TableInfo> FindTable(const ServerInfo& info, const std::string& table);

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_REMOTE_H_
