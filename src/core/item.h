// item.h — items on their way into and out of a table.
#ifndef REVERB_CORE_ITEM_H_
#define REVERB_CORE_ITEM_H_

#include <atomic>
#include <cstdint>

#include "reverb/item.h"
#include "tensor/trajectory.h"

namespace reverb::internal {

struct Item {
  uint64_t key = 0;
  double priority = 0;
  int32_t times_sampled = 0;
  Trajectory trajectory;
  // For those who number their items: set to the number, under the table's lock, when the item goes in, so
  // that a snapshot of the table and this agree. Outlives the operation.
  std::atomic<uint64_t>* applied = nullptr;
  uint64_t number = 0;
};

struct SampledItem {
  uint64_t key = 0;
  double priority = 0;
  double probability = 0;
  int64_t table_size = 0;     // before a deletion caused by this sample
  int64_t inserted_at = 0;    // nanoseconds since the Unix epoch
  int32_t times_sampled = 0;  // this sample included
  bool rate_limited = false;  // had to wait for the limiter
  Trajectory trajectory;
};

// An item looked at without being sampled.
struct PeekedItem {
  uint64_t key = 0;
  double priority = 0;
  int64_t inserted_at = 0;
  int32_t times_sampled = 0;
  Trajectory trajectory;
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_ITEM_H_
