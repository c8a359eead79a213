// Compiled with -mavx2 (see CMakeLists.txt) and reached only where the processor has it.
// It must include nothing with inline functions of external linkage: the linker could take
// their AVX2 form for the whole program.
#if defined(__x86_64__)

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tensor/checksum_internal.h"

namespace reverb::internal {

uint64_t ChecksumAvx2(const void* bytes, size_t size) { return XXH3_64bits(bytes, size); }

}  // namespace reverb::internal

#endif
