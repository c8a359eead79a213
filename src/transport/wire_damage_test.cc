// Tests hostile and damaged messages, and checksums of messages ("seals").
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "transport/wire_seal.h"
#include "transport/wire_stream_testing.h"

namespace reverb::internal {
namespace {

// A small message of some type, and a function that decodes and re-encodes it; empty if rejected.
struct Case {
  Case(const char* name_in, WireMessage message, std::function<std::string(ByteSlices)> again_in)
      : name(name_in), bytes(message.Flatten()), again(std::move(again_in)) {
    message.Seal(kNumber);
    sealed = message.Flatten();
  }
  static constexpr uint64_t kNumber = 7;  // position of the sealed message

  const char* name;
  std::string bytes;
  std::string sealed;
  std::function<std::string(ByteSlices)> again;
};

template <typename T, typename Encode>
std::string Again(const Result<T>& result, const Encode& encode) {
  return result.ok() ? "OK " + encode(*result).Flatten() : std::string();
}

std::vector<Case> AllCases() {
  Random random(3);
  const std::vector<ChunkRef> chunks = {MakeChunk(1, {{DType::kInt64}, {DType::kString}}, 4, &random),
                                        MakeChunk(2, {{DType::kInt64}, {DType::kString}}, 3, &random)};
  const std::vector<Sample> samples = RandomSamples(chunks, {0, 1}, 2, &random);
  InsertMessage insert;
  for (uint64_t i = 1; i <= 2; ++i) insert.items.push_back(ItemOf(i, samples[i - 1].trajectory));
  insert.items[1].structure = ListOf(3);
  insert.forget_chunks = {1};
  insert.heartbeat = true;
  const SampleReply reply{
      .welcome = test::ExampleWelcome(), .request_id = 3, .samples = samples, .end = Status()};
  const InspectReply inspect{.next_cursor = 3, .items = samples};
  const ChunkRef long_chunk = MakeChunk(3, {{DType::kInt64}}, 1'000, &random);
  const SampleReply shared{.request_id = 3,
                           .samples = test::UniformBatch({long_chunk}, {0, 0}, {1, 1}, 3, &random),
                           .shared_columns = true};
  const auto again_reply = [](ByteSlices s) {
    return Again(DecodeSampleReply(s), [](const SampleReply& m) {
      for (const Sample& sample : m.samples) (void)Contents(sample.trajectory);
      return EncodeSampleReply(m);
    });
  };
  return {
      {"insert", InsertEncoder().Encode(insert),
       [](ByteSlices s) {
         InsertDecoder decoder(Factory());
         return Again(decoder.Decode(s), [](const InsertMessage& m) {
           for (const Item& item : m.items) (void)Contents(item.trajectory);
           return InsertEncoder().Encode(m);
         });
       }},
      {"insert hello", EncodeInsertHello(test::ExampleHello()),
       [](ByteSlices s) { return Again(DecodeInsertHello(s), EncodeInsertHello); }},
      {"insert reply", EncodeInsertReply(test::Filled<InsertReply>()),
       [](ByteSlices s) { return Again(DecodeInsertReply(s), EncodeInsertReply); }},
      {"sample request", EncodeSampleRequest(test::ExampleSampleRequest()),
       [](ByteSlices s) { return Again(DecodeSampleRequest(s), EncodeSampleRequest); }},
      {"sample reply", EncodeSampleReply(reply), again_reply},
      {"sample reply of shared columns", EncodeSampleReply(shared), again_reply},
      {"inspect reply", EncodeInspectReply(inspect),
       [](ByteSlices s) {
         return Again(DecodeInspectReply(s), [](const InspectReply& m) { return EncodeInspectReply(m); });
       }},
      {"inspect request", EncodeInspectRequest(test::Filled<InspectRequest>()),
       [](ByteSlices s) { return Again(DecodeInspectRequest(s), EncodeInspectRequest); }},
      {"mutate", EncodeMutateRequest(test::Filled<MutateRequest>()),
       [](ByteSlices s) { return Again(DecodeMutateRequest(s), EncodeMutateRequest); }},
      {"limiter", EncodeSetRateLimiterRequest(test::Filled<SetRateLimiterRequest>()),
       [](ByteSlices s) { return Again(DecodeSetRateLimiterRequest(s), EncodeSetRateLimiterRequest); }},
      {"create table", EncodeCreateTableRequest(test::Filled<CreateTableRequest>()),
       [](ByteSlices s) { return Again(DecodeCreateTableRequest(s), EncodeCreateTableRequest); }},
      {"change table", EncodeChangeTableRequest(test::Filled<ChangeTableRequest>()),
       [](ByteSlices s) { return Again(DecodeChangeTableRequest(s), EncodeChangeTableRequest); }},
      {"remove table", EncodeRemoveTableRequest("replay"),
       [](ByteSlices s) { return Again(DecodeRemoveTableRequest(s), EncodeRemoveTableRequest); }},
      {"info", EncodeServerInfo(test::Filled<ServerInfo>()),
       [](ByteSlices s) { return Again(DecodeServerInfo(s), EncodeServerInfo); }},
      {"reset", EncodeResetRequest("replay"),
       [](ByteSlices s) { return Again(DecodeResetRequest(s), EncodeResetRequest); }},
      {"checkpoint", EncodeCheckpointReply("/somewhere"),
       [](ByteSlices s) { return Again(DecodeCheckpointReply(s), EncodeCheckpointReply); }},
  };
}

// Returns cases with payloads that the message checksum does not cover, some of them compressed.
std::vector<Case> LongCases() {
  Random random(4);
  const std::vector<ChunkRef> chunks = {
      MakeChunk(1, {{DType::kUint8, {1000}}, {DType::kInt64, {}, CodecPolicy::kLz4}}, 3, &random),
      MakeChunk(2, {{DType::kUint8, {1000}}, {DType::kInt64, {}, CodecPolicy::kLz4}}, 2, &random)};
  const std::vector<Sample> samples = RandomSamples(chunks, {0, 1}, 2, &random);
  InsertMessage insert;
  for (uint64_t i = 1; i <= 2; ++i) insert.items.push_back(ItemOf(i, samples[i - 1].trajectory));
  return {{"insert", InsertEncoder().Encode(insert),
           [](ByteSlices s) {
             InsertDecoder decoder(Factory());
             return decoder.Decode(s).ok() ? "OK" : "";
           }},
          {"sample reply", EncodeSampleReply({.samples = samples}),
           [](ByteSlices s) { return DecodeSampleReply(s).ok() ? "OK" : ""; }},
          {"sample reply of shared long rows",
           EncodeSampleReply(
               {.samples = test::UniformBatch(chunks, {0}, {1}, 3, &random), .shared_columns = true}),
           [](ByteSlices s) { return DecodeSampleReply(s).ok() ? "OK" : ""; }}};
}

TEST(WireBytesTest, SlicesMayEndAnywhere) {
  for (const Case& c : AllCases()) {
    SCOPED_TRACE(c.name);
    const ByteSlice whole = SliceOf(c.bytes);
    const std::string want = c.again({&whole, 1});
    ASSERT_FALSE(want.empty());
    for (size_t i = 0; i <= c.bytes.size(); ++i) {
      const ByteSlice halves[] = {whole.first(i), whole.subspan(i)};
      ASSERT_EQ(c.again(halves), want) << "split at " << i;
    }
    std::vector<ByteSlice> single;
    for (size_t i = 0; i < c.bytes.size(); ++i) single.push_back(whole.subspan(i, 1));
    ASSERT_EQ(c.again(single), want);
  }
}

TEST(WireBytesTest, UnknownFieldsChangeNothing) {
  // Fields 1000 to 1003 of the four wire types.
  const std::string unknown(
      "\xc0\x3e\x07\xc9\x3e"
      "12345678\xd2\x3e\x03"
      "abc\xdd\x3e"
      "1234",
      25);
  for (const Case& c : AllCases()) {
    SCOPED_TRACE(c.name);
    const ByteSlice slices[] = {SliceOf(unknown), SliceOf(c.bytes), SliceOf(unknown)};
    const ByteSlice whole = SliceOf(c.bytes);
    EXPECT_EQ(c.again(slices), c.again({&whole, 1}));
  }
}

// Each input is a separate copy, so that the sanitizer detects a read past its end.
TEST(WireBytesTest, TruncatedMessagesAreHandled) {
  for (const Case& c : AllCases()) {
    SCOPED_TRACE(c.name);
    for (size_t i = 0; i < c.bytes.size(); ++i) {
      const std::vector<uint8_t> cut(c.bytes.begin(), c.bytes.begin() + static_cast<ptrdiff_t>(i));
      const ByteSlice slice(cut);
      const std::string got = c.again({&slice, 1});
      if (got.empty()) continue;
      // A message that is accepted is accepted again after re-encoding.
      const ByteSlice rewritten = SliceOf(std::string_view(got).substr(3));
      ASSERT_FALSE(c.again({&rewritten, 1}).empty()) << "cut at " << i;
    }
  }
}

TEST(WireBytesTest, FlippedBitsAreHandled) {
  for (const Case& c : AllCases()) {
    SCOPED_TRACE(c.name);
    for (size_t i = 0; i < c.bytes.size() * 8; ++i) {
      std::vector<uint8_t> flipped(c.bytes.begin(), c.bytes.end());
      flipped[i / 8] ^= static_cast<uint8_t>(1 << (i % 8));
      const ByteSlice slice(flipped);
      const std::string got = c.again({&slice, 1});
      if (got.empty()) continue;
      // A message that is accepted is accepted again after re-encoding.
      const ByteSlice rewritten = SliceOf(std::string_view(got).substr(3));
      ASSERT_FALSE(c.again({&rewritten, 1}).empty()) << "bit " << i;
    }
  }
}

// --- Seals ---

Status UnsealString(uint64_t number, std::string_view sealed, std::vector<ByteSlice>* slices) {
  *slices = {SliceOf(sealed)};
  return Unseal(number, slices);
}

TEST(WireSealTest, ASealIsRemovedWhereverSlicesEnd) {
  std::vector<Case> cases = AllCases();
  for (Case& c : LongCases()) cases.push_back(std::move(c));
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(c.sealed.size(), kSealBytes + c.bytes.size());
    EXPECT_EQ(c.sealed.substr(kSealBytes), c.bytes);
    const ByteSlice whole = SliceOf(c.sealed);
    for (size_t i = 0; i <= c.sealed.size(); ++i) {
      std::vector<ByteSlice> slices = {whole.first(i), whole.subspan(i)};
      ASSERT_OK(Unseal(Case::kNumber, &slices));
      std::string rest;
      for (const ByteSlice& slice : slices) rest.append(slice.begin(), slice.end());
      ASSERT_EQ(rest, c.bytes) << "split at " << i;
    }
    std::vector<ByteSlice> single;
    for (size_t i = 0; i < c.sealed.size(); ++i) single.push_back(whole.subspan(i, 1));
    ASSERT_OK(Unseal(Case::kNumber, &single));
  }
}

// Found by the seal, or by the checksums of the long payloads that the seal does not cover.
TEST(WireSealTest, EveryFlippedBitIsFound) {
  std::vector<Case> cases = AllCases();
  for (Case& c : LongCases()) cases.push_back(std::move(c));
  size_t left_to_blocks = 0;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    std::string flipped = c.sealed;
    for (size_t i = 0; i < c.sealed.size() * 8; ++i) {
      flipped[i / 8] = static_cast<char>(flipped[i / 8] ^ 1 << i % 8);
      std::vector<ByteSlice> slices;
      const Status status = UnsealString(Case::kNumber, flipped, &slices);
      if (status.ok()) {
        ++left_to_blocks;
        ASSERT_EQ(c.again(slices), "") << "bit " << i;
      } else {
        ASSERT_THAT(status, StatusIs(StatusCode::kDataLoss, Detail::kCorruptData)) << "bit " << i;
      }
      flipped[i / 8] = static_cast<char>(flipped[i / 8] ^ 1 << i % 8);
    }
    std::vector<ByteSlice> slices;
    ASSERT_OK(UnsealString(Case::kNumber, flipped, &slices));
    for (size_t i = 0; i < c.sealed.size(); ++i) {
      const std::string cut = c.sealed.substr(0, i);
      ASSERT_FALSE(UnsealString(Case::kNumber, cut, &slices).ok() && !c.again(slices).empty()) << i;
    }
  }
  EXPECT_GT(left_to_blocks, 50'000u) << "seals should not cost as much as payloads";
}

TEST(WireSealTest, AMessageOfAnotherNumberIsFound) {
  for (const Case& c : AllCases()) {
    std::vector<ByteSlice> slices;
    for (const uint64_t number : {Case::kNumber - 1, Case::kNumber + 1, uint64_t{0}}) {
      EXPECT_THAT(UnsealString(number, c.sealed, &slices),
                  StatusIs(StatusCode::kDataLoss, Detail::kCorruptData, HasSubstr("lost")));
    }
  }
  WireMessage empty;
  empty.Seal(3);
  std::vector<ByteSlice> slices = Slices(empty);
  EXPECT_OK(Unseal(3, &slices));
  EXPECT_THAT(Unseal(3, &slices), StatusIs(StatusCode::kDataLoss));
}

}  // namespace
}  // namespace reverb::internal
