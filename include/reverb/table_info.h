// table_info.h — the state and statistics that a table reports.
#ifndef REVERB_TABLE_INFO_H_
#define REVERB_TABLE_INFO_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reverb/lease.h"
#include "reverb/rate_limiter.h"
#include "reverb/table_settings.h"

namespace reverb {

// The reason why a caller waits. The numbers are sent over the network: never change them.
enum class WaitReason : uint8_t {
  kNone = 0,
  kMinSize = 1,         // samples: the table holds too few items
  kTooManySamples = 2,  // samples: another one would push the cursor below min_diff
  kTooManyInserts = 3,  // inserts: another one would push the cursor above max_diff
  kMemory = 4,          // inserts: the store has reached max_bytes
  kQueued = 5,          // behind an earlier caller of the same kind
  kLeased = 6,          // samples: leases hold the items, or the samples that the limiter allows
};
inline constexpr int kNumWaitReasons = 7;
std::string_view WaitReasonName(WaitReason reason);

struct WaitStats {
  int64_t count = 0;        // waits that have ended
  int64_t total_nanos = 0;  // their sum
};

// How the table spent its time, named as in the Python API. Inserting and sampling are estimated from a
// sample of operations; the other three are exact.
struct TableWorkTime {
  int64_t inserting_nanos = 0;
  int64_t sampling_nanos = 0;
  int64_t waiting_for_inserts_nanos = 0;   // while a sample waits
  int64_t waiting_for_sampling_nanos = 0;  // while an insert waits, but no sample
  int64_t idle_nanos = 0;                  // while no call waits
};

struct TableInfo : TableSettings, TableCounts {
  // The encoded nest structure that writers sent (item_structure.h): absent when no writer sent one, empty
  // when they differ, which LayoutPolicy::kAny allows. Only for tables without a signature.
  std::optional<std::string> structure = {};

  int64_t current_size = 0;
  int64_t num_episodes = 0;
  RateLimiterCounters counters = {};
  double cursor = 0;  // of `counters`

  LeaseCounts leases = {};

  // Bytes of the chunks that items of this table refer to, as stored. A chunk that several
  // items share counts once per item here; the store counts it once.
  int64_t referenced_bytes = 0;
  double inserts_per_second = 0;  // over about the last ten seconds
  double samples_per_second = 0;

  int64_t waiting_inserts = 0;  // current number of waiting callers
  int64_t waiting_samples = 0;
  WaitReason insert_wait_reason = WaitReason::kNone;  // of the first in the queue
  WaitReason sample_wait_reason = WaitReason::kNone;
  int64_t longest_wait_nanos = 0;         // of the current waits
  WaitStats waits[kNumWaitReasons] = {};  // by reason
  WaitStats queued_inserts = {};          // the part of inserts in WaitReason::kQueued; not sent
  TableWorkTime work_time = {};
  bool closed = false;
};

}  // namespace reverb

#endif  // REVERB_TABLE_INFO_H_
