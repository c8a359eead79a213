// delta.h — differences between adjacent rows, for integers.
//
// Row 0 is unchanged; row t becomes x[t] - x[t-1], element by element, with wrap-around. Frames that hardly
// change become runs of zeros, which compress well. Decoding is the exact inverse for every input. The bytes
// need no alignment.
// Threads: functions without state.
#ifndef REVERB_TENSOR_DELTA_H_
#define REVERB_TENSOR_DELTA_H_

#include <cstddef>
#include <cstdint>

#include "reverb/tensor.h"

namespace reverb::internal {

// Returns the width in bytes for delta encoding a dtype; 0 if delta does not apply to it.
constexpr size_t DeltaWidth(DType dtype) {
  return IsInteger(dtype) || dtype == DType::kBool ? ItemSize(dtype) : 0;
}

// Writes the encoded form of `in` to `out`; both hold rows * row_bytes bytes.
// REQUIRES: width is 1, 2, 4 or 8 and divides row_bytes; the two do not overlap.
void DeltaEncode(const uint8_t* in, uint8_t* out, size_t rows, size_t row_bytes, size_t width);

// Reverses DeltaEncode in place, for the first `rows` rows of a block.
void DeltaDecode(uint8_t* data, size_t rows, size_t row_bytes, size_t width);

// Computes out[i] = in[i] - previous[i] for `size` bytes.
// REQUIRES: as for DeltaEncode; width divides size.
void DeltaSubtract(const uint8_t* in, const uint8_t* previous, uint8_t* out, size_t size, size_t width);

}  // namespace reverb::internal

#endif  // REVERB_TENSOR_DELTA_H_
