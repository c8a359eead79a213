// info_view.h — formats a server's information as text or as JSON.
#ifndef REVERB_APPS_REVERB_INFO_VIEW_H_
#define REVERB_APPS_REVERB_INFO_VIEW_H_

#include <chrono>
#include <string>
#include <vector>

#include "reverb/client.h"
#include "reverb/server_info.h"
#include "terminal.h"
#include "view/info_json.h"

namespace reverb::program {

// A server's information, and the time of the request.
struct Snapshot {
  ServerInfo info;
  Transport transport = Transport::kGrpc;  // that this process uses
  std::chrono::steady_clock::time_point when;
  // Of several servers: each of them. `info` is the sum of those that answer.
  std::vector<Client::ServerReport> servers = {};
};

// Rates per second.
struct Rates {
  double inserts = 0;
  double samples = 0;
};
// Returns the rates between two snapshots; without an earlier one, or if other servers answered then, the servers'
// own rates of the last ten seconds.
Rates RatesOf(const TableInfo& table, const Snapshot& now, const Snapshot* before);

// Returns two lines: the server's name, address and uptime; its memory.
std::string ServerSummary(const std::string& address, const Snapshot& now, const Paint& paint);
// Returns lines with a table's limiter, selectors, leases, items, and who waits and why, after an empty line.
std::string TableDetail(const TableInfo& table, const std::vector<WaiterInfo>& waiters, const Paint& paint);
std::string InfoPage(const std::string& address, const Snapshot& now, const Snapshot* before,
                     const Paint& paint);
// Returns one line of JSON. docs/program.md documents the fields.
std::string InfoJson(const std::string& address, const Snapshot& now, const Snapshot* before);
using internal::ShowSignature;
// Describes the items of a table: its signature, else the names that writers sent, and its layout policy
// unless it is the default. Empty if nothing is known.
std::string ShowItems(const TableInfo& table);

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_INFO_VIEW_H_
