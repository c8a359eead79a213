#include "tune_malloc.h"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

namespace reverb::program {

#ifdef __GLIBC__
namespace {

// Keeps the user's setting in the environment `variable` (see mallopt(3)).
void SetUnlessChosen(int parameter, const char* variable, int value) {
  if (std::getenv(variable) == nullptr) mallopt(parameter, value);
}

}  // namespace

void TuneMalloc() {
  SetUnlessChosen(M_MMAP_THRESHOLD, "MALLOC_MMAP_THRESHOLD_",
                  32 << 20);  // the maximum of all versions
  SetUnlessChosen(M_TRIM_THRESHOLD, "MALLOC_TRIM_THRESHOLD_", 32 << 20);
  SetUnlessChosen(M_TOP_PAD, "MALLOC_TOP_PAD_", 16 << 20);  // base/huge_pages.h looks ahead by less
  // On 16 cores four are half again as fast as two, for inserts and samples of 400 B; eight and more are no faster.
  const int arenas = std::thread::hardware_concurrency() >= 16 ? 4 : 1;
  SetUnlessChosen(M_ARENA_MAX, "MALLOC_ARENA_MAX", arenas);
}
#else
void TuneMalloc() {}
#endif

bool HeapTrimmer::Observe(int64_t data_bytes) {
  const int64_t recent = std::max(data_bytes, std::exchange(previous_, data_bytes));
  largest_ = std::max(largest_, data_bytes);
  if (largest_ - recent < kMinReleasedBytes) return false;
  largest_ = recent;
#ifdef __GLIBC__
  malloc_trim(0);
#endif
  return true;
}

}  // namespace reverb::program
