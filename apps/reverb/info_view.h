// info_view.h — a server's information as a page for people or as JSON.
#ifndef REVERB_APPS_REVERB_INFO_VIEW_H_
#define REVERB_APPS_REVERB_INFO_VIEW_H_

#include <chrono>
#include <string>

#include "json.h"
#include "reverb/server_info.h"
#include "terminal.h"

namespace reverb::program {

// What a server said, and when it was asked.
struct Snapshot {
  ServerInfo info;
  std::chrono::steady_clock::time_point when;
};

// Per second.
struct Rates {
  double inserts = 0;
  double samples = 0;
};
// Between two snapshots; the server's own figures, of the last ten seconds, where there is no earlier one.
Rates RatesOf(const TableInfo& table, const Snapshot& now, const Snapshot* before);

std::string InfoPage(const std::string& address, const Snapshot& now, const Snapshot* before,
                     const Paint& paint);
// One line. docs/program.md has the fields.
std::string InfoJson(const std::string& address, const Snapshot& now, const Snapshot* before);
void AddTableJson(const TableInfo& table, const Rates& rates, JsonWriter* json);

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_INFO_VIEW_H_
