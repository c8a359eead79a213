// items_view.h — formats items and their tensors as text or as JSON.
#ifndef REVERB_APPS_REVERB_ITEMS_VIEW_H_
#define REVERB_APPS_REVERB_ITEMS_VIEW_H_

#include <cstdint>
#include <string>
#include <vector>

#include "json.h"
#include "reverb/sampled_trajectory.h"
#include "reverb/server_info.h"
#include "reverb/status.h"
#include "reverb/tensor.h"
#include "terminal.h"

namespace reverb::program {

struct ItemsView {
  std::string table = {};
  std::vector<std::string> column_names = {};  // of the signature or of the writers; empty = unknown
  int64_t now_nanos = 0;                       // by the server's clock, for ages
  int64_t values = 8;                          // elements shown of each column
  bool are_samples = false;                    // whether probabilities are meaningful

  // Initialises from the server's information about the table.
  static ItemsView Of(const ServerInfo& info, const TableInfo& table);

  Result<std::string> ToText(const SampledTrajectory& item, const Paint& paint) const;
  // Returns one line of JSON.
  Result<std::string> ToJson(const SampledTrajectory& item) const;

 private:
  std::string ColumnName(const SampledTrajectory& item, uint32_t column) const;
};

// Adds an object that describes a column: name, dtype, shape and first values.
void AddColumnJson(const std::string& name, const Tensor& tensor, const std::vector<int64_t>& dims,
                   size_t most, JsonWriter* json);
// Returns the dtype, the shape and the first values of a column.
std::string ShowColumn(const Tensor& tensor, const std::vector<int64_t>& dims, size_t most,
                       const Paint& paint);
// Returns the first elements as text: numbers as they are, strings in quotes.
std::vector<std::string> FirstValues(const Tensor& tensor, size_t most);

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_ITEMS_VIEW_H_
