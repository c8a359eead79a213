// payload_memory.h — memory for chunks and tensors.
//
// Small blocks come from malloc. Blocks of kMinPooledBytes and more come from our own mappings: a freed block
// is reused by the next allocation of about the same size, on any thread, and returns to the system after it
// was unused for one to two release intervals. The resident set therefore follows the live data, without
// changing the settings of malloc, which belongs to the host program.
//
// Pooled sizes are rounded up to size classes, eight per doubling. A class divides slabs into blocks
// (mappings of kSlabBytes, or of one block if that is larger). A block is allocated, idle (free, its pages
// still resident) or released (free, its pages returned to the system). A slab whose blocks are all released
// is unmapped.
//
// Threads: all methods may be called concurrently. fork() is safe: the child has a usable copy.
#ifndef REVERB_BASE_PAYLOAD_MEMORY_H_
#define REVERB_BASE_PAYLOAD_MEMORY_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <new>
#include <set>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"

namespace reverb::internal {

class PayloadMemory {
 public:
  // Smaller blocks come from malloc: rounding them up to whole pages would waste too much.
  static constexpr size_t kMinPooledBytes = size_t{16} << 10;
  static constexpr size_t kSlabBytes = size_t{32} << 20;
  static constexpr std::align_val_t kAlignment{16};
  static constexpr Duration kReleaseInterval = std::chrono::seconds(1);

  // Sums over pooled blocks, whose sizes are rounded up to their size classes.
  struct Stats {
    size_t allocated_bytes = 0;
    size_t idle_bytes = 0;
    size_t mapped_bytes = 0;  // address space of all slabs
  };

  // Releases idle blocks every kReleaseInterval of `clock`, on the background thread, as long as there are
  // any.
  explicit PayloadMemory(Clock* clock, size_t min_pooled_bytes = kMinPooledBytes);
  PayloadMemory(const PayloadMemory&) = delete;
  PayloadMemory& operator=(const PayloadMemory&) = delete;
  // REQUIRES: all blocks are freed, and no timer of `clock` calls this object again.
  ~PayloadMemory();

  // Returns at least `bytes` bytes; null if no memory is left. Pooled blocks start on a page boundary.
  void* Allocate(size_t bytes, std::align_val_t alignment = kAlignment) EXCLUDES(mu_);
  // REQUIRES: `block` came from Allocate() with the same arguments.
  void Free(void* block, size_t bytes, std::align_val_t alignment = kAlignment) EXCLUDES(mu_);

  // Returns the blocks to the system that have been idle since the last call.
  void ReleaseIdle() EXCLUDES(mu_);

  Stats stats() const EXCLUDES(mu_);

 private:
  friend PayloadMemory* ProcessPayloadMemory();

  // Stored in the first bytes of an idle block, whose pages are resident.
  struct IdleBlock {
    IdleBlock* older;
    IdleBlock* newer;
  };
  struct Slab {
    size_t num_blocks = 0;
    std::vector<uint8_t*> released;  // has capacity for all blocks; the last one is allocated first
  };
  struct SizeClass {
    IdleBlock* oldest = nullptr;
    IdleBlock* newest = nullptr;
    size_t num_idle = 0;
    size_t least_idle = 0;  // the smallest num_idle since the last BeginRelease()
    size_t num_due = 0;     // idle blocks that ReleaseSome() still has to release, the oldest ones
    std::map<uint8_t*, Slab> slabs;
    std::set<uint8_t*> slabs_with_released;
  };
  static constexpr size_t kNumClasses = 256;

  static size_t ClassIndex(size_t bytes);
  size_t BlockBytes(size_t index) const;

  bool IsPooled(size_t bytes) const { return bytes >= min_pooled_bytes_; }
  void* AllocateReleased(size_t index) REQUIRES(mu_);
  bool AddSlab(size_t index) REQUIRES(mu_);
  IdleBlock* RemoveOldest(SizeClass* size_class) REQUIRES(mu_);
  void BeginRelease() EXCLUDES(mu_);
  // Releases some of the blocks that are due. Returns whether more remain.
  bool ReleaseSome() EXCLUDES(mu_);
  void ReleaseBlocks(size_t index, std::vector<uint8_t*> blocks) EXCLUDES(mu_);
  void ScheduleRelease() EXCLUDES(mu_);
  void ContinueScheduledRelease() EXCLUDES(mu_);

  // Fork handlers of ProcessPayloadMemory(): a child must not inherit the lock held by a thread that it does
  // not have.
  static void LockForFork();
  static void UnlockInParent();
  static void UnlockInChild();

  Clock* const clock_;
  const size_t page_bytes_;
  const size_t min_pooled_bytes_;

  mutable Mutex mu_;
  std::array<SizeClass, kNumClasses> classes_ GUARDED_BY(mu_);
  Stats stats_ GUARDED_BY(mu_);
  bool is_release_scheduled_ GUARDED_BY(mu_) = false;
};

// Returns the memory that the chunks and tensors of this process are allocated from. Never destroyed.
PayloadMemory* ProcessPayloadMemory();

}  // namespace reverb::internal

#endif  // REVERB_BASE_PAYLOAD_MEMORY_H_
