// checkpoint_rep.h — what a CheckpointReader has.
#ifndef REVERB_API_CHECKPOINT_REP_H_
#define REVERB_API_CHECKPOINT_REP_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

#include "base/mutex.h"
#include "checkpoint/reverb_source.h"
#include "checkpoint/source.h"
#include "reverb/checkpoint.h"

namespace reverb {

// The source is shared with the cursors over it.
struct CheckpointReader::Rep {
  std::shared_ptr<internal::CheckpointSource> source;
  CheckpointInfo info;
  mutable internal::Mutex mu;  // guards a source other than ReverbSource

  // Returns the index of a row table. NOT_FOUND names the existing ones.
  Result<size_t> FindRowTable(std::string_view table) const;
  // Reads all rows of a row table and checks that a server could load them. Calls `advance` after each.
  Status VerifyRows(size_t index, const std::function<void()>& advance) const;
};

namespace internal {
// Describes a saved row table.
RowTableInfo InfoOf(const SavedRowTable& table);
}  // namespace internal

}  // namespace reverb

#endif  // REVERB_API_CHECKPOINT_REP_H_
