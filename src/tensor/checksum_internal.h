// checksum_internal.h — the variants of Checksum, each in a file compiled for its processor.
#ifndef REVERB_TENSOR_CHECKSUM_INTERNAL_H_
#define REVERB_TENSOR_CHECKSUM_INTERNAL_H_

#include <cstddef>
#include <cstdint>

namespace reverb::internal {

// REQUIRES: the processor has AVX2.
uint64_t ChecksumAvx2(const void* bytes, size_t size);

}  // namespace reverb::internal

#endif  // REVERB_TENSOR_CHECKSUM_INTERNAL_H_
