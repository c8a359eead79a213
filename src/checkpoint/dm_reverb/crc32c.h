// crc32c.h — computes the checksum of TFRecord files: masked CRC-32C (Castagnoli).
// Threads: free functions without state.
#ifndef REVERB_CHECKPOINT_DM_REVERB_CRC32C_H_
#define REVERB_CHECKPOINT_DM_REVERB_CRC32C_H_

#include <cstdint>
#include <span>

namespace reverb::internal {

// Returns the checksum of `bytes`, continuing from `crc`, that of the bytes before them.
uint32_t Crc32c(std::span<const uint8_t> bytes, uint32_t crc = 0);

// Returns what TFRecord stores, since a plain checksum of data that contains checksums would be weak.
constexpr uint32_t MaskCrc32c(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

}  // namespace reverb::internal

#endif  // REVERB_CHECKPOINT_DM_REVERB_CRC32C_H_
