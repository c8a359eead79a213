// Tests that a copy of a checkpoint is complete, or does not exist, whatever fails.
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/copy.h"
#include "checkpoint/layout.h"
#include "checkpoint/load.h"
#include "crash/random_tables.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "testing/fake_file_system.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::FakeFileSystem;
using test::SomeTables;
using test::StatusIs;
using test::World;
using ::testing::ElementsAre;

constexpr char kCopiedRoot[] = "/data/run";
constexpr char kCopy[] = "/backup/monday";

class CopyTest : public ::testing::Test {
 protected:
  CopyTest() : world_(World::Make()) {
    test::RandomOperations operations(7, world_.store);
    for (int i = 0; i < 300; ++i) operations.Do(world_.tables);
    CheckpointWriter writer(&fs_, {.root = kCopiedRoot});
    const Snapshot snapshot = ConcurrentTable::TakeSnapshot(world_.tables);
    path_ = writer.Write(snapshot, {}, 1'700'000'000'000'000'000)->path;
    EXPECT_OK(fs_.CreateDir("/backup", FileSystem::Parents::kCreateMissing));
  }
  static Result<std::string> Copy(FileSystem* fs, const std::string& path) {
    return CopyCheckpointFiles(fs, path, kCopy, [](const std::string&) { return Status::Ok(); }, {});
  }
  // Checks that the copy holds the tables, without the original.
  void ExpectGood(FakeFileSystem* fs) {
    World copy;
    const Result<LoadedServer> loaded = LoadLatest(fs, {.path = kCopy}, SomeTables(), copy.environment());
    ASSERT_OK(loaded);
    copy.tables = loaded->tables;
    EXPECT_EQ(copy.Text(), world_.Text());
  }

  FakeFileSystem fs_;
  World world_;
  std::string path_;
};

TEST_F(CopyTest, ACopySurvivesAPowerLoss) {
  const Result<std::string> copied = Copy(&fs_, path_);
  ASSERT_OK(copied);
  EXPECT_EQ(*copied, JoinPath(kCopy, CheckpointName(1'700'000'000'000'000'000)));
  EXPECT_THAT(*fs_.ListDir("/backup"), ElementsAre("monday"));
  fs_.Crash(FakeFileSystem::kLoseAll);
  ExpectGood(&fs_);
}

TEST_F(CopyTest, AnExistingFolderIsRefused) {
  ASSERT_OK(fs_.CreateDir(kCopy, FileSystem::Parents::kCreateMissing));
  EXPECT_THAT(Copy(&fs_, path_).status(), StatusIs(StatusCode::kAlreadyExists));
  EXPECT_TRUE(fs_.ListDir(kCopy)->empty());
}

TEST_F(CopyTest, ACopyThatIsNotGoodDoesNotAppear) {
  const auto refuse = [](const std::string&) { return Status::DataLoss("not good"); };
  EXPECT_THAT(CopyCheckpointFiles(&fs_, path_, kCopy, refuse, {}).status(), StatusIs(StatusCode::kDataLoss));
  EXPECT_TRUE(fs_.ListDir("/backup")->empty());
}

TEST_F(CopyTest, AFailureLeavesNothing) {
  for (int64_t after = 0;; ++after) {
    ASSERT_LT(after, 1000);
    fs_.Inject({.kind = FakeFileSystem::Kind::kAny, .after = after});
    const Result<std::string> copied = Copy(&fs_, path_);
    fs_.ClearFault();
    const Result<bool> exists = fs_.FileExists(kCopy);
    ASSERT_OK(exists);
    if (copied.ok()) break;
    EXPECT_FALSE(*exists) << "after " << after << " operations";
    EXPECT_TRUE(fs_.ListDir("/backup")->empty()) << "after " << after << " operations";
  }
  ExpectGood(&fs_);
}

}  // namespace
}  // namespace reverb::internal
