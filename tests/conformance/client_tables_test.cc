// Tables that clients create, change and remove while the server runs, over every transport.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "conformance/client_fixture.h"
#include "reverb/client.h"
#include "reverb/server.h"
#include "testing/status_matchers.h"
#include "testing/wait.h"

namespace reverb {
namespace {

using namespace std::chrono_literals;
using test::ClientFixture;
using test::kPatience;
using test::MakeQueue;
using test::MakeTable;
using test::StatusIs;
using test::ToVector;
using test::Transport;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A temporary folder, removed with its files.
class ScopedFolder {
 public:
  ScopedFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "reverb-tables-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~ScopedFolder() { std::filesystem::remove_all(path_); }
  ScopedFolder(const ScopedFolder&) = delete;
  ScopedFolder& operator=(const ScopedFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class ClientTablesTest : public ClientFixture {
 protected:
  static std::vector<std::string> Names(const Client& client) {
    std::vector<std::string> names;
    const Result<ServerInfo> info = client.Info(kPatience);
    EXPECT_OK(info);
    for (const TableInfo& table : info->tables) names.push_back(table.name);
    return names;
  }
  static TableInfo InfoOf(const Client& client, const std::string& table) {
    const Result<ServerInfo> info = client.Info(kPatience);
    EXPECT_OK(info);
    for (const TableInfo& each : info->tables) {
      if (each.name == table) return each;
    }
    ADD_FAILURE() << "no table " << table;
    return {};
  }
  static std::vector<float> SampleValues(const Client& client, const std::string& table, int64_t n) {
    std::vector<float> values;
    const auto samples = client.Sample(table, n, kPatience);
    EXPECT_OK(samples);
    for (const SampledTrajectory& sample : *samples) values.push_back(ToVector(*sample.column(0)).front());
    return values;
  }
};

INSTANTIATE_TEST_SUITE_P(Transports, ClientTablesTest, REVERB_ALL_TRANSPORTS, test::TransportName);

const auto kWasRemoved = StatusIs(StatusCode::kNotFound, HasSubstr("was removed from the server"));

TEST_P(ClientTablesTest, ATableIsCreatedUsedAndRemoved) {
  Start({MakeTable("first")});
  const Client client = Connect();
  TableOptions options = MakeTable("second", RateLimiterOptions::MinSize(2));
  options.max_size = 7;
  options.max_times_sampled = 5;
  options.max_age = 1h;
  options.remover = SelectorOptions::Prioritized(0.5);
  options.signature = Signature::Leaf({"x", DType::kFloat32, {}}).value();
  ASSERT_OK(client.CreateTable(options, false, kPatience));
  EXPECT_THAT(Names(client), ElementsAre("first", "second"));
  const TableInfo info = InfoOf(client, "second");
  EXPECT_EQ(info.max_size, 7);
  EXPECT_EQ(info.max_times_sampled, 5);
  EXPECT_EQ(info.max_age_nanos, std::chrono::nanoseconds(1h).count());
  EXPECT_EQ(info.rate_limiter, options.rate_limiter);
  EXPECT_EQ(info.sampler.ToString(), options.sampler.ToString());
  EXPECT_EQ(info.remover.priority_exponent, 0.5);
  EXPECT_EQ(DecodeSignature(info.signature).value(), *options.signature);

  auto writer = NewWriter(client);
  for (float value : {1.0F, 2.0F}) ASSERT_OK(Write(writer, "second", value));
  ASSERT_OK(writer.Flush(0, kPatience));
  EXPECT_THAT(SampleValues(client, "second", 2), ElementsAre(1, 1));

  ASSERT_OK(client.RemoveTable("second", kPatience));
  EXPECT_THAT(Names(client), ElementsAre("first"));
  EXPECT_TRUE(test::WaitUntil([&] { return client.Info(kPatience)->stored_bytes == 0; }));
  EXPECT_THAT(client.RemoveTable("second", kPatience),
              StatusIs(StatusCode::kNotFound, HasSubstr("\"first\"")));
  EXPECT_THAT(client.Sample("second", 1, kPatience), StatusIs(StatusCode::kNotFound));
  writer.Close();
}

TEST_P(ClientTablesTest, AnExistingTableIsAnErrorUnlessItIsWanted) {
  Start({MakeTable("t")});
  const Client client = Connect();
  EXPECT_THAT(client.CreateTable(MakeTable("t"), false, kPatience),
              StatusIs(StatusCode::kAlreadyExists, AllOf(HasSubstr("\"t\""), HasSubstr("exist_ok"))));
  EXPECT_OK(client.CreateTable(MakeTable("t"), true, kPatience));
  TableOptions other = MakeTable("t");
  other.max_size = 5;
  EXPECT_THAT(client.CreateTable(other, true, kPatience),
              StatusIs(StatusCode::kAlreadyExists, HasSubstr("max_size is 1000000, not 5")));
  other = MakeTable("t");
  other.max_age = 1s;
  EXPECT_THAT(client.CreateTable(other, true, kPatience),
              StatusIs(StatusCode::kAlreadyExists, HasSubstr("max_age")));
}

TEST_P(ClientTablesTest, WhatExistsInOneProcessOnlyIsRefused) {
  Start({MakeTable("t")});
  const Client client = Connect();
  TableOptions custom = MakeTable("custom");
  custom.custom_sampler = [] { return MakeSelector(SelectorOptions::Fifo()).value(); };
  EXPECT_THAT(client.CreateTable(custom, false, kPatience),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("a custom selector")));
  TableOptions kind = MakeTable("kind");
  kind.sampler.kind = SelectorOptions::Kind::kCustom;
  EXPECT_THAT(client.CreateTable(kind, false, kPatience), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(client.CreateTable(MakeTable(""), false, kPatience), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(Names(client), ElementsAre("t"));
}

TEST_P(ClientTablesTest, RemovingATableEndsItsWaits) {
  Start({MakeQueue("full", 1), MakeTable("empty")});
  const Client client = Connect();
  auto writer = NewWriter(client);
  for (float value : {1.0F, 2.0F}) ASSERT_OK(Write(writer, "full", value));
  Status sampled;
  std::thread sampler([&] { sampled = client.Sample("empty", 1, kPatience).status(); });
  EXPECT_TRUE(test::WaitUntil([&] {
    return InfoOf(client, "full").waiting_inserts == 1 && InfoOf(client, "empty").waiting_samples == 1;
  }));
  ASSERT_OK(client.RemoveTable("full", kPatience));
  ASSERT_OK(client.RemoveTable("empty", kPatience));
  sampler.join();
  EXPECT_THAT(sampled, kWasRemoved);
  EXPECT_THAT(writer.Flush(0, kPatience), StatusIs(StatusCode::kNotFound, HasSubstr("was removed")));
  writer.Close();
}

TEST_P(ClientTablesTest, WritersFindATableThatIsCreatedLater) {
  Start({MakeTable("t")});
  const Client client = Connect();
  auto unchecked = NewWriter(client);
  auto checked = client
                     .NewTrajectoryWriter({.chunking = {.num_keep_alive_refs = 1, .max_chunk_length = 1},
                                           .signatures = client.Signatures(kPatience).value()})
                     .value();
  EXPECT_THAT(Write(checked, "later", 0), StatusIs(StatusCode::kInvalidArgument, HasSubstr("'later'")));
  ASSERT_OK(client.CreateTable(MakeTable("later"), false, kPatience));
  ASSERT_OK(Write(checked, "later", 1));
  ASSERT_OK(checked.Flush(0, kPatience));
  ASSERT_OK(Write(unchecked, "later", 2));
  ASSERT_OK(unchecked.Flush(0, kPatience));
  EXPECT_EQ(InfoOf(client, "later").current_size, 2);
  checked.Close();
  unchecked.Close();
}

TEST_P(ClientTablesTest, AWriterThatOutlivesItsClientFindsATableThatIsCreatedLater) {
  Start({MakeTable("t")});
  auto writer = [&] {
    const Client client = Connect();
    return client
        .NewTrajectoryWriter({.chunking = {.num_keep_alive_refs = 1, .max_chunk_length = 1},
                              .signatures = client.Signatures(kPatience).value()})
        .value();
  }();
  const Client client = Connect();
  ASSERT_OK(client.CreateTable(MakeTable("later"), false, kPatience));
  ASSERT_OK(Write(writer, "later", 1));
  ASSERT_OK(writer.Flush(0, kPatience));
  EXPECT_EQ(InfoOf(client, "later").current_size, 1);
  writer.Close();
}

TEST_P(ClientTablesTest, AWriterContinuesWithATableThatIsCreatedAgain) {
  Start({MakeTable("t")});
  const Client client = Connect();
  auto writer = NewWriter(client);
  for (int round = 0; round < 3; ++round) {
    ASSERT_OK(client.CreateTable(MakeTable("again"), false, kPatience));
    ASSERT_OK(Write(writer, "again", static_cast<float>(round)));
    ASSERT_OK(writer.Flush(0, kPatience));
    EXPECT_THAT(SampleValues(client, "again", 1), ElementsAre(static_cast<float>(round)));
    ASSERT_OK(client.RemoveTable("again", kPatience));
  }
  writer.Close();
}

TEST_P(ClientTablesTest, LimitsChangeWhileTheTableIsInUse) {
  Start({MakeQueue("q", 1), MakeTable("t")});
  const Client client = Connect();
  auto writer = NewWriter(client);
  for (float value : {1.0F, 2.0F}) ASSERT_OK(Write(writer, "q", value));
  EXPECT_TRUE(test::WaitUntil([&] { return InfoOf(client, "q").waiting_inserts == 1; }));
  ASSERT_OK(client.ChangeTable(
      "q", {.max_size = 2, .max_age = 1h, .rate_limiter = RateLimiterOptions::Queue(2)}, kPatience));
  ASSERT_OK(writer.Flush(0, kPatience));
  EXPECT_EQ(InfoOf(client, "q").current_size, 2);
  EXPECT_EQ(InfoOf(client, "q").max_age_nanos, std::chrono::nanoseconds(1h).count());

  for (float value : {1.0F, 2.0F, 3.0F}) ASSERT_OK(Write(writer, "t", value));
  ASSERT_OK(writer.Flush(0, kPatience));
  ASSERT_OK(client.ChangeTable("t", {.max_size = 1, .max_times_sampled = 2}, kPatience));
  EXPECT_EQ(InfoOf(client, "t").current_size, 1);
  EXPECT_EQ(InfoOf(client, "t").evictions, 2);
  EXPECT_THAT(SampleValues(client, "t", 2), ElementsAre(3, 3));
  EXPECT_EQ(InfoOf(client, "t").current_size, 0);
  ASSERT_OK(client.ChangeTable("t", {.max_times_sampled = 0}, kPatience));
  EXPECT_EQ(InfoOf(client, "t").max_times_sampled, 0);

  EXPECT_THAT(client.ChangeTable("t", {.max_size = 0}, kPatience),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("max_size is 0")));
  EXPECT_THAT(client.ChangeTable("t", {.max_size = -3}, kPatience),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("max_size is -3")));
  EXPECT_THAT(client.ChangeTable("t", {.rate_limiter = RateLimiterOptions::MinSize(-2)}, kPatience),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("min_size_to_sample is -2")));
  EXPECT_THAT(client.ChangeTable("t", {.max_age = -1s}, kPatience),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("max_age")));
  EXPECT_THAT(client.ChangeTable("nowhere", {.max_size = 1}, kPatience), StatusIs(StatusCode::kNotFound));
  writer.Close();
}

TEST_P(ClientTablesTest, AQueueKeepsItsCapacityWhenItsItemsLeaveUnsampled) {
  Start({MakeQueue("q", 4)});
  const Client client = Connect();
  auto writer = NewWriter(client);
  for (float value : {1.0F, 2.0F, 3.0F, 4.0F}) ASSERT_OK(Write(writer, "q", value));
  ASSERT_OK(writer.Flush(0, kPatience));
  ASSERT_OK(
      client.ChangeTable("q", {.max_size = 2, .rate_limiter = RateLimiterOptions::Queue(2)}, kPatience));
  const TableInfo info = InfoOf(client, "q");
  EXPECT_EQ(info.cursor, 2);
  EXPECT_EQ(info.counters.uncounted_inserts, 2);
  EXPECT_EQ(client.Sample("q", 2, kPatience)->size(), 2);
  for (float value : {5.0F, 6.0F}) ASSERT_OK(Write(writer, "q", value));
  ASSERT_OK(writer.Flush(0, kPatience));
  EXPECT_EQ(InfoOf(client, "q").current_size, 2);
  writer.Close();
}

TEST_P(ClientTablesTest, OldItemsAreGone) {
  Start({MakeTable("t")});
  const Client client = Connect();
  TableOptions options = MakeTable("short");
  options.max_age = 50ms;
  ASSERT_OK(client.CreateTable(options, false, kPatience));
  auto writer = NewWriter(client);
  ASSERT_OK(Write(writer, "short", 1));
  ASSERT_OK(writer.Flush(0, kPatience));
  EXPECT_TRUE(test::WaitUntil([&] { return client.Info(kPatience)->stored_bytes == 0; }));
  EXPECT_EQ(InfoOf(client, "short").aged_out, 1);
  writer.Close();
}

TEST_P(ClientTablesTest, CheckpointsFollowTheTables) {
  const ScopedFolder folder;
  const auto start = [&](RestoreOptions restore = {}) {
    ServerOptions options;
    options.tables = {MakeTable("given")};
    SetEndpoint(&options);
    options.checkpoint = CheckpointOptions{.path = folder.path()};
    options.checkpoint->restore = std::move(restore);
    server_.reset();
    return Server::Start(std::move(options));
  };
  server_.emplace(start().value());
  {
    const Client client = Connect();
    auto writer = NewWriter(client);
    ASSERT_OK(client.CreateTable(MakeTable("more"), false, kPatience));
    ASSERT_OK(client.CreateTable(MakeTable("less"), false, kPatience));
    ASSERT_OK(Write(writer, "more", 1));
    ASSERT_OK(writer.Flush(0, kPatience));
    ASSERT_OK(client.Checkpoint(kPatience));
    // A new table of the same name must not inherit pages that were written for the old one.
    ASSERT_OK(client.RemoveTable("more", kPatience));
    ASSERT_OK(client.RemoveTable("less", kPatience));
    ASSERT_OK(client.CreateTable(MakeTable("more"), false, kPatience));
    ASSERT_OK(Write(writer, "more", 2));
    ASSERT_OK(writer.Flush(0, kPatience));
    ASSERT_OK(client.Checkpoint(kPatience));
    writer.Close();
  }
  server_.emplace(start().value());
  {
    const Client client = Connect();
    EXPECT_THAT(Names(client), ElementsAre("given", "more"));
    EXPECT_THAT(SampleValues(client, "more", 1), ElementsAre(2));
    ASSERT_OK(client.Checkpoint(kPatience));
  }
  // It is still one that a client created.
  server_.emplace(start().value());
  EXPECT_THAT(Names(Connect()), ElementsAre("given", "more"));
  server_.emplace(start({.extra_tables = RestoreOptions::ExtraTables::kDrop}).value());
  EXPECT_THAT(Names(Connect()), ElementsAre("given"));
}

// ThreadSanitizer checks this test too.
TEST_P(ClientTablesTest, TablesChangeUnderWritersSamplersAndCheckpoints) {
  constexpr int kRounds = 30;
  const ScopedFolder folder;
  ServerOptions options;
  options.tables = {MakeTable("stays")};
  SetEndpoint(&options);
  options.checkpoint = CheckpointOptions{.path = folder.path()};
  server_.emplace(Server::Start(std::move(options)).value());
  std::atomic<bool> is_over = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      const Client client = Connect();
      while (!is_over) {
        auto writer = NewWriter(client);
        for (float value = 0; value < 20 && !is_over; ++value) {
          if (!Write(writer, "comes and goes", value).ok() || !Write(writer, "stays", value).ok()) break;
        }
        (void)writer.Flush(0, {.timeout = 100ms});
        writer.Close();
      }
    });
    threads.emplace_back([&] {
      const Client client = Connect();
      while (!is_over) {
        (void)client.Sample("comes and goes", 3, {.timeout = 5ms});
        EXPECT_OK(client.Info(kPatience));
      }
    });
  }
  threads.emplace_back([&] {
    const Client client = Connect();
    while (!is_over) EXPECT_OK(client.Checkpoint(kPatience));
  });
  const Client client = Connect();
  for (int round = 0; round < kRounds; ++round) {
    TableOptions table = round % 2 == 0 ? MakeTable("comes and goes") : MakeQueue("comes and goes", 3);
    table.max_age = round % 3 == 0 ? 1ms : 0ms;
    ASSERT_OK(client.CreateTable(table, false, kPatience));
    ASSERT_OK(client.ChangeTable("comes and goes", {.max_size = 2, .max_age = 2ms}, kPatience));
    ASSERT_OK(client.ChangeTable("stays", {.max_size = 1 + round % 5}, kPatience));
    ASSERT_OK(client.RemoveTable("comes and goes", kPatience));
  }
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(Names(client), ElementsAre("stays"));
  ASSERT_OK(client.RemoveTable("stays", kPatience));
  EXPECT_TRUE(test::WaitUntil([&] { return client.Info(kPatience)->live_chunks == 0; }));
}

}  // namespace
}  // namespace reverb
