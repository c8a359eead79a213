// items_view.h — items and their tensors, as people read them or as JSON.
#ifndef REVERB_APPS_REVERB_ITEMS_VIEW_H_
#define REVERB_APPS_REVERB_ITEMS_VIEW_H_

#include <cstdint>
#include <string>
#include <vector>

#include "reverb/server_info.h"
#include "reverb/status.h"
#include "reverb/table.h"
#include "reverb/tensor.h"
#include "terminal.h"

namespace reverb::program {

struct ItemsView {
  std::string table = {};
  std::vector<std::string> column_names = {};  // as the signature has them; empty = there is none
  int64_t now_nanos = 0;                       // by the server's clock, to tell ages
  int64_t values = 8;                          // elements shown of each column
  bool are_samples = false;                    // probabilities mean something

  // From what the server says about the table.
  static ItemsView Of(const ServerInfo& info, const TableInfo& table);

  Result<std::string> ToText(const SampledTrajectory& item, const Paint& paint) const;
  // One line.
  Result<std::string> ToJson(const SampledTrajectory& item) const;

 private:
  std::string ColumnName(const SampledTrajectory& item, uint32_t column) const;
};

// The first elements, each as a text: numbers as they are, strings in quotes.
std::vector<std::string> FirstValues(const Tensor& tensor, size_t most);

}  // namespace reverb::program

#endif  // REVERB_APPS_REVERB_ITEMS_VIEW_H_
