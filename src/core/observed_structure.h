// observed_structure.h — what a table knows about the nest structure of its items.
//
// Keeps the first structure that a writer sends. If another writer sends a different one, the structure is
// ambiguous until the table is reset. After a reset, the old structure is kept until another one arrives: a
// writer sends its structure once, and its items may still be in flight.
//
// Threads: any. The lock is a leaf: it may be acquired under the lock of a table or of a session.
#ifndef REVERB_CORE_OBSERVED_STRUCTURE_H_
#define REVERB_CORE_OBSERVED_STRUCTURE_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "reverb/item_structure.h"
#include "reverb/status.h"

namespace reverb::internal {

class ObservedStructure {
 public:
  // Changes with every reset: writers then have to send their structure again.
  uint64_t resets() const { return resets_.load(std::memory_order_relaxed); }

  // Records a writer's structure. Returns whether it makes the structure ambiguous.
  bool Observe(const ItemStructure& structure) EXCLUDES(mu_);
  void Reset() EXCLUDES(mu_);

  // Returns the value for TableInfo: absent if none was observed, empty if ambiguous.
  std::optional<std::string> Get() const EXCLUDES(mu_);
  // Restores a value from Get(). Returns DATA_LOSS if it is not a structure.
  Status Restore(const std::optional<std::string>& saved) EXCLUDES(mu_);

 private:
  std::atomic<uint64_t> resets_{0};
  mutable Mutex mu_;
  ItemStructure structure_ GUARDED_BY(mu_);
  bool is_ambiguous_ GUARDED_BY(mu_) = false;
  bool from_before_reset_ GUARDED_BY(mu_) = false;
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_OBSERVED_STRUCTURE_H_
