// payload_memory.h — private memory for chunks and tensors.
//
// Small blocks come from malloc. Blocks of kMinPooledBytes and more come from our own mappings
// (base/pooled_blocks.h), without changing the settings of malloc, which belongs to the host program.
//
// Threads: all methods may be called concurrently. fork() is safe: the child has a usable copy.
#ifndef REVERB_BASE_PAYLOAD_MEMORY_H_
#define REVERB_BASE_PAYLOAD_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <new>

#include "base/clock.h"
#include "base/pooled_blocks.h"

namespace reverb::internal {

class PayloadMemory final : private PageSource {
 public:
  // Smaller blocks come from malloc.
  static constexpr size_t kMinPooledBytes = PooledBlocks::kMinBytes;
  static constexpr std::align_val_t kAlignment{16};
  static constexpr Duration kReleaseInterval = PooledBlocks::kReleaseInterval;

  using Stats = PooledBlocks::Stats;  // of pooled blocks

  // Uses `clock` as PooledBlocks does.
  explicit PayloadMemory(Clock* clock, size_t min_pooled_bytes = kMinPooledBytes);
  PayloadMemory(const PayloadMemory&) = delete;
  PayloadMemory& operator=(const PayloadMemory&) = delete;
  // REQUIRES: all blocks are freed, and no timer of `clock` calls this object again.
  ~PayloadMemory() = default;

  // Returns at least `bytes` bytes; null if no memory is left. Pooled blocks start on a page boundary.
  void* Allocate(size_t bytes, std::align_val_t alignment = kAlignment);
  // REQUIRES: `block` came from Allocate() with the same arguments.
  void Free(void* block, size_t bytes, std::align_val_t alignment = kAlignment);

  // Returns the blocks to the system that have been idle since the last call.
  void ReleaseIdle() { pool_.ReleaseIdle(); }

  Stats stats() const { return pool_.stats(); }

 private:
  friend PayloadMemory* ProcessPayloadMemory();

  bool IsPooled(size_t bytes) const { return bytes >= min_pooled_bytes_; }

  uint8_t* Map(size_t bytes) override;
  void Unmap(uint8_t* memory, size_t bytes) override;
  // Private pages are resident once they are written.
  bool Populate(uint8_t*, size_t) override { return true; }
  void Discard(uint8_t* memory, size_t bytes) override;

  // Fork handlers of ProcessPayloadMemory().
  static void LockForFork();
  static void UnlockInParent();
  static void UnlockInChild();

  const size_t min_pooled_bytes_;
  PooledBlocks pool_;
};

// Returns the memory that the chunks and tensors of this process are allocated from. Never destroyed.
PayloadMemory* ProcessPayloadMemory();

}  // namespace reverb::internal

#endif  // REVERB_BASE_PAYLOAD_MEMORY_H_
