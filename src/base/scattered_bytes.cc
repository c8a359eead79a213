#include "base/scattered_bytes.h"

#include <cstring>

namespace reverb::internal {

ScatteredBytes::ScatteredBytes(Buffer keeper, std::vector<Part> parts)
    : keeper_(std::move(keeper)), parts_(std::move(parts)) {
  for (const Part part : parts_) size_ += part.size();
}

void ScatteredBytes::CopyTo(uint8_t* out, size_t offset, size_t size) const {
  ForEachPart(parts_, offset, size, [&](Part part) {
    std::memcpy(out, part.data(), part.size());
    out += part.size();
  });
}

ScatteredBytes::Part ScatteredBytes::Together() const {
  std::call_once(once_, [this] {
    uint8_t* out = nullptr;
    together_ = Buffer::Allocate(size_, &out);
    CopyTo(out, 0, size_);
  });
  return together_.span();
}

}  // namespace reverb::internal
