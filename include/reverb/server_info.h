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

struct ServerInfo {
  // Drawn when the server started: another one means another memory.
  std::array<uint8_t, 16> server_life_id{};
  std::string server_name;  // software and version
  std::vector<TableInfo> tables;
  int64_t live_chunks = 0;
  int64_t live_bytes = 0;            // all memory that chunks take
  int64_t stored_bytes = 0;          // of chunks that items refer to, each counted once
  std::optional<int64_t> max_bytes;  // the bound on these; absent = none
};

}  // namespace reverb

#endif  // REVERB_SERVER_INFO_H_
