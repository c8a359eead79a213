// Tests what errors of the disk do to stores with a disk tier.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/tiered_store_testing.h"
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

class TieredFaultsTest : public TieredStoreTest {};

TEST_F(TieredFaultsTest, FullDiskMakesInsertsWaitAndShowsWhy) {
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

// Inserts that wait, and others that come, do not make the tier try again before retry_interval.
TEST_F(TieredFaultsTest, AFailingDiskIsNotWrittenToBeforeTheRetryInterval) {
  ChunkTier::Options options = TierOptions();
  options.retry_interval = 1h;
  Open(options);
  const auto table = MakeTable();
  for (uint64_t key = 1; key <= 50; ++key) ASSERT_OK(Insert(*table, key));
  fs_.Inject({.kind = FakeFileSystem::Kind::kWrite, .for_ever = true});
  uint64_t key = 51;
  while (!store_->tier()->is_failing()) static_cast<void>(Insert(*table, key++, 20ms));
  const int64_t before = fs_.num_operations(FakeFileSystem::Kind::kWrite);
  for (int i = 0; i < 20; ++i) static_cast<void>(Insert(*table, key++, 5ms));
  EXPECT_EQ(fs_.num_operations(FakeFileSystem::Kind::kWrite), before);
  EXPECT_TRUE(store_->tier()->is_failing());
}

// A write that fails does not make room, not even for a moment.
TEST_F(TieredFaultsTest, AFailingDiskDoesNotLetMoreIntoMemoryThanItsLimit) {
  Open(TierOptions());
  const auto table = MakeTable();
  fs_.Inject({.kind = FakeFileSystem::Kind::kWrite, .for_ever = true});
  for (uint64_t key = 1; key <= 40; ++key) static_cast<void>(Insert(*table, key, 20ms));
  EXPECT_LE(store_->tier()->stats().memory_bytes, TierOptions().memory_limit);
  EXPECT_GT(table->size(), 5);
}

// The medium may be bad where the write was. Others go elsewhere.
TEST_F(TieredFaultsTest, WritesContinueInAnotherFileAfterAnErrorOfTheMedium) {
  ChunkTier::Options options = TierOptions();
  options.disk_limit = 16 << 20;
  options.segment_bytes = 1 << 20;
  Open(options);
  const auto table = MakeTable();
  for (uint64_t key = 1; key <= 50; ++key) ASSERT_OK(Insert(*table, key));
  EXPECT_EQ(NumFiles(), 1u);
  fs_.Inject({.kind = FakeFileSystem::Kind::kWrite, .for_ever = true});
  const int64_t before = fs_.num_operations(FakeFileSystem::Kind::kWrite);
  uint64_t key = 51;
  ASSERT_TRUE(WaitUntil([&] {
    if (Insert(*table, key, 1ms).ok()) ++key;
    return fs_.num_operations(FakeFileSystem::Kind::kWrite) >= before + 3;
  }));
  fs_.ClearFault();
  for (; key <= 100; ++key) ASSERT_OK(Insert(*table, key));
  EXPECT_EQ(NumFiles(), 2u);
  ExpectAllReadable(table, 100);
}

// Compaction that fails goes on before new data takes the room that is kept for it. Else neither could go on.
TEST_F(TieredFaultsTest, CompactionGoesOnAfterErrors) {
  ChunkTier::Options options = TierOptions();
  options.memory_limit = 100 * int64_t{kTieredPayload};
  options.segment_bytes = 65536;
  options.disk_limit = 16 * 65536;
  Open(options);
  // Items leave in random order, so that no file is empty soon.
  TableOptions table_options;
  table_options.max_size = 230;
  table_options.remover = SelectorOptions::Uniform(1);
  const auto table = MakeTable(table_options);
  constexpr int kErrors[] = {EIO, ENOMEM, EAGAIN};
  for (uint64_t key = 1; key <= 3000; ++key) {
    const auto kind = key % 3 == 0 ? FakeFileSystem::Kind::kRead : FakeFileSystem::Kind::kWrite;
    if (key % 10 == 0) {
      fs_.Inject({.kind = kind, .after = static_cast<int64_t>(key % 7), .error = kErrors[key / 10 % 3]});
    }
    ASSERT_OK(Insert(*table, key, 20s)) << key;
  }
  fs_.ClearFault();
  EXPECT_LE(store_->tier()->stats().file_bytes, options.disk_limit);
  ExpectAllReadable(table, table->size());
  EXPECT_GE(table->size() + store_->tier()->stats().lost_chunks, 230);
}

// The error may pass: not everything that is on the disk is evicted meanwhile.
TEST_F(TieredFaultsTest, AFailingDiskEvictsFewItemsBeforeTheRetryInterval) {
  ChunkTier::Options options = TierOptions();
  options.retry_interval = 1h;
  Open(options, {.policy = MemoryPolicy::kEvict});
  const auto table = MakeTable();
  for (uint64_t key = 1; key <= 50; ++key) ASSERT_OK(Insert(*table, key));
  fs_.Inject({.kind = FakeFileSystem::Kind::kWrite, .for_ever = true});
  for (uint64_t key = 51; key <= 90; ++key) static_cast<void>(Insert(*table, key, 5ms));
  EXPECT_TRUE(WaitUntil([&] { return store_->tier()->is_failing(); }));
  EXPECT_GT(table->size(), 40);
}

// A file that is removed makes room at once.
TEST_F(TieredFaultsTest, AFullDiskIsWrittenToAgainWhenItemsWereDeleted) {
  ChunkTier::Options options = TierOptions();
  options.retry_interval = 1h;
  Open(options);
  fs_.set_capacity(100'000);
  const auto table = MakeTable();
  uint64_t key = 1;
  while (Insert(*table, key, 50ms).ok() || !store_->tier()->is_failing()) ++key;
  std::vector<uint64_t> deleted;
  for (uint64_t old = 1; old < key - 10; ++old) deleted.push_back(old);
  ASSERT_OK(table->Mutate({}, deleted));
  for (int i = 0; i < 4; ++i) EXPECT_OK(Insert(*table, ++key, 20s));
  EXPECT_EQ(store_->tier()->stats().error, "");
  ExpectAllReadable(table, table->size());
}

TEST_F(TieredFaultsTest, AFileThatCannotBeRemovedCountsAndIsRemovedLater) {
  ChunkTier::Options options = TierOptions();
  options.retry_interval = 100ms;
  Open(options);
  const auto table = MakeTable();
  for (uint64_t key = 1; key <= 100; ++key) ASSERT_OK(Insert(*table, key));
  ASSERT_TRUE(WaitUntil([&] { return store_->tier()->stats().memory_bytes <= 8 * ChunkBytes(); }));
  const int64_t file_bytes = store_->tier()->stats().file_bytes;
  fs_.Inject({.kind = FakeFileSystem::Kind::kWrite, .for_ever = true});
  const int64_t before = fs_.num_operations(FakeFileSystem::Kind::kWrite);
  table->Reset();
  ASSERT_TRUE(WaitUntil([&] { return fs_.num_operations(FakeFileSystem::Kind::kWrite) > before; }));
  EXPECT_GT(store_->tier()->stats().file_bytes, file_bytes / 2);
  fs_.ClearFault();
  EXPECT_TRUE(WaitUntil([&] { return NumFiles() <= 1; }));
}

TEST_F(TieredFaultsTest, FullDiskEvictsIfSoConfigured) {
  Open(TierOptions(), {.policy = MemoryPolicy::kEvict});
  fs_.set_capacity(40'000);
  const auto table = MakeTable();
  for (uint64_t key = 1; key <= 100; ++key) ASSERT_OK(Insert(*table, key)) << key;
  EXPECT_GT(table->Info().evictions, 0);
  EXPECT_GT(table->size(), 5);
  ExpectAllReadable(table, table->size());
}

// Evicting one item does not free a file. Inserts do not wait for retry_interval each time.
TEST_F(TieredFaultsTest, FullDiskEvictsUntilAFileIsFree) {
  ChunkTier::Options options = TierOptions();
  options.retry_interval = 1h;
  options.segment_bytes = 65536;
  Open(options, {.policy = MemoryPolicy::kEvict});
  fs_.set_capacity(4 * 65536);
  const auto table = MakeTable();
  for (uint64_t key = 1; key <= 300; ++key) ASSERT_OK(Insert(*table, key)) << key;
  EXPECT_GT(table->Info().evictions, 0);
  EXPECT_GT(table->size(), 20);
  ExpectAllReadable(table, table->size());
}

TEST_F(TieredFaultsTest, DamagedDataCostsOnlyTheItemsThatUsedIt) {
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

TEST_F(TieredFaultsTest, DataThatCannotBeReadTwiceIsLost) {
  Open(TierOptions());
  const auto table = MakeTable();
  for (uint64_t key = 1; key <= 50; ++key) ASSERT_OK(Insert(*table, key));
  fs_.Inject({.kind = FakeFileSystem::Kind::kRead, .for_ever = true});
  const FetchedSamples one = FetchOne(table, 1);
  EXPECT_OK(one.status);
  EXPECT_EQ(one.lost, 1);
  EXPECT_EQ(table->size(), 49);
  EXPECT_EQ(store_->tier()->stats().lost_chunks, 1);
  fs_.ClearFault();
  ExpectAllReadable(table, 49);
}

// These errors say nothing about the data.
TEST_F(TieredFaultsTest, DataIsNotLostWhenTheSystemCannotReadIt) {
  Open(TierOptions());
  const auto table = MakeTable();
  for (uint64_t key = 1; key <= 50; ++key) ASSERT_OK(Insert(*table, key));
  uint64_t key = 2;  // another one each time, since what is read twice stays in memory
  for (const int error : {EAGAIN, ENOMEM, EMFILE, EINTR, ENXIO, EINVAL}) {
    fs_.Inject({.kind = FakeFileSystem::Kind::kRead, .for_ever = true, .error = error});
    const FetchedSamples one = FetchOne(table, 1);
    EXPECT_THAT(one.status, StatusIs(StatusCode::kUnavailable)) << error;
    EXPECT_EQ(one.lost, 0);
    // One that passes is not noticed.
    fs_.Inject({.kind = FakeFileSystem::Kind::kRead, .error = error});
    const int64_t before = fs_.num_operations(FakeFileSystem::Kind::kRead);
    EXPECT_EQ(FetchOne(table, key++).samples.size(), 1u) << error;
    EXPECT_EQ(fs_.num_operations(FakeFileSystem::Kind::kRead), before + 2) << "it was read again";
  }
  fs_.ClearFault();
  EXPECT_EQ(store_->tier()->stats().lost_chunks, 0);
  ExpectAllReadable(table, 50);
}

// Every operation of the file system fails once, one run for each.
TEST_F(TieredFaultsTest, SurvivesAFailureOfAnyOperation) {
  for (const auto kind : {FakeFileSystem::Kind::kWrite, FakeFileSystem::Kind::kRead}) {
    for (int64_t after = 0; after < 40; ++after) {
      FakeFileSystem fs;
      Result<ChunkTierPtr> tier = ChunkTier::Open(&fs, TierOptions());
      ASSERT_OK(tier.status());
      store_ = std::make_shared<ChunkStore>(ChunkStore::Options{}, RealClock(), *std::move(tier));
      fs.Inject({.kind = kind, .after = after});
      const auto table = MakeTable();
      for (uint64_t key = 1; key <= 40; ++key) ASSERT_OK(Insert(*table, key));
      for (int i = 0; i < 3; ++i) ExpectAllReadable(table, 40);
      EXPECT_EQ(store_->tier()->stats().lost_chunks, 0) << after;
      store_->tier()->Shutdown();  // before `fs` is destroyed
      store_.reset();
    }
  }
}

// The disk is bad all the time: of its operations, every n-th fails.
TEST_F(TieredFaultsTest, SurvivesADiskOfWhichEveryNthOperationFails) {
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
      if (kind == FakeFileSystem::Kind::kWrite) {
        EXPECT_EQ(all.lost, 0) << every;
      }
      EXPECT_EQ(store_->tier()->stats().lost_chunks, all.lost);
      store_->tier()->Shutdown();  // before `fs` is destroyed
      store_.reset();
    }
  }
}

// A power loss leaves some of the files, in any state: the tier is a cache, which starts empty.
TEST_F(TieredFaultsTest, StartsEmptyAfterAPowerLoss) {
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

TEST_F(TieredFaultsTest, OpenReportsAnErrorOfEachOperation) {
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

}  // namespace
}  // namespace reverb::internal
