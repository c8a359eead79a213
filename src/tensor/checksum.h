// checksum.h — the checksum of stored bytes: XXH3, 64 bits, seed 0.
//
// Finds damage, not malice. The value is the same on every machine; the widest vector
// unit at hand computes it.
// Threads: a free function without state.
#ifndef REVERB_TENSOR_CHECKSUM_H_
#define REVERB_TENSOR_CHECKSUM_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace reverb::internal {

uint64_t Checksum(std::span<const uint8_t> bytes);

// Of `size` bytes from `offset` on that lie in many parts: the same value as if they lay together.
// REQUIRES: the parts hold as many.
uint64_t Checksum(std::span<const std::span<const uint8_t>> parts, size_t offset, size_t size);

}  // namespace reverb::internal

#endif  // REVERB_TENSOR_CHECKSUM_H_
