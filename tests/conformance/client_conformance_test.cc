// Tests the C++ API over every transport: writers, single operations, concurrent clients, server restarts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "conformance/client_fixture.h"
#include "conformance/transports.h"
#include "reverb/client.h"
#include "reverb/server.h"
#include "testing/effort.h"
#include "testing/status_matchers.h"

namespace reverb {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using test::Floats;
using test::kPatience;
using test::MakeQueue;
using test::MakeTable;
using test::StatusIs;
using test::ToVector;
using test::Transport;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ClientConformanceTest : public test::ClientFixture {};
INSTANTIATE_TEST_SUITE_P(Transports, ClientConformanceTest, REVERB_ALL_TRANSPORTS, test::TransportName);

// --- Writers ---

TEST_P(ClientConformanceTest, TrajectoriesComeBackAsTheyWereWritten) {
  Start({MakeQueue("t", 100)});
  const Client client = Connect();
  auto writer = NewWriter(client, 4, 3);
  std::vector<std::vector<float>> observations;
  for (int step = 0; step < 10; ++step) {
    std::vector<float> values(6);
    std::iota(values.begin(), values.end(), static_cast<float>(step * 10));
    const Floats obs({2, 3}, values);
    const Floats action(static_cast<float>(step));
    ASSERT_OK(writer.Append(std::array{ColumnValue{0, obs.view()}, ColumnValue{1, action.view()}}));
    observations.push_back(values);
    if (step < 3) continue;
    const int64_t end = writer.position();
    const CellRange last4{0, end - 4, end};
    const CellRange newest = CellRange::One(1, end - 1);
    const CellRange backwards{1, end - 1, end - 4, -1};
    ASSERT_OK(writer.CreateItem(
        "t", step,
        std::array{ItemColumn{{&last4, 1}}, ItemColumn{{&newest, 1}, true}, ItemColumn{{&backwards, 1}}}));
  }
  ASSERT_OK(writer.EndEpisode(true, kPatience));

  auto sampler = client.NewSampler({.table = "t", .max_samples = 7}).value();
  for (int step = 3; step < 10; ++step) {
    auto sample = sampler.Next(kPatience);
    ASSERT_OK(sample);
    EXPECT_EQ(sample->priority(), step);
    ASSERT_EQ(sample->num_columns(), 3u);
    const Tensor obs = sample->column(0).value();
    EXPECT_THAT(obs.dims(), ElementsAre(4, 2, 3));
    std::vector<float> expected;
    for (int s = step - 3; s <= step; ++s)
      expected.insert(expected.end(), observations[s].begin(), observations[s].end());
    EXPECT_EQ(ToVector(obs), expected);
    const Tensor action = sample->column(1).value();
    EXPECT_THAT(action.dims(), ElementsAre());
    EXPECT_THAT(ToVector(action), ElementsAre(step));
    EXPECT_THAT(ToVector(sample->column(2).value()), ElementsAre(step, step - 1, step - 2));
  }
  EXPECT_THAT(sampler.Next(kPatience), StatusIs(StatusCode::kOutOfRange));
}

TEST_P(ClientConformanceTest, SequencesAndStacksComeBackAsTheyWereWritten) {
  Start({MakeQueue("t", 100)});
  const Client client = Connect();
  auto writer = client.NewTrajectoryWriter({.chunking = {.num_keep_alive_refs = 500}}).value();
  std::vector<float> values(300);
  std::iota(values.begin(), values.end(), 0.0f);
  ASSERT_OK(writer.AppendSequence(std::array{ColumnValue{0, Floats({300}, values).view()}}));
  const CellRange all{0, 0, 300}, few{0, 120, 124};
  const std::vector<CellRange> first = writer.Stack(0, 4, 2).value(), last = writer.Stack(0, 4).value();
  ASSERT_OK(writer.CreateItem("t", 1.0, std::array{ItemColumn{{&few, 1}}, ItemColumn{last}}));
  ASSERT_OK(writer.CreateItem("t", 2.0, std::array{ItemColumn{{&all, 1}}, ItemColumn{first}}));
  ASSERT_OK(writer.EndEpisode(true, kPatience));

  auto sampler = client.NewSampler({.table = "t", .max_samples = 2}).value();
  auto sample = sampler.Next(kPatience);
  ASSERT_OK(sample);
  EXPECT_THAT(ToVector(sample->column(0).value()), ElementsAre(120, 121, 122, 123));
  EXPECT_THAT(ToVector(sample->column(1).value()), ElementsAre(296, 297, 298, 299));
  sample = sampler.Next(kPatience);
  ASSERT_OK(sample);
  EXPECT_EQ(ToVector(sample->column(0).value()), values);
  EXPECT_THAT(ToVector(sample->column(1).value()), ElementsAre(0, 0, 0, 1));
}

TEST_P(ClientConformanceTest, OneThreadWritesFarBeyondTheLimiterAndThenSamples) {
  Start({MakeQueue("q", 10)});
  const Client client = Connect();
  auto writer = NewWriter(client);
  for (int i = 0; i < 10'000; ++i) ASSERT_OK(Write(writer, "q", static_cast<float>(i)));
  auto sampler = client.NewSampler({.table = "q", .max_samples = 10'000}).value();
  for (int i = 0; i < 10'000; ++i) {
    auto sample = sampler.Next(kPatience);
    ASSERT_OK(sample) << i;
    ASSERT_THAT(ToVector(sample->column(0).value()), ElementsAre(i));
  }
  EXPECT_OK(writer.Flush(0, kPatience));
}

TEST_P(ClientConformanceTest, AFullTableDoesNotDelayItemsForOtherTables) {
  Start({MakeQueue("full", 1), MakeTable("empty")});
  const Client client = Connect();
  auto writer = NewWriter(client);
  for (int i = 0; i < 2; ++i) ASSERT_OK(Write(writer, "full", 1));
  while (table("full").Info().waiting_inserts == 0) std::this_thread::yield();
  ASSERT_OK(Write(writer, "empty", 1));
  // Succeeds without a flush.
  ASSERT_OK(client.Sample("empty", 1, kPatience));
  ASSERT_OK(Write(writer, "empty", 2));
  while (table("empty").size() < 2) std::this_thread::yield();
  writer.Close();
}

TEST_P(ClientConformanceTest, FlushLeavesTheRequestedNumberOfItemsPending) {
  Start({MakeQueue("q", 10)});
  const Client client = Connect();
  auto writer = NewWriter(client);
  for (int i = 0; i < 50; ++i) ASSERT_OK(Write(writer, "q", 1));
  EXPECT_OK(writer.Flush(40, kPatience));
  EXPECT_EQ(table("q").size(), 10);
  const Status late = writer.Flush(39, {.timeout = 1500ms});
  EXPECT_THAT(late, StatusIs(StatusCode::kDeadlineExceeded, StartsWith("Timeout exceeded")));
  EXPECT_THAT(std::string(late.message()), HasSubstr("\"q\"")) << "it says what it waits for";
  writer.Close();
  EXPECT_THAT(writer.Flush(), StatusIs(StatusCode::kCancelled, HasSubstr("Close has been called")));
}

TEST_P(ClientConformanceTest, AWaitCanBeCancelled) {
  Start({MakeQueue("q", 1)});
  const Client client = Connect();
  auto writer = NewWriter(client);
  for (int i = 0; i < 3; ++i) ASSERT_OK(Write(writer, "q", 1));
  int calls = 0;
  const WaitOptions give_up{.on_wait = [&calls] {
    return ++calls < 3 ? Status::Ok() : Status::Cancelled("the user pressed a key");
  }};
  EXPECT_THAT(writer.Flush(0, give_up), StatusIs(StatusCode::kCancelled, HasSubstr("pressed a key")));
  auto sampler = client.NewSampler({.table = "q"}).value();
  ASSERT_OK(sampler.Next(kPatience));
  writer.Close();
}

TEST_P(ClientConformanceTest, UnconfirmedBytesAreBounded) {
  Start({MakeQueue("q", 1)});
  const Client client = Connect({.write_window_bytes = 1 << 20});
  auto writer = client
                    .NewTrajectoryWriter({.chunking = {.num_keep_alive_refs = 1, .max_chunk_length = 1},
                                          .compression = Compression::kNone,
                                          .wait_for_room = {.timeout = 100ms}})
                    .value();
  const Floats large({25'000}, std::vector<float>(25'000, 1.0f));  // 100 kB
  int created = 0;
  Status status;
  while (status.ok() && created < 100) {
    ASSERT_OK(writer.Append(std::array{ColumnValue{0, large.view()}}));
    const CellRange newest = CellRange::One(0, writer.position() - 1);
    status = writer.CreateItem("q", 1.0, std::array{ItemColumn{{&newest, 1}}});
    created += status.ok();
  }
  EXPECT_THAT(status, StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("window")));
  EXPECT_GE(created, 10);
  EXPECT_LE(created, 13);
  writer.Close();
}

TEST_P(ClientConformanceTest, ARejectedItemIsReported) {
  auto per = MakeTable("per");
  per.sampler = SelectorOptions::Prioritized(1.0);
  Start({per});
  const Client client = Connect();
  auto writer = NewWriter(client);
  ASSERT_OK(Write(writer, "per", 1));
  ASSERT_OK(writer.Flush(0, kPatience));
  (void)Write(writer, "per", 2, -5.0);
  const Status refused = writer.Flush(0, kPatience);
  EXPECT_THAT(refused, StatusIs(StatusCode::kInvalidArgument, HasSubstr("for table \"per\" was rejected")));
  EXPECT_THAT(refused,
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("it was item 2 of this writer, which takes no more: make a new one")));
  EXPECT_THAT(Write(writer, "per", 3), StatusIs(StatusCode::kInvalidArgument))
      << "and again, until a new writer is made";
  auto other = NewWriter(client);
  (void)Write(other, "nowhere", 1);
  EXPECT_THAT(other.Flush(0, kPatience), StatusIs(StatusCode::kNotFound, HasSubstr("\"nowhere\"")));
  EXPECT_EQ(table("per").size(), 1);
}

TEST_P(ClientConformanceTest, TheOlderWriter) {
  Start({MakeQueue("t", 10)});
  const Client client = Connect();
  auto writer = client.NewWriter({.max_sequence_length = 3, .chunk_length = 2}).value();
  for (int i = 0; i < 5; ++i) {
    const Floats a(static_cast<float>(i));
    const Floats b({2}, {i + 0.5f, i + 0.25f});
    ASSERT_OK(writer.Append(std::array{a.view(), b.view()}));
    if (i >= 2) {
      ASSERT_OK(writer.CreateItem("t", 3, i));
    }
  }
  ASSERT_OK(writer.Close(kPatience));
  EXPECT_EQ(table("t").size(), 3);
  auto samples = client.Sample("t", 1, kPatience);
  ASSERT_OK(samples);
  EXPECT_THAT(ToVector((*samples)[0].column(0).value()), ElementsAre(0, 1, 2));
  EXPECT_THAT((*samples)[0].column(1)->dims(), ElementsAre(3, 2));
}

TEST_P(ClientConformanceTest, TheStructuredWriter) {
  Start({MakeQueue("t", 10)});
  const Client client = Connect();
  StructuredConfig config{
      .pattern = {{.source = 0, .start = -2}, {.source = 1, .stop = -1}}, .table = "t", .priority = 2.0};
  auto writer = client.NewStructuredWriter({.configs = {config}}).value();
  for (int i = 0; i < 4; ++i) {
    const Floats a(static_cast<float>(i)), b(static_cast<float>(-i));
    ASSERT_OK(writer.Append(std::array{std::optional(a.view()), std::optional(b.view())}));
  }
  ASSERT_OK(writer.EndEpisode(true, kPatience));
  auto samples = client.Sample("t", 3, kPatience);
  ASSERT_OK(samples);
  EXPECT_THAT(ToVector((*samples)[2].column(0).value()), ElementsAre(2, 3));
  EXPECT_THAT(ToVector((*samples)[2].column(1).value()), ElementsAre(-3));
  EXPECT_THAT((*samples)[2].column(1)->dims(), ElementsAre());
}

// --- Single operations ---

TEST_P(ClientConformanceTest, InsertSampleDelete) {
  Start({MakeTable("a"), MakeTable("b")});
  const Client client = Connect();
  for (int i = 0; i < 20; ++i) {
    const Floats x({3}, {1, 2, static_cast<float>(i)});
    ASSERT_OK(client.Insert(std::array{x.view()},
                            std::array{Client::TablePriority{"a", 1.0}, Client::TablePriority{"b", 2.0}},
                            kPatience));
  }
  const Floats other(3.0f);  // a different layout
  ASSERT_OK(client.Insert(std::array{other.view()}, std::array{Client::TablePriority{"a", 1.0}}, kPatience));
  const ServerInfo info = client.Info(kPatience).value();
  EXPECT_EQ(info.tables[0].current_size, 21);
  EXPECT_EQ(info.tables[1].current_size, 20);
  EXPECT_EQ(info.live_chunks, 21) << "data in two tables is kept once";
  EXPECT_EQ(info.tables[0].num_episodes, 21) << "each insert is an episode";
  auto samples = client.Sample("b", 3, kPatience);
  ASSERT_OK(samples);
  ASSERT_EQ(samples->size(), 3u);
  EXPECT_THAT((*samples)[0].column(0)->dims(), ElementsAre(1, 3));
  EXPECT_EQ((*samples)[0].priority(), 2.0);
  ASSERT_OK(client.Delete("b", std::array{(*samples)[0].key()}, kPatience));
  EXPECT_EQ(client.Info(kPatience)->tables[1].current_size, 19);
  ASSERT_OK(client.Reset("b", kPatience));
  EXPECT_EQ(client.Info(kPatience)->tables[1].current_size, 0);
  EXPECT_THAT(client.Insert(std::array{other.view()}, {}, kPatience), StatusIs(StatusCode::kInvalidArgument));
}

TEST_P(ClientConformanceTest, SingleOperationsObeyTheirTimeout) {
  Start({MakeQueue("q", 1)});
  const Client client = Connect();
  const Floats x(1.0f);
  const std::array tables{Client::TablePriority{"q", 1.0}};
  ASSERT_OK(client.Insert(std::array{x.view()}, tables, kPatience));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(client.Insert(std::array{x.view()}, tables, {.timeout = 30ms}),
              StatusIs(StatusCode::kDeadlineExceeded));
  // Long enough for the server to answer: the item has been drawn by then.
  EXPECT_THAT(client.Sample("q", 100, {.timeout = 1s}),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("had been drawn")));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
}

TEST_P(ClientConformanceTest, AnInsertThatWaitsEndsWithItsServer) {
  Start({MakeQueue("q", 1)});
  const Client client = Connect({.reconnect_timeout = 50ms});  // otherwise it would wait for another server
  const Floats x(1.0f);
  const std::array tables{Client::TablePriority{"q", 1.0}};
  ASSERT_OK(client.Insert(std::array{x.view()}, tables, kPatience));
  Status status;
  std::thread waiter([&] { status = client.Insert(std::array{x.view()}, tables, kPatience); });
  while (client.Info(kPatience)->tables[0].waiting_inserts == 0) std::this_thread::yield();
  server_->Stop();
  waiter.join();
  EXPECT_THAT(status, StatusIs(StatusCode::kUnavailable,
                               HasSubstr(in_process() ? "shutting down" : "could not be reached")));
}

// --- Concurrency ---

TEST_P(ClientConformanceTest, ManyWritersAndSamplersUnderARatio) {
  const int kWriters = 4, kSamplers = 3;
  const auto items = static_cast<int>(test::Effort(2000, 500));
  const int64_t total = int64_t{kWriters} * items;
  auto replay = MakeTable("r");
  replay.sampler = SelectorOptions::Uniform();
  replay.rate_limiter = RateLimiterOptions::SampleToInsertRatio(2.0, 10, 100.0).value();
  Start({replay});
  std::vector<std::thread> threads;
  std::atomic<int64_t> sampled{0};
  std::atomic<int> writing{kWriters};
  for (int w = 0; w < kWriters; ++w) {
    threads.emplace_back([&, w] {
      const Client client = Connect();
      auto writer = NewWriter(client, 3, 2);
      for (int i = 0; i < items; ++i) ASSERT_OK(Write(writer, "r", static_cast<float>(w * items + i)));
      ASSERT_OK(writer.EndEpisode(true, kPatience));
      --writing;
    });
  }
  for (int s = 0; s < kSamplers; ++s) {
    threads.emplace_back([&, s] {
      const Client client = Connect();
      auto sampler =
          client.NewSampler({.table = "r", .exact = s % 2 == 0, .rate_limiter_timeout = 200ms}).value();
      while (true) {
        const auto sample = sampler.Next(kPatience);
        if (!sample.ok()) {
          ASSERT_THAT(sample, StatusIs(StatusCode::kDeadlineExceeded, Detail::kRateLimited));
          if (writing == 0) return;
          sampler = client.NewSampler({.table = "r", .rate_limiter_timeout = 200ms}).value();
          continue;
        }
        const std::vector<float> value = ToVector(sample->column(0).value());
        ASSERT_EQ(value.size(), 1u);
        ASSERT_LT(value[0], static_cast<float>(total));
        ++sampled;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const TableInfo info = table("r").Info();
  EXPECT_EQ(info.counters.inserts, total);
  EXPECT_GE(info.counters.samples, sampled);
  EXPECT_GE(info.cursor, replay.rate_limiter.min_diff);
  EXPECT_LE(info.cursor, replay.rate_limiter.max_diff);
}

TEST_P(ClientConformanceTest, StoppingABusyServerBlocksNoClient) {
  for (int round = 0; round < 5; ++round) {
    auto replay = MakeTable("r");
    replay.rate_limiter = RateLimiterOptions::SampleToInsertRatio(1.0, 10, 20.0).value();
    Start({replay});
    std::atomic<int> under_way{0};
    std::vector<std::thread> threads;
    for (int w = 0; w < 3; ++w) {
      threads.emplace_back([&] {
        const Client client = Connect({.reconnect_timeout = 50ms});
        auto writer = NewWriter(client);
        ++under_way;
        Status status;
        while (status.ok()) {
          status = Write(writer, "r", 1);
          if (status.ok()) status = writer.Flush(100, kPatience);
        }
        EXPECT_THAT(status, AnyOf(StatusIs(StatusCode::kUnavailable), StatusIs(StatusCode::kCancelled)));
        writer.Close();
      });
      threads.emplace_back([&] {
        const Client client = Connect();
        auto sampler = client.NewSampler({.table = "r", .reconnect_timeout = 50ms}).value();
        ++under_way;
        Status status;
        while (status.ok()) status = sampler.Next(kPatience).status();
        EXPECT_THAT(status, AnyOf(StatusIs(StatusCode::kUnavailable), StatusIs(StatusCode::kCancelled)));
      });
    }
    while (under_way < 6 || table("r").Info().counters.samples < 100) std::this_thread::yield();
    const auto start = std::chrono::steady_clock::now();
    server_->Stop();
    EXPECT_LT(std::chrono::steady_clock::now() - start, 20s);
    for (std::thread& thread : threads) thread.join();
  }
}

// --- Network only ---

class NetworkClientTest : public ClientConformanceTest {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(NetworkClientTest);
#ifndef REVERB_TEST_NO_GRPC
INSTANTIATE_TEST_SUITE_P(Transports, NetworkClientTest, ::testing::Values(Transport::kGrpc),
                         test::TransportName);
#endif

TEST_P(NetworkClientTest, AServerOfThisProcessIsRecognised) {
  Start({MakeTable("t")});
  const std::string address = "127.0.0.1:" + std::to_string(server_->port());
  EXPECT_THAT(Client::Connect(address)->is_in_process(kPatience), test::IsOkAndHolds(true));
  EXPECT_THAT(Client::Connect(address, {.in_process = false})->is_in_process(kPatience),
              test::IsOkAndHolds(false));
}

TEST_P(NetworkClientTest, WritersAndSamplersSurviveARestart) {
  Start({MakeTable("t")});
  const int port = server_->port();
  const Client client = Connect();
  auto writer = NewWriter(client);
  for (int i = 0; i < 10; ++i) ASSERT_OK(Write(writer, "t", static_cast<float>(i)));
  ASSERT_OK(writer.Flush(0, kPatience));
  auto sampler = client.NewSampler({.table = "t"}).value();
  ASSERT_OK(sampler.Next(kPatience));
  server_.reset();
  for (int i = 10; i < 20; ++i) ASSERT_OK(Write(writer, "t", static_cast<float>(i)));
  EXPECT_THAT(writer.Flush(0, {.timeout = 30ms}), StatusIs(StatusCode::kDeadlineExceeded));
  ServerOptions options;
  options.tables = {MakeTable("t")};
  options.host = "127.0.0.1";
  options.port = port;
  server_.emplace(Server::Start(std::move(options)).value());
  ASSERT_OK(writer.Flush(0, kPatience));
  EXPECT_EQ(table("t").size(), 10) << "what was not confirmed came once";
  while (true) {
    const auto sample = sampler.Next(kPatience);
    ASSERT_OK(sample);
    if (ToVector(sample->column(0).value())[0] >= 10)
      break;  // samples of the first server may have been in flight
  }
}

TEST_P(NetworkClientTest, AnUnreachableServer) {
  const Client client = Client::Connect("127.0.0.1:1").value();
  EXPECT_THAT(client.Info({.timeout = 50ms}),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("127.0.0.1:1")));
  auto sampler = client.NewSampler({.table = "t", .reconnect_timeout = 50ms}).value();
  EXPECT_THAT(sampler.Next(kPatience), StatusIs(StatusCode::kUnavailable, HasSubstr("127.0.0.1:1")));
  auto writer = client.NewTrajectoryWriter({}).value();
  ASSERT_OK(Write(writer, "t", 1));
  EXPECT_THAT(writer.Flush(0, {.timeout = 50ms}),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("cannot be reached")));
  writer.Close();
  const Client impatient = Client::Connect("127.0.0.1:1", {.reconnect_timeout = 50ms}).value();
  EXPECT_THAT(impatient.Sample("t", 1, kPatience), StatusIs(StatusCode::kUnavailable));
  const auto text = HasSubstr("the server at 127.0.0.1:1 could not be reached");
  // Concurrently: each call takes a second.
  auto info = std::async(std::launch::async, [&] { return impatient.Info(); });
  EXPECT_THAT(impatient.Signatures(), StatusIs(StatusCode::kUnavailable, text));
  EXPECT_THAT(info.get(), StatusIs(StatusCode::kUnavailable, text));
}

TEST_P(NetworkClientTest, ReachableServersAreUsedWhenOneIsLost) {
  Start({MakeTable("t")});
  const std::string living = "127.0.0.1:" + std::to_string(server_->port());
  const Client one = Connect();
  auto writer = NewWriter(one);
  ASSERT_OK(Write(writer, "t", 1));
  ASSERT_OK(writer.Flush(0, kPatience));
  const uint64_t key = one.Sample("t", 1, kPatience)->front().key();
  // The unreachable server is first.
  const Client both = Client::Connect("127.0.0.1:1," + living, {.in_process = false}).value();
  const WaitOptions briefly{.timeout = 1s};
  const auto is_reported =
      StatusIs(StatusCode::kDeadlineExceeded,
               AllOf(HasSubstr("1 of the 2 servers that were called failed, the others have done it"),
                     HasSubstr("127.0.0.1:1: "), HasSubstr("(" + living + ")")));
  EXPECT_OK(both.UpdatePriorities("t", std::array{KeyPriority{key, 7.0}}, kPatience));
  EXPECT_EQ(one.Sample("t", 1, kPatience)->front().priority(), 7.0);
  EXPECT_THAT(both.SetRateLimiter("t", RateLimiterOptions::MinSize(3), briefly), is_reported);
  EXPECT_EQ(table("t").Info().rate_limiter.min_size_to_sample, 3);
  EXPECT_THAT(both.Reset("t", briefly), is_reported);
  EXPECT_EQ(table("t").size(), 0);
  EXPECT_THAT(both.Checkpoint(briefly), StatusIs(StatusCode::kDeadlineExceeded,
                                                 HasSubstr("2 of the 2 servers that were called failed")));
  int calls = 0;
  const WaitOptions give_up{.on_wait = [&calls] {
    return ++calls < 3 ? Status::Ok() : Status::Cancelled("the user pressed a key");
  }};
  EXPECT_THAT(both.Reset("t", give_up), StatusIs(StatusCode::kCancelled, HasSubstr("pressed a key")));
  writer.Close();
}

TEST(ClientOptionsTest, InvalidValuesAreNamed) {
  EXPECT_OK(ClientOptions{.write_window_bytes = std::nullopt}.Validate());
  EXPECT_OK(ClientOptions{.name = std::string(1024, 'n')}.Validate());
  EXPECT_THAT(Client::Connect("127.0.0.1:1", {.write_window_bytes = 0}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("write_window_bytes (0)")));
  EXPECT_THAT(Client::Connect("127.0.0.1:1", {.name = std::string(1025, 'n')}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("1024 bytes, got 1025")));
}

}  // namespace
}  // namespace reverb
