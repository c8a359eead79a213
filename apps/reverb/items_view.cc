#include "items_view.h"

#include <algorithm>
#include <chrono>

#include "json.h"
#include "text.h"

namespace reverb::program {
namespace {

std::string ShowShape(const std::vector<int64_t>& dims) { return Shape(dims).ToString(); }

}  // namespace

std::string ShowColumn(const Tensor& tensor, const std::vector<int64_t>& dims, size_t most,
                       const Paint& paint) {
  std::vector<std::string> first = internal::FirstValues(tensor, most);
  if (tensor.dtype() == DType::kString) {
    for (std::string& value : first) value = "\"" + ShowName(value, 40) + "\"";
  }
  std::string text =
      paint.Dim(std::string(DTypeName(tensor.dtype())) + ShowShape(dims)) + "  " + Join(first, " ");
  if (tensor.num_elements() > first.size()) text += first.empty() ? "…" : " …";
  return text;
}

ItemsView ItemsView::Of(const ServerInfo& info, const TableInfo& table) {
  return {.format = {.table = table.name,
                     .column_names = internal::ColumnNamesOf(table),
                     .now_nanos = info.now_nanos}};
}

Result<std::string> ItemsView::ToText(const SampledTrajectory& item, const Paint& paint) const {
  std::string text =
      "key " + paint.Bold(std::to_string(item.key())) + "  priority " + ShowNumber(item.priority());
  if (format.are_samples) text += Format("  probability %.4g", item.probability());
  text += "  sampled " + ShowCount(item.times_sampled(), "time");
  if (format.now_nanos > 0) {
    text += "  age " + ShowDuration(std::chrono::nanoseconds(format.now_nanos - item.inserted_at_nanos()));
  }
  text += "\n";
  size_t width = 0;
  for (uint32_t i = 0; i < item.num_columns(); ++i)
    width = std::max(width, DisplayWidth(format.ColumnName(item, i)));
  for (uint32_t i = 0; i < item.num_columns(); ++i) {
    REVERB_ASSIGN_OR_RETURN(const Tensor tensor, item.column(i));
    std::string name = ShowName(format.ColumnName(item, i));
    name.resize(name.size() + width - std::min(width, DisplayWidth(name)), ' ');
    text += "  " + name + "  " +
            ShowColumn(tensor, tensor.dims(), static_cast<size_t>(format.columns.values), paint) + "\n";
  }
  return text;
}

Result<std::string> ItemsView::ToJson(const SampledTrajectory& item) const {
  JsonWriter json;
  REVERB_RETURN_IF_ERROR(internal::AddItemJson(format, item, /*with_data=*/true, &json));
  return json.text();
}

}  // namespace reverb::program
