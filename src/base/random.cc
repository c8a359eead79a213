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
  // Not std::random_device: it reports failure by throwing.
  uint64_t seed = 0;
  if (getentropy(&seed, sizeof(seed)) == 0) return seed;
  // Only kernels and sandboxes without the call get here. Time, process and address-space layout
  // still tell apart two processes and two calls.
  const uint64_t now = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  const uint64_t wall = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  Random mix(now ^ (wall << 1) ^ (static_cast<uint64_t>(getpid()) << 32) ^
             reinterpret_cast<uintptr_t>(&seed));
  return mix.Next();
}

}  // namespace reverb::internal
