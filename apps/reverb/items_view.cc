#include "items_view.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "json.h"
#include "reverb/item_structure.h"
#include "reverb/signature.h"
#include "text.h"

namespace reverb::program {
namespace {

template <typename T>
T ElementAt(const Tensor& tensor, size_t index) {
  T value;
  std::memcpy(&value, tensor.data() + index * sizeof(T), sizeof(T));
  return value;
}

float FromBfloat16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

float FromFloat16(uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f;
  const int fraction = bits & 0x3ff;
  float size = 0;
  if (exponent == 0x1f) {
    size = fraction == 0 ? INFINITY : NAN;
  } else if (exponent == 0) {
    size = std::ldexp(static_cast<float>(fraction), -24);
  } else {
    size = std::ldexp(static_cast<float>(fraction | 0x400), exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -size : size;
}

std::string ShowFloat(double value, int digits) { return Format("%.*g", digits, value); }

template <typename T>
std::string ShowComplex(const Tensor& tensor, size_t index, int digits) {
  const T imaginary = ElementAt<T>(tensor, 2 * index + 1);
  return ShowFloat(ElementAt<T>(tensor, 2 * index), digits) + (std::signbit(imaginary) ? "-" : "+") +
         ShowFloat(std::abs(imaginary), digits) + "j";
}

// REQUIRES: the dtype is not string.
std::string ShowElement(const Tensor& tensor, size_t index) {
  switch (tensor.dtype()) {
    case DType::kFloat32:
      return ShowFloat(ElementAt<float>(tensor, index), 7);
    case DType::kFloat64:
      return ShowFloat(ElementAt<double>(tensor, index), 10);
    case DType::kFloat16:
      return ShowFloat(FromFloat16(ElementAt<uint16_t>(tensor, index)), 4);
    case DType::kBfloat16:
      return ShowFloat(FromBfloat16(ElementAt<uint16_t>(tensor, index)), 3);
    case DType::kInt8:
      return std::to_string(ElementAt<int8_t>(tensor, index));
    case DType::kInt16:
      return std::to_string(ElementAt<int16_t>(tensor, index));
    case DType::kInt32:
      return std::to_string(ElementAt<int32_t>(tensor, index));
    case DType::kInt64:
      return std::to_string(ElementAt<int64_t>(tensor, index));
    case DType::kUint8:
      return std::to_string(ElementAt<uint8_t>(tensor, index));
    case DType::kUint16:
      return std::to_string(ElementAt<uint16_t>(tensor, index));
    case DType::kUint32:
      return std::to_string(ElementAt<uint32_t>(tensor, index));
    case DType::kUint64:
      return std::to_string(ElementAt<uint64_t>(tensor, index));
    case DType::kBool:
      return ElementAt<uint8_t>(tensor, index) != 0 ? "true" : "false";
    case DType::kComplex64:
      return ShowComplex<float>(tensor, index, 7);
    case DType::kComplex128:
      return ShowComplex<double>(tensor, index, 10);
    case DType::kString:
      break;
  }
  return "?";
}

std::string ShowShape(const std::vector<int64_t>& dims) { return Shape(dims).ToString(); }

// Elements that JSON cannot represent remain strings.
bool IsJsonWord(DType dtype, const std::string& value) {
  if (dtype == DType::kString || dtype == DType::kComplex64 || dtype == DType::kComplex128) return false;
  return value.find('n') == std::string::npos;  // nan, inf
}

}  // namespace

std::vector<std::string> FirstValues(const Tensor& tensor, size_t most) {
  std::vector<std::string> values;
  const size_t count = std::min(most, tensor.num_elements());
  for (size_t i = 0; i < count; ++i) {
    values.push_back(tensor.dtype() == DType::kString ? tensor.strings()[i] : ShowElement(tensor, i));
  }
  return values;
}

void AddColumnJson(const std::string& name, const Tensor& tensor, const std::vector<int64_t>& dims,
                   size_t most, JsonWriter* json) {
  json->BeginObject().Field("name", name).Field("dtype", DTypeName(tensor.dtype()));
  json->Key("shape").BeginArray();
  for (const int64_t dim : dims) json->Value(dim);
  json->End().Key("first_values").BeginArray();
  for (const std::string& value : FirstValues(tensor, most)) {
    if (IsJsonWord(tensor.dtype(), value)) {
      json->Word(value);
    } else {
      json->Value(value);
    }
  }
  json->End().End();
}

std::string ShowColumn(const Tensor& tensor, const std::vector<int64_t>& dims, size_t most,
                       const Paint& paint) {
  std::vector<std::string> first = FirstValues(tensor, most);
  if (tensor.dtype() == DType::kString) {
    for (std::string& value : first) value = "\"" + ShowName(value, 40) + "\"";
  }
  std::string text =
      paint.Dim(std::string(DTypeName(tensor.dtype())) + ShowShape(dims)) + "  " + Join(first, " ");
  if (tensor.num_elements() > first.size()) text += first.empty() ? "…" : " …";
  return text;
}

ItemsView ItemsView::Of(const ServerInfo& info, const TableInfo& table) {
  ItemsView view{.table = table.name, .now_nanos = info.now_nanos};
  if (table.signature.empty()) {
    if (!table.structure) return view;
    const Result<ItemStructure> structure = ItemStructure::Decode(*table.structure);
    if (structure.ok()) view.column_names = structure->ColumnNames();
    return view;
  }
  const Result<Signature> signature = DecodeSignature(table.signature);
  if (!signature.ok()) return view;
  const Result<std::vector<TensorSpec>> specs = signature->Flatten();
  if (!specs.ok()) return view;
  for (const TensorSpec& spec : *specs) view.column_names.push_back(spec.name);
  return view;
}

std::string ItemsView::ColumnName(const SampledTrajectory& item, uint32_t column) const {
  if (column_names.size() == item.num_columns() && !column_names[column].empty()) return column_names[column];
  return "column " + std::to_string(column);
}

Result<std::string> ItemsView::ToText(const SampledTrajectory& item, const Paint& paint) const {
  std::string text =
      "key " + paint.Bold(std::to_string(item.key())) + "  priority " + ShowNumber(item.priority());
  if (are_samples) text += "  probability " + ShowFloat(item.probability(), 4);
  text += "  sampled " + ShowCount(item.times_sampled(), "time");
  if (now_nanos > 0) {
    text += "  age " + ShowDuration(std::chrono::nanoseconds(now_nanos - item.inserted_at_nanos()));
  }
  text += "\n";
  size_t width = 0;
  for (uint32_t i = 0; i < item.num_columns(); ++i)
    width = std::max(width, DisplayWidth(ColumnName(item, i)));
  for (uint32_t i = 0; i < item.num_columns(); ++i) {
    REVERB_ASSIGN_OR_RETURN(const Tensor tensor, item.column(i));
    std::string name = ShowName(ColumnName(item, i));
    name.resize(name.size() + width - std::min(width, DisplayWidth(name)), ' ');
    text += "  " + name + "  " + ShowColumn(tensor, tensor.dims(), static_cast<size_t>(values), paint) + "\n";
  }
  return text;
}

Result<std::string> ItemsView::ToJson(const SampledTrajectory& item) const {
  JsonWriter json;
  json.BeginObject()
      .Field("table", table)
      // A string: programs that read numbers as doubles would change it.
      .Field("key", std::to_string(item.key()))
      .Field("priority", item.priority())
      .Field("probability", are_samples ? std::optional(item.probability()) : std::nullopt)
      .Field("times_sampled", item.times_sampled())
      .Field("age_seconds",
             now_nanos > 0 ? std::optional(static_cast<double>(now_nanos - item.inserted_at_nanos()) * 1e-9)
                           : std::nullopt);
  json.Key("columns").BeginArray();
  for (uint32_t i = 0; i < item.num_columns(); ++i) {
    REVERB_ASSIGN_OR_RETURN(const Tensor tensor, item.column(i));
    AddColumnJson(ColumnName(item, i), tensor, tensor.dims(), static_cast<size_t>(values), &json);
  }
  return json.End().End().text();
}

}  // namespace reverb::program
