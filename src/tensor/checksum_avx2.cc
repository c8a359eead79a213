// Compiled with -mavx2 (see CMakeLists.txt) and called only if the processor supports it. Must not include
// headers with inline functions of external linkage: the linker could choose their AVX2 version for the whole
// program.
#if defined(__x86_64__)

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tensor/checksum_internal.h"

namespace reverb::internal {

uint64_t ChecksumAvx2(const void* bytes, size_t size) { return XXH3_64bits(bytes, size); }

uint64_t ChecksumPartsAvx2(const ChecksumPart* parts, size_t count) {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (size_t i = 0; i < count; ++i) XXH3_64bits_update(&state, parts[i].bytes, parts[i].size);
  return XXH3_64bits_digest(&state);
}

}  // namespace reverb::internal

#endif
