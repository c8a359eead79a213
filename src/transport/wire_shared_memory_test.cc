// Messages between processes that share memory: WireEncoding with a SharedMemory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/shared_memory.h"
#include "transport/wire_memory_testing.h"
#include "transport/wire_stream_testing.h"

namespace reverb::internal {
namespace {

class WireSharedMemoryTest : public WireSampleTest {
 protected:
  // Rows of 8, 400 (raw and compressed) and 9000 bytes, and strings.
  const std::vector<ColumnKind> kinds_ = {{DType::kInt64},
                                          {DType::kFloat32, {100}},
                                          {DType::kUint8, {9000}},
                                          {DType::kFloat32, {1000}, CodecPolicy::kLz4},
                                          {DType::kString}};

  std::vector<ChunkRef> Chunks(size_t count, uint32_t rows, PayloadSource* source) {
    std::vector<ChunkRef> chunks;
    for (size_t i = 0; i < count; ++i) chunks.push_back(MakeChunk(i, kinds_, rows, &random_, source));
    return chunks;
  }

  Result<SampleReply> TransferReply(const SampleReply& reply) {
    message_ = EncodeSampleReply(reply, WireEncoding::ForSharedMemory(&memory_));
    received_ = peers_.Transfer(message_);
    keeper_ = Buffer(received_, nullptr, 0);
    return DecodeSampleReply(received_->slices, {}, keeper_, RowChecksums::kOptional);
  }

  MemoryPeers peers_;
  SharedMemory& memory_ = *peers_.memory();
  ReceivedParts* received_ = nullptr;  // owned by keeper_
  Buffer keeper_;
};

TEST_F(WireSharedMemoryTest, RandomSamplesArriveAsTheyWere) {
  // Some chunks are in private memory.
  std::vector<ChunkRef> chunks = Chunks(40, 6, &memory_);
  for (ChunkRef& chunk : Chunks(4, 6, nullptr)) chunks.push_back(std::move(chunk));
  for (int round = 0; round < 60; ++round) {
    std::vector<uint32_t> columns;
    std::vector<uint32_t> lengths;
    for (uint64_t c = random_.Below(4) + 1; c > 0; --c) {
      columns.push_back(static_cast<uint32_t>(random_.Below(kinds_.size())));
      lengths.push_back(static_cast<uint32_t>(1 + random_.Below(5)));
    }
    SampleReply reply{.request_id = 3, .shared_columns = round % 2 == 0};
    if (round % 3 == 0) {
      for (int i = 0; i < 5; ++i)
        reply.samples.push_back(SampleOf(RandomTrajectory(chunks, columns, &random_)));
    } else {
      reply.samples = test::UniformBatch(chunks, columns, lengths, 2 + random_.Below(20), &random_);
    }
    const auto got = TransferReply(reply);
    ASSERT_OK(got);
    ExpectSame(got->samples, reply.samples);
  }
}

TEST_F(WireSharedMemoryTest, RowsOfABatchAreReferencesAndStayInTheServersMemory) {
  const std::vector<ChunkRef> chunks = Chunks(256, 2, &memory_);
  const SampleReply reply{.samples = test::UniformBatch(chunks, {0, 1}, {1, 1}, 256, &random_),
                          .shared_columns = true};
  const auto got = TransferReply(reply);
  ASSERT_OK(got);
  EXPECT_TRUE(got->shared_columns);
  // Neither the numbers nor the rows of 400 bytes are touched.
  EXPECT_EQ(received_->referenced_bytes, 256u * (8 + 400));
  EXPECT_LT(message_.total_bytes() - received_->referenced_bytes, 256u * 48 + 300);
  const Chunk& rows = *got->samples[0].trajectory.slice(1, 0).chunk;
  EXPECT_TRUE(rows.is_scattered());
  ExpectSame(got->samples, reply.samples);
}

TEST_F(WireSharedMemoryTest, PartsKeepNoChunkAlive) {
  std::vector<ChunkRef> chunks = Chunks(1, 4, &memory_);
  const Chunk* const chunk = chunks[0].get();
  SampleReply reply{.samples = {SampleOf(chunks[0], 0, 4)}};
  reply.samples[0].trajectory =
      Trajectory::Create(std::vector<ColumnSpec>{{.slices = {{chunks[0], 2, 0, 4}}}}).value();
  message_ = EncodeSampleReply(reply, WireEncoding::ForSharedMemory(&memory_));
  bool is_referenced = false;
  for (const Buffer& part : message_.parts()) {
    if (part.data() != chunk->column_payload(2).data()) continue;
    is_referenced = true;
    EXPECT_FALSE(part.has_owner());
  }
  EXPECT_TRUE(is_referenced);
}

TEST_F(WireSharedMemoryTest, ASmallSampleIsSentInline) {
  const std::vector<ChunkRef> chunks = Chunks(1, 1, &memory_);
  const SampleReply reply{
      .samples = {
          SampleOf(Trajectory::Create(std::vector<ColumnSpec>{{.slices = {{chunks[0], 1, 0, 1}}}}).value())}};
  const auto got = TransferReply(reply);
  ASSERT_OK(got);
  ExpectSame(got->samples, reply.samples);
  EXPECT_EQ(received_->referenced_bytes, 0u);
}

TEST_F(WireSharedMemoryTest, ReadingRevokedRowsFails) {
  const std::vector<ChunkRef> chunks = Chunks(100, 2, &memory_);
  const SampleReply reply{.samples = test::UniformBatch(chunks, {1}, {1}, 100, &random_),
                          .shared_columns = true};
  const auto got = TransferReply(reply);
  ASSERT_OK(got);
  std::vector<uint8_t> out(400);
  ASSERT_OK(got->samples[7].trajectory.Read(0, out));
  received_->is_revoked = true;
  EXPECT_THAT(got->samples[7].trajectory.Read(0, out),
              StatusIs(StatusCode::kUnavailable, HasSubstr("has revoked")));
  // Nothing of a message that was revoked before it was decoded is used.
  EXPECT_THAT(DecodeSampleReply(received_->slices, {}, keeper_, RowChecksums::kOptional),
              StatusIs(StatusCode::kUnavailable, HasSubstr("has revoked")));
}

TEST_F(WireSharedMemoryTest, OnlyADecoderThatAllowsItAcceptsRowsWithoutChecksums) {
  const std::vector<ChunkRef> chunks = Chunks(50, 2, &memory_);
  const SampleReply reply{.samples = test::UniformBatch(chunks, {0, 1}, {1, 1}, 50, &random_),
                          .shared_columns = true};
  ASSERT_OK(TransferReply(reply));
  EXPECT_THAT(DecodeSampleReply(received_->slices), StatusIs(StatusCode::kDataLoss, HasSubstr("checksum")));
  SampleReplyDecoder strict;
  EXPECT_THAT(strict.Decode(received_->slices, keeper_), StatusIs(StatusCode::kDataLoss));
  SampleReplyDecoder lenient({}, RowChecksums::kOptional);
  ASSERT_OK(lenient.Decode(received_->slices, keeper_));
}

TEST_F(WireSharedMemoryTest, StoredChecksumsOfCompressedRowsAreVerified) {
  const std::vector<ChunkRef> chunks = Chunks(1, 100, &memory_);
  const SampleReply reply{
      .samples = {SampleOf(
          Trajectory::Create(std::vector<ColumnSpec>{{.slices = {{chunks[0], 3, 0, 100}}}}).value())}};
  ASSERT_OK(TransferReply(reply));
  ASSERT_GT(received_->referenced_bytes, 0u);
  // Damages the server's memory.
  const_cast<uint8_t&>(chunks[0]->column_payload(3)[10]) ^= 1;
  EXPECT_THAT(DecodeSampleReply(received_->slices, {}, keeper_, RowChecksums::kOptional),
              StatusIs(StatusCode::kDataLoss, HasSubstr("checksum")));
}

TEST_F(WireSharedMemoryTest, InspectRepliesArriveToo) {
  const std::vector<ChunkRef> chunks = Chunks(3, 4, &memory_);
  const InspectReply reply{.next_cursor = 5, .items = {SampleOf(RandomTrajectory(chunks, {2, 3}, &random_))}};
  const WireMessage message = EncodeInspectReply(reply, WireEncoding::ForSharedMemory(&memory_));
  ReceivedParts* const received = peers_.Transfer(message);
  const Buffer keeper(received, nullptr, 0);
  const auto got = DecodeInspectReply(received->slices, {}, RowChecksums::kOptional);
  ASSERT_OK(got);
  ExpectSame(got->items, reply.items);
}

TEST_F(WireSharedMemoryTest, ChunksOfInsertsAreReferencesAndCopiedOnce) {
  const std::vector<ChunkRef> chunks = Chunks(8, 3, &memory_);
  InsertMessage message;
  for (uint64_t i = 0; i < chunks.size(); ++i) {
    message.items.push_back(ItemOf(i + 1, Trajectory::Single(chunks[i], 0, 3).value()));
  }
  InsertEncoder encoder(WireEncoding::ForSharedMemory(&memory_));
  const WireMessage sent = encoder.Encode(message);
  ReceivedParts* const received = peers_.Transfer(sent);
  const Buffer keeper(received, nullptr, 0);
  uint64_t payload_bytes = 0;
  for (const ChunkRef& chunk : chunks) payload_bytes += chunk->payload().size();
  EXPECT_EQ(received->referenced_bytes, payload_bytes);
  InsertDecoder decoder(Factory());
  const auto got = decoder.Decode(received->slices);
  ASSERT_OK(got);
  ExpectSame(got->items, message.items);
  // The client cannot change them any more.
  const std::string before = Contents(got->items[0].trajectory);
  std::memset(const_cast<uint8_t*>(chunks[0]->payload().data()), 0, chunks[0]->payload().size());
  EXPECT_EQ(Contents(got->items[0].trajectory), before);
}

TEST_F(WireSharedMemoryTest, SmallPayloadsOfInsertsAreReferencesIfTheyAreShared) {
  const std::vector<ColumnKind> kinds = {{DType::kFloat32, {100}}};
  for (PayloadSource* const source :
       {static_cast<PayloadSource*>(&memory_), static_cast<PayloadSource*>(nullptr)}) {
    const ChunkRef chunk = MakeChunk(1, kinds, 1, &random_, source);
    InsertEncoder encoder(WireEncoding::ForSharedMemory(&memory_));
    const WireMessage sent = encoder.Encode(MessageOf(ItemOf(1, Trajectory::Single(chunk, 0, 1).value())));
    ReceivedParts* const received = peers_.Transfer(sent);
    const Buffer keeper(received, nullptr, 0);
    EXPECT_EQ(received->referenced_bytes, source == nullptr ? 0u : 400u);
    InsertDecoder decoder(Factory());
    const auto got = decoder.Decode(received->slices);
    ASSERT_OK(got);
    EXPECT_EQ(Contents(got->items[0].trajectory), Contents(Trajectory::Single(chunk, 0, 1).value()));
  }
}

TEST_F(WireSharedMemoryTest, AClientThatChangesItsMemoryIsDetected) {
  const std::vector<ChunkRef> chunks = Chunks(1, 3, &memory_);
  InsertEncoder encoder(WireEncoding::ForSharedMemory(&memory_));
  const WireMessage sent = encoder.Encode(MessageOf(ItemOf(1, Trajectory::Single(chunks[0], 0, 3).value())));
  ReceivedParts* const received = peers_.Transfer(sent);
  const Buffer keeper(received, nullptr, 0);
  const_cast<uint8_t&>(chunks[0]->payload()[5]) ^= 1;
  InsertDecoder decoder(Factory());
  EXPECT_THAT(decoder.Decode(received->slices), StatusIs(StatusCode::kDataLoss, HasSubstr("checksum")));
}

}  // namespace
}  // namespace reverb::internal
