#include "client/row_buffer.h"

#include <cstring>

namespace reverb::internal {

Result<ColumnHeader> RowBuffer::Encode(ColumnEncoder* encoder, uint32_t rows,
                                       std::vector<std::string_view>* strings,
                                       std::vector<uint8_t>* payload) const {
  if (encoder->dtype() != DType::kString) return encoder->Encode(bytes_, rows, payload);
  strings->clear();
  const char* bytes = reinterpret_cast<const char*>(bytes_.data());
  for (const uint32_t length : string_lengths_) {
    strings->emplace_back(bytes, length);
    bytes += length;
  }
  return encoder->EncodeStrings(*strings, rows, payload);
}

void RowBuffer::Read(uint32_t index, Tensor* tensor) const {
  if (tensor->dtype() != DType::kString) {
    const size_t row_bytes = tensor->num_bytes();
    if (row_bytes > 0) std::memcpy(tensor->data(), bytes_.data() + index * row_bytes, row_bytes);
    return;
  }
  size_t element = 0;
  size_t offset = 0;
  for (; element < index * tensor->strings().size(); ++element) offset += string_lengths_[element];
  for (std::string& text : tensor->strings()) {
    const uint32_t length = string_lengths_[element++];
    text.assign(reinterpret_cast<const char*>(bytes_.data()) + offset, length);
    offset += length;
  }
}

}  // namespace reverb::internal
