// row_layout.h — numbers for the layouts of trajectories whose columns are single slices of raw rows.
//
// Trajectories with the same number agree in all that determines the bytes of their rows: the number of columns, and of
// each the dtype, the row shape, the number of rows and whether it is squeezed. A batch is therefore checked by comparing
// a number per sample instead of the headers of its chunks, which are scattered in memory.
//
// Numbers mean nothing outside of this process. There are at most kMaxRowLayouts, so that clients cannot fill the memory
// with layouts; trajectories with further ones have none.
//
// Threads: all functions may be called concurrently. They take no lock, so fork() is safe.
#ifndef REVERB_TENSOR_ROW_LAYOUT_H_
#define REVERB_TENSOR_ROW_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "reverb/tensor.h"

namespace reverb::internal {

inline constexpr size_t kMaxRowLayouts = 4096;
// Trajectories with more columns, or more dimensions of rows in all of them, have no number.
inline constexpr size_t kMaxRowLayoutColumns = 16;
inline constexpr size_t kMaxRowLayoutDims = 64;

// One column of a trajectory.
struct RowLayoutColumn {
  DType dtype = DType::kFloat32;
  bool squeeze = false;
  uint32_t length = 0;  // rows
  std::span<const uint32_t> row_shape;
};

// Returns the number of the layout, at least 1; 0 if it has none. Copies what it keeps.
uint32_t RowLayoutNumber(std::span<const RowLayoutColumn> columns);

}  // namespace reverb::internal

#endif  // REVERB_TENSOR_ROW_LAYOUT_H_
