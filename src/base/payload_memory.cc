#include "base/payload_memory.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <new>

// AddressSanitizer detects leaks, overruns and use after free only in heap memory.
#if defined(__SANITIZE_ADDRESS__)
#define REVERB_HEAP_ONLY 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define REVERB_HEAP_ONLY 1
#endif
#endif

namespace reverb::internal {
namespace {

#ifdef REVERB_HEAP_ONLY
constexpr size_t kMinPooledBytesOfProcess = SIZE_MAX;
#else
constexpr size_t kMinPooledBytesOfProcess = PayloadMemory::kMinPooledBytes;
#endif

// The aligned operators cost more, even for the default alignment.
void* AllocateFromHeap(size_t bytes, std::align_val_t alignment) {
  if (alignment <= PayloadMemory::kAlignment) return ::operator new(bytes, std::nothrow);
  return ::operator new(bytes, alignment, std::nothrow);
}
void FreeToHeap(void* block, std::align_val_t alignment) {
  if (alignment <= PayloadMemory::kAlignment) return ::operator delete(block);
  ::operator delete(block, alignment);
}

}  // namespace

PayloadMemory::PayloadMemory(Clock* clock, size_t min_pooled_bytes)
    : min_pooled_bytes_(
          std::max({min_pooled_bytes, kMinPooledBytes, 4 * static_cast<size_t>(::sysconf(_SC_PAGESIZE))})),
      pool_(clock, this) {}

void* PayloadMemory::Allocate(size_t bytes, std::align_val_t alignment) {
  return IsPooled(bytes) ? pool_.Allocate(bytes) : AllocateFromHeap(bytes, alignment);
}

void PayloadMemory::Free(void* block, size_t bytes, std::align_val_t alignment) {
  if (!IsPooled(bytes)) return FreeToHeap(block, alignment);
  pool_.Free(static_cast<uint8_t*>(block), bytes);
}

uint8_t* PayloadMemory::Map(size_t bytes) {
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<uint8_t*>(memory);
}
void PayloadMemory::Unmap(uint8_t* memory, size_t bytes) { (void)::munmap(memory, bytes); }
void PayloadMemory::Discard(uint8_t* memory, size_t bytes) { (void)::madvise(memory, bytes, MADV_DONTNEED); }

void PayloadMemory::LockForFork() NO_THREAD_SAFETY_ANALYSIS { ProcessPayloadMemory()->pool_.LockForFork(); }
void PayloadMemory::UnlockInParent() NO_THREAD_SAFETY_ANALYSIS {
  ProcessPayloadMemory()->pool_.UnlockInParent();
}
void PayloadMemory::UnlockInChild() NO_THREAD_SAFETY_ANALYSIS {
  ProcessPayloadMemory()->pool_.UnlockInChild(/*forget_blocks=*/false);
}

PayloadMemory* ProcessPayloadMemory() {
  static PayloadMemory* const memory = [] {
    // Registration fails only if no memory is left.
    (void)pthread_atfork(PayloadMemory::LockForFork, PayloadMemory::UnlockInParent,
                         PayloadMemory::UnlockInChild);
    return new PayloadMemory(RealClock(), kMinPooledBytesOfProcess);
  }();
  return memory;
}

}  // namespace reverb::internal
