#include "testing/fake_file_system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "testing/seed.h"
#include "testing/status_matchers.h"

namespace reverb::test {
namespace {

using testing::AnyOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Kind = FakeFileSystem::Kind;
using OpenMode = internal::FileSystem::OpenMode;
using Parents = internal::FileSystem::Parents;
using WritableFile = internal::WritableFile;
constexpr uint64_t kLoseAll = FakeFileSystem::kLoseAll;

std::unique_ptr<WritableFile> Open(FakeFileSystem& fs, const std::string& path,
                                   OpenMode mode = OpenMode::kTruncate) {
  auto file = fs.NewWritableFile(path, mode);
  EXPECT_OK(file);
  return file.ok() ? *std::move(file) : nullptr;
}

void Write(FakeFileSystem& fs, const std::string& path, std::string_view bytes) {
  auto file = Open(fs, path);
  EXPECT_OK(file->Append(bytes));
  EXPECT_OK(file->Close());
}

TEST(FakeFileSystemTest, BehavesLikeFilesWhileThePowerIsOn) {
  FakeFileSystem fs;
  ASSERT_OK(fs.CreateDir("/a/b", Parents::kCreateMissing));
  EXPECT_THAT(fs.CreateDir("/a", Parents::kMustExist), StatusIs(StatusCode::kAlreadyExists));
  EXPECT_THAT(fs.CreateDir("/x/y", Parents::kMustExist), StatusIs(StatusCode::kNotFound));
  Write(fs, "/a/b/f", "hello");
  EXPECT_THAT(fs.ReadAll("a//b/./f"), IsOkAndHolds("hello"));
  EXPECT_THAT(fs.FileSize("/a/b/f"), IsOkAndHolds(5u));
  EXPECT_THAT(fs.ListDir("/a"), IsOkAndHolds(ElementsAre("b")));
  EXPECT_THAT(fs.RemoveDir("/a"), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(fs.Rename("/a", "/a/b/c"), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(fs.Rename("/a/b/f", "/a/b"), StatusIs(StatusCode::kFailedPrecondition));
  ASSERT_OK(fs.Rename("/a/b/f", "/a/g"));
  EXPECT_THAT(fs.FileExists("/a/b/f"), IsOkAndHolds(false));
  EXPECT_THAT(fs.FileExists("/a/g"), IsOkAndHolds(true));
  EXPECT_THAT(fs.FileExists("/a/g/h"), IsOkAndHolds(false));
  EXPECT_THAT(fs.RemoveFile("/a/none"), StatusIs(StatusCode::kNotFound, HasSubstr("/a/none")));
  EXPECT_THAT(fs.RemoveFile("/a/b"), StatusIs(StatusCode::kFailedPrecondition));
  ASSERT_OK(fs.RemoveDir("/a/b"));
  ASSERT_OK(fs.RemoveFile("/a/g"));
  EXPECT_THAT(fs.ListDir("/a"), IsOkAndHolds(IsEmpty()));
}

TEST(FakeFileSystemTest, ReadersSeeWhatWasFlushed) {
  FakeFileSystem fs;
  auto file = Open(fs, "/f");
  ASSERT_OK(file->Append("0123"));
  EXPECT_THAT(fs.ReadAll("/f"), IsOkAndHolds(""));
  ASSERT_OK(file->Flush());
  auto reader = fs.NewRandomAccessFile("/f");
  ASSERT_OK(reader);
  uint8_t out[3] = {};
  EXPECT_THAT((*reader)->Read(2, out), IsOkAndHolds(2u));
  EXPECT_EQ(out[1], '3');
  EXPECT_THAT((*reader)->Read(9, out), IsOkAndHolds(0u));
  ASSERT_OK(file->Append("45"));
  file.reset();
  EXPECT_THAT(fs.ReadAll("/f"), IsOkAndHolds("0123")) << "dropped without Close()";
  auto appender = Open(fs, "/f", OpenMode::kAppend);
  ASSERT_OK(appender->Append("x"));
  ASSERT_OK(appender->Close());
  EXPECT_THAT(appender->Close(), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(fs.ReadAll("/f"), IsOkAndHolds("0123x"));
  const auto mapped = fs.MapFile("/f");
  ASSERT_OK(mapped);
  EXPECT_EQ(mapped->size(), 5u);
}

TEST(FakeFileSystemTest, ACrashLosesANameThatWasNotSynced) {
  FakeFileSystem fs;
  auto file = Open(fs, "/f");
  ASSERT_OK(file->Append("bytes"));
  ASSERT_OK(file->Sync());
  EXPECT_THAT(fs.AfterCrash(kLoseAll)->FileExists("/f"), IsOkAndHolds(false));
  ASSERT_OK(fs.SyncDir("/"));
  EXPECT_THAT(fs.AfterCrash(kLoseAll)->ReadAll("/f"), IsOkAndHolds("bytes"));
}

TEST(FakeFileSystemTest, ACrashLosesBytesThatWereNotSynced) {
  FakeFileSystem fs;
  auto file = Open(fs, "/f");
  ASSERT_OK(fs.SyncDir("/"));
  ASSERT_OK(file->Append("kept"));
  ASSERT_OK(file->Sync());
  ASSERT_OK(file->Append("lost"));
  ASSERT_OK(file->Close());
  EXPECT_THAT(fs.ReadAll("/f"), IsOkAndHolds("keptlost"));
  fs.Crash(kLoseAll);
  EXPECT_THAT(fs.ReadAll("/f"), IsOkAndHolds("kept"));
}

TEST(FakeFileSystemTest, ACrashMayUndoATruncationThatWasNotSynced) {
  FakeFileSystem fs;
  ASSERT_OK(fs.WriteAll("/f", "old"));
  auto file = Open(fs, "/f", OpenMode::kTruncate);
  EXPECT_THAT(fs.ReadAll("/f"), IsOkAndHolds(""));
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 100; ++seed) seen.insert(*fs.AfterCrash(seed)->ReadAll("/f"));
  EXPECT_EQ(seen, (std::set<std::string>{"", "old"}));
  ASSERT_OK(file->Sync());
  EXPECT_THAT(fs.AfterCrash(kLoseAll)->ReadAll("/f"), IsOkAndHolds(""));
}

TEST(FakeFileSystemTest, ASyncedFileInAnUnsyncedDirectoryIsLostWithIt) {
  FakeFileSystem fs;
  ASSERT_OK(fs.CreateDir("/d", Parents::kMustExist));
  auto file = Open(fs, "/d/f");
  ASSERT_OK(file->Append("x"));
  ASSERT_OK(file->Sync());
  ASSERT_OK(fs.SyncDir("/d"));
  EXPECT_THAT(fs.AfterCrash(kLoseAll)->ListDir("/"), IsOkAndHolds(IsEmpty()));
  ASSERT_OK(fs.SyncDir("/"));
  EXPECT_THAT(fs.AfterCrash(kLoseAll)->ReadAll("/d/f"), IsOkAndHolds("x"));
}

TEST(FakeFileSystemTest, FilesOpenedBeforeACrashAreDead) {
  FakeFileSystem fs;
  ASSERT_OK(fs.WriteAll("/f", "x"));
  auto writer = Open(fs, "/f", OpenMode::kAppend);
  auto reader = fs.NewRandomAccessFile("/f");
  ASSERT_OK(reader);
  fs.Crash(kLoseAll);
  EXPECT_THAT(writer->Append("y"), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("power")));
  EXPECT_THAT(writer->Sync(), StatusIs(StatusCode::kFailedPrecondition));
  uint8_t out[1];
  EXPECT_THAT((*reader)->Read(0, out), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(fs.ReadAll("/f"), IsOkAndHolds("x"));
}

TEST(FakeFileSystemTest, ATornWriteLeavesAFirstPartOrZeros) {
  FakeFileSystem fs;
  ASSERT_OK(fs.WriteAll("/f", "kept"));
  auto file = Open(fs, "/f", OpenMode::kAppend);
  ASSERT_OK(file->Append("AAAA"));
  ASSERT_OK(file->Flush());
  ASSERT_OK(file->Append("BBBB"));
  ASSERT_OK(file->Flush());
  const std::string all = "keptAAAABBBB";
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const std::string content = *fs.AfterCrash(seed)->ReadAll("/f");
    seen.insert(content);
    ASSERT_LE(content.size(), all.size());
    // A prefix of what was written, then only zeros up to the end of that write.
    const size_t same = std::mismatch(content.begin(), content.end(), all.begin()).first - content.begin();
    ASSERT_GE(same, 4u);
    ASSERT_EQ(content.find_first_not_of('\0', same), std::string::npos) << content;
    if (same < content.size()) {
      ASSERT_EQ(content.size() % 4, 0u);
    }
  }
  for (const std::string& expected : {std::string("kept"), std::string("keptAA"), std::string("keptAAAA"),
                                      std::string("keptAAAABBB"), all, std::string("keptA\0\0\0", 8)}) {
    EXPECT_THAT(seen, Contains(expected));
  }
}

TEST(FakeFileSystemTest, ARenameThatWasNotSyncedSurvivesOrNotAsAWhole) {
  FakeFileSystem fs;
  ASSERT_OK(fs.WriteAll("/current", "old"));
  ASSERT_OK(fs.WriteAll("/next", "new"));
  ASSERT_OK(fs.Rename("/next", "/current"));
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    auto after = fs.AfterCrash(seed);
    const std::string current = *after->ReadAll("/current");
    EXPECT_THAT(after->FileExists("/next"), IsOkAndHolds(current == "old"));
    seen.insert(current);
  }
  EXPECT_EQ(seen, (std::set<std::string>{"old", "new"}));
  ASSERT_OK(fs.SyncDir("/"));
  EXPECT_THAT(fs.AfterCrash(kLoseAll)->ReadAll("/current"), IsOkAndHolds("new"));
}

TEST(FakeFileSystemTest, ALaterRenameMaySurviveAnEarlierOne) {
  FakeFileSystem fs;
  ASSERT_OK(fs.WriteAll("/a", "a"));
  ASSERT_OK(fs.WriteAll("/b", "b"));
  ASSERT_OK(fs.Rename("/a", "/a2"));
  ASSERT_OK(fs.Rename("/b", "/b2"));
  std::set<std::vector<std::string>> seen;
  for (uint64_t seed = 0; seed < 200; ++seed) seen.insert(*fs.AfterCrash(seed)->ListDir("/"));
  EXPECT_EQ(seen, (std::set<std::vector<std::string>>{{"a", "b"}, {"a2", "b"}, {"a", "b2"}, {"a2", "b2"}}));
}

TEST(FakeFileSystemTest, ARenameBetweenDirectoriesIsDurableInBothAtOnce) {
  FakeFileSystem fs;
  ASSERT_OK(fs.CreateDir("/a", Parents::kMustExist));
  ASSERT_OK(fs.CreateDir("/b", Parents::kMustExist));
  ASSERT_OK(fs.SyncDir("/"));
  auto file = Open(fs, "/a/f");
  ASSERT_OK(file->Sync());
  ASSERT_OK(fs.Rename("/a/f", "/b/f"));
  ASSERT_OK(fs.SyncDir("/b"));
  for (uint64_t seed = 0; seed < 50; ++seed) {
    auto after = fs.AfterCrash(seed);
    EXPECT_THAT(after->ListDir("/a"), IsOkAndHolds(IsEmpty()));
    EXPECT_THAT(after->ListDir("/b"), IsOkAndHolds(ElementsAre("f")));
  }
}

TEST(FakeFileSystemTest, ARemovalThatWasNotSyncedMayBeUndone) {
  FakeFileSystem fs;
  ASSERT_OK(fs.WriteAll("/f", "x"));
  ASSERT_OK(fs.RemoveFile("/f"));
  EXPECT_THAT(fs.AfterCrash(kLoseAll)->ReadAll("/f"), IsOkAndHolds("x"));
  ASSERT_OK(fs.SyncDir("/"));
  EXPECT_THAT(fs.AfterCrash(kLoseAll)->ListDir("/"), IsOkAndHolds(IsEmpty()));
}

TEST(FakeFileSystemTest, TheSameSeedGivesTheSameCrash) {
  const uint64_t first_seed = Seed();
  SCOPED_TRACE(SeedTrace(first_seed));
  FakeFileSystem fs;
  for (int i = 0; i < 10; ++i)
    Write(fs, "/f" + std::to_string(i), std::string(20, static_cast<char>('a' + i)));
  const auto contents = [](FakeFileSystem& after) {
    std::map<std::string, std::string> files;
    const std::vector<std::string> names = *after.ListDir("/");
    for (const std::string& name : names) files[name] = *after.ReadAll("/" + name);
    return files;
  };
  std::set<std::map<std::string, std::string>> different;
  for (uint64_t seed = first_seed; seed < first_seed + 20; ++seed) {
    const auto once = contents(*fs.AfterCrash(seed));
    EXPECT_EQ(once, contents(*fs.AfterCrash(seed)));
    different.insert(once);
  }
  EXPECT_GT(different.size(), 5u);
  const auto expected = contents(*fs.AfterCrash(first_seed));
  fs.Crash(first_seed);
  EXPECT_EQ(contents(fs), expected);
  fs.Crash(first_seed + 1);
  EXPECT_EQ(contents(fs), expected) << "what a crash left is durable";
}

TEST(FakeFileSystemTest, TheNthOperationFailsOnRequest) {
  FakeFileSystem fs;
  fs.Inject({.kind = Kind::kWrite, .after = 2, .for_ever = false, .error = ENOSPC});
  auto file = Open(fs, "/f");                            // 0
  EXPECT_THAT(fs.FileExists("/f"), IsOkAndHolds(true));  // not counted: a read
  ASSERT_OK(file->Append("0123"));                       // 1
  const Status failed = file->Flush();                   // 2
  EXPECT_THAT(failed, StatusIs(StatusCode::kFailedPrecondition, HasSubstr("/f")));
  EXPECT_EQ(file->Sync(), failed) << "the file stays failed";
  EXPECT_THAT(fs.ReadAll("/f"), IsOkAndHolds("01")) << "half was written";
  ASSERT_OK(fs.Rename("/f", "/g")) << "the fault was for once";
  EXPECT_EQ(fs.num_operations(Kind::kWrite), 5);
  EXPECT_EQ(fs.num_operations(Kind::kRead), 1);
  EXPECT_EQ(fs.num_operations(Kind::kAny), 6);
}

TEST(FakeFileSystemTest, AFaultMayLastUntilCleared) {
  FakeFileSystem fs;
  ASSERT_OK(fs.WriteAll("/f", "x"));
  fs.Inject({.kind = Kind::kAny, .after = 1, .for_ever = true, .error = EIO});
  EXPECT_OK(fs.FileSize("/f"));
  EXPECT_THAT(fs.FileSize("/f"), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(fs.Rename("/f", "/g"), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(fs.SyncDir("/"), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(fs.ReadAll("/f"), IsOkAndHolds("x"));
  fs.ClearFault();
  EXPECT_OK(fs.Rename("/f", "/g"));
}

TEST(FakeFileSystemTest, AFullDiskAcceptsWhatFits) {
  FakeFileSystem fs;
  fs.set_capacity(6);
  Write(fs, "/f", "0123");
  EXPECT_THAT(fs.GetFreeSpace("/"), IsOkAndHolds(2u));
  auto file = Open(fs, "/g");
  ASSERT_OK(file->Append("4567"));
  EXPECT_THAT(file->Close(), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(fs.ReadAll("/g"), IsOkAndHolds("45"));
  ASSERT_OK(fs.RemoveFile("/g"));
  EXPECT_THAT(fs.GetFreeSpace("/"), IsOkAndHolds(2u));
}

// Replaces a file safely, with one step left out on request.
Status Publish(FakeFileSystem& fs, std::string_view bytes, const std::string& leave_out) {
  REVERB_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file,
                          fs.NewWritableFile("/tmp", OpenMode::kTruncate));
  REVERB_RETURN_IF_ERROR(file->Append(bytes));
  if (leave_out != "sync") REVERB_RETURN_IF_ERROR(file->Sync());
  REVERB_RETURN_IF_ERROR(file->Close());
  REVERB_RETURN_IF_ERROR(fs.Rename("/tmp", "/current"));
  return leave_out == "sync dir" ? Status::Ok() : fs.SyncDir("/");
}

TEST(FakeFileSystemTest, DetectsAMissingStepInAReplacement) {
  // Whichever operation fails and whenever the power is lost: the old or the new content, and the new one
  // after OK.
  for (int64_t cut = 0;; ++cut) {
    FakeFileSystem fs;
    ASSERT_OK(fs.WriteAll("/current", "old"));
    fs.Inject({.kind = Kind::kWrite, .after = cut, .for_ever = true, .error = EIO});
    const bool published = Publish(fs, "new", "").ok();
    for (uint64_t seed = 0; seed < 40; ++seed) {
      const auto content = fs.AfterCrash(seed)->ReadAll("/current");
      ASSERT_THAT(content, IsOkAndHolds(AnyOf("old", "new"))) << cut << " " << seed;
      if (published) {
        ASSERT_THAT(content, IsOkAndHolds("new"));
      }
    }
    if (published) break;
    ASSERT_LT(cut, 20);
  }
  for (const char* const leave_out : {"sync", "sync dir"}) {
    FakeFileSystem fs;
    ASSERT_OK(fs.WriteAll("/current", "old"));
    ASSERT_OK(Publish(fs, "new", leave_out));
    int wrong = 0;
    for (uint64_t seed = 0; seed < 40; ++seed) wrong += *fs.AfterCrash(seed)->ReadAll("/current") != "new";
    EXPECT_GT(wrong, 0) << leave_out;
  }
}

}  // namespace
}  // namespace reverb::test
