// checksum_internal.h — the implementations of Checksum, each in a file compiled for its processor.
#ifndef REVERB_TENSOR_CHECKSUM_INTERNAL_H_
#define REVERB_TENSOR_CHECKSUM_INTERNAL_H_

#include <cstddef>
#include <cstdint>

namespace reverb::internal {

// REQUIRES: the processor has AVX2.
uint64_t ChecksumAvx2(const void* bytes, size_t size);

// One of several consecutive parts.
struct ChecksumPart {
  const void* bytes;
  size_t size;
};
uint64_t ChecksumPartsAvx2(const ChecksumPart* parts, size_t count);

}  // namespace reverb::internal

#endif  // REVERB_TENSOR_CHECKSUM_INTERNAL_H_
