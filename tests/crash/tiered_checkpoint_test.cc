// Tests checkpoints of tables whose data is mostly in a disk tier: they have its files, instead of copies.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/checkpointer.h"
#include "checkpoint/layout.h"
#include "checkpoint/load.h"
#include "core/chunk_store.h"
#include "core/table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/column.h"
#include "testing/effort.h"
#include "testing/fake_file_system.h"
#include "testing/seed.h"
#include "testing/status_matchers.h"
#include "testing/wait.h"

namespace reverb::internal {
namespace {

using namespace std::chrono_literals;
using test::FakeFileSystem;
using test::WaitUntil;
using testing::SizeIs;

constexpr char kRoot[] = "/data/run";
constexpr uint32_t kBytes = 4000;
constexpr int64_t kNanos = 1'700'000'000'000'000'000;

std::vector<uint8_t> DataOfKey(uint64_t key) {
  std::vector<uint8_t> bytes(kBytes);
  Random random(key + 1);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.Below(256));
  return bytes;
}

TableOptions OptionsOf(const std::string& name) {
  return {.name = name,
          .sampler = SelectorOptions::Uniform(1),
          .remover = SelectorOptions::Fifo(),
          .max_size = 1000};
}

class TieredCheckpointTest : public testing::Test {
 protected:
  void Open(FileSystem* fs) {
    ChunkTier::Options options{.path = "/tier",
                               .memory_limit = 10 * kBytes,
                               .disk_limit = 4 << 20,
                               .segment_bytes = 64 << 10,
                               .write_bytes = 16 << 10,
                               .retry_interval = 1ms};
    store_ = std::make_shared<ChunkStore>(ChunkStore::Options{}, RealClock(),
                                          ChunkTier::Open(fs, options).value());
    for (const char* const name : {"a", "b"}) {
      tables_.push_back(ConcurrentTable::Create(OptionsOf(name), {.store = store_}).value());
    }
  }
  void Close() {
    tables_.clear();
    store_.reset();
  }
  void Insert(size_t table, uint64_t first, uint64_t last) {
    for (uint64_t key = first; key <= last; ++key) {
      std::vector<uint8_t> payload;
      ColumnEncoder encoder(DType::kUint8, {kBytes}, CodecPolicy::kNone);
      ChunkHeader header{.episode_id = key, .rows = 1};
      header.columns.push_back(encoder.Encode(DataOfKey(key), 1, &payload).value());
      Item item{.key = key,
                .priority = 1,
                .trajectory = Trajectory::Single(store_->Add(header, payload).value(), 0, 1).value()};
      ASSERT_OK(tables_[table]->Insert(std::move(item), {.timeout = 60s}));
      keys_.insert(key);
    }
    // The thread that moves data has stopped.
    ASSERT_TRUE(WaitUntil([&] { return store_->tier()->stats().memory_bytes <= 9 * int64_t{kBytes}; }));
  }
  CheckpointWriter::Stats Write(CheckpointWriter* writer, size_t tables = 2) {
    const std::vector<std::shared_ptr<ConcurrentTable>> shown(
        tables_.begin(), tables_.begin() + static_cast<ptrdiff_t>(tables));
    const auto stats = writer->Write(ConcurrentTable::TakeSnapshot(shown), {}, kNanos + ++writes_);
    EXPECT_OK(stats.status());
    return stats.ok() ? *stats : CheckpointWriter::Stats();
  }
  // Loads a checkpoint into memory and returns its keys, or an error. Verifies all data.
  static Result<std::set<uint64_t>> Load(FileSystem* fs, const std::string& path,
                                         const std::vector<std::string>& names = {"a", "b"}) {
    const auto store = std::make_shared<ChunkStore>(ChunkStore::Options{});
    REVERB_ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointSource> source, OpenCheckpoint(fs, path));
    std::vector<TableOptions> options;
    for (const std::string& name : names) options.push_back(OptionsOf(name));
    REVERB_ASSIGN_OR_RETURN(const LoadedServer loaded, LoadFrom(*source, options, {}, {.store = store}));
    std::set<uint64_t> keys;
    for (const auto& table : loaded.tables) {
      uint64_t cursor = 0;
      for (const Sample& item : table->Peek(10'000, &cursor)) {
        std::vector<uint8_t> bytes(kBytes);
        REVERB_RETURN_IF_ERROR(item.trajectory.Read(0, bytes));
        if (bytes != DataOfKey(item.key))
          return Status::DataLoss("wrong bytes of " + std::to_string(item.key));
        keys.insert(item.key);
      }
    }
    return keys;
  }

  FakeFileSystem fs_;
  std::shared_ptr<ChunkStore> store_;
  std::vector<std::shared_ptr<ConcurrentTable>> tables_;
  std::set<uint64_t> keys_;
  int64_t writes_ = 0;
};

TEST_F(TieredCheckpointTest, CopiesNothingOfSealedSegments) {
  Open(&fs_);
  Insert(0, 1, 200);
  CheckpointWriter writer(&fs_, {.root = kRoot});
  const CheckpointWriter::Stats stats = Write(&writer);
  EXPECT_GT(stats.segments_linked, 5u);
  EXPECT_EQ(stats.chunks_linked + stats.chunks_written, 200u);
  // What is in memory, and in the segment that is being written.
  EXPECT_LT(stats.chunks_written, 30u);
  EXPECT_LT(stats.chunk_bytes, 31 * (kBytes + 200));
  EXPECT_EQ(Load(&fs_, stats.path).value(), keys_);
  // The next one needs nothing new.
  const CheckpointWriter::Stats next = Write(&writer);
  EXPECT_EQ(next.chunks_linked + next.chunks_written, 0u);
  // The files belong to the checkpoint as well: those of the tier may go.
  Close();
  EXPECT_THAT(fs_.ListDir("/tier").value(), SizeIs(1));  // the lock
  EXPECT_EQ(Load(&fs_, next.path).value(), keys_);
}

TEST_F(TieredCheckpointTest, LaterCheckpointsUseTheSameFilesForOtherChunks) {
  Open(&fs_);
  for (uint64_t key = 1; key < 200; key += 2) {
    Insert(0, key, key);
    Insert(1, key + 1, key + 1);
  }
  CheckpointWriter writer(&fs_, {.root = kRoot});
  const CheckpointWriter::Stats first = Write(&writer, 1);
  EXPECT_GT(first.segments_linked, 5u);
  const CheckpointWriter::Stats second = Write(&writer);
  EXPECT_EQ(second.segments_linked, 0u);
  EXPECT_EQ(second.chunks_linked, 0u);
  EXPECT_LT(second.chunks_written, 30u);
  EXPECT_EQ(Load(&fs_, second.path).value(), keys_);
}

TEST_F(TieredCheckpointTest, ContinuesFromALoadedCheckpointWithLinks) {
  Open(&fs_);
  Insert(0, 1, 200);
  {
    CheckpointWriter writer(&fs_, {.root = kRoot});
    Write(&writer);
  }
  Close();
  Open(&fs_);
  Insert(0, 201, 300);
  keys_.clear();
  for (uint64_t key = 201; key <= 300; ++key) keys_.insert(key);
  // Numbers of linked segments do not affect others.
  CheckpointWriter writer(&fs_, {.root = kRoot});
  const CheckpointWriter::Stats stats = Write(&writer);
  EXPECT_EQ(Load(&fs_, stats.path).value(), keys_);
  for (const std::string& name : fs_.ListDir(std::string(kRoot) + "/segments").value()) {
    const auto segment = ParseSegmentFileName(name);
    if (!segment) continue;
    EXPECT_LT(segment->number & ~kTierSegmentBit, (segment->number & kTierSegmentBit) != 0 ? UINT64_MAX : 100)
        << name;
  }
}

TEST_F(TieredCheckpointTest, CopiesWhatCannotBeLinked) {
  FakeFileSystem other;
  Open(&other);
  Insert(0, 1, 200);
  CheckpointWriter writer(&fs_, {.root = kRoot});
  const CheckpointWriter::Stats stats = Write(&writer);
  EXPECT_EQ(stats.chunks_linked, 0u);
  EXPECT_EQ(stats.chunks_written, 200u);
  EXPECT_EQ(Load(&fs_, stats.path).value(), keys_);
  Close();
}

// Damaged data costs the items that use it: the checkpoint is written without them.
TEST_F(TieredCheckpointTest, DamagedDataDoesNotPreventCheckpoints) {
  FakeFileSystem other;  // the data is read, since it cannot be linked
  Open(&other);
  Insert(0, 1, 200);
  int damaged = 0;
  for (const std::string& name : other.ListDir("/tier").value()) {
    if (!name.ends_with(".payloads") || damaged == 2) continue;
    std::string bytes = other.ReadAll("/tier/" + name).value();
    bytes[500] ^= 1;
    ASSERT_OK(other.WriteAll("/tier/" + name, bytes));
    ++damaged;
  }
  ASSERT_EQ(damaged, 2);
  Checkpointer checkpointer({.path = kRoot}, {.fs = &fs_, .tables = [&] { return tables_; }}, "", {});
  const Result<std::string> path = checkpointer.Save();
  ASSERT_OK(path.status());
  EXPECT_EQ(tables_[0]->size(), 198);
  const std::set<uint64_t> loaded = Load(&fs_, *path).value();
  EXPECT_EQ(loaded.size(), 198u);
  EXPECT_TRUE(std::ranges::includes(keys_, loaded));
  ASSERT_OK(checkpointer.Save().status());
  EXPECT_EQ(tables_[0]->size(), 198);
  Close();
}

// Segments of which little is needed are not linked: they would keep their space.
TEST_F(TieredCheckpointTest, CopiesTheRestOfSparseSegments) {
  Open(&fs_);
  Insert(0, 1, 200);
  std::vector<uint64_t> deleted;
  for (uint64_t key = 1; key <= 200; ++key) {
    if (key % 10 != 0) deleted.push_back(key);
  }
  ASSERT_OK(tables_[0]->Mutate({}, deleted));
  CheckpointWriter writer(&fs_, {.root = kRoot});
  const CheckpointWriter::Stats stats = Write(&writer);
  EXPECT_EQ(stats.segments_linked, 0u);
  EXPECT_EQ(stats.chunks_written, 20u);
}

// Whichever operation is the last one before a power loss, there is a complete checkpoint with all its data.
TEST_F(TieredCheckpointTest, SurvivesAPowerLossAtAnyOperation) {
  const int64_t step = test::Effort(1, 3);
  for (int64_t after = 0;; after += step) {
    SCOPED_TRACE(after);
    FakeFileSystem fs;
    keys_.clear();
    Open(&fs);
    Insert(0, 1, 60);
    CheckpointWriter writer(&fs, {.root = kRoot, .keep_latest = 2});
    const std::string first = Write(&writer).path;
    const std::set<uint64_t> first_keys = keys_;
    Insert(0, 61, 120);
    fs.Inject({.kind = FakeFileSystem::Kind::kWrite, .after = after, .for_ever = true});
    const auto second = writer.Write(ConcurrentTable::TakeSnapshot(tables_), {}, kNanos + 1'000'000);
    fs.Crash(after % 2 == 0 ? FakeFileSystem::kLoseAll : test::Seed() + static_cast<uint64_t>(after));
    ASSERT_EQ(Load(&fs, first).value(), first_keys);
    const Result<std::vector<CheckpointEntry>> entries = ListCheckpoints(&fs, kRoot);
    ASSERT_OK(entries.status());
    for (const CheckpointEntry& entry : *entries) {
      if (!entry.is_complete || entry.path == first) continue;
      ASSERT_EQ(Load(&fs, entry.path).value(), keys_);
    }
    if (second.ok()) {
      ASSERT_EQ(Load(&fs, second->path).value(), keys_);
    }
    Close();
    if (second.ok()) break;
    ASSERT_LT(after, 500);
  }
}

}  // namespace
}  // namespace reverb::internal
