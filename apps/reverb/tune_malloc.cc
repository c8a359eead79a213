#include "tune_malloc.h"

#include <malloc.h>

#include <limits>

namespace reverb::program {

void TuneMalloc() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());  // 2 GiB does not fit
  mallopt(M_TOP_PAD, 64 << 20);
#endif
}

}  // namespace reverb::program
