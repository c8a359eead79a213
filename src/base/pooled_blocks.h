// pooled_blocks.h — blocks of whole pages in size classes, over pages that a PageSource provides.
//
// A freed block is reused by the next allocation of about the same size, on any thread, and returns to the
// system after it was unused for one to two release intervals. The resident set therefore follows the live
// data.
//
// Sizes are rounded up to size classes, eight per doubling. A class divides slabs into blocks (kSlabBytes, or
// one block if that is larger). A block is allocated, idle (free, its pages still resident) or released (free,
// its pages returned to the system). A slab whose blocks are all released is unmapped. All bookkeeping is
// outside of the blocks, which may be visible to other processes.
//
// Making pages resident takes longer than copying data into them. With `populates_ahead`, the background thread
// therefore does that for the next blocks of a class that grows, up to kAheadBytes of each class. What is not used
// returns to the system like any idle block.
//
// Ownership: borrows clock and pages. Threads: all methods may be called concurrently.
#ifndef REVERB_BASE_POOLED_BLOCKS_H_
#define REVERB_BASE_POOLED_BLOCKS_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"

namespace reverb::internal {

// Pages of one kind: private or shared. Threads: all methods may be called concurrently.
class PageSource {
 public:
  // Returns new pages, or null if no memory is left.
  virtual uint8_t* Map(size_t bytes) = 0;
  virtual void Unmap(uint8_t* memory, size_t bytes) = 0;
  // Makes pages resident that are about to be written. Returns false if no memory is left.
  virtual bool Populate(uint8_t* memory, size_t bytes) = 0;
  // Returns pages to the system: they are zero from now on.
  virtual void Discard(uint8_t* memory, size_t bytes) = 0;

 protected:
  ~PageSource() = default;
};

class PooledBlocks {
 public:
  // The smallest size: rounding up fewer bytes to whole pages would waste too much.
  static constexpr size_t kMinBytes = size_t{16} << 10;
  static constexpr size_t kSlabBytes = size_t{32} << 20;
  static constexpr Duration kReleaseInterval = std::chrono::seconds(1);
  static constexpr size_t kAheadBytes = size_t{512} << 10;
  // A class grows if so many of its blocks were made resident in a release interval. Most programs need few blocks of
  // most sizes.
  static constexpr size_t kMinGrowth = 8;

  // Sizes of blocks are rounded up to their size classes.
  struct Stats {
    size_t allocated_bytes = 0;
    size_t idle_bytes = 0;
    size_t mapped_bytes = 0;  // address space of all slabs
  };

  // Releases idle blocks every kReleaseInterval of `clock`, on the background thread, as long as there are
  // any. `before_release` is called before that, without locks. With `populates_ahead`, the object must not be
  // destroyed.
  PooledBlocks(Clock* clock, PageSource* pages, std::function<void()> before_release = {},
               bool populates_ahead = false);
  PooledBlocks(const PooledBlocks&) = delete;
  PooledBlocks& operator=(const PooledBlocks&) = delete;
  // REQUIRES: all blocks are freed, and no timer of `clock` calls this object again.
  ~PooledBlocks();

  // Returns at least `bytes` bytes that start on a page boundary; null if no memory is left.
  // REQUIRES: bytes >= kMinBytes.
  uint8_t* Allocate(size_t bytes) EXCLUDES(mu_) { return Allocate(bytes, populates_ahead_); }
  // Same, but nothing is populated ahead, for blocks whose number grows slowly.
  uint8_t* AllocateRare(size_t bytes) EXCLUDES(mu_) { return Allocate(bytes, /*populates_ahead=*/false); }
  // REQUIRES: `block` came from Allocate() with the same size.
  void Free(uint8_t* block, size_t bytes) EXCLUDES(mu_);

  // Returns the blocks to the system that have been idle since the last call.
  void ReleaseIdle() EXCLUDES(mu_);

  Stats stats() const EXCLUDES(mu_);

  // For fork handlers: a child must not inherit the lock held by a thread that it does not have.
  void LockForFork() ACQUIRE(mu_) { mu_.Lock(); }
  void UnlockInParent() RELEASE(mu_) { mu_.Unlock(); }
  // Forgets the timers, which do not run in the child, and with `forget_blocks` all slabs.
  void UnlockInChild(bool forget_blocks) RELEASE(mu_);

 private:
  struct Slab {
    size_t num_blocks = 0;
    std::vector<uint8_t*> released;  // has capacity for all blocks; the last one is allocated first
  };
  struct SizeClass {
    std::deque<uint8_t*> idle;  // the oldest first
    size_t least_idle = 0;      // the smallest number of idle blocks since the last BeginRelease()
    size_t num_due = 0;         // idle blocks that ReleaseSome() still has to release, the oldest ones
    size_t growth = 0;          // blocks made resident since the last BeginRelease()
    bool is_populating = false;
    std::map<uint8_t*, Slab> slabs;
    std::set<uint8_t*> slabs_with_released;
  };
  static constexpr size_t kNumClasses = 256;

  uint8_t* Allocate(size_t bytes, bool populates_ahead) EXCLUDES(mu_);
  static size_t ClassIndex(size_t bytes);
  size_t BlockBytes(size_t index) const;

  uint8_t* TakeReleased(size_t index) REQUIRES(mu_);
  // Returns whether the caller has to call ScheduleRelease().
  bool AddIdle(size_t index, uint8_t* block) REQUIRES(mu_);
  // Returns whether the caller has to start PopulateAhead().
  bool ShouldPopulate(size_t index) REQUIRES(mu_);
  // Makes one of the next blocks of this class resident and idle, on the background thread, and then the others.
  void PopulateAhead(size_t index) EXCLUDES(mu_);
  // Adds a released block to its slab. Returns the slab if all of its blocks are released now: it has been
  // removed.
  uint8_t* AddReleased(size_t index, uint8_t* block) REQUIRES(mu_);
  bool AddSlab(size_t index) REQUIRES(mu_);
  size_t SlabBytes(size_t index) const;
  void BeginRelease() EXCLUDES(mu_);
  // Releases some of the blocks that are due. Returns whether more remain.
  bool ReleaseSome() EXCLUDES(mu_);
  void ReleaseBlocks(size_t index, std::vector<uint8_t*> blocks) EXCLUDES(mu_);
  void ScheduleRelease() EXCLUDES(mu_);
  void ContinueScheduledRelease() EXCLUDES(mu_);

  Clock* const clock_;
  PageSource* const pages_;
  const std::function<void()> before_release_;
  const size_t page_bytes_;
  const bool populates_ahead_;

  mutable Mutex mu_;
  std::array<SizeClass, kNumClasses> classes_ GUARDED_BY(mu_);
  Stats stats_ GUARDED_BY(mu_);
  bool is_release_scheduled_ GUARDED_BY(mu_) = false;
};

}  // namespace reverb::internal

#endif  // REVERB_BASE_POOLED_BLOCKS_H_
