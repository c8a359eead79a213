// Counts the bytes on the wire: each chunk once, only chunks that items refer to, only rows that samples
// need.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "api/writer_factory.h"
#include "base/random.h"
#include "client/insert_pipeline.h"
#include "client/sampler.h"
#include "reverb/writer.h"
#include "server/server.h"
#include "testing/status_matchers.h"
#include "transport/grpc/grpc_connection.h"

namespace reverb::internal {
namespace {

using std::chrono_literals::operator""s;

const WaitOptions kPatience{.timeout = 60s};
// Limits the overhead of an item or a sample beyond its data: key, priority, slices, framing.
constexpr int64_t kItemBytes = 120;
constexpr int64_t kStreamBytes = 400;

class WireBytesTest : public ::testing::Test {
 protected:
  WireBytesTest() {
    ServerImpl::Options options;
    TableOptions table = TableOptions::Queue("t", 1000);
    options.tables = {table};
    options.address = "127.0.0.1:0";
    server_ = ServerImpl::Start(std::move(options)).value();
    connection_ = ConnectGrpc("127.0.0.1:" + std::to_string(server_->port())).value();
    pipeline_ = InsertPipeline::Create(connection_, {});
  }
  reverb::TrajectoryWriter NewWriter(int64_t keep_alive, int64_t chunk_length, Compression compression) {
    return WriterFactory::MakeTrajectoryWriter(
               InsertPipeline::Own(pipeline_),
               {.chunking = {.num_keep_alive_refs = keep_alive, .max_chunk_length = chunk_length},
                .compression = compression})
        .value();
  }
  void AppendBytes(reverb::TrajectoryWriter& writer, const std::vector<uint8_t>& bytes) {
    const std::array<int64_t, 1> dims{static_cast<int64_t>(bytes.size())};
    ASSERT_OK(writer.Append(std::array{ColumnValue{0, {DType::kUint8, dims, bytes.data()}}}));
  }
  std::vector<uint8_t> RandomBytes(size_t size) {
    std::vector<uint8_t> bytes(size);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random_.Next());
    return bytes;
  }
  void CreateItem(reverb::TrajectoryWriter& writer, int64_t begin, int64_t end) {
    const CellRange range{0, begin, end};
    ASSERT_OK(writer.CreateItem("t", 1.0, std::array{ItemColumn{{&range, 1}}}));
  }
  // Returns the pipeline's statistics once they reach so many bytes and messages, or after 10 s. A message is
  // counted when Send() returns, which may be after its items were confirmed.
  InsertPipeline::Stats Sent(int64_t bytes, int64_t messages = 1) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (std::chrono::steady_clock::now() < deadline) {
      const InsertPipeline::Stats stats = pipeline_->stats();
      if (stats.sent_bytes >= bytes && stats.sent_messages >= messages) return stats;
      std::this_thread::yield();
    }
    return pipeline_->stats();
  }
  // Takes `count` samples; returns the number of bytes received for them.
  int64_t SampleBytes(int64_t count) {
    auto sampler =
        SamplerImpl::Create([this](size_t) { return connection_; }, {.table = "t", .max_samples = count})
            .value();
    std::vector<Sample> samples;
    EXPECT_OK(sampler->Next(count, kPatience, &samples));
    const int64_t bytes = sampler->stats().received_bytes;
    sampler->Close();
    return bytes;
  }

  Random random_{5};
  std::unique_ptr<ServerImpl> server_;
  std::shared_ptr<Connection> connection_;
  std::shared_ptr<InsertPipeline> pipeline_;
};

TEST_F(WireBytesTest, ASharedChunkIsSentOnce) {
  auto writer = NewWriter(10, 10, Compression::kNone);
  for (int step = 0; step < 10; ++step) AppendBytes(writer, RandomBytes(4000));
  for (int i = 0; i < 100; ++i) CreateItem(writer, i % 5, i % 5 + 5);
  ASSERT_OK(writer.Flush(0, kPatience));
  EXPECT_GE(Sent(40'000).sent_bytes, 40'000);
  EXPECT_LE(pipeline_->stats().sent_bytes, 40'000 + 100 * kItemBytes + kStreamBytes);
}

TEST_F(WireBytesTest, ASharedChunkIsSentOnceAcrossMessages) {
  auto writer = NewWriter(10, 10, Compression::kNone);
  for (int step = 0; step < 10; ++step) AppendBytes(writer, RandomBytes(4000));
  for (int i = 0; i < 20; ++i) {
    CreateItem(writer, 0, 10);
    ASSERT_OK(writer.Flush(0, kPatience));
  }
  EXPECT_GE(Sent(40'000, 20).sent_messages, 20);
  EXPECT_LE(pipeline_->stats().sent_bytes, 40'000 + 20 * kItemBytes + kStreamBytes);
}

TEST_F(WireBytesTest, ChunksThatNoItemRefersToAreNotSent) {
  auto writer = NewWriter(2, 1, Compression::kNone);
  for (int step = 0; step < 500; ++step) AppendBytes(writer, RandomBytes(4000));
  CreateItem(writer, 499, 500);
  ASSERT_OK(writer.EndEpisode(true, kPatience));
  EXPECT_GE(Sent(4000).sent_bytes, 4000);
  EXPECT_LE(pipeline_->stats().sent_bytes, 4000 + kItemBytes + kStreamBytes);
}

TEST_F(WireBytesTest, OnlyNeededRowsOfRawChunksAreSent) {
  auto writer = NewWriter(40, 40, Compression::kNone);
  for (int step = 0; step < 40; ++step) AppendBytes(writer, RandomBytes(4000));
  CreateItem(writer, 17, 18);
  CreateItem(writer, 3, 6);
  ASSERT_OK(writer.Flush(0, kPatience));
  const int64_t bytes = SampleBytes(2);
  EXPECT_GE(bytes, 4 * 4000);
  EXPECT_LE(bytes, 4 * 4000 + 2 * kItemBytes + kStreamBytes);
}

TEST_F(WireBytesTest, OnlyTouchedBlocksOfCompressedChunksAreSent) {
  auto writer = NewWriter(40, 40, Compression::kLz4);
  // Half noise, so that a chunk of 40 frames takes about 140 kB in blocks of nine.
  for (int step = 0; step < 40; ++step) {
    std::vector<uint8_t> frame = RandomBytes(84 * 84);
    std::fill(frame.begin(), frame.begin() + 84 * 42, 0);
    AppendBytes(writer, frame);
  }
  CreateItem(writer, 20, 21);
  ASSERT_OK(writer.Flush(0, kPatience));
  const int64_t chunk_bytes = Sent(40 * 84 * 42).sent_bytes;
  EXPECT_GT(chunk_bytes, 40 * 84 * 42);
  EXPECT_LE(SampleBytes(1), chunk_bytes / 4 + kItemBytes + kStreamBytes);
}

TEST_F(WireBytesTest, OverlappingSamplesShareTheirRows) {
  auto writer = NewWriter(40, 40, Compression::kNone);
  for (int step = 0; step < 40; ++step) AppendBytes(writer, RandomBytes(4000));
  for (int i = 0; i < 30; ++i) CreateItem(writer, i, i + 10);
  ASSERT_OK(writer.Flush(0, kPatience));
  // 300 rows in total, of which 39 are distinct. Each reply carries the rows of its own samples.
  EXPECT_LE(SampleBytes(30), 3 * 39 * 4000);
}

}  // namespace
}  // namespace reverb::internal
