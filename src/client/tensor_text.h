// tensor_text.h — dtypes and shapes as the writers' error messages show them, in TensorFlow's notation.
#ifndef REVERB_CLIENT_TENSOR_TEXT_H_
#define REVERB_CLIENT_TENSOR_TEXT_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "reverb/tensor.h"

namespace reverb::internal {

// Returns TensorFlow's name of a dtype: "float" and "half" instead of "float32" and "float16".
std::string_view TensorFlowName(DType dtype);

// Returns a shape as text, like "[1,2]"; unknown dimensions are "?".
std::string ShapeText(std::span<const int64_t> dims);

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_TENSOR_TEXT_H_
