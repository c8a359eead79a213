// table_layout.h — the layout of a table's items: the nest that writers sent, and the dtype of each column.
//
// A table keeps the layout of its first item, and refuses items of another layout (LayoutPolicy::kFirst).
// Lengths, row shapes and squeezed columns are not part of the layout. What is unknown is not compared: a
// writer may send no nest, and a nest that arrives later is adopted. Draining a table does not change its
// layout; after a reset, the next item determines it. Until then the old nest is still reported, because its
// items may be in flight.
//
// A signature takes the place of all this: writers check items against it, unless told not to.
//
// With kAny every item is accepted. If writers send different nests, the nest is ambiguous until a reset. The
// same holds for a table whose nest was ambiguous when it was saved by a release that accepted any item.
//
// Threads: any. The lock is a leaf: it may be acquired under the lock of a table or of a session.
#ifndef REVERB_CORE_TABLE_LAYOUT_H_
#define REVERB_CORE_TABLE_LAYOUT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "reverb/item_structure.h"
#include "reverb/status.h"
#include "reverb/table_options.h"
#include "tensor/item.h"

namespace reverb::internal {

class TableLayout {
 public:
  using DTypes = std::vector<DType>;

  explicit TableLayout(const TableOptions& options);

  // The outcome of a writer's last check, kept by the writer's session: further items of the same nest need
  // no lock.
  struct Checked {
    bool is_set = false;
    ItemStructure structure = {};
    uint64_t resets = 0;
    std::shared_ptr<const DTypes> dtypes = {};  // null: not compared
  };
  // Returns INVALID_ARGUMENT, with both layouts, if the item has another layout than the table. The first
  // item determines it.
  Status Check(const Item& item, Checked* last) EXCLUDES(mu_) {
    if (last->is_set && item.structure.IsCopyOf(last->structure) &&
        last->resets == resets_.load(std::memory_order_relaxed) &&
        (last->dtypes == nullptr || HasDTypes(item.trajectory, *last->dtypes))) [[likely]] {
      return Status::Ok();
    }
    return CheckSlowly(item, last);
  }

  void Reset() EXCLUDES(mu_);

  // Returns the nest for TableInfo: absent if unknown, empty if ambiguous.
  std::optional<std::string> structure() const EXCLUDES(mu_);
  // Same, but absent after a reset, until the next item: what is restored determines the layout.
  std::optional<std::string> structure_to_save() const EXCLUDES(mu_);
  // Restores a value of structure_to_save(). Returns DATA_LOSS if it is not one.
  Status RestoreStructure(const std::optional<std::string>& saved) EXCLUDES(mu_);
  // Sets the dtypes to those of a restored item.
  void RestoreDTypes(const Trajectory& item) EXCLUDES(mu_);

 private:
  static bool HasDTypes(const Trajectory& item, const DTypes& dtypes) {
    if (item.num_columns() != dtypes.size()) return false;
    for (uint32_t c = 0; c < dtypes.size(); ++c) {
      const SliceView first = item.slice(c, 0);
      if (first.chunk->header().column(first.chunk_column).dtype != dtypes[c]) return false;
    }
    return true;
  }
  Status CheckSlowly(const Item& item, Checked* last) EXCLUDES(mu_);
  // For tables that accept any layout.
  void Observe(const ItemStructure& structure) REQUIRES(mu_);
  Status CheckAgainstFirst(const Item& item) REQUIRES(mu_);
  Status Mismatch(const Item& item) const REQUIRES(mu_);

  const std::string table_;
  const LayoutPolicy policy_;
  const bool has_signature_;
  std::atomic<uint64_t> resets_{0};
  mutable Mutex mu_;
  ItemStructure structure_ GUARDED_BY(mu_);
  std::shared_ptr<const DTypes> dtypes_ GUARDED_BY(mu_);  // null: unknown
  bool is_ambiguous_ GUARDED_BY(mu_) = false;
  bool from_before_reset_ GUARDED_BY(mu_) = false;
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_TABLE_LAYOUT_H_
