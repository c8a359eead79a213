// Tests files that are not, or no longer, a valid dm-reverb checkpoint: a clear error, never a crash, and
// never part of the items.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/source.h"
#include "core/chunk_store.h"
#include "dm_reverb/dm_reverb_files.h"
#include "testing/fake_file_system.h"
#include "testing/status_matchers.h"

namespace reverb::test {
namespace {

using internal::CheckpointSource;
using internal::ChunkStore;
using internal::SavedItem;
using ::testing::HasSubstr;

constexpr char kPath[] = "/data/one";
constexpr const char* kFiles[] = {"tables.tfrecord", "items.tfrecord", "chunks.tfrecord"};

// Opens and reads a checkpoint; returns the number of items.
Result<size_t> Load(FakeFileSystem* fs, size_t* added = nullptr) {
  REVERB_ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointSource> source,
                          internal::OpenDmReverbCheckpoint(fs, kPath));
  ChunkStore store({});
  size_t count = 0;
  const Status status =
      source->Read(store, {.tables = std::vector<bool>(source->server().tables.size(), true)},
                   {.add_item =
                        [&](size_t, SavedItem item) {
                          // Every returned item must be readable.
                          for (uint32_t column = 0; column < item.trajectory.num_columns(); ++column) {
                            const internal::ColumnView view = item.trajectory.column_view(column);
                            if (view.dtype == DType::kString) {
                              std::vector<std::string> strings;
                              EXPECT_OK(item.trajectory.ReadStrings(column, &strings));
                            } else {
                              std::vector<uint8_t> bytes(static_cast<size_t>(item.trajectory.length(column)) *
                                                         view.row_bytes());
                              EXPECT_OK(item.trajectory.Read(column, bytes));
                            }
                          }
                          ++count;
                          return Status::Ok();
                        }},
                   {});
  if (added != nullptr) *added = count;
  REVERB_RETURN_IF_ERROR(status);
  return count;
}

// Returns two tables, three items and three chunks that use all features: delta, strings, squeezing,
// signatures.
CheckpointFiles SmallCheckpoint() {
  const Message spec = Message().Add(
      33, Message().Bytes(1, "x").Add(2, ShapeOf({-1, 2})).Int(3, static_cast<int64_t>(DType::kInt32)));
  CheckpointFiles files;
  files.tables = {
      Message(TableOf("a", LimiterOf(3, 5, 1))).Add(9, Message().Add(51, Message().Add(1, spec))).bytes(),
      TableOf("b", LimiterOf(1)).bytes()};
  files.items = {ItemOf(1, "a", 1, 0, 100,
                        {{.slices = {{10, 0, 2}, {11, 0, 1}}}, {.slices = {{12, 0, 1}}, .squeeze = true}})
                     .bytes(),
                 ItemOf(2, "a", 2, 1, 101, {{.slices = {{10, 1, 1}}}}).bytes(),
                 ItemOf(3, "b", 0.5, 0, 102, {{.slices = {{12, 0, 2}}}}).bytes()};
  files.chunks = {
      ChunkOf(10, RangeOf(1, 0, 1), {TensorOf<int32_t>(DType::kInt32, {2, 2}, {1, 2, 3, 4})}, true).bytes(),
      ChunkOf(11, RangeOf(1, 2, 2), {TensorOf<int32_t>(DType::kInt32, {1, 2}, {5, 6})}, true).bytes(),
      ChunkOf(12, RangeOf(1, 0, 1), {TensorOf(DType::kString, {2}, StringList({"left", "right"}))}).bytes()};
  return files;
}

class DmReverbDamageTest : public ::testing::Test {
 protected:
  Status LoadStatus(const CheckpointFiles& files) {
    for (const char* name : kFiles) (void)fs_.RemoveFile(std::string(kPath) + '/' + name);
    (void)fs_.RemoveFile(std::string(kPath) + "/DONE");
    files.Write(&fs_, kPath);
    return Load(&fs_, &added_).status();
  }
  // Changes one thing in a valid checkpoint.
  template <typename F>
  Status LoadChanged(F change) {
    CheckpointFiles files = SmallCheckpoint();
    change(files);
    return LoadStatus(files);
  }
  // Loads one item over one chunk of these tensors.
  Status LoadTensors(const std::vector<Message>& tensors) {
    return LoadStatus({.tables = {TableOf("t", LimiterOf(1)).bytes()},
                       .items = {ItemOf(7, "t", 1, 0, 1, {{.slices = {{1, 0, 1}}}}).bytes()},
                       .chunks = {ChunkOf(1, RangeOf(1, 0, 1), tensors).bytes()}});
  }

  FakeFileSystem fs_;
  size_t added_ = 0;
};

TEST_F(DmReverbDamageTest, TheCheckpointOfTheseTestsIsGood) {
  SmallCheckpoint().Write(&fs_, kPath);
  EXPECT_THAT(Load(&fs_), IsOkAndHolds(3u));
}

// CRC-32C detects every change. A zlib stream has some bits that do not matter, and sometimes two encodings
// of the same bytes; nothing else is accepted.
TEST_F(DmReverbDamageTest, NoBitOfAFileCanBeFlipped) {
  for (const bool compressed : {true, false}) {
    CheckpointFiles files = SmallCheckpoint();
    files.compressed = compressed;
    files.Write(&fs_, kPath);
    for (const char* name : kFiles) {
      const std::string path = std::string(kPath) + '/' + name;
      const std::string good = fs_.ReadAll(path).value();
      size_t accepted = 0;
      for (size_t i = 0; i < good.size(); ++i) {
        for (int bit = 0; bit < 8; ++bit) {
          std::string bad = good;
          bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
          ASSERT_OK(fs_.WriteAll(path, bad));
          const Result<size_t> items = Load(&fs_);
          if (compressed && items.ok()) {
            EXPECT_EQ(*items, 3u);
            ++accepted;
            continue;
          }
          EXPECT_THAT(items, StatusIs(StatusCode::kDataLoss, HasSubstr(path)))
              << "byte " << i << " bit " << bit;
        }
      }
      EXPECT_LE(accepted, 24u) << name;
      ASSERT_OK(fs_.WriteAll(path, good));
    }
  }
}

TEST_F(DmReverbDamageTest, NoFileCanBeCutOffOrExtended) {
  for (const bool compressed : {true, false}) {
    CheckpointFiles files = SmallCheckpoint();
    files.compressed = compressed;
    files.Write(&fs_, kPath);
    for (const char* name : kFiles) {
      const std::string path = std::string(kPath) + '/' + name;
      const std::string good = fs_.ReadAll(path).value();
      for (size_t size = 0; size < good.size(); ++size) {
        ASSERT_OK(fs_.WriteAll(path, good.substr(0, size)));
        EXPECT_THAT(Load(&fs_), StatusIs(StatusCode::kDataLoss)) << name << " cut to " << size;
      }
      for (const char* more : {"x", "more bytes than the head of a record"}) {
        ASSERT_OK(fs_.WriteAll(path, good + more));
        EXPECT_THAT(Load(&fs_), StatusIs(StatusCode::kDataLoss, HasSubstr(name)));
      }
      ASSERT_OK(fs_.WriteAll(path, good));
    }
  }
}

// Tests damage beneath the checksums: every record with every bit flipped, every record truncated, in new
// frames. Some changes yield another valid checkpoint; the others yield an error.
TEST_F(DmReverbDamageTest, RecordsOfAnyContentAreReadOrRefused) {
  CheckpointFiles good = SmallCheckpoint();
  good.compressed = false;
  int64_t refused = 0;
  const auto attempt = [&](const CheckpointFiles& files) {
    const Status status = LoadStatus(files);
    if (status.ok()) return;
    ++refused;
    EXPECT_THAT(status.code(), ::testing::AnyOf(StatusCode::kDataLoss, StatusCode::kUnimplemented,
                                                StatusCode::kResourceExhausted, StatusCode::kInvalidArgument))
        << status.ToString();
    EXPECT_THAT(std::string(status.message()), HasSubstr(kPath));
  };
  for (std::vector<std::string> CheckpointFiles::*list :
       {&CheckpointFiles::tables, &CheckpointFiles::items, &CheckpointFiles::chunks}) {
    for (size_t record = 0; record < (good.*list).size(); ++record) {
      const std::string bytes = (good.*list)[record];
      for (size_t i = 0; i < bytes.size(); ++i) {
        for (int bit = 0; bit < 8; ++bit) {
          CheckpointFiles files = good;
          std::string& changed = (files.*list)[record];
          changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
          attempt(files);
        }
        CheckpointFiles files = good;
        (files.*list)[record] = bytes.substr(0, i);
        attempt(files);
      }
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST_F(DmReverbDamageTest, MissingFilesAreErrors) {
  SmallCheckpoint().Write(&fs_, kPath);
  for (const char* name : kFiles) {
    const std::string path = std::string(kPath) + '/' + name;
    const std::string good = fs_.ReadAll(path).value();
    ASSERT_OK(fs_.RemoveFile(path));
    EXPECT_THAT(Load(&fs_), StatusIs(StatusCode::kDataLoss, HasSubstr(name))) << name;
    ASSERT_OK(fs_.WriteAll(path, good));
  }
  ASSERT_OK(fs_.RemoveFile(std::string(kPath) + "/DONE"));
  EXPECT_THAT(Load(&fs_), StatusIs(StatusCode::kInvalidArgument, HasSubstr("not complete")));
  ASSERT_OK(fs_.RemoveFile(std::string(kPath) + "/tables.tfrecord"));
  EXPECT_THAT(Load(&fs_), StatusIs(StatusCode::kNotFound));
}

TEST_F(DmReverbDamageTest, ReadErrorsArePassedOn) {
  SmallCheckpoint().Write(&fs_, kPath);
  const int64_t before = fs_.num_operations(FakeFileSystem::Kind::kRead);
  ASSERT_OK(Load(&fs_));
  const int64_t reads = fs_.num_operations(FakeFileSystem::Kind::kRead) - before;
  for (int64_t i = 0; i < reads; ++i) {
    fs_.Inject({.kind = FakeFileSystem::Kind::kRead, .after = i});
    EXPECT_THAT(Load(&fs_), ::testing::Not(IsOk())) << "read " << i;
    fs_.ClearFault();
  }
}

TEST_F(DmReverbDamageTest, DanglingReferencesAreFoundBeforeTheFirstItem) {
  EXPECT_THAT(LoadChanged([](CheckpointFiles& files) { files.chunks.pop_back(); }),
              StatusIs(StatusCode::kDataLoss, HasSubstr("table \"a\", item 1: its chunk 12 is not in")));
  EXPECT_EQ(added_, 0u);
  EXPECT_THAT(
      LoadChanged([](CheckpointFiles& files) { files.tables.pop_back(); }),
      StatusIs(StatusCode::kDataLoss, HasSubstr("item 3 is of table \"b\", of which there is no record")));
  EXPECT_THAT(
      LoadChanged([](CheckpointFiles& files) { files.items.pop_back(); }),
      StatusIs(StatusCode::kDataLoss, HasSubstr("table \"b\": 0 items, but its rate limiter counted 1")));
  EXPECT_THAT(LoadChanged([](CheckpointFiles& files) { files.tables.push_back(files.tables[0]); }),
              StatusIs(StatusCode::kDataLoss, HasSubstr("a second table \"a\"")));
  EXPECT_THAT(LoadChanged([](CheckpointFiles& files) {
                files.items[1] = ItemOf(1, "a", 2, 1, 101, {{.slices = {{10, 1, 1}}}}).bytes();
              }),
              StatusIs(StatusCode::kDataLoss, HasSubstr("its key is there twice")));
}

TEST_F(DmReverbDamageTest, SlicesMustLieInTheirChunks) {
  const std::vector<std::pair<ColumnOf, const char*>> columns = {
      {{.slices = {{10, 1, 2}}}, "item 2"},     // beyond the rows
      {{.slices = {{10, 0, 1, 1}}}, "item 2"},  // no such tensor
      {{.slices = {{10, -1, 1}}}, "the offset"},
      {{.slices = {}}, "item 2"},
      {{.slices = {{10, 0, 0}}}, "item 2"},
      {{.slices = {{10, 0, 2}}, .squeeze = true}, "item 2"},  // two rows
      {{.slices = {{10, 0, 1}, {12, 0, 1}}}, "item 2"},       // of different dtypes
  };
  for (const auto& [column, text] : columns) {
    EXPECT_THAT(LoadChanged([&](CheckpointFiles& files) {
                  files.items[1] = ItemOf(2, "a", 2, 1, 101, {column}).bytes();
                }),
                StatusIs(StatusCode::kDataLoss, HasSubstr(text)));
  }
}

TEST_F(DmReverbDamageTest, ItemsThatATableWouldRefuseAreRefused) {
  EXPECT_THAT(LoadChanged([](CheckpointFiles& files) {
                files.items[1] = ItemOf(2, "a", std::nan(""), 1, 101, {{.slices = {{10, 1, 1}}}}).bytes();
              }),
              StatusIs(StatusCode::kDataLoss, HasSubstr("table \"a\", item 2: ")));
  EXPECT_THAT(
      LoadChanged([](CheckpointFiles& files) {
        files.items[1] = Message(ItemOf(2, "a", 1, 1, 101, {{.slices = {{10, 1, 1}}}})).Int(3, 10).bytes();
      }),
      StatusIs(StatusCode::kDataLoss, HasSubstr("both")));
  EXPECT_THAT(
      LoadChanged([](CheckpointFiles& files) { files.items[1] = Message().Int(1, 2).Bytes(2, "a").bytes(); }),
      StatusIs(StatusCode::kDataLoss, HasSubstr("item 2: it has no data")));
  EXPECT_THAT(LoadChanged([](CheckpointFiles& files) {
                files.tables[0] = TableOf("a", LimiterOf(2), /*max_size=*/1).bytes();
              }),
              StatusIs(StatusCode::kDataLoss, HasSubstr("2 items, more than its size of 1")));
}

TEST_F(DmReverbDamageTest, ItemsInTwoPlacesAreRefused) {
  EXPECT_THAT(LoadChanged([](CheckpointFiles& files) {
                files.tables[0] = Message(TableOf("a", LimiterOf(2))).Bytes(2, files.items[0]).bytes();
              }),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("items of its own")));
}

TEST_F(DmReverbDamageTest, SettingsThatNoTableCanHaveAreRefused) {
  const auto load = [&](const Message& table) { return LoadStatus({.tables = {table.bytes()}}); };
  EXPECT_THAT(load(TableOf("t", LimiterOf(0), 0)), StatusIs(StatusCode::kDataLoss, HasSubstr("max_size")));
  EXPECT_THAT(load(TableOf("", LimiterOf(0))), StatusIs(StatusCode::kDataLoss, HasSubstr("name")));
  EXPECT_THAT(load(TableOf("t", Message())), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(load(TableOf("t", LimiterOf(-1))), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(load(Message().Bytes(1, "t").Add(3, LimiterOf(0)).Add(5, Fifo()).Int(6, 5)),
              StatusIs(StatusCode::kDataLoss, HasSubstr("sampler")));
  EXPECT_THAT(
      load(Message().Bytes(1, "t").Add(3, LimiterOf(0)).Add(4, Fifo()).Add(5, Prioritized(-1)).Int(6, 5)),
      StatusIs(StatusCode::kDataLoss));
}

TEST_F(DmReverbDamageTest, InvalidTensorsAreRejected) {
  const auto half = static_cast<int64_t>(DType::kFloat16);
  EXPECT_THAT(LoadTensors({}), StatusIs(StatusCode::kDataLoss, HasSubstr("chunk 1: it holds no tensor")));
  EXPECT_THAT(LoadTensors({TensorOf(DType::kFloat32, {2}, "not snappy")}), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(LoadTensors({TensorOf<float>(DType::kFloat32, {2}, {1, 2, 3})}),
              StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(LoadTensors({TensorOf<float>(DType::kFloat32, {}, {1})}),
              StatusIs(StatusCode::kDataLoss, HasSubstr("tensor 0")));
  EXPECT_THAT(LoadTensors({TensorOf<float>(DType::kFloat32, {0}, {})}), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(LoadTensors({TensorOf<float>(DType::kFloat32, {-1}, {1})}), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(LoadTensors({TensorOf<float>(DType::kFloat32, {2}, {1, 2}),
                           TensorOf<float>(DType::kFloat32, {1}, {1})}),
              StatusIs(StatusCode::kDataLoss, HasSubstr("tensor 1: 1 rows")));
  // Small records that claim much memory must not allocate it.
  EXPECT_THAT(LoadTensors({TensorOf(DType::kFloat32, {1 << 28}, "abc")}), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(LoadTensors({TensorOf(DType::kFloat32, {1 << 30, 1 << 30, 1 << 30}, "abc")}),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("too large")));
  EXPECT_THAT(LoadTensors({TensorOf(DType::kFloat32, {1 << 30}, "abc")}),
              StatusIs(StatusCode::kResourceExhausted));
  EXPECT_THAT(LoadTensors({TensorOf(DType::kString, {1 << 30}, "abc")}), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(LoadTensors({TensorOf(DType::kString, {2}, StringList({"a", "b"}) + "c")}),
              StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(LoadTensors({Message().Int(1, 11).Add(2, ShapeOf({2})).Bytes(4, Snappy("ab"))}),  // qint8
              StatusIs(StatusCode::kUnimplemented, HasSubstr("dtype number 11")));
  EXPECT_THAT(LoadTensors({Message().Int(1, half).Add(2, Message().Int(3, 1)).Bytes(4, Snappy("ab"))}),
              StatusIs(StatusCode::kDataLoss));
}

TEST_F(DmReverbDamageTest, TooDeepSignaturesAreRejected) {
  Message deep = Message().Add(1, Message());
  for (int i = 0; i < 5000; ++i) deep = Message().Add(51, Message().Add(1, deep));
  EXPECT_THAT(LoadStatus({.tables = {Message(TableOf("t", LimiterOf(0))).Add(9, deep).bytes()}}),
              StatusIs(StatusCode::kDataLoss, HasSubstr("table \"t\": its signature")));
  EXPECT_THAT(
      LoadStatus({.tables = {Message(TableOf("t", LimiterOf(0))).Add(9, Message().Int(12, 4)).bytes()}}),
      StatusIs(StatusCode::kUnimplemented, HasSubstr("kind 12")));
}

}  // namespace
}  // namespace reverb::test
