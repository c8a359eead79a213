#include "checkpoint/dm_reverb/crc32c.h"

#include <array>
#include <cstddef>
#include <cstring>

namespace reverb::internal {
namespace {

#if defined(__SSE4_2__)

uint32_t Extend(uint32_t crc, uint8_t byte) { return __builtin_ia32_crc32qi(crc, byte); }
uint32_t Extend8(uint32_t crc, uint64_t bytes) {
  return static_cast<uint32_t>(__builtin_ia32_crc32di(crc, bytes));
}

#else

// tables[k][b]: the effect of byte b on the checksum when k more bytes follow it.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables MakeTables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0x82f63b78u : 0);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < tables.size(); ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t crc = tables[k - 1][byte];
      tables[k][byte] = (crc >> 8) ^ tables[0][crc & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

uint32_t Extend(uint32_t crc, uint8_t byte) { return (crc >> 8) ^ kTables[0][(crc ^ byte) & 0xff]; }
uint32_t Extend8(uint32_t crc, uint64_t bytes) {
  bytes ^= crc;
  crc = 0;
  for (size_t i = 0; i < 8; ++i) crc ^= kTables[7 - i][(bytes >> (8 * i)) & 0xff];
  return crc;
}

#endif

}  // namespace

uint32_t Crc32c(std::span<const uint8_t> bytes, uint32_t crc) {
  crc = ~crc;
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t eight = 0;
    std::memcpy(&eight, bytes.data() + i, sizeof eight);
    crc = Extend8(crc, eight);
  }
  for (; i < bytes.size(); ++i) crc = Extend(crc, bytes[i]);
  return ~crc;
}

}  // namespace reverb::internal
