// Tests that the memory budget counts what checkpoints take besides the data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/load.h"
#include "core/rows/row_table.h"
#include "core/table_testing.h"
#include "testing/fake_file_system.h"
#include "testing/rows.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

constexpr char kRoot[] = "/run";

class CheckpointMemoryTest : public TableFixture {
 protected:
  static constexpr int64_t kItems = 5000;

  CheckpointMemoryTest() {
    store_ = std::make_shared<ChunkStore>(ChunkStore::Options{.memory_limit = int64_t{1} << 30}, &clock_);
  }
  std::shared_ptr<ConcurrentTable> Filled() {
    auto table = Make({.max_size = 1'000'000});
    for (int64_t key = 1; key <= kItems; ++key) EXPECT_OK(Insert(*table, static_cast<uint64_t>(key)));
    return table;
  }
  std::unique_ptr<CheckpointWriter> NewWriter() {
    return std::make_unique<CheckpointWriter>(
        &files_,
        CheckpointWriter::Options{.root = kRoot, .release_pages = true, .budget = &store_->budget()});
  }
  Status Write(CheckpointWriter& writer, const std::shared_ptr<ConcurrentTable>& table) {
    return writer.Write(ConcurrentTable::TakeSnapshot(std::vector{table}), {}, ++now_).status();
  }
  MemoryBudget::Usage usage() const { return store_->budget().usage(); }

  // Calls a function when a checkpoint is about to be published.
  class Files final : public test::FakeFileSystem {
   public:
    Status Rename(const std::string& from, const std::string& to) override {
      if (on_rename) on_rename();
      return FakeFileSystem::Rename(from, to);
    }
    std::function<void()> on_rename;
  };

  Files files_;
  int64_t now_ = 1'700'000'000'000'000'000;
};

TEST_F(CheckpointMemoryTest, WhatTheWriterRemembersCounts) {
  const std::shared_ptr<ConcurrentTable> table = Filled();
  const int64_t before = usage().index;
  std::unique_ptr<CheckpointWriter> writer = NewWriter();
  ASSERT_OK(Write(*writer, table));
  const int64_t written = usage().index - before;
  // A place for each chunk, by its id and by its page, and its size.
  EXPECT_GT(written, kItems * (17 + 8 + 4));
  EXPECT_LT(written, kItems * 100);
  ASSERT_OK(Write(*writer, table));
  EXPECT_NEAR(static_cast<double>(usage().index - before), static_cast<double>(written),
              static_cast<double>(written) / 10)
      << "nothing is added by a checkpoint of the same items";
  writer.reset();
  EXPECT_EQ(usage().index, before);
}

TEST_F(CheckpointMemoryTest, WhatACheckpointAddsCountsWhileItIsWritten) {
  const std::shared_ptr<ConcurrentTable> table = Filled();
  const int64_t before = usage().index;
  int64_t at_end = 0;
  files_.on_rename = [&] { at_end = usage().index; };
  const std::unique_ptr<CheckpointWriter> writer = NewWriter();
  ASSERT_OK(Write(*writer, table));
  EXPECT_GT(at_end, before + kItems * (17 + 8 + 4));
}

TEST_F(CheckpointMemoryTest, AFailedCheckpointLeavesNothing) {
  const std::shared_ptr<ConcurrentTable> table = Filled();
  const int64_t before = usage().index;
  const std::unique_ptr<CheckpointWriter> writer = NewWriter();
  files_.set_capacity(100'000);
  EXPECT_FALSE(Write(*writer, table).ok());
  EXPECT_EQ(usage().index, before);
}

TEST_F(CheckpointMemoryTest, ChunksThatWereLoadedCount) {
  ASSERT_OK(Write(*NewWriter(), Filled()));
  LoadedServer loaded =
      LoadLatest(&files_, {.path = kRoot}, {{.name = "t"}}, {.store = store_, .clock = &clock_}).value();
  const int64_t before = usage().index;
  const std::unique_ptr<CheckpointWriter> writer = NewWriter();
  writer->Adopt(*loaded.path, std::move(loaded.segments));
  EXPECT_GT(usage().index, before + kItems * (17 + 4));
}

TEST_F(CheckpointMemoryTest, RowsAreReleasedAsTheyAreWritten) {
  const std::shared_ptr<ConcurrentRows> rows =
      ConcurrentRows::Create({.name = "rows", .consumers = {"train"}}, {.store = store_, .clock = &clock_})
          .value();
  auto put = std::make_shared<RowOperation>(RowOperation::Kind::kWrite);
  put->mode = {.columns = {"x"}};
  std::vector<std::string> keys;
  for (int64_t i = 0; i < kItems; ++i) {
    keys.push_back("row " + std::to_string(i));
    put->rows.push_back(test::MakeRow(keys.back(), {10}));
  }
  rows->Start(put);
  ASSERT_OK(put->status);
  put.reset();
  Snapshot snapshot;
  snapshot.row_tables = ConcurrentRows::TakeSnapshots(std::vector{rows}).tables;
  ASSERT_OK(rows->Delete(keys).status());
  EXPECT_GT(usage().parked, 0);
  EXPECT_EQ(usage().stored, 0);
  ASSERT_OK(NewWriter()->Write(snapshot, {}, ++now_).status());
  EXPECT_EQ(usage().chunks, 0) << "although the snapshot exists";
  EXPECT_EQ(snapshot.row_tables[0]->num_rows(), static_cast<size_t>(kItems));
  LoadedServer loaded = LoadLatest(&files_, {.path = kRoot}, {}, {.store = store_, .clock = &clock_},
                                   {{.name = "rows", .consumers = {"train"}}})
                            .value();
  EXPECT_EQ(loaded.row_tables[0]->size(), kItems);
}

}  // namespace
}  // namespace reverb::internal
