#include "transport/wire_shared_columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "transport/wire_stream_testing.h"

namespace reverb::internal {
namespace {

class WireSharedColumnsTest : public WireSampleTest {
 protected:
  // Raw columns: small rows, empty rows, rows long enough to be sent by reference.
  const std::vector<ColumnKind> kinds_ = {{DType::kInt64},
                                          {DType::kFloat32, {3}},
                                          {DType::kBool, {0, 3}},
                                          {DType::kUint8, {2000}},
                                          {DType::kFloat32, {300}, CodecPolicy::kLz4},
                                          {DType::kString}};
  std::vector<ChunkRef> Chunks(size_t count, uint32_t rows) {
    std::vector<ChunkRef> chunks;
    for (size_t i = 0; i < count; ++i) chunks.push_back(MakeChunk(i, kinds_, rows, &random_));
    return chunks;
  }
  // Expects that the reply arrives as it was sent, and whether its columns were sent once.
  void ExpectArrives(const SampleReply& reply, bool is_shared) {
    const auto got = RoundTrip(reply);
    ASSERT_OK(got);
    ExpectSame(got->samples, reply.samples);
    EXPECT_EQ(got->shared_columns, is_shared);
  }
};

TEST_F(WireSharedColumnsTest, RandomBatchesArriveAsTheyWere) {
  const std::vector<ChunkRef> chunks = Chunks(300, 6);
  int num_shared = 0;
  for (int round = 0; round < 100; ++round) {
    std::vector<uint32_t> columns;
    std::vector<uint32_t> lengths;
    for (uint64_t c = random_.Below(4) + 1; c > 0; --c) {
      columns.push_back(static_cast<uint32_t>(random_.Below(4)));
      lengths.push_back(static_cast<uint32_t>(random_.Below(2) == 0 ? 1 : 1 + random_.Below(5)));
    }
    SampleReply reply{.request_id = 1,
                      .samples = test::UniformBatch(chunks, columns, lengths, 2 + random_.Below(5), &random_),
                      .end = Status::Cancelled("enough"),
                      .shared_columns = true};
    const auto got = RoundTrip(reply);
    ASSERT_OK(got);
    EXPECT_EQ(got->end, reply.end);
    ExpectSame(got->samples, reply.samples);
    num_shared += got->shared_columns;  // some batches overlap by chance
    // The longer form, for a client that does not support shared columns.
    reply.shared_columns = false;
    ExpectArrives(reply, false);
  }
  EXPECT_GT(num_shared, 80);
}

TEST_F(WireSharedColumnsTest, ColumnsAreSentOnceAndRowsAreContiguous) {
  const SampleReply reply{.samples = test::UniformBatch(Chunks(400, 6), {0, 1, 1}, {1, 3, 2}, 32, &random_),
                          .shared_columns = true};
  const auto got = RoundTrip(reply);
  ASSERT_OK(got);
  ExpectSame(got->samples, reply.samples);
  ASSERT_TRUE(got->shared_columns);
  EXPECT_LT(message_.total_bytes(), 32 * (8 + 3 * 12 + 2 * 12 + 50) + 300);
  for (uint32_t i = 0; i < 32; ++i) {
    const Trajectory& trajectory = got->samples[i].trajectory;
    const uint32_t lengths[] = {1, 3, 2};
    for (uint32_t c = 0; c < 3; ++c) {
      ASSERT_EQ(trajectory.num_slices(c), 1u);
      EXPECT_EQ(trajectory.slice(c, 0).offset, i * lengths[c]);
      EXPECT_EQ(trajectory.slice(c, 0).length, lengths[c]);
    }
    EXPECT_EQ(i > 0, i > 0 && trajectory.Follows(got->samples[i - 1].trajectory));
  }
}

TEST_F(WireSharedColumnsTest, LongRowsAreSentByReference) {
  const std::vector<ChunkRef> chunks = Chunks(8, 4);
  SampleReply reply{.shared_columns = true};
  for (const ChunkRef& chunk : chunks) {
    std::vector<ColumnSpec> columns(1);
    columns[0].slices = {{chunk, 3, 1, 2}};
    reply.samples.push_back(SampleOf(Trajectory::Create(columns).value()));
  }
  ExpectArrives(reply, true);
  ASSERT_EQ(message_.parts().size(), 9u);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(message_.parts()[i + 1].data(), chunks[i]->column_payload(3).data() + 2000);
  }
}

TEST_F(WireSharedColumnsTest, DifferentColumnsTakeTheLongerForm) {
  const std::vector<ChunkRef> chunks = Chunks(64, 6);
  const auto batch = [&](const std::vector<uint32_t>& columns, const std::vector<uint32_t>& lengths) {
    return test::UniformBatch(chunks, columns, lengths, 8, &random_);
  };
  const auto both = [&](std::vector<Sample> samples, const std::vector<Sample>& more) {
    samples.insert(samples.end(), more.begin(), more.end());
    return SampleReply{.samples = std::move(samples), .shared_columns = true};
  };
  ExpectArrives(both(batch({0, 1}, {1, 1}), {}), true);
  ExpectArrives(both(batch({0, 4}, {1, 1}), {}), false);                           // compressed
  ExpectArrives(both(batch({0, 5}, {1, 1}), {}), false);                           // strings
  ExpectArrives(both(batch({0, 1}, {1, 1}), batch({1, 1}, {1, 1})), false);        // another dtype
  ExpectArrives(both(batch({0, 1}, {2, 1}), batch({0, 1}, {3, 1})), false);        // longer
  ExpectArrives(both(batch({0, 1}, {1, 1}), batch({0, 1, 1}, {1, 1, 1})), false);  // more columns
  ExpectArrives(both({batch({0}, {1})[0]}, {}), false);                            // one alone
  ExpectArrives(both({}, {}), false);
}

TEST_F(WireSharedColumnsTest, ASqueezedColumnDiffersFromAColumnOfOneRow) {
  const ChunkRef chunk = Chunks(1, 6)[0];
  SampleReply reply{.shared_columns = true};
  for (const bool squeeze : {true, false}) {
    reply.samples.push_back(SampleOf(Trajectory::Single(chunk, squeeze ? 1 : 2, 1, squeeze).value()));
  }
  ExpectArrives(reply, false);
}

TEST_F(WireSharedColumnsTest, RowsThatOverlapMuchAreSentOnce) {
  const ChunkRef chunk = Chunks(1, 40)[0];
  SampleReply drawn_often{.shared_columns = true};
  SampleReply frames{.shared_columns = true};
  for (uint32_t i = 0; i < 20; ++i) {
    drawn_often.samples.push_back(SampleOf(chunk, i % 8, 1));
    frames.samples.push_back(SampleOf(chunk, i, 4));
  }
  ExpectArrives(drawn_often, false);
  ExpectArrives(frames, false);
  SampleReply seldom{.shared_columns = true};
  for (uint32_t i = 0; i < 20; ++i) seldom.samples.push_back(SampleOf(chunk, i % 16, 1));
  ExpectArrives(seldom, true);
}

TEST_F(WireSharedColumnsTest, ErrorsNameWhatIsWrong) {
  // A response with two samples without columns, and one piece of ten rows.
  const ChunkRef chunk = MakeChunk(1, {{DType::kInt64}}, 10, &random_);
  const std::string piece_only = [&] {
    const std::string bytes = EncodeSampleReply({.samples = {SampleOf(chunk, 0, 10)}}).Flatten();
    return bytes.substr(bytes.find('\x7a'));
  }();
  const auto column = [](const std::string& slice) {
    const std::string in_column = std::string("\x0a") + static_cast<char>(slice.size()) + slice;
    return std::string("\x2a") + static_cast<char>(in_column.size()) + in_column;
  };
  const std::string two_samples("\x1a\x00\x1a\x00", 4);
  const auto decode = [&](const std::string& columns, const WireLimits& limits = {}) {
    const std::string bytes = two_samples + columns + piece_only;
    const ByteSlice slice = SliceOf(bytes);
    return DecodeSampleReply({&slice, 1}, limits);
  };
  // Encodes `length` rows of piece 0 from `offset` on.
  const auto rows = [](char offset, char length) { return std::string{'\x18', offset, '\x20', length}; };
  const auto got = decode(column(rows(2, 4)));
  ASSERT_OK(got);
  ASSERT_EQ(got->samples.size(), 2u);
  EXPECT_EQ(got->samples[1].trajectory.slice(0, 0).offset, 6u);
  EXPECT_EQ(got->samples[1].trajectory.length(0), 4);

  const auto is_invalid = [](const char* text) {
    return StatusIs(StatusCode::kInvalidArgument, HasSubstr(text));
  };
  EXPECT_THAT(decode(""), is_invalid("sample 0"));
  EXPECT_THAT(decode(column(rows(3, 4))),
              is_invalid("shared columns: trajectory column 0: 2 times 4 rows from 3"));
  EXPECT_THAT(decode(column(rows(11, 1))), is_invalid("which has 10 rows"));
  EXPECT_THAT(decode(column(rows(0, 0))), is_invalid("shared columns"));
  EXPECT_THAT(decode(column("\x20\xff\xff\xff\xff\x0f")), is_invalid("4294967295 rows"));
  EXPECT_THAT(decode(column("\x08\x01\x20\x01")),
              is_invalid("shared column 0: slice 0 refers to chunk 1, which is not known here"));
  EXPECT_THAT(decode(column("\x10\x01\x20\x01")), is_invalid("names column 1"));
  EXPECT_THAT(decode(std::string("\x2a\x00", 2)),
              is_invalid("has 0 slices; in a series each column has one"));
  // A column of two slices.
  EXPECT_THAT(decode(std::string("\x2a\x08\x0a\x02\x20\x01\x0a\x02\x20\x01", 10)),
              is_invalid("has 2 slices; in a series each column has one"));
  // A squeezed column of two rows.
  EXPECT_THAT(decode(std::string("\x2a\x06\x0a\x02\x20\x02\x10\x01", 8)), is_invalid("squeezed"));

  const auto is_refused = [](const char* text) {
    return StatusIs(StatusCode::kResourceExhausted, HasSubstr(text));
  };
  const std::string two_columns = column(rows(0, 1)) + column(rows(0, 2));
  EXPECT_OK(decode(two_columns));
  EXPECT_THAT(decode(two_columns, {.max_columns = 1}), is_refused("more than the 1 columns"));
  // Shared columns count for every sample.
  EXPECT_OK(decode(two_columns, {.max_slices = 4}));
  EXPECT_THAT(decode(two_columns, {.max_slices = 3}),
              is_refused("2 samples of 2 columns: more than the 3 slices"));
}

TEST_F(WireSharedColumnsTest, InfosHaveOneValueForEachSampleOrOneForAll) {
  const ChunkRef chunk = MakeChunk(1, {{DType::kInt64}}, 10, &random_);
  SampleReply reply{.shared_columns = true};
  for (uint32_t i = 0; i < 3; ++i) {
    reply.samples.push_back(SampleOf(chunk, i, 1));
    reply.samples.back().key = i;
    reply.samples.back().priority = 0.5;
    reply.samples.back().inserted_at = -static_cast<int64_t>(i);
  }
  const std::string bytes = EncodeSampleReply(reply).Flatten();
  const size_t at = bytes.find('\x42');  // infos
  const std::string before = bytes.substr(0, at);
  const std::string after = bytes.substr(at + 2 + static_cast<size_t>(bytes[at + 1]));
  const auto decode = [&](const std::string& infos, const WireLimits& limits = {}) {
    const std::string all = before + '\x42' + static_cast<char>(infos.size()) + infos + after;
    const ByteSlice slice = SliceOf(all);
    return DecodeSampleReply({&slice, 1}, limits);
  };
  const std::string keys = "\x0a\x18" + std::string(24, '\x07');
  const std::string half("\x12\x08\x00\x00\x00\x00\x00\x00\xe0\x3f", 10);
  const auto got = decode(keys + half + std::string("\x22\x03\x05\x06\x07", 5));
  ASSERT_OK(got);
  ASSERT_EQ(got->samples.size(), 3u);
  EXPECT_EQ(got->samples[2].key, 0x0707'0707'0707'0707u);
  EXPECT_EQ(got->samples[1].priority, 0.5);
  EXPECT_EQ(got->samples[1].table_size, 6);
  EXPECT_EQ(got->samples[1].probability, 0);

  const auto is_lost = [](const char* text) { return StatusIs(StatusCode::kDataLoss, HasSubstr(text)); };
  EXPECT_THAT(decode(keys + std::string("\x22\x02\x05\x06", 4)), is_lost("field 4 has neither one value"));
  EXPECT_THAT(decode(keys + std::string("\x22\x04\x05\x06\x07\x08", 6)), is_lost("field 4"));
  EXPECT_THAT(decode(keys + std::string("\x32\x01\x02", 3)), is_lost("field 6"));
  EXPECT_THAT(decode(keys + std::string("\x2a\x05\xff\xff\xff\xff\x0f", 7)), is_lost("field 5"));
  EXPECT_THAT(decode("\x0a\x07" + std::string(7, 'x')), is_lost("SampleInfos"));
  EXPECT_THAT(decode(keys, {.max_items = 2}),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("more than the 2 keys")));
  // More samples than the columns have rows.
  EXPECT_THAT(decode("\x0a\x58" + std::string(88, '\x07')),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("shared columns")));
  // Samples in both forms, and infos without shared columns.
  const std::string both = bytes + std::string("\x1a\x00", 2);
  const ByteSlice slice = SliceOf(both);
  EXPECT_THAT(DecodeSampleReply({&slice, 1}), is_lost("come alone"));
  const std::string alone = '\x42' + std::string(1, static_cast<char>(keys.size())) + keys;
  const ByteSlice alone_slice = SliceOf(alone);
  EXPECT_THAT(DecodeSampleReply({&alone_slice, 1}), is_lost("need shared columns"));
}

TEST_F(WireSharedColumnsTest, ASampleMayHaveColumnsOfItsOwn) {
  const ChunkRef chunk = MakeChunk(1, {{DType::kInt64}}, 10, &random_);
  // A sample with columns, one without, then the shared columns.
  const std::string own = EncodeSampleReply({.samples = {SampleOf(chunk, 0, 10)}}).Flatten();
  const std::string bytes = own + std::string("\x1a\x00\x2a\x04\x0a\x02\x20\x02", 8);
  const ByteSlice slice = SliceOf(bytes);
  const auto got = DecodeSampleReply({&slice, 1});
  ASSERT_OK(got);
  ASSERT_EQ(got->samples.size(), 2u);
  EXPECT_EQ(got->samples[0].trajectory.length(0), 10);
  EXPECT_EQ(got->samples[1].trajectory.length(0), 2);
  EXPECT_EQ(got->samples[1].trajectory.slice(0, 0).offset, 2u);
}

}  // namespace
}  // namespace reverb::internal
