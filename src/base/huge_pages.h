// huge_pages.h — requests huge pages for memory that an allocator is about to return.
//
// Page faults on fresh memory cost more than filling it: they dominate a load whose files are already in the
// page cache. A huge page takes one fault instead of 512. These are hints: they have no effect if the kernel
// has no huge pages or the allocator behaves differently.
#ifndef REVERB_BASE_HUGE_PAGES_H_
#define REVERB_BASE_HUGE_PAGES_H_

#include <cstddef>
#include <cstdint>

namespace reverb::internal {

// For a thread that makes many allocations and keeps them: an allocator then mostly moves upwards through
// untouched memory, and the memory after the last allocation is used next.
// Threads: one at a time.
class HugePageAdvisor {
 public:
  // Call this after each allocation; it is cheap.
  void OnAllocated(const void* block, size_t bytes) {
    const uintptr_t end = reinterpret_cast<uintptr_t>(block) + bytes;
    if (end - seen_begin_ >= kHugePageBytes) [[unlikely]]
      Advise(end);
  }

 private:
  static constexpr uintptr_t kHugePageBytes = uintptr_t{2} << 20;
  // Covers blocks that extend past the end of a huge page.
  static constexpr uintptr_t kAheadBytes = 4 * kHugePageBytes;

  void Advise(uintptr_t end);

  uintptr_t seen_begin_ = 0;  // of the huge page in which the last block ended
};

// Does the same for `bytes` that this thread is about to allocate, in one or more blocks. Allocates and frees
// a block of that size to learn which addresses the allocator will use.
void AdviseHugePagesForNext(size_t bytes);

}  // namespace reverb::internal

#endif  // REVERB_BASE_HUGE_PAGES_H_
