#include "tensor/delta.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace reverb::internal {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes Random(size_t size) {
  std::mt19937 rng(9);
  Bytes bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng());
  return bytes;
}

TEST(DeltaTest, DecodingIsTheExactInverse) {
  for (size_t width : {1, 2, 4, 8}) {
    for (size_t elements : {1, 2, 3, 7, 16, 17, 63, 64, 65, 1000}) {
      for (size_t rows : {1, 2, 3, 40}) {
        const size_t row_bytes = width * elements;
        // Offset by one byte, so that nothing is aligned.
        const Bytes raw = Random(rows * row_bytes + 1);
        Bytes encoded(raw.size());
        DeltaEncode(raw.data() + 1, encoded.data() + 1, rows, row_bytes, width);
        DeltaDecode(encoded.data() + 1, rows, row_bytes, width);
        EXPECT_TRUE(std::equal(raw.begin() + 1, raw.end(), encoded.begin() + 1)) << width << " " << elements;
      }
    }
  }
}

TEST(DeltaTest, SubtractsNeighbouringRowsModuloTheWidth) {
  const uint16_t rows[] = {1, 65535, 0, 1, 256, 255};  // three rows of two elements
  uint16_t out[6];
  DeltaEncode(reinterpret_cast<const uint8_t*>(rows), reinterpret_cast<uint8_t*>(out), 3, 4, 2);
  const uint16_t expected[] = {1, 65535, 65535, 2, 256, 254};
  EXPECT_TRUE(std::equal(std::begin(out), std::end(out), expected));
}

TEST(DeltaTest, AppliesToIntegersAndBoolOnly) {
  EXPECT_EQ(DeltaWidth(DType::kBool), 1u);
  EXPECT_EQ(DeltaWidth(DType::kUint64), 8u);
  EXPECT_EQ(DeltaWidth(DType::kFloat32), 0u);
  EXPECT_EQ(DeltaWidth(DType::kString), 0u);
  EXPECT_EQ(DeltaWidth(DType::kComplex64), 0u);
}

}  // namespace
}  // namespace reverb::internal
