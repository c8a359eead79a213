#include "base/freed_memory.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <cstddef>
#include <cstdlib>

namespace reverb::internal {
namespace {

#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
// Whether a block of this size gets a mapping of its own, which goes back to the system when it is freed.
bool IsMappedAlone(size_t size) {
  const size_t before = mallinfo2().hblks;
  void* volatile block = std::malloc(size);
  const bool is_mapped = mallinfo2().hblks > before;
  std::free(block);
  return is_mapped;
}

TEST(FreedMemoryTest, LargeBlocksComeFromMemoryThatIsKept) {
  // The smallest that has a mapping by default; freeing it does not raise the bound beyond itself.
  if (!IsMappedAlone(size_t{256} << 10)) {
    GTEST_SKIP() << "malloc is not glibc's, or was told otherwise";
  }
  KeepFreedMemory();
  EXPECT_FALSE(IsMappedAlone(size_t{8} << 20));
  KeepFreedMemory();  // the second time does nothing
  EXPECT_FALSE(IsMappedAlone(size_t{8} << 20));
}
#endif

}  // namespace
}  // namespace reverb::internal
