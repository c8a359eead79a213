#include "tensor/checksum.h"

// Compiled into this file, rather than called in the library, so that checksum_avx2.cc can
// have the same code for wider registers: 40 GB/s instead of 20 where it was measured.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tensor/checksum_internal.h"

namespace reverb::internal {
namespace {

uint64_t ChecksumBaseline(const void* bytes, size_t size) { return XXH3_64bits(bytes, size); }

auto* Choose() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return &ChecksumAvx2;
#endif
  return &ChecksumBaseline;
}

}  // namespace

uint64_t Checksum(std::span<const uint8_t> bytes) {
  static const auto chosen = Choose();
  return chosen(bytes.data(), bytes.size());
}

}  // namespace reverb::internal
