// Tests SegmentWriter together with the readers of its files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/segment_reader.h"
#include "checkpoint/segment_writer.h"
#include "testing/chunks.h"
#include "testing/fake_file_system.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::FakeFileSystem;
using test::StatusIs;
using ::testing::HasSubstr;

constexpr char kCheckpoint[] = "/data/checkpoint";
constexpr char kSegments[] = "/data/segments";

class SegmentTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_OK(fs_.CreateDir(kSegments, FileSystem::Parents::kCreateMissing)); }

  // Writes a segment of chunks with these numbers of rows.
  SavedSegment WriteChunks(uint64_t number, const std::vector<uint32_t>& rows) {
    std::unique_ptr<SegmentWriter> writer =
        SegmentWriter::Create(&fs_, kSegments, number, SegmentKind::kChunks).value();
    for (size_t i = 0; i < rows.size(); ++i) {
      originals_.push_back(test::MakeChunk(&store_, i, 0, rows[i], static_cast<int64_t>(1000 * i)));
      EXPECT_EQ(writer->count(), i);
      EXPECT_OK(writer->AddChunk(*originals_.back()));
    }
    EXPECT_OK(writer->Finish());
    EXPECT_OK(writer->Close());
    return {
        .number = number, .kind = SegmentKind::kChunks, .file_bytes = writer->bytes(), .count = rows.size()};
  }
  // Loads the chunks for which `wanted` is set; all by default.
  Result<std::vector<ChunkRef>> Load(const SavedSegment& segment, std::vector<bool> wanted = {}) {
    if (wanted.empty()) wanted.assign(segment.count, true);
    REVERB_ASSIGN_OR_RETURN(const std::unique_ptr<SegmentChunks> chunks,
                            SegmentChunks::Open(&fs_, kCheckpoint, segment));
    std::vector<ChunkRef> loaded(segment.count);
    for (const ChunkRange& range : chunks->ranges()) {
      REVERB_RETURN_IF_ERROR(
          chunks->Load(range, wanted, loaded_store_, loaded, [&](uint64_t bytes) { progress_ += bytes; }));
    }
    return loaded;
  }
  void ExpectEqual(const Chunk& a, const Chunk& b) {
    EXPECT_EQ(a.header().Unpack(), b.header().Unpack());
    EXPECT_TRUE(std::ranges::equal(a.payload(), b.payload()));
  }
  std::string PathOf(const SavedSegment& segment) {
    return SegmentPath(kCheckpoint, segment.number, segment.kind);
  }

  FakeFileSystem fs_;
  ChunkStore store_{{}};
  ChunkStore loaded_store_{{}};
  std::vector<ChunkRef> originals_;
  uint64_t progress_ = 0;
};

TEST_F(SegmentTest, ChunksOfAllSizesRoundTrip) {
  // Rows of 8 bytes: buffered, larger than a direct read (16 kB), a direct write (128 kB), a buffer (1 MB).
  const SavedSegment segment = WriteChunks(7, {1, 100, 3'000, 20'000, 1, 200'000, 2});
  const Result<std::vector<ChunkRef>> loaded = Load(segment);
  ASSERT_OK(loaded);
  for (size_t i = 0; i < originals_.size(); ++i) ExpectEqual(*(*loaded)[i], *originals_[i]);
  EXPECT_GT(progress_, uint64_t{200'000} * 8);
  EXPECT_LT(progress_, segment.file_bytes);
}

TEST_F(SegmentTest, LargeSegmentsHaveSeveralRanges) {
  const SavedSegment segment = WriteChunks(7, std::vector<uint32_t>(40, 131'072));  // 40 MB
  const auto chunks = SegmentChunks::Open(&fs_, kCheckpoint, segment).value();
  ASSERT_EQ(chunks->ranges().size(), 3u);
  EXPECT_EQ(chunks->ranges()[1].first, chunks->ranges()[0].end);
  EXPECT_EQ(chunks->ranges()[2].end, 40u);
  std::vector<ChunkRef> loaded(40);
  ASSERT_OK(
      chunks->Load(chunks->ranges()[2], std::vector<bool>(40, true), loaded_store_, loaded, [](uint64_t) {}));
  EXPECT_FALSE(loaded[0]);
  ExpectEqual(*loaded[39], *originals_[39]);
}

TEST_F(SegmentTest, OnlyWantedChunksAreLoaded) {
  const SavedSegment segment = WriteChunks(7, {10, 50'000, 10, 10});
  const Result<std::vector<ChunkRef>> loaded = Load(segment, {true, false, false, true});
  ASSERT_OK(loaded);
  ExpectEqual(*(*loaded)[0], *originals_[0]);
  EXPECT_FALSE((*loaded)[1]);
  EXPECT_FALSE((*loaded)[2]);
  ExpectEqual(*(*loaded)[3], *originals_[3]);
  EXPECT_EQ(loaded_store_.stats().live_chunks, 2);
}

TEST_F(SegmentTest, MappedChunksKeepTheFileMapped) {
  const SavedSegment segment = WriteChunks(7, {10, 3'000});
  ChunkRef chunk;
  {
    const auto chunks = MappedChunks::Open(&fs_, kCheckpoint, segment).value();
    EXPECT_THAT(chunks->Get(2), StatusIs(StatusCode::kDataLoss, HasSubstr("no chunk 2")));
    ExpectEqual(*chunks->Get(0).value(), *originals_[0]);
    chunk = chunks->Get(1).value();
  }
  ASSERT_OK(fs_.RemoveFile(PathOf(segment)));
  ExpectEqual(*chunk, *originals_[1]);
}

TEST_F(SegmentTest, AnEmptySegmentHasNoChunks) {
  const SavedSegment segment = WriteChunks(7, {});
  EXPECT_EQ(segment.file_bytes, kSegmentHeaderBytes + kSegmentTrailerBytes);
  EXPECT_TRUE(SegmentChunks::Open(&fs_, kCheckpoint, segment).value()->ranges().empty());
  EXPECT_THAT(MappedChunks::Open(&fs_, kCheckpoint, segment).value()->Get(0),
              StatusIs(StatusCode::kDataLoss));
}

TEST_F(SegmentTest, EveryFlippedByteIsDataLoss) {
  const SavedSegment segment = WriteChunks(7, {3, 1});
  const std::string bytes = fs_.ReadAll(PathOf(segment)).value();
  const auto get_all = [&]() -> Status {
    REVERB_ASSIGN_OR_RETURN(const auto chunks, MappedChunks::Open(&fs_, kCheckpoint, segment));
    for (uint32_t i = 0; i < 2; ++i) REVERB_RETURN_IF_ERROR(chunks->Get(i).status());
    return Status::Ok();
  };
  ASSERT_OK(get_all());
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] ^= 0x04;
    ASSERT_OK(fs_.WriteAll(PathOf(segment), damaged));
    EXPECT_THAT(Load(segment), StatusIs(StatusCode::kDataLoss, HasSubstr(PathOf(segment)))) << i;
    EXPECT_THAT(get_all(), StatusIs(StatusCode::kDataLoss, HasSubstr(PathOf(segment)))) << i;
  }
}

TEST_F(SegmentTest, EveryTruncationIsDataLoss) {
  SavedSegment segment = WriteChunks(7, {3, 1});
  const std::string bytes = fs_.ReadAll(PathOf(segment)).value();
  for (size_t size = 0; size < bytes.size(); ++size) {
    ASSERT_OK(fs_.WriteAll(PathOf(segment), bytes.substr(0, size)));
    EXPECT_THAT(Load(segment), StatusIs(StatusCode::kDataLoss, HasSubstr("instead of"))) << size;
    SavedSegment shorter = segment;  // a manifest that states the same size
    shorter.file_bytes = size;
    EXPECT_THAT(Load(shorter), StatusIs(StatusCode::kDataLoss)) << size;
    EXPECT_THAT(MappedChunks::Open(&fs_, kCheckpoint, shorter), StatusIs(StatusCode::kDataLoss)) << size;
  }
}

TEST_F(SegmentTest, AMissingFileIsDataLossWithARemedy) {
  const SavedSegment segment{.number = 9, .kind = SegmentKind::kChunks, .file_bytes = 100, .count = 1};
  EXPECT_THAT(Load(segment), StatusIs(StatusCode::kDataLoss, HasSubstr("copy the whole folder")));
}

TEST_F(SegmentTest, AFileWithAnotherNumberIsDataLoss) {
  SavedSegment segment = WriteChunks(7, {1});
  ASSERT_OK(fs_.Rename(PathOf(segment), SegmentPath(kCheckpoint, 8, SegmentKind::kChunks)));
  segment.number = 8;
  EXPECT_THAT(Load(segment), StatusIs(StatusCode::kDataLoss));
}

// --- Records ---

TEST_F(SegmentTest, RecordsOfSeveralSegmentsRoundTrip) {
  const std::string large(300'000, 'x');
  std::vector<SavedSegment> segments;
  std::vector<std::pair<RecordPlace, std::string>> records;
  for (const uint64_t number : {3, 4}) {
    auto writer = SegmentWriter::Create(&fs_, kSegments, number, SegmentKind::kPages).value();
    for (const std::string& bytes : {std::string("first"), std::string(), large, std::to_string(number)}) {
      const Result<RecordPlace> place = writer->AddRecord(bytes);
      ASSERT_OK(place);
      EXPECT_EQ(place->segment, number);
      EXPECT_EQ(place->size, bytes.size() + kPageRecordHeadBytes);
      records.emplace_back(*place, bytes);
    }
    ASSERT_OK(writer->Finish());
    ASSERT_OK(writer->Close());
    segments.push_back({.number = number, .kind = SegmentKind::kPages, .file_bytes = writer->bytes()});
  }
  RecordReader reader(&fs_, kCheckpoint, &segments);
  for (size_t i = 0; i < records.size(); ++i) {
    const auto& [place, bytes] = records[i * 3 % records.size()];  // alternates between the segments
    const Result<std::string_view> read = reader.Read(place);
    ASSERT_OK(read);
    EXPECT_TRUE(*read == bytes) << i;
  }
}

TEST_F(SegmentTest, InvalidRecordsAreDataLoss) {
  auto writer = SegmentWriter::Create(&fs_, kSegments, 3, SegmentKind::kPages).value();
  const RecordPlace place = writer->AddRecord("some bytes").value();
  ASSERT_OK(writer->Finish());
  ASSERT_OK(writer->Close());
  const std::vector<SavedSegment> segments = {
      {.number = 3, .kind = SegmentKind::kPages, .file_bytes = writer->bytes()}};
  const auto read = [&](const RecordPlace& at) {
    return RecordReader(&fs_, kCheckpoint, &segments).Read(at);
  };
  ASSERT_OK(read(place));
  RecordPlace wrong = place;
  wrong.segment = 4;
  EXPECT_THAT(read(wrong), StatusIs(StatusCode::kDataLoss, HasSubstr("does not list")));
  wrong = place;
  wrong.offset += 1;
  EXPECT_THAT(read(wrong), StatusIs(StatusCode::kDataLoss, HasSubstr("beyond its end")));
  wrong = place;
  wrong.size -= 1;
  EXPECT_THAT(read(wrong), StatusIs(StatusCode::kDataLoss, HasSubstr("wrong checksum")));
  wrong.size = kPageRecordHeadBytes - 1;
  EXPECT_THAT(read(wrong), StatusIs(StatusCode::kDataLoss));
  wrong = place;
  wrong.offset = UINT64_MAX;
  EXPECT_THAT(read(wrong), StatusIs(StatusCode::kDataLoss));

  std::string bytes = fs_.ReadAll(PathOf(segments[0])).value();
  bytes.back() ^= 1;
  ASSERT_OK(fs_.WriteAll(PathOf(segments[0]), bytes));
  EXPECT_THAT(read(place), StatusIs(StatusCode::kDataLoss, HasSubstr("wrong checksum")));
}

TEST_F(SegmentTest, AFullDiskFailsTheWrite) {
  fs_.set_capacity(1000);
  auto writer = SegmentWriter::Create(&fs_, kSegments, 7, SegmentKind::kChunks).value();
  Status status = writer->AddChunk(*test::MakeChunk(&store_, 1, 0, 50'000));
  if (status.ok()) status = writer->Finish();
  if (status.ok()) status = writer->Sync();
  EXPECT_THAT(status, StatusIs(StatusCode::kFailedPrecondition));
}

}  // namespace
}  // namespace reverb::internal
