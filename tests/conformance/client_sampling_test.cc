// Tests the C++ API over every transport: samplers, batches and large items.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <thread>
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
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ClientSamplingTest : public test::ClientFixture {};
INSTANTIATE_TEST_SUITE_P(Transports, ClientSamplingTest, REVERB_ALL_TRANSPORTS, test::TransportName);

// --- Sampling ---

TEST_P(ClientSamplingTest, DrawsNoMoreThanRequested) {
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

TEST_P(ClientSamplingTest, UndeliveredSamplesAreCounted) {
  Start({MakeQueue("q", 100)});
  const Client client = Connect();
  auto writer = NewWriter(client);
  for (int i = 0; i < 40; ++i) ASSERT_OK(Write(writer, "q", 1));
  ASSERT_OK(writer.Flush(0, kPatience));
  auto sampler = client.NewSampler({.table = "q", .max_samples = 30}).value();
  for (int i = 0; i < 5; ++i) ASSERT_OK(sampler.Next(kPatience));
  // All requested samples have arrived once the table counts them and the last reply was read.
  const int64_t drawn = in_process() ? 5 : 30;
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

TEST_P(ClientSamplingTest, ARateLimiterTimeoutEndsTheSamples) {
  Start({MakeQueue("q", 100)});
  const Client client = Connect();
  auto writer = NewWriter(client);
  for (int i = 0; i < 3; ++i) ASSERT_OK(Write(writer, "q", 1));
  ASSERT_OK(writer.Flush(0, kPatience));
  auto sampler = client.NewSampler({.table = "q", .rate_limiter_timeout = 50ms}).value();
  for (int i = 0; i < 3; ++i) ASSERT_OK(sampler.Next(kPatience));
  EXPECT_THAT(sampler.Next(kPatience), StatusIs(StatusCode::kDeadlineExceeded, Detail::kRateLimited));
}

TEST_P(ClientSamplingTest, AnotherThreadCancelsAWait) {
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

TEST_P(ClientSamplingTest, ASamplerRemainsUsableAfterATimeout) {
  Start({MakeTable("t")});
  const Client client = Connect();
  auto sampler = client.NewSampler({.table = "t", .max_samples = 1}).value();
  EXPECT_THAT(sampler.Next({.timeout = 20ms}), StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("\"t\"")));
  Status late;
  do {  // the server may not have answered yet
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

TEST_P(ClientSamplingTest, ExactSamplersSeeTheLastUpdate) {
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

TEST_P(ClientSamplingTest, UnknownTables) {
  Start({MakeTable("t")});
  const Client client = Connect();
  auto sampler = client.NewSampler({.table = "nowhere"}).value();
  EXPECT_THAT(sampler.Next(kPatience), StatusIs(StatusCode::kNotFound, HasSubstr("nowhere")));
  EXPECT_THAT(client.Sample("nowhere", 1, kPatience), StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(client.Reset("nowhere", kPatience), StatusIs(StatusCode::kNotFound));
}

// --- Batches ---

TEST_P(ClientSamplingTest, BatchesAreArraysPerColumn) {
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

TEST_P(ClientSamplingTest, BatchesAreWrittenToTheCallersMemory) {
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

TEST_P(ClientSamplingTest, SamplesOfDifferentShapesCannotBeBatched) {
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

TEST_P(ClientSamplingTest, SamplesOfAnIncompleteBatchAreReturned) {
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

TEST_P(ClientSamplingTest, SmallWindowsAreSlowButDoNotStall) {
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

// --- Large items ---

// Writes steps of `bytes` each, with an item over each step, and creates items over several steps.
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

// Exceeds the message size limit only in long runs, because that takes a gigabyte of memory.
TEST_P(ClientSamplingTest, AnItemLargerThanAMessageIsSampled) {
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
  // Inspecting these items takes several calls.
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

TEST_P(ClientSamplingTest, AnItemTooLargeToSampleIsRejected) {
  Start({MakeTable("small"), MakeTable("t")}, {.max_item_bytes = 1 << 20});
  const Client client = Connect();
  const auto too_large =
      StatusIs(StatusCode::kResourceExhausted, AllOf(HasSubstr("\"t\""), HasSubstr("max_item_bytes")));
  LargeItems items(client, 12, 100'000);
  // Detected when the item is created: the writer remains usable.
  EXPECT_THAT(items.CreateItem("t", 0, 12), too_large);
  ASSERT_OK(items.CreateItem("t", 0, 10));
  ASSERT_OK(items.writer().Flush(0, kPatience));
  EXPECT_EQ(table("t").Info().current_size, 1);

  // Detected only once the data is complete: the server rejects it.
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

TEST_P(ClientSamplingTest, ASmallerMessageLimitIsNamedInTheError) {
  if (in_process()) GTEST_SKIP() << "nothing is received within a process";
  Start({MakeTable("small"), MakeTable("t")});
  const Client client = Connect();
  LargeItems items(client, 12, 100'000);
  ASSERT_OK(items.CreateItem("t", 0, 12));
  ASSERT_OK(items.writer().Flush(0, kPatience));
  const Client modest = Connect({.max_response_bytes = 1 << 20});
  auto sampler = modest.NewSampler({.table = "t"}).value();
  EXPECT_THAT(sampler.Next(kPatience), StatusIs(StatusCode::kResourceExhausted,
                                                AllOf(HasSubstr("\"t\""), HasSubstr("max_response_bytes"))));
  // Other items are sampled, several at a time.
  auto small = modest.NewSampler({.table = "small", .max_samples = 30}).value();
  for (int i = 0; i < 30; ++i) ASSERT_OK(small.Next(kPatience));
  EXPECT_OK(client.NewSampler({.table = "t"}).value().Next(kPatience));
  EXPECT_THAT(Client::Connect("127.0.0.1:1", {.max_response_bytes = 1000}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("max_response_bytes")));
}

}  // namespace
}  // namespace reverb
