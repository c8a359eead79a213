// restore.h — the saved state that a table is restored from.
#ifndef REVERB_CORE_RESTORE_H_
#define REVERB_CORE_RESTORE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/snapshot.h"
#include "reverb/rate_limiter.h"
#include "reverb/selector.h"
#include "tensor/item.h"

namespace reverb::internal {

// An item of a checkpoint. A source without slots and operation numbers leaves them empty: items then count
// as inserted in the order in which they are added. Either all items of a table have them or none.
struct SavedItem : Sample {
  std::optional<Slot> slot = {};
  uint64_t inserted = 0;  // operation numbers, see SelectorItem
  uint64_t touched = 0;
};

// A table's state besides its settings and items.
struct SavedTableState {
  RateLimiterCounters counters;
  TableCounts counts;
  uint64_t sequence = 0;              // of the last operation
  uint64_t num_slots = 0;             // used and free; 0 = items have no slots
  std::vector<Slot> free_slots = {};  // in the order in which they will be used
  // The states that the selectors saved; empty = they are rebuilt from the items alone.
  std::string sampler_state = {};
  std::string remover_state = {};
  std::vector<std::pair<std::string, std::string>> extension_states = {};  // name, state
  std::optional<std::string> structure = {};                               // as in TableInfo
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_RESTORE_H_
