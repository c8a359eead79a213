// Tests stores with a disk tier: what is in memory and on disk, and what errors of the disk do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "core/chunk_store.h"
#include "core/fetch_samples.h"
#include "core/table.h"
#include "tensor/column.h"
#include "testing/fake_file_system.h"
#include "testing/status_matchers.h"
#include "testing/wait.h"

namespace reverb::internal {
namespace {

using namespace std::chrono_literals;
using test::FakeFileSystem;
using test::StatusIs;
using test::WaitUntil;
using testing::HasSubstr;

constexpr uint32_t kPayload = 4000;

std::vector<uint8_t> BytesOf(uint64_t key, uint32_t size = kPayload) {
  std::vector<uint8_t> bytes(size);
  Random random(key + 1);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.Below(256));
  return bytes;
}

class TieredStoreTest : public testing::Test {
 protected:
  ChunkTier::Options TierOptions() {
    return {.path = "/tier",
            .memory_limit = 10 * kPayload,
            .disk_limit = 1 << 20,
            .min_payload_bytes = 1024,
            .segment_bytes = 16384,
            .write_bytes = 8192,
            .retry_interval = 1ms};
  }
  void Open(const ChunkTier::Options& options, ChunkStore::Options store = {}) {
    OpenIn(&fs_, options, store);
  }
  void OpenIn(FakeFileSystem* fs, const ChunkTier::Options& options, ChunkStore::Options store = {}) {
    Result<ChunkTierPtr> tier = ChunkTier::Open(fs, options);
    ASSERT_OK(tier.status());
    store_ = std::make_shared<ChunkStore>(store, RealClock(), *std::move(tier));
  }
  std::shared_ptr<ConcurrentTable> MakeTable(TableOptions options = {}) {
    options.name = options.name.empty() ? "t" : options.name;
    if (options.max_size == TableOptions().max_size) options.max_size = 1'000'000;
    return ConcurrentTable::Create(std::move(options), {.store = store_}).value();
  }
  static Result<ChunkRef> Encode(uint64_t key, uint32_t size, auto&& add) {
    std::vector<uint8_t> payload;
    ColumnEncoder encoder(DType::kUint8, {size}, CodecPolicy::kNone);
    ChunkHeader header{.episode_id = key, .rows = 1};
    header.columns.push_back(encoder.Encode(BytesOf(key, size), 1, &payload).value());
    return add(header, payload);
  }
  ChunkRef MakeChunk(uint64_t key, uint32_t size = kPayload) {
    return Encode(key, size,
                  [&](const ChunkHeader& header, std::span<const uint8_t> payload) {
                    return store_->Add(header, payload);
                  })
        .value();
  }
  Item MakeItem(uint64_t key, uint32_t size = kPayload) {
    return {.key = key, .priority = 1, .trajectory = Trajectory::Single(MakeChunk(key, size), 0, 1).value()};
  }
  Status Insert(ConcurrentTable& table, uint64_t key, std::optional<Duration> timeout = 60s) {
    return table.Insert(MakeItem(key), {.timeout = timeout});
  }
  // Returns whether the sample has the data of its key.
  static testing::AssertionResult HasItsData(const Sample& sample) {
    std::vector<uint8_t> read(sample.trajectory.slice(0, 0).chunk->payload_size());
    if (const Status status = sample.trajectory.Read(0, read); !status.ok()) {
      return testing::AssertionFailure() << status.ToString();
    }
    if (read != BytesOf(sample.key, static_cast<uint32_t>(read.size()))) {
      return testing::AssertionFailure() << "wrong bytes of item " << sample.key;
    }
    return testing::AssertionSuccess();
  }
  FetchedSamples Draw(const std::shared_ptr<ConcurrentTable>& table, int64_t count) {
    std::vector<Sample> samples;
    EXPECT_OK(table->Sample(count, false, {.timeout = 60s}, &samples));
    return FetchSamplesAndWait(store_->tier(), table, std::move(samples));
  }
  void ExpectAllReadable(const std::shared_ptr<ConcurrentTable>& table, int64_t size) {
    uint64_t cursor = 0;
    FetchedSamples all = FetchSamplesAndWait(store_->tier(), table, table->Peek(size + 1, &cursor));
    ASSERT_OK(all.status);
    EXPECT_EQ(std::ssize(all.samples), size);
    for (const Sample& sample : all.samples) EXPECT_TRUE(HasItsData(sample));
  }
  size_t NumFiles() { return NumFiles(fs_); }
  static size_t NumFiles(FakeFileSystem& fs) {
    if (!fs.FileExists("/tier").value()) return 0;
    std::vector<std::string> names = fs.ListDir("/tier").value();
    std::erase(names, "LOCK");
    return names.size();
  }

  FakeFileSystem fs_;
  std::shared_ptr<ChunkStore> store_;
};

TEST_F(TieredStoreTest, OldDataMovesToDiskAndIsReadBack) {
  Open(TierOptions());
  const auto table = MakeTable();
  for (uint64_t key = 1; key <= 100; ++key) ASSERT_OK(Insert(*table, key));
  const ChunkTier::Stats stats = store_->tier()->stats();
  EXPECT_LE(stats.memory_bytes, TierOptions().memory_limit);
  EXPECT_GE(stats.disk_bytes, 90 * int64_t{kPayload});
  EXPECT_LT(store_->stats().live_bytes, 20 * int64_t{kPayload} + 100 * 300);
  EXPECT_GT(store_->stats().stored_bytes, 100 * int64_t{kPayload});
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
  EXPECT_EQ(store_->tier()->stats().disk_bytes % kPayload, 0);
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

TEST_F(TieredStoreTest, ItemsOfManyChunksAreReadable) {
  Open(TierOptions());
  const auto table = MakeTable();
  std::vector<ChunkRef> chunks;
  for (uint64_t key = 1; key <= 40; ++key) chunks.push_back(MakeChunk(key, key % 4 == 0 ? 100 : kPayload));
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
      const std::vector<uint8_t> expected = BytesOf(sample.key + c, chunk->payload_size());
      EXPECT_TRUE(std::ranges::equal(chunk->payload(), expected)) << sample.key << " " << c;
    }
  }
}

TEST_F(TieredStoreTest, WritersInThisProcessShareOneTieredChunk) {
  Open(TierOptions());
  const auto table = MakeTable();
  const ChunkRef mine = Encode(1, kPayload, [&](const ChunkHeader& header, std::span<const uint8_t> payload) {
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
  const ChunkRef mine = Encode(1, kPayload, [&](const ChunkHeader& header, std::span<const uint8_t> payload) {
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

TEST_F(TieredStoreTest, FullDiskMakesInsertsWaitAndShowsWhy) {
  Open(TierOptions());
  fs_.set_capacity(40'000);
  const auto table = MakeTable();
  Status status;
  for (uint64_t key = 1; key <= 100 && status.ok(); ++key) status = Insert(*table, key, 200ms);
  EXPECT_THAT(status, StatusIs(StatusCode::kDeadlineExceeded, Detail::kMemoryFull));
  EXPECT_THAT(std::string(status.message()), HasSubstr("No space left on device"));
  EXPECT_THAT(store_->tier()->stats().error, HasSubstr("No space left on device"));
  fs_.set_capacity(1 << 20);
  EXPECT_OK(Insert(*table, 1000));
  EXPECT_TRUE(WaitUntil([&] { return store_->tier()->stats().error.empty(); }));
  ExpectAllReadable(table, table->size());
}

TEST_F(TieredStoreTest, FullDiskEvictsIfSoConfigured) {
  Open(TierOptions(), {.policy = MemoryPolicy::kEvict});
  fs_.set_capacity(40'000);
  const auto table = MakeTable();
  for (uint64_t key = 1; key <= 100; ++key) ASSERT_OK(Insert(*table, key)) << key;
  EXPECT_GT(table->Info().evictions, 0);
  EXPECT_GT(table->size(), 5);
  ExpectAllReadable(table, table->size());
}

TEST_F(TieredStoreTest, DamagedDataCostsOnlyTheItemsThatUsedIt) {
  Open(TierOptions());
  const auto table = MakeTable();
  for (uint64_t key = 1; key <= 50; ++key) ASSERT_OK(Insert(*table, key));
  // Flips a byte of the first payload in the first file.
  std::vector<std::string> names = fs_.ListDir("/tier").value();
  const std::string path = "/tier/" + names.front();
  std::string bytes = fs_.ReadAll(path).value();
  bytes[500] ^= 1;
  ASSERT_OK(fs_.WriteAll(path, bytes));
  uint64_t cursor = 0;
  const FetchedSamples all = FetchSamplesAndWait(store_->tier(), table, table->Peek(100, &cursor));
  ASSERT_OK(all.status);
  EXPECT_EQ(all.lost, 1);
  EXPECT_EQ(all.samples.size(), 49u);
  EXPECT_EQ(table->size(), 49);
  EXPECT_EQ(store_->tier()->stats().lost_chunks, 1);
  ExpectAllReadable(table, 49);
}

// Every operation of the file system fails once, one run for each.
TEST_F(TieredStoreTest, SurvivesAFailureOfAnyOperation) {
  for (const auto kind : {FakeFileSystem::Kind::kWrite, FakeFileSystem::Kind::kRead}) {
    for (int64_t after = 0; after < 40; ++after) {
      FakeFileSystem fs;
      Result<ChunkTierPtr> tier = ChunkTier::Open(&fs, TierOptions());
      ASSERT_OK(tier.status());
      store_ = std::make_shared<ChunkStore>(ChunkStore::Options{}, RealClock(), *std::move(tier));
      fs.Inject({.kind = kind, .after = after});
      const auto table = MakeTable();
      for (uint64_t key = 1; key <= 40; ++key) ASSERT_OK(Insert(*table, key));
      int64_t lost = 0;
      for (int i = 0; i < 3; ++i) {
        uint64_t cursor = 0;
        const FetchedSamples all = FetchSamplesAndWait(store_->tier(), table, table->Peek(100, &cursor));
        ASSERT_OK(all.status);
        lost += all.lost;
        for (const Sample& sample : all.samples) EXPECT_TRUE(HasItsData(sample));
      }
      EXPECT_EQ(table->size(), 40 - lost);
      EXPECT_LE(lost, kind == FakeFileSystem::Kind::kRead ? 1 : 0) << after;
      store_.reset();
    }
  }
}

// The disk is bad all the time: of its operations, every n-th fails.
TEST_F(TieredStoreTest, SurvivesADiskOfWhichEveryNthOperationFails) {
  for (const auto kind : {FakeFileSystem::Kind::kWrite, FakeFileSystem::Kind::kRead}) {
    for (const int64_t every : {2, 3, 7}) {
      FakeFileSystem fs;
      Result<ChunkTierPtr> tier = ChunkTier::Open(&fs, TierOptions());
      ASSERT_OK(tier.status());
      store_ = std::make_shared<ChunkStore>(ChunkStore::Options{}, RealClock(), *std::move(tier));
      fs.Inject({.kind = kind, .every = every});
      const auto table = MakeTable();
      for (uint64_t key = 1; key <= 40; ++key) ASSERT_OK(Insert(*table, key)) << every;
      uint64_t cursor = 0;
      const FetchedSamples all = FetchSamplesAndWait(store_->tier(), table, table->Peek(100, &cursor));
      ASSERT_OK(all.status);
      for (const Sample& sample : all.samples) EXPECT_TRUE(HasItsData(sample));
      EXPECT_EQ(table->size(), 40 - all.lost);
      EXPECT_EQ(all.lost > 0, kind == FakeFileSystem::Kind::kRead) << every;
      EXPECT_EQ(store_->tier()->stats().lost_chunks, all.lost);
      store_.reset();
    }
  }
}

// A power loss leaves some of the files, in any state: the tier is a cache, which starts empty.
TEST_F(TieredStoreTest, StartsEmptyAfterAPowerLoss) {
  Open(TierOptions());
  auto table = MakeTable();
  for (uint64_t key = 1; key <= 60; ++key) ASSERT_OK(Insert(*table, key));
  std::vector<std::unique_ptr<FakeFileSystem>> crashed;
  for (uint64_t seed = 0; seed < 10; ++seed) crashed.push_back(fs_.AfterCrash(seed));
  table.reset();
  store_.reset();
  size_t num_left = 0;
  for (const std::unique_ptr<FakeFileSystem>& fs : crashed) {
    num_left += NumFiles(*fs);
    OpenIn(fs.get(), TierOptions());
    EXPECT_EQ(NumFiles(*fs), 0u);
    EXPECT_EQ(store_->tier()->stats().file_bytes, 0);
    auto next = MakeTable();
    for (uint64_t key = 1; key <= 60; ++key) ASSERT_OK(Insert(*next, key));
    ExpectAllReadable(next, 60);
    next.reset();
    store_.reset();
  }
  EXPECT_GT(num_left, 0u) << "a power loss leaves files";
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
  ASSERT_TRUE(WaitUntil([&] { return store_->tier()->stats().disk_bytes >= 90 * int64_t{kPayload}; }));
  const MemoryBudget::Usage usage = store_->budget().usage();
  const int64_t headers = 100 * 300;
  EXPECT_LE(usage.stored, TierOptions().memory_limit + headers);
  EXPECT_GE(usage.stored, store_->tier()->stats().memory_bytes);
  EXPECT_LE(usage.total(), usage.kept() + 3 * int64_t{kPayload});
  EXPECT_GE(store_->stats().stored_bytes, 100 * int64_t{kPayload});
  // Samples in flight count as long as they exist.
  FetchedSamples held = Draw(table, 64);
  const int64_t in_transit = store_->budget().usage().transit();
  EXPECT_GT(in_transit, 10 * int64_t{kPayload});
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

TEST_F(TieredStoreTest, OpenReportsAnErrorOfEachOperation) {
  int64_t failures = 0;
  for (int64_t after = 0; after < 5; ++after) {
    FakeFileSystem fs;
    ASSERT_OK(fs.CreateDir("/tier", FileSystem::Parents::kCreateMissing));
    ASSERT_OK(fs.WriteAll("/tier/0000000000000001.payloads", "old"));
    fs.Inject({.kind = FakeFileSystem::Kind::kAny, .after = after});
    failures += !ChunkTier::Open(&fs, TierOptions()).ok();
  }
  EXPECT_EQ(failures, 4);  // the folder, the lock, the list, the old file
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
  EXPECT_TRUE(std::ranges::equal(chunk->payload(), BytesOf(1)));
  const int64_t before = store_->budget().usage().stored;
  EXPECT_TRUE(chunk->DropItemRef());
  EXPECT_GE(before - store_->budget().usage().stored, int64_t{kPayload});
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
    EXPECT_TRUE(std::ranges::equal(chunk->payload(), BytesOf(key)));
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
