#include "tensor/lz4_strided.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tensor/codec.h"
#include "testing/seed.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using Bytes = std::vector<uint8_t>;

// Returns `lines` lines of `width` bytes that mostly repeat the line above.
Bytes Picture(size_t width, size_t lines, std::mt19937* rng) {
  Bytes bytes(width * lines);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = i >= width && (*rng)() % 64 != 0 ? bytes[i - width] : static_cast<uint8_t>((*rng)());
  }
  return bytes;
}

Bytes Strided(const Bytes& raw, std::vector<uint32_t> strides) {
  Bytes out(raw.size() + raw.size() / 255 + 16);
  out.resize(CompressLz4Strided(raw, strides, out));
  return out;
}

void ExpectDecodesTo(const Bytes& stored, const Bytes& raw) {
  ASSERT_FALSE(stored.empty());
  Bytes back(raw.size());
  ASSERT_OK(Decompress(Codec::kLz4, stored, back));
  ASSERT_EQ(back, raw);
}

TEST(Lz4StridedTest, RoundTripsEverySmallSize) {
  std::mt19937 rng(test::Seed());
  for (size_t size = 1; size < 400; ++size) {
    SCOPED_TRACE("size " + std::to_string(size));
    Bytes picture = Picture(7, size / 7 + 1, &rng);
    picture.resize(size);
    for (const Bytes& raw : {picture, Bytes(size, 3), Picture(size, 1, &rng)}) {
      ASSERT_NO_FATAL_FAILURE(ExpectDecodesTo(Strided(raw, {}), raw));
      ASSERT_NO_FATAL_FAILURE(ExpectDecodesTo(Strided(raw, {1, 7, 100'000}), raw));
    }
  }
}

TEST(Lz4StridedTest, RoundTripsLargeInputs) {
  std::mt19937 rng(test::Seed());
  for (const size_t width : {1, 3, 84, 1000, 30'000, 65'535, 65'536}) {
    for (const size_t size : {size_t{4000}, kMaxStridedBytes - 1, kMaxStridedBytes}) {
      SCOPED_TRACE("width " + std::to_string(width) + ", size " + std::to_string(size));
      Bytes raw = Picture(width, size / width + 1, &rng);
      raw.resize(size);
      ASSERT_NO_FATAL_FAILURE(ExpectDecodesTo(Strided(raw, {static_cast<uint32_t>(width)}), raw));
    }
  }
}

TEST(Lz4StridedTest, ReturnsZeroIfTheResultDoesNotFit) {
  std::mt19937 rng(test::Seed());
  constexpr uint8_t kUntouched = 0xA5;
  for (const Bytes& raw : {Picture(84, 4, &rng), Picture(300, 1, &rng), Bytes(5000, 1)}) {
    const Bytes stored = Strided(raw, {84});
    for (size_t room = 0; room <= stored.size(); ++room) {
      Bytes out(stored.size() + 32, kUntouched);
      const std::vector<uint32_t> strides = {84};
      const size_t size = CompressLz4Strided(raw, strides, std::span(out).first(room));
      ASSERT_TRUE(size == 0 || (size == stored.size() && room == size)) << room << " gave " << size;
      ASSERT_TRUE(std::all_of(out.begin() + static_cast<ptrdiff_t>(room), out.end(),
                              [](uint8_t byte) { return byte == kUntouched; }));
    }
  }
  Bytes out(2 * kMaxStridedBytes);
  EXPECT_EQ(CompressLz4Strided(Bytes(kMaxStridedBytes + 1), {}, out), 0u);
}

TEST(Lz4StridedTest, FindsMatchesAtTheStrides) {
  std::mt19937 rng(test::Seed());
  const Bytes raw = Picture(200, 200, &rng);
  Bytes lz4(raw.size());
  const Result<size_t> plain = Compress(Codec::kLz4, raw, lz4);
  ASSERT_OK(plain);
  EXPECT_LT(Strided(raw, {200}).size(), *plain - *plain / 8);
}

}  // namespace
}  // namespace reverb::internal
