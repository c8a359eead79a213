// observed_structure.h — what a table knows of the nest that its items were written in.
//
// The first structure that a writer brings holds; a second one that differs makes it "they differ", until the
// table is emptied. What a reset leaves is kept until another one comes: writers tell once, and their items
// may still be on their way.
//
// Threads: any. The lock is a leaf: it may be taken under that of a table or of a session.
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

class StructureNote {
 public:
  // Changes with every reset: then writers have to tell theirs again.
  uint64_t resets() const { return resets_.load(std::memory_order_relaxed); }

  // Whether it is the one that makes them differ.
  bool Take(const ItemStructure& structure) EXCLUDES(mu_);
  void Reset() EXCLUDES(mu_);

  // As TableInfo has it: absent when none was told, empty when they differ.
  std::optional<std::string> Get() const EXCLUDES(mu_);
  // The reverse. DATA_LOSS when it is no structure.
  Status Restore(const std::optional<std::string>& saved) EXCLUDES(mu_);

 private:
  std::atomic<uint64_t> resets_{0};
  mutable Mutex mu_;
  ItemStructure structure_ GUARDED_BY(mu_);
  bool differ_ GUARDED_BY(mu_) = false;
  bool is_of_before_ GUARDED_BY(mu_) = false;  // the reset
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_OBSERVED_STRUCTURE_H_
