// item.h — an item on its way into a table, and an item as it is read from one.
#ifndef REVERB_TENSOR_ITEM_H_
#define REVERB_TENSOR_ITEM_H_

#include <cstdint>
#include <string>

#include "reverb/item_structure.h"
#include "tensor/trajectory.h"

namespace reverb::internal {

// An item to be inserted, from the writer that creates it to the table that stores it. Writer, transport,
// service and table move the same object along; a moved-from item keeps its number and key.
struct Item {
  uint64_t number = 0;  // in its writer's session: 1, 2, 3, …; 0 = none
  uint64_t key = 0;
  std::string table = {};  // as the writer gave it; empty once the server has found the table
  double priority = 0;
  int32_t times_sampled = 0;  // not sent; an extension that copies a sampled item sets it
  Trajectory trajectory = {};
  ItemStructure structure = {};
};

// An item as it is read: sampled, inspected, or loaded from a checkpoint.
struct Sample {
  uint64_t key = 0;
  double priority = 0;
  double probability = 0;     // of having been picked; 0 when not sampled
  int64_t table_size = 0;     // before a deletion caused by this sample
  int64_t inserted_at = 0;    // nanoseconds since the Unix epoch
  int32_t times_sampled = 0;  // this sample included
  bool rate_limited = false;  // had to wait for the limiter
  uint64_t server = 0;        // with a lease: which of several a client took it from; not sent
  uint64_t lease_id = 0;      // of the lease that it was drawn under; 0 = none
  Trajectory trajectory = {};
};

}  // namespace reverb::internal

#endif  // REVERB_TENSOR_ITEM_H_
