#include "client/tensor_text.h"

namespace reverb::internal {

std::string_view TensorFlowName(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float";
    case DType::kFloat64:
      return "double";
    case DType::kFloat16:
      return "half";
    default:
      return DTypeName(dtype);
  }
}

std::string ShapeText(std::span<const int64_t> dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) text += ',';
    text += dims[i] == Shape::kUnknownDim ? "?" : std::to_string(dims[i]);
  }
  return text + "]";
}

}  // namespace reverb::internal
