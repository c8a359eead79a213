// server_info.h — the state of a server, as values.
#ifndef REVERB_SERVER_INFO_H_
#define REVERB_SERVER_INFO_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reverb/row_table_options.h"
#include "reverb/table_info.h"

namespace reverb {

// A client whose inserts or samples wait for a table.
struct WaiterInfo {
  std::string table;
  bool is_insert = false;
  WaitReason reason = WaitReason::kNone;  // of the first waiting call of its kind
  int64_t waited_nanos = 0;
  int64_t count = 0;        // items waiting to be inserted, or samples still to be sent
  std::string client_name;  // ClientOptions::name; may be empty
  std::string address;      // of the client; empty within the server's own process
};

// What a server holds in memory, in bytes, by part.
struct MemoryInfo {
  std::optional<int64_t> limit = {};  // ServerOptions::memory_limit; absent = none
  int64_t used = 0;                   // all parts
  int64_t stored = 0;                 // chunks that items and rows refer to, each counted once
  int64_t parked = 0;                 // chunks of removed items that a checkpoint has not written yet
  int64_t waiting = 0;                // chunks of items and rows that wait for their tables
  int64_t in_transit = 0;  // other chunks: of writers that may refer to them, and of samples in flight
  int64_t receiving = 0;   // messages that are being received and decoded
  int64_t replies = 0;     // encoded samples that were not sent yet
  int64_t index = 0;       // slots, keys and selectors of tables, and what checkpoints keep of them
  int64_t sessions = 0;    // streams of clients, and waiting items without their chunks
};

struct ServerInfo {
  // Drawn at random when the server started: a different id means that the tables were not kept in memory.
  std::array<uint8_t, 16> server_life_id{};
  std::string server_name;  // software and version
  std::vector<TableInfo> tables;
  std::vector<RowTableInfo> row_tables;
  int64_t live_chunks = 0;
  int64_t live_bytes = 0;            // memory of all chunks
  int64_t stored_bytes = 0;          // memory of the chunks that items and rows refer to, each counted once
  std::optional<int64_t> max_bytes;  // bound on stored_bytes; absent = none
  MemoryInfo memory = {};
  // With ServerOptions::storage: the data that can leave the memory, the data on disk, the files, and their limits.
  int64_t storage_memory_bytes = 0;
  std::optional<int64_t> storage_memory_limit;  // absent = all data is in memory
  int64_t storage_disk_bytes = 0;
  int64_t storage_file_bytes = 0;
  std::optional<int64_t> storage_disk_limit;
  int64_t storage_written_bytes = 0;  // since the start; storage_read_bytes likewise
  int64_t storage_read_bytes = 0;
  int64_t storage_lost_chunks = 0;  // whose data could not be read: the items that used them were deleted
  std::string storage_error;        // why data cannot be moved to disk; empty: it can
  // The present time and the start time by the server's clock, since the Unix epoch. 0 = unknown.
  int64_t now_nanos = 0;
  int64_t started_nanos = 0;
  // Waiting clients, longest wait first. At most a few hundred; TableInfo has the total number.
  std::vector<WaiterInfo> waiters;
  // The local endpoint: its socket, empty if there is none; and the host and the user that may use it.
  std::string local_path;
  std::string boot_id;             // of the server's host: changes when it is started again
  std::optional<int64_t> user_id;  // the only user that may connect; absent = any user
  // The upper 16 bits of the keys of items that were written to this server; 0 = unknown.
  uint32_t shard = 0;
};

// Returns the information of several servers that act as one: sums of sizes, counts, rates and bytes. Settings are
// those of the first server that has the table.
ServerInfo SumOf(const std::vector<ServerInfo>& servers);

}  // namespace reverb

#endif  // REVERB_SERVER_INFO_H_
