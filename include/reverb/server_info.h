// server_info.h — what a server tells about itself, as values.
#ifndef REVERB_SERVER_INFO_H_
#define REVERB_SERVER_INFO_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reverb/table_info.h"

namespace reverb {

// A client whose inserts, or samples, a table makes wait.
struct WaiterInfo {
  std::string table;
  bool is_insert = false;
  WaitReason reason = WaitReason::kNone;  // of the first in line of its kind
  int64_t waited_nanos = 0;
  int64_t count = 0;        // items that wait to go in, or samples that are still to come
  std::string client_name;  // what the client calls itself; may be empty
  std::string address;      // where it calls from; empty within the server's own process
};

struct ServerInfo {
  // Drawn when the server started: another one means another memory.
  std::array<uint8_t, 16> server_life_id{};
  std::string server_name;  // software and version
  std::vector<TableInfo> tables;
  int64_t live_chunks = 0;
  int64_t live_bytes = 0;            // all memory that chunks take
  int64_t stored_bytes = 0;          // of chunks that items refer to, each counted once
  std::optional<int64_t> max_bytes;  // the bound on these; absent = none
  // By the server's clock, since the Unix epoch: now, and when it started. 0 = it does not say.
  int64_t now_nanos = 0;
  int64_t started_nanos = 0;
  // Who waits, longest first. At most some hundred; TableInfo has the whole number.
  std::vector<WaiterInfo> waiters;
};

}  // namespace reverb

#endif  // REVERB_SERVER_INFO_H_
