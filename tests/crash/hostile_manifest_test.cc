// Tests that a manifest cannot make the loader allocate what the files do not hold.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/format.h"
#include "checkpoint/layout.h"
#include "checkpoint/load.h"
#include "checkpoint/reverb_source.h"
#include "crash/random_tables.h"
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
using ::testing::HasSubstr;

constexpr char kRoot[] = "/data/run";

class HostileManifestTest : public ::testing::Test {
 protected:
  HostileManifestTest() {
    World world = World::Make();
    RandomOperations operations(test::Seed(), world.store);
    for (int i = 0; i < 2'000; ++i) operations.Do(world.tables);
    CheckpointWriter writer(&fs_, {.root = kRoot});
    const Snapshot snapshot = ConcurrentTable::TakeSnapshot(world.tables);
    path_ = writer.Write(snapshot, {}, 1'700'000'000'000'000'000).value().path;
    manifest_ = ReadManifest(&fs_, path_).value();
  }
  // Writes the manifest with a change, correctly sealed, and loads the checkpoint.
  Status LoadWith(const std::function<void(Manifest*)>& change) {
    Manifest manifest = ReadManifest(&fs_, path_).value();
    change(&manifest);
    const std::string file = JoinPath(path_, kManifestName);
    EXPECT_OK(fs_.RemoveFile(file));
    const std::string bytes = EncodeManifest(manifest);
    auto to = fs_.NewWritableFile(file, FileSystem::OpenMode::kTruncate).value();
    EXPECT_OK(to->Append({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}));
    EXPECT_OK(to->Close());
    World world;
    const Status status = LoadLatest(&fs_, {.path = kRoot}, SomeTables(), world.environment()).status();
    // The next change starts from the same manifest.
    EXPECT_OK(fs_.RemoveFile(file));
    const std::string before = EncodeManifest(manifest_);
    to = fs_.NewWritableFile(file, FileSystem::OpenMode::kTruncate).value();
    EXPECT_OK(to->Append({reinterpret_cast<const uint8_t*>(before.data()), before.size()}));
    EXPECT_OK(to->Close());
    return status;
  }
  // Returns the table with most items.
  static ManifestTable& Largest(Manifest* manifest) {
    return *std::ranges::max_element(manifest->tables, {},
                                     [](const ManifestTable& t) { return t.saved.size; });
  }

  FakeFileSystem fs_;
  std::string path_;
  Manifest manifest_;
};

TEST_F(HostileManifestTest, AnUnchangedManifestIsLoaded) {
  EXPECT_OK(LoadWith([](Manifest*) {}));
}

TEST_F(HostileManifestTest, MoreSlotsThanTheStateListsAreNotAllocated) {
  EXPECT_THAT(LoadWith([](Manifest* manifest) {
                // 4 G slots of 64 bytes.
                ManifestTable& table = Largest(manifest);
                manifest->slots_per_page = 1 << 16;
                for (ManifestTable& each : manifest->tables) {
                  each.pages.resize((each.saved.state.num_slots + 0xffff) >> 16);
                }
                table.pages.resize(1 << 16, table.pages[0]);
                table.saved.state.num_slots = UINT32_MAX;
              }),
              StatusIs(StatusCode::kDataLoss));
}

TEST_F(HostileManifestTest, MoreItemsThanThePagesHoldAreNotAllocated) {
  EXPECT_THAT(LoadWith([](Manifest* manifest) {
                ManifestTable& table = Largest(manifest);
                const uint64_t pages = 200'000;
                table.pages.resize(pages, table.pages[0]);
                table.saved.state.num_slots = pages * manifest->slots_per_page;
                table.saved.size = static_cast<int64_t>(table.saved.state.num_slots);
              }),
              StatusIs(StatusCode::kDataLoss, HasSubstr("more than its files hold")));
}

TEST_F(HostileManifestTest, MoreChunksThanTheFileHoldsAreNotAllocated) {
  EXPECT_THAT(LoadWith([](Manifest* manifest) {
                for (SavedSegment& segment : manifest->segments) {
                  if (segment.kind == SegmentKind::kChunks)
                    segment.count = segment.live_count = segment.file_bytes;
                }
              }),
              StatusIs(StatusCode::kDataLoss, HasSubstr("does not exist")));
  // A file that would be large enough.
  EXPECT_THAT(LoadWith([](Manifest* manifest) {
                for (SavedSegment& segment : manifest->segments) {
                  if (segment.kind != SegmentKind::kChunks) continue;
                  segment.file_bytes = uint64_t{1} << 50;
                  segment.count = segment.live_count = uint64_t{1} << 31;
                }
              }),
              StatusIs(StatusCode::kDataLoss, HasSubstr("bytes instead of 1125899906842624")));
}

}  // namespace
}  // namespace reverb::internal
