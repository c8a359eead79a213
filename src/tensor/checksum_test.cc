#include "tensor/checksum.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "testing/wide_registers.h"

namespace reverb::internal {
namespace {

constexpr size_t kSizes[] = {0, 4, 16, 24, 128, 129, 240, 241, 400, 1024, 1025, 5000, 70000};

std::vector<uint8_t> Numbered(size_t size) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(i * 7 + i / 251);
  return bytes;
}

TEST(ChecksumTest, PartsHaveTheChecksumOfTheWhole) {
  for (const size_t size : kSizes) {
    const std::vector<uint8_t> bytes = Numbered(size);
    const std::span<const uint8_t> whole(bytes);
    const std::vector<std::span<const uint8_t>> parts = {whole.first(size / 3), whole.subspan(size / 3)};
    EXPECT_EQ(Checksum(parts, 0, size), Checksum(whole)) << size;
  }
}

// Sampling after an insert on the same thread took twice as long before.
TEST(ChecksumTest, LeavesNoWideRegistersInUse) {
  uint64_t sum = 0;
  for (const size_t size : kSizes) {
    const std::vector<uint8_t> bytes = Numbered(size);
    const std::span<const uint8_t> whole(bytes);
    const std::vector<std::span<const uint8_t>> parts = {whole.first(size / 3), whole.subspan(size / 3)};
    const auto after_whole = test::LeavesWideRegistersInUse([&] { sum += Checksum(whole); });
    if (!after_whole) GTEST_SKIP() << "this processor does not tell which registers are in use";
    EXPECT_FALSE(*after_whole) << size;
    EXPECT_FALSE(*test::LeavesWideRegistersInUse([&] { sum += Checksum(parts, 0, size); }))
        << size << " in parts";
  }
  EXPECT_NE(sum, 0U);
}

}  // namespace
}  // namespace reverb::internal
