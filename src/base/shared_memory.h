// shared_memory.h — payload memory that other processes of this host can map.
//
// Segments are sparse memfds, sealed so that they can neither shrink nor grow, and mapped side by side in one
// reserved range of addresses: the segment and offset of an address follow from a subtraction (Find). Another
// process receives a read-only descriptor of a segment and maps all of it once (MappedSegment).
//
// Blocks of kMinPooledBytes and more are pooled (base/pooled_blocks.h). Smaller ones are parts of pooled slabs
// of 64 or 256 kB, each with blocks of one size and a bitmap of the free ones. Threads are distributed over
// shards, which cache a few free blocks of each size. A slab whose blocks are all free is freed; pages that
// stay unused return to the system by punching holes. All bookkeeping is in private memory: other processes
// see payloads only.
//
// fork(): the parent keeps its segments. In the child, they are read-only, nothing is allocated from them,
// Free() of their blocks does nothing and Find() does not find them, since the parent may reuse their memory
// at any time; the child's allocations come from new segments.
//
// Threads: all methods may be called concurrently.
#ifndef REVERB_BASE_SHARED_MEMORY_H_
#define REVERB_BASE_SHARED_MEMORY_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/payload_source.h"
#include "base/pooled_blocks.h"
#include "reverb/status.h"

namespace reverb::internal {

class SharedMemory final : public PayloadSource, private PageSource {
 public:
  static constexpr size_t kMinPooledBytes = PooledBlocks::kMinBytes;
  // Few large segments, since each takes a descriptor in every process that uses it. Only address space is
  // reserved for them; a chunk of the largest possible size fits.
  static constexpr size_t kSegmentBytes = size_t{4} << 30;

  struct Options {
    // A power of two, at least PooledBlocks::kSlabBytes.
    size_t segment_bytes = kSegmentBytes;
    // Fewer if the address space is limited.
    uint32_t max_segments = 256;
    // See PooledBlocks. The object must not be destroyed then.
    bool populates_ahead = false;
  };
  struct Location {
    uint32_t segment = 0;
    uint64_t offset = 0;
  };
  // Slabs of small blocks count as allocated.
  using Stats = PooledBlocks::Stats;

  // Uses `clock` as PooledBlocks does. Creates the first segment when it is needed.
  explicit SharedMemory(Clock* clock) : SharedMemory(clock, Options()) {}
  SharedMemory(Clock* clock, const Options& options);
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  // REQUIRES: all blocks are freed, and no timer of `clock` calls this object again.
  ~SharedMemory();

  // Returns null if no memory, descriptors or addresses are left, and for more than segment_bytes.
  uint8_t* Allocate(size_t bytes) override;
  void Free(uint8_t* block, size_t bytes) override;

  // Returns why nothing can be allocated: the system does not support it, or a limit forbids it. Creates the
  // first segment if there is none.
  Status CheckAvailable() EXCLUDES(mu_);

  // Returns where `address` is; nothing if it is not in a segment of this process.
  std::optional<Location> Find(const void* address) const {
    // `range_` is set before the first segment is counted.
    const uint32_t segments = num_segments_.load(std::memory_order_acquire);
    const uintptr_t offset = reinterpret_cast<uintptr_t>(address) - range_.load(std::memory_order_relaxed);
    const uintptr_t first_own = first_own_segment_.load(std::memory_order_relaxed);
    const uintptr_t segment = offset >> log_segment_bytes_;
    if (segment >= segments || segment < first_own) return std::nullopt;
    return Location{.segment = static_cast<uint32_t>(segment), .offset = offset & (segment_bytes() - 1)};
  }
  bool Contains(const void* address) const { return Find(address).has_value(); }

  uint64_t segment_bytes() const { return uint64_t{1} << log_segment_bytes_; }
  // Segments are numbered from 0. Those before first_own_segment() belong to a process that forked this one.
  uint32_t num_segments() const { return num_segments_.load(std::memory_order_acquire); }
  uint32_t first_own_segment() const { return first_own_segment_.load(std::memory_order_relaxed); }
  // Returns a read-only descriptor to send to other processes. It belongs to this object.
  // REQUIRES: segment < num_segments().
  int descriptor(uint32_t segment) const { return segments_[segment].descriptor; }

  // Returns the memory to the system that has been idle since the last call.
  void ReleaseIdle() { pool_.ReleaseIdle(); }
  Stats stats() const { return pool_.stats(); }

 private:
  friend SharedMemory* ProcessSharedMemory();

  static constexpr size_t kNumSmallClasses = 57;
  static constexpr size_t kNumShards = 16;
  struct SmallSlab;
  using SlabsByAddress = std::map<uint8_t*, SmallSlab*>;
  // The slabs of some size classes. Not one lock for each class: a fork acquires all of them, and
  // ThreadSanitizer supports 64.
  static constexpr size_t kNumClassGroups = 16;
  struct alignas(64) ClassGroup {
    Mutex mu;
    std::array<SlabsByAddress, kNumSmallClasses / kNumClassGroups + 1> with_free_blocks GUARDED_BY(mu);
  };
  struct Magazine {
    std::vector<uint8_t*> blocks;
    bool was_used = false;  // since the last FlushUnusedMagazines()
  };
  struct alignas(64) Shard {
    Mutex mu;
    std::array<Magazine, kNumSmallClasses> magazines GUARDED_BY(mu);
  };
  struct Segment {
    int descriptor = -1;
    // The slab of small blocks of each kSlabUnit, null if there is none. An entry belongs to the class of the
    // slab.
    std::unique_ptr<SmallSlab*[]> slabs;
  };

  static size_t SmallClassIndex(size_t bytes);
  static size_t SmallBlockBytes(size_t index);
  static size_t SmallSlabBytes(size_t index);
  static size_t MagazineBlocks(size_t index);

  bool IsInherited(const uint8_t* block) const {
    return (reinterpret_cast<uintptr_t>(block) - range_.load(std::memory_order_relaxed)) >>
           log_segment_bytes_ < first_own_segment_.load(std::memory_order_relaxed);
  }
  SmallSlab** SlabEntry(const uint8_t* address);
  Shard& ThisThreadsShard();
  // Appends up to `count` blocks to `*blocks`.
  void TakeBlocks(size_t index, size_t count, std::vector<uint8_t*>* blocks);
  void ReturnBlocks(size_t index, std::span<uint8_t* const> blocks);
  SmallSlab* AddSmallSlab(size_t index);
  void FlushUnusedMagazines();

  // PageSource.
  uint8_t* Map(size_t bytes) override EXCLUDES(mu_);
  void Unmap(uint8_t* memory, size_t bytes) override EXCLUDES(mu_);
  bool Populate(uint8_t* memory, size_t bytes) override;
  void Discard(uint8_t* memory, size_t bytes) override;

  Status ReserveRange() REQUIRES(mu_);
  Status AddSegment() REQUIRES(mu_);
  uint8_t* AddressOf(uint32_t region) const;

  // Fork handlers of ProcessSharedMemory().
  static void LockForFork();
  static void UnlockInParent();
  static void UnlockInChild();
  void UnlockAll();

  const Options options_;
  const int log_segment_bytes_;
  std::atomic<uintptr_t> range_{0};
  std::atomic<uint32_t> num_segments_{0};
  std::atomic<uint32_t> first_own_segment_{0};

  std::array<Shard, kNumShards> shards_;
  std::array<ClassGroup, kNumClassGroups> class_groups_;

  Mutex mu_;
  uint32_t max_segments_ GUARDED_BY(mu_) = 0;
  void* reserved_ GUARDED_BY(mu_) = nullptr;
  size_t reserved_bytes_ GUARDED_BY(mu_) = 0;
  Status unavailable_ GUARDED_BY(mu_);
  // Runs of unused regions of kSlabBytes: the first one, and their number. None crosses a segment.
  std::map<uint32_t, uint32_t> free_regions_ GUARDED_BY(mu_);
  // Has its final size before the first segment is counted in num_segments_.
  std::vector<Segment> segments_;

  PooledBlocks pool_;  // the last member: its destructor uses the others
};

// Returns the memory that this process shares with others. Never destroyed.
SharedMemory* ProcessSharedMemory();

}  // namespace reverb::internal

#endif  // REVERB_BASE_SHARED_MEMORY_H_
