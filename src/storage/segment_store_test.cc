#include "storage/segment_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "storage/segment_format.h"
#include "tensor/column.h"
#include "testing/fake_file_system.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::FakeFileSystem;
using test::StatusIs;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

constexpr uint64_t kBlock = BlockFile::kBlockBytes;

class SegmentStoreTest : public testing::Test {
 protected:
  std::unique_ptr<SegmentStore> Open(uint64_t disk_limit = 16 * kBlock, uint64_t segment_bytes = 2 * kBlock) {
    Result<std::unique_ptr<SegmentStore>> store =
        SegmentStore::Open(&fs_, {.path = "/tier", .disk_limit = disk_limit, .segment_bytes = segment_bytes});
    EXPECT_OK(store.status());
    return *std::move(store);
  }
  // Returns a chunk with `bytes` of payload.
  ChunkRef MakeChunk(uint32_t bytes) {
    std::vector<uint8_t> raw(bytes, 1), payload;
    ColumnEncoder encoder(DType::kUint8, {bytes}, CodecPolicy::kNone);
    ChunkHeader header{.rows = 1};
    header.columns.push_back(encoder.Encode(raw, 1, &payload).value());
    return Chunk::Copy(NextChunkId(), header, payload).value();
  }
  std::vector<std::string> Files() {
    std::vector<std::string> names = fs_.ListDir("/tier").value();
    std::erase(names, "LOCK");
    return names;
  }

  FakeFileSystem fs_;
};

TEST_F(SegmentStoreTest, RemovesFilesThatAnEarlierProcessLeftAndNothingElse) {
  ASSERT_OK(fs_.CreateDir("/tier", FileSystem::Parents::kCreateMissing));
  ASSERT_OK(fs_.WriteAll("/tier/0000000000000001.payloads", "old"));
  ASSERT_OK(fs_.WriteAll("/tier/notes.txt", "keep"));
  ASSERT_OK(fs_.WriteAll("/tier/x.payloads", "keep"));
  const auto store = Open();
  EXPECT_THAT(Files(), ElementsAre("notes.txt", "x.payloads"));
}

// After kill -9, most of the space may be taken by files that the next start removes.
TEST_F(SegmentStoreTest, FreeSpaceIsMeasuredWithoutTheFilesOfAnEarlierProcess) {
  fs_.set_capacity(100 * kBlock);
  ASSERT_OK(fs_.CreateDir("/tier", FileSystem::Parents::kCreateMissing));
  ASSERT_OK(fs_.WriteAll("/tier/0000000000000001.payloads", std::string(90 * kBlock, 'x')));
  const auto store = Open(/*disk_limit=*/0, /*segment_bytes=*/0);
  EXPECT_EQ(store->options().disk_limit, 80 * kBlock);
  EXPECT_EQ(store->options().segment_bytes, SegmentStore::DefaultSegmentBytes(80 * kBlock));
}

TEST_F(SegmentStoreTest, RemovesItsFilesAtTheEnd) {
  auto store = Open();
  store->Install(store->Create(1).value());
  EXPECT_THAT(Files(), SizeIs(1));
  EXPECT_EQ(store->file_bytes(), 2 * kBlock);
  store.reset();
  EXPECT_THAT(Files(), SizeIs(0));
}

TEST_F(SegmentStoreTest, SealedSegmentDiesWithItsLastPayload) {
  auto store = Open();
  const std::shared_ptr<DiskSegment> segment = store->Create(1).value();
  store->Install(segment);
  const ChunkRef a = MakeChunk(100), b = MakeChunk(200);
  store->Add(segment.get(), 0, a.get(), 50);
  store->Add(segment.get(), 2, b.get(), 50);  // 1 is a filler
  EXPECT_EQ(store->live_bytes(), 300u);
  store->Free(segment.get(), 0, 100, 50);
  EXPECT_FALSE(store->has_dead());
  store->Seal(segment.get(), nullptr);
  EXPECT_FALSE(store->has_dead());
  store->Free(segment.get(), 2, 200, 50);
  ASSERT_TRUE(store->has_dead());
  const auto dead = store->TakeDead();
  ASSERT_THAT(dead, ElementsAre(segment));
  // It counts as long as the file exists.
  fs_.Inject({.kind = FakeFileSystem::Kind::kWrite});
  EXPECT_FALSE(store->RemoveFile(*segment));
  store->NoteRemoved(segment, false);
  EXPECT_EQ(store->file_bytes(), 2 * kBlock);
  ASSERT_THAT(store->TakeDead(), ElementsAre(segment));
  EXPECT_TRUE(store->RemoveFile(*segment));
  store->NoteRemoved(segment, true);
  EXPECT_EQ(store->file_bytes(), 0u);
  EXPECT_FALSE(store->has_dead());
  EXPECT_THAT(Files(), SizeIs(0));
}

TEST_F(SegmentStoreTest, SealedSegmentGivesBackTheSpaceThatItDoesNotNeed) {
  auto store = Open(64 * kBlock, 16 * kBlock);
  const std::shared_ptr<DiskSegment> segment = store->Create(1).value();
  store->Install(segment);
  EXPECT_EQ(store->file_bytes(), 16 * kBlock);
  const ChunkRef chunk = MakeChunk(100);
  store->Add(segment.get(), 0, chunk.get(), 50);
  segment->written_bytes = 2 * kBlock;
  segment->record_sizes = {2 * kBlock - kSegmentHeaderBytes};
  const std::shared_ptr<const PayloadFile> file = store->WriteEnd(segment.get());
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(file->count, 1u);
  EXPECT_EQ(fs_.FileSize(file->path).value(), file->bytes);
  EXPECT_GT(file->bytes, 2 * kBlock);
  store->Seal(segment.get(), file);
  EXPECT_EQ(store->file_bytes(), 3 * kBlock);
}

TEST_F(SegmentStoreTest, SegmentWhoseIndexCannotBeWrittenIsUsedAllTheSame) {
  auto store = Open();
  const std::shared_ptr<DiskSegment> segment = store->Create(1).value();
  store->Install(segment);
  fs_.Inject({.kind = FakeFileSystem::Kind::kWrite});
  EXPECT_EQ(store->WriteEnd(segment.get()), nullptr);
  store->Seal(segment.get(), nullptr);
  EXPECT_TRUE(store->has_dead());
}

TEST_F(SegmentStoreTest, LimitKeepsASegmentForCompaction) {
  auto store = Open(6 * kBlock, 2 * kBlock);
  EXPECT_TRUE(store->HasRoomFor(1, /*is_compaction=*/false));
  store->Install(store->Create(1).value());
  EXPECT_TRUE(store->HasRoomFor(1, /*is_compaction=*/false));
  store->Install(store->Create(1).value());
  EXPECT_FALSE(store->HasRoomFor(1, /*is_compaction=*/false));
  EXPECT_TRUE(store->HasRoomFor(1, /*is_compaction=*/true));
  EXPECT_FALSE(store->HasRoomFor(3 * kBlock, /*is_compaction=*/true));
  EXPECT_FALSE(store->uses_reserve());
}

// Sealed segments differ in size, so that what is left may be less than a segment.
TEST_F(SegmentStoreTest, CompactionUsesWhatTheLimitLeaves) {
  auto store = Open(16 * kBlock, 4 * kBlock);
  store->Install(store->Create(1).value());
  store->Install(store->Create(9 * kBlock).value());
  EXPECT_TRUE(store->uses_reserve());
  EXPECT_EQ(store->free_bytes(), 3 * kBlock);
  EXPECT_TRUE(store->HasRoomFor(3 * kBlock, /*is_compaction=*/true));
  EXPECT_FALSE(store->HasRoomFor(3 * kBlock + 1, /*is_compaction=*/true));
  EXPECT_FALSE(store->HasRoomFor(1, /*is_compaction=*/false));
  store->Install(store->Create(2 * kBlock, store->free_bytes()).value());
  EXPECT_EQ(store->file_bytes(), 16 * kBlock);
}

TEST_F(SegmentStoreTest, VictimIsTheSegmentWithTheMostDeadBytes) {
  auto store = Open(256 * kBlock, 8 * kBlock);
  std::vector<std::shared_ptr<DiskSegment>> segments;
  std::vector<ChunkRef> chunks;
  for (uint32_t i = 0; i < 3; ++i) {
    segments.push_back(store->Create(1).value());
    store->Install(segments.back());
    for (uint32_t n = 0; n < 7; ++n) {
      chunks.push_back(MakeChunk(3000));
      store->Add(segments.back().get(), n, chunks.back().get(), 100);
    }
    for (uint32_t n = 0; n < 3 - i; ++n) store->Free(segments.back().get(), n, 3000, 100);
  }
  EXPECT_EQ(store->FindVictim(/*is_urgent=*/true), nullptr);  // none is sealed
  for (const auto& segment : segments) store->Seal(segment.get(), nullptr);
  EXPECT_EQ(store->FindVictim(/*is_urgent=*/true), segments[0]);
  EXPECT_EQ(store->FindVictim(/*is_urgent=*/false), nullptr);  // few segments
  segments[0]->is_damaged = true;
  EXPECT_EQ(store->FindVictim(/*is_urgent=*/true), segments[1]);
}

// The heads of records, which may be as large as small payloads, are needed as long as their payloads are.
TEST_F(SegmentStoreTest, SegmentWhosePayloadsAreAllNeededIsNoVictim) {
  auto store = Open(1024 * kBlock, 64 * kBlock);
  const std::shared_ptr<DiskSegment> segment = store->Create(1).value();
  store->Install(segment);
  const ChunkRef chunk = MakeChunk(1024);
  constexpr uint32_t kHead = 1000;
  uint32_t count = 0;
  for (; (count + 1) * (1024 + kHead) < 58 * kBlock; ++count)
    store->Add(segment.get(), count, chunk.get(), kHead);
  segment->written_bytes = 63 * kBlock;
  segment->record_sizes.assign(count, 1024 + kHead);
  store->Seal(segment.get(), store->WriteEnd(segment.get()));
  EXPECT_EQ(store->FindVictim(/*is_urgent=*/true), nullptr);
  for (uint32_t i = 0; i <= count / 8; ++i) store->Free(segment.get(), i, 1024, kHead);
  EXPECT_EQ(store->FindVictim(/*is_urgent=*/true), segment);
}

// What is in memory too need not be on disk if that is full.
TEST_F(SegmentStoreTest, SegmentOfCopiesIsAVictimIfItIsUrgent) {
  auto store = Open(1024 * kBlock, 64 * kBlock);
  std::vector<std::shared_ptr<DiskSegment>> segments;
  const ChunkRef chunk = MakeChunk(1024);
  for (int i = 0; i < 10; ++i) {
    segments.push_back(store->Create(1).value());
    store->Install(segments.back());
    for (uint32_t n = 0; n < 200; ++n) store->Add(segments.back().get(), n, chunk.get(), 100);
    store->Seal(segments.back().get(), nullptr);
  }
  EXPECT_EQ(store->FindVictim(/*is_urgent=*/true), nullptr);
  for (int n = 0; n < 150; ++n) store->SetCopy(segments[3].get(), 1024, 100, true);
  EXPECT_EQ(store->FindVictim(/*is_urgent=*/true), segments[3]);
  EXPECT_EQ(store->FindVictim(/*is_urgent=*/false), nullptr);
  for (int n = 0; n < 150; ++n) store->SetCopy(segments[3].get(), 1024, 100, false);
  EXPECT_EQ(store->FindVictim(/*is_urgent=*/true), nullptr);
}

// Writes of little data leave the rest of a block unused. Compaction frees that.
TEST_F(SegmentStoreTest, SegmentOfManySmallWritesIsAVictim) {
  auto store = Open(1024 * kBlock, 64 * kBlock);
  const std::shared_ptr<DiskSegment> segment = store->Create(1).value();
  store->Install(segment);
  const ChunkRef chunk = MakeChunk(1024);
  for (uint32_t i = 0; i < 60; ++i) store->Add(segment.get(), 2 * i, chunk.get(), 100);
  store->Seal(segment.get(), nullptr);
  EXPECT_EQ(store->FindVictim(/*is_urgent=*/true), segment);
}

TEST_F(SegmentStoreTest, FullDiskIsAnErrorOfCreate) {
  auto store = Open();
  fs_.set_capacity(kBlock);
  EXPECT_THAT(store->Create(1).status(), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(Files(), SizeIs(0));
}

TEST_F(SegmentStoreTest, SegmentsAreSmallEnoughForTheLimit) {
  EXPECT_EQ(SegmentStore::DefaultSegmentBytes(1), kBlock);
  EXPECT_EQ(SegmentStore::DefaultSegmentBytes(64 * kBlock), 2 * kBlock);
  EXPECT_EQ(SegmentStore::DefaultSegmentBytes(uint64_t{20} << 30), uint64_t{256} << 20);
}

// A file descriptor is open for each.
TEST_F(SegmentStoreTest, SegmentsOfALargeDiskAreFew) {
  for (int bits = 15; bits <= 50; ++bits) {
    for (const uint64_t limit : {uint64_t{1} << bits, (uint64_t{3} << bits) - 1}) {
      const uint64_t bytes = SegmentStore::DefaultSegmentBytes(limit);
      EXPECT_LE(limit / bytes, 256u) << limit;
      EXPECT_EQ(bytes % kBlock, 0u) << limit;
    }
  }
  EXPECT_EQ(SegmentStore::DefaultSegmentBytes(uint64_t{1} << 40), uint64_t{4} << 30);
}

TEST(SegmentStorePosixTest, TwoServersCannotUseTheSameFolder) {
  const std::string path = testing::TempDir() + "/segment_store_test";
  const SegmentStore::Options options{.path = path, .disk_limit = 1 << 20, .segment_bytes = kBlock};
  const auto first = SegmentStore::Open(PosixFileSystem(), options);
  ASSERT_OK(first.status());
  const Status second = SegmentStore::Open(PosixFileSystem(), options).status();
  EXPECT_THAT(second, StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(std::string(second.message()), HasSubstr("a folder of its own"));
}

}  // namespace
}  // namespace reverb::internal
