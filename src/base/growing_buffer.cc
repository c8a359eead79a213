#include "base/growing_buffer.h"

#include <algorithm>
#include <utility>

namespace reverb::internal {

void GrowingBuffer::Grow(size_t count) { Reallocate(size() + std::max(count, size())); }

void GrowingBuffer::Reallocate(size_t capacity) {
  uint8_t* bytes = nullptr;
  Buffer block = Buffer::Allocate(capacity, &bytes);
  const size_t used = size();
  if (used > 0) std::memcpy(bytes, begin_, used);
  block_ = std::move(block);
  begin_ = reinterpret_cast<char*>(bytes);
  end_ = begin_ + used;
  limit_ = begin_ + capacity;
}

Buffer GrowingBuffer::Take() {
  Buffer taken = block_.Slice(0, size());
  block_ = Buffer();
  begin_ = end_ = limit_ = nullptr;
  return taken;
}

}  // namespace reverb::internal
