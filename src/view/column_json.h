// column_json.h — the JSON of a column of an item or a row: name, dtype, shape, first values, and a picture.
//
// Threads: free functions without state.
#ifndef REVERB_VIEW_COLUMN_JSON_H_
#define REVERB_VIEW_COLUMN_JSON_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "reverb/table_info.h"
#include "reverb/tensor.h"
#include "view/json.h"

namespace reverb::internal {

struct ColumnFormat {
  int64_t values = 8;   // elements to show of each column
  bool images = false;  // adds the last picture of uint8 columns that have some
};

// Whether the first dimension of a column counts its rows.
enum class ColumnRows : uint8_t { kOne, kMany, kUnknown };

// Adds an object that describes a column. `dims`: its shape, if it differs from that of the tensor.
void AddColumnJson(const std::string& name, const Tensor& tensor, const std::vector<int64_t>& dims,
                   const ColumnFormat& format, ColumnRows rows, JsonWriter* json);
// Returns the first elements as text: numbers as they are, strings in quotes.
std::vector<std::string> FirstValues(const Tensor& tensor, size_t most);
// Returns the names of the columns of a table's items, of the signature or of the writers; empty if they are unknown.
std::vector<std::string> ColumnNamesOf(const TableInfo& table);

}  // namespace reverb::internal

#endif  // REVERB_VIEW_COLUMN_JSON_H_
