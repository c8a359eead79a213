// remote.h — the shared part of commands that call a server.
#ifndef REVERB_APPS_REVERB_REMOTE_H_
#define REVERB_APPS_REVERB_REMOTE_H_

#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "reverb/client.h"
#include "reverb/server_info.h"
#include "reverb/status.h"
#include "reverb/wait.h"

namespace reverb::program {

// Returns a check for options that are a time in seconds. Unlike CLI::Range, it rejects NaN.
CLI::Validator SecondsBetween(double least, double most);

// Returns whether the address is that of several servers: separated by commas, dns:///name:port, file:///path.
bool IsSet(std::string_view address);

// A table of a server, and the client to change it with.
struct RemoteTable {
  Client client;
  ServerInfo server;
  TableInfo table;
  std::optional<RowTableInfo> rows = {};  // only from FindAny()
};

// The arguments ADDRESS and --timeout of a command line.
struct Remote {
  std::string command = {};  // the name in error messages
  std::string address = {};
  double timeout_seconds = 5;
  // Of TLS and tokens; what is empty comes from the environment.
  ClientTls tls = {};
  std::string token_file = {};

  void AddTo(CLI::App* app);
  // The options of the client, with the token of the file.
  Result<ClientOptions> Options() const;
  // UNAVAILABLE if nothing listens there, without waiting for the timeout.
  Result<Client> Connect() const;
  // Connects, and finds a table of the server. NOT_FOUND lists the existing tables.
  Result<RemoteTable> Find(const std::string& table) const;
  // The same, for commands that work on row tables too: `rows` is set for these instead of `table`.
  Result<RemoteTable> FindAny(const std::string& table) const;
  WaitOptions wait() const;
  // Returns whether a change may be made: with `yes`, or if the user confirms it. Prints that nothing was changed
  // otherwise.
  bool MayChange(bool yes, const std::string& question) const;

  // Prints the error and a remedy to standard error. Returns the exit code.
  int Fail(const Status& status) const;
};

// Returns why a table cannot be sampled now.
std::string WhyNoSample(const TableInfo& table);

// Adds the argument TABLE to `app`.
void AddTableName(CLI::App* app, std::string* table);
// NOT_FOUND lists the existing tables if the server has none of that name.
Result<TableInfo> FindTable(const ServerInfo& info, const std::string& table);
// Returns the row table of that name; absent if there is none.
std::optional<RowTableInfo> FindRowTable(const ServerInfo& info, const std::string& table);

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_REMOTE_H_
