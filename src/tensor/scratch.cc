#include "tensor/scratch.h"

#include <algorithm>
#include <bit>
#include <new>

namespace reverb::internal {
namespace {

struct Kept {
  std::unique_ptr<uint8_t[]> bytes;
  size_t capacity = 0;
};

thread_local Kept kept[Scratch::kNumUses];

}  // namespace

Scratch::Scratch(Use use, size_t size) : size_(size) {
  if (size > kMaxKeptBytes) {
    own_.reset(new (std::nothrow) uint8_t[size]);
    data_ = own_.get();
    return;
  }
  Kept& mine = kept[use];
  if (mine.capacity < size || mine.bytes == nullptr) {
    const size_t capacity = std::bit_ceil(std::max<size_t>(size, 4096));
    mine.bytes.reset(new (std::nothrow) uint8_t[capacity]);
    mine.capacity = mine.bytes == nullptr ? 0 : capacity;
  }
  data_ = mine.bytes.get();
}

}  // namespace reverb::internal
