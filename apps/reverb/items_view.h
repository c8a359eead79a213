// items_view.h — formats items and their tensors as text or as JSON.
#ifndef REVERB_APPS_REVERB_ITEMS_VIEW_H_
#define REVERB_APPS_REVERB_ITEMS_VIEW_H_

#include <cstdint>
#include <string>
#include <vector>

#include "reverb/sampled_trajectory.h"
#include "reverb/server_info.h"
#include "reverb/status.h"
#include "reverb/tensor.h"
#include "terminal.h"
#include "view/items_json.h"

namespace reverb::program {

struct ItemsView {
  internal::ItemFormat format = {};

  // Initialises from the server's information about the table.
  static ItemsView Of(const ServerInfo& info, const TableInfo& table);

  Result<std::string> ToText(const SampledTrajectory& item, const Paint& paint) const;
  // Returns one line of JSON.
  Result<std::string> ToJson(const SampledTrajectory& item) const;
};

// Returns the dtype, the shape and the first values of a column.
std::string ShowColumn(const Tensor& tensor, const std::vector<int64_t>& dims, size_t most,
                       const Paint& paint);

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_ITEMS_VIEW_H_
