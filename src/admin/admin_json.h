// admin_json.h — the JSON of /api/v1/info: that of `reverb info --json` and more.
#ifndef REVERB_ADMIN_ADMIN_JSON_H_
#define REVERB_ADMIN_ADMIN_JSON_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "admin/admin_source.h"

namespace reverb::internal {

// Returns one line of JSON.
std::string AdminInfoJson(const AdminState& state);
// Returns {"error":"…"} and a newline.
std::string ErrorJson(std::string_view message);

// The seconds that calls of one kind have waited, by reason, in the order of WaitReason. A call that waits behind
// others of its kind counts as "queued".
std::vector<std::pair<WaitReason, double>> WaitSeconds(const TableInfo& table, bool of_inserts);

// Returns `state` with the tables that the token permits only. Null: all.
AdminState VisibleTo(AdminState state, const AccessToken* token);

}  // namespace reverb::internal

#endif  // REVERB_ADMIN_ADMIN_JSON_H_
