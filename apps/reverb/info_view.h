// info_view.h — formats a server's information as text or as JSON.
#ifndef REVERB_APPS_REVERB_INFO_VIEW_H_
#define REVERB_APPS_REVERB_INFO_VIEW_H_

#include <chrono>
#include <string>

#include "json.h"
#include "reverb/server_info.h"
#include "terminal.h"

namespace reverb::program {

// A server's information, and the time of the request.
struct Snapshot {
  ServerInfo info;
  std::chrono::steady_clock::time_point when;
};

// Rates per second.
struct Rates {
  double inserts = 0;
  double samples = 0;
};
// Returns the rates between two snapshots; without an earlier one, the server's own rates of the last ten
// seconds.
Rates RatesOf(const TableInfo& table, const Snapshot& now, const Snapshot* before);

std::string InfoPage(const std::string& address, const Snapshot& now, const Snapshot* before,
                     const Paint& paint);
// Returns one line of JSON. docs/program.md documents the fields.
std::string InfoJson(const std::string& address, const Snapshot& now, const Snapshot* before);
void AddTableJson(const TableInfo& table, const Rates& rates, JsonWriter* json);

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_INFO_VIEW_H_
