// Tests that a server does not load a checkpoint that is larger than what its memory limit leaves for data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/server.h"
#include "testing/chunks.h"
#include "testing/fake_file_system.h"
#include "testing/rows.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr uint32_t kRows = kMiB / sizeof(int64_t);  // a chunk of 1 MiB
constexpr int kItems = 8;

class LoadMemoryTest : public ::testing::Test {
 protected:
  ServerImpl::Options OptionsFor(std::optional<int64_t> memory_limit) {
    ServerImpl::Options options;
    options.tables = {{.name = "large"}, {.name = "small"}};
    options.row_tables = {{.name = "rows", .consumers = {"train"}}};
    options.store.memory_limit = memory_limit;
    options.checkpoint = CheckpointOptions{.path = "/run"};
    options.fs = &files_;
    return options;
  }
  Result<std::unique_ptr<ServerImpl>> Load(std::optional<int64_t> memory_limit) {
    return ServerImpl::Start(OptionsFor(memory_limit));
  }
  static void Insert(ServerImpl& server, const std::string& table, int count, uint32_t rows) {
    for (int i = 0; i < count; ++i) {
      ChunkRef chunk = test::MakeChunk(server.store().get(), /*episode_id=*/1, /*first_step=*/0, rows, i);
      ASSERT_OK(server.table(table).value()->Insert(
          test::MakeItem(static_cast<uint64_t>(i), 1.0, std::move(chunk)), {}));
    }
  }
  static void Put(ServerImpl& server, int count) {
    for (int i = 0; i < count; ++i) {
      auto write = std::make_shared<RowOperation>(RowOperation::Kind::kWrite);
      write->mode = {.columns = {"tokens"}};
      write->rows.push_back(test::MakeRow("row " + std::to_string(i), {int64_t{kRows}}));
      server.service()->rows().tables().front()->Start(write);
      ASSERT_OK(write->status);
    }
  }
  void Save(int large, int small, int rows) {
    const std::unique_ptr<ServerImpl> server = Load({}).value();
    Insert(*server, "large", large, kRows);
    Insert(*server, "small", small, 1);
    Put(*server, rows);
    ASSERT_OK(server->checkpointer()->Save().status());
  }

  test::FakeFileSystem files_;
};

TEST_F(LoadMemoryTest, ACheckpointThatDoesNotFitIsNotLoaded) {
  Save(kItems, 1, 0);
  const Status status = Load(kItems * kMiB).status();
  EXPECT_THAT(status, StatusIs(StatusCode::kResourceExhausted,
                               AllOf(HasSubstr("does not fit into memory"),
                                     HasSubstr("memory_limit = " + std::to_string(kItems * kMiB)),
                                     HasSubstr(std::to_string(MemoryBudget::SharesOf(kItems * kMiB).kept)),
                                     HasSubstr("ServerOptions::storage"))));
  EXPECT_EQ(Load(kItems * kMiB * 5 / 4).value()->table("large").value()->size(), kItems);
}

TEST_F(LoadMemoryTest, ItFitsIntoTheLimitThatTheErrorNames) {
  Save(kItems, 100, kItems);
  const std::string message(Load(4 * kMiB).status().message());
  const std::string before = "raise memory_limit to ";
  const size_t found = message.find(before);
  ASSERT_NE(found, std::string::npos) << message;
  EXPECT_OK(Load(std::stoll(message.substr(found + before.size()))).status());
}

TEST_F(LoadMemoryTest, TheDataOfRowsCounts) {
  Save(0, 1, kItems);
  EXPECT_THAT(Load(kItems * kMiB), StatusIs(StatusCode::kResourceExhausted, HasSubstr("memory_limit")));
  EXPECT_EQ(Load(2 * kItems * kMiB).value()->service()->rows().tables().front()->size(), kItems);
}

TEST_F(LoadMemoryTest, AServerWithADiskTierLoadsIt) {
  Save(kItems, 1, 0);
  ServerImpl::Options options = OptionsFor(kItems * kMiB);
  options.storage = ChunkTier::Options{.path = "/tier", .memory_limit = 4 * kMiB, .disk_limit = 64 * kMiB};
  const std::unique_ptr<ServerImpl> server = ServerImpl::Start(std::move(options)).value();
  EXPECT_EQ(server->table("large").value()->size(), kItems);
}

TEST_F(LoadMemoryTest, OnlyTablesThatAreLoadedCount) {
  Save(4 * kItems, 100, 0);  // of which no chunk is known to belong to a table before its items are read
  ServerImpl::Options options = OptionsFor(8 * kMiB);
  options.checkpoint->restore.extra_tables = RestoreOptions::ExtraTables::kDrop;
  options.tables = {{.name = "small"}};
  EXPECT_EQ(ServerImpl::Start(options).value()->table("small").value()->size(), 100);
  options.tables = {{.name = "large"}};
  EXPECT_THAT(ServerImpl::Start(options),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("memory_limit")));
}

}  // namespace
}  // namespace reverb::internal
