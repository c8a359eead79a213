#include "tensor/block_pool.h"

#include <new>

#include "base/payload_memory.h"
#include "reverb/tensor.h"

namespace reverb::internal {

uint8_t* BlockPool::Allocate(size_t bytes) {
  return static_cast<uint8_t*>(ProcessPayloadMemory()->Allocate(bytes, std::align_val_t{Tensor::kAlignment}));
}

void BlockPool::Free(uint8_t* block, size_t bytes) {
  ProcessPayloadMemory()->Free(block, bytes, std::align_val_t{Tensor::kAlignment});
}

BlockPool::~BlockPool() {
  for (const Block& block : idle_) Free(block.data, block.bytes);
}

uint8_t* BlockPool::Take(size_t bytes) {
  {
    MutexLock lock(&mu_);
    for (size_t i = idle_.size(); i-- > 0;) {
      if (idle_[i].bytes != bytes) continue;
      uint8_t* const data = idle_[i].data;
      idle_.erase(idle_.begin() + static_cast<ptrdiff_t>(i));
      idle_bytes_ -= bytes;
      return data;
    }
  }
  return Allocate(bytes);
}

void BlockPool::Give(uint8_t* block, size_t bytes) {
  if (bytes > kMaxIdleBytes) return Free(block, bytes);
  std::vector<Block> dropped;
  {
    MutexLock lock(&mu_);
    idle_.push_back({block, bytes});
    idle_bytes_ += bytes;
    size_t drop = 0;
    while (idle_.size() - drop > kMaxIdleBlocks || idle_bytes_ > kMaxIdleBytes) {
      idle_bytes_ -= idle_[drop++].bytes;
    }
    const auto end = idle_.begin() + static_cast<ptrdiff_t>(drop);
    dropped.assign(idle_.begin(), end);
    idle_.erase(idle_.begin(), end);
  }
  for (const Block& old : dropped) Free(old.data, old.bytes);
}

}  // namespace reverb::internal
