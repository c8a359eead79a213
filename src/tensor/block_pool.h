// block_pool.h — aligned memory that is used again by the next one who wants as much.
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
  // What lies idle at most.
  static constexpr size_t kMaxIdleBlocks = 32;
  static constexpr size_t kMaxIdleBytes = size_t{256} << 20;

  BlockPool() = default;
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool();

  // A block of exactly so many bytes, the one given back last if there is one. Null when memory lacks.
  uint8_t* Take(size_t bytes) EXCLUDES(mu_);
  // REQUIRES: from Take() or Allocate(), with the same number.
  void Give(uint8_t* block, size_t bytes) EXCLUDES(mu_);

  // Without a pool: aligned to Tensor::kAlignment, null when memory lacks.
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
