// Tests checkpoints under power loss and disk failures. Whichever operation fails, the files hold the last
// checkpoint that was reported as written, or the one that was in progress, complete.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/layout.h"
#include "checkpoint/load.h"
#include "crash/random_tables.h"
#include "gtest/gtest.h"
#include "testing/effort.h"
#include "testing/fake_file_system.h"
#include "testing/seed.h"

namespace reverb::internal {
namespace {

using test::FakeFileSystem;
using test::RandomOperations;
using test::SomeTables;
using test::World;

constexpr char kRoot[] = "/data/run";

// A file system that skips the syncs that `skips` names.
class ForgetfulFileSystem final : public FileSystem {
 public:
  using Skips = std::function<bool(FileSystem* fs, const std::string& path)>;
  ForgetfulFileSystem(FileSystem* fs, Skips skips) : fs_(fs), skips_(std::move(skips)) {}

  Result<std::unique_ptr<WritableFile>> NewWritableFile(const std::string& path, OpenMode mode) override {
    REVERB_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, fs_->NewWritableFile(path, mode));
    return std::unique_ptr<WritableFile>(std::make_unique<File>(std::move(file), skips_(fs_, path)));
  }
  Result<std::unique_ptr<RandomAccessFile>> NewRandomAccessFile(const std::string& path) override {
    return fs_->NewRandomAccessFile(path);
  }
  Result<Buffer> MapFile(const std::string& path) override { return fs_->MapFile(path); }
  Result<std::vector<std::string>> ListDir(const std::string& path) override { return fs_->ListDir(path); }
  Status CreateDir(const std::string& path, Parents parents) override {
    return fs_->CreateDir(path, parents);
  }
  Status RemoveFile(const std::string& path) override { return fs_->RemoveFile(path); }
  Status RemoveDir(const std::string& path) override { return fs_->RemoveDir(path); }
  Status Rename(const std::string& from, const std::string& to) override { return fs_->Rename(from, to); }
  Status SyncDir(const std::string& path) override {
    return skips_(fs_, path) ? Status::Ok() : fs_->SyncDir(path);
  }
  Result<bool> FileExists(const std::string& path) override { return fs_->FileExists(path); }
  Result<uint64_t> FileSize(const std::string& path) override { return fs_->FileSize(path); }
  Result<std::unique_ptr<FileLock>> LockFile(const std::string& path,
                                             std::chrono::nanoseconds timeout) override {
    return fs_->LockFile(path, timeout);
  }
  Result<uint64_t> GetFreeSpace(const std::string& path) override { return fs_->GetFreeSpace(path); }

 private:
  class File final : public WritableFile {
   public:
    File(std::unique_ptr<WritableFile> file, bool skips) : file_(std::move(file)), skips_(skips) {}
    Status Append(std::span<const uint8_t> bytes) override { return file_->Append(bytes); }
    Status Flush() override { return file_->Flush(); }
    Status Sync() override { return skips_ ? file_->Flush() : file_->Sync(); }
    Status Close() override { return file_->Close(); }

   private:
    const std::unique_ptr<WritableFile> file_;
    const bool skips_;
  };
  FileSystem* const fs_;
  const Skips skips_;
};

// The outcome of several checkpoints.
struct Outcome {
  std::optional<std::string> published;  // the tables as of the last write that succeeded
  std::optional<std::string> attempted;  // of a later write that failed
  int failures = 0;
};

constexpr int kRounds = 4;

// Writes some checkpoints to `fs`, a layer over `disk`, and sets the fault before round `fault_round`.
Outcome RunRounds(FileSystem* fs, FakeFileSystem* disk, std::optional<FakeFileSystem::Fault> fault,
                  int fault_round, bool stop_at_failure) {
  World world = World::Make();
  RandomOperations operations(test::Seed(), world.store);
  CheckpointWriter writer(fs, {.root = kRoot, .segment_bytes = 3'000, .compact_bytes = 500});
  Outcome outcome;
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < 60; ++i) operations.Do(world.tables);
    if (fault && round == fault_round) disk->Inject(*fault);
    const Snapshot snapshot = ConcurrentTable::TakeSnapshot(world.tables);
    const auto stats = writer.Write(snapshot, {}, 1'700'000'000'000'000'000 + round * int64_t{1'000'000'000});
    if (stats.ok()) {
      outcome.published = world.Text();
      outcome.attempted.reset();
    } else {
      outcome.attempted = world.Text();
      ++outcome.failures;
      if (stop_at_failure) return outcome;
    }
  }
  return outcome;
}

// Returns an empty string if `disk` holds what it must; otherwise the problem.
std::string Check(FakeFileSystem* disk, const Outcome& outcome) {
  const Result<std::vector<CheckpointEntry>> entries = ListCheckpoints(disk, kRoot);
  std::optional<std::string> latest;
  if (entries.ok()) {
    // Every complete checkpoint must be loadable, old ones included.
    for (const CheckpointEntry& entry : *entries) {
      if (!entry.is_complete) continue;
      World world;
      const Result<std::unique_ptr<CheckpointSource>> source = OpenCheckpoint(disk, entry.path);
      if (!source.ok()) return entry.path + ": " + source.status().ToString();
      const Result<LoadedServer> loaded = LoadFrom(**source, SomeTables(), {}, world.environment());
      if (!loaded.ok()) return entry.path + ": " + loaded.status().ToString();
      latest = test::Describe(loaded->tables);
    }
  } else if (outcome.published) {
    return entries.status().ToString();
  }
  if (latest == outcome.published) return "";
  if (latest && outcome.attempted && latest == outcome.attempted) return "";
  return latest ? "the latest checkpoint is neither the last published nor the one under way"
                : "there is no checkpoint, though one was published";
}

// Returns the number of modifying operations in the rounds from `from` on.
int64_t CountWrites(int from) {
  int64_t before = 0;
  for (int rounds : {from, kRounds}) {
    FakeFileSystem counted;
    World world = World::Make();
    RandomOperations operations(test::Seed(), world.store);
    CheckpointWriter writer(&counted, {.root = kRoot, .segment_bytes = 3'000, .compact_bytes = 500});
    for (int round = 0; round < rounds; ++round) {
      for (int i = 0; i < 60; ++i) operations.Do(world.tables);
      const Snapshot snapshot = ConcurrentTable::TakeSnapshot(world.tables);
      EXPECT_TRUE(
          writer.Write(snapshot, {}, 1'700'000'000'000'000'000 + round * int64_t{1'000'000'000}).ok());
    }
    const int64_t writes = counted.num_operations(FakeFileSystem::Kind::kWrite);
    if (rounds == kRounds) return writes - before;
    before = writes;
  }
  return 0;
}

std::vector<uint64_t> CrashSeeds(int64_t how_many) {
  std::vector<uint64_t> seeds = {FakeFileSystem::kLoseAll};
  for (int64_t i = 1; i <= how_many; ++i) seeds.push_back(test::Seed() + static_cast<uint64_t>(i));
  return seeds;
}

// Loses power at the n-th operation, for every n, from the very first checkpoint on.
TEST(PowerLossTest, LeavesTheLastPublishedState) {
  const std::vector<uint64_t> seeds = CrashSeeds(test::Effort(6, 2));
  const int64_t writes = CountWrites(0);
  ASSERT_GT(writes, 60);
  for (int64_t n = 0; n <= writes; ++n) {
    FakeFileSystem disk;
    const Outcome outcome =
        RunRounds(&disk, &disk, FakeFileSystem::Fault{.after = n, .for_ever = true}, 0, true);
    EXPECT_EQ(outcome.failures, n < writes && outcome.attempted ? 1 : 0);
    for (const uint64_t seed : seeds) {
      const std::unique_ptr<FakeFileSystem> after = disk.AfterCrash(seed);
      ASSERT_EQ(Check(after.get(), outcome), "")
          << "operation " << n << " of " << writes << ", crash " << seed;
    }
  }
}

// One operation fails, the server continues, and the next checkpoint succeeds; then the power may be lost.
TEST(PowerLossTest, OneFailureAffectsOneCheckpointAtMost) {
  const std::vector<uint64_t> seeds = CrashSeeds(test::Effort(2, 1));
  const int64_t writes = CountWrites(1) / (kRounds - 1) + 10;
  for (const int error : {EIO, ENOSPC, EACCES}) {
    for (int64_t n = 0; n < writes; ++n) {
      FakeFileSystem disk;
      const Outcome outcome =
          RunRounds(&disk, &disk, FakeFileSystem::Fault{.after = n, .error = error}, 1, false);
      EXPECT_LE(outcome.failures, 1);
      EXPECT_FALSE(outcome.attempted && n < 5) << "the last round failed";
      ASSERT_EQ(Check(&disk, outcome), "") << "operation " << n;
      for (const uint64_t seed : seeds) {
        const std::unique_ptr<FakeFileSystem> after = disk.AfterCrash(seed);
        ASSERT_EQ(Check(after.get(), outcome), "") << "operation " << n << ", crash " << seed;
      }
    }
  }
}

// Loses power right after the failure, before anything else is written.
TEST(PowerLossTest, AFailureThenAPowerLoss) {
  const std::vector<uint64_t> seeds = CrashSeeds(test::Effort(6, 2));
  const int64_t writes = CountWrites(1) / (kRounds - 1) + 10;
  for (int64_t n = 0; n < writes; ++n) {
    FakeFileSystem disk;
    const Outcome outcome = RunRounds(&disk, &disk, FakeFileSystem::Fault{.after = n}, 1, true);
    ASSERT_EQ(Check(&disk, outcome), "") << "operation " << n;
    for (const uint64_t seed : seeds) {
      const std::unique_ptr<FakeFileSystem> after = disk.AfterCrash(seed);
      ASSERT_EQ(Check(after.get(), outcome), "") << "operation " << n << ", crash " << seed;
    }
  }
}

TEST(PowerLossTest, AFullDiskFailsOnlyTheCheckpoint) {
  FakeFileSystem disk;
  World world = World::Make();
  RandomOperations operations(test::Seed(), world.store);
  CheckpointWriter writer(&disk, {.root = kRoot});
  for (int i = 0; i < 500; ++i) operations.Do(world.tables);
  ASSERT_TRUE(writer.Write(ConcurrentTable::TakeSnapshot(world.tables), {}, 1'700'000'000'000'000'000).ok());
  const std::string saved = world.Text();
  disk.set_capacity(1'000);
  for (int i = 0; i < 500; ++i) operations.Do(world.tables);
  const auto full = writer.Write(ConcurrentTable::TakeSnapshot(world.tables), {}, 1'700'000'001'000'000'000);
  EXPECT_EQ(full.status().code(), StatusCode::kFailedPrecondition) << full.status().ToString();
  EXPECT_EQ(Check(&disk, {.published = saved, .attempted = {}}), "");
  disk.set_capacity(uint64_t{1} << 40);
  ASSERT_TRUE(writer.Write(ConcurrentTable::TakeSnapshot(world.tables), {}, 1'700'000'002'000'000'000).ok());
  EXPECT_EQ(Check(&disk, {.published = world.Text(), .attempted = {}}), "");
}

// --- Every sync is necessary: without any one of them, the tests above would find a loss ---

struct Sync {
  const char* what;
  ForgetfulFileSystem::Skips skips;
};

class NeededSyncTest : public ::testing::TestWithParam<Sync> {};

TEST_P(NeededSyncTest, SkippingItLosesData) {
  const std::vector<uint64_t> seeds = CrashSeeds(8);
  const int64_t writes = CountWrites(0);
  for (const bool for_ever : {true, false}) {
    for (int64_t n = 0; n <= writes; ++n) {
      FakeFileSystem disk;
      ForgetfulFileSystem forgetful(&disk, GetParam().skips);
      const Outcome outcome = RunRounds(
          &forgetful, &disk, FakeFileSystem::Fault{.after = n, .for_ever = for_ever}, for_ever ? 0 : 1, true);
      for (const uint64_t seed : seeds) {
        const std::unique_ptr<FakeFileSystem> after = disk.AfterCrash(seed);
        if (Check(after.get(), outcome) != "") return;  // found, as expected
      }
    }
  }
  FAIL() << "nothing was lost without the sync of " << GetParam().what;
}

std::string NameOf(const std::string& path) { return path.substr(path.rfind('/') + 1); }

INSTANTIATE_TEST_SUITE_P(
    All, NeededSyncTest,
    ::testing::Values(
        Sync{"chunks", [](FileSystem*, const std::string& path) { return path.ends_with(".chunks"); }},
        Sync{"pages", [](FileSystem*, const std::string& path) { return path.ends_with(".pages"); }},
        Sync{"manifest",
             [](FileSystem*, const std::string& path) { return path.ends_with(kManifestTempName); }},
        Sync{"segments", [](FileSystem*, const std::string& path) { return NameOf(path) == kSegmentsName; }},
        // After the manifest has been renamed into place, and after it has been removed.
        Sync{"checkpoint",
             [](FileSystem* fs, const std::string& path) {
               return IsOwnCheckpointName(NameOf(path)) && *fs->FileExists(JoinPath(path, kManifestName));
             }},
        Sync{"removal",
             [](FileSystem* fs, const std::string& path) {
               return IsOwnCheckpointName(NameOf(path)) && !*fs->FileExists(JoinPath(path, kManifestName));
             }},
        Sync{"root", [](FileSystem*, const std::string& path) { return path == kRoot; }},
        Sync{"parent", [](FileSystem*, const std::string& path) { return path == "/data"; }},
        Sync{"top", [](FileSystem*, const std::string& path) { return path == "/"; }}),
    [](const ::testing::TestParamInfo<Sync>& info) { return std::string(info.param.what); });

}  // namespace
}  // namespace reverb::internal
