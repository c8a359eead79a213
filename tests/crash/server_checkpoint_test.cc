// Tests checkpoints through the public API: a server, its clients, real files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "reverb/checkpoint.h"
#include "reverb/log.h"
#include "reverb/server.h"
#include "testing/status_matchers.h"
#include "testing/wait.h"

namespace reverb {
namespace {

using test::StatusIs;
using ::testing::HasSubstr;

class ServerCheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "reverb-ckpt-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    root_ = folder_ + "/deep/er/run";
  }
  void TearDown() override {
    SetLogSink({});
    std::filesystem::remove_all(folder_);
  }

  Result<Server> TryStart(CheckpointOptions options, std::optional<int> port = std::nullopt) {
    if (options.path.empty()) options.path = root_;
    return Server::Start({.tables = {{.name = "t", .sampler = SelectorOptions::Uniform(7), .max_size = 1'000},
                                     {.name = "q", .sampler = SelectorOptions::Fifo()}},
                          .host = "127.0.0.1",
                          .port = port,
                          .checkpoint = std::move(options)});
  }
  Server Start(CheckpointOptions options = {}, std::optional<int> port = std::nullopt) {
    Result<Server> server = TryStart(std::move(options), port);
    EXPECT_TRUE(server.ok()) << server.status().ToString();
    return *std::move(server);
  }
  static void Insert(const Client& client, int64_t first, int64_t count, const std::string& table = "t") {
    for (int64_t i = first; i < first + count; ++i) {
      const int64_t dims[] = {3};
      const int64_t row[] = {i, i + 1, i + 2};
      const TensorView view{.dtype = DType::kInt64, .dims = dims, .data = row};
      const std::vector<std::pair<std::string, double>> to = {{table, 1.0}};
      ASSERT_TRUE(client.Insert({&view, 1}, to).ok());
    }
  }
  static int64_t FirstValue(const SampledTrajectory& sample) {
    const Tensor tensor = sample.column(0).value();
    return *reinterpret_cast<const int64_t*>(tensor.data());
  }
  std::vector<std::string> Checkpoints() {
    std::vector<std::string> paths;
    for (const CheckpointEntry& entry : *ListCheckpoints(root_)) paths.push_back(entry.path);
    return paths;
  }

  std::string folder_;
  std::string root_;
};

TEST_F(ServerCheckpointTest, AServerContinuesFromItsCheckpoint) {
  std::vector<uint64_t> next;
  std::string path;
  {
    Server server = Start();
    EXPECT_FALSE(server.loaded_checkpoint().has_value());
    Client client = server.in_process_client();
    Insert(client, 0, 100);
    ASSERT_TRUE(client.Sample("t", 10).ok());
    path = client.Checkpoint().value();
    EXPECT_EQ(std::filesystem::path(path).parent_path(), root_);
    for (const SampledTrajectory& sample : *client.Sample("t", 50)) next.push_back(sample.key());
  }
  Server server = Start();
  EXPECT_EQ(server.loaded_checkpoint(), path);
  Client client = server.in_process_client();
  std::vector<uint64_t> again;
  for (const SampledTrajectory& sample : *client.Sample("t", 50)) again.push_back(sample.key());
  EXPECT_EQ(again, next);  // same seed, same next samples
  EXPECT_EQ(server.table("t")->Info().counters.samples, 60);
}

TEST_F(ServerCheckpointTest, CheckpointsCanBeRequestedOverTheNetwork) {
  Server server = Start({}, 0);
  Client client =
      Client::Connect("127.0.0.1:" + std::to_string(server.port()), {.in_process = false}).value();
  Insert(client, 0, 5);
  const std::string path = client.Checkpoint().value();
  const CheckpointReader reader = CheckpointReader::Open(path).value();
  EXPECT_EQ(reader.info().tables[0].current_size, 5);
  EXPECT_TRUE(reader.Verify().ok());
}

TEST_F(ServerCheckpointTest, ItemsAreReadInBatches) {
  Server server = Start();
  Insert(server.in_process_client(), 0, 10);
  const std::string path = server.in_process_client().Checkpoint().value();
  const CheckpointReader reader = CheckpointReader::Open(path).value();
  const auto read = [&](const CheckpointReadOptions& options) {
    std::vector<int64_t> firsts;
    CheckpointItems items = reader.Items("t", options).value();
    Batch batch;
    while (const int64_t count = items.NextBatch(4, &batch).value()) {
      EXPECT_EQ(batch.columns[0].dims(), (std::vector<int64_t>{count, 1, 3}));
      EXPECT_EQ(batch.info.probabilities, std::vector<double>(static_cast<size_t>(count), 0.1));
      const auto* values = reinterpret_cast<const int64_t*>(batch.columns[0].data());
      for (int64_t i = 0; i < count; ++i) firsts.push_back(values[3 * i]);
    }
    return firsts;
  };
  const std::vector<int64_t> in_order = read({});
  EXPECT_EQ(in_order, (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  const std::vector<int64_t> shuffled = read({.shuffle_window = 100, .seed = 1});
  EXPECT_NE(shuffled, in_order);
  EXPECT_THAT(shuffled, ::testing::UnorderedElementsAreArray(in_order));
  EXPECT_EQ(read({.shuffle_window = 100, .seed = 1}), shuffled);
  EXPECT_EQ(read({.columns = {0}}), in_order);
  EXPECT_THAT(reader.Items("t", {.shuffle_window = -1}).status(), StatusIs(StatusCode::kInvalidArgument));
  Batch batch;
  EXPECT_THAT(reader.Items("t", {.columns = {1}})->NextBatch(4, &batch).status(),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(reader.Items("t")->NextBatch(0, &batch).status(), StatusIs(StatusCode::kInvalidArgument));
}

TEST_F(ServerCheckpointTest, ACopyNeedsNothingElse) {
  {
    Server server = Start();
    Insert(server.in_process_client(), 0, 7);
    const std::string path = server.in_process_client().Checkpoint().value();
    const Result<std::string> copied = CopyCheckpoint(path, folder_ + "/copy");
    ASSERT_TRUE(copied.ok()) << copied.status().ToString();
    EXPECT_THAT(CopyCheckpoint(path, folder_ + "/copy").status(), StatusIs(StatusCode::kAlreadyExists));
  }
  std::filesystem::remove_all(root_);
  Server server = Start({.path = folder_ + "/copy"});
  EXPECT_EQ(server.table("t")->size(), 7);
}

TEST_F(ServerCheckpointTest, ACleanStopSavesIfConfigured) {
  {
    Server server = Start({.on_stop = true});
    Insert(server.in_process_client(), 0, 12);
    server.Stop();
  }
  Server server = Start();
  EXPECT_EQ(server.table("t")->size(), 12);
}

TEST_F(ServerCheckpointTest, PeriodicCheckpointsAreWrittenIfConfigured) {
  Server server = Start({.interval = std::chrono::milliseconds(20)});
  Insert(server.in_process_client(), 0, 3);
  EXPECT_TRUE(test::WaitUntil([&] {
    const Result<CheckpointReader> reader = CheckpointReader::Open(root_);
    return reader.ok() && reader->info().tables[0].current_size == 3;
  })) << "no checkpoint appeared";
}

TEST_F(ServerCheckpointTest, ConcurrentRequestsAllSucceed) {
  Server server = Start({.keep_latest = 1});
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      const Client client = server.in_process_client();
      Insert(client, i * 10, 10);
      good += client.Checkpoint().ok();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 6);
  EXPECT_EQ(Checkpoints().size(), 1);
  EXPECT_EQ(CheckpointReader::Open(root_)->info().tables[0].current_size, 60);
}

TEST_F(ServerCheckpointTest, ADamagedCheckpointIsSkippedForThePreviousOne) {
  {
    Server server = Start({.keep_latest = 2});
    Client client = server.in_process_client();
    Insert(client, 0, 10);
    ASSERT_TRUE(client.Checkpoint().ok());
    Insert(client, 10, 10);
    ASSERT_TRUE(client.Checkpoint().ok());
  }
  std::vector<std::string> lines;
  SetLogSink([&](LogLevel level, std::string_view line) {
    if (level == LogLevel::kError) lines.emplace_back(line);
  });
  const std::string newest = Checkpoints().back();
  std::ofstream(newest + "/MANIFEST", std::ios::in | std::ios::out).seekp(40).put('x');
  {
    Server server = Start();
    EXPECT_EQ(server.table("t")->size(), 10);
    EXPECT_EQ(server.loaded_checkpoint(), Checkpoints().front());
    ASSERT_EQ(lines.size(), 1);
    EXPECT_THAT(lines[0], HasSubstr(newest));
  }
  // Without a complete checkpoint the server refuses to start, instead of starting empty.
  std::filesystem::remove_all(root_ + "/segments");
  EXPECT_THAT(TryStart({}).status(), StatusIs(StatusCode::kDataLoss, HasSubstr("none of the 2 checkpoints")));
}

TEST_F(ServerCheckpointTest, AFailedWriteIsReportedAndTheServerContinues) {
  std::filesystem::create_directories(root_);
  std::ofstream(root_ + "/segments") << "in the way";
  Server server = Start();
  Client client = server.in_process_client();
  Insert(client, 0, 3);
  const Result<std::string> path = client.Checkpoint();
  EXPECT_FALSE(path.ok());
  EXPECT_THAT(std::string(path.status().message()), HasSubstr(root_ + "/segments"));
  Insert(client, 3, 3);
  EXPECT_EQ(server.table("t")->size(), 6);
}

TEST_F(ServerCheckpointTest, ALoadCanBeCancelled) {
  {
    Server server = Start();
    Client client = server.in_process_client();
    Insert(client, 0, 300);
    ASSERT_TRUE(client.Checkpoint().ok());
  }
  CheckpointOptions checkpoint{.path = root_};
  int asked = 0;
  checkpoint.restore.on_wait = [&] {
    ++asked;
    return Status::Cancelled("enough");
  };
  EXPECT_THAT(TryStart(checkpoint).status(), StatusIs(StatusCode::kCancelled, "enough"));
  EXPECT_EQ(asked, 1);
  checkpoint.restore.on_wait = [] { return Status::Ok(); };
  const Result<Server> server = TryStart(checkpoint);
  ASSERT_TRUE(server.ok());
  EXPECT_EQ(server->table("t")->size(), 300);
}

TEST_F(ServerCheckpointTest, ARemovedRootIsCreatedAgain) {
  {
    Server server = Start();
    Client client = server.in_process_client();
    Insert(client, 0, 5);
    ASSERT_TRUE(client.Checkpoint().ok());
    std::filesystem::remove_all(root_);
    Insert(client, 5, 5);
    ASSERT_TRUE(client.Checkpoint().ok());
  }
  Server server = Start();
  EXPECT_EQ(server.table("t")->size(), 10);
}

TEST_F(ServerCheckpointTest, BadOptionsAreRefused) {
  EXPECT_THAT(TryStart({.keep_latest = 0}).status(), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(TryStart({.interval = std::chrono::nanoseconds(0)}).status(),
              StatusIs(StatusCode::kInvalidArgument));
}

TEST_F(ServerCheckpointTest, InsertsAndSamplesContinueDuringACheckpoint) {
  Server server = Start({.keep_latest = 2});
  std::atomic<bool> over{false};
  std::atomic<int64_t> inserted{0};
  std::thread inserter([&] {
    const Client client = server.in_process_client();
    while (!over) {
      Insert(client, inserted, 1);
      ++inserted;
    }
  });
  std::thread sampler([&] {
    const Client client = server.in_process_client();
    while (!over) ASSERT_TRUE(client.Sample("t", 3).ok());
  });
  Client client = server.in_process_client();
  // Samples wait forever if nothing is ever inserted.
  ASSERT_TRUE(test::WaitUntil([&] { return inserted > 0; }));
  for (int i = 0; i < 20; ++i) {
    const std::string path = client.Checkpoint().value();
    const CheckpointReader reader = CheckpointReader::Open(path).value();
    ASSERT_TRUE(reader.Verify().ok());
    const TableInfo& info = reader.info().tables[0];
    EXPECT_EQ(info.counters.inserts - info.counters.deletes, info.current_size);
  }
  over = true;
  inserter.join();
  sampler.join();
}

// Each number is inserted once, also across a restart.
TEST_F(ServerCheckpointTest, AWriterContinuesAcrossARestart) {
  auto server = std::make_optional<Server>(Start({.on_stop = true}, 0));
  const int port = server->port();
  Client client = Client::Connect("127.0.0.1:" + std::to_string(port), {.in_process = false}).value();
  TrajectoryWriter writer = client.NewTrajectoryWriter({.chunking = {.num_keep_alive_refs = 1}}).value();
  const auto write = [&](int64_t value) {
    const TensorView view{.dtype = DType::kInt64, .dims = {}, .data = &value};
    const ColumnValue column{.column = 0, .value = view};
    ASSERT_TRUE(writer.Append({&column, 1}).ok());
    const CellRange cell = CellRange::One(0, value);
    const ItemColumn item{.cells = {&cell, 1}};
    ASSERT_TRUE(writer.CreateItem("q", 1.0, {&item, 1}).ok());
  };
  for (int64_t i = 0; i < 50; ++i) write(i);
  ASSERT_TRUE(writer.Flush().ok());
  server.reset();  // saves
  for (int64_t i = 50; i < 80; ++i) write(i);
  server.emplace(Start({.on_stop = true}, port));
  ASSERT_TRUE(writer.Flush().ok());
  std::vector<int64_t> values;
  for (const SampledTrajectory& item : server->table("q")->Peek(1'000)) values.push_back(FirstValue(item));
  std::vector<int64_t> expected(80);
  for (int64_t i = 0; i < 80; ++i) expected[static_cast<size_t>(i)] = i;
  EXPECT_EQ(values, expected);
  EXPECT_EQ(server->table("q")->Info().counters.inserts, 80);
  EXPECT_EQ(server->table("q")->Info().updates, 0);
}

TEST_F(ServerCheckpointTest, AReaderShowsItemsAndSettings) {
  {
    Server server = Start();
    Client client = server.in_process_client();
    Insert(client, 0, 20);
    ASSERT_TRUE(client.Sample("t", 5).ok());
    ASSERT_TRUE(client.Checkpoint().ok());
  }
  CheckpointReader reader = CheckpointReader::Open(root_).value();
  ASSERT_EQ(reader.info().tables.size(), 2);
  EXPECT_EQ(reader.info().tables[0].max_size, 1'000);
  EXPECT_EQ(reader.info().tables[0].sampler, SelectorOptions::Uniform(7));
  EXPECT_EQ(reader.info().num_chunks, 20);
  EXPECT_EQ(reader.info().payload_bytes, 20 * 24);
  EXPECT_EQ(reader.info().format, "reverb 6");
  CheckpointItems items = reader.Items("t").value();
  int64_t sampled = 0;
  for (int64_t i = 0; i < 20; ++i) {
    const auto item = items.Next().value();
    ASSERT_TRUE(item.has_value());
    EXPECT_EQ(FirstValue(*item), i);
    sampled += item->times_sampled();
  }
  EXPECT_FALSE(items.Next().value().has_value());
  EXPECT_EQ(sampled, 5);
  EXPECT_THAT(reader.Items("none").status(), StatusIs(StatusCode::kNotFound, HasSubstr("\"t\", \"q\"")));
  // A copy of the checkpoint, which a reader sees as the same.
  const std::string copy = ImportCheckpoint(root_, folder_ + "/copy").value();
  EXPECT_EQ(CheckpointReader::Open(copy)->info().tables[0].current_size, 20);
  EXPECT_TRUE(CheckpointReader::Open(copy)->Verify().ok());
}

TEST_F(ServerCheckpointTest, EveryFlippedByteIsFound) {
  {
    Server server = Start();
    Client client = server.in_process_client();
    Insert(client, 0, 10);
    ASSERT_TRUE(client.Checkpoint().ok());
  }
  std::vector<std::string> files = {Checkpoints().back() + "/MANIFEST"};
  for (const auto& file : std::filesystem::directory_iterator(root_ + "/segments")) {
    if (file.path().filename() != "LOCK") files.push_back(file.path().string());
  }
  ASSERT_EQ(files.size(), 3);
  const auto verify = [&] {
    const Result<CheckpointReader> reader = CheckpointReader::Open(root_);
    return reader.ok() ? reader->Verify() : reader.status();
  };
  ASSERT_TRUE(verify().ok());
  for (const std::string& file : files) {
    const auto size = std::filesystem::file_size(file);
    for (uint64_t at = 0; at < size; at += 3) {
      std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
      stream.seekg(static_cast<std::streamoff>(at));
      const int byte = stream.get();
      const auto put = [&](int value) {
        stream.seekp(static_cast<std::streamoff>(at));
        stream.put(static_cast<char>(value));
        stream.flush();
      };
      put(byte ^ 0x10);
      EXPECT_THAT(verify(), StatusIs(StatusCode::kDataLoss)) << file << " byte " << at;
      const Result<Server> server = TryStart({});
      EXPECT_THAT(server.status(), StatusIs(StatusCode::kDataLoss)) << file << " byte " << at;
      put(byte);
    }
    // Truncated.
    for (const uint64_t left : {uint64_t{0}, size / 2, size - 1}) {
      std::filesystem::copy_file(file, folder_ + "/whole", std::filesystem::copy_options::overwrite_existing);
      std::filesystem::resize_file(file, left);
      EXPECT_THAT(verify(), StatusIs(StatusCode::kDataLoss)) << file << " of " << left;
      std::filesystem::copy_file(folder_ + "/whole", file, std::filesystem::copy_options::overwrite_existing);
    }
  }
  ASSERT_TRUE(verify().ok());
}

}  // namespace
}  // namespace reverb
