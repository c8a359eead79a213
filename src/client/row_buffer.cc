#include "client/row_buffer.h"

#include <cstring>

namespace reverb::internal {

Status RowBuffer::Encode(ColumnEncoder* encoder, uint32_t first, uint32_t rows, uint32_t all,
                         std::vector<std::string_view>* strings, std::vector<uint8_t>* payload,
                         ColumnHeader* header) const {
  if (encoder->dtype() != DType::kString) {
    return encoder->Encode(RawRows(first, rows, all), rows, payload, header);
  }
  const size_t row_elements = string_ends_.size() / all;
  strings->clear();
  for (size_t i = first * row_elements; i < (first + rows) * row_elements; ++i) {
    strings->push_back(StringAt(i));
  }
  return encoder->EncodeStrings(*strings, rows, payload, header);
}

void RowBuffer::RemoveFirst(uint32_t rows, uint32_t all) {
  if (string_ends_.empty()) {
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<ptrdiff_t>(bytes_.size() / all * rows));
    return;
  }
  const size_t elements = string_ends_.size() / all * rows;
  const size_t removed = string_ends_[elements - 1];
  bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<ptrdiff_t>(removed));
  string_ends_.erase(string_ends_.begin(), string_ends_.begin() + static_cast<ptrdiff_t>(elements));
  for (size_t& end : string_ends_) end -= removed;
}

uint64_t RowBuffer::FirstStringBytes(uint32_t rows, uint32_t all) const {
  uint64_t bytes = 0;
  for (size_t i = 0; i < string_ends_.size() / all * rows; ++i) bytes += StringBytes(StringAt(i));
  return bytes;
}

void RowBuffer::Read(uint32_t index, Tensor* tensor) const {
  if (tensor->dtype() != DType::kString) {
    const size_t row_bytes = tensor->num_bytes();
    if (row_bytes > 0) std::memcpy(tensor->data(), bytes_.data() + index * row_bytes, row_bytes);
    return;
  }
  size_t element = index * tensor->strings().size();
  for (std::string& text : tensor->strings()) text = StringAt(element++);
}

}  // namespace reverb::internal
