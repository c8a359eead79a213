// checksum.h — the checksum of stored bytes: XXH3, 64 bits, seed 0.
//
// Detects damage, not tampering. The value is the same on every machine; the widest available vector
// instructions compute it.
// Threads: functions without state.
#ifndef REVERB_TENSOR_CHECKSUM_H_
#define REVERB_TENSOR_CHECKSUM_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace reverb::internal {

uint64_t Checksum(std::span<const uint8_t> bytes);

// Computes the checksum of `size` bytes from `offset` on in scattered parts: the same value as for contiguous
// bytes.
// REQUIRES: the parts contain these bytes.
uint64_t Checksum(std::span<const std::span<const uint8_t>> parts, size_t offset, size_t size);

}  // namespace reverb::internal

#endif  // REVERB_TENSOR_CHECKSUM_H_
