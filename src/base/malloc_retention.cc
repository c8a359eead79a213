#include "base/malloc_retention.h"

#include <cstddef>
#include <cstdlib>
#include <string_view>

namespace reverb::internal {
namespace {

// Freeing a block that has its own mapping raises the size above which blocks get their own mapping to this
// value, and the size above which free memory is returned to twice this value (mallopt(3), M_MMAP_THRESHOLD).
// Its pages are never touched.
constexpr size_t kLargeBlock = size_t{16} << 20;

}  // namespace

void KeepFreedMemoryIfEnabled() {
  [[maybe_unused]] static const bool done = [] {
    const char* const setting = std::getenv("REVERB_KEEP_FREED_MEMORY");
    if (setting == nullptr || std::string_view(setting) != "1") return false;
    // volatile: prevents the compiler from removing both calls
    void* volatile block = std::malloc(kLargeBlock);
    std::free(block);
    return true;
  }();
}

}  // namespace reverb::internal
