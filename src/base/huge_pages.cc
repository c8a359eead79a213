#include "base/huge_pages.h"

#include <sys/mman.h>

#include <new>

namespace reverb::internal {
namespace {

// Advises the huge pages between the two addresses. The kernel skips unmapped parts.
void AdviseBetween([[maybe_unused]] uintptr_t begin, [[maybe_unused]] uintptr_t end) {
#if defined(MADV_HUGEPAGE)
  if (begin < end) (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

}  // namespace

void HugePageAdvisor::Advise(uintptr_t end) {
  seen_begin_ = end & ~(kHugePageBytes - 1);
  AdviseBetween(seen_begin_ + kHugePageBytes, seen_begin_ + kHugePageBytes + kAheadBytes);
}

void AdviseHugePagesForNext(size_t bytes) {
  constexpr uintptr_t kHugePageBytes = uintptr_t{2} << 20;
  if (bytes < kHugePageBytes) return;
  void* const memory = ::operator new(bytes, std::nothrow);
  if (memory == nullptr) return;
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  // Skips the first huge page: the allocator's metadata has already touched it.
  AdviseBetween((begin + kHugePageBytes) & ~(kHugePageBytes - 1), (begin + bytes) & ~(kHugePageBytes - 1));
  ::operator delete(memory);
}

}  // namespace reverb::internal
