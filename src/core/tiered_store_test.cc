// Tests stores with a disk tier: what is in memory and on disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "core/tiered_store_testing.h"
#include "testing/status_matchers.h"
#include "testing/wait.h"

namespace reverb::internal {
namespace {

using namespace std::chrono_literals;
using test::FakeFileSystem;
using test::StatusIs;
using test::WaitUntil;
using testing::HasSubstr;

// Counts what is allocated.
class CountingSource final : public PayloadSource {
 public:
  uint8_t* Allocate(size_t bytes) override {
    bytes_ += bytes;
    return new uint8_t[bytes];
  }
  void Free(uint8_t* block, size_t bytes) override {
    bytes_ -= bytes;
    delete[] block;
  }
  size_t bytes() const { return bytes_; }

 private:
  std::atomic<size_t> bytes_{0};
};

TEST_F(TieredStoreTest, OldDataMovesToDiskAndIsReadBack) {
  Open(TierOptions());
  const auto table = MakeTable();
  for (uint64_t key = 1; key <= 100; ++key) ASSERT_OK(Insert(*table, key));
  const ChunkTier::Stats stats = store_->tier()->stats();
  EXPECT_LE(stats.memory_bytes, TierOptions().memory_limit);
  EXPECT_GE(stats.disk_bytes, 90 * int64_t{kTieredPayload});
  EXPECT_LT(store_->stats().live_bytes, 20 * int64_t{kTieredPayload} + 100 * 300);
  EXPECT_GT(store_->stats().stored_bytes, 100 * int64_t{kTieredPayload});
  ExpectAllReadable(table, 100);
  EXPECT_EQ(store_->tier()->stats().lost_chunks, 0);
}

TEST_F(TieredStoreTest, NewestDataStaysInMemory) {
  Open(TierOptions());
  const auto table = MakeTable();
  for (uint64_t key = 1; key <= 100; ++key) ASSERT_OK(Insert(*table, key));
  const int64_t before = store_->tier()->stats().read_bytes;
  for (uint64_t key = 98; key <= 100; ++key) {
    std::vector<Sample> items;
    items.push_back(*table->Find(key));
    EXPECT_TRUE(HasItsData(FetchSamplesAndWait(store_->tier(), table, std::move(items)).samples.at(0)));
  }
  EXPECT_EQ(store_->tier()->stats().read_bytes, before);
}

TEST_F(TieredStoreTest, DataThatIsUsedAgainAndAgainStaysInMemory) {
  Open(TierOptions());
  const auto table = MakeTable();
  for (uint64_t key = 1; key <= 50; ++key) ASSERT_OK(Insert(*table, key));
  const auto read = [&] {
    std::vector<Sample> items;
    items.push_back(*table->Find(1));
    EXPECT_TRUE(HasItsData(FetchSamplesAndWait(store_->tier(), table, std::move(items)).samples.at(0)));
    return store_->tier()->stats().read_bytes;
  };
  read();
  const int64_t twice = read();  // admits it, if there is room at that moment
  ASSERT_TRUE(WaitUntil([&] {
    const int64_t before = store_->tier()->stats().read_bytes;
    return read() == before;
  }));
  EXPECT_GT(twice, 0);
  EXPECT_EQ(store_->tier()->stats().disk_bytes % kTieredPayload, 0);
}

TEST_F(TieredStoreTest, SamplesKeepTheirDataWhenItLeavesTheMemoryOrTheTable) {
  Open(TierOptions());
  const auto table = MakeTable();
  for (uint64_t key = 1; key <= 5; ++key) ASSERT_OK(Insert(*table, key));
  const FetchedSamples held = Draw(table, 20);
  for (uint64_t key = 6; key <= 60; ++key) ASSERT_OK(Insert(*table, key));
  table->Reset();
  for (const Sample& sample : held.samples) EXPECT_TRUE(HasItsData(sample));
  store_.reset();
  for (const Sample& sample : held.samples) EXPECT_TRUE(HasItsData(sample));
}

// Data is read in whole blocks, which would be several times what counts for it.
TEST_F(TieredStoreTest, SmallPayloadsThatAreReadTakeLittleMoreMemoryThanTheyCount) {
  static CountingSource source;  // outlives the chunks
  Open(TierOptions(), {.payload_source = &source});
  const auto table = MakeTable();
  constexpr uint32_t kSizes[] = {1100, 5000, 20'000};
  for (uint64_t key = 0; key < 60; ++key) {
    ASSERT_OK(table->Insert(MakeItem(key, kSizes[key % 3]), {.timeout = 60s}));
  }
  for (uint64_t key = 0; key < 30; ++key) {
    const auto before = static_cast<int64_t>(source.bytes());
    const FetchedSamples one = FetchOne(table, key);
    ASSERT_EQ(one.samples.size(), 1u);
    EXPECT_TRUE(HasItsData(one.samples[0]));
    EXPECT_LE(static_cast<int64_t>(source.bytes()) - before, kSizes[key % 3] / 4 * 5);
  }
  EXPECT_GT(store_->tier()->stats().read_bytes, 0);
}

TEST_F(TieredStoreTest, ItemsOfManyChunksAreReadable) {
  Open(TierOptions());
  const auto table = MakeTable();
  std::vector<ChunkRef> chunks;
  for (uint64_t key = 1; key <= 40; ++key)
    chunks.push_back(MakeChunk(key, key % 4 == 0 ? 100 : kTieredPayload));
  for (uint64_t key = 1; key + 3 <= 40; ++key) {
    std::vector<ColumnSpec> columns;
    for (uint64_t c = 0; c < 4; ++c) {
      columns.push_back(
          {.slices = {{.chunk = chunks[key - 1 + c], .offset = 0, .length = 1}}, .squeeze = true});
    }
    Item item{.key = key, .priority = 1, .trajectory = Trajectory::Create(columns).value()};
    ASSERT_OK(table->Insert(std::move(item), {.timeout = 60s}));
  }
  chunks.clear();
  const FetchedSamples drawn = Draw(table, 64);
  ASSERT_OK(drawn.status);
  ASSERT_EQ(drawn.samples.size(), 64u);
  for (const Sample& sample : drawn.samples) {
    for (uint32_t c = 0; c < 4; ++c) {
      const Chunk* const chunk = sample.trajectory.slice(c, 0).chunk;
      EXPECT_FALSE(chunk->is_tiered());
      const std::vector<uint8_t> expected = TieredBytes(sample.key + c, chunk->payload_size());
      EXPECT_TRUE(std::ranges::equal(chunk->payload(), expected)) << sample.key << " " << c;
    }
  }
}

TEST_F(TieredStoreTest, WritersInThisProcessShareOneTieredChunk) {
  Open(TierOptions());
  const auto table = MakeTable();
  const ChunkRef mine =
      Encode(1, kTieredPayload, [&](const ChunkHeader& header, std::span<const uint8_t> payload) {
        return Chunk::Copy(NextChunkId(), header, payload);
      }).value();
  const Trajectory a = store_->Enter(Trajectory::Single(mine, 0, 1).value()).value();
  const Trajectory b = store_->Enter(Trajectory::Single(mine, 0, 1).value()).value();
  EXPECT_TRUE(a.slice(0, 0).chunk->is_tiered());
  EXPECT_EQ(a.slice(0, 0).chunk, b.slice(0, 0).chunk);
  EXPECT_EQ(store_->Enter(mine)->get(), a.slice(0, 0).chunk);
  EXPECT_TRUE(store_->Holds(*a.slice(0, 0).chunk));
  // Another store has its own, over the same bytes.
  ChunkStore other({});
  const ChunkRef theirs = other.Enter(mine).value();
  EXPECT_EQ(theirs->payload().data(), mine->payload().data());
}

TEST_F(TieredStoreTest, TieredChunkOfAWriterIsCreatedAgainAfterItsItemsAreGone) {
  Open(TierOptions());
  const ChunkRef mine =
      Encode(1, kTieredPayload, [&](const ChunkHeader& header, std::span<const uint8_t> payload) {
        return Chunk::Copy(NextChunkId(), header, payload);
      }).value();
  for (int round = 0; round < 3; ++round) {
    const auto table = MakeTable();
    Item item{
        .key = 1, .priority = 1, .trajectory = store_->Enter(Trajectory::Single(mine, 0, 1).value()).value()};
    ASSERT_OK(table->Insert(std::move(item)));
    ExpectAllReadable(table, 1);
  }
  EXPECT_TRUE(WaitUntil([&] { return store_->stats().live_chunks == 0; }));
  EXPECT_EQ(store_->tier()->stats().memory_bytes, 0);
}

TEST_F(TieredStoreTest, DeletedItemsFreeTheirFiles) {
  Open(TierOptions());
  const auto table = MakeTable();
  for (uint64_t key = 1; key <= 100; ++key) ASSERT_OK(Insert(*table, key));
  EXPECT_GT(NumFiles(), 10u);
  table->Reset();
  // The segment that is being written stays.
  EXPECT_TRUE(WaitUntil([&] { return NumFiles() <= 1 && store_->tier()->stats().disk_bytes == 0; }));
  EXPECT_EQ(store_->stats().stored_bytes, 0);
}

TEST_F(TieredStoreTest, CompactionKeepsTheFilesWithinTheLimit) {
  ChunkTier::Options options = TierOptions();
  options.disk_limit = 64 * 4096;
  Open(options, {.policy = MemoryPolicy::kEvict});
  const auto table = MakeTable({.remover = SelectorOptions::Uniform(7)});
  for (uint64_t key = 1; key <= 1000; ++key) {
    ASSERT_OK(Insert(*table, key)) << key;
    ASSERT_LE(store_->tier()->stats().file_bytes, options.disk_limit);
  }
  EXPECT_GT(table->size(), 30);
  EXPECT_GT(table->Info().evictions, 0);
  ExpectAllReadable(table, table->size());
  EXPECT_EQ(store_->tier()->stats().lost_chunks, 0);
}

// All data fits into memory and files, but not if what is in memory is also in the files.
TEST_F(TieredStoreTest, CopiesOfDataInMemoryGiveWayWhenTheDiskIsFull) {
  constexpr uint64_t kHot = 350, kAll = 1150;
  ChunkTier::Options options = TierOptions();
  options.memory_limit = 500 * ChunkBytes();
  options.disk_limit = 1024 * 4096;
  options.segment_bytes = 64 * 4096;
  options.write_bytes = 8 * 4096;
  Open(options);
  const auto table = MakeTable();
  uint64_t key = 1;
  for (; key <= 900; ++key) ASSERT_OK(Insert(*table, key));
  const auto use_hot_data = [&] {
    const int64_t before = store_->tier()->stats().read_bytes;
    for (uint64_t hot = 1; hot <= kHot; ++hot) EXPECT_EQ(FetchOne(table, hot).samples.size(), 1u);
    return store_->tier()->stats().read_bytes == before;
  };
  ASSERT_TRUE(WaitUntil(use_hot_data));  // all of it is in memory
  for (; key <= kAll; ++key) {
    ASSERT_OK(Insert(*table, key, 20s)) << key;
    if (key % 10 == 0) use_hot_data();
  }
  const ChunkTier::Stats stats = store_->tier()->stats();
  EXPECT_EQ(stats.error, "");
  EXPECT_LE(stats.file_bytes, options.disk_limit);
  ExpectAllReadable(table, kAll);
}

// A new segment of the usual size would fit, but not one for this payload.
TEST_F(TieredStoreTest, CompactionMakesRoomForALargePayload) {
  ChunkTier::Options options = TierOptions();
  options.disk_limit = 128 * 4096;
  options.segment_bytes = 32768;
  Open(options);
  const auto table = MakeTable();
  for (uint64_t key = 1; key <= 66; ++key) ASSERT_OK(Insert(*table, key));
  // Few, so that compaction does not start by itself.
  std::vector<uint64_t> deleted;
  for (uint64_t key = 1; key <= 64; key += 4) deleted.push_back(key);
  ASSERT_OK(table->Mutate({}, deleted));
  constexpr uint32_t kLarge = 42 * 4096;
  ASSERT_OK(table->Insert(MakeItem(1000, kLarge), {.timeout = 60s}));
  // It has to leave the memory for these.
  for (uint64_t key = 101; key <= 105; ++key) ASSERT_OK(Insert(*table, key, 10s));
  ExpectAllReadable(table, 50 + 1 + 5);
}

TEST_F(TieredStoreTest, PayloadsThatMayNotFitOnTheDiskStayInMemory) {
  ChunkTier::Options options = TierOptions();
  options.disk_limit = 64 * 4096;
  Open(options);
  EXPECT_TRUE(MakeChunk(1, 32 * 4096)->is_tiered());
  EXPECT_FALSE(MakeChunk(2, 33 * 4096)->is_tiered());
}

// Compaction takes several writes for a segment. New data must not fill the segment that is kept for it meanwhile.
TEST_F(TieredStoreTest, CompactionEndsBeforeNewDataTakesItsRoom) {
  ChunkTier::Options options = TierOptions();
  options.memory_limit = 100 * int64_t{kTieredPayload};  // the tier moves more than a segment at a time
  options.segment_bytes = 65536;
  options.write_bytes = 8192;
  options.disk_limit = 16 * 65536;
  options.retry_interval = 1h;
  Open(options);
  // Items leave in random order, so that no file is empty soon.
  TableOptions table_options;
  table_options.max_size = 230;
  table_options.remover = SelectorOptions::Uniform(1);
  const auto table = MakeTable(table_options);
  for (uint64_t key = 1; key <= 3000; ++key) ASSERT_OK(Insert(*table, key, 20s)) << key;
  EXPECT_LE(store_->tier()->stats().file_bytes, options.disk_limit);
  ExpectAllReadable(table, 230);
}

TEST_F(TieredStoreTest, InsertsWaitWhenMemoryAndDiskAreFull) {
  ChunkTier::Options options = TierOptions();
  options.disk_limit = 64 * 4096;
  Open(options);
  const auto table = MakeTable();
  Status status;
  uint64_t key = 1;
  for (; key <= 1000 && status.ok(); ++key) status = Insert(*table, key, 2s);
  EXPECT_THAT(status, StatusIs(StatusCode::kDeadlineExceeded, Detail::kMemoryFull));
  EXPECT_THAT(std::string(status.message()), HasSubstr("memory_limit"));
  EXPECT_GT(table->size(), 40);
  // Deleting items lets them continue.
  const std::vector<uint64_t> deleted = {1, 2, 3};
  ASSERT_OK(table->Mutate({}, deleted));
  EXPECT_OK(Insert(*table, 5000));
  ExpectAllReadable(table, table->size());
}

TEST_F(TieredStoreTest, ATierThatIsShutDownReleasesItsFolder) {
  Open(TierOptions());
  const auto table = MakeTable();
  for (uint64_t key = 1; key <= 60; ++key) ASSERT_OK(Insert(*table, key));
  ASSERT_TRUE(WaitUntil([&] { return store_->tier()->stats().disk_bytes > 0; }));
  for (int i = 0; i < 2; ++i) store_->tier()->Shutdown();
  EXPECT_EQ(NumFiles(), 0u);
  EXPECT_EQ(store_->tier()->stats().disk_bytes, 0);
  // What was in memory is still there; the rest is refused, not waited for.
  const FetchedSamples drawn = Draw(table, 200);
  EXPECT_THAT(drawn.status, StatusIs(StatusCode::kCancelled));
  for (const Sample& sample : drawn.samples) EXPECT_TRUE(HasItsData(sample));
  // Another tier can use the folder while the table still refers to the old one.
  Open(TierOptions());
  const auto next = MakeTable();
  for (uint64_t key = 1; key <= 60; ++key) ASSERT_OK(Insert(*next, key));
  ExpectAllReadable(next, 60);
}

TEST_F(TieredStoreTest, CompactionIsNoFailureOfTheDisk) {
  ChunkTier::Options options = TierOptions();
  options.disk_limit = 64 * 4096;
  // Fewer bytes than would have to be evicted for max_bytes: items leave only because the table is full.
  Open(options, {.policy = MemoryPolicy::kEvict});
  const auto table = MakeTable({.remover = SelectorOptions::Uniform(7), .max_size = 40});
  for (uint64_t key = 1; key <= 600; ++key) {
    ASSERT_OK(Insert(*table, key)) << key;
    ASSERT_EQ(store_->tier()->stats().error, "") << key;
  }
  EXPECT_EQ(table->size(), 40);
  EXPECT_EQ(table->Info().evictions, 560);
  ExpectAllReadable(table, 40);
}

TEST_F(TieredStoreTest, BudgetCountsWhatIsInMemory) {
  Open(TierOptions(), {.memory_limit = int64_t{16} << 20});
  const auto table = MakeTable();
  for (uint64_t key = 1; key <= 100; ++key) ASSERT_OK(Insert(*table, key));
  ASSERT_TRUE(WaitUntil([&] { return store_->tier()->stats().disk_bytes >= 90 * int64_t{kTieredPayload}; }));
  const MemoryBudget::Usage usage = store_->budget().usage();
  const int64_t headers = 100 * 300;
  EXPECT_LE(usage.stored, TierOptions().memory_limit + headers);
  EXPECT_GE(usage.stored, store_->tier()->stats().memory_bytes);
  EXPECT_LE(usage.total(), usage.kept() + 3 * int64_t{kTieredPayload});
  EXPECT_GE(store_->stats().stored_bytes, 100 * int64_t{kTieredPayload});
  // Samples in flight count as long as they exist.
  FetchedSamples held = Draw(table, 64);
  const int64_t in_transit = store_->budget().usage().transit();
  EXPECT_GT(in_transit, 10 * int64_t{kTieredPayload});
  held = {};
  table->Reset();
  EXPECT_TRUE(WaitUntil([&] {
    const MemoryBudget::Usage after = store_->budget().usage();
    return after.stored == 0 && after.chunks == 0 && after.receiving == 0;
  }));
  EXPECT_EQ(store_->stats().stored_bytes, 0);
}

// What else the budget has to keep takes memory from the tier.
TEST_F(TieredStoreTest, DataLeavesTheMemoryWhenTheBudgetHasToKeepOtherThings) {
  ChunkTier::Options options = TierOptions();
  options.memory_limit = int64_t{3} << 20;
  options.disk_limit = int64_t{16} << 20;
  options.segment_bytes = 256 << 10;
  Open(options, {.memory_limit = int64_t{4} << 20});
  const int64_t kept = store_->budget().shares().kept;
  const auto table = MakeTable();
  for (uint64_t key = 1; key <= 500; ++key) ASSERT_OK(Insert(*table, key));
  EXPECT_GT(store_->tier()->stats().memory_bytes, kept / 2);
  const MemoryCharge others(&store_->budget(), MemoryPart::kIndex, kept - (512 << 10));
  // Inserts wait until enough has moved, and not longer.
  for (uint64_t key = 501; key <= 1000; ++key) ASSERT_OK(Insert(*table, key));
  EXPECT_LE(store_->budget().usage().kept(), kept);
  ExpectAllReadable(table, 1000);
}

TEST_F(TieredStoreTest, InsertsWaitIfOtherThingsTakeAllMemory) {
  Open(TierOptions(), {.memory_limit = int64_t{4} << 20});
  const auto table = MakeTable();
  MemoryCharge others(&store_->budget(), MemoryPart::kIndex, store_->budget().shares().kept);
  const Status status = Insert(*table, 1, 20ms);
  EXPECT_THAT(status, StatusIs(StatusCode::kDeadlineExceeded, Detail::kMemoryFull));
  EXPECT_THAT(std::string(status.message()), HasSubstr("bytes for items in memory_limit 4194304"));
  others.Set(0);
  EXPECT_OK(Insert(*table, 2));
}

// Items that a snapshot still shows may be on disk like others, and count as long as they are in memory.
TEST_F(TieredStoreTest, RemovedItemsOfASnapshotMoveToDisk) {
  Open(TierOptions(), {.memory_limit = int64_t{16} << 20});
  const auto table = MakeTable();
  for (uint64_t key = 1; key <= 10; ++key) ASSERT_OK(Insert(*table, key));
  auto snapshot = std::make_unique<Snapshot>(ConcurrentTable::TakeSnapshot(std::vector{table}));
  std::vector<uint64_t> keys;
  for (uint64_t key = 1; key <= 10; ++key) keys.push_back(key);
  ASSERT_OK(table->Mutate({}, keys));
  EXPECT_EQ(store_->stats().stored_bytes, 0);
  EXPECT_GT(store_->budget().usage().parked, 0);
  EXPECT_GT(store_->budget().usage().kept(), store_->tier()->stats().memory_bytes);
  for (uint64_t key = 11; key <= 60; ++key) ASSERT_OK(Insert(*table, key));
  EXPECT_LE(store_->tier()->stats().memory_bytes, TierOptions().memory_limit);
  std::vector<Sample> shown;
  for (size_t i = 0; i < 10; ++i) shown.push_back(snapshot->tables[0]->item(i));
  const FetchedSamples fetched = FetchSamplesAndWait(store_->tier(), nullptr, std::move(shown));
  ASSERT_EQ(fetched.samples.size(), 10u);
  for (const Sample& sample : fetched.samples) EXPECT_TRUE(HasItsData(sample));
  snapshot.reset();
  EXPECT_EQ(store_->budget().usage().parked, 0);
}

TEST_F(TieredStoreTest, OptionsAreChecked) {
  const auto error_of = [&](auto change) {
    ChunkTier::Options options = TierOptions();
    change(&options);
    return std::string(ChunkTier::Open(&fs_, options).status().message());
  };
  EXPECT_THAT(error_of([](auto* options) { options->path = ""; }), HasSubstr("path is empty"));
  EXPECT_THAT(error_of([](auto* options) { options->memory_limit = 0; }), HasSubstr("memory_limit is 0"));
  EXPECT_THAT(error_of([](auto* options) { options->disk_limit = 5; }), HasSubstr("disk_limit is 5"));
}

TEST_F(TieredStoreTest, RowsStayInMemory) {
  Open(TierOptions());
  const ChunkRef chunk = MakeChunk(1);
  ASSERT_OK(chunk->tiered().tier->Pin(chunk.get()));
  chunk->AddItemRef();
  const auto table = MakeTable();
  for (uint64_t key = 2; key <= 60; ++key) ASSERT_OK(Insert(*table, key));
  EXPECT_TRUE(std::ranges::equal(chunk->payload(), TieredBytes(1)));
  const int64_t before = store_->budget().usage().stored;
  EXPECT_TRUE(chunk->DropItemRef());
  EXPECT_GE(before - store_->budget().usage().stored, int64_t{kTieredPayload});
}

TEST_F(TieredStoreTest, PinReadsDataThatHasLeftTheMemory) {
  Open(TierOptions());
  std::vector<ChunkRef> chunks;
  for (uint64_t key = 1; key <= 60; ++key) chunks.push_back(MakeChunk(key));
  store_->tier()->AddLoaded(chunks);
  EXPECT_LE(store_->tier()->stats().memory_bytes, TierOptions().memory_limit);
  for (uint64_t key = 1; key <= 60; ++key) {
    Chunk* const chunk = chunks[key - 1].get();
    ASSERT_OK(chunk->tiered().tier->Pin(chunk));
    EXPECT_TRUE(std::ranges::equal(chunk->payload(), TieredBytes(key)));
  }
}

// Writers, samplers and a thread that deletes, all at the same time.
TEST_F(TieredStoreTest, IsConsistentUnderConcurrentUse) {
  ChunkTier::Options options = TierOptions();
  options.disk_limit = 256 * 4096;
  Open(options, {.policy = MemoryPolicy::kEvict});
  const auto table = MakeTable({.remover = SelectorOptions::Uniform(3)});
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (uint64_t writer = 0; writer < 2; ++writer) {
    threads.emplace_back([&, writer] {
      for (uint64_t i = 1; i <= 400; ++i) EXPECT_OK(Insert(*table, writer * 100'000 + i));
    });
  }
  for (int sampler = 0; sampler < 2; ++sampler) {
    threads.emplace_back([&] {
      while (!stop) {
        std::vector<Sample> samples;
        if (!table->Sample(16, true, {.timeout = 1ms}, &samples).ok()) continue;
        const FetchedSamples fetched = FetchSamplesAndWait(store_->tier(), table, std::move(samples));
        EXPECT_OK(fetched.status);
        EXPECT_EQ(fetched.lost, 0);
        for (const Sample& sample : fetched.samples) EXPECT_TRUE(HasItsData(sample));
      }
    });
  }
  threads.emplace_back([&] {
    Random random(5);
    while (!stop) {
      const std::vector<uint64_t> keys = {random.Below(2) * 100'000 + random.Below(400)};
      EXPECT_OK(table->Mutate({}, keys));
      std::this_thread::yield();
    }
  });
  threads[0].join();
  threads[1].join();
  stop = true;
  for (size_t i = 2; i < threads.size(); ++i) threads[i].join();
  ExpectAllReadable(table, table->size());
  table->Reset();
  // The thread that moves data may hold some of it for a moment.
  EXPECT_TRUE(WaitUntil([&] {
    const ChunkTier::Stats stats = store_->tier()->stats();
    return stats.memory_bytes == 0 && stats.disk_bytes == 0;
  }));
}

}  // namespace
}  // namespace reverb::internal
