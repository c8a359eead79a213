#include "transport/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "transport/wire_stream_testing.h"

namespace reverb::internal {
namespace {

class WireInsertTest : public testing::Test {
 protected:
  ChunkRef Numbers(uint64_t id, uint32_t rows) { return MakeChunk(id, {{DType::kInt64}}, rows, &random_); }
  Trajectory Whole(const ChunkRef& chunk) {
    return Trajectory::Single(chunk, 0, chunk->header().rows()).value();
  }

  const uint64_t seed_ = test::Seed();
  testing::ScopedTrace trace_{__FILE__, __LINE__, test::SeedTrace(seed_)};
  Random random_{seed_};
  InsertEncoder encoder_;
  InsertDecoder decoder_{Factory()};
};

TEST_F(WireInsertTest, RandomItemsArriveAsTheyWere) {
  const std::vector<ColumnKind> kinds = AllKinds();
  for (int round = 0; round < 20; ++round) {
    InsertEncoder encoder;
    InsertDecoder decoder(Factory());
    std::vector<ChunkRef> chunks;
    std::set<uint64_t> alive;
    uint64_t number = 0;
    for (int step = 0; step < 10; ++step) {
      for (int i = 0; i < 2; ++i) {
        chunks.push_back(
            MakeChunk(random_.Next(), kinds, static_cast<uint32_t>(1 + random_.Below(20)), &random_));
      }
      InsertMessage message;
      const uint64_t count = random_.Below(6);
      for (uint64_t i = 0; i < count; ++i) {
        std::vector<uint32_t> columns;
        for (uint64_t c = random_.Below(5) + 1; c > 0; --c) {
          columns.push_back(static_cast<uint32_t>(random_.Below(kinds.size())));
        }
        number += 1 + random_.Below(2);
        message.items.push_back(
            ItemOf(number, RandomTrajectory(chunks, columns, &random_), random_.Below(3) != 0 ? "a" : "b"));
        message.items.back().trajectory.ForEachChunk([&](Chunk* chunk) { alive.insert(chunk->id()); });
      }
      if (chunks.size() > 6) {
        for (int i = 0; i < 3; ++i) {
          message.forget_chunks.push_back(chunks[0]->id());
          alive.erase(chunks[0]->id());
          chunks.erase(chunks.begin());
        }
      }
      message.heartbeat = random_.Below(2) == 0;
      const auto got = Decode(&decoder, encoder.Encode(message));
      ASSERT_OK(got);
      ExpectSame(got->items, message.items);
      EXPECT_EQ(got->heartbeat, message.heartbeat);
      EXPECT_EQ(encoder.window_chunks(), alive.size());
      EXPECT_EQ(decoder.window_chunks(), alive.size());
    }
  }
}

TEST_F(WireInsertTest, HeadersArriveAsTheyWere) {
  const ChunkRef chunk = MakeChunk(~uint64_t{0}, AllKinds(), 13, &random_);
  ChunkHeader seen;
  InsertDecoder decoder([&](const ChunkHeader& header, uint8_t** payload) {
    seen = header;
    return Chunk::Uninitialized(1, header, payload);
  });
  ASSERT_OK(Decode(&decoder, encoder_.Encode(MessageOf(ItemOf(1, Whole(chunk))))));
  EXPECT_EQ(seen, chunk->header().Unpack());
}

TEST_F(WireInsertTest, AChunkIsSentOnceInAWindow) {
  const ChunkRef chunk = Numbers(5, 2'000);  // 16 kB
  InsertMessage message;
  for (uint64_t i = 1; i <= 10; ++i) message.items.push_back(ItemOf(i, Whole(chunk)));
  const WireMessage first = encoder_.Encode(message);
  EXPECT_GT(first.total_bytes(), 16'000u);
  EXPECT_LT(first.total_bytes(), 16'000u + 10 * 50 + 100);
  // The payload is sent from the chunk's own memory.
  ASSERT_EQ(first.parts().size(), 2u);
  EXPECT_EQ(first.parts()[1].data(), chunk->payload().data());
  ASSERT_OK(Decode(&decoder_, first));

  const uint64_t expected = encoder_.NewBytes(Whole(chunk));
  InsertMessage second = MessageOf(ItemOf(11, Whole(chunk)));
  second.forget_chunks = {5, 77};  // 77 was never sent
  const WireMessage small = encoder_.Encode(second);
  EXPECT_LT(small.total_bytes(), 60u);
  EXPECT_LT(expected, 100u);
  const auto got = Decode(&decoder_, small);
  ASSERT_OK(got);
  EXPECT_THAT(got->forget_chunks, ElementsAre(5));
  EXPECT_EQ(Contents(got->items[0].trajectory), Contents(Whole(chunk)));
  EXPECT_EQ(decoder_.window_chunks(), 0u);
  EXPECT_EQ(decoder_.window_bytes(), 0u);

  // Forgotten on both sides: sent again.
  EXPECT_GT(encoder_.NewBytes(Whole(chunk)), 16'000u);
  const WireMessage third = encoder_.Encode(MessageOf(ItemOf(12, Whole(chunk))));
  EXPECT_GT(third.total_bytes(), 16'000u);
  EXPECT_OK(Decode(&decoder_, third));
}

TEST_F(WireInsertTest, SharedPayloadsKeepTheirChunkAlive) {
  ChunkRef chunk = Numbers(5, 2'000);
  InsertMessage insert = MessageOf(ItemOf(1, Whole(chunk)));
  const std::string want = Contents(insert.items[0].trajectory);
  const WireMessage message = encoder_.Encode(insert);
  insert = {};
  chunk = {};
  const auto got = Decode(&decoder_, message);
  ASSERT_OK(got);
  EXPECT_EQ(Contents(got->items[0].trajectory), want);
}

TEST_F(WireInsertTest, SmallPayloadsAreCopiedTogether) {
  InsertMessage message;
  for (uint64_t i = 1; i <= 10; ++i) message.items.push_back(ItemOf(i, Whole(Numbers(i, 100))));
  EXPECT_EQ(encoder_.Encode(message).parts().size(), 1u);
}

TEST_F(WireInsertTest, FieldsMayComeInAnyOrder) {
  InsertMessage message = MessageOf(ItemOf(1, Whole(Numbers(1, 10))));
  message.items.push_back(ItemOf(2, Whole(Numbers(2, 10)), "other"));
  message.forget_chunks = {1};
  const std::string bytes = encoder_.Encode(message).Flatten();
  // Moves chunks and forgotten chunks to the front; the items stay in order.
  const ByteSlice slice = SliceOf(bytes);
  ProtoReader reader({&slice, 1});
  std::string front, back;
  size_t start = 0;
  while (reader.Next()) {
    const uint32_t field = reader.field();
    (void)reader.ReadMessage();
    const size_t end = bytes.size() - reader.remaining();
    (field == 2 ? back : front) += bytes.substr(start, end - start);
    start = end;
  }
  ASSERT_OK(reader.status("InsertRequest"));
  const ByteSlice turned[] = {SliceOf(front), SliceOf(back)};
  const auto got = decoder_.Decode(turned);
  ASSERT_OK(got);
  ExpectSame(got->items, message.items);
  EXPECT_EQ(decoder_.window_chunks(), 1u);
}

TEST_F(WireInsertTest, ErrorsNameWhatIsWrong) {
  const ChunkRef chunk = Numbers(5, 10);
  const WireMessage first = encoder_.Encode(MessageOf(ItemOf(3, Whole(chunk))));
  const WireMessage again = encoder_.Encode(MessageOf(ItemOf(4, Whole(chunk))));
  EXPECT_THAT(Decode(&decoder_, again),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("item 0 (number 4)"), HasSubstr("chunk 5, which is not known"))));
  ASSERT_OK(Decode(&decoder_, first));
  EXPECT_THAT(Decode(&decoder_, first),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("chunk 5 was sent before")));
  EXPECT_THAT(Decode(&decoder_, encoder_.Encode(MessageOf(ItemOf(3, Whole(chunk))))),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("item 0 (number 3): comes after number 3")));
  EXPECT_THAT(Decode(&decoder_, encoder_.Encode(MessageOf(ItemOf(9, Whole(chunk), "")))),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("names no table")));
  EXPECT_THAT(Decode(&decoder_, EncodeInsertHello({})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("greets again")));
  const ByteSlice forget = SliceOf("\x18\x63");
  EXPECT_THAT(decoder_.Decode({&forget, 1}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("chunk 99")));
  // Rows beyond the end of the chunk.
  InsertDecoder decoder(Factory());
  InsertEncoder encoder;
  ASSERT_OK(Decode(&decoder, encoder.Encode(MessageOf(ItemOf(1, Whole(Numbers(5, 4)))))));
  EXPECT_THAT(Decode(&decoder, encoder.Encode(MessageOf(ItemOf(2, Whole(chunk))))),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("item 0 (number 2)"), HasSubstr("rows 0 to 10"))));
}

TEST_F(WireInsertTest, LimitsAreEnforced) {
  const auto decode = [&](const WireLimits& limits, int messages = 1) {
    InsertEncoder encoder;
    InsertDecoder decoder(Factory(), limits);
    Result<InsertMessage> result = Status::Internal("nothing was decoded");
    for (int i = 0; i < messages; ++i) {
      InsertMessage message;
      for (uint64_t k = 1; k <= 2; ++k) {
        const uint64_t id = static_cast<uint64_t>(i) * 2 + k;
        message.items.push_back(ItemOf(id, Whole(Numbers(id, 100))));
      }
      result = Decode(&decoder, encoder.Encode(message));
    }
    return result;
  };
  EXPECT_OK(decode({}));
  const auto refused = [](const char* text) {
    return StatusIs(StatusCode::kResourceExhausted, HasSubstr(text));
  };
  EXPECT_THAT(decode({.max_message_bytes = 100}), refused("at most 100 are accepted"));
  EXPECT_THAT(decode({.max_chunk_bytes = 799}), refused("chunk 1 has 800 bytes"));
  EXPECT_THAT(decode({.max_items = 1}), refused("more than the 1 items"));
  EXPECT_THAT(decode({.max_chunks = 1}), refused("more than the 1 chunks"));
  EXPECT_THAT(decode({.max_slices = 1}), refused("more slices"));
  EXPECT_THAT(decode({.max_columns = 0}), refused("columns"));
  EXPECT_THAT(decode({.max_name_bytes = 3}), refused("longer than is accepted"));
  EXPECT_OK(decode({.max_window_chunks = 4}, 2));
  EXPECT_THAT(decode({.max_window_chunks = 3}, 2), refused("the window of the stream holds 3 chunks"));
  EXPECT_THAT(decode({.max_window_bytes = 3'000}, 2), refused("the window of the stream holds 3 chunks"));
  EXPECT_THAT(decode({.chunk = {.max_columns = 0}}), refused("columns"));
}

TEST_F(WireInsertTest, AStructureIsSentOncePerStream) {
  const ChunkRef chunk = Numbers(5, 10);
  const std::vector<ItemStructure> structures = {ListOf(30), ListOf(40), ListOf(30)};
  uint64_t number = 0;
  for (int round = 0; round < 3; ++round) {
    InsertMessage message;
    for (const ItemStructure& structure :
         {ItemStructure(), structures[0], structures[0], structures[1], ItemStructure(), structures[2]}) {
      message.items.push_back(ItemOf(++number, Whole(chunk)));
      message.items.back().structure = structure;
    }
    const WireMessage bytes = encoder_.Encode(message);
    const auto got = Decode(&decoder_, bytes);
    ASSERT_OK(got);
    ExpectSame(got->items, message.items);
    for (size_t i = 0; i < message.items.size(); ++i) {
      EXPECT_EQ(got->items[i].structure, message.items[i].structure) << i;
    }
    // "As before" refers to the same object.
    EXPECT_TRUE(got->items[2].structure.IsCopyOf(got->items[1].structure));
    EXPECT_TRUE(got->items[5].structure.IsCopyOf(got->items[1].structure));
    for (const ItemStructure& structure : {structures[0], structures[1]}) {
      EXPECT_EQ(bytes.Flatten().find(structure.encoded()) != std::string::npos, round == 0);
    }
  }
  // Structures of one stream are unknown on another.
  InsertMessage again = MessageOf(ItemOf(1, Whole(chunk)));
  again.items[0].structure = structures[1];
  InsertEncoder encoder;
  InsertDecoder decoder(Factory());
  const auto got = Decode(&decoder, encoder.Encode(again));
  ASSERT_OK(got);
  EXPECT_EQ(got->items[0].structure, structures[1]);
}

TEST_F(WireInsertTest, StructuresBeyondTheLimitAreNotSent) {
  const ChunkRef chunk = Numbers(5, 10);
  const size_t most = WireLimits().max_structures;
  InsertMessage message;
  for (size_t i = 0; i < most + 2; ++i) {
    message.items.push_back(ItemOf(i + 1, Whole(chunk)));
    message.items.back().structure = ListOf(i + 1);
  }
  const auto got = Decode(&decoder_, encoder_.Encode(message));
  ASSERT_OK(got);
  for (size_t i = 0; i < most + 2; ++i) {
    EXPECT_EQ(got->items[i].structure, i < most ? ListOf(i + 1) : ItemStructure()) << i;
  }
  const ByteSlice more = SliceOf("\x2a\x02\x01\x00");
  EXPECT_THAT(decoder_.Decode({&more, 1}),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("more than the 16 structures")));
}

TEST_F(WireInsertTest, DamagedStructuresAreFound) {
  const auto decode = [](std::string_view structure) {
    WireWriter writer;
    writer.Bytes(5, structure);
    InsertDecoder decoder(Factory());
    return Decode(&decoder, writer.Finish());
  };
  const std::string good(ListOf(3).encoded());
  EXPECT_OK(decode(good));
  for (size_t length = 1; length < good.size(); ++length) {
    EXPECT_THAT(decode(std::string_view(good).substr(0, length)),
                StatusIs(StatusCode::kDataLoss, HasSubstr("structure 1")));
  }
  std::string deep = "\x01";
  for (int i = 0; i < 30'000; ++i) deep += "\x02\x01";
  EXPECT_THAT(decode(deep + '\0'), StatusIs(StatusCode::kDataLoss, HasSubstr("structure 1")));
  EXPECT_THAT(decode(std::string(ItemStructure::kMaxBytes + 1, '\x01')),
              StatusIs(StatusCode::kResourceExhausted));
  // A number that no structure has.
  const std::string bytes = [&] {
    InsertMessage message = MessageOf(ItemOf(1, Whole(Numbers(5, 10))));
    message.items[0].structure = ListOf(3);
    return encoder_.Encode(message).Flatten();
  }();
  const size_t at = bytes.find("\x38\x01\x2a");  // structure 1, then the field of structures
  ASSERT_NE(at, std::string::npos);
  std::string wrong = bytes;
  wrong[at + 1] = 2;
  const ByteSlice slice = SliceOf(wrong);
  EXPECT_THAT(decoder_.Decode({&slice, 1}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("names structure 2")));
}

TEST_F(WireInsertTest, TheFactoryMayFail) {
  InsertDecoder decoder(
      [](const ChunkHeader&, uint8_t**) -> Result<ChunkRef> { return Status::ResourceExhausted("no room"); });
  EXPECT_THAT(Decode(&decoder, encoder_.Encode(MessageOf(ItemOf(1, Whole(Numbers(5, 1)))))),
              StatusIs(StatusCode::kResourceExhausted, "chunk 5: no room"));
}

TEST_F(WireInsertTest, DamagedPayloadsAreFound) {
  const ChunkRef chunk = MakeChunk(5, {{DType::kUint8, {500}}, {DType::kInt64}}, 10, &random_);
  const WireMessage message = encoder_.Encode(MessageOf(ItemOf(1, Trajectory::Single(chunk, 0, 5).value())));
  ASSERT_EQ(message.parts().size(), 2u);
  for (size_t i = 0; i < message.parts()[1].size(); i += 7) {
    std::string payload(reinterpret_cast<const char*>(message.parts()[1].data()), message.parts()[1].size());
    payload[i] = static_cast<char>(payload[i] ^ (1 << random_.Below(8)));
    const ByteSlice slices[] = {message.parts()[0].span(), SliceOf(payload)};
    InsertDecoder decoder(Factory());
    EXPECT_THAT(decoder.Decode(slices), StatusIs(StatusCode::kDataLoss, Detail::kCorruptData,
                                                 HasSubstr(i < 5'000 ? "chunk 5, column 0" : "column 1")));
  }
}

// A decoder reads the columns of a chunk that are encoded like those of the last one only once.
TEST_F(WireInsertTest, ChunksThatDifferInTheirChecksumsArriveAsTheyWere) {
  const std::vector<std::vector<ColumnKind>> kinds = {{{DType::kFloat32, {10}}, {DType::kInt64}},
                                                      {{DType::kFloat32, {11}}, {DType::kInt64}},
                                                      {{DType::kFloat32, {10}}}};
  uint64_t number = 0;
  for (const size_t kind : {0, 0, 0, 1, 1, 0, 2, 2, 0, 0}) {
    ++number;
    const ChunkRef chunk = MakeChunk(number, kinds[kind], 1, &random_);
    const std::string bytes = encoder_.Encode(MessageOf(ItemOf(number, Whole(chunk)))).Flatten();
    // In one piece, or divided somewhere.
    const size_t at = number % 3 == 0 ? 0 : random_.Below(bytes.size());
    const ByteSlice slices[] = {SliceOf(bytes).first(at), SliceOf(bytes).subspan(at)};
    const auto got = decoder_.Decode(at == 0 ? ByteSlices(slices).subspan(1) : ByteSlices(slices));
    ASSERT_OK(got);
    EXPECT_EQ(Contents(got->items[0].trajectory), Contents(Whole(chunk)));
    EXPECT_EQ(got->items[0].trajectory.slice(0, 0).chunk->header().Unpack(), chunk->header().Unpack());
  }
}

TEST_F(WireInsertTest, AWrongChecksumInARepeatedHeaderIsFound) {
  ASSERT_OK(Decode(&decoder_, encoder_.Encode(MessageOf(ItemOf(1, Whole(Numbers(1, 1)))))));
  const ChunkRef chunk = Numbers(2, 1);
  std::string bytes = encoder_.Encode(MessageOf(ItemOf(2, Whole(chunk)))).Flatten();
  const uint64_t checksum = chunk->header().column(0).blocks[0].checksum;
  const size_t at = bytes.find(std::string_view(reinterpret_cast<const char*>(&checksum), sizeof checksum));
  ASSERT_NE(at, std::string::npos);
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  const ByteSlice slice = SliceOf(bytes);
  EXPECT_THAT(decoder_.Decode({&slice, 1}),
              StatusIs(StatusCode::kDataLoss, Detail::kCorruptData, HasSubstr("chunk 2, column 0")));
}

// The decoder reuses the memory of one chunk and item for the next.
TEST(WireInsertReuseTest, NothingOfAChunkOrItemIsLeftInTheNext) {
  Random random(5);
  const std::vector<std::vector<ColumnKind>> kinds = {
      {{DType::kUint8, {20, 20}, CodecPolicy::kLz4},
       {DType::kString},
       {DType::kInt32, {50}, CodecPolicy::kZstd}},
      {{DType::kInt64}},
      {{DType::kUint16, {6000}, CodecPolicy::kLz4}, {DType::kBool, {0, 3}}},
      AllKinds()};
  InsertEncoder encoder;
  InsertDecoder decoder(Factory());
  for (uint64_t number = 1; number <= 24; ++number) {
    const std::vector<ColumnKind>& mine = kinds[random.Below(kinds.size())];
    const ChunkRef chunk = MakeChunk(number, mine, 1 + static_cast<uint32_t>(random.Below(30)), &random);
    std::vector<ColumnSpec> columns(1 + random.Below(mine.size()));
    for (uint32_t c = 0; c < columns.size(); ++c) {
      const bool squeeze = random.Below(2) == 0;
      columns[c] = {.slices = {{chunk, c, 0, 1}}, .squeeze = squeeze};
      if (!squeeze) columns[c].slices.push_back({chunk, c, 0, chunk->header().rows()});
    }
    InsertMessage message = MessageOf(ItemOf(number, Trajectory::Create(columns).value()));
    message.forget_chunks = {number};
    const auto got = Decode(&decoder, encoder.Encode(message));
    ASSERT_OK(got);
    ExpectSame(got->items, message.items);
    EXPECT_EQ(got->items[0].trajectory.slice(0, 0).chunk->header().Unpack(), chunk->header().Unpack());
  }
  EXPECT_EQ(decoder.window_chunks(), 0u);
}

}  // namespace
}  // namespace reverb::internal
