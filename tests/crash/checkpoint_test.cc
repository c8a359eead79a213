// Tests that snapshots are restored as written, with files in memory.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/checkpointer.h"
#include "checkpoint/layout.h"
#include "checkpoint/load.h"
#include "checkpoint/reverb_source.h"
#include "crash/random_tables.h"
#include "gtest/gtest.h"
#include "reverb/extensions.h"
#include "reverb/log.h"
#include "reverb/signature.h"
#include "testing/fake_file_system.h"
#include "testing/seed.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::FakeFileSystem;
using test::RandomOperations;
using test::SomeTables;
using test::StatusIs;
using test::World;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kRoot[] = "/data/run";

class CheckpointTest : public ::testing::Test {
 protected:
  Result<CheckpointWriter::Stats> TryWrite(CheckpointWriter& writer, const World& world) {
    const Snapshot snapshot = ConcurrentTable::TakeSnapshot(world.tables);
    return writer.Write(snapshot, writers_, now_ += 1'000'000'000);
  }
  CheckpointWriter::Stats Write(CheckpointWriter& writer, const World& world) {
    Result<CheckpointWriter::Stats> stats = TryWrite(writer, world);
    EXPECT_TRUE(stats.ok()) << stats.status().ToString();
    return stats.ok() ? *stats : CheckpointWriter::Stats();
  }
  Result<LoadedServer> Load(World* world, const std::vector<TableOptions>& given = SomeTables(),
                            const RestoreOptions& restore = {}) {
    Result<LoadedServer> loaded =
        LoadLatest(&fs_, {.path = kRoot, .restore = restore}, given, world->environment());
    if (loaded.ok()) world->tables = loaded->tables;
    return loaded;
  }
  // Checks that the last checkpoint holds the current state of `world`.
  void ExpectComesBack(const World& world, const std::vector<TableOptions>& given = SomeTables()) {
    World copy;
    const Result<LoadedServer> loaded = Load(&copy, given);
    ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
    EXPECT_EQ(copy.Text(), world.Text());
  }
  size_t NumSegments() { return fs_.ListDir(std::string(kRoot) + "/segments")->size(); }
  std::vector<std::string> Checkpoints() {
    std::vector<std::string> names;
    for (const CheckpointEntry& entry : *ListCheckpoints(&fs_, kRoot)) names.push_back(entry.path);
    return names;
  }

  FakeFileSystem fs_;
  std::vector<SavedWriter> writers_;
  int64_t now_ = 1'700'000'000'000'000'000;
};

TEST_F(CheckpointTest, TablesAreRestored) {
  World world = World::Make();
  RandomOperations operations(test::Seed(), world.store);
  for (int i = 0; i < 5'000; ++i) operations.Do(world.tables);
  CheckpointWriter writer(&fs_, {.root = kRoot});
  Write(writer, world);

  ExpectComesBack(world);
}

TEST_F(CheckpointTest, RestoredTablesBehaveLikeTheOriginals) {
  World world = World::Make();
  RandomOperations operations(test::Seed(), world.store);
  for (int i = 0; i < 3'000; ++i) operations.Do(world.tables);
  CheckpointWriter writer(&fs_, {.root = kRoot});
  Write(writer, world);
  World copy;
  ASSERT_TRUE(Load(&copy).ok());

  operations.ForgetChunks();
  RandomOperations same = operations.CopyWith(copy.store);
  for (int i = 0; i < 3'000; ++i)
    ASSERT_EQ(same.Do(copy.tables), operations.Do(world.tables)) << "step " << i;
  EXPECT_EQ(copy.Text(), world.Text());
}

TEST_F(CheckpointTest, EmptyTablesAreRestored) {
  const World world = World::Make();
  CheckpointWriter writer(&fs_, {.root = kRoot});
  Write(writer, world);
  ExpectComesBack(world);
}

TEST_F(CheckpointTest, ASecondCheckpointWritesOnlyNewData) {
  const std::vector<TableOptions> options = {
      {.name = "t", .sampler = SelectorOptions::Fifo(), .max_size = 5'000}};
  World world = World::Make(options);
  const auto insert = [&](uint64_t key) {
    ASSERT_TRUE(
        world.tables[0]->Insert(test::MakeItem(key, 1, test::MakeChunk(world.store.get(), key, 0, 10))).ok());
  };
  for (uint64_t key = 1; key <= 5'000; ++key) insert(key);
  CheckpointWriter writer(&fs_, {.root = kRoot});
  const auto first = Write(writer, world);
  EXPECT_EQ(first.chunks_written, 5'000);
  EXPECT_EQ(first.pages_written, first.pages_total);

  for (uint64_t key = 5'001; key <= 5'050; ++key) insert(key);
  const auto second = Write(writer, world);
  EXPECT_EQ(second.chunks_written, 50);
  EXPECT_LE(second.pages_written, 3);
  EXPECT_EQ(second.pages_total, first.pages_total);
  EXPECT_LT(second.chunk_bytes + second.page_bytes, (first.chunk_bytes + first.page_bytes) / 10);

  const auto third = Write(writer, world);
  EXPECT_EQ(third.chunks_written, 0);
  EXPECT_EQ(third.pages_written, 0);
  World copy;
  ASSERT_TRUE(Load(&copy, options).ok());
  EXPECT_EQ(copy.Text(), world.Text());
}

TEST_F(CheckpointTest, AReinsertedChunkIsNotWrittenAgain) {
  const std::vector<TableOptions> options = {
      {.name = "t", .sampler = SelectorOptions::Fifo(), .max_size = 1'000}};
  World world = World::Make(options);
  std::vector<ChunkRef> chunks;
  for (uint64_t key = 1; key <= 600; ++key) {
    chunks.push_back(test::MakeChunk(world.store.get(), key, 0, 10));
    ASSERT_TRUE(world.tables[0]->Insert(test::MakeItem(key, 1, chunks.back())).ok());
  }
  CheckpointWriter writer(&fs_, {.root = kRoot});
  EXPECT_EQ(Write(writer, world).chunks_written, 600);
  const uint64_t gone[] = {5, 6, 500};
  ASSERT_OK(world.tables[0]->Mutate({}, gone));
  EXPECT_EQ(Write(writer, world).chunks_written, 0);
  for (const uint64_t key : gone) {
    ASSERT_TRUE(world.tables[0]->Insert(test::MakeItem(1'000 + key, 1, chunks[key - 1])).ok());
  }
  EXPECT_EQ(Write(writer, world).chunks_written, 0);
  World copy;
  ASSERT_TRUE(Load(&copy, options).ok());
  EXPECT_EQ(copy.Text(), world.Text());
}

TEST_F(CheckpointTest, AResetTableIsWrittenAnew) {
  World world = World::Make();
  RandomOperations operations(test::Seed(), world.store);
  CheckpointWriter writer(&fs_, {.root = kRoot});
  for (int round = 0; round < 5; ++round) {
    for (const auto& table : world.tables) table->Reset();
    for (int i = 0; i < 200; ++i) operations.Do(world.tables);
    Write(writer, world);
    ExpectComesBack(world);
  }
}

TEST_F(CheckpointTest, AWriterContinuesFromALoadedCheckpoint) {
  World world = World::Make();
  RandomOperations operations(test::Seed(), world.store);
  for (int i = 0; i < 3'000; ++i) operations.Do(world.tables);
  CheckpointWriter writer(&fs_, {.root = kRoot});
  Write(writer, world);

  World copy;
  Result<LoadedServer> loaded = Load(&copy);
  ASSERT_TRUE(loaded.ok());
  CheckpointWriter next(&fs_, {.root = kRoot});
  next.Adopt(*loaded->path, std::move(loaded->segments));
  const auto stats = Write(next, copy);
  EXPECT_EQ(stats.chunks_written, stats.chunks_moved);
  World again;
  ASSERT_TRUE(Load(&again).ok());
  EXPECT_EQ(again.Text(), world.Text());
}

TEST_F(CheckpointTest, WritersThatShareARootLoseNothing) {
  // Each writer removes the other's last checkpoint, and the segments that only that one needed.
  World worlds[] = {World::Make(), World::Make()};
  std::vector<std::unique_ptr<RandomOperations>> operations;
  std::vector<std::unique_ptr<CheckpointWriter>> writers;
  for (World& world : worlds) {
    operations.push_back(std::make_unique<RandomOperations>(test::Seed(), world.store));
    writers.push_back(std::make_unique<CheckpointWriter>(&fs_, CheckpointWriter::Options{.root = kRoot}));
  }
  for (int round = 0; round < 12; ++round) {
    const size_t i = round % 3 == 0 ? 0 : 1;  // each writer sometimes twice in a row
    for (int step = 0; step < 200; ++step) operations[i]->Do(worlds[i].tables);
    Write(*writers[i], worlds[i]);
    World copy;
    ASSERT_TRUE(Load(&copy).ok()) << "round " << round;
    ASSERT_EQ(copy.Text(), worlds[i].Text()) << "round " << round;
  }
}

TEST_F(CheckpointTest, ASegmentThatWasRemovedOrCutIsWrittenAgain) {
  const std::vector<TableOptions> options = {
      {.name = "t", .sampler = SelectorOptions::Fifo(), .max_size = 2'000}};
  World world = World::Make(options);
  uint64_t key = 0;
  const auto insert = [&](uint64_t count) {
    for (const uint64_t end = key + count; key < end;) {
      ++key;
      ASSERT_OK(
          world.tables[0]->Insert(test::MakeItem(key, 1, test::MakeChunk(world.store.get(), key, 0, 10))));
    }
  };
  insert(600);
  CheckpointWriter writer(&fs_, {.root = kRoot});
  Write(writer, world);
  const std::string folder = std::string(kRoot) + "/segments/";
  for (const SegmentKind kind : {SegmentKind::kChunks, SegmentKind::kPages}) {
    for (const bool is_removed : {true, false}) {
      SCOPED_TRACE((kind == SegmentKind::kChunks ? "chunks, " : "pages, ") +
                   std::string(is_removed ? "removed" : "cut"));
      // The first file of this kind, which the last checkpoint refers to.
      const auto files = fs_.ListDir(folder).value();
      const auto file = std::ranges::find_if(files, [&](const std::string& name) {
        const auto segment = ParseSegmentFileName(name);
        return segment && segment->kind == kind;
      });
      ASSERT_NE(file, files.end());
      if (is_removed) {
        ASSERT_OK(fs_.RemoveFile(folder + *file));
      } else {
        std::string bytes = fs_.ReadAll(folder + *file).value();
        bytes.pop_back();
        ASSERT_OK(fs_.WriteAll(folder + *file, bytes));
      }
      insert(1);
      Write(writer, world);
      ExpectComesBack(world, options);
      // The next checkpoint is incremental as usual.
      insert(1);
      EXPECT_EQ(Write(writer, world).chunks_written, 1);
      ExpectComesBack(world, options);
    }
  }
}

TEST_F(CheckpointTest, AFailedReadRemovesNoCheckpoint) {
  const std::vector<TableOptions> options = {
      {.name = "t", .sampler = SelectorOptions::Fifo(), .max_size = 10}};
  // Writes three checkpoints that share no data; read number `failing` of the third fails. Returns the number
  // of reads of the third.
  const auto write_three = [&](std::optional<int64_t> failing) {
    FakeFileSystem fs;
    World world = World::Make(options);
    CheckpointWriter writer(&fs, {.root = kRoot, .keep_latest = 2});
    const auto write = [&](uint64_t first) {
      for (uint64_t key = first; key < first + 10; ++key) {
        EXPECT_OK(
            world.tables[0]->Insert(test::MakeItem(key, 1, test::MakeChunk(world.store.get(), key, 0, 10))));
      }
      return writer.Write(ConcurrentTable::TakeSnapshot(world.tables), {}, now_ += 1'000'000'000).status();
    };
    EXPECT_OK(write(1));
    EXPECT_OK(write(11));
    const int64_t before = fs.num_operations(FakeFileSystem::Kind::kRead);
    if (failing) fs.Inject({.kind = FakeFileSystem::Kind::kRead, .after = *failing});
    const Status third = write(21);
    const int64_t reads = fs.num_operations(FakeFileSystem::Kind::kRead) - before;
    fs.ClearFault();
    size_t complete = 0;
    for (const CheckpointEntry& entry : *ListCheckpoints(&fs, kRoot)) {
      complete += entry.is_complete;
      EXPECT_OK(ReverbSource::Open(&fs, entry.path)) << third.ToString();
    }
    EXPECT_GE(complete, 2) << third.ToString();
    return reads;
  };
  const int64_t reads = write_three(std::nullopt);
  ASSERT_GT(reads, 5);
  for (int64_t failing = 0; failing < reads; ++failing) {
    SCOPED_TRACE("read " + std::to_string(failing) + " fails");
    write_three(failing);
  }
}

TEST_F(CheckpointTest, ADamagedCheckpointDoesNotCountAsKept) {
  World world = World::Make();
  RandomOperations operations(test::Seed(), world.store);
  CheckpointWriter writer(&fs_, {.root = kRoot, .keep_latest = 2});
  const auto write = [&] {
    for (int i = 0; i < 50; ++i) operations.Do(world.tables);
    Write(writer, world);
  };
  write();
  write();
  const std::vector<std::string> two = Checkpoints();
  ASSERT_OK(fs_.WriteAll(two[1] + "/MANIFEST", "damaged"));
  write();
  EXPECT_OK(ReverbSource::Open(&fs_, two[0]));
  write();
  const std::vector<std::string> last = Checkpoints();
  ASSERT_EQ(last.size(), 2);
  for (const std::string& path : last) EXPECT_OK(ReverbSource::Open(&fs_, path));
}

TEST_F(CheckpointTest, ManyRoundsKeepEveryStateAndLittleElse) {
  World world = World::Make();
  RandomOperations operations(test::Seed(), world.store);
  CheckpointWriter writer(&fs_,
                          {.root = kRoot, .keep_latest = 2, .segment_bytes = 4'000, .compact_bytes = 2'000});
  for (int round = 0; round < 60; ++round) {
    const uint64_t steps = static_cast<uint64_t>(round) * 37 % 150;
    for (uint64_t i = 0; i < steps; ++i) operations.Do(world.tables);
    Write(writer, world);
    SCOPED_TRACE("round " + std::to_string(round));
    ExpectComesBack(world);
    EXPECT_LE(Checkpoints().size(), 2);
  }
  EXPECT_LT(NumSegments(), 140);
}

TEST_F(CheckpointTest, MostlyDeadSegmentsAreCompacted) {
  const std::vector<TableOptions> options = {{.name = "t",
                                              .sampler = SelectorOptions::Fifo(),
                                              .remover = SelectorOptions::Uniform(4),
                                              .max_size = 1'000}};
  World world = World::Make(options);
  CheckpointWriter writer(&fs_, {.root = kRoot});
  uint64_t key = 0;
  uint64_t moved = 0;
  for (int round = 0; round < 30; ++round) {
    for (int i = 0; i < 100; ++i) {
      ++key;
      ASSERT_TRUE(world.tables[0]
                      ->Insert(test::MakeItem(key, 1, test::MakeChunk(world.store.get(), key, 0, 100)))
                      .ok());
    }
    moved += Write(writer, world).chunks_moved;
  }
  EXPECT_GT(moved, 0);
  uint64_t bytes = 0;
  for (const std::string& file : *fs_.ListDir(std::string(kRoot) + "/segments")) {
    bytes += *fs_.FileSize(std::string(kRoot) + "/segments/" + file);
  }
  EXPECT_LT(bytes, 1'000 * (100 * 8 + 200) * 2);
  ExpectComesBack(world, options);
}

TEST_F(CheckpointTest, OnlyOurOwnOldCheckpointsAreRemoved) {
  World world = World::Make();
  RandomOperations operations(test::Seed(), world.store);
  ASSERT_TRUE(fs_.CreateDir(std::string(kRoot) + "/zzz", FileSystem::Parents::kCreateMissing).ok());
  ASSERT_TRUE(fs_.WriteAll(std::string(kRoot) + "/segments.txt", "mine").ok());
  const std::string foreign = std::string(kRoot) + "/2020-07-14T10:29:53.5-07:00";
  ASSERT_TRUE(fs_.CreateDir(foreign, FileSystem::Parents::kCreateMissing).ok());
  ASSERT_TRUE(fs_.WriteAll(foreign + "/DONE", "").ok());
  CheckpointWriter writer(&fs_, {.root = kRoot});
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 50; ++i) operations.Do(world.tables);
    Write(writer, world);
  }
  EXPECT_EQ(Checkpoints().size(), 2);
  EXPECT_TRUE(*fs_.FileExists(std::string(kRoot) + "/zzz"));
  EXPECT_TRUE(*fs_.FileExists(std::string(kRoot) + "/segments.txt"));
  EXPECT_TRUE(*fs_.FileExists(foreign + "/DONE"));
}

TEST_F(CheckpointTest, TheNewestIsFoundAlthoughTheClockWentBack) {
  World world = World::Make();
  RandomOperations operations(test::Seed(), world.store);
  CheckpointWriter writer(&fs_, {.root = kRoot, .keep_latest = 3});
  Write(writer, world);
  now_ -= 3'600'000'000'000;
  for (int i = 0; i < 50; ++i) operations.Do(world.tables);
  Write(writer, world);
  CheckpointWriter other(&fs_, {.root = kRoot, .keep_latest = 3});
  for (int i = 0; i < 50; ++i) operations.Do(world.tables);
  Write(other, world);
  ExpectComesBack(world);
}

TEST_F(CheckpointTest, WriterSessionsAreRestored) {
  writers_ = {{.id = {1, 2, 3}, .applied_through = 77, .applied = {{"per", 80}, {"heap", 79}}},
              {.id = {9}, .applied_through = 1}};
  World world = World::Make();
  CheckpointWriter writer(&fs_, {.root = kRoot});
  Write(writer, world);
  World copy;
  const Result<LoadedServer> loaded = Load(&copy);
  ASSERT_TRUE(loaded.ok());
  ASSERT_EQ(loaded->writers.size(), 2);
  EXPECT_EQ(loaded->writers[0].id, writers_[0].id);
  EXPECT_EQ(loaded->writers[0].applied_through, 77);
  EXPECT_EQ(loaded->writers[0].applied, writers_[0].applied);
  EXPECT_EQ(loaded->writers[1].applied_through, 1);
}

TEST_F(CheckpointTest, ExtensionsAreRestored) {
  const auto options = [](std::shared_ptr<StatisticsExtension> statistics) {
    TableOptions table{.name = "t"};
    table.extensions = {statistics, MakePriorityDiffusion({.decay = 0.5, .radius = 2}).value()};
    return std::vector<TableOptions>{table};
  };
  const auto statistics = MakeStatistics();
  World world = World::Make(options(statistics));
  for (uint64_t key = 1; key <= 9; ++key) {
    ASSERT_TRUE(world.tables[0]
                    ->Insert(test::MakeItem(
                        key, 1, test::MakeChunk(world.store.get(), 1, static_cast<int64_t>(key), 1)))
                    .ok());
  }
  CheckpointWriter writer(&fs_, {.root = kRoot});
  Write(writer, world);
  const auto restored = MakeStatistics();
  World copy;
  ASSERT_TRUE(Load(&copy, options(restored)).ok());
  EXPECT_EQ(restored->Get(), statistics->Get());
  // The diffusion extension still knows the neighbours of each item.
  const KeyPriority update{5, 8};
  ASSERT_TRUE(world.tables[0]->Mutate({&update, 1}, {}).ok());
  ASSERT_TRUE(copy.tables[0]->Mutate({&update, 1}, {}).ok());
  EXPECT_EQ(copy.tables[0]->Find(4)->priority, 4);
  EXPECT_EQ(copy.Text(), world.Text());
}

TEST(CheckpointLockTest, TheErrorNamesTheHolderOfTheLock) {
  std::string root = ::testing::TempDir() + "/reverb_lock_XXXXXX";
  ASSERT_NE(::mkdtemp(root.data()), nullptr);
  FileSystem* const fs = PosixFileSystem();
  const World world = World::Make();
  CheckpointWriter writer(fs, {.root = root, .lock_timeout = Duration(0)});
  const auto write = [&] {
    return writer.Write(ConcurrentTable::TakeSnapshot(world.tables), {}, 1).status();
  };
  ASSERT_OK(write());
  const std::string path = root + "/segments/LOCK";
  {
    const auto lock = fs->LockFile(path, Duration(0));
    ASSERT_OK(lock);
    EXPECT_THAT(write(), StatusIs(StatusCode::kAborted,
                                  AllOf(HasSubstr(path), HasSubstr("process " + std::to_string(::getpid())),
                                        HasSubstr("a path of its own"))));
  }
  EXPECT_OK(write());
  std::filesystem::remove_all(root);
}

// --- Saved and given settings ---

class LogLines {
 public:
  LogLines() {
    SetLogSink([this](LogLevel, std::string_view line) {
      MutexLock lock(&mu_);
      lines_.emplace_back(line);
    });
  }
  ~LogLines() { SetLogSink({}); }
  size_t Count(std::string_view part) {
    MutexLock lock(&mu_);
    return static_cast<size_t>(std::ranges::count_if(
        lines_, [&](const std::string& line) { return line.find(part) != std::string::npos; }));
  }
  size_t size() {
    MutexLock lock(&mu_);
    return lines_.size();
  }

 private:
  Mutex mu_;
  std::vector<std::string> lines_ GUARDED_BY(mu_);
};

class RestoreTest : public CheckpointTest {
 protected:
  void SetUp() override {
    for (uint64_t key = 1; key <= 10; ++key) {
      ASSERT_TRUE(world_.tables[0]
                      ->Insert(test::MakeItem(key, static_cast<double>(key),
                                              test::MakeChunk(world_.store.get(), key, 0, 1)))
                      .ok());
    }
    std::vector<internal::Sample> samples;
    ASSERT_TRUE(world_.tables[0]->Sample(4, false, {}, &samples).ok());
    CheckpointWriter writer(&fs_, {.root = kRoot});
    Write(writer, world_);
  }

  const TableOptions saved_{.name = "t",
                            .sampler = SelectorOptions::Uniform(1),
                            .remover = SelectorOptions::Fifo(),
                            .max_size = 20,
                            .rate_limiter = RateLimiterOptions::MinSize(2)};
  World world_ = World::Make({saved_});
  TableOptions given_ = saved_;
};

TEST_F(RestoreTest, SavedSettingsWinAndDifferencesAreLogged) {
  given_.max_size = 5;
  given_.sampler = SelectorOptions::Prioritized(0.5);
  given_.rate_limiter = RateLimiterOptions::MinSize(7);
  LogLines log;
  World copy;
  ASSERT_TRUE(Load(&copy, {given_}).ok());
  EXPECT_EQ(copy.Text(), world_.Text());
  EXPECT_EQ(log.Count("max_size was saved as 20 and given as 5"), 1);
  EXPECT_EQ(log.Count("sampler was saved as uniform(seed=1) and given as prioritized(exponent=0.5)"), 1);
  EXPECT_EQ(log.Count("the rate limiter was saved as"), 1);
  EXPECT_EQ(log.Count("loaded checkpoint"), 1);
  EXPECT_EQ(log.size(), 4);
}

TEST_F(RestoreTest, GivenSettingsWinOnRequest) {
  given_.max_size = 4;
  given_.sampler = SelectorOptions::MaxHeap();
  given_.rate_limiter = RateLimiterOptions::MinSize(3);
  using Settings = RestoreOptions::Settings;
  World copy;
  ASSERT_TRUE(Load(&copy, {given_},
                   {.rate_limiter = Settings::kGiven,
                    .sizes = Settings::kGiven,
                    .selectors = Settings::kGiven,
                    .counters = RestoreOptions::Counters::kReset})
                  .ok());
  const TableInfo info = copy.tables[0]->Info();
  EXPECT_EQ(info.current_size, 4);
  EXPECT_EQ(info.max_size, 4);
  EXPECT_EQ(info.rate_limiter, given_.rate_limiter);
  EXPECT_EQ(info.counters, (RateLimiterCounters{.inserts = 10, .samples = 0, .deletes = 6}));
  std::vector<internal::Sample> samples;
  ASSERT_TRUE(copy.tables[0]->Sample(1, false, {}, &samples).ok());
  EXPECT_EQ(samples[0].key, 10);  // the oldest was evicted, the largest priority is sampled
}

TEST_F(RestoreTest, TheLayoutIsRestoredLikeTheSignature) {
  given_.layout = LayoutPolicy::kAny;
  LogLines log;
  World copy;
  ASSERT_TRUE(Load(&copy, {given_}).ok());
  EXPECT_EQ(copy.tables[0]->Info().layout, LayoutPolicy::kFirst);
  EXPECT_EQ(log.Count("layout was saved as first and given as any; the saved one is used"), 1);
  ASSERT_TRUE(Load(&copy, {given_}, {.signature = RestoreOptions::Settings::kGiven}).ok());
  EXPECT_EQ(copy.tables[0]->Info().layout, LayoutPolicy::kAny);
}

TEST_F(RestoreTest, SettingsThatACheckpointDoesNotKnowAreTheGivenOnes) {
  given_.layout = LayoutPolicy::kAny;
  given_.max_age = std::chrono::hours(1);
  given_.max_bytes = 1 << 30;
  LogLines log;
  World copy;
  const auto source = OpenCheckpoint(&fs_, Checkpoints().back()).value();
  // As from dm-reverb, or from an earlier release.
  for (SavedTable& table : const_cast<SavedServer&>(source->server()).tables)
    table.knows_layout_and_age = table.knows_max_bytes = false;
  const Result<LoadedServer> loaded = LoadFrom(*source, {given_}, {}, copy.environment());
  ASSERT_OK(loaded);
  const TableInfo info = loaded->tables[0]->Info();
  EXPECT_EQ(info.layout, LayoutPolicy::kAny);
  EXPECT_EQ(info.max_age_nanos, given_.max_age.count());
  EXPECT_EQ(info.max_bytes, given_.max_bytes);
  EXPECT_EQ(log.Count("layout"), 0);
}

TEST_F(RestoreTest, ItemsBeyondMaxBytesAreEvicted) {
  World world = World::Make({{.name = "t", .remover = SelectorOptions::Fifo(), .max_bytes = 1 << 20}});
  for (uint64_t key = 1; key <= 10; ++key) {
    ASSERT_OK(world.tables[0]->Insert(test::MakeItem(key, 1, test::MakeChunk(world.store.get(), key, 0, 1))));
  }
  const int64_t one = test::MakeChunk(world.store.get(), 0, 0, 1)->bytes();
  CheckpointWriter writer(&fs_, {.root = kRoot});
  Write(writer, world);
  TableOptions given{.name = "t", .remover = SelectorOptions::Fifo(), .max_bytes = 3 * one};
  World copy;
  ASSERT_TRUE(Load(&copy, {given}).ok());
  EXPECT_EQ(copy.tables[0]->Info().max_bytes, 1 << 20);
  EXPECT_EQ(copy.tables[0]->size(), 10);
  ASSERT_TRUE(Load(&copy, {given}, {.sizes = RestoreOptions::Settings::kGiven}).ok());
  EXPECT_EQ(copy.tables[0]->Info().max_bytes, 3 * one);
  EXPECT_EQ(copy.tables[0]->size(), 3);
}

TEST_F(RestoreTest, AQueueThatShrinksKeepsItsCapacity) {
  World world = World::Make({TableOptions::Queue("q", 10)});
  for (uint64_t key = 1; key <= 10; ++key) {
    ASSERT_OK(world.tables[0]->Insert(test::MakeItem(key, 1, test::MakeChunk(world.store.get(), key, 0, 1))));
  }
  CheckpointWriter writer(&fs_, {.root = kRoot});
  Write(writer, world);
  World copy;
  using Settings = RestoreOptions::Settings;
  ASSERT_TRUE(Load(&copy, {TableOptions::Queue("q", 4)},
                   {.rate_limiter = Settings::kGiven, .sizes = Settings::kGiven})
                  .ok());
  EXPECT_EQ(copy.tables[0]->Info().cursor, 4);
  std::vector<internal::Sample> samples;
  ASSERT_OK(copy.tables[0]->Sample(4, false, {}, &samples));
  EXPECT_TRUE(copy.tables[0]->CanInsert(4).value());
  // The same again, from a checkpoint of the smaller queue.
  Write(writer, copy);
  ExpectComesBack(copy, {TableOptions::Queue("q", 4)});
}

// --- Which tables a checkpoint has ---

TEST_F(CheckpointTest, ATableThatIsCreatedBeforeTheCutIsPartOfTheCheckpoint) {
  const TableOptions late{.name = "late"};
  World world = World::Make({{.name = "early"}});
  int calls = 0;
  const auto tables = [&] {
    // The list is read, then a client creates a table, fills it and gets its confirmation.
    const std::vector<std::shared_ptr<ConcurrentTable>> present = world.tables;
    if (++calls == 1) {
      auto created = ConcurrentTable::Create(late, world.environment()).value();
      EXPECT_OK(created->Insert(test::MakeItem(1, 1, test::MakeChunk(world.store.get(), 1, 0, 1))));
      world.tables.push_back(created);
      writers_ = {{.id = {1}, .applied_through = 1, .applied = {}}};
    }
    return present;
  };
  {
    Checkpointer checkpointer(
        {.path = kRoot},
        {.fs = &fs_, .clock = world.clock.get(), .tables = tables, .save_writers = [&] { return writers_; }},
        "", {});
    ASSERT_OK(checkpointer.Save());
  }
  World copy;
  const Result<LoadedServer> loaded = Load(&copy, {{.name = "early"}, late});
  ASSERT_OK(loaded);
  ASSERT_EQ(loaded->writers.size(), 1u);
  EXPECT_EQ(copy.tables[1]->size(), 1) << "the checkpoint says that the writer's item was inserted";
}

TEST_F(RestoreTest, CountersAreKept) {
  World copy;
  ASSERT_TRUE(Load(&copy, {given_}).ok());
  EXPECT_EQ(copy.tables[0]->Info().counters,
            (RateLimiterCounters{.inserts = 10, .samples = 4, .deletes = 0}));
}

TEST_F(RestoreTest, AnExtraTableIsAnErrorUnlessDroppedOrCreated) {
  World copy;
  EXPECT_THAT(Load(&copy, {{.name = "other"}}).status(), StatusIs(StatusCode::kInvalidArgument));
  using Extra = RestoreOptions::ExtraTables;
  ASSERT_TRUE(Load(&copy, {{.name = "other"}}, {.extra_tables = Extra::kDrop}).ok());
  ASSERT_EQ(copy.tables.size(), 1);
  EXPECT_EQ(copy.tables[0]->size(), 0);
  ASSERT_TRUE(Load(&copy, {{.name = "other"}}, {.extra_tables = Extra::kCreate}).ok());
  ASSERT_EQ(copy.tables.size(), 2);
  EXPECT_EQ(test::Describe({copy.tables[1]}), world_.Text());
}

TEST_F(RestoreTest, AMissingTableIsCreatedUnlessForbidden) {
  World copy;
  ASSERT_TRUE(Load(&copy, {given_, {.name = "new"}}).ok());
  EXPECT_EQ(copy.tables[0]->size(), 10);
  EXPECT_EQ(copy.tables[1]->size(), 0);
  EXPECT_THAT(Load(&copy, {given_, {.name = "new"}}, {.missing_tables = RestoreOptions::MissingTables::kFail})
                  .status(),
              StatusIs(StatusCode::kInvalidArgument));
}

TEST_F(RestoreTest, TheFallbackIsUsedWhenThereIsNone) {
  LogLines log;
  World copy;
  const std::string saved = Checkpoints()[0];
  Result<LoadedServer> loaded =
      LoadLatest(&fs_, {.path = "/elsewhere", .fallback_path = saved}, {given_}, copy.environment());
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  EXPECT_EQ(loaded->path, saved);
  EXPECT_TRUE(loaded->segments.empty());
  EXPECT_EQ(loaded->tables[0]->size(), 10);
  loaded = LoadLatest(&fs_, {.path = "/elsewhere", .fallback_path = "/wrong"}, {given_}, copy.environment());
  ASSERT_TRUE(loaded.ok());
  EXPECT_FALSE(loaded->path.has_value());
  EXPECT_EQ(log.Count("the fallback checkpoint \"/wrong\" is not a complete checkpoint"), 1);
}

TEST_F(RestoreTest, ItemsAreReadOneByOne) {
  const auto source = ReverbSource::Open(&fs_, Checkpoints()[0]).value();
  const auto items = source->OpenItems(0);
  for (uint64_t key = 1; key <= 10; ++key) {
    const auto item = items->Next().value();
    ASSERT_TRUE(item.has_value());
    EXPECT_EQ(item->key, key);
    EXPECT_EQ(item->priority, static_cast<double>(key));
    int64_t value = -1;
    ASSERT_TRUE(item->trajectory.Read(0, {reinterpret_cast<uint8_t*>(&value), 8}).ok());
    EXPECT_EQ(value, 0);
  }
  EXPECT_FALSE(items->Next().value().has_value());
}

}  // namespace
}  // namespace reverb::internal
