#include "base/malloc_retention.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace reverb::internal {
namespace {

#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
// Returns whether a block of this size gets its own mapping, which is unmapped when the block is freed.
bool IsMappedAlone(size_t size) {
  const size_t before = mallinfo2().hblks;
  void* volatile block = std::malloc(size);
  const bool is_mapped = mallinfo2().hblks > before;
  std::free(block);
  return is_mapped;
}

// Runs in a separate process, because malloc and KeepFreedMemoryIfEnabled() keep state. Reports whether a
// block of 8 MB has its own mapping afterwards.
[[noreturn]] void ReportAfterKeeping(const char* setting) {
  if (setting != nullptr) {
    setenv("REVERB_KEEP_FREED_MEMORY", setting, /*overwrite=*/1);
  } else {
    unsetenv("REVERB_KEEP_FREED_MEMORY");
  }
  // The smallest block that has a mapping by default; freeing it does not raise the threshold above its size.
  const bool is_default = IsMappedAlone(size_t{256} << 10);
  KeepFreedMemoryIfEnabled();
  KeepFreedMemoryIfEnabled();  // the second call does nothing
  const bool is_mapped = IsMappedAlone(size_t{8} << 20);
  std::fputs(!is_default ? "not glibc's malloc with its defaults" : is_mapped ? "mapped" : "kept", stderr);
  std::_Exit(0);
}

TEST(FreedMemoryDeathTest, MallocIsChangedOnlyIfEnabled) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(ReportAfterKeeping(nullptr), testing::ExitedWithCode(0), "^mapped|^not glibc");
  EXPECT_EXIT(ReportAfterKeeping("0"), testing::ExitedWithCode(0), "^mapped|^not glibc");
  EXPECT_EXIT(ReportAfterKeeping("1"), testing::ExitedWithCode(0), "^kept|^not glibc");
}
#endif

}  // namespace
}  // namespace reverb::internal
