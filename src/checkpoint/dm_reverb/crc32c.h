// crc32c.h — the checksum of TFRecord files: CRC-32C (Castagnoli), and the mask that they wear.
// Threads: free functions without state.
#ifndef REVERB_CHECKPOINT_DM_REVERB_CRC32C_H_
#define REVERB_CHECKPOINT_DM_REVERB_CRC32C_H_

#include <cstdint>
#include <span>

namespace reverb::internal {

// Of `bytes`, continuing from `crc`, the checksum of what came before them.
uint32_t Crc32c(std::span<const uint8_t> bytes, uint32_t crc = 0);

// What TFRecord stores: a checksum of data that holds checksums of its own would be weak.
constexpr uint32_t MaskCrc32c(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

}  // namespace reverb::internal

#endif  // REVERB_CHECKPOINT_DM_REVERB_CRC32C_H_
