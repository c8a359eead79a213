// row_buffer.h — the rows of one column that are not in a chunk yet.
//
// Fixed-size rows are concatenated. For strings, the bytes of all elements are concatenated, with their
// ends in a separate array. Clear() keeps the memory, so that a column that fills chunk after chunk does
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

// Returns the data of the row that is `rows` after the one of the view.
inline const void* RowAt(const TensorView& row, int64_t rows) {
  if (row.data == nullptr) return nullptr;
  const size_t element = row.dtype == DType::kString ? sizeof(std::string_view) : ItemSize(row.dtype);
  return static_cast<const uint8_t*>(row.data) + static_cast<size_t>(rows) * row.num_elements() * element;
}

class RowBuffer {
 public:
  // Appends a row. REQUIRES: all rows have the same dtype and shape.
  void Append(const TensorView& row) {
    if (row.dtype == DType::kString) {
      for (const std::string_view element : row.strings()) {
        bytes_.insert(bytes_.end(), element.begin(), element.end());
        string_ends_.push_back(bytes_.size());
      }
    } else {
      Append(row.bytes());
    }
  }
  // Appends fixed-size rows.
  void Append(std::span<const uint8_t> rows) { bytes_.insert(bytes_.end(), rows.begin(), rows.end()); }
  void Clear() {
    bytes_.clear();
    string_ends_.clear();
  }
  // Removes the first `rows` of the `all` rows.
  void RemoveFirst(uint32_t rows, uint32_t all);

  // Returns the bytes of the rows [first, first + rows) of the `all` rows. REQUIRES: fixed-size rows.
  std::span<const uint8_t> RawRows(uint32_t first, uint32_t rows, uint32_t all) const {
    const size_t row_bytes = bytes_.size() / all;
    return std::span(bytes_).subspan(first * row_bytes, rows * row_bytes);
  }

  // Encodes the rows [first, first + rows) of the `all` rows: see ColumnEncoder. Uses `*strings` as temporary
  // memory.
  Status Encode(ColumnEncoder* encoder, uint32_t first, uint32_t rows, uint32_t all,
                std::vector<std::string_view>* strings, std::vector<uint8_t>* payload,
                ColumnHeader* header) const;

  // Returns the StringBytes() of the first `rows` of the `all` rows; 0 for fixed-size rows.
  uint64_t FirstStringBytes(uint32_t rows, uint32_t all) const;

  // Copies row `index` to `*tensor`, which has the dtype and shape of a row.
  void Read(uint32_t index, Tensor* tensor) const;

 private:
  std::string_view StringAt(size_t element) const {
    const size_t begin = element == 0 ? 0 : string_ends_[element - 1];
    return {reinterpret_cast<const char*>(bytes_.data()) + begin, string_ends_[element] - begin};
  }

  std::vector<uint8_t> bytes_;
  std::vector<size_t> string_ends_;  // in bytes_
};

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_ROW_BUFFER_H_
