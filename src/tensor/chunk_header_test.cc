#include "tensor/chunk_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <utility>

#include "tensor/chunk.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::StatusIs;

struct Example {
  ChunkHeader header;
  std::vector<uint8_t> payload;
};

// Three columns of 40 rows: frames in several blocks, strings, scalars.
Example MakeExample() {
  constexpr uint32_t kRows = 40;
  Example example;
  example.header = {
      .episode_id = 0x0123456789abcdef, .first_step = -3, .last_step = 50, .rows = kRows, .columns = {}};

  std::mt19937 rng(1);
  std::vector<uint8_t> frames(kRows * 84 * 84);
  for (uint8_t& byte : frames) byte = rng() % 64 == 0 ? 200 : 7;
  ColumnEncoder frame_encoder(DType::kUint8, {84, 84}, CodecPolicy::kAuto);
  example.header.columns.push_back(*frame_encoder.Encode(frames, kRows, &example.payload));

  const std::vector<std::string_view> strings(kRows, "a string");
  ColumnEncoder string_encoder(DType::kString, {}, CodecPolicy::kZstd);
  example.header.columns.push_back(*string_encoder.EncodeStrings(strings, kRows, &example.payload));

  ColumnEncoder scalar_encoder(DType::kFloat64, {}, CodecPolicy::kAuto);
  example.header.columns.push_back(
      *scalar_encoder.Encode(std::vector<uint8_t>(kRows * 8, 5), kRows, &example.payload));
  return example;
}

std::string Encoded(const ChunkHeader& header) {
  std::string bytes;
  EncodeChunkHeader(header, &bytes);
  return bytes;
}

TEST(ChunkHeaderTest, EncodesAndDecodes) {
  const Example example = MakeExample();
  EXPECT_EQ(PayloadSize(example.header), example.payload.size());
  const std::string bytes = Encoded(example.header);
  const auto decoded = DecodeChunkHeader(bytes);
  ASSERT_OK(decoded);
  EXPECT_EQ(*decoded, example.header);
}

TEST(ChunkHeaderTest, StepsMayHaveAnyValuesIfThereAreEnough) {
  ChunkHeader header = MakeExample().header;
  const int64_t more = int64_t{header.rows} - 1;
  for (auto [first, last] : std::vector<std::pair<int64_t, int64_t>>{{INT64_MIN, INT64_MAX},
                                                                     {INT64_MAX - more, INT64_MAX},
                                                                     {INT64_MIN, INT64_MIN + more},
                                                                     {-1, more}}) {
    header.first_step = first;
    header.last_step = last;
    const auto decoded = DecodeChunkHeader(Encoded(header));
    ASSERT_OK(decoded);
    EXPECT_EQ(*decoded, header);
  }
  header.first_step = 1;
  header.last_step = 0;
  EXPECT_THAT(DecodeChunkHeader(Encoded(header)), StatusIs(StatusCode::kDataLoss));
  header.last_step = more;  // one step less than the number of rows
  EXPECT_THAT(DecodeChunkHeader(Encoded(header)), StatusIs(StatusCode::kDataLoss));
}

TEST(ChunkHeaderTest, SumsOverColumnsAreLimited) {
  const Example example = MakeExample();
  const std::string bytes = Encoded(example.header);
  DecodeLimits limits;
  limits.max_columns = 2;
  EXPECT_THAT(DecodeChunkHeader(bytes, limits), StatusIs(StatusCode::kDataLoss));
  limits = {};
  limits.max_chunk_raw_bytes = 40 * 84 * 84 + 100;  // enough for each column, not for all
  EXPECT_THAT(DecodeChunkHeader(bytes, limits), StatusIs(StatusCode::kDataLoss));
  limits = {};
  limits.max_rows = 39;
  EXPECT_THAT(DecodeChunkHeader(bytes, limits), StatusIs(StatusCode::kDataLoss));

  ChunkHeader empty;
  empty.rows = 1;
  EXPECT_THAT(DecodeChunkHeader(Encoded(empty)), StatusIs(StatusCode::kDataLoss));

  // 2,000 columns of rank 64 have more dimensions than the packed form can index.
  ColumnHeader column;
  column.row_shape.assign(64, 1);
  column.rows_per_block = 1;
  column.blocks = {{4, 4, 0}};
  ChunkHeader many;
  many.rows = 1;
  many.columns.assign(2000, column);
  EXPECT_THAT(ValidateChunkHeader(many), StatusIs(StatusCode::kDataLoss));
  many.columns.resize(1000);
  EXPECT_TRUE(ValidateChunkHeader(many).ok());
}

TEST(ChunkHeaderTest, DamageIsAnErrorOrAnotherValidHeader) {
  const std::string good = Encoded(MakeExample().header);
  for (size_t cut = 0; cut < good.size(); ++cut) {
    EXPECT_THAT(DecodeChunkHeader(good.substr(0, cut)), StatusIs(StatusCode::kDataLoss)) << cut;
  }
  EXPECT_THAT(DecodeChunkHeader(good + '\0'), StatusIs(StatusCode::kDataLoss));
  for (size_t i = 0; i < good.size(); ++i) {
    for (int flip = 1; flip < 256; ++flip) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ flip);
      const auto decoded = DecodeChunkHeader(bad);
      if (decoded.ok()) {
        ASSERT_EQ(Encoded(*decoded), bad);
      }
    }
  }
}

TEST(ChunkHeaderTest, RandomBytesNeverCrash) {
  std::mt19937 rng(4);
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes(rng() % 60, '\0');
    for (char& c : bytes) c = static_cast<char>(rng() % (i % 2 ? 256 : 4));
    if (!bytes.empty()) bytes[0] = 1;
    const auto decoded = DecodeChunkHeader(bytes);
    if (decoded.ok()) {
      EXPECT_EQ(Encoded(*decoded), bytes);
    }
  }
}

std::vector<uint64_t> Packed(const ChunkHeader& header) {
  std::vector<uint64_t> words(PackedSize(header) / 8);
  EXPECT_EQ(PackedSize(header) % 8, 0u);
  Pack(header, reinterpret_cast<uint8_t*>(words.data()));
  return words;
}

TEST(PackedChunkHeaderTest, ReturnsWhatWasPacked) {
  const Example example = MakeExample();
  const std::vector<uint64_t> words = Packed(example.header);
  const PackedChunkHeader packed(reinterpret_cast<const uint8_t*>(words.data()));
  EXPECT_EQ(packed.episode_id(), example.header.episode_id);
  EXPECT_EQ(packed.first_step(), -3);
  EXPECT_EQ(packed.last_step(), 50);
  EXPECT_EQ(packed.rows(), 40u);
  EXPECT_EQ(packed.num_columns(), 3u);
  EXPECT_EQ(packed.packed_size(), words.size() * 8);
  EXPECT_EQ(packed.payload_size(), example.payload.size());
  EXPECT_EQ(packed.raw_size(), 40u * (84 * 84 + 12 + 8));
  EXPECT_EQ(packed.Unpack(), example.header);

  uint64_t offset = 0;
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(packed.column_payload_offset(i), offset);
    const auto part = std::span(example.payload).subspan(offset, packed.column_payload_size(i));
    EXPECT_TRUE(ValidateColumn(packed.column(i), part.size()).ok());
    EXPECT_TRUE(VerifyChecksums(packed.column(i), part).ok());
    offset += part.size();
  }
  EXPECT_EQ(offset, example.payload.size());
}

TEST(PackedChunkHeaderTest, ASmallChunkHasASmallHeader) {
  ColumnEncoder encoder(DType::kFloat32, {100}, CodecPolicy::kAuto);
  std::vector<uint8_t> payload;
  ChunkHeader header;
  header.rows = 1;
  header.columns.push_back(*encoder.Encode(std::vector<uint8_t>(400), 1, &payload));
  EXPECT_LE(PackedSize(header), 72u);
  EXPECT_EQ(PackedChunkHeader(reinterpret_cast<const uint8_t*>(Packed(header).data())).Unpack(), header);
  EXPECT_LE(Encoded(header).size(), 32u);
}

TEST(PackedChunkHeaderTest, EveryDTypeCodecAndRankRoundTrips) {
  for (DType dtype : AllDTypes()) {
    for (Codec codec : {Codec::kRaw, Codec::kLz4, Codec::kZstd, Codec::kSnappy}) {
      for (size_t rank : {0, 1, 2, 5, 64}) {
        ChunkHeader header;
        header.rows = 7;
        ColumnHeader column;
        column.dtype = dtype;
        column.codec = codec;
        column.delta = codec != Codec::kRaw;
        column.row_shape.assign(rank, 1);
        column.rows_per_block = 3;
        column.blocks = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}};
        header.columns = {column, column};
        const std::vector<uint64_t> words = Packed(header);
        EXPECT_EQ(PackedChunkHeader(reinterpret_cast<const uint8_t*>(words.data())).Unpack(), header);
      }
    }
  }
}

// Returns a chunk of two columns with one row in each block. The blocks of the second have different sizes.
ChunkRef ManyBlocks(uint32_t rows) {
  ChunkHeader header;
  header.rows = rows;
  header.last_step = int64_t{rows} - 1;
  header.columns.resize(2);
  for (uint32_t c = 0; c < 2; ++c) {
    ColumnHeader& column = header.columns[c];
    column.dtype = DType::kUint8;
    column.codec = c == 0 ? Codec::kRaw : Codec::kLz4;
    column.row_shape = {64};
    column.rows_per_block = 1;
    for (uint32_t row = 0; row < rows; ++row) column.blocks.push_back({c == 0 ? 64 : 10 + row % 5, 64, 0});
  }
  const std::vector<uint8_t> payload(PayloadSize(header));
  return Chunk::Copy(1, header, payload).value();
}

TEST(PackedChunkHeaderTest, FindsBlocksByMarks) {
  for (const uint32_t rows : {1, 15, 16, 17, 31, 32, 33, 100}) {
    const ChunkRef chunk = ManyBlocks(rows);
    for (uint32_t c = 0; c < 2; ++c) {
      const ColumnView column = chunk->header().column(c);
      EXPECT_EQ(column.marks.offsets != nullptr, rows > kBlocksPerMark);
      for (uint32_t first = 0; first < rows; ++first) {
        uint64_t offset = 0;
        for (uint32_t i = 0; i < first; ++i) offset += column.blocks[i].stored_size;
        uint64_t size = 0;
        for (uint32_t end = first + 1; end <= rows; ++end) {
          size += column.blocks[end - 1].stored_size;
          const BlockRange range = TouchedBlocks(column, first, end - first);
          EXPECT_EQ(range.payload_offset, offset);
          EXPECT_EQ(range.payload_size, size);
        }
      }
    }
  }
}

TEST(PackedChunkHeaderTest, AViewOfSomeBlocksDoesNotUseTheMarksOfAll) {
  const ChunkRef chunk = ManyBlocks(100);
  ColumnView part = chunk->header().column(1);
  part.blocks = part.blocks.subspan(40, 50);
  part.rows = 50;
  uint64_t offset = 0;
  for (uint32_t i = 0; i < 30; ++i) offset += part.blocks[i].stored_size;
  EXPECT_EQ(TouchedBlocks(part, 30, 1).payload_offset, offset);
}

TEST(PackedChunkHeaderTest, FindingAnyOfAMillionBlocksTakesFewSteps) {
  // Adding up the sizes of all blocks before each of them would take minutes.
  constexpr uint32_t kRows = 1 << 20;
  const ChunkRef chunk = ManyBlocks(kRows);
  const ColumnView column = chunk->header().column(1);
  uint64_t offset = 0;
  for (uint32_t row = 0; row < kRows; ++row) {
    const BlockRange range = TouchedBlocks(column, row, 1);
    ASSERT_EQ(range.payload_offset, offset);
    offset += column.blocks[row].stored_size;
    ASSERT_EQ(TouchedBlocks(column, row, kRows - row).payload_size,
              chunk->column_payload(1).size() - range.payload_offset);
  }
}

// --- KnownHeader ---

KnownHeader Known(const ChunkHeader& header, const DecodeLimits& limits = {}) {
  const std::vector<uint64_t> packed = Packed(header);
  KnownHeader known;
  known.Remember(reinterpret_cast<const uint8_t*>(packed.data()), PackedSize(header), limits);
  return known;
}

TEST(KnownHeaderTest, PacksAHeaderOfTheSameForm) {
  ChunkHeader header = MakeExample().header;
  const KnownHeader known = Known(header);
  header.episode_id = 17;
  header.first_step = 100;
  header.last_step = 200;
  for (ColumnHeader& column : header.columns) {
    for (BlockInfo& block : column.blocks) block.checksum = ~block.checksum;
  }
  ASSERT_TRUE(known.HasFormOf(header, {}));
  EXPECT_EQ(known.packed_size(), PackedSize(header));
  EXPECT_EQ(known.payload_size(), PayloadSize(header));
  std::vector<uint64_t> packed(known.packed_size() / 8);
  known.PackLike(header, reinterpret_cast<uint8_t*>(packed.data()));
  EXPECT_EQ(packed, Packed(header));
}

TEST(KnownHeaderTest, AnyOtherDifferenceIsAnotherForm) {
  const ChunkHeader header = MakeExample().header;
  const KnownHeader known = Known(header);
  const std::vector<std::function<void(ChunkHeader*)>> changes = {
      [](ChunkHeader* h) { ++h->rows; },
      [](ChunkHeader* h) { h->columns.pop_back(); },
      [](ChunkHeader* h) { h->columns.push_back(h->columns[0]); },
      [](ChunkHeader* h) { h->columns.clear(); },
      [](ChunkHeader* h) { std::swap(h->columns[0], h->columns[2]); },
      [](ChunkHeader* h) { h->columns[2].dtype = DType::kInt64; },
      [](ChunkHeader* h) {
        h->columns[0].codec = h->columns[0].codec == Codec::kRaw ? Codec::kZstd : Codec::kRaw;
      },
      [](ChunkHeader* h) { h->columns[0].delta = !h->columns[0].delta; },
      [](ChunkHeader* h) { h->columns[0].row_shape[1] = 83; },
      [](ChunkHeader* h) { h->columns[0].row_shape.pop_back(); },
      [](ChunkHeader* h) { h->columns[0].row_shape.push_back(1); },
      [](ChunkHeader* h) { ++h->columns[0].rows_per_block; },
      [](ChunkHeader* h) { h->columns[0].blocks.pop_back(); },
      [](ChunkHeader* h) { h->columns[0].blocks.emplace_back(); },
      [](ChunkHeader* h) { ++h->columns[0].blocks.back().stored_size; },
      [](ChunkHeader* h) { --h->columns[1].blocks[0].raw_size; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    ChunkHeader changed = header;
    changes[i](&changed);
    EXPECT_FALSE(known.HasFormOf(changed, {})) << "change " << i;
  }
  EXPECT_TRUE(known.HasFormOf(header, {}));
  EXPECT_FALSE(known.HasFormOf(header, {.max_rows = 10})) << "it may be invalid under other limits";
  EXPECT_FALSE(KnownHeader().HasFormOf(header, {}));
}

// Chunks are made from such headers one after the other, by a stream that may be hostile.
TEST(KnownHeaderTest, AHeaderIsValidatedAfterAnEqualFormToo) {
  const std::vector<uint8_t> payload(8, 1);
  ColumnEncoder encoder(DType::kFloat64, {}, CodecPolicy::kNone);
  std::vector<uint8_t> stored;
  ChunkHeader header = {.episode_id = 1, .first_step = 5, .last_step = 5, .rows = 1, .columns = {}};
  header.columns.push_back(*encoder.Encode(payload, 1, &stored));
  for (int64_t step = 5; step < 8; ++step) {
    header.first_step = header.last_step = step;
    const auto chunk = Chunk::Copy(1, header, stored);
    ASSERT_OK(chunk);
    EXPECT_EQ((*chunk)->header().Unpack(), header);
  }
  ChunkHeader bad_steps = header;
  bad_steps.first_step = 9;
  EXPECT_THAT(Chunk::Copy(1, bad_steps, stored), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(Chunk::Copy(1, header, std::span(stored).first(7)), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(Chunk::Copy(1, header, stored, {.max_chunk_raw_bytes = 7}), StatusIs(StatusCode::kDataLoss));
  ChunkHeader bad_rows = header;
  bad_rows.columns[0].rows_per_block = 2;
  EXPECT_THAT(Chunk::Copy(1, bad_rows, stored), StatusIs(StatusCode::kDataLoss));
  EXPECT_OK(Chunk::Copy(1, header, stored));
}

}  // namespace
}  // namespace reverb::internal
