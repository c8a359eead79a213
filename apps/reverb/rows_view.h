// rows_view.h — formats row tables and their rows as text or as JSON.
#ifndef REVERB_APPS_REVERB_ROWS_VIEW_H_
#define REVERB_APPS_REVERB_ROWS_VIEW_H_

#include <cstdint>
#include <string>
#include <vector>

#include "info_view.h"
#include "reverb/row_table_options.h"
#include "reverb/rows.h"
#include "reverb/status.h"
#include "terminal.h"

namespace reverb::program {

// Returns the part of `reverb info` about row tables; empty if there are none. Rates are those since `before`.
std::string RowTablesPage(const Snapshot& now, const Snapshot* before, const Paint& paint);

// Describes the settings: "groups of 8, order fifo, max lag 2 (drop)".
std::string ShowRowSettings(const RowTableOptions& settings);

// Shows rows of a row table.
struct RowsView {
  std::string table = {};
  int64_t values = 8;  // elements to show of each column

  // `row`: with its state, as from Rows::List(). `batch`: that row, with the data of its columns, or without any row if
  // it is gone.
  Result<std::string> ToText(const RowInfo& row, const RowBatch& batch, const Paint& paint) const;
  // Returns one line of JSON. docs/program.md documents the fields.
  Result<std::string> ToJson(const RowInfo& row, const RowBatch& batch) const;
};

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_ROWS_VIEW_H_
