// Replaces arc4random of glibc 2.36, which the static libstdc++ calls in std::random_device: the program then runs with
// glibc 2.35 as well (docs/wheels.md).
#include <sys/random.h>
#include <sys/types.h>

#include <cstdint>
#include <cstdlib>

extern "C" uint32_t arc4random() noexcept {
  uint32_t value = 0;
  // Short requests are never interrupted; they fail only before Linux 3.17, which has no getrandom.
  if (getrandom(&value, sizeof value, 0) != static_cast<ssize_t>(sizeof value)) std::abort();
  return value;
}
