#include "checkpoint/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/random.h"
#include "testing/fake_file_system.h"
#include "testing/seed.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::FakeFileSystem;
using test::IsOkAndHolds;
using test::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kNanos = 1'794'759'871'123'456'789;
constexpr char kName[] = "2026-11-15T16-24-31.123456789Z";
constexpr char kOldName[] = "2026-11-15T16:24:31.123456789Z";  // of earlier releases

TEST(LayoutTest, PathsAreJoinedAndSplit) {
  EXPECT_EQ(JoinPath("a/b", "c"), "a/b/c");
  EXPECT_EQ(JoinPath("a/b/", "c"), "a/b/c");
  EXPECT_EQ(JoinPath("/", "c"), "/c");
  EXPECT_EQ(JoinPath("", "c"), "c");
  EXPECT_EQ(ParentPath("a/b"), "a");
  EXPECT_EQ(ParentPath("a/b//"), "a");
  EXPECT_EQ(ParentPath("/a"), "/");
  EXPECT_EQ(ParentPath("/"), "/");
  EXPECT_EQ(ParentPath("a"), ".");
}

TEST(LayoutTest, CheckpointNamesAreUtcTimesOfFixedWidth) {
  EXPECT_EQ(CheckpointName(kNanos), kName);
  EXPECT_EQ(CheckpointName(0), "1970-01-01T00-00-00.000000000Z");
  EXPECT_EQ(CheckpointName(951'782'400'000'000'001), "2000-02-29T00-00-00.000000001Z");
  EXPECT_EQ(ParseCheckpointName(kName), kNanos);
}

TEST(LayoutTest, CheckpointNamesOfEarlierReleasesAreOurs) {
  EXPECT_EQ(ParseCheckpointName(kOldName), kNanos);
  EXPECT_TRUE(IsOwnCheckpointName(kOldName));
  for (const char* const mixed : {"2026-11-15T16-24:31.123456789Z", "2026-11-15T16:24-31.123456789Z"}) {
    EXPECT_EQ(ParseCheckpointName(mixed), std::nullopt) << mixed;
    EXPECT_FALSE(IsOwnCheckpointName(mixed)) << mixed;
  }
}

TEST(LayoutTest, CheckpointNamesRoundTripAndSortByTime) {
  Random random(test::Seed());
  std::string last;
  int64_t last_nanos = -1;
  for (int i = 0; i < 2000; ++i) {
    const auto nanos = static_cast<int64_t>(random.Below(uint64_t{7'000'000'000} * 1'000'000'000));
    const std::string name = CheckpointName(nanos);
    ASSERT_EQ(ParseCheckpointName(name), nanos) << name;
    ASSERT_TRUE(IsOwnCheckpointName(name)) << name;
    if (last_nanos >= 0) {
      ASSERT_EQ(name < last, nanos < last_nanos) << name << " " << last;
    }
    last = name;
    last_nanos = nanos;
  }
}

TEST(LayoutTest, NamesOfDmReverbAreLocalTimesWithAnOffset) {
  for (const char* const name : {"2026-11-15T18:24:31.123456789+02:00", "2026-11-15T11:24:31.123456789-05:00",
                                 "2026-11-15T16:24:31.123456789+00:00"}) {
    EXPECT_EQ(ParseCheckpointName(name), kNanos) << name;
    EXPECT_FALSE(IsOwnCheckpointName(name)) << name;
  }
  EXPECT_EQ(ParseCheckpointName("2026-11-15T16:24:31Z"), kNanos - 123'456'789);
  EXPECT_FALSE(IsOwnCheckpointName("2026-11-15T16:24:31Z"));
}

TEST(LayoutTest, OtherNamesAreNoCheckpoints) {
  for (const char* const name :
       {"", "segments", "2026-11-15", "2026-13-15T16:24:31Z", "2026-11-32T16:24:31Z", "2026-11-15T24:24:31Z",
        "2026-11-15T16:60:31Z", "1969-11-15T16:24:31Z", "2026-11-15T16:24:31", "2026-11-15T16:24:31.Z",
        "2026-11-15T16:24:31Z.tmp", "2026-11-15T16:24:31+2:00", "2026-11-15T16:24:31+02:60",
        "2026-11-15 16:24:31Z", "x026-11-15T16:24:31Z"}) {
    EXPECT_EQ(ParseCheckpointName(name), std::nullopt) << name;
  }
}

TEST(LayoutTest, SegmentNamesRoundTrip) {
  for (const uint64_t number : {uint64_t{0}, uint64_t{7}, uint64_t{0xABCDEF}, UINT64_MAX}) {
    for (const SegmentKind kind : {SegmentKind::kChunks, SegmentKind::kPages}) {
      const auto parsed = ParseSegmentFileName(SegmentFileName(number, kind));
      ASSERT_TRUE(parsed.has_value());
      EXPECT_EQ(parsed->number, number);
      EXPECT_EQ(parsed->kind, kind);
    }
  }
  EXPECT_EQ(SegmentFileName(0x1F, SegmentKind::kPages), "000000000000001f.pages");
  EXPECT_EQ(SegmentPath("/data/" + std::string(kName), 7, SegmentKind::kChunks),
            "/data/segments/0000000000000007.chunks");
  for (const char* const name : {"", "LOCK", "7.chunks", "000000000000001F.pages", "000000000000001f.page",
                                 "0000000000000001f.pages", "000000000000001g.pages", ".chunks"}) {
    EXPECT_FALSE(ParseSegmentFileName(name).has_value()) << name;
  }
}

TEST(LayoutTest, ListsCheckpointsOldestFirst) {
  FakeFileSystem fs;
  EXPECT_THAT(ListCheckpoints(&fs, "/data"), StatusIs(StatusCode::kNotFound));
  const auto add = [&](const std::string& name, const std::string& file) {
    const std::string path = JoinPath("/data", name);
    ASSERT_OK(fs.CreateDir(path, FileSystem::Parents::kCreateMissing));
    if (!file.empty()) {
      ASSERT_OK(fs.WriteAll(JoinPath(path, file), "x"));
    }
  };
  add(kOldName, kManifestName);
  add(CheckpointName(kNanos + 1), "");                       // incomplete
  add("2026-11-15T10:24:31.000000000-05:00", "DONE");        // of dm-reverb, an hour before
  add("2026-11-15T18:24:31.500000000+02:00", "tables.txt");  // of dm-reverb, incomplete
  add("segments", "");
  const Result<std::vector<CheckpointEntry>> entries = ListCheckpoints(&fs, "/data");
  ASSERT_OK(entries);
  std::vector<std::string> texts;
  for (const CheckpointEntry& entry : *entries) {
    texts.push_back(entry.path.substr(6) + (entry.is_complete ? " complete" : "") +
                    (entry.is_foreign ? " foreign" : ""));
  }
  EXPECT_THAT(texts, ElementsAre("2026-11-15T10:24:31.000000000-05:00 complete foreign",
                                 "2026-11-15T16:24:31.123456789Z complete", "2026-11-15T16-24-31.123456790Z",
                                 "2026-11-15T18:24:31.500000000+02:00 foreign"));
}

TEST(LayoutTest, ADurableDirectorySurvivesAPowerLoss) {
  FakeFileSystem fs;
  ASSERT_OK(fs.CreateDir("/lost/a", FileSystem::Parents::kCreateMissing));
  ASSERT_OK(CreateDurableDir(&fs, "/kept/a/b"));
  ASSERT_OK(CreateDurableDir(&fs, "/kept/a/b"));  // again
  fs.Crash(FakeFileSystem::kLoseAll);
  EXPECT_THAT(fs.FileExists("/lost/a"), IsOkAndHolds(false));
  EXPECT_THAT(fs.FileExists("/kept/a/b"), IsOkAndHolds(true));
}

TEST(LayoutTest, AFileBeyondTheLimitIsNotRead) {
  FakeFileSystem fs;
  ASSERT_OK(fs.WriteAll("/file", "0123456789"));
  EXPECT_THAT(ReadWholeFile(&fs, "/file", 10), IsOkAndHolds("0123456789"));
  EXPECT_THAT(ReadWholeFile(&fs, "/file", 9), StatusIs(StatusCode::kDataLoss, HasSubstr("at most 9")));
  EXPECT_THAT(ReadWholeFile(&fs, "/none", 9), StatusIs(StatusCode::kNotFound));
}

}  // namespace
}  // namespace reverb::internal
