// Tests the messages of row tables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/shared_memory.h"
#include "testing/rows.h"
#include "transport/wire_memory_testing.h"
#include "transport/wire_stream_testing.h"

namespace reverb::internal {
namespace {

using test::MakeRow;

std::vector<int64_t> ValuesOf(const RowSegment& segment) {
  std::vector<int64_t> values(static_cast<size_t>(segment.length()));
  EXPECT_OK(ReadSegment(segment, {reinterpret_cast<uint8_t*>(values.data()), values.size() * 8}));
  return values;
}

std::vector<int64_t> CountTo(int64_t length) {
  std::vector<int64_t> values(static_cast<size_t>(length));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

RowsRequest PutOf(std::vector<RowWrite> rows) {
  RowsRequest request;
  request.call.verb = RowsVerb::kPut;
  request.call.table = "rollouts";
  request.call.write.columns = {"tokens", "reward"};
  request.rows = std::move(rows);
  return request;
}

RowsReply ReplyWith(std::vector<RowWrite> rows) {
  RowsReply reply;
  reply.result.columns = {"tokens", "reward"};
  for (RowWrite& row : rows) {
    RowRecord& record = reply.rows.emplace_back();
    record.key = std::move(row.key);
    record.num_segments = {1, 1};
    record.segments = {{.chunk = row.chunk, .chunk_column = 0}, {.chunk = row.chunk, .chunk_column = 1}};
  }
  reply.rows_with_data = reply.rows.size();
  return reply;
}

TEST(WireRowsTest, ARequestArrivesAsItWas) {
  const RowsRequest request =
      PutOf({MakeRow("a", {700, -1}, "g", {{"split", std::string("math")}, {"reward", 0.5}}),
             {.key = "none"},
             MakeRow("b", {0, -1})});
  const auto got = DecodeRowsRequest(Slices(EncodeRowsRequest(request)), Factory());
  ASSERT_OK(got);
  ASSERT_EQ(got->rows.size(), 3u);
  EXPECT_EQ(got->rows[0].key, "a");
  EXPECT_EQ(got->rows[0].group, "g");
  EXPECT_EQ(got->rows[0].tags, request.rows[0].tags);
  EXPECT_EQ(ValuesOf({.chunk = got->rows[0].chunk}), CountTo(700));
  EXPECT_EQ(ValuesOf({.chunk = got->rows[0].chunk, .chunk_column = 1}), CountTo(1));
  EXPECT_FALSE(got->rows[1].chunk);
  EXPECT_EQ(ValuesOf({.chunk = got->rows[2].chunk}), CountTo(0));
}

TEST(WireRowsTest, DataOfRowsThatAreNotThereIsRefused) {
  const std::string two = EncodeRowsRequest(PutOf({MakeRow("a", {3, -1}), MakeRow("b", {3, -1})})).Flatten();
  // The rows without the data, and the other way round.
  const std::string no_data = EncodeRowsRequest(PutOf({{.key = "a"}, {.key = "b"}})).Flatten();
  const std::string data = two.substr(no_data.size());
  ASSERT_EQ(no_data + data, two);
  const auto decode = [](const std::string& bytes) {
    const ByteSlice slice = SliceOf(bytes);
    return DecodeRowsRequest(ByteSlices(&slice, 1), Factory()).status();
  };
  EXPECT_OK(decode(two));
  EXPECT_OK(decode(data + no_data)) << "in any order";
  EXPECT_THAT(decode(two + data), StatusIs(StatusCode::kInvalidArgument, HasSubstr("row 1 of 2")));
  EXPECT_THAT(decode(EncodeRowsRequest(PutOf({{.key = "a"}})).Flatten() + data),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("row 2 of 1")));
  EXPECT_THAT(decode(data), StatusIs(StatusCode::kInvalidArgument, HasSubstr("row 1 of 0")));
}

TEST(WireRowsTest, AReplyArrivesAsItWas) {
  RowsReply reply = ReplyWith({MakeRow("a", {700, -1}), MakeRow("b", {2, -1}), MakeRow("c", {3, -1})});
  reply.rows[0].segments.push_back(reply.rows[1].segments[1]);  // appended
  reply.rows[0].num_segments = {1, 2};
  reply.rows_with_data = 2;
  const auto got = DecodeRowsReply(Slices(EncodeRowsReply(reply)));
  ASSERT_OK(got);
  EXPECT_EQ(got->rows_with_data, 2u);
  EXPECT_THAT(test::KeysOf(got->rows), ElementsAre("a", "b", "c"));
  ASSERT_EQ(got->rows[0].segments.size(), 3u);
  EXPECT_EQ(ValuesOf(got->rows[0].segments[0]), CountTo(700));
  EXPECT_EQ(ValuesOf(got->rows[1].segments[0]), CountTo(2));
  EXPECT_TRUE(got->rows[2].segments.empty());
}

TEST(WireRowsTest, AReplyWhoseDataDoesNotFitItsRowsIsRefused) {
  RowsReply reply = ReplyWith({MakeRow("a", {3, -1}), MakeRow("b", {3, -1})});
  const auto decode = [&] { return DecodeRowsReply(Slices(EncodeRowsReply(reply))).status(); };
  ASSERT_OK(decode());
  reply.rows[1].num_segments = {1, 2};
  EXPECT_THAT(decode(), StatusIs(StatusCode::kDataLoss, HasSubstr("3 segments, but 2 are left")));
  reply.rows[1].num_segments = {1, 0};
  EXPECT_THAT(decode(), StatusIs(StatusCode::kDataLoss, HasSubstr("belongs to no row")));
  reply.rows[1].num_segments = {1, UINT32_MAX};
  EXPECT_THAT(decode(), StatusIs(StatusCode::kDataLoss, HasSubstr("segments")));
}

// --- Shared memory ---

class WireSharedRowsTest : public testing::Test {
 protected:
  RowWrite SharedRow(std::string key, int64_t length) {
    const std::vector<int64_t> values = CountTo(length);
    const int64_t reward = 1;
    const std::vector<TensorView> columns = {{DType::kInt64, std::span(&length, 1), values.data()},
                                             {DType::kInt64, {}, &reward}};
    return {.key = std::move(key), .chunk = EncodeRow(columns, &memory_).value()};
  }

  MemoryPeers peers_;
  SharedMemory& memory_ = *peers_.memory();
};

TEST_F(WireSharedRowsTest, LongValuesAreReferencesInBothDirections) {
  std::vector<RowWrite> rows = {SharedRow("a", 1000), SharedRow("b", 20)};
  const WireMessage request =
      EncodeRowsRequest(PutOf(rows), {.shared_memory = &memory_, .min_shared_bytes = 128});
  ReceivedParts* const sent = peers_.Transfer(request);
  const Buffer sent_keeper(sent, nullptr, 0);
  EXPECT_EQ(sent->referenced_bytes, 8008u + 168u);
  const auto put = DecodeRowsRequest(sent->slices, Factory());
  ASSERT_OK(put);
  EXPECT_EQ(ValuesOf({.chunk = put->rows[0].chunk}), CountTo(1000));
  EXPECT_EQ(ValuesOf({.chunk = put->rows[1].chunk}), CountTo(20));

  const RowsReply reply = ReplyWith(std::move(rows));
  const WireMessage message = EncodeRowsReply(reply, WireEncoding::ForSharedMemory(&memory_));
  ReceivedParts* const received = peers_.Transfer(message);
  const Buffer keeper(received, nullptr, 0);
  EXPECT_EQ(received->referenced_bytes, 8000u);
  const auto got = DecodeRowsReply(received->slices, {}, keeper, RowChecksums::kOptional);
  ASSERT_OK(got);
  EXPECT_TRUE(got->rows[0].segments[0].chunk->is_scattered()) << "it stays in the server's memory";
  EXPECT_EQ(ValuesOf(got->rows[0].segments[0]), CountTo(1000));
  EXPECT_EQ(ValuesOf(got->rows[1].segments[0]), CountTo(20));
  received->is_revoked = true;
  std::vector<uint8_t> out(8000);
  EXPECT_THAT(ReadSegment(got->rows[0].segments[0], out), StatusIs(StatusCode::kUnavailable));
  EXPECT_EQ(ValuesOf(got->rows[1].segments[0]), CountTo(20)) << "it was copied";
  EXPECT_THAT(DecodeRowsReply(received->slices, {}, keeper, RowChecksums::kOptional),
              StatusIs(StatusCode::kUnavailable));
}

TEST_F(WireSharedRowsTest, ChecksumsAreRequiredWhereTheReceiverSaysSo) {
  const RowsReply reply = ReplyWith({SharedRow("a", 1000)});
  const WireMessage message = EncodeRowsReply(reply, WireEncoding::ForSharedMemory(&memory_));
  ReceivedParts* const received = peers_.Transfer(message);
  const Buffer keeper(received, nullptr, 0);
  EXPECT_THAT(DecodeRowsReply(received->slices, {}, keeper), StatusIs(StatusCode::kDataLoss));
}

}  // namespace
}  // namespace reverb::internal
