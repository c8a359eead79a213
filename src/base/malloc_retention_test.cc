#include "base/malloc_retention.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <cstddef>
#include <cstdio>
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

// Runs in a process of its own, since malloc and KeepFreedMemoryIfAsked() remember. Says whether a block of 8
// MB has a mapping of its own afterwards.
[[noreturn]] void ReportAfterKeeping(const char* asked) {
  if (asked != nullptr) {
    setenv("REVERB_KEEP_FREED_MEMORY", asked, /*overwrite=*/1);
  } else {
    unsetenv("REVERB_KEEP_FREED_MEMORY");
  }
  // The smallest that has a mapping by default; freeing it does not raise the bound beyond itself.
  const bool is_default = IsMappedAlone(size_t{256} << 10);
  KeepFreedMemoryIfAsked();
  KeepFreedMemoryIfAsked();  // the second time does nothing
  const bool is_mapped = IsMappedAlone(size_t{8} << 20);
  std::fputs(!is_default ? "not glibc's malloc with its defaults" : is_mapped ? "mapped" : "kept", stderr);
  std::_Exit(0);
}

TEST(FreedMemoryDeathTest, MallocIsChangedOnlyWhenAsked) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(ReportAfterKeeping(nullptr), testing::ExitedWithCode(0), "^mapped|^not glibc");
  EXPECT_EXIT(ReportAfterKeeping("0"), testing::ExitedWithCode(0), "^mapped|^not glibc");
  EXPECT_EXIT(ReportAfterKeeping("1"), testing::ExitedWithCode(0), "^kept|^not glibc");
}
#endif

}  // namespace
}  // namespace reverb::internal
