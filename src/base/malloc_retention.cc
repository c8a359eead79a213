#include "base/malloc_retention.h"

#include <cstddef>
#include <cstdlib>
#include <string_view>

namespace reverb::internal {
namespace {

// Freeing a block that has a mapping of its own raises the size from which blocks get one to this, and the
// size from which free memory is given back to twice this (mallopt(3), M_MMAP_THRESHOLD). Its pages are never
// touched.
constexpr size_t kLargeBlock = size_t{16} << 20;

}  // namespace

void KeepFreedMemoryIfAsked() {
  [[maybe_unused]] static const bool done = [] {
    const char* const asked = std::getenv("REVERB_KEEP_FREED_MEMORY");
    if (asked == nullptr || std::string_view(asked) != "1") return false;
    void* volatile block = std::malloc(kLargeBlock);  // volatile: lest the compiler leaves both out
    std::free(block);
    return true;
  }();
}

}  // namespace reverb::internal
