// dm_reverb_messages.h — records of tables and items in dm-reverb's checkpoints.
//
// Each record is validated by itself; DmReverbSource (dm_reverb_source.cc) checks items against chunks.
// Threads: free functions without state.
#ifndef REVERB_CHECKPOINT_DM_REVERB_DM_REVERB_MESSAGES_H_
#define REVERB_CHECKPOINT_DM_REVERB_DM_REVERB_MESSAGES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reverb/rate_limiter.h"
#include "reverb/status.h"
#include "reverb/table_options.h"

namespace reverb::internal {

struct DmReverbSlice {
  uint64_t chunk_key = 0;
  uint32_t offset = 0;
  uint32_t length = 0;
  uint32_t index = 0;  // of the tensor in the chunk
};

// PrioritizedItem. It refers to its data in one of two ways, never both.
struct DmReverbItem {
  struct Column {
    uint32_t end_slice = 0;  // the end of its slices, which start at the end of the previous column
    bool squeeze = false;
  };
  uint64_t key = 0;
  std::string table;
  double priority = 0;
  int32_t times_sampled = 0;
  int64_t inserted_at = 0;  // nanoseconds since the Unix epoch

  std::vector<Column> columns;
  std::vector<DmReverbSlice> slices;

  // In old files: rows [offset, offset + length) of the concatenation of these chunks, each tensor of which
  // is a column.
  std::vector<uint64_t> chunk_keys;
  uint32_t offset = 0;
  uint32_t length = 0;
};
Result<DmReverbItem> ParseDmReverbItem(std::string_view message);

// PriorityTableCheckpoint.
struct DmReverbTableRecord {
  TableOptions options;  // validated
  RateLimiterCounters counters;
  int64_t num_deleted_episodes = 0;
  int64_t num_unique_samples = 0;
  std::vector<std::string_view> items;  // in old files: serialized, inside the record
};
Result<DmReverbTableRecord> ParseDmReverbTable(std::string_view message);

}  // namespace reverb::internal

#endif  // REVERB_CHECKPOINT_DM_REVERB_DM_REVERB_MESSAGES_H_
