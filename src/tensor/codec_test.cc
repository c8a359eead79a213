#include "tensor/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tensor/checksum.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::StatusIs;

using Bytes = std::vector<uint8_t>;
constexpr Codec kCodecs[] = {Codec::kLz4, Codec::kZstd, Codec::kSnappy};

Bytes Compressible(size_t size) {
  std::mt19937 rng(7);
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = i % 16 == 0 ? static_cast<uint8_t>(rng()) : uint8_t{3};
  return bytes;
}

Bytes Random(size_t size) {
  std::mt19937 rng(9);
  Bytes bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng());
  return bytes;
}

Bytes Compressed(Codec codec, const Bytes& raw) {
  Bytes out(raw.size() * 2 + 1000);
  const auto size = Compress(codec, raw, out);
  EXPECT_OK(size);
  out.resize(*size);
  return out;
}

TEST(CodecTest, RoundTrips) {
  for (Codec codec : kCodecs) {
    for (size_t size : {1, 13, 256, 7056, 65536, 200'000}) {
      for (const Bytes& raw : {Compressible(size), Random(size), Bytes(size, 0)}) {
        const Bytes stored = Compressed(codec, raw);
        ASSERT_FALSE(stored.empty());
        EXPECT_LE(raw.size(), MaxRawSize(codec, stored.size()));
        Bytes back(size);
        const Status status = Decompress(codec, stored, back);
        EXPECT_OK(status);
        EXPECT_EQ(back, raw);
      }
    }
  }
}

TEST(CodecTest, ReturnsZeroIfTheResultDoesNotFit) {
  const Bytes raw = Random(5000);
  for (Codec codec : kCodecs) {
    Bytes out(4000);
    EXPECT_EQ(*Compress(codec, raw, out), 0u) << CodecName(codec);
  }
}

TEST(CodecTest, AWrongSizeIsDataLoss) {
  const Bytes raw = Compressible(5000);
  for (Codec codec : kCodecs) {
    const Bytes stored = Compressed(codec, raw);
    for (size_t size : {size_t{1}, raw.size() - 1, raw.size() + 1, raw.size() * 2}) {
      Bytes back(size);
      const Status status = Decompress(codec, stored, back);
      EXPECT_THAT(status, StatusIs(StatusCode::kDataLoss)) << CodecName(codec) << " " << size;
      EXPECT_EQ(status.detail(), Detail::kCorruptData);
    }
    Bytes back(10);
    EXPECT_FALSE(Decompress(codec, {}, back).ok());
  }
}

TEST(CodecTest, CutOrFlippedInputStaysInBounds) {  // checked by ASan
  const Bytes raw = Compressible(700);
  for (Codec codec : kCodecs) {
    const Bytes stored = Compressed(codec, raw);
    for (size_t cut = 0; cut < stored.size(); ++cut) {
      const Bytes bad(stored.begin(), stored.begin() + static_cast<ptrdiff_t>(cut));
      Bytes back(raw.size());
      EXPECT_FALSE(Decompress(codec, bad, back).ok());
    }
    for (size_t i = 0; i < stored.size(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        Bytes bad = stored;
        bad[i] ^= static_cast<uint8_t>(1 << bit);
        Bytes back(raw.size());
        (void)Decompress(codec, bad, back);
        if (CanDecompressPrefix(codec)) {
          Bytes prefix(333);
          (void)DecompressPrefix(codec, bad, prefix);
        }
      }
    }
  }
}

TEST(CodecTest, DecompressPrefixReturnsThePrefix) {
  const Bytes raw = Compressible(70'000);
  for (Codec codec : kCodecs) {
    if (!CanDecompressPrefix(codec)) continue;
    const Bytes stored = Compressed(codec, raw);
    for (size_t size : {0, 1, 2, 15, 16, 17, 4095, 4096, 69'999, 70'000}) {
      Bytes back(size);
      const Status status = DecompressPrefix(codec, stored, back);
      ASSERT_OK(status);
      EXPECT_TRUE(std::equal(back.begin(), back.end(), raw.begin()));
    }
    Bytes more(raw.size() + 1);
    EXPECT_FALSE(DecompressPrefix(codec, stored, more).ok());
  }
}

TEST(ChecksumTest, IsXxh3) {
  EXPECT_EQ(Checksum({}), 0x2D06800538D394C2u);  // XXH3-64 of empty input, as published
  const Bytes bytes = Compressible(100'000);
  const uint64_t whole = Checksum(bytes);
  Bytes other = bytes;
  other[54'321] ^= 1;
  EXPECT_NE(Checksum(other), whole);
}

}  // namespace
}  // namespace reverb::internal
