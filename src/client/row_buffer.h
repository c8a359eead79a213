// row_buffer.h — the rows of one column that are not in a chunk yet.
//
// Fixed-size rows are concatenated. For strings, the bytes of all elements are concatenated, with their
// lengths in a separate array. Clear() keeps the memory, so that a column that fills chunk after chunk does
// not allocate.
//
// Threads: one at a time.
#ifndef REVERB_CLIENT_ROW_BUFFER_H_
#define REVERB_CLIENT_ROW_BUFFER_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "reverb/status.h"
#include "reverb/tensor.h"
#include "tensor/column.h"

namespace reverb::internal {

// Returns the raw bytes that string elements count towards the limit of a chunk (see DecodeLimits).
inline uint64_t StringBytes(std::string_view element) {
  return std::max<uint64_t>(kMinStringBytes, element.size() + sizeof(uint32_t));
}

class RowBuffer {
 public:
  // Appends a row. REQUIRES: all rows have the same dtype and shape.
  void Append(const TensorView& row) {
    if (row.dtype == DType::kString) {
      for (const std::string_view element : row.strings()) {
        bytes_.insert(bytes_.end(), element.begin(), element.end());
        string_lengths_.push_back(static_cast<uint32_t>(element.size()));
      }
    } else {
      const std::span<const uint8_t> bytes = row.bytes();
      bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    }
  }
  void Clear() {
    bytes_.clear();
    string_lengths_.clear();
  }

  // Encodes all rows, of which there are `rows`, and appends the result to `*payload`.
  // Uses `*strings` as temporary memory.
  Result<ColumnHeader> Encode(ColumnEncoder* encoder, uint32_t rows, std::vector<std::string_view>* strings,
                              std::vector<uint8_t>* payload) const;

  // Copies row `index` to `*tensor`, which has the dtype and shape of a row.
  void Read(uint32_t index, Tensor* tensor) const;

 private:
  std::vector<uint8_t> bytes_;
  std::vector<uint32_t> string_lengths_;
};

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_ROW_BUFFER_H_
