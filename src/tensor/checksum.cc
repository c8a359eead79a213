#include "tensor/checksum.h"

// Compiles xxhash into this file instead of linking the library, so that checksum_avx2.cc can contain the
// same code for wider registers: 40 GB/s instead of 20 in measurements.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <vector>

#include "base/scattered_bytes.h"
#include "tensor/checksum_internal.h"

namespace reverb::internal {
namespace {

uint64_t ChecksumBaseline(const void* bytes, size_t size) { return XXH3_64bits(bytes, size); }

uint64_t ChecksumPartsBaseline(const ChecksumPart* parts, size_t count) {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (size_t i = 0; i < count; ++i) XXH3_64bits_update(&state, parts[i].bytes, parts[i].size);
  return XXH3_64bits_digest(&state);
}

struct Variants {
  uint64_t (*whole)(const void* bytes, size_t size) = &ChecksumBaseline;
  uint64_t (*parts)(const ChecksumPart* parts, size_t count) = &ChecksumPartsBaseline;
};

const Variants& Chosen() {
  static const Variants variants = [] {
    Variants chosen;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) chosen = {&ChecksumAvx2, &ChecksumPartsAvx2};
#endif
    return chosen;
  }();
  return variants;
}

}  // namespace

uint64_t Checksum(std::span<const uint8_t> bytes) { return Chosen().whole(bytes.data(), bytes.size()); }

uint64_t Checksum(std::span<const std::span<const uint8_t>> parts, size_t offset, size_t size) {
  std::vector<ChecksumPart> selected;
  ForEachPart(parts, offset, size, [&](std::span<const uint8_t> part) {
    selected.push_back({part.data(), part.size()});
  });
  if (selected.size() == 1) return Chosen().whole(selected[0].bytes, selected[0].size);
  return Chosen().parts(selected.data(), selected.size());
}

}  // namespace reverb::internal
