// Tests Start() and Stop() of a server, without clients.
#include "server/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/layout.h"
#include "reverb/log.h"
#include "testing/chunks.h"
#include "testing/status_matchers.h"
#include "transport/grpc/grpc_transport_testing.h"
#include "transport/inproc/inproc.h"
#include "transport/local/local_transport_testing.h"

namespace reverb::internal {
namespace {

using test::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

class ServerImplTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "reverb-server-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    SetLogSink({});
    std::filesystem::remove_all(folder_);
  }

  static ServerImpl::Options OneTable() {
    ServerImpl::Options options;
    options.tables = {{.name = "t"}};
    return options;
  }
  ServerImpl::Options WithCheckpoints(bool on_stop) const {
    ServerImpl::Options options = OneTable();
    options.checkpoint = CheckpointOptions{.path = folder_ + "/run", .on_stop = on_stop};
    return options;
  }
  static void InsertOne(ServerImpl& server, uint64_t key) {
    ChunkRef chunk = test::MakeChunk(server.store().get(), /*episode_id=*/1, /*first_step=*/0, /*rows=*/1);
    ASSERT_OK(server.table("t").value()->Insert(test::MakeItem(key, 1.0, std::move(chunk)), {}));
  }
  std::vector<CheckpointEntry> Checkpoints() const {
    const std::string root = folder_ + "/run";
    if (!std::filesystem::exists(root)) return {};
    return ListCheckpoints(PosixFileSystem(), root).value();
  }

  std::string folder_;
};

TEST_F(ServerImplTest, TheMemoryLimitBoundsWhatAClientProcessRefersTo) {
  const auto max_pinned_bytes = [this](std::optional<int64_t> memory_limit, uint64_t configured) {
    ServerImpl::Options options = OneTable();
    options.store.memory_limit = memory_limit;
    options.local = {.path = folder_ + "/socket", .max_pinned_bytes = configured};
    const std::unique_ptr<ServerImpl> server = ServerImpl::Start(std::move(options)).value();
    return RawSocket(folder_ + "/socket").Greet().max_pinned_bytes;
  };
  EXPECT_EQ(max_pinned_bytes({}, 256 << 20), 256u << 20);
  EXPECT_EQ(max_pinned_bytes(int64_t{256} << 20, 256 << 20), 4u << 20);
  EXPECT_EQ(max_pinned_bytes(int64_t{256} << 20, 1 << 20), 1u << 20);
}

TEST_F(ServerImplTest, ServesItsTablesWithinTheProcess) {
  const std::unique_ptr<ServerImpl> server = ServerImpl::Start(OneTable()).value();
  EXPECT_EQ(server->port(), 0) << "without an address it does not listen";
  EXPECT_THAT(server->table("other").status(), StatusIs(StatusCode::kNotFound));
  InsertOne(*server, 7);
  const ServerInfo info = server->Connect()->Info({}).value();
  EXPECT_EQ(info.server_name, DefaultServerName());
  EXPECT_THAT(info.server_name, StartsWith("reverb "));
  ASSERT_THAT(info.tables, SizeIs(1));
  EXPECT_EQ(info.tables[0].current_size, 1);
  EXPECT_EQ(info.stored_bytes, server->store()->stats().stored_bytes);
}

// gRPC would collect any message before a decoder sees it.
TEST_F(ServerImplTest, TheMemoryLimitBoundsWhatGrpcReceives) {
  ServerImpl::Options options = OneTable();
  options.address = "127.0.0.1:0";
  options.store.memory_limit = int64_t{256} << 20;
  const std::unique_ptr<ServerImpl> server = ServerImpl::Start(std::move(options)).value();
  const std::string address = "127.0.0.1:" + std::to_string(server->port());
  const auto send = [&](size_t bytes) {
    RawStream raw(address, kInsertMethod);
    raw.Send(std::string(bytes, 'x'));
    return raw.Wait();
  };
  const auto reaches_the_decoder =
      StatusIs(StatusCode::kDataLoss, HasSubstr("does not begin with a checksum"));
  EXPECT_THAT(send(size_t{16} << 20), reaches_the_decoder);
  EXPECT_THAT(send(size_t{160} << 20), StatusIs(StatusCode::kResourceExhausted, HasSubstr("RST_STREAM")))
      << "a quarter of the limit is for gRPC";
  EXPECT_THAT(send(size_t{16} << 20), reaches_the_decoder) << "others go on";
}

TEST_F(ServerImplTest, InProcessClientsFindItUntilItStops) {
  const std::unique_ptr<ServerImpl> server = ServerImpl::Start(OneTable()).value();
  const Id128 id = server->service()->life_id();
  EXPECT_TRUE(IsInprocServer(id));
  server->Stop();
  EXPECT_FALSE(IsInprocServer(id));
  server->Stop();  // idempotent
}

TEST_F(ServerImplTest, StopClosesTheTables) {
  const std::unique_ptr<ServerImpl> server = ServerImpl::Start(OneTable()).value();
  InsertOne(*server, 7);
  const std::shared_ptr<ConcurrentTable> table = server->table("t").value();
  server->Stop();
  ChunkRef chunk = test::MakeChunk(server->store().get(), 1, 0, 1);
  EXPECT_THAT(table->Insert(test::MakeItem(8, 1.0, std::move(chunk)), {}), StatusIs(StatusCode::kCancelled));
  EXPECT_EQ(table->size(), 1) << "the items can still be inspected";
}

TEST_F(ServerImplTest, TheDestructorStops) {
  std::unique_ptr<ServerImpl> server = ServerImpl::Start(WithCheckpoints(/*on_stop=*/true)).value();
  const Id128 id = server->service()->life_id();
  server = nullptr;
  EXPECT_FALSE(IsInprocServer(id));
  EXPECT_THAT(Checkpoints(), SizeIs(1));
}

TEST_F(ServerImplTest, AServerThatCannotListenLeavesNothingBehind) {
  ServerImpl::Options options = WithCheckpoints(/*on_stop=*/true);
  options.address = "no such host:none";
  EXPECT_FALSE(ServerImpl::Start(std::move(options)).ok());
  EXPECT_FALSE(HasInprocServers());
  EXPECT_THAT(Checkpoints(), IsEmpty()) << "it never ran, so there is nothing to save";
}

TEST_F(ServerImplTest, TheLastCheckpointHasTheItemsAndTheNextServerLoadsThem) {
  std::unique_ptr<ServerImpl> server = ServerImpl::Start(WithCheckpoints(/*on_stop=*/true)).value();
  EXPECT_EQ(server->loaded_checkpoint(), std::nullopt);
  InsertOne(*server, 7);
  server->Stop();
  const std::vector<CheckpointEntry> checkpoints = Checkpoints();
  ASSERT_THAT(checkpoints, SizeIs(1));
  EXPECT_TRUE(checkpoints[0].is_complete);
  server = ServerImpl::Start(WithCheckpoints(/*on_stop=*/false)).value();
  EXPECT_EQ(server->loaded_checkpoint(), checkpoints[0].path);
  EXPECT_EQ(server->table("t").value()->size(), 1);
  EXPECT_TRUE(server->table("t").value()->Find(7));
  server->Stop();
  EXPECT_THAT(Checkpoints(), SizeIs(1)) << "without on_stop there is no further one";
}

TEST_F(ServerImplTest, ClientsCanRequestACheckpointOnlyIfThereIsAPath) {
  const std::unique_ptr<ServerImpl> in_memory = ServerImpl::Start(OneTable()).value();
  EXPECT_EQ(in_memory->checkpointer(), nullptr);
  EXPECT_FALSE(in_memory->Connect()->Checkpoint({}).ok());
  const std::unique_ptr<ServerImpl> server = ServerImpl::Start(WithCheckpoints(/*on_stop=*/false)).value();
  const std::string path = server->Connect()->Checkpoint({}).value();
  ASSERT_THAT(Checkpoints(), SizeIs(1));
  EXPECT_EQ(Checkpoints()[0].path, path);
}

TEST_F(ServerImplTest, LoadsNothingIfNotRequested) {
  std::unique_ptr<ServerImpl> server = ServerImpl::Start(WithCheckpoints(/*on_stop=*/true)).value();
  InsertOne(*server, 7);
  server->Stop();
  ServerImpl::Options options = WithCheckpoints(/*on_stop=*/false);
  options.checkpoint->load_latest = false;
  server = ServerImpl::Start(std::move(options)).value();
  EXPECT_EQ(server->loaded_checkpoint(), std::nullopt);
  EXPECT_EQ(server->table("t").value()->size(), 0);
}

TEST_F(ServerImplTest, InvalidOptionsFailTheStart) {
  ServerImpl::Options options = WithCheckpoints(/*on_stop=*/false);
  options.checkpoint->keep_latest = 0;
  EXPECT_THAT(ServerImpl::Start(std::move(options)).status(), StatusIs(StatusCode::kInvalidArgument));
  options = OneTable();
  options.tables.push_back({.name = "t"});
  EXPECT_THAT(ServerImpl::Start(std::move(options)).status(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("\"t\"")));
  EXPECT_FALSE(HasInprocServers());
}

TEST_F(ServerImplTest, StopLogsThatTheLastCheckpointFailed) {
  std::ofstream(folder_ + "/file") << "not a folder";
  ServerImpl::Options options = OneTable();
  options.checkpoint =
      CheckpointOptions{.path = folder_ + "/file/run", .on_stop = true, .load_latest = false};
  const std::unique_ptr<ServerImpl> server = ServerImpl::Start(std::move(options)).value();
  std::vector<std::string> errors;
  SetLogSink([&](LogLevel level, std::string_view message) {
    if (level == LogLevel::kError) errors.emplace_back(message);
  });
  server->Stop();
  SetLogSink({});
  EXPECT_THAT(errors, ElementsAre(HasSubstr("/file/run\" could not be written")));
}

}  // namespace
}  // namespace reverb::internal
