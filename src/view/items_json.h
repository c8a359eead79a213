// items_json.h — the JSON of items and rows: of `reverb peek --json` and of the admin port.
//
// docs/program.md documents the fields. The functions are inline because they use classes of the client, which src/api
// implements, and src/api uses this folder.
//
// Threads: values and free functions without state.
#ifndef REVERB_VIEW_ITEMS_JSON_H_
#define REVERB_VIEW_ITEMS_JSON_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "reverb/rows.h"
#include "reverb/sampled_trajectory.h"
#include "reverb/status.h"
#include "reverb/tensor.h"
#include "view/column_json.h"
#include "view/json.h"

namespace reverb::internal {

struct ItemFormat {
  std::string table = {};
  std::vector<std::string> column_names = {};  // ColumnNamesOf(); empty = unknown
  int64_t now_nanos = 0;                       // by the server's clock, for ages; 0 = unknown
  ColumnFormat columns = {};
  bool are_samples = false;  // whether probabilities are meaningful

  std::string ColumnName(const SampledTrajectory& item, uint32_t column) const {
    if (column_names.size() == item.num_columns() && !column_names[column].empty())
      return column_names[column];
    return "column " + std::to_string(column);
  }
};

// Adds an object. Without `with_data` its list of columns is empty.
inline Status AddItemJson(const ItemFormat& format, const SampledTrajectory& item, bool with_data,
                          JsonWriter* json) {
  json->BeginObject()
      .Field("table", format.table)
      // A string: programs that read numbers as doubles would change it.
      .Field("key", std::to_string(item.key()))
      .Field("priority", item.priority())
      .Field("probability", format.are_samples ? std::optional(item.probability()) : std::nullopt)
      .Field("times_sampled", item.times_sampled())
      .Field("age_seconds",
             format.now_nanos > 0
                 ? std::optional(static_cast<double>(format.now_nanos - item.inserted_at_nanos()) * 1e-9)
                 : std::nullopt);
  json->Key("columns").BeginArray();
  for (uint32_t i = 0; with_data && i < item.num_columns(); ++i) {
    REVERB_ASSIGN_OR_RETURN(const Tensor tensor, item.column(i));
    AddColumnJson(format.ColumnName(item, i), tensor, tensor.dims(), format.columns,
                  item.is_squeezed(i) ? ColumnRows::kOne : ColumnRows::kMany, json);
  }
  json->End().End();
  return Status::Ok();
}

// Returns the value of a column of the only row of a batch, with the shape that was put.
inline Result<std::pair<Tensor, std::vector<int64_t>>> ValueOfRow(const RowBatch& batch,
                                                                  const std::string& column) {
  REVERB_ASSIGN_OR_RETURN(JaggedColumn jagged, batch.Column(column));
  std::vector<int64_t> dims = jagged.values.dims();
  if (jagged.is_scalar) dims.clear();
  return std::pair(std::move(jagged.values), std::move(dims));
}

// Adds an object. `row`: with its state, as from Rows::List(). `batch`: that row, with the data of its columns, or
// without any row if it is gone or too large to show.
inline Status AddRowJson(const std::string& table, const ColumnFormat& format, const RowInfo& row,
                         const RowBatch& batch, JsonWriter* json) {
  json->BeginObject().Field("table", table).Field("key", row.key);
  json->Field("group", row.group.empty() ? std::nullopt : std::optional(row.group));
  json->Field("version", row.version);
  json->Field("open", row.is_open).Field("requeued", row.is_requeued).Field("stale", row.is_stale);
  for (const auto& [name, consumers] :
       {std::pair("leased_by", &row.leased_by), std::pair("consumed_by", &row.consumed_by)}) {
    json->Key(name).BeginArray();
    for (const std::string& consumer : *consumers) json->Value(consumer);
    json->End();
  }
  json->Key("tags").BeginObject();
  for (const RowTag& tag : row.tags) {
    json->Key(tag.name);
    std::visit([&](const auto& value) { json->Value(value); }, tag.value);
  }
  json->End().Key("columns").BeginArray();
  if (!batch.rows().empty()) {
    for (const std::string& column : row.columns) {
      REVERB_ASSIGN_OR_RETURN(const auto value, ValueOfRow(batch, column));
      AddColumnJson(column, value.first, value.second, format, ColumnRows::kUnknown, json);
    }
  }
  json->End().End();
  return Status::Ok();
}

}  // namespace reverb::internal

#endif  // REVERB_VIEW_ITEMS_JSON_H_
