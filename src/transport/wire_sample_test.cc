#include "transport/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "testing/effort.h"
#include "transport/wire_stream_testing.h"

namespace reverb::internal {
namespace {

TEST_F(WireSampleTest, RandomSamplesArriveAsTheyWere) {
  const std::vector<ColumnKind> kinds = AllKinds();
  for (int64_t round = test::Effort(150, 30); round > 0; --round) {
    std::vector<ChunkRef> chunks;
    const uint64_t num_chunks = 1 + random_.Below(random_.Below(4) == 0 ? 10 : 2);
    for (uint64_t i = 0; i < num_chunks; ++i) {
      chunks.push_back(MakeChunk(i, kinds, static_cast<uint32_t>(1 + random_.Below(30)), &random_));
    }
    SampleReply reply{.request_id = random_.Next(), .shared_columns = random_.Below(2) == 0};
    while (random_.Below(4) != 0) {  // some batches, each with its own columns
      std::vector<uint32_t> columns;
      for (uint64_t c = random_.Below(4) + 1; c > 0; --c) {
        columns.push_back(static_cast<uint32_t>(random_.Below(kinds.size())));
      }
      for (Sample& sample : RandomSamples(chunks, columns, random_.Below(6), &random_)) {
        reply.samples.push_back(std::move(sample));
      }
    }
    if (random_.Below(2) == 0) reply.welcome = test::ExampleWelcome();
    if (random_.Below(2) == 0) reply.end = random_.Below(2) == 0 ? Status::Ok() : Status::Cancelled("enough");
    const auto got = RoundTrip(reply);
    ASSERT_OK(got);
    EXPECT_EQ(got->request_id, reply.request_id);
    EXPECT_EQ(got->welcome.has_value(), reply.welcome.has_value());
    EXPECT_EQ(got->end, reply.end);
    ExpectSame(got->samples, reply.samples);

    const InspectReply inspect{.next_cursor = 17, .items = reply.samples};
    const auto looked = DecodeInspectReply(Slices(EncodeInspectReply(inspect)));
    ASSERT_OK(looked);
    EXPECT_EQ(looked->next_cursor, 17u);
    ExpectSame(looked->items, reply.samples);
  }
}

TEST_F(WireSampleTest, ABatchOfRawRowsArrivesInOneRun) {
  const std::vector<ColumnKind> kinds = {{DType::kInt64}, {DType::kFloat32, {3}}};
  SampleReply reply;
  for (uint32_t i = 0; i < 32; ++i) {
    const ChunkRef a = MakeChunk(2 * i, kinds, 10, &random_);
    const ChunkRef b = MakeChunk(2 * i + 1, kinds, 10, &random_);
    std::vector<ColumnSpec> columns(2);
    columns[0].slices = {{a, 0, i % 7, 1}};
    columns[0].squeeze = true;
    columns[1].slices = {{a, 1, 8, 2}, {b, 1, 0, 3}};
    reply.samples.push_back(SampleOf(Trajectory::Create(columns).value()));
  }
  const auto got = RoundTrip(reply);
  ASSERT_OK(got);
  ExpectSame(got->samples, reply.samples);
  // Only the needed rows and little overhead.
  const uint64_t rows_bytes = 32 * (8 + 5 * 12);
  EXPECT_LT(message_.total_bytes(), rows_bytes + 32 * 60 + 100);
  for (uint32_t i = 0; i < 32; ++i) {
    const Trajectory& trajectory = got->samples[i].trajectory;
    ASSERT_EQ(trajectory.num_slices(1), 1u);  // two slices became one
    EXPECT_EQ(trajectory.slice(0, 0).offset, i);
    EXPECT_EQ(trajectory.slice(1, 0).offset, 5 * i);
    for (uint32_t c : {0, 1}) {
      EXPECT_EQ(trajectory.slice(c, 0).chunk, got->samples[0].trajectory.slice(c, 0).chunk);
    }
  }
}

TEST_F(WireSampleTest, LargeRawRowsAreSentWithoutACopy) {
  SampleReply reply;
  std::vector<const uint8_t*> sources;
  for (uint32_t i = 0; i < 8; ++i) {
    const ChunkRef chunk = MakeChunk(i, {{DType::kUint8, {7056}}}, 20, &random_);  // several blocks
    reply.samples.push_back(SampleOf(chunk, i, 4));
    sources.push_back(chunk->payload().data() + i * 7056);
  }
  const auto got = RoundTrip(reply);
  ASSERT_OK(got);
  ExpectSame(got->samples, reply.samples);
  ASSERT_EQ(message_.parts().size(), 9u);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(message_.parts()[i + 1].data(), sources[i]);
  EXPECT_EQ(got->samples[7].trajectory.slice(0, 0).offset, 28u);
  EXPECT_LT(message_.total_bytes(), 8u * 4 * 7056 + 8 * 70 + 100);
}

TEST_F(WireSampleTest, LongRawRowsMayReferToAMessageThatIsKeptAlive) {
  const ChunkRef chunk = MakeChunk(1, {{DType::kUint8, {50'000}, CodecPolicy::kNone}}, 4, &random_);
  const SampleReply reply{.samples = {SampleOf(chunk, 2, 1), SampleOf(chunk, 0, 1), SampleOf(chunk, 1, 2)}};
  const std::string bytes = EncodeSampleReply(reply).Flatten();
  struct Keeper final : BufferOwner {
    std::vector<std::string> parts;
    std::vector<ByteSlice> slices;
  };
  const auto receive = [](std::string_view text) {
    auto* keeper = new Keeper;
    for (size_t at = 0; at < text.size(); at += 16'001) keeper->parts.emplace_back(text.substr(at, 16'001));
    for (const std::string& part : keeper->parts) keeper->slices.push_back(SliceOf(part));
    return std::pair(Buffer(keeper, nullptr, 0), ByteSlices(keeper->slices));
  };
  Result<SampleReply> got = Status::Internal("not yet");
  {
    const auto [keeper, slices] = receive(bytes);
    got = DecodeSampleReply(slices, {}, keeper);
  }
  ASSERT_OK(got);
  EXPECT_TRUE(got->samples[0].trajectory.slice(0, 0).chunk->is_scattered());
  ExpectSame(got->samples, reply.samples);

  std::string damaged = bytes;
  damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 1);
  const auto [keeper, slices] = receive(damaged);
  EXPECT_THAT(DecodeSampleReply(slices, {}, keeper),
              StatusIs(StatusCode::kDataLoss, Detail::kCorruptData, HasSubstr("piece 0")));
}

TEST_F(WireSampleTest, TouchedBlocksOfCompressedColumnsAreSentOnce) {
  // 12 kB a row, five rows a block.
  const ChunkRef chunk = MakeChunk(1, {{DType::kUint16, {6000}, CodecPolicy::kLz4}}, 40, &random_);
  const ColumnView view = chunk->header().column(0);
  ASSERT_GE(view.blocks.size(), 4u);
  ASSERT_LT(view.blocks[0].stored_size, view.blocks[0].raw_size);
  const uint32_t per_block = view.rows_per_block;
  const auto stored = [&](uint32_t first, uint32_t count) {
    uint64_t bytes = 0;
    for (uint32_t i = first; i < first + count; ++i) bytes += view.blocks[i].stored_size;
    return bytes;
  };

  SampleReply one{.samples = {SampleOf(chunk, per_block + 1, 1)}};
  auto got = RoundTrip(one);
  ASSERT_OK(got);
  ExpectSame(got->samples, one.samples);
  EXPECT_GE(message_.total_bytes(), stored(1, 1));
  EXPECT_LT(message_.total_bytes(), stored(1, 1) + 150);
  EXPECT_EQ(got->samples[0].trajectory.slice(0, 0).offset, 1u);  // rebased

  // Blocks 1 and 2, used by three samples, and the last block, which is shorter.
  SampleReply several{.samples = {SampleOf(chunk, 39, 1), SampleOf(chunk, 2 * per_block, 2),
                                  SampleOf(chunk, per_block, per_block + 1), SampleOf(chunk, per_block, 1)}};
  got = RoundTrip(several);
  ASSERT_OK(got);
  ExpectSame(got->samples, several.samples);
  const uint64_t needed = stored(1, 2) + stored(static_cast<uint32_t>(view.blocks.size()) - 1, 1);
  EXPECT_GE(message_.total_bytes(), needed);
  EXPECT_LT(message_.total_bytes(), needed + 400);
  EXPECT_EQ(got->samples[1].trajectory.slice(0, 0).chunk, got->samples[2].trajectory.slice(0, 0).chunk);
}

TEST_F(WireSampleTest, OverlappingRawRowsAreSentOnce) {
  // Observations and next observations over the same rows; rewards do not overlap.
  const ChunkRef chunk = MakeChunk(1, {{DType::kFloat32, {600}}, {DType::kFloat32}}, 50, &random_);
  SampleReply reply;
  for (uint32_t i = 0; i < 10; ++i) {
    std::vector<ColumnSpec> columns(3);
    columns[0].slices = {{chunk, 0, 10 + i, 4}};
    columns[1].slices = {{chunk, 0, 11 + i, 4}};
    columns[2].slices = {{chunk, 1, 4 * i, 4}};
    reply.samples.push_back(SampleOf(Trajectory::Create(columns).value()));
  }
  const auto got = RoundTrip(reply);
  ASSERT_OK(got);
  ExpectSame(got->samples, reply.samples);
  EXPECT_LT(message_.total_bytes(), 14u * 2400 + 40 * 4 + 10 * 70 + 200);
  // The rewards are nevertheless in one run.
  for (uint32_t i = 0; i < 10; ++i) EXPECT_EQ(got->samples[i].trajectory.slice(2, 0).offset, 4 * i);
}

TEST_F(WireSampleTest, TheSameItemManyTimes) {
  const ChunkRef chunk = MakeChunk(1, AllKinds(), 8, &random_);
  std::vector<ColumnSpec> columns;
  for (uint32_t c = 0; c < AllKinds().size(); ++c) columns.push_back({.slices = {{chunk, c, 2, 3}}});
  SampleReply reply;
  reply.samples.assign(20, SampleOf(Trajectory::Create(columns).value()));
  const auto got = RoundTrip(reply);
  ASSERT_OK(got);
  ExpectSame(got->samples, reply.samples);
  EXPECT_LT(message_.total_bytes(), chunk->payload().size() + 20 * 12 * 20 + 2'000);
}

TEST_F(WireSampleTest, ErrorsNameWhatIsWrong) {
  const ChunkRef chunk = MakeChunk(1, {{DType::kInt64}}, 10, &random_);
  const std::string bytes = EncodeSampleReply({.samples = {SampleOf(chunk, 0, 10)}}).Flatten();
  const auto decode = [](std::string_view text, const WireLimits& limits = {}) {
    const ByteSlice slice = SliceOf(text);
    return DecodeSampleReply({&slice, 1}, limits);
  };
  ASSERT_OK(decode(bytes));
  // Removes the piece: the last field, a little over 80 bytes.
  const size_t piece = bytes.find('\x7a');
  ASSERT_NE(piece, std::string::npos);
  EXPECT_THAT(
      decode(bytes.substr(0, piece)),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("sample 0: column 0: slice 0 refers to chunk 0")));
  std::string damaged = bytes;
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  EXPECT_THAT(decode(damaged), StatusIs(StatusCode::kDataLoss, Detail::kCorruptData, HasSubstr("piece 0")));
  const auto refused = [](const char* text) {
    return StatusIs(StatusCode::kResourceExhausted, HasSubstr(text));
  };
  EXPECT_THAT(decode(bytes, {.max_message_bytes = 10}), refused("at most 10"));
  EXPECT_THAT(decode(bytes, {.max_chunk_bytes = 10}), refused("piece 0: 80 bytes, at most 10"));
  EXPECT_THAT(decode(bytes, {.max_items = 0}), refused("samples"));
  EXPECT_THAT(decode(bytes, {.max_slices = 0}), refused("pieces"));
  EXPECT_THAT(decode(bytes, {.max_columns = 0}), refused("columns"));
}

// --- Responses in parts ---

// Returns an owner for bytes that need none.
Buffer AnyKeeper() { return Buffer::CopyOf("x"); }

class WirePartsTest : public WireSampleTest {
 protected:
  SampleReply LargeReply() {
    const ChunkRef chunk = MakeChunk(1, {{DType::kUint8, {1 << 20}}, {DType::kString}}, 10, &random_);
    return {.request_id = 5, .samples = {SampleOf(chunk, 0, 9), SampleOf(chunk, 9, 1)}, .end = Status()};
  }
  static std::string Part(uint64_t response_bytes, std::string_view bytes) {
    WireWriter writer;
    writer.Uint(6, response_bytes);
    writer.AlwaysBytes(13, bytes);
    return writer.Finish().Flatten();
  }
  Result<std::optional<SampleReply>> Add(SampleReplyDecoder* decoder, std::string_view bytes) {
    const Buffer kept = Buffer::CopyOf(bytes);
    const ByteSlice slice(kept.data(), kept.size());
    return decoder->Decode({&slice, 1}, kept);
  }
};

TEST_F(WirePartsTest, ALargeResponseArrivesInParts) {
  SampleReplyDecoder decoder;
  for (int round = 0; round < 2; ++round) {
    const SampleReply reply = LargeReply();
    const WireMessage whole = EncodeSampleReply(reply);
    ASSERT_GT(whole.total_bytes(), 2 * kMaxPartBytes);
    const std::vector<WireMessage> parts = SplitIntoParts(whole);
    ASSERT_EQ(parts.size(), 3u);
    std::optional<SampleReply> got;
    for (const WireMessage& part : parts) {
      EXPECT_LE(part.total_bytes() + kSealBytes, kMaxPartBytes);
      EXPECT_FALSE(got);
      auto result = decoder.Decode(Slices(part), AnyKeeper());
      ASSERT_OK(result);
      got = *std::move(result);
      EXPECT_EQ(decoder.is_in_parts(), !got.has_value());
    }
    ASSERT_TRUE(got);
    EXPECT_EQ(got->request_id, 5u);
    EXPECT_EQ(got->end, Status());
    ExpectSame(got->samples, reply.samples);
    // Small replies are sent whole.
    auto small = decoder.Decode(Slices(EncodeSampleReply({.request_id = 6})), Buffer());
    ASSERT_OK(small);
    EXPECT_EQ((*small)->request_id, 6u);
  }
}

TEST_F(WirePartsTest, DamageInAPartIsFound) {
  const std::string whole = [&] {
    WireMessage message = EncodeSampleReply(LargeReply());
    message.Seal(0);
    return message.Flatten();
  }();
  for (int round = 0; round < 50; ++round) {
    std::string flipped = whole;
    const size_t bit = round < 10 ? round * 97 : random_.Below(flipped.size() * 8);
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ 1 << bit % 8);
    SampleReplyDecoder decoder;
    ASSERT_OK(Add(&decoder, Part(flipped.size(), std::string_view(flipped).substr(0, 1 << 20))));
    EXPECT_THAT(Add(&decoder, Part(flipped.size(), std::string_view(flipped).substr(1 << 20))),
                StatusIs(StatusCode::kDataLoss, Detail::kCorruptData))
        << "bit " << bit;
  }
}

TEST_F(WirePartsTest, PartsThatDoNotFitAreRejected) {
  const std::string bytes(kMinPartBytes, 'x');
  const auto refused = [](const char* text) {
    return StatusIs(StatusCode::kInvalidArgument, HasSubstr(text));
  };
  const auto after_one = [&](std::string_view next) {
    SampleReplyDecoder decoder;
    EXPECT_OK(Add(&decoder, Part(3 * bytes.size(), bytes)));
    return Add(&decoder, next);
  };
  EXPECT_OK(after_one(Part(3 * bytes.size(), bytes)));
  EXPECT_THAT(after_one(Part(3 * bytes.size(), bytes + bytes + "x")), refused("bytes are missing"));
  EXPECT_THAT(after_one(Part(4 * bytes.size(), bytes)), refused("the part before it"));
  EXPECT_THAT(after_one(Part(3 * bytes.size(), bytes.substr(1))), refused("all parts but the last"));
  EXPECT_THAT(after_one(Part(3 * bytes.size(), "")), refused("all parts but the last"));
  EXPECT_THAT(after_one(EncodeSampleReply({.request_id = 1}).Flatten()), refused("before the last part"));
  SampleReplyDecoder decoder;
  EXPECT_THAT(Add(&decoder, Part(0, "")), refused("all parts but the last"));
  EXPECT_THAT(Add(&decoder, EncodeSampleReply({.request_id = 1}).Flatten() + Part(3 * bytes.size(), bytes)),
              refused("no other fields"));
  // The announced size is not allocated.
  EXPECT_THAT(Add(&decoder, Part(uint64_t{1} << 62, bytes)),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("max_response_bytes")));
}

// --- Sizes ---

TEST_F(WireSampleTest, ASampleNeverExceedsItsPredictedSize) {
  const std::vector<ColumnKind> kinds = AllKinds();
  for (int64_t round = test::Effort(300, 40); round > 0; --round) {
    std::vector<ChunkRef> chunks;
    for (uint64_t i = 0; i < 3; ++i) {
      chunks.push_back(MakeChunk(i, kinds, static_cast<uint32_t>(1 + random_.Below(30)), &random_));
    }
    std::vector<uint32_t> columns;
    for (uint64_t c = random_.Below(4) + 1; c > 0; --c) {
      columns.push_back(static_cast<uint32_t>(random_.Below(kinds.size())));
    }
    for (Sample& sample : RandomSamples(chunks, columns, 4, &random_)) {
      const uint64_t said = MaxSampleBytes(sample.trajectory);
      const uint64_t bytes = EncodeSampleReply({.samples = {sample}}).total_bytes();
      EXPECT_LE(bytes, said);
      EXPECT_OK(CheckItemSize(sample.trajectory, said));
      EXPECT_THAT(CheckItemSize(sample.trajectory, bytes - 1), StatusIs(StatusCode::kResourceExhausted));
    }
  }
}

TEST_F(WireSampleTest, ItemsTooLargeForAReplyAreDetected) {
  const ChunkRef chunk = MakeChunk(1, {{DType::kInt64}}, 10, &random_);
  std::vector<ColumnSpec> columns(3);
  for (ColumnSpec& column : columns) column.slices = {{chunk, 0, 0, 1}, {chunk, 0, 4, 2}};
  const Trajectory trajectory = Trajectory::Create(columns).value();
  EXPECT_OK(CheckItemSize(trajectory, 1 << 20, {.max_slices = 6, .max_columns = 3}));
  EXPECT_THAT(CheckItemSize(trajectory, 1 << 20, {.max_columns = 2}),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("3 columns")));
  EXPECT_THAT(CheckItemSize(trajectory, 1 << 20, {.max_slices = 5}),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("6 runs")));
  EXPECT_THAT(CheckItemSize(trajectory, 40),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("max_item_bytes")));
}

TEST_F(WireSampleTest, EverySliceMayHaveAPieceOfItsOwn) {
  std::vector<ColumnSpec> columns(1);
  for (uint32_t i = 0; i < 70'000; ++i) {
    columns[0].slices.push_back({MakeChunk(i, {{DType::kString}}, 1, &random_), 0, 0, 1});
  }
  const SampleReply reply{.samples = {SampleOf(Trajectory::Create(columns).value())}};
  const auto got = RoundTrip(reply);
  ASSERT_OK(got);
  ExpectSame(got->samples, reply.samples);
}

TEST(SampleReplyTest, TheMassIsSent) {
  const auto sent = [](const SampleReply& reply) {
    const std::string bytes = EncodeSampleReply(reply).Flatten();
    const ByteSlice slice(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    return DecodeSampleReply(ByteSlices(&slice, 1)).value().mass;
  };
  EXPECT_FALSE(sent({.request_id = 1}));
  const std::optional<TableMass> none = sent({.request_id = 1, .mass = TableMass()});
  ASSERT_TRUE(none) << "an empty table";
  EXPECT_EQ(none->size, 0);
  const std::optional<TableMass> some =
      sent({.request_id = 1, .mass = TableMass{.is_weighted = true, .mass = 0.25, .size = 3}});
  ASSERT_TRUE(some);
  EXPECT_TRUE(some->is_weighted);
  EXPECT_EQ(some->mass, 0.25);
  EXPECT_EQ(some->size, 3);
}

// --- Decoded sizes ---

// Returns an item of `slices` slices of a chunk with one row of `row_bytes` zeros, which compress well.
Trajectory ManyZeros(size_t row_bytes, size_t slices) {
  ColumnEncoder encoder(DType::kUint8, {static_cast<uint32_t>(row_bytes)}, CodecPolicy::kZstd);
  std::vector<uint8_t> payload;
  ChunkHeader header{.rows = 1};
  header.columns.push_back(encoder.Encode(std::vector<uint8_t>(row_bytes), 1, &payload).value());
  const ChunkRef chunk = Chunk::Copy(1, header, payload).value();
  ColumnSpec column;
  column.slices.assign(slices, {.chunk = chunk, .length = 1});
  return Trajectory::Create({&column, 1}).value();
}

Result<SampleReply> DecodeOne(const std::string& bytes, const WireLimits& limits = {}) {
  const ByteSlice slice{reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  return DecodeSampleReply(ByteSlices(&slice, 1), limits);
}

TEST_F(WireSampleTest, AFewCompressedBytesDoNotBecomeMany) {
  constexpr size_t kRow = size_t{64} << 20;
  // 100 GiB of a reply of some kilobytes.
  const Trajectory huge = ManyZeros(kRow, 1600);
  const std::string bytes = EncodeSampleReply({.samples = {{.key = 7, .trajectory = huge}}}).Flatten();
  EXPECT_LT(bytes.size(), 1u << 20);
  EXPECT_THAT(DecodeOne(bytes), StatusIs(StatusCode::kResourceExhausted,
                                         ::testing::AllOf(HasSubstr("item 7"), HasSubstr("4294967296"),
                                                          HasSubstr("max_decoded_item_bytes"))));
  EXPECT_THAT(CheckItemSize(huge, 1 << 30),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("max_decoded_item_bytes")));
  const Trajectory large = ManyZeros(kRow, 30);
  EXPECT_OK(CheckItemSize(large, 1 << 30));
  SampleReply reply;
  reply.samples.assign(4, {.key = 7, .trajectory = large});
  EXPECT_OK(DecodeOne(EncodeSampleReply(reply).Flatten()).status());
  reply.samples.assign(5, {.key = 7, .trajectory = large});
  EXPECT_THAT(DecodeOne(EncodeSampleReply(reply).Flatten()),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("max_decoded_reply_bytes")));
}

TEST_F(WireSampleTest, TheDecodedSizeOfStringsIsBounded) {
  const std::string text(100'000, 'a');
  const std::vector<std::string_view> elements = {text, text};
  ColumnEncoder encoder(DType::kString, {}, CodecPolicy::kZstd);
  std::vector<uint8_t> payload;
  ChunkHeader header{.last_step = 1, .rows = 2};
  header.columns.push_back(encoder.EncodeStrings(elements, 2, &payload).value());
  const ChunkRef chunk = Chunk::Copy(1, header, payload).value();
  ColumnSpec column;
  column.slices.assign(20, {.chunk = chunk, .offset = 1, .length = 1});
  const Trajectory item = Trajectory::Create({&column, 1}).value();
  const std::string bytes = EncodeSampleReply({.samples = {{.key = 7, .trajectory = item}}}).Flatten();
  const WireLimits limits{.max_decoded_item_bytes = 1'000'000};
  EXPECT_THAT(DecodeOne(bytes, limits),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("max_decoded_item_bytes")));
  EXPECT_OK(DecodeOne(bytes, {.max_decoded_item_bytes = 10'000'000}).status());
}

}  // namespace
}  // namespace reverb::internal
