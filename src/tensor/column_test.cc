#include "tensor/column.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tensor/chunk.h"
#include "tensor/chunk_header.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::StatusIs;

using Bytes = std::vector<uint8_t>;
constexpr CodecPolicy kPolicies[] = {CodecPolicy::kAuto, CodecPolicy::kNone, CodecPolicy::kLz4,
                                     CodecPolicy::kZstd, CodecPolicy::kSnappy};

struct Encoded {
  ColumnHeader header;
  Bytes payload;
  uint32_t rows = 0;
  ColumnView view() const { return ColumnView(header, rows); }
};

// Returns bytes that change little from row to row.
Bytes SlowRows(size_t row_bytes, uint32_t rows, uint32_t seed = 1) {
  std::mt19937 rng(seed);
  Bytes row(row_bytes);
  for (uint8_t& byte : row) byte = static_cast<uint8_t>(rng());
  Bytes bytes;
  for (uint32_t i = 0; i < rows; ++i) {
    for (size_t k = 0; k < row_bytes / 50 + 1 && row_bytes > 0; ++k) row[rng() % row_bytes] += 1;
    bytes.insert(bytes.end(), row.begin(), row.end());
  }
  return bytes;
}

// Returns random bytes in which every byte of a row differs a little from the previous row.
Bytes DriftingRows(size_t row_bytes, uint32_t rows) {
  Bytes bytes = SlowRows(row_bytes, 1);
  for (size_t i = row_bytes; i < rows * row_bytes; ++i) {
    bytes.push_back(static_cast<uint8_t>(bytes[i - row_bytes] + i % row_bytes / 100));
  }
  return bytes;
}

Bytes RandomBytes(size_t size, uint32_t seed = 2) {
  std::mt19937 rng(seed);
  Bytes bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng());
  return bytes;
}

Encoded Encode(ColumnEncoder& encoder, const Bytes& raw, uint32_t rows) {
  Encoded encoded;
  encoded.payload = {1, 2, 3};  // blocks are appended to existing bytes
  auto header = encoder.Encode(raw, rows, &encoded.payload);
  EXPECT_OK(header);
  if (header.ok()) encoded.header = *std::move(header);
  EXPECT_EQ(encoded.payload[2], 3);
  encoded.payload.erase(encoded.payload.begin(), encoded.payload.begin() + 3);
  encoded.rows = rows;
  return encoded;
}

void ExpectSound(const Encoded& encoded) {
  const Status valid = ValidateColumn(encoded.view(), encoded.payload.size());
  EXPECT_OK(valid);
  const Status whole = VerifyChecksums(encoded.view(), encoded.payload);
  EXPECT_OK(whole);
}

Bytes Decode(const Encoded& encoded, uint32_t offset, uint32_t count) {
  Bytes out(count * encoded.view().row_bytes());
  const Status status = DecodeRows(encoded.view(), encoded.payload, offset, count, out);
  EXPECT_OK(status);
  return out;
}

Bytes DecodeFromTouchedBlocks(const Encoded& encoded, uint32_t offset, uint32_t count) {
  const BlockRange range = TouchedBlocks(encoded.view(), offset, count);
  const auto begin = encoded.payload.begin() + static_cast<ptrdiff_t>(range.payload_offset);
  const Bytes part(begin, begin + static_cast<ptrdiff_t>(range.payload_size));
  const Status whole = VerifyChecksums(encoded.view(), part, range.first, range.count);
  EXPECT_OK(whole);
  Bytes out(count * encoded.view().row_bytes());
  const Status status = DecodeRows(encoded.view(), part, offset, count, out, range.first);
  EXPECT_OK(status);
  return out;
}

TEST(ColumnTest, RoundTripsEveryDTypePolicyAndSize) {
  std::mt19937 rng(3);
  const std::vector<std::vector<uint32_t>> shapes = {{}, {1}, {3}, {100}, {7, 0, 2}, {20, 20}, {30'011}};
  for (DType dtype : AllDTypes()) {
    if (dtype == DType::kString) continue;
    for (CodecPolicy policy : kPolicies) {
      for (const auto& shape : shapes) {
        for (uint32_t rows : {1u, 2u, 40u, 333u}) {
          const size_t row_bytes = NumElements(shape) * ItemSize(dtype);
          if (row_bytes * rows > 2'000'000) continue;
          ColumnEncoder encoder(dtype, shape, policy);
          for (const Bytes& raw : {SlowRows(row_bytes, rows), RandomBytes(row_bytes * rows)}) {
            const Encoded encoded = Encode(encoder, raw, rows);
            ExpectSound(encoded);
            EXPECT_LE(encoded.payload.size(), raw.size());
            ASSERT_EQ(Decode(encoded, 0, rows), raw) << DTypeName(dtype) << " rows " << rows;
            for (int i = 0; i < 4; ++i) {
              const uint32_t offset = rng() % rows;
              const uint32_t count = rng() % (rows - offset + 1);
              const auto begin = raw.begin() + static_cast<ptrdiff_t>(offset * row_bytes);
              const Bytes slice(begin, begin + static_cast<ptrdiff_t>(count * row_bytes));
              ASSERT_EQ(Decode(encoded, offset, count), slice);
              ASSERT_EQ(DecodeFromTouchedBlocks(encoded, offset, count), slice);
            }
          }
        }
      }
    }
  }
}

TEST(ColumnTest, AReusedHeaderEqualsANewOne) {
  const Bytes slow = SlowRows(7'000, 40);
  const Bytes noise = RandomBytes(400);
  ColumnHeader reused;
  Bytes payload;
  // Compressed, with many blocks and two dimensions: nothing of it may remain.
  ASSERT_OK(ColumnEncoder(DType::kUint8, {70, 100}, CodecPolicy::kAuto).Encode(slow, 40, &payload, &reused));
  ASSERT_NE(reused.codec, Codec::kRaw);
  ASSERT_GT(reused.blocks.size(), 1u);
  payload.clear();
  ColumnEncoder floats(DType::kFloat32, {100}, CodecPolicy::kAuto);
  ASSERT_OK(floats.Encode(noise, 1, &payload, &reused));
  EXPECT_EQ(reused, Encode(floats, noise, 1).header);
  const std::vector<std::string_view> texts = {"a", "bc"};
  ColumnEncoder strings(DType::kString, {}, CodecPolicy::kAuto);
  payload.clear();
  ASSERT_OK(strings.EncodeStrings(texts, 2, &payload, &reused));
  Bytes again;
  const Result<ColumnHeader> fresh = strings.EncodeStrings(texts, 2, &again);
  ASSERT_OK(fresh);
  EXPECT_EQ(reused, *fresh);
}

TEST(ColumnTest, StoresRawChoosesForTheNextEncode) {
  ColumnHeader header;
  Bytes payload;
  const Bytes noise = RandomBytes(4'000);
  ColumnEncoder floats(DType::kFloat32, {100}, CodecPolicy::kAuto);
  Result<bool> is_raw = floats.StoresRaw(noise, 10, &header);
  ASSERT_OK(is_raw);
  EXPECT_TRUE(*is_raw);
  ColumnHeader expected = Encode(floats, noise, 10).header;
  for (BlockInfo& block : expected.blocks) block.checksum = 0;
  EXPECT_EQ(header, expected);

  const Bytes slow = SlowRows(7'000, 40);
  ColumnEncoder frames(DType::kUint8, {70, 100}, CodecPolicy::kAuto);
  is_raw = frames.StoresRaw(slow, 40, &header);
  ASSERT_OK(is_raw);
  EXPECT_FALSE(*is_raw);
  const Encoded encoded = Encode(frames, slow, 40);
  EXPECT_NE(encoded.header.codec, Codec::kRaw);
  EXPECT_EQ(Decode(encoded, 0, 40), slow);

  EXPECT_THAT(floats.StoresRaw(noise, 9, &header), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(ColumnEncoder(DType::kString, {}, CodecPolicy::kAuto).StoresRaw(noise, 1, &header),
              StatusIs(StatusCode::kInvalidArgument));
}

TEST(ColumnTest, DecodingASliceEqualsSlicingTheWhole) {
  constexpr uint32_t kRows = 23;
  constexpr size_t kRowBytes = 20'000;  // three rows per block
  const Bytes raw = SlowRows(kRowBytes, kRows);
  for (CodecPolicy policy : kPolicies) {
    ColumnEncoder encoder(DType::kInt16, {100, 100}, policy);
    const Encoded encoded = Encode(encoder, raw, kRows);
    EXPECT_GT(encoded.header.blocks.size(), 5u);
    for (uint32_t offset = 0; offset <= kRows; ++offset) {
      for (uint32_t count = 0; offset + count <= kRows; ++count) {
        const auto begin = raw.begin() + static_cast<ptrdiff_t>(offset * kRowBytes);
        const Bytes slice(begin, begin + static_cast<ptrdiff_t>(count * kRowBytes));
        ASSERT_EQ(DecodeFromTouchedBlocks(encoded, offset, count), slice);
      }
    }
  }
}

// Returns frames of 84 x 84 bytes: a background of plain stripes, and squares that move.
Bytes PlainFrames(uint32_t rows) {
  constexpr size_t kSide = 84;
  Bytes bytes(rows * kSide * kSide);
  for (uint32_t row = 0; row < rows; ++row) {
    uint8_t* const frame = bytes.data() + row * kSide * kSide;
    for (size_t i = 0; i < kSide * kSide; ++i) frame[i] = static_cast<uint8_t>(i / (12 * kSide) * 20);
    for (size_t square = 0; square < 8; ++square) {
      const size_t x = (square * 9 + row * (square % 3)) % 76;
      const size_t y = (square * 23 + row) % 76;
      for (size_t line = 0; line < 8; ++line) {
        std::memset(frame + (y + line) * kSide + x, static_cast<int>(100 + square), 8);
      }
    }
  }
  return bytes;
}

TEST(ColumnTest, BlocksAreSmallWhereThatHardlyCostsCompression) {
  constexpr uint32_t kRows = 40;
  constexpr size_t kRowBytes = 84 * 84;
  for (const CodecPolicy policy : {CodecPolicy::kAuto, CodecPolicy::kLz4}) {
    const Bytes frames = PlainFrames(kRows);
    ColumnEncoder encoder(DType::kUint8, {84, 84}, policy);
    const Encoded encoded = Encode(encoder, frames, kRows);
    EXPECT_EQ(encoded.header.codec, Codec::kLz4);
    EXPECT_LE(encoded.header.rows_per_block, 2u);
    // LZ4's own compressor, in blocks of eight rows.
    size_t in_large_blocks = 0;
    for (uint32_t row = 0; row < kRows; row += 8) {
      Bytes out(8 * kRowBytes);
      const auto block = std::span(frames).subspan(row * kRowBytes, 8 * kRowBytes);
      const auto size = Compress(Codec::kLz4, block, out);
      ASSERT_OK(size);
      in_large_blocks += *size + sizeof(BlockInfo);
    }
    EXPECT_LE(encoded.payload.size() + encoded.header.blocks.size() * sizeof(BlockInfo), in_large_blocks);
    ExpectSound(encoded);
    for (uint32_t row = 0; row < kRows; ++row) {
      const auto begin = frames.begin() + static_cast<ptrdiff_t>(row * kRowBytes);
      ASSERT_EQ(Decode(encoded, row, 1), Bytes(begin, begin + static_cast<ptrdiff_t>(kRowBytes)));
    }
  }
}

TEST(ColumnTest, BlocksAreLargeWhereSmallOnesCompressWorse) {
  // Each row resembles only the previous ones.
  ColumnEncoder encoder(DType::kUint8, {84, 84}, CodecPolicy::kAuto);
  const Encoded encoded = Encode(encoder, SlowRows(84 * 84, 40), 40);
  EXPECT_EQ(encoded.header.codec, Codec::kLz4);
  EXPECT_EQ(encoded.header.rows_per_block, 8u);
}

TEST(ColumnTest, BlocksAreOfAboutTheSameSize) {
  ColumnEncoder encoder(DType::kUint8, {84, 84}, CodecPolicy::kNone);
  const Encoded encoded = Encode(encoder, Bytes(40 * 84 * 84), 40);
  EXPECT_EQ(encoded.header.rows_per_block, 8u);
  EXPECT_EQ(encoded.header.blocks.size(), 5u);
  ColumnEncoder large(DType::kUint8, {100'000}, CodecPolicy::kNone);
  EXPECT_EQ(Encode(large, Bytes(300'000), 3).header.rows_per_block, 1u);
}

TEST(ColumnTest, EmptyRowsUseOneEmptyBlock) {
  ColumnEncoder encoder(DType::kFloat32, {0, 3}, CodecPolicy::kAuto);
  const Encoded encoded = Encode(encoder, {}, 1000);
  EXPECT_EQ(encoded.header.blocks.size(), 1u);
  EXPECT_TRUE(encoded.payload.empty());
  EXPECT_TRUE(Decode(encoded, 5, 900).empty());
}

// --- Strings ---

Encoded EncodeStrings(ColumnEncoder& encoder, const std::vector<std::string_view>& elements, uint32_t rows) {
  Encoded encoded;
  auto header = encoder.EncodeStrings(elements, rows, &encoded.payload);
  EXPECT_OK(header);
  if (header.ok()) encoded.header = *std::move(header);
  encoded.rows = rows;
  return encoded;
}

TEST(ColumnTest, StringsRoundTrip) {
  std::mt19937 rng(5);
  for (CodecPolicy policy : kPolicies) {
    for (uint32_t rows : {1u, 2u, 50u}) {
      for (size_t longest : {0, 5, 3000, 100'000}) {
        if (longest * rows > 1'000'000) continue;
        std::vector<std::string> owned(rows * 4);
        for (size_t i = 0; i < owned.size(); ++i) {
          owned[i].assign(longest == 0 ? 0 : rng() % longest, static_cast<char>(i % 3));  // including NULs
          if (i % 5 == 0) {
            for (char& c : owned[i]) c = static_cast<char>(rng());
          }
        }
        const std::vector<std::string_view> elements(owned.begin(), owned.end());
        ColumnEncoder encoder(DType::kString, {2, 2}, policy);
        const Encoded encoded = EncodeStrings(encoder, elements, rows);
        ExpectSound(encoded);
        std::vector<std::string> back;
        Status status = DecodeStringRows(encoded.view(), encoded.payload, 0, rows, &back);
        ASSERT_OK(status);
        EXPECT_EQ(back, owned);

        const uint32_t offset = rng() % rows;
        const uint32_t count = rows - offset;
        const BlockRange range = TouchedBlocks(encoded.view(), offset, count);
        const Bytes part(encoded.payload.begin() + static_cast<ptrdiff_t>(range.payload_offset),
                         encoded.payload.end());
        back.clear();
        status = DecodeStringRows(encoded.view(), part, offset, count, &back, range.first);
        ASSERT_OK(status);
        EXPECT_EQ(back, std::vector<std::string>(owned.begin() + offset * 4, owned.end()));
      }
    }
  }
}

TEST(ColumnTest, StringRowsWithoutElements) {
  ColumnEncoder encoder(DType::kString, {0}, CodecPolicy::kAuto);
  const Encoded encoded = EncodeStrings(encoder, {}, 7);
  ExpectSound(encoded);
  std::vector<std::string> back;
  EXPECT_TRUE(DecodeStringRows(encoded.view(), encoded.payload, 2, 5, &back).ok());
  EXPECT_TRUE(back.empty());
}

TEST(ColumnTest, InconsistentStringLengthsAreDataLoss) {
  ColumnEncoder encoder(DType::kString, {}, CodecPolicy::kNone);
  Encoded encoded = EncodeStrings(encoder, {"abc", "de"}, 2);
  std::vector<std::string> back;
  for (uint32_t length : {0u, 1u, 4u, 1000u, 0xffffffffu}) {
    std::memcpy(encoded.payload.data() + 4, &length, 4);
    EXPECT_THAT(DecodeStringRows(encoded.view(), encoded.payload, 0, 2, &back),
                StatusIs(StatusCode::kDataLoss))
        << length;
    // Even if only the intact row is requested.
    EXPECT_THAT(DecodeStringRows(encoded.view(), encoded.payload, 0, 1, &back),
                StatusIs(StatusCode::kDataLoss))
        << length;
  }
}

// --- The policy ---

TEST(ColumnPolicyTest, AutoLeavesRandomFloatsRaw) {
  ColumnEncoder encoder(DType::kFloat32, {64}, CodecPolicy::kAuto);
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(40 * 64);
  for (float& value : values) value = normal(rng);
  Bytes raw(values.size() * 4);
  std::memcpy(raw.data(), values.data(), raw.size());
  const Encoded encoded = Encode(encoder, raw, 40);
  EXPECT_EQ(encoded.header.codec, Codec::kRaw);
  EXPECT_FALSE(encoded.header.delta);
  EXPECT_EQ(encoded.payload, raw);
}

TEST(ColumnPolicyTest, AutoUsesDeltaForFramesThatDrift) {
  ColumnEncoder encoder(DType::kUint8, {84, 84}, CodecPolicy::kAuto);
  const Bytes raw = DriftingRows(84 * 84, 40);
  const Encoded encoded = Encode(encoder, raw, 40);
  EXPECT_EQ(encoded.header.codec, Codec::kLz4);
  EXPECT_TRUE(encoded.header.delta);
  EXPECT_LT(encoded.payload.size() * 3, raw.size());
}

TEST(ColumnPolicyTest, AutoCompressesFramesThatHardlyChange) {
  ColumnEncoder encoder(DType::kUint8, {84, 84}, CodecPolicy::kAuto);
  const Bytes raw = SlowRows(84 * 84, 40);
  const Encoded encoded = Encode(encoder, raw, 40);
  EXPECT_EQ(encoded.header.codec, Codec::kLz4);
  EXPECT_LT(encoded.payload.size() * 3, raw.size());
}

TEST(ColumnPolicyTest, AutoUsesPlainLz4ForSparseFloats) {
  ColumnEncoder encoder(DType::kFloat32, {64}, CodecPolicy::kAuto);
  Bytes raw(40 * 256);
  for (size_t i = 0; i < raw.size(); i += 256) raw[i + i / 256 * 4 % 256] = 63;
  const Encoded encoded = Encode(encoder, raw, 40);
  EXPECT_EQ(encoded.header.codec, Codec::kLz4);
  EXPECT_FALSE(encoded.header.delta);
}

TEST(ColumnPolicyTest, SmallChunksStayRaw) {
  for (CodecPolicy policy : kPolicies) {
    ColumnEncoder encoder(DType::kInt32, {}, policy);
    EXPECT_EQ(Encode(encoder, Bytes(252), 63).header.codec, Codec::kRaw);
    EXPECT_EQ(Encode(encoder, Bytes(256), 64).header.codec == Codec::kRaw, policy == CodecPolicy::kNone);
  }
}

TEST(ColumnPolicyTest, TheChoiceIsReusedFor64Chunks) {
  ColumnEncoder encoder(DType::kUint8, {1000}, CodecPolicy::kAuto);
  const Bytes random = RandomBytes(10'000);
  const Bytes zeros(10'000);
  EXPECT_EQ(Encode(encoder, random, 10).header.codec, Codec::kRaw);
  for (int i = 1; i < 64; ++i) EXPECT_EQ(Encode(encoder, zeros, 10).header.codec, Codec::kRaw) << i;
  EXPECT_EQ(Encode(encoder, zeros, 10).header.codec, Codec::kLz4);
}

TEST(ColumnPolicyTest, AChangedRatioTriggersAProbe) {
  ColumnEncoder encoder(DType::kUint8, {1000}, CodecPolicy::kAuto);
  EXPECT_TRUE(Encode(encoder, DriftingRows(1000, 10), 10).header.delta);
  // stored raw, a probe is due
  EXPECT_EQ(Encode(encoder, RandomBytes(10'000), 10).header.codec, Codec::kRaw);
  EXPECT_EQ(Encode(encoder, RandomBytes(10'000), 10).header.codec, Codec::kRaw);  // probed: raw from here on
  EXPECT_EQ(Encode(encoder, Bytes(10'000), 10).header.codec, Codec::kRaw);
}

TEST(ColumnPolicyTest, AChoiceForSingleRowsIsProbedAgainForMoreRows) {
  ColumnEncoder encoder(DType::kUint8, {1000}, CodecPolicy::kAuto);
  EXPECT_EQ(Encode(encoder, RandomBytes(1000), 1).header.codec, Codec::kRaw);
  EXPECT_TRUE(Encode(encoder, DriftingRows(1000, 10), 10).header.delta);
}

TEST(ColumnPolicyTest, ABlockThatDoesNotShrinkIsStoredRaw) {
  ColumnEncoder encoder(DType::kUint8, {65'536}, CodecPolicy::kLz4);
  Bytes raw(2 * 65'536);
  const Bytes noise = RandomBytes(65'536);
  std::copy(noise.begin(), noise.end(), raw.begin() + 65'536);
  const Encoded encoded = Encode(encoder, raw, 2);
  ASSERT_EQ(encoded.header.blocks.size(), 2u);
  EXPECT_EQ(encoded.header.codec, Codec::kLz4);
  EXPECT_LT(encoded.header.blocks[0].stored_size, 1000u);
  EXPECT_EQ(encoded.header.blocks[1].stored_size, 65'536u);
  ExpectSound(encoded);
  EXPECT_EQ(Decode(encoded, 0, 2), raw);
  EXPECT_EQ(Decode(encoded, 1, 1), noise);
}

// --- Invalid arguments ---

TEST(ColumnTest, EncoderRejectsInvalidInput) {
  Bytes payload = {9};
  ColumnEncoder encoder(DType::kFloat32, {3}, CodecPolicy::kAuto);
  EXPECT_THAT(encoder.Encode(Bytes(12), 0, &payload), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(encoder.Encode(Bytes(13), 1, &payload), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(encoder.EncodeStrings({}, 1, &payload), StatusIs(StatusCode::kInvalidArgument));
  const std::vector<std::string_view> two = {"a", "b"};
  ColumnEncoder strings(DType::kString, {}, CodecPolicy::kAuto);
  EXPECT_THAT(strings.Encode(Bytes(1), 1, &payload), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(strings.EncodeStrings(two, 1, &payload), StatusIs(StatusCode::kInvalidArgument));
  ColumnEncoder huge(DType::kFloat32, {0xffffffff, 0xffffffff, 0xffffffff}, CodecPolicy::kAuto);
  EXPECT_THAT(huge.Encode(Bytes(1), 1, &payload), StatusIs(StatusCode::kInvalidArgument));
  ColumnEncoder deep(DType::kFloat32, std::vector<uint32_t>(65, 1), CodecPolicy::kAuto);
  EXPECT_THAT(deep.Encode(Bytes(4), 1, &payload), StatusIs(StatusCode::kInvalidArgument));
  ColumnEncoder unknown(static_cast<DType>(77), {}, CodecPolicy::kAuto);
  EXPECT_THAT(unknown.Encode({}, 1, &payload), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_EQ(payload, Bytes{9});
}

TEST(ColumnTest, DecoderRejectsRowsOutOfRange) {
  ColumnEncoder encoder(DType::kUint8, {30'000}, CodecPolicy::kAuto);
  const Encoded encoded = Encode(encoder, Bytes(300'000), 10);
  Bytes out(60'000);
  const auto decode = [&](uint32_t offset, uint32_t count, uint32_t first_block) {
    return DecodeRows(encoded.view(), encoded.payload, offset, count, out, first_block).code();
  };
  EXPECT_EQ(decode(0, 2, 0), StatusCode::kOk);
  EXPECT_EQ(decode(9, 2, 0), StatusCode::kInvalidArgument);
  EXPECT_EQ(decode(0xffffffff, 2, 0), StatusCode::kInvalidArgument);
  EXPECT_EQ(decode(0, 1, 0), StatusCode::kInvalidArgument);  // output too large
  EXPECT_EQ(decode(0, 2, 1), StatusCode::kInvalidArgument);  // payload starts after the rows
  EXPECT_EQ(decode(0, 2, 99), StatusCode::kInvalidArgument);
  std::vector<std::string> strings;
  EXPECT_THAT(DecodeStringRows(encoded.view(), encoded.payload, 0, 2, &strings),
              StatusIs(StatusCode::kInvalidArgument));
  const auto cut = std::span(encoded.payload).first(encoded.payload.size() - 1);
  EXPECT_THAT(DecodeRows(encoded.view(), cut, 8, 2, out), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(VerifyChecksums(encoded.view(), cut), StatusIs(StatusCode::kDataLoss));
}

// --- Damage ---

TEST(ColumnTest, ValidationDetectsEveryViolatedInvariant) {
  ColumnEncoder encoder(DType::kUint8, {1000}, CodecPolicy::kAuto);
  const Bytes raw = SlowRows(1000, 100);
  const Encoded good = Encode(encoder, raw, 100);
  ASSERT_EQ(good.header.codec, Codec::kLz4);
  ASSERT_EQ(good.header.blocks.size(), 2u);
  const auto broken = [&](auto change) {
    Encoded bad = good;
    change(bad);
    const Status status = ValidateColumn(bad.view(), bad.payload.size());
    EXPECT_THAT(status, StatusIs(StatusCode::kDataLoss)) << status.ToString();
    Bytes out(bad.view().row_bytes() == 1000 ? 100'000 : 0);
    (void)DecodeRows(bad.view(), bad.payload, 0, 100, out);  // may fail, but stays in bounds
    Bytes one(1000);
    (void)DecodeRows(bad.view(), bad.payload, 99, 1, one);
  };
  broken([](Encoded& e) { e.payload.pop_back(); });
  broken([](Encoded& e) { e.payload.push_back(0); });
  broken([](Encoded& e) { e.rows = 0; });
  broken([](Encoded& e) { e.rows = 200; });
  broken([](Encoded& e) { e.rows = 0xffffffff; });
  broken([](Encoded& e) { e.header.rows_per_block = 0; });
  broken([](Encoded& e) { e.header.rows_per_block = 49; });
  broken([](Encoded& e) { e.header.rows_per_block = 101; });
  broken([](Encoded& e) { e.header.blocks.pop_back(); });
  broken([](Encoded& e) { e.header.blocks.clear(); });
  broken([](Encoded& e) { e.header.blocks[0].raw_size -= 1; });
  broken([](Encoded& e) { e.header.blocks[0].stored_size = 0; });
  broken([](Encoded& e) { e.header.blocks[0].stored_size = 0xffffffff; });
  broken([](Encoded& e) { e.header.blocks[0].stored_size = 10; });  // no codec expands that much
  broken([](Encoded& e) { e.header.codec = Codec::kRaw; });
  broken([](Encoded& e) { e.header.codec = static_cast<Codec>(9); });
  broken([](Encoded& e) { e.header.dtype = static_cast<DType>(99); });
  broken([](Encoded& e) { e.header.dtype = DType::kFloat32; });
  broken([](Encoded& e) { e.header.row_shape = {0xffffffff, 0xffffffff, 0xffffffff}; });
  broken([](Encoded& e) { e.header.row_shape = std::vector<uint32_t>(65, 1); });
  broken([](Encoded& e) { e.header.row_shape = {0}; });

  DecodeLimits limits;
  limits.max_chunk_raw_bytes = 99'999;
  EXPECT_THAT(ValidateColumn(good.view(), good.payload.size(), limits), StatusIs(StatusCode::kDataLoss));
  limits = {};
  limits.max_rows = 99;
  EXPECT_THAT(ValidateColumn(good.view(), good.payload.size(), limits), StatusIs(StatusCode::kDataLoss));
}

TEST(ColumnTest, ADecompressionBombIsRejectedBeforeAllocation) {
  ColumnHeader header;
  header.dtype = DType::kString;
  header.codec = Codec::kZstd;
  header.rows_per_block = 1;
  header.blocks = {{10, 0xffffffff, 0}};
  const Bytes payload(10);
  EXPECT_THAT(ValidateColumn(ColumnView(header, 1), 10), StatusIs(StatusCode::kDataLoss));
  std::vector<std::string> out;
  EXPECT_THAT(DecodeStringRows(ColumnView(header, 1), payload, 0, 1, &out), StatusIs(StatusCode::kDataLoss));
  // Empty strings need memory as well.
  header.codec = Codec::kRaw;
  header.row_shape = {1u << 26};
  header.blocks = {{1u << 28, 1u << 28, 0}};
  EXPECT_THAT(ValidateColumn(ColumnView(header, 1), 1u << 28), StatusIs(StatusCode::kDataLoss));
}

TEST(ColumnTest, EveryFlippedByteFailsTheChecksumAndIsHarmlessWithoutIt) {
  const Bytes raw = SlowRows(50, 20);
  for (CodecPolicy policy : kPolicies) {
    ColumnEncoder encoder(DType::kInt16, {25}, policy);
    const Encoded good = Encode(encoder, raw, 20);
    for (size_t i = 0; i < good.payload.size(); ++i) {
      for (int flip : {1, 0x80, 0xff}) {
        Encoded bad = good;
        bad.payload[i] ^= static_cast<uint8_t>(flip);
        const Status status = VerifyChecksums(bad.view(), bad.payload);
        EXPECT_THAT(status, StatusIs(StatusCode::kDataLoss));
        EXPECT_EQ(status.detail(), Detail::kCorruptData);
        Bytes out(raw.size());
        (void)DecodeRows(bad.view(), bad.payload, 0, 20, out);
        Bytes part(3 * 50);
        (void)DecodeRows(bad.view(), bad.payload, 15, 3, part);
      }
    }
  }
}

TEST(ColumnTest, DecodingAnyOfManyBlocksTakesFewSteps) {
  // Adding up the sizes of all blocks before each row would take minutes.
  constexpr uint32_t kRows = 1 << 20;
  constexpr size_t kRowBytes = 64;
  const Bytes zeros(kRowBytes);
  Bytes row_block(kRowBytes);
  const size_t stored = Compress(Codec::kLz4, zeros, row_block).value();
  ASSERT_GT(stored, 0u);
  ChunkHeader header;
  header.rows = kRows;
  header.last_step = kRows - 1;
  ColumnHeader& column = header.columns.emplace_back();
  column.dtype = DType::kUint8;
  column.codec = Codec::kLz4;
  column.row_shape = {kRowBytes};
  column.rows_per_block = 1;
  column.blocks.assign(kRows, {static_cast<uint32_t>(stored), kRowBytes, 0});
  Bytes payload;
  for (uint32_t i = 0; i < kRows; ++i) {
    payload.insert(payload.end(), row_block.begin(), row_block.begin() + static_cast<ptrdiff_t>(stored));
  }
  const ChunkRef chunk = Chunk::Copy(1, header, payload).value();
  const ColumnView view = chunk->header().column(0);
  Bytes row(kRowBytes, 1);
  for (uint32_t i = 0; i < kRows; i += 2) {
    ASSERT_TRUE(DecodeRows(view, chunk->payload(), kRows - 1 - i, 1, row).ok());
  }
  EXPECT_EQ(row, Bytes(kRowBytes, 0));
}

}  // namespace
}  // namespace reverb::internal
