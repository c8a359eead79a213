// What users of the C++ API see, over every transport.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "conformance/transports.h"
#include "reverb/client.h"
#include "reverb/server.h"
#include "testing/effort.h"
#include "testing/status_matchers.h"

namespace reverb {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using test::StatusIs;
using test::Transport;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Long enough for a slow machine; a test that waits this long has failed.
const WaitOptions kPatience{.timeout = 60s};

// A tensor of float32 made from numbers.
struct Floats {
  Floats(std::vector<int64_t> dims_in, std::vector<float> values_in)
      : dims(std::move(dims_in)), values(std::move(values_in)) {}
  explicit Floats(float scalar) : values({scalar}) {}
  TensorView view() const { return {DType::kFloat32, dims, values.data()}; }
  std::vector<int64_t> dims;
  std::vector<float> values;
};

std::vector<float> ToVector(const Tensor& tensor) {
  const auto* data = reinterpret_cast<const float*>(tensor.data());
  return {data, data + tensor.num_elements()};
}

TableOptions MakeTable(std::string name, RateLimiterOptions limiter = RateLimiterOptions::MinSize(1)) {
  TableOptions options;
  options.name = std::move(name);
  options.sampler = SelectorOptions::Fifo();
  options.rate_limiter = limiter;
  return options;
}
TableOptions MakeQueue(std::string name, int64_t size) { return TableOptions::Queue(std::move(name), size); }

class ClientConformanceTest : public ::testing::TestWithParam<Transport> {
 protected:
  bool over_grpc() const { return GetParam() == Transport::kGrpc; }
  void Start(std::vector<TableOptions> tables, ServerLimits limits = {}) {
    ServerOptions options;
    options.tables = std::move(tables);
    options.host = "127.0.0.1";
    options.limits = limits;
    if (!over_grpc()) options.port = std::nullopt;
    server_.emplace(Server::Start(std::move(options)).value());
  }
  Client Connect(ClientOptions options = {}) {
    if (!over_grpc()) return server_->in_process_client(options);
    options.in_process = false;
    return Client::Connect("127.0.0.1:" + std::to_string(server_->port()), options).value();
  }
  Table table(const std::string& name) { return server_->table(name).value(); }

  // One item of one row with this value.
  static Status Write(TrajectoryWriter& writer, const std::string& table, float value,
                      double priority = 1.0) {
    const Floats tensor(value);
    REVERB_RETURN_IF_ERROR(writer.Append(std::array{ColumnValue{0, tensor.view()}}));
    const CellRange newest = CellRange::One(0, writer.position() - 1);
    return writer.CreateItem(table, priority, std::array{ItemColumn{{&newest, 1}}});
  }
  static TrajectoryWriter NewWriter(const Client& client, int64_t keep_alive = 1,
                                    std::optional<int64_t> chunk = 1) {
    return client
        .NewTrajectoryWriter({.chunking = {.num_keep_alive_refs = keep_alive, .max_chunk_length = chunk}})
        .value();
  }

  std::optional<Server> server_;
};

INSTANTIATE_TEST_SUITE_P(Transports, ClientConformanceTest, REVERB_ALL_TRANSPORTS, test::TransportName);

// --- Writing and reading back ---

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

TEST_P(ClientConformanceTest, AFullTableHoldsUpNoItemsForOthers) {
  Start({MakeQueue("full", 1), MakeTable("empty")});
  const Client client = Connect();
  auto writer = NewWriter(client);
  for (int i = 0; i < 2; ++i) ASSERT_OK(Write(writer, "full", 1));
  while (table("full").Info().waiting_inserts == 0) std::this_thread::yield();
  ASSERT_OK(Write(writer, "empty", 1));
  // Nobody flushes.
  ASSERT_OK(client.Sample("empty", 1, kPatience));
  ASSERT_OK(Write(writer, "empty", 2));
  while (table("empty").size() < 2) std::this_thread::yield();
  writer.Close();
}

TEST_P(ClientConformanceTest, FlushWaitsForAsManyAsItIsTold) {
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

TEST_P(ClientConformanceTest, AWaitCanBeGivenUp) {
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

// --- Sampling ---

TEST_P(ClientConformanceTest, NoMoreIsDrawnThanAskedFor) {
  Start({MakeTable("t")});
  const Client client = Connect();
  auto writer = NewWriter(client);
  ASSERT_OK(Write(writer, "t", 1));
  ASSERT_OK(writer.Flush(0, kPatience));
  for (const int32_t workers : {1, 3}) {
    const int64_t before = table("t").Info().counters.samples;
    auto sampler = client
                       .NewSampler({.table = "t",
                                    .max_samples = 57,
                                    .max_in_flight_samples_per_worker = 10,
                                    .num_workers = workers})
                       .value();
    for (int i = 0; i < 57; ++i) ASSERT_OK(sampler.Next(kPatience));
    EXPECT_THAT(sampler.Next(kPatience), StatusIs(StatusCode::kOutOfRange));
    EXPECT_EQ(table("t").Info().counters.samples - before, 57);
    EXPECT_EQ(sampler.stats().delivered, 57);
  }
  EXPECT_THAT(client.NewSampler({.table = "t", .max_samples = 0}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("max_samples (0) must be -1 or >= 1")));
}

TEST_P(ClientConformanceTest, WhatWasFetchedAndNotTakenIsCounted) {
  Start({MakeQueue("q", 100)});
  const Client client = Connect();
  auto writer = NewWriter(client);
  for (int i = 0; i < 40; ++i) ASSERT_OK(Write(writer, "q", 1));
  ASSERT_OK(writer.Flush(0, kPatience));
  auto sampler = client.NewSampler({.table = "q", .max_samples = 30}).value();
  for (int i = 0; i < 5; ++i) ASSERT_OK(sampler.Next(kPatience));
  // All that was asked for has come when the table was drawn from so often, and the last reply was read.
  const int64_t drawn = over_grpc() ? 30 : 5;
  while (table("q").Info().counters.samples < drawn) std::this_thread::yield();
  const auto end = std::chrono::steady_clock::now() + 60s;
  while (sampler.stats().delivered + sampler.stats().waiting < drawn &&
         std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
  sampler.Close();
  EXPECT_EQ(sampler.stats().delivered, 5);
  EXPECT_EQ(sampler.stats().undelivered, drawn - 5);
  EXPECT_EQ(sampler.stats().unanswered, 0);
}

TEST_P(ClientConformanceTest, ARateLimiterTimeoutEndsTheSamples) {
  Start({MakeQueue("q", 100)});
  const Client client = Connect();
  auto writer = NewWriter(client);
  for (int i = 0; i < 3; ++i) ASSERT_OK(Write(writer, "q", 1));
  ASSERT_OK(writer.Flush(0, kPatience));
  auto sampler = client.NewSampler({.table = "q", .rate_limiter_timeout = 50ms}).value();
  for (int i = 0; i < 3; ++i) ASSERT_OK(sampler.Next(kPatience));
  EXPECT_THAT(sampler.Next(kPatience), StatusIs(StatusCode::kDeadlineExceeded, Detail::kRateLimited));
}

TEST_P(ClientConformanceTest, AnotherThreadEndsAWait) {
  Start({MakeTable("empty")});
  const Client client = Connect();
  auto sampler = client.NewSampler({.table = "empty"}).value();
  std::thread closer([&] {
    while (table("empty").Info().waiting_samples == 0) std::this_thread::yield();
    sampler.Close();
  });
  EXPECT_THAT(sampler.Next(kPatience), StatusIs(StatusCode::kCancelled));
  closer.join();
  EXPECT_THAT(sampler.Next(kPatience), StatusIs(StatusCode::kCancelled));
  while (table("empty").Info().waiting_samples > 0) std::this_thread::yield();
}

TEST_P(ClientConformanceTest, ATimeoutOfOneCallIsNotTheEnd) {
  Start({MakeTable("t")});
  const Client client = Connect();
  auto sampler = client.NewSampler({.table = "t", .max_samples = 1}).value();
  EXPECT_THAT(sampler.Next({.timeout = 20ms}), StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("\"t\"")));
  Status late;
  do {  // the server may not have answered at all yet
    late = sampler.Next({.timeout = 20ms}).status();
    ASSERT_THAT(late, StatusIs(StatusCode::kDeadlineExceeded));
  } while (late.detail() == Detail::kNone);
  EXPECT_THAT(late, StatusIs(StatusCode::kDeadlineExceeded, Detail::kRateLimited));
  EXPECT_THAT(std::string(late.message()),
              AllOf(HasSubstr("table \"t\" holds 0 of "), HasSubstr("too few items to sample"),
                    HasSubstr("min_size_to_sample=1")));
  auto writer = NewWriter(client);
  ASSERT_OK(Write(writer, "t", 1));
  EXPECT_OK(sampler.Next(kPatience));
  EXPECT_EQ(table("t").Info().counters.samples, 1);
}

TEST_P(ClientConformanceTest, ExactSamplersSeeTheLastUpdate) {
  auto per = MakeTable("per");
  per.sampler = SelectorOptions::Prioritized(1.0);
  Start({per});
  const Client client = Connect();
  auto writer = NewWriter(client);
  for (int i = 0; i < 8; ++i) ASSERT_OK(Write(writer, "per", static_cast<float>(i)));
  ASSERT_OK(writer.Flush(0, kPatience));
  uint64_t cursor = 0;
  const auto items = client.Inspect("per", 100, &cursor, kPatience).value();
  ASSERT_EQ(items.size(), 8u);
  auto sampler = client.NewSampler({.table = "per", .exact = true}).value();
  for (int round = 0; round < 50; ++round) {
    std::vector<KeyPriority> updates;
    for (size_t i = 0; i < items.size(); ++i) {
      updates.push_back({items[i].key(), i == static_cast<size_t>(round % 8) ? 1.0 : 0.0});
    }
    ASSERT_OK(client.UpdatePriorities("per", updates, kPatience));
    auto sample = sampler.Next(kPatience);
    ASSERT_OK(sample);
    EXPECT_EQ(sample->key(), items[round % 8].key());
    EXPECT_EQ(sample->probability(), 1.0);
  }
}

TEST_P(ClientConformanceTest, UnknownTables) {
  Start({MakeTable("t")});
  const Client client = Connect();
  auto sampler = client.NewSampler({.table = "nowhere"}).value();
  EXPECT_THAT(sampler.Next(kPatience), StatusIs(StatusCode::kNotFound, HasSubstr("nowhere")));
  EXPECT_THAT(client.Sample("nowhere", 1, kPatience), StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(client.Reset("nowhere", kPatience), StatusIs(StatusCode::kNotFound));
}

// --- Batches ---

TEST_P(ClientConformanceTest, BatchesAreArraysPerColumn) {
  Start({MakeQueue("t", 100)});
  const Client client = Connect();
  auto writer = NewWriter(client, 3, 2);
  const std::vector<std::string_view> words = {"zero", "one", "", "three", "four", "five"};
  for (int i = 0; i < 6; ++i) {
    const Floats obs({2}, {static_cast<float>(i), i + 0.5f});
    const TensorView word{DType::kString, {}, &words[static_cast<size_t>(i)]};
    ASSERT_OK(writer.Append(std::array{ColumnValue{0, obs.view()}, ColumnValue{1, word}}));
    if (i < 2) continue;
    const int64_t end = writer.position();
    const CellRange last3{0, end - 3, end}, newest = CellRange::One(1, end - 1),
                                            one = CellRange::One(0, end - 1);
    ASSERT_OK(writer.CreateItem(
        "t", i,
        std::array{ItemColumn{{&last3, 1}}, ItemColumn{{&newest, 1}, true}, ItemColumn{{&one, 1}, true}}));
  }
  ASSERT_OK(writer.Flush(0, kPatience));
  auto sampler = client.NewSampler({.table = "t", .max_samples = 4}).value();
  Batch batch;
  ASSERT_OK(sampler.NextBatch(2, &batch, kPatience));
  ASSERT_EQ(batch.columns.size(), 3u);
  EXPECT_THAT(batch.columns[0].dims(), ElementsAre(2, 3, 2));
  EXPECT_THAT(ToVector(batch.columns[0]), ElementsAre(0, 0.5, 1, 1.5, 2, 2.5, 1, 1.5, 2, 2.5, 3, 3.5));
  EXPECT_THAT(batch.columns[1].strings(), ElementsAre("", "three"));
  EXPECT_THAT(batch.columns[2].dims(), ElementsAre(2, 2));
  EXPECT_THAT(ToVector(batch.columns[2]), ElementsAre(2, 2.5, 3, 3.5));
  EXPECT_THAT(batch.info.priorities, ElementsAre(2, 3));
  EXPECT_THAT(batch.info.times_sampled, ElementsAre(1, 1));
  const uint8_t* memory = batch.columns[0].data();
  ASSERT_OK(sampler.NextBatch(2, &batch, kPatience));
  EXPECT_EQ(batch.columns[0].data(), memory) << "memory that fits is used again";
  EXPECT_THAT(batch.columns[1].strings(), ElementsAre("four", "five"));
  EXPECT_THAT(sampler.NextBatch(1, &batch, kPatience), StatusIs(StatusCode::kOutOfRange));
}

TEST_P(ClientConformanceTest, BatchesGoIntoTheCallersMemory) {
  Start({MakeQueue("t", 100)});
  const Client client = Connect();
  auto writer = NewWriter(client, 2, 1);
  for (int i = 0; i < 4; ++i) ASSERT_OK(Write(writer, "t", static_cast<float>(i)));
  const CellRange two{0, writer.position() - 2, writer.position()};
  ASSERT_OK(writer.CreateItem("t", 1.0, std::array{ItemColumn{{&two, 1}}}));
  ASSERT_OK(writer.Flush(0, kPatience));
  auto sampler = client.NewSampler({.table = "t", .max_samples = 5}).value();
  std::vector<float> memory(4);
  BatchInfo info;
  const ColumnMemory small{memory.data(), 4}, column{memory.data(), 16};
  EXPECT_THAT(sampler.NextBatch(4, std::array{small}, &info, kPatience),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("takes 16 bytes")));
  ASSERT_OK(sampler.NextBatch(4, std::array{column}, &info, kPatience));
  EXPECT_THAT(memory, ElementsAre(0, 1, 2, 3)) << "nothing was lost by the failed try";
  EXPECT_EQ(info.keys.size(), 4u);
}

TEST_P(ClientConformanceTest, UnlikeSamplesMakeNoBatch) {
  Start({MakeQueue("t", 100)});
  const Client client = Connect();
  auto writer = NewWriter(client, 2, 1);
  ASSERT_OK(Write(writer, "t", 1));
  ASSERT_OK(Write(writer, "t", 2));
  const CellRange two{0, writer.position() - 2, writer.position()};
  ASSERT_OK(writer.CreateItem("t", 1.0, std::array{ItemColumn{{&two, 1}}}));
  ASSERT_OK(writer.Flush(0, kPatience));
  auto sampler = client.NewSampler({.table = "t", .max_samples = 3}).value();
  Batch batch;
  EXPECT_THAT(sampler.NextBatch(3, &batch, kPatience),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("float32[2] while the batch has float32[1]")));
  EXPECT_OK(sampler.Next(kPatience)) << "the samples are not lost";
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
  const Floats other(3.0f);  // another layout
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
  // Long enough for the server to answer: the item was drawn then.
  EXPECT_THAT(client.Sample("q", 100, {.timeout = 1s}),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("had been drawn")));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
}

TEST_P(ClientConformanceTest, AnInsertThatWaitsEndsWithItsServer) {
  Start({MakeQueue("q", 1)});
  const Client client = Connect();
  const Floats x(1.0f);
  const std::array tables{Client::TablePriority{"q", 1.0}};
  ASSERT_OK(client.Insert(std::array{x.view()}, tables, kPatience));
  Status status;
  std::thread waiter([&] { status = client.Insert(std::array{x.view()}, tables, kPatience); });
  while (client.Info(kPatience)->tables[0].waiting_inserts == 0) std::this_thread::yield();
  server_->Stop();
  waiter.join();
  EXPECT_THAT(status, StatusIs(StatusCode::kUnavailable, HasSubstr("shutting down")));
}

TEST_P(ClientConformanceTest, WhatCameOfABatchThatDidNotIsHandedOut) {
  Start({MakeQueue("q", 100)});
  const Client client = Connect();
  auto writer = NewWriter(client);
  for (int i = 0; i < 50; ++i) ASSERT_OK(Write(writer, "q", static_cast<float>(i)));
  ASSERT_OK(writer.Flush(0, kPatience));
  auto sampler = client.NewSampler({.table = "q", .exact = true}).value();
  Batch batch;
  EXPECT_THAT(sampler.NextBatch(100, &batch, {.timeout = 50ms}), StatusIs(StatusCode::kDeadlineExceeded));
  std::vector<SampledTrajectory> some;
  ASSERT_OK(sampler.NextSome(7, &some, kPatience));
  EXPECT_EQ(some.size(), 7u) << "no more than asked for";
  EXPECT_THAT(sampler.NextSome(0, &some, kPatience), StatusIs(StatusCode::kInvalidArgument));
  for (int i = 0; i < 7; ++i) EXPECT_THAT(ToVector(some.at(i).column(0).value()), ElementsAre(i));
  for (int i = 7; i < 50; ++i) {
    auto sample = sampler.Next(kPatience);
    ASSERT_OK(sample);
    EXPECT_THAT(ToVector(sample->column(0).value()), ElementsAre(i));
  }
}

TEST_P(ClientConformanceTest, SmallWindowsAreSlowButDoNotStall) {
  ServerLimits limits;
  limits.sample_window_bytes = 2000;
  limits.insert_window_bytes = 2000;
  limits.max_waiting_items = 2;
  Start({MakeTable("t")}, limits);
  const Client client = Connect();
  auto writer = client
                    .NewTrajectoryWriter({.chunking = {.num_keep_alive_refs = 1, .max_chunk_length = 1},
                                          .compression = Compression::kNone})
                    .value();
  const Floats large({1000}, std::vector<float>(1000, 1.0f));  // 4 kB: each message exceeds the window
  for (int i = 0; i < 200; ++i) {
    ASSERT_OK(writer.Append(std::array{ColumnValue{0, large.view()}}));
    const CellRange newest = CellRange::One(0, writer.position() - 1);
    ASSERT_OK(writer.CreateItem("t", 1.0, std::array{ItemColumn{{&newest, 1}}}));
  }
  ASSERT_OK(writer.Flush(0, kPatience));
  auto sampler = client.NewSampler({.table = "t", .max_samples = 500}).value();
  for (int i = 0; i < 500; ++i) ASSERT_OK(sampler.Next(kPatience)) << i;
}

// --- Many at once ---

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

TEST_P(ClientConformanceTest, StoppingABusyServerHangsNobody) {
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
    EXPECT_LT(std::chrono::steady_clock::now() - start, 2s);
    for (std::thread& thread : threads) thread.join();
  }
}

// --- Over the network only ---

class NetworkClientTest : public ClientConformanceTest {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(NetworkClientTest);
#ifndef REVERB_TEST_INPROC_ONLY
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
    if (ToVector(sample->column(0).value())[0] >= 10) break;  // those of the first life were on their way
  }
}

TEST_P(NetworkClientTest, AServerThatIsNotThere) {
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
  EXPECT_THAT(impatient.Info(), StatusIs(StatusCode::kUnavailable, text));
  EXPECT_THAT(impatient.Signatures(), StatusIs(StatusCode::kUnavailable, text));
}

TEST_P(NetworkClientTest, OfSeveralServersTheLivingAreServedWhenOneIsLost) {
  Start({MakeTable("t")});
  const std::string living = "127.0.0.1:" + std::to_string(server_->port());
  const Client one = Connect();
  auto writer = NewWriter(one);
  ASSERT_OK(Write(writer, "t", 1));
  ASSERT_OK(writer.Flush(0, kPatience));
  const uint64_t key = one.Sample("t", 1, kPatience)->front().key();
  // The lost one comes first.
  const Client both = Client::Connect("127.0.0.1:1," + living, {.in_process = false}).value();
  const WaitOptions briefly{.timeout = 200ms};
  const auto is_reported =
      StatusIs(StatusCode::kDeadlineExceeded,
               AllOf(HasSubstr("1 of the 2 servers that were called failed, the others have done it"),
                     HasSubstr("127.0.0.1:1: "), Not(HasSubstr(living))));
  EXPECT_THAT(both.UpdatePriorities("t", std::array{KeyPriority{key, 7.0}}, briefly), is_reported);
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

TEST(ClientOptionsTest, NamesWhatCannotWork) {
  EXPECT_OK(ClientOptions{.write_window_bytes = std::nullopt}.Validate());
  EXPECT_OK(ClientOptions{.name = std::string(1024, 'n')}.Validate());
  EXPECT_THAT(Client::Connect("127.0.0.1:1", {.write_window_bytes = 0}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("write_window_bytes (0)")));
  EXPECT_THAT(Client::Connect("127.0.0.1:1", {.name = std::string(1025, 'n')}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("1024 bytes, got 1025")));
}

// --- Large items ---

// Steps of `bytes` each, with an item over each one, and how to make one over all of them.
class LargeItems {
 public:
  LargeItems(const Client& client, int64_t steps, size_t bytes)
      : writer_(client
                    .NewTrajectoryWriter({.chunking = {.num_keep_alive_refs = steps, .max_chunk_length = 1},
                                          .compression = Compression::kNone})
                    .value()) {
    std::vector<float> row(bytes / sizeof(float));
    for (int64_t step = 0; step < steps; ++step) {
      std::fill(row.begin(), row.end(), static_cast<float>(step));
      const Floats tensor({static_cast<int64_t>(row.size())}, row);
      EXPECT_OK(writer_.Append(std::array{ColumnValue{0, tensor.view()}}));
      EXPECT_OK(CreateItem("small", step, step + 1));
      EXPECT_OK(writer_.Flush(0, kPatience));
    }
  }
  Status CreateItem(const std::string& table, int64_t begin, int64_t end) {
    const CellRange rows{0, begin, end};
    return writer_.CreateItem(table, 1.0, std::array{ItemColumn{{&rows, 1}}});
  }
  TrajectoryWriter& writer() { return writer_; }

 private:
  TrajectoryWriter writer_;
};

// Larger than any message in the long run only: that takes a gigabyte of memory.
TEST_P(ClientConformanceTest, AnItemLargerThanAMessageIsSampled) {
  const int64_t steps = 18;
  const auto row_bytes = static_cast<size_t>(test::Effort(1 << 20, 1 << 20)) * 16 / 10;
  Start({MakeTable("small"), MakeTable("t")});
  const Client client = Connect();
  LargeItems items(client, steps, row_bytes);
  ASSERT_OK(items.CreateItem("t", 0, steps));
  ASSERT_OK(items.writer().Flush(0, kPatience));
  auto sampler = client.NewSampler({.table = "t"}).value();
  for (int i = 0; i < 2; ++i) {
    const auto sample = sampler.Next(kPatience);
    ASSERT_OK(sample);
    const Tensor rows = sample->column(0).value();
    ASSERT_EQ(rows.dims()[0], steps);
    const auto* values = reinterpret_cast<const float*>(rows.data());
    for (int64_t step = 0; step < steps; ++step) {
      EXPECT_EQ(values[step * rows.dims()[1]], static_cast<float>(step));
      EXPECT_EQ(values[(step + 1) * rows.dims()[1] - 1], static_cast<float>(step));
    }
  }
  // Looking at items takes several calls then.
  for (const std::string name : {"t", "small"}) {
    size_t seen = 0;
    uint64_t cursor = 0;
    do {
      const auto looked = client.Inspect(name, 100, &cursor, kPatience);
      ASSERT_OK(looked);
      EXPECT_LE(looked->size(), (size_t{4} << 20) / row_bytes + 1);
      seen += looked->size();
    } while (cursor != 0);
    EXPECT_EQ(seen, name == "t" ? 1 : static_cast<size_t>(steps));
  }
}

TEST_P(ClientConformanceTest, AnItemThatNobodyCouldSampleIsRefused) {
  Start({MakeTable("small"), MakeTable("t")}, {.max_item_bytes = 1 << 20});
  const Client client = Connect();
  const auto too_large =
      StatusIs(StatusCode::kResourceExhausted, AllOf(HasSubstr("\"t\""), HasSubstr("max_item_bytes")));
  LargeItems items(client, 12, 100'000);
  // Known when it is created: the writer goes on.
  EXPECT_THAT(items.CreateItem("t", 0, 12), too_large);
  ASSERT_OK(items.CreateItem("t", 0, 10));
  ASSERT_OK(items.writer().Flush(0, kPatience));
  EXPECT_EQ(table("t").Info().current_size, 1);

  // Not known before its data is complete: the server refuses it.
  const Floats row({25'000}, std::vector<float>(25'000, 1.5F));
  auto raw = client
                 .NewTrajectoryWriter({.chunking = {.num_keep_alive_refs = 20, .max_chunk_length = 20},
                                       .compression = Compression::kNone})
                 .value();
  for (int i = 0; i < 12; ++i) ASSERT_OK(raw.Append(std::array{ColumnValue{0, row.view()}}));
  const CellRange all{0, 0, 12};
  ASSERT_OK(raw.CreateItem("t", 1.0, std::array{ItemColumn{{&all, 1}}}));
  EXPECT_THAT(raw.Flush(0, kPatience), too_large);
  EXPECT_EQ(table("t").Info().current_size, 1);
}

TEST_P(ClientConformanceTest, AClientThatAcceptsLessHearsWhatToRaise) {
  if (!over_grpc()) GTEST_SKIP() << "nothing is received within a process";
  Start({MakeTable("small"), MakeTable("t")});
  const Client client = Connect();
  LargeItems items(client, 12, 100'000);
  ASSERT_OK(items.CreateItem("t", 0, 12));
  ASSERT_OK(items.writer().Flush(0, kPatience));
  const Client modest = Connect({.max_response_bytes = 1 << 20});
  auto sampler = modest.NewSampler({.table = "t"}).value();
  EXPECT_THAT(sampler.Next(kPatience), StatusIs(StatusCode::kResourceExhausted,
                                                AllOf(HasSubstr("\"t\""), HasSubstr("max_response_bytes"))));
  // Others are sampled, several at a time.
  auto small = modest.NewSampler({.table = "small", .max_samples = 30}).value();
  for (int i = 0; i < 30; ++i) ASSERT_OK(small.Next(kPatience));
  EXPECT_OK(client.NewSampler({.table = "t"}).value().Next(kPatience));
  EXPECT_THAT(Client::Connect("127.0.0.1:1", {.max_response_bytes = 1000}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("max_response_bytes")));
}

}  // namespace
}  // namespace reverb
