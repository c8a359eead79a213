#include "base/scattered_bytes.h"

#include <cstring>

namespace reverb::internal {

ScatteredBytes::ScatteredBytes(Buffer owner, std::vector<Part> parts)
    : owner_(std::move(owner)), parts_(std::move(parts)) {
  for (const Part part : parts_) size_ += part.size();
}

void ScatteredBytes::CopyTo(uint8_t* out, size_t offset, size_t size) const {
  ForEachPart(parts_, offset, size, [&](Part part) {
    std::memcpy(out, part.data(), part.size());
    out += part.size();
  });
}

ScatteredBytes::Part ScatteredBytes::Contiguous() const {
  std::call_once(once_, [this] {
    uint8_t* out = nullptr;
    contiguous_ = Buffer::Allocate(size_, &out);
    CopyTo(out, 0, size_);
  });
  return contiguous_.span();
}

}  // namespace reverb::internal
