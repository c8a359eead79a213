#include "view/column_json.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>

#include "reverb/item_structure.h"
#include "reverb/signature.h"
#include "view/shown_text.h"

namespace reverb::internal {
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

// Elements that JSON cannot represent remain strings.
bool IsJsonWord(DType dtype, const std::string& value) {
  if (dtype == DType::kString || dtype == DType::kComplex64 || dtype == DType::kComplex128) return false;
  return value.find('n') == std::string::npos;  // nan, inf
}

// Bounds of a picture, in pixels.
constexpr int64_t kMaxImageSide = 512;

// Returns the shape of a picture, height, width, channels; absent if these dimensions are not those of one.
std::optional<std::array<int64_t, 3>> ImageShape(std::span<const int64_t> dims) {
  if (dims.size() != 2 && dims.size() != 3) return std::nullopt;
  const int64_t channels = dims.size() == 3 ? dims[2] : 1;
  if (channels != 1 && channels != 3 && channels != 4) return std::nullopt;
  for (const int64_t side : {dims[0], dims[1]}) {
    if (side < 1 || side > kMaxImageSide) return std::nullopt;
  }
  return std::array{dims[0], dims[1], channels};
}

// Adds the last picture of the column, if it has pictures.
void AddImage(const Tensor& tensor, std::span<const int64_t> dims, ColumnRows rows, JsonWriter* json) {
  if (tensor.dtype() != DType::kUint8 || dims.empty()) return;
  std::optional<std::array<int64_t, 3>> shape;
  if (rows != ColumnRows::kMany) shape = ImageShape(dims);
  if (!shape && rows != ColumnRows::kOne) shape = ImageShape(dims.subspan(1));
  if (!shape) return;
  const auto [height, width, channels] = *shape;
  const auto bytes = static_cast<size_t>(height * width * channels);
  if (tensor.num_elements() < bytes) return;
  json->Key("image").BeginObject().Field("width", width).Field("height", height).Field("channels", channels);
  json->Field("data", Base64({tensor.data() + tensor.num_elements() - bytes, bytes}));
  json->End();
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
                   const ColumnFormat& format, ColumnRows rows, JsonWriter* json) {
  json->BeginObject().Field("name", name).Field("dtype", DTypeName(tensor.dtype()));
  json->Key("shape").BeginArray();
  for (const int64_t dim : dims) json->Value(dim);
  json->End().Key("first_values").BeginArray();
  for (const std::string& value : FirstValues(tensor, static_cast<size_t>(format.values))) {
    if (IsJsonWord(tensor.dtype(), value)) {
      json->Word(value);
    } else {
      json->Value(value);
    }
  }
  json->End();
  if (format.images) AddImage(tensor, dims, rows, json);
  json->End();
}

std::vector<std::string> ColumnNamesOf(const TableInfo& table) {
  std::vector<std::string> names;
  if (table.signature.empty()) {
    if (!table.structure) return names;
    const Result<ItemStructure> structure = ItemStructure::Decode(*table.structure);
    if (structure.ok()) names = structure->ColumnNames();
    return names;
  }
  const Result<Signature> signature = DecodeSignature(table.signature);
  if (!signature.ok()) return names;
  const Result<std::vector<TensorSpec>> specs = signature->Flatten();
  if (!specs.ok()) return names;
  for (const TensorSpec& spec : *specs) names.push_back(spec.name);
  return names;
}

}  // namespace reverb::internal
