// huge_pages.h — asks for huge pages under memory that an allocator is about to hand out.
//
// Touching fresh memory page by page costs more than filling it: of a load that has the files in memory
// already, most. A huge page is one fault instead of 512. All of this is advice: where the kernel has no
// huge pages or the allocator does something else, nothing happens.
#ifndef REVERB_BASE_HUGE_PAGES_H_
#define REVERB_BASE_HUGE_PAGES_H_

#include <cstddef>
#include <cstdint>

namespace reverb::internal {

// For a thread that allocates much, piece after piece, and keeps it: an allocator then mostly walks upwards
// through memory that nobody has touched, and what lies ahead of the last piece comes next.
// Threads: one at a time.
class HugePagesAhead {
 public:
  // To be told of every piece; cheap.
  void Allocated(const void* piece, size_t bytes) {
    const uintptr_t end = reinterpret_cast<uintptr_t>(piece) + bytes;
    if (end - seen_begin_ >= kHugePageBytes) [[unlikely]]
      Advise(end);
  }

 private:
  static constexpr uintptr_t kHugePageBytes = uintptr_t{2} << 20;
  // So that a piece that reaches across the end of a huge page finds the next one asked for.
  static constexpr uintptr_t kAheadBytes = 4 * kHugePageBytes;

  void Advise(uintptr_t end);

  uintptr_t seen_begin_ = 0;  // of the huge page that the last piece ended in
};

// The same for `bytes` that are allocated at once or soon, in pieces, by this thread: what the allocator
// would give for all of them together is where they will come from.
void AdviseHugePagesForNext(size_t bytes);

}  // namespace reverb::internal

#endif  // REVERB_BASE_HUGE_PAGES_H_
