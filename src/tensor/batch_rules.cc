#include "tensor/batch_rules.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

namespace reverb::internal {
namespace {

std::string Describe(const Trajectory& item, uint32_t column) {
  const ColumnView view = item.column_view(column);
  const bool squeeze = item.squeeze(column);
  std::string text = std::string(DTypeName(view.dtype)) + "[";
  if (!squeeze) text += std::to_string(item.length(column));
  for (size_t i = 0; i < view.row_shape.size(); ++i) {
    text += (i > 0 || !squeeze ? ", " : "") + std::to_string(view.row_shape[i]);
  }
  return text + "]";
}

std::string Describe(const Trajectory& item) {
  constexpr uint32_t kMaxColumns = 64;
  std::string text = "[";
  const uint32_t shown = std::min(item.num_columns(), kMaxColumns);
  for (uint32_t c = 0; c < shown; ++c) text += (c > 0 ? ", " : "") + Describe(item, c);
  return text + (shown < item.num_columns() ? ", …]" : "]");
}

bool SameRows(const ColumnView& a, const ColumnView& b) {
  return a.dtype == b.dtype && std::ranges::equal(a.row_shape, b.row_shape);
}

}  // namespace

Status CheckBatchRules(const BatchRules& rules, int64_t index, uint64_t key, const Trajectory& item,
                       const Trajectory* first, const std::function<std::vector<std::string>()>& names) {
  const auto refuse = [&](std::optional<uint32_t> column, const std::string& what) {
    std::string text = "sample " + std::to_string(index) + " (key " + std::to_string(key) + ")";
    if (column) {
      const std::vector<std::string> known = names ? names() : std::vector<std::string>();
      const bool is_named = known.size() == item.num_columns() && !known[*column].empty();
      text += ", column " + (is_named ? "'" + known[*column] + "'" : std::to_string(*column)) + ":";
    }
    return Status::InvalidArgument(text + " " + what);
  };
  if (rules.unsupported_dtypes != 0) {
    for (uint32_t c = 0; c < item.num_columns(); ++c) {
      const DType dtype = item.column_view(c).dtype;
      if ((rules.unsupported_dtypes >> static_cast<uint32_t>(dtype) & 1) == 0) continue;
      return refuse(c, "this client cannot represent " + std::string(DTypeName(dtype)) +
                           (dtype == DType::kBfloat16 ? "; in Python, install ml_dtypes" : ""));
    }
  }
  if (rules.timesteps) {
    for (uint32_t c = 0; c < item.num_columns(); ++c) {
      if (!item.squeeze(c) && item.length(c) == item.length(0)) continue;
      return refuse(c, "it is " + Describe(item, c) +
                           (c > 0 && !item.squeeze(0) ? " while column 0 is " + Describe(item, 0) : "") +
                           "; Can't split non timestep trajectory into timesteps. All columns must have the "
                           "same number of steps, and none may be squeezed; in Python, use "
                           "emit_timesteps=False for this table");
    }
  }
  if (rules.check == BatchCheck::kNone || first == nullptr) return Status::Ok();
  constexpr std::string_view kSameLayout = "; samples of one batch must have the same layout";
  if (item.num_columns() != first->num_columns()) {
    return refuse({}, "has " + std::to_string(item.num_columns()) + " columns while the batch has " +
                          std::to_string(first->num_columns()) + std::string(kSameLayout) + ": " +
                          Describe(item) + " and " + Describe(*first));
  }
  for (uint32_t c = 0; c < item.num_columns(); ++c) {
    const bool same_rows =
        SameRows(item.column_view(c), first->column_view(c)) && item.squeeze(c) == first->squeeze(c);
    if (same_rows && (rules.check == BatchCheck::kSameLayout || item.length(c) == first->length(c))) continue;
    return refuse(c, "it is " + Describe(item, c) + " while the batch has " + Describe(*first, c) +
                         (same_rows ? "; set `pad` to fill up shorter items of a batch with zeros"
                                    : std::string(kSameLayout)));
  }
  return Status::Ok();
}

}  // namespace reverb::internal
