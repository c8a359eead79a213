// Compiled with -mavx2 (see CMakeLists.txt) and called only if the processor supports it. Must not include
// headers with inline functions of external linkage: the linker could choose their AVX2 version for the whole
// program.
#if defined(__x86_64__)

#include <immintrin.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tensor/checksum_internal.h"

namespace reverb::internal {

// GCC does not clear the upper halves of the registers at the end of xxhash's loops. While they are in use, every switch
// between code for AVX and for SSE, which is most of this program, costs some hundred cycles on some processors.
uint64_t ChecksumAvx2(const void* bytes, size_t size) {
  const uint64_t checksum = XXH3_64bits(bytes, size);
  _mm256_zeroupper();
  return checksum;
}

uint64_t ChecksumPartsAvx2(const ChecksumPart* parts, size_t count) {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (size_t i = 0; i < count; ++i) XXH3_64bits_update(&state, parts[i].bytes, parts[i].size);
  const uint64_t checksum = XXH3_64bits_digest(&state);
  _mm256_zeroupper();
  return checksum;
}

}  // namespace reverb::internal

#endif
