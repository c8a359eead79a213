#include "base/random.h"

#include <sys/random.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstring>

namespace reverb::internal {

std::array<uint8_t, 16> RandomId() {
  std::array<uint8_t, 16> id;
  for (size_t half = 0; half < 2; ++half) {
    const uint64_t bits = EntropySeed();
    std::memcpy(id.data() + 8 * half, &bits, 8);
  }
  return id;
}

uint64_t EntropySeed() {
  // Avoids std::random_device, which reports failure by throwing.
  uint64_t seed = 0;
  if (getentropy(&seed, sizeof(seed)) == 0) return seed;
  // Reached only on kernels and in sandboxes without getentropy(). Time, process ID and address-space layout
  // still distinguish processes and calls.
  const uint64_t now = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  const uint64_t wall = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  Random mix(now ^ (wall << 1) ^ (static_cast<uint64_t>(getpid()) << 32) ^
             reinterpret_cast<uintptr_t>(&seed));
  return mix.Next();
}

}  // namespace reverb::internal
