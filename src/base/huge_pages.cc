#include "base/huge_pages.h"

#include <sys/mman.h>

#include <new>

namespace reverb::internal {
namespace {

// Whole huge pages between the two. Parts that are not mapped are passed over.
void AdviseBetween([[maybe_unused]] uintptr_t begin, [[maybe_unused]] uintptr_t end) {
#if defined(MADV_HUGEPAGE)
  if (begin < end) (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

}  // namespace

void HugePagesAhead::Advise(uintptr_t end) {
  seen_begin_ = end & ~(kHugePageBytes - 1);
  AdviseBetween(seen_begin_ + kHugePageBytes, seen_begin_ + kHugePageBytes + kAheadBytes);
}

void AdviseHugePagesForNext(size_t bytes) {
  constexpr uintptr_t kHugePageBytes = uintptr_t{2} << 20;
  if (bytes < kHugePageBytes) return;
  void* const memory = ::operator new(bytes, std::nothrow);
  if (memory == nullptr) return;
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  // The first one is touched already, by the allocator's own notes.
  AdviseBetween((begin + kHugePageBytes) & ~(kHugePageBytes - 1), (begin + bytes) & ~(kHugePageBytes - 1));
  ::operator delete(memory);
}

}  // namespace reverb::internal
