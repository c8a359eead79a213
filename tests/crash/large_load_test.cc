// Tests loading of segments that exceed the size of one read, or the range that one thread loads.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/load.h"
#include "checkpoint/source.h"
#include "crash/random_tables.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "testing/fake_file_system.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::FakeFileSystem;
using test::StatusIs;
using test::World;
using ::testing::HasSubstr;

constexpr char kRoot[] = "/data/run";

class LargeLoadTest : public ::testing::Test {
 protected:
  // Chunks below and above the size of a direct read and of a read buffer, and many small ones between.
  static constexpr uint32_t kSizes[] = {8,      400,     4'000,     16'376,    16'384,        16'392,
                                        40'000, 300'000, 1'048'568, 1'048'576, 3 * 1'048'576, 400};

  LargeLoadTest() : world_(World::Make(options_)) {
    while (bytes_ < 45'000'000) Insert();
  }

  void Insert() {
    const uint32_t rows = kSizes[next_key_ % std::size(kSizes)] / 8;
    ChunkRef chunk =
        test::MakeChunk(world_.store.get(), next_key_, 0, rows, static_cast<int64_t>(next_key_ << 32));
    Item item{.key = next_key_++,
              .priority = 1,
              .trajectory = Trajectory::Single(std::move(chunk), 0, rows).value()};
    bytes_ += rows * 8;
    ASSERT_TRUE(world_.tables[0]->Insert(std::move(item)).ok());
  }
  CheckpointWriter::Stats Write() {
    const Snapshot snapshot = ConcurrentTable::TakeSnapshot(world_.tables);
    return writer_.Write(snapshot, {}, now_ += 1'000'000'000).value();
  }
  Result<World> Load(const std::string& path, const RestoreOptions& restore = {}) {
    World copy;
    REVERB_ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointSource> source, OpenCheckpoint(&fs_, path));
    REVERB_ASSIGN_OR_RETURN(LoadedServer loaded, LoadFrom(*source, options_, restore, copy.environment()));
    copy.tables = loaded.tables;
    return copy;
  }
  // Returns whether both have the same items with the same bytes.
  void ExpectSame(const World& copy) {
    ASSERT_EQ(copy.Text(), world_.Text());
    uint64_t cursor = 0;
    const std::vector<internal::Sample> items = world_.tables[0]->Peek(world_.tables[0]->size(), &cursor);
    for (const internal::Sample& item : items) {
      const std::optional<internal::Sample> other = copy.tables[0]->Find(item.key);
      ASSERT_TRUE(other);
      const std::span<const uint8_t> mine = item.trajectory.slice(0, 0).chunk->payload();
      const std::span<const uint8_t> its = other->trajectory.slice(0, 0).chunk->payload();
      ASSERT_TRUE(std::ranges::equal(mine, its)) << "item " << item.key;
    }
  }
  std::vector<std::string> ChunkFiles() {
    std::vector<std::string> paths;
    const std::string folder = std::string(kRoot) + "/segments/";
    for (const std::string& name : *fs_.ListDir(folder)) {
      if (name.ends_with(".chunks")) paths.push_back(folder + name);
    }
    return paths;
  }
  void FlipByte(const std::string& path, uint64_t at) {
    std::vector<uint8_t> bytes(*fs_.FileSize(path));
    ASSERT_EQ((*fs_.NewRandomAccessFile(path))->Read(0, bytes).value(), bytes.size());
    bytes[at] ^= 1;
    const auto file = *fs_.NewWritableFile(path, FileSystem::OpenMode::kTruncate);
    ASSERT_OK(file->Append(std::span<const uint8_t>(bytes)));
    ASSERT_OK(file->Sync());
    ASSERT_OK(file->Close());
  }

  const std::vector<TableOptions> options_ = {
      {.name = "t", .sampler = SelectorOptions::Fifo(), .max_size = 1'000'000}};
  FakeFileSystem fs_;
  World world_;
  CheckpointWriter writer_{&fs_, {.root = kRoot}};
  uint64_t next_key_ = 1;
  uint64_t bytes_ = 0;
  int64_t now_ = 1'700'000'000'000'000'000;
};

TEST_F(LargeLoadTest, EveryByteIsRestored) {
  const std::string path = Write().path;
  ASSERT_EQ(ChunkFiles().size(), 1);  // consists of several ranges
  CheckpointProgress last;
  const Result<World> copy = Load(path, {.progress = [&](const CheckpointProgress& progress) {
                                    EXPECT_GT(progress.bytes_done, last.bytes_done);
                                    last = progress;
                                  }});
  ASSERT_TRUE(copy.ok()) << copy.status().ToString();
  ExpectSame(*copy);
  EXPECT_GT(last.bytes_total, bytes_);
  EXPECT_EQ(last.bytes_done, last.bytes_total);
}

TEST_F(LargeLoadTest, UnneededChunksAreNotLoaded) {
  Write();
  std::vector<uint64_t> deletes;
  for (uint64_t key = 3; key < next_key_; key += 3) deletes.push_back(key);
  ASSERT_OK(world_.tables[0]->Mutate({}, deletes));
  for (int i = 0; i < 5; ++i) Insert();
  const std::string path = Write().path;
  ASSERT_EQ(ChunkFiles().size(), 2);
  const Result<World> copy = Load(path);
  ASSERT_TRUE(copy.ok()) << copy.status().ToString();
  ExpectSame(*copy);
  EXPECT_EQ(copy->store->stats().live_chunks, copy->tables[0]->size());
}

TEST_F(LargeLoadTest, DamageAnywhereIsFound) {
  const std::string path = Write().path;
  const std::string file = ChunkFiles()[0];
  const uint64_t size = *fs_.FileSize(file);
  Random random(7);
  for (int i = 0; i < 12; ++i) {
    const uint64_t at = i == 0 ? 40 : i == 1 ? size - 40 : random.Below(size);
    FlipByte(file, at);
    EXPECT_THAT(Load(path).status(), StatusIs(StatusCode::kDataLoss, HasSubstr(file))) << "byte " << at;
    FlipByte(file, at);
  }
  EXPECT_TRUE(Load(path).ok());
}

}  // namespace
}  // namespace reverb::internal
