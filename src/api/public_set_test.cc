// Tests a client of several servers: shares of samples, keys and their servers, lost servers, writers that move.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/task_pool.h"
#include "reverb/client.h"
#include "reverb/log.h"
#include "reverb/server.h"
#include "testing/status_matchers.h"
#include "testing/wait.h"

namespace reverb {
namespace {

using namespace std::chrono_literals;
using test::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A folder in which servers register; removed at the end.
class RegistryFolderForTest {
 public:
  RegistryFolderForTest() { EXPECT_NE(mkdtemp(path_.data()), nullptr); }
  ~RegistryFolderForTest() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  std::string address() const { return "file://" + path_; }

 private:
  std::string path_ = ::testing::TempDir() + "/servers_XXXXXX";
};

// Collects what is logged.
class LogForTest {
 public:
  LogForTest() {
    SetLogSink([this](LogLevel, std::string_view message) {
      const std::lock_guard lock(mu_);
      text_ += std::string(message) + "\n";
    });
  }
  ~LogForTest() { SetLogSink({}); }
  std::string text() const {
    const std::lock_guard lock(mu_);
    return text_;
  }

 private:
  mutable std::mutex mu_;
  std::string text_;
};

// Waits for a call that should return by itself; ends it with CANCELLED otherwise.
WaitOptions WithPatience(Timeout timeout = {}, std::chrono::nanoseconds patience = 60s) {
  return {.timeout = timeout, .on_wait = [end = std::chrono::steady_clock::now() + patience] {
            return std::chrono::steady_clock::now() < end ? Status::Ok() : Status::Cancelled("lost patience");
          }};
}

class PublicSetTest : public ::testing::Test {
 protected:
  Server& Start(int port = 0, SelectorOptions sampler = SelectorOptions::Uniform(7)) {
    servers_.push_back(
        Server::Start({.tables = {{.name = "t", .sampler = sampler}}, .host = "127.0.0.1", .port = port})
            .value());
    return servers_.back();
  }
  Server& StartIn(const RegistryFolderForTest& folder) {
    servers_.push_back(
        Server::Start(
            {.tables = {{.name = "t"}}, .host = "127.0.0.1", .port = 0, .register_at = folder.address()})
            .value());
    return servers_.back();
  }
  static uint64_t FirstKey(const Server& server) {
    uint64_t cursor = 0;
    return server.in_process_client().Inspect("t", 1, &cursor).value().front().key();
  }
  static std::string AddressOf(const Server& server) { return "127.0.0.1:" + std::to_string(server.port()); }
  Client ConnectAll(ClientOptions options = {}) {
    std::string addresses;
    for (const Server& server : servers_) addresses += (addresses.empty() ? "" : ",") + AddressOf(server);
    options.in_process = false;
    return Client::Connect(addresses, options).value();
  }
  static void Fill(const Server& server, int count, double priority = 1) {
    auto writer = server.in_process_client().NewWriter({.max_sequence_length = 1}).value();
    Write(&writer, 0, count, priority);
    ASSERT_OK(writer.Flush());
  }
  static void Write(Writer* writer, int64_t from, int64_t to, double priority = 1) {
    for (int64_t i = from; i < to; ++i) {
      const TensorView value{.dtype = DType::kInt64, .dims = {}, .data = &i};
      ASSERT_OK(writer->Append({&value, 1}));
      ASSERT_OK(writer->CreateItem("t", 1, priority));
    }
  }

  std::vector<Server> servers_;
};

TEST_F(PublicSetTest, SamplesAreThoseOfOneTable) {
  servers_.reserve(2);
  Fill(Start(), 100);
  Fill(Start(), 900);
  const Client client = ConnectAll();
  EXPECT_EQ(client.num_servers(), 2);
  auto sampler = client.NewSampler({.table = "t", .batch_size = 100}).value();
  Batch batch;
  // A server that takes long to answer first is left out until then.
  ASSERT_TRUE(test::WaitUntil([&] {
    EXPECT_OK(sampler.NextBatch(100, &batch, {.timeout = 60s}));
    return batch.info.table_sizes[0] == 1000;
  }));
  std::map<uint64_t, int> by_shard;
  for (int i = 0; i < 100; ++i) {
    ASSERT_OK(sampler.NextBatch(100, &batch, {.timeout = 60s}));
    for (size_t k = 0; k < 100; ++k) {
      ++by_shard[batch.info.keys[k] >> 48];
      ASSERT_NEAR(batch.info.probabilities[k], 0.001, 1e-12);
      ASSERT_EQ(batch.info.table_sizes[k], 1000);
    }
  }
  EXPECT_NEAR(by_shard[static_cast<uint64_t>(servers_[0].shard())], 1000, 180);
  EXPECT_NEAR(by_shard[static_cast<uint64_t>(servers_[1].shard())], 9000, 180);
  EXPECT_EQ(client.Info({.timeout = 60s}).value().tables[0].current_size, 1000);
}

TEST_F(PublicSetTest, ABatchWaitsForTheServersThatMakeItsSharesSmallEnough) {
  for (const bool is_leased : {false, true}) {
    servers_.clear();
    servers_.reserve(2);
    for (int i = 0; i < 2; ++i) {
      servers_.push_back(
          Server::Start({.tables = {TableOptions::Queue("t", 4)}, .host = "127.0.0.1", .port = 0}).value());
    }
    Fill(servers_[0], 4);
    const Client client = ConnectAll();
    SamplerOptions options{.table = "t", .batch_size = 8, .all_or_nothing = !is_leased};
    if (is_leased) options.lease = 8s;  // a part that others lack is returned after half of it
    auto sampler = client.NewSampler(options).value();
    Batch batch;
    EXPECT_THAT(sampler.NextBatch(8, &batch, {.timeout = 300ms}),
                StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("together")));
    EXPECT_EQ(servers_[0].table("t").value().size(), 4) << "nothing was taken";
    Fill(servers_[1], 4);
    ASSERT_OK(sampler.NextBatch(8, &batch, {.timeout = 60s}));
    std::map<uint64_t, int> by_shard;
    for (const uint64_t key : batch.info.keys) ++by_shard[key >> 48];
    EXPECT_EQ(by_shard[static_cast<uint64_t>(servers_[0].shard())], 4);
  }
}

TEST_F(PublicSetTest, UpdatesAndDeletesGoToTheServerOfTheKey) {
  servers_.reserve(2);
  for (int i = 0; i < 2; ++i) Fill(Start(), 3);
  const Client client = ConnectAll();
  ASSERT_EQ(client.InfoOfEach({.timeout = 60s}).size(), 2u);  // the shards are known now
  uint64_t cursor = 0;
  const uint64_t key = servers_[1].in_process_client().Inspect("t", 1, &cursor).value().front().key();
  EXPECT_EQ(key >> 48, static_cast<uint64_t>(servers_[1].shard()));
  const KeyPriority update{key, 5};
  ASSERT_OK(client.UpdatePriorities("t", {&update, 1}, {.timeout = 60s}));
  ASSERT_OK(client.Delete("t", {&key, 1}, {.timeout = 60s}));
  EXPECT_EQ(servers_[0].in_process_client().Info().value().tables[0].unknown_keys, 0);
  EXPECT_EQ(servers_[1].table("t").value().size(), 2);
  // A key without a shard may be on any of them.
  const uint64_t own = 17;
  ASSERT_OK(client.Delete("t", {&own, 1}, {.timeout = 60s}));
  for (const Server& server : servers_) {
    EXPECT_EQ(server.in_process_client().Info().value().tables[0].unknown_keys, 1);
  }
}

TEST_F(PublicSetTest, CallsReuseThreads) {
  servers_.reserve(4);
  for (int i = 0; i < 4; ++i) Fill(Start(), 1);
  const Client client = ConnectAll();
  ASSERT_OK(client.Info({.timeout = 60s}));
  std::vector<KeyPriority> updates;
  for (const Server& server : servers_) updates.push_back({FirstKey(server), 5});
  const int64_t before = internal::ProcessTaskPool().num_started();
  for (int i = 0; i < 1000; ++i) ASSERT_OK(client.UpdatePriorities("t", updates, {.timeout = 60s}));
  for (const Server& server : servers_) {
    EXPECT_EQ(server.in_process_client().Info().value().tables[0].updates, 1000);
  }
  EXPECT_LE(internal::ProcessTaskPool().num_started() - before, 100) << "of 3000 calls on other threads";
}

TEST_F(PublicSetTest, UpdatesForALostServerAreDroppedOrFail) {
  servers_.reserve(2);
  for (int i = 0; i < 2; ++i) Fill(Start(), 3);
  const Client client = ConnectAll();
  const Client strict = ConnectAll({.lost_updates = LostUpdates::kRaise});
  for (const Client& each : {client, strict}) ASSERT_EQ(each.InfoOfEach({.timeout = 60s}).size(), 2u);
  uint64_t cursor = 0;
  std::vector<KeyPriority> updates;
  for (const Server& server : servers_) {
    cursor = 0;
    updates.push_back({server.in_process_client().Inspect("t", 1, &cursor).value().front().key(), 5});
  }
  servers_[0].Stop();
  EXPECT_OK(client.UpdatePriorities("t", updates));
  EXPECT_EQ(client.dropped_updates(), 1);
  EXPECT_EQ(servers_[1].in_process_client().Info().value().tables[0].updates, 1);
  EXPECT_THAT(
      strict.UpdatePriorities("t", updates, {.timeout = 2s}).message(),
      AllOf(HasSubstr("1 of the 2 servers that were called failed"),
            HasSubstr("have done it (" + AddressOf(servers_[1]) + ")"), HasSubstr(AddressOf(servers_[0]))));
  EXPECT_EQ(strict.dropped_updates(), 0);
}

TEST_F(PublicSetTest, UpdatesForAServerKnownToBeLostFailAtOnce) {
  servers_.reserve(2);
  for (int i = 0; i < 2; ++i) Fill(Start(), 3);
  const Client client = ConnectAll({.lost_updates = LostUpdates::kRaise, .lost_server_timeout = 1h});
  ASSERT_OK(client.Info({.timeout = 60s}));
  const KeyPriority update{FirstKey(servers_[0]), 5};
  servers_[0].Stop();
  EXPECT_THAT(client.UpdatePriorities("t", {&update, 1}, {.timeout = 1s}).message(),
              HasSubstr(AddressOf(servers_[0])));
  EXPECT_THAT(client.UpdatePriorities("t", {&update, 1}, WithPatience()),
              StatusIs(StatusCode::kUnavailable, HasSubstr(AddressOf(servers_[0]))));
}

TEST_F(PublicSetTest, TimeoutsDoNotAddUpOverServers) {
  std::string closed;
  for (int port = 1; port <= 8; ++port) closed += "127.0.0.1:" + std::to_string(port) + ",";
  const Client none = Client::Connect(closed + "127.0.0.1:9", {.in_process = false}).value();
  EXPECT_THAT(none.InfoOfOne(WithPatience(500ms, 4s)).status(), StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_THAT(none.Transports(WithPatience(500ms, 4s)).status(), StatusIs(StatusCode::kDeadlineExceeded));
  // Each server gets a share of the time, so that those that do not answer do not use all of it.
  const Client client = Client::Connect("127.0.0.1:1," + AddressOf(Start()), {.in_process = false}).value();
  EXPECT_OK(client.InfoOfOne({.timeout = 4s}));
}

TEST_F(PublicSetTest, AWaitForTheFirstServerIsLoggedWithTheAddress) {
  const RegistryFolderForTest folder;
  const LogForTest log;
  SetWaitLogAfter(1ms);
  const Client client =
      Client::Connect(folder.address(), {.reconnect_timeout = 200ms, .in_process = false}).value();
  EXPECT_THAT(client.Info().status(), StatusIs(StatusCode::kUnavailable, HasSubstr(folder.address())));
  EXPECT_THAT(client.Info({.timeout = 100ms}).status(),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr(folder.address())));
  SetWaitLogAfter(2s);
  EXPECT_THAT(log.text(), AllOf(HasSubstr("still waiting for a server"), HasSubstr(folder.address())));
}

TEST_F(PublicSetTest, InvalidAddressesOfSetsAreRejected) {
  for (const char* address : {"dns:///a:1,b:1", "dns:///a:65536", "dns:///a:0", "dns:///a", "dns:a:1"}) {
    EXPECT_THAT(Client::Connect(address).status(),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("dns:///name:port")))
        << address;
  }
}

TEST_F(PublicSetTest, AWriterMovesWhenItsServerIsLost) {
  servers_.reserve(2);
  for (int i = 0; i < 2; ++i) Start(0, SelectorOptions::Fifo());
  const Client client = ConnectAll({.lost_server_timeout = 200ms});
  auto writer = client.NewWriter({.max_sequence_length = 1}).value();
  Write(&writer, 0, 5);
  ASSERT_OK(writer.Flush({.timeout = 60s}));
  const size_t home = servers_[0].table("t").value().size() == 5 ? 0 : 1;
  servers_[home].Stop();
  Write(&writer, 5, 20);
  ASSERT_OK(writer.Flush({.timeout = 60s}));
  const Table other = servers_[1 - home].table("t").value();
  EXPECT_EQ(other.size(), 15);
  uint64_t cursor = 0;
  for (const SampledTrajectory& item :
       servers_[1 - home].in_process_client().Inspect("t", 100, &cursor).value()) {
    EXPECT_EQ(item.key() >> 48, static_cast<uint64_t>(servers_[1 - home].shard()));
  }
  // Single inserts and new writers use the server that is left.
  const int64_t one = 1;
  const TensorView step{.dtype = DType::kInt64, .dims = {}, .data = &one};
  const Client::TablePriority into{"t", 1.0};
  for (int i = 0; i < 3; ++i) ASSERT_OK(client.Insert({&step, 1}, {&into, 1}, {.timeout = 60s}));
  EXPECT_EQ(other.size(), 18);
}

TEST_F(PublicSetTest, ALostServerDoesNotDelayTheAcksOfOthers) {
  servers_.reserve(2);
  for (int i = 0; i < 2; ++i) Fill(Start(0, SelectorOptions::Fifo()), 8);
  const Client client = ConnectAll();
  auto sampler = client.NewSampler({.table = "t", .lease = 2s}).value();
  Batch batch;
  ASSERT_OK(sampler.NextBatch(16, &batch, {.timeout = 60s}));
  servers_[0].Stop();
  EXPECT_OK(sampler.AckPrevious());
  const LeaseCounts leases = servers_[1].table("t").value().Info().leases;
  EXPECT_EQ(leases.acknowledged, 8);
  EXPECT_EQ(leases.expired, 0);
}

TEST_F(PublicSetTest, ALostServerDoesNotEndSampling) {
  servers_.reserve(2);
  for (int i = 0; i < 2; ++i) Fill(Start(0, SelectorOptions::Fifo()), 8);
  const Client client = ConnectAll();
  auto sampler = client.NewSampler({.table = "t", .lease = 3s}).value();
  Batch batch;
  ASSERT_OK(sampler.NextBatch(16, &batch, {.timeout = 60s}));
  servers_[0].Stop();
  // Reports that the acknowledgement fails, until the lease has ended, and continues with the other server.
  EXPECT_THAT(sampler.AckPrevious({.timeout = 100ms}), StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_TRUE(test::WaitUntil([&] { return sampler.NextBatch(4, &batch, {.timeout = 1s}).ok(); }));
  EXPECT_OK(batch.info.lease.Release({.timeout = 60s}));
  const LeaseCounts leases = servers_[1].table("t").value().Info().leases;
  EXPECT_EQ(leases.acknowledged, 8) << "once";
  EXPECT_EQ(leases.late, 0);
}

TEST_F(PublicSetTest, ABatchNeverHasAnItemTwice) {
  servers_.reserve(2);
  for (int i = 0; i < 2; ++i) Fill(Start(0, SelectorOptions::Fifo()), 4);
  const Client client = ConnectAll();
  auto sampler = client.NewSampler({.table = "t", .lease = 300ms, .auto_ack = false}).value();
  Batch batch;
  EXPECT_THAT(sampler.NextBatch(16, &batch, {.timeout = 1500ms}), StatusIs(StatusCode::kDeadlineExceeded))
      << "8 items cannot fill it";
  sampler.Close();
  // Time enough to collect all items of both tables.
  sampler = client.NewSampler({.table = "t", .lease = 20s, .auto_ack = false}).value();
  ASSERT_OK(sampler.NextBatch(8, &batch, {.timeout = 60s}));
  EXPECT_EQ(std::set<uint64_t>(batch.info.keys.begin(), batch.info.keys.end()).size(), 8u);
}

TEST_F(PublicSetTest, LeasesOfAServerThatLeftTheSetCanBeAcknowledged) {
  servers_.reserve(2);
  for (int i = 0; i < 2; ++i) Fill(Start(0, SelectorOptions::Fifo()), 8);
  const Client client =
      Client::Connect(AddressOf(servers_[0]) + "," + AddressOf(servers_[1]), {.in_process = false}).value();
  auto sampler = client.NewSampler({.table = "t", .lease = 1h, .auto_ack = false}).value();
  Batch batch;
  ASSERT_OK(sampler.NextBatch(16, &batch, {.timeout = 60s}));
  ASSERT_OK(client.SetServers({AddressOf(servers_[1])}));
  EXPECT_THAT(batch.info.lease.Ack({.timeout = 60s}), test::IsOkAndHolds(LeaseOutcome{.settled = 16}));
  for (const Server& server : servers_) {
    EXPECT_EQ(server.table("t").value().Info().leases.acknowledged, 8);
  }
}

TEST_F(PublicSetTest, ServersAreFoundInAFolder) {
  const RegistryFolderForTest folder;
  const Client client = Client::Connect(folder.address(), {.in_process = false}).value();
  const Client strict =
      Client::Connect(folder.address(), {.in_process = false, .lost_updates = LostUpdates::kRaise}).value();
  EXPECT_EQ(client.num_servers(), 0);
  EXPECT_THAT(client.Info({.timeout = 10ms}).status(),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("no server of the set")));
  servers_.reserve(2);
  for (int i = 0; i < 2; ++i) {
    Fill(StartIn(folder), 10);
    for (const Client& each : {client, strict}) {
      EXPECT_TRUE(test::WaitUntil([&] { return each.num_servers() == i + 1; }));
    }
  }
  EXPECT_EQ(client.Info({.timeout = 60s}).value().tables[0].current_size, 20);
  ASSERT_OK(strict.Info({.timeout = 60s}));
  const std::vector<KeyPriority> updates{{FirstKey(servers_[0]), 5}, {FirstKey(servers_[1]), 5}};
  const std::string former = AddressOf(servers_[0]);
  servers_[0].Stop();
  for (const Client& each : {client, strict}) {
    EXPECT_TRUE(test::WaitUntil([&] { return each.num_servers() == 1; })) << "it has left the folder";
  }
  EXPECT_EQ(client.Info({.timeout = 60s}).value().tables[0].current_size, 10);
  // The items of the server that has left are gone with it.
  EXPECT_OK(client.UpdatePriorities("t", updates, {.timeout = 60s}));
  EXPECT_EQ(client.dropped_updates(), 1);
  EXPECT_THAT(strict.UpdatePriorities("t", updates, {.timeout = 60s}),
              StatusIs(StatusCode::kUnavailable, HasSubstr("the server at " + former +
                                                           ", which has 1 of the items, has left the set")));
  const TableInfo rest = servers_[1].in_process_client().Info().value().tables[0];
  EXPECT_EQ(rest.updates, 2);
  EXPECT_EQ(rest.unknown_keys, 0);
  servers_.clear();
}

TEST_F(PublicSetTest, AnInvalidRegistrationIsSkipped) {
  const RegistryFolderForTest folder;
  const LogForTest log;
  std::ofstream(folder.path() + "/0.server") << "reverb server 1\naddress myhost\nshard 1\nlife 0\nend\n";
  const Server& server = StartIn(folder);
  const Client client = Client::Connect(folder.address(), {.in_process = false}).value();
  ASSERT_EQ(client.num_servers(), 1);
  EXPECT_EQ(client.InfoOfEach({.timeout = 60s}).front().address, AddressOf(server));
  EXPECT_THAT(log.text(), HasSubstr("\"myhost\" has no port"));
}

TEST_F(PublicSetTest, AServerAdvertisesOnlyAnAddressThatClientsCanUse) {
  const RegistryFolderForTest folder;
  for (const char* address : {"myhost", "my host:8000", "a:8000\nshard 2\nx:1", "a:1,b:1"}) {
    EXPECT_THAT(Server::Start({.tables = {{.name = "t"}},
                               .host = "127.0.0.1",
                               .port = 0,
                               .register_at = folder.address(),
                               .advertised_address = address})
                    .status(),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("advertised_address")));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST_F(PublicSetTest, UpdatesDoNotGoToAServerThatWasNeverReached) {
  Fill(Start(), 3);
  const std::string addresses = AddressOf(servers_[0]) + ",127.0.0.1:1";
  for (const LostUpdates lost_updates : {LostUpdates::kRaise, LostUpdates::kDrop}) {
    const Client client =
        Client::Connect(addresses, {.in_process = false, .lost_updates = lost_updates}).value();
    const KeyPriority update{client.Sample("t", 1, {.timeout = 60s}).value().front().key(), 5};
    EXPECT_OK(client.UpdatePriorities("t", {&update, 1}, {.timeout = 60s}));
    EXPECT_EQ(client.dropped_updates(), 0);
  }
  EXPECT_EQ(servers_[0].in_process_client().Info().value().tables[0].updates, 2);
}

TEST_F(PublicSetTest, ServersCanBeReplacedOnlyInASet) {
  const Server& server = Start();
  const Client one = ConnectAll();
  EXPECT_THAT(one.SetServers({"127.0.0.1:1"}), StatusIs(StatusCode::kFailedPrecondition));
  const Client set = Client::Connect("", {.servers_may_change = true}).value();
  EXPECT_EQ(set.num_servers(), 0);
  EXPECT_THAT(set.SetServers({AddressOf(server), ""}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_EQ(set.num_servers(), 0);
  ASSERT_OK(set.SetServers({AddressOf(server)}));
  EXPECT_OK(set.Info({.timeout = 60s}));
}

TEST_F(PublicSetTest, InvalidShardsAreRejected) {
  for (const int shard : {0, -1, 65536}) {
    EXPECT_THAT(Server::Start({.tables = {{.name = "t"}}, .port = std::nullopt, .shard = shard}).status(),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("shard is " + std::to_string(shard))));
  }
}

}  // namespace
}  // namespace reverb
