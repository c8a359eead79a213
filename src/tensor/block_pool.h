// block_pool.h — a pool of aligned memory blocks, reused by size.
//
// Threads: all methods may be called concurrently.
#ifndef REVERB_TENSOR_BLOCK_POOL_H_
#define REVERB_TENSOR_BLOCK_POOL_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/mutex.h"

namespace reverb::internal {

class BlockPool {
 public:
  // Bounds of the idle memory.
  static constexpr size_t kMaxIdleBlocks = 32;
  static constexpr size_t kMaxIdleBytes = size_t{256} << 20;

  BlockPool() = default;
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool();

  // Returns a block of exactly `bytes` bytes, the most recently returned one if possible. Null if no memory
  // is left.
  uint8_t* Take(size_t bytes) EXCLUDES(mu_);
  // REQUIRES: `block` came from Take() or Allocate() with the same size.
  void Give(uint8_t* block, size_t bytes) EXCLUDES(mu_);

  // Allocates without a pool, aligned to Tensor::kAlignment. Null if no memory is left.
  static uint8_t* Allocate(size_t bytes);
  static void Free(uint8_t* block, size_t bytes);

 private:
  struct Block {
    uint8_t* data;
    size_t bytes;
  };
  Mutex mu_;
  std::vector<Block> idle_ GUARDED_BY(mu_);  // longest idle first
  size_t idle_bytes_ GUARDED_BY(mu_) = 0;
};

}  // namespace reverb::internal

#endif  // REVERB_TENSOR_BLOCK_POOL_H_
