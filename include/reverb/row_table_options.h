// row_table_options.h — the options of a row table, and the values of its rows that are not tensors.
//
// A row table holds rows under the caller's keys, whose columns arrive over time (docs/rows.md).
//
// Threads: values.
#ifndef REVERB_ROW_TABLE_OPTIONS_H_
#define REVERB_ROW_TABLE_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "reverb/status.h"

namespace reverb {

// The order in which claims get rows. The numbers are stored and sent: never change them.
enum class RowOrder : uint8_t {
  kFifo = 0,     // in the order of their creation
  kVersion = 1,  // the oldest version first
  kReady = 2,    // in the order in which they became ready
};
inline constexpr int kNumRowOrders = 3;
// Returns "fifo", "version" or "ready".
std::string_view RowOrderName(RowOrder order);

// What happens to rows that are older than max_lag. The numbers are stored and sent: never change them.
enum class WhenStale : uint8_t {
  kDrop = 0,  // they are dropped, groups as a whole
  kKeep = 1,  // they stay readable, but are not claimed
  kWait = 2,  // they are claimed; producers wait, so that rows do not become stale
};
inline constexpr int kNumWhenStale = 3;
// Returns "drop", "keep" or "wait".
std::string_view WhenStaleName(WhenStale when);

struct StalenessOptions {
  // A row is stale when the version of the table exceeds its own by more than this.
  int64_t max_lag = 0;
  WhenStale when_stale = WhenStale::kDrop;
  // Rows that the trainer consumes for each version: bounds reservations, and producers with kWait.
  // 0 = unknown: reservations are bounded by max_running only.
  int64_t batch = 0;

  friend bool operator==(const StalenessOptions&, const StalenessOptions&) = default;
};

struct RowTableOptions {
  // --- Behaviour ---
  std::string name = {};  // 1 to 1024 bytes of UTF-8; unique within a server, among tables of items too

  // New rows wait while the table has so many.
  int64_t max_rows = 100'000;
  // Above 0: every row belongs to a group of so many rows.
  int64_t group_size = 0;
  // Their names: 0 to kMaxConsumers, each a name that is not "resume".
  std::vector<std::string> consumers = {};
  std::optional<StalenessOptions> staleness = {};
  RowOrder order = RowOrder::kFifo;
  // Bounds the rows that are reserved and not yet put; 0 = unbounded.
  int64_t max_running = 0;
  // Rows are dropped when all consumers have acknowledged them.
  bool drop_consumed = true;

  static constexpr size_t kMaxConsumers = 30;
  static constexpr size_t kMaxKeyBytes = 256;   // of keys, groups, and names of columns and tags
  static constexpr size_t kMaxTagBytes = 1024;  // of a string
  static constexpr size_t kMaxTags = 64;
  static constexpr int64_t kMaxGroupSize = 1024;
  static constexpr int64_t kMaxRows = int64_t{1} << 28;
  static constexpr size_t kMaxStateBytes = size_t{16}
                                           << 20;  // of the state that a caller keeps with the table

  Status Validate() const;
  friend bool operator==(const RowTableOptions&, const RowTableOptions&) = default;
};

// The consumer that gets open rows which were requeued.
inline constexpr std::string_view kResumeConsumer = "resume";

struct RowTag {
  std::string name;
  std::variant<bool, int64_t, double, std::string> value;

  friend bool operator==(const RowTag&, const RowTag&) = default;
};

// The counters of a row table over its lifetime, and its rows by state.
struct RowCounts {
  // --- Now ---
  int64_t rows = 0;
  int64_t open = 0;
  int64_t stale = 0;
  int64_t groups = 0;
  int64_t complete_groups = 0;
  int64_t running = 0;  // reserved and not yet put
  int64_t leases = 0;   // claims that are neither acknowledged nor released
  int64_t bytes = 0;    // of the data of the rows

  // --- Over the lifetime ---
  int64_t accepted = 0;       // rows that were stored, without those that were dropped unconsumed
  int64_t created = 0;        // rows
  int64_t updated = 0;        // writes to existing rows
  int64_t consumed = 0;       // rows that all consumers have acknowledged
  int64_t dropped_stale = 0;  // rows
  int64_t deleted = 0;        // rows, by callers, open ones that were aborted included
  int64_t refused = 0;        // writes that were reported as aborted
  int64_t claimed = 0;        // rows, for each consumer
  int64_t acknowledged = 0;
  int64_t released = 0;
  int64_t expired = 0;  // rows of leases that were neither acknowledged nor released in time
};

// Counters of one consumer.
struct RowConsumerInfo {
  std::string name;
  int64_t ready = 0;  // for the claim that it made last
  int64_t leased = 0;
  int64_t consumed = 0;  // rows that are still in the table
};

// A row table at one moment.
struct RowTableInfo {
  RowTableOptions settings;
  RowCounts counts;
  std::vector<RowConsumerInfo> consumers;  // "resume" included
  int64_t version = 0;
  int64_t waiting_writes = 0;
  int64_t waiting_claims = 0;
  int64_t waiting_reservations = 0;
  int64_t longest_wait_nanos = 0;  // of a write, claim or reservation that waits now
  // Why the write, claim and reservation that have waited longest wait; empty if none does.
  std::string write_reason = {};
  std::string claim_reason = {};
  std::string reservation_reason = {};
  int64_t state_bytes = 0;  // of the caller's state (Rows::SetState)
};

}  // namespace reverb

#endif  // REVERB_ROW_TABLE_OPTIONS_H_
