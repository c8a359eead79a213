#include "base/flat_array.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>

namespace reverb::internal {
namespace {

constexpr std::align_val_t kLineAlignment{64};

bool IsMapped(size_t bytes) { return bytes >= GrowingMemory::kMinMappedBytes; }

size_t WholePages(size_t bytes) {
  static const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

}  // namespace

void GrowingMemory::Grow(size_t bytes) {
  if (bytes <= bytes_) return;
  std::byte* grown = nullptr;
  if (!IsMapped(bytes)) {
    grown = static_cast<std::byte*>(::operator new(bytes, kLineAlignment));
    if (bytes_ > 0) std::memcpy(grown, data_, bytes_);
    std::memset(grown + bytes_, 0, bytes - bytes_);
    if (data_ != nullptr) ::operator delete(data_, kLineAlignment);
  } else {
    bytes = WholePages(bytes);
    const bool was_mapped = IsMapped(bytes_);
    void* const mapped =
        was_mapped ? mremap(data_, bytes_, bytes, MREMAP_MAYMOVE)
                   : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    grown = static_cast<std::byte*>(mapped);
    if (!was_mapped && data_ != nullptr) {
      std::memcpy(grown, data_, bytes_);
      ::operator delete(data_, kLineAlignment);
    }
  }
  data_ = grown;
  bytes_ = bytes;
}

void GrowingMemory::Free() {
  if (data_ == nullptr) return;
  if (IsMapped(bytes_)) {
    munmap(data_, bytes_);
  } else {
    ::operator delete(data_, kLineAlignment);
  }
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace reverb::internal
