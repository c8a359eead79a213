// load_rows.h — chooses and creates the row tables that a checkpoint is loaded into.
#ifndef REVERB_CHECKPOINT_LOAD_ROWS_H_
#define REVERB_CHECKPOINT_LOAD_ROWS_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/source.h"
#include "core/rows/row_table.h"
#include "reverb/checkpoint.h"
#include "reverb/row_table_options.h"
#include "reverb/status.h"

namespace reverb::internal {

// The row tables to create, and which of them are filled from which one of the checkpoint.
struct RowTablePlans {
  struct Plan {
    RowTableOptions options;
    bool created_by_client = false;
  };
  std::vector<Plan> plans;                  // those given, in their order, then others of the checkpoint
  std::vector<bool> wanted;                 // by row table of the checkpoint
  std::vector<std::optional<size_t>> plan;  // likewise: index into `plans`
};

// Logs where the checkpoint differs from the given options. `other_names`: of tables of items.
Result<RowTablePlans> PlanRowTables(const SavedServer& saved, const std::vector<RowTableOptions>& given,
                                    const std::vector<std::string>& other_names,
                                    const RestoreOptions& options);

Result<std::vector<std::shared_ptr<ConcurrentRows>>> MakeRowTables(
    const RowTablePlans& plans, const ConcurrentRows::Environment& environment);

}  // namespace reverb::internal

#endif  // REVERB_CHECKPOINT_LOAD_ROWS_H_
