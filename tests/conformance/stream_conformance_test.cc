// Tests the streams of a server, message by message, over every transport.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "conformance/transports.h"
#include "server/server.h"
#include "testing/chunks.h"
#include "testing/status_matchers.h"
#include "transport/grpc/grpc_connection.h"
#include "transport/local/local_connection.h"
#include "transport/local/local_server.h"
#include "transport/transport.h"

namespace reverb::internal {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using test::StatusIs;
using test::Transport;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Long enough for a slow machine; reached only if a test fails.
constexpr Duration kPatience = std::chrono::seconds(60);

// Records the events of a stream, and lets a test wait for them.
class Watch {
 public:
  template <typename Change>
  void Note(Change change) {
    MutexLock lock(&mu_);
    change();
    cv_.NotifyAll();
  }
  template <typename Condition>
  bool Await(Condition condition) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    MutexLock lock(&mu_);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      cv_.WaitFor(&mu_, 50ms);
    }
    return true;
  }
  template <typename Read>
  auto Get(Read read) {
    MutexLock lock(&mu_);
    return read();
  }

 private:
  Mutex mu_;
  CondVar cv_;
};

struct InsertWatch final : InsertEvents {
  Watch watch;
  std::optional<Welcome> welcome;
  uint64_t confirmed = 0;
  bool in_order = true;
  std::vector<Rejection> rejections;
  std::optional<WaitState> waiting;
  int replies = 0;
  bool ready = true;
  std::optional<Status> closed;
  int times_closed = 0;

  void OnReply(InsertReply reply) override {
    watch.Note([&] {
      ++replies;
      if (reply.welcome) welcome = reply.welcome;
      in_order &= reply.confirmed_through >= confirmed;
      confirmed = reply.confirmed_through;
      for (auto& rejection : reply.rejections) rejections.push_back(std::move(rejection));
      if (reply.waiting) waiting = std::move(reply.waiting);
    });
  }
  void OnSent() override {
    watch.Note([&] { ready = true; });
  }
  void OnClosed(Status status) override {
    watch.Note([&] {
      closed = std::move(status);
      ++times_closed;
    });
  }
  bool AwaitConfirmed(uint64_t number) {
    return watch.Await([&] { return confirmed >= number || closed.has_value(); }) && confirmed >= number;
  }
};

struct SampleWatch final : SampleEvents {
  Watch watch;
  std::optional<Welcome> welcome;
  std::vector<Sample> samples;
  std::vector<size_t> reply_sizes;
  std::vector<std::pair<uint64_t, Status>> ends;
  uint64_t bytes = 0;
  std::optional<Status> closed;

  void OnReply(SampleReply reply, uint64_t reply_bytes) override {
    watch.Note([&] {
      if (reply.welcome) welcome = reply.welcome;
      bytes += reply_bytes;
      if (!reply.samples.empty()) reply_sizes.push_back(reply.samples.size());
      for (Sample& sample : reply.samples) samples.push_back(std::move(sample));
      if (reply.end) ends.emplace_back(reply.request_id, *std::move(reply.end));
    });
  }
  void OnClosed(Status status) override {
    watch.Note([&] { closed = std::move(status); });
  }
  bool AwaitEnds(size_t count) {
    return watch.Await([&] { return ends.size() >= count || closed.has_value(); }) && ends.size() >= count;
  }
};

// Creates chunks as a writer does: outside any store.
struct LooseChunks {
  Result<ChunkRef> Add(const ChunkHeader& header, std::span<const uint8_t> payload) {
    return Chunk::Copy(NextChunkId(), header, payload);
  }
} loose_chunks;

Item MakeItem(uint64_t number, std::string table, ChunkRef chunk, uint32_t offset = 0, uint32_t length = 1) {
  return {.number = number,
          .key = 1000 + number,
          .table = std::move(table),
          .priority = 1.0,
          .trajectory = Trajectory::Single(std::move(chunk), offset, length).value()};
}
Item MakeItem(uint64_t number, std::string table) {
  return MakeItem(
      number, std::move(table),
      test::MakeChunk(&loose_chunks, 1, static_cast<int64_t>(number), 1, static_cast<int64_t>(number)));
}

std::vector<int64_t> Values(const Sample& sample) {
  std::vector<int64_t> values(static_cast<size_t>(sample.trajectory.length(0)));
  EXPECT_OK(sample.trajectory.Read(
      0, {reinterpret_cast<uint8_t*>(values.data()), values.size() * sizeof(int64_t)}));
  return values;
}

Hello MakeHello(uint8_t writer) {
  Hello hello;
  hello.session_id.fill(writer);
  hello.client_name = "test";
  return hello;
}

class StreamConformanceTest : public ::testing::TestWithParam<Transport> {
 protected:
  void StartServer(std::vector<TableOptions> tables, ServiceLimits limits = {}) {
    ServerImpl::Options options;
    options.tables = std::move(tables);
    options.limits = limits;
    if (GetParam() == Transport::kGrpc) options.address = "127.0.0.1:0";
    server_ = ServerImpl::Start(std::move(options)).value();
    if (GetParam() != Transport::kLocal) return;
    path_ = ::testing::TempDir() + "reverb-stream-" + std::to_string(getpid()) + ".sock";
    local_ = LocalServer::Start({.path = path_}, server_->service()).value();
  }
  void StopServer() {
    server_->Stop();
    if (local_) local_->Stop(500ms);
  }
  static TableOptions MakeTable(std::string name,
                                RateLimiterOptions limiter = RateLimiterOptions::MinSize(1)) {
    TableOptions options;
    options.name = std::move(name);
    options.sampler = SelectorOptions::Fifo();
    options.rate_limiter = limiter;
    return options;
  }
  std::shared_ptr<Connection> Connect() {
    if (GetParam() == Transport::kInproc) return server_->Connect();
    if (GetParam() == Transport::kLocal) return ConnectLocal({.path = path_}).value();
    return ConnectGrpc("127.0.0.1:" + std::to_string(server_->port())).value();
  }
  // Opens an insert stream and waits for the welcome message.
  std::shared_ptr<InsertStream> OpenInsert(const std::shared_ptr<Connection>& connection,
                                           const std::shared_ptr<InsertWatch>& events, uint8_t writer = 1) {
    std::shared_ptr<InsertStream> stream = connection->OpenInsert(MakeHello(writer), events);
    EXPECT_TRUE(events->watch.Await([&] { return events->welcome || events->closed; }));
    return stream;
  }
  static void Send(InsertStream& stream, InsertWatch& events, InsertMessage message) {
    ASSERT_TRUE(events.watch.Await([&] { return events.ready || events.closed; }));
    events.watch.Note([&] { events.ready = false; });
    if (stream.Send(std::move(message)).ready) events.OnSent();
  }
  static InsertMessage MessageOf(std::vector<Item> items) { return {.items = std::move(items)}; }

  std::unique_ptr<ServerImpl> server_;
  std::string path_;
  std::unique_ptr<LocalServer> local_;
};

INSTANTIATE_TEST_SUITE_P(Transports, StreamConformanceTest, REVERB_ALL_TRANSPORTS, test::TransportName);

TEST_P(StreamConformanceTest, ItemsAreInsertedAndConfirmedInOrder) {
  StartServer({MakeTable("t")});
  auto events = std::make_shared<InsertWatch>();
  auto connection = Connect();
  auto stream = OpenInsert(connection, events);
  ASSERT_TRUE(events->welcome);
  EXPECT_EQ(events->welcome->applied_through, 0u);
  EXPECT_EQ(events->welcome->server_life_id, server_->service()->life_id());
  EXPECT_GT(events->welcome->limits.insert_window_bytes, 0u);
  for (uint64_t first = 1; first <= 1000; first += 10) {
    InsertMessage message;
    for (uint64_t number = first; number < first + 10; ++number)
      message.items.push_back(MakeItem(number, "t"));
    Send(*stream, *events, std::move(message));
  }
  ASSERT_TRUE(events->AwaitConfirmed(1000));
  EXPECT_TRUE(events->in_order);
  EXPECT_EQ(server_->table("t").value()->size(), 1000);
  stream->Finish();
  ASSERT_TRUE(events->watch.Await([&] { return events->closed.has_value(); }));
  EXPECT_OK(*events->closed);
  EXPECT_EQ(events->times_closed, 1);
  EXPECT_EQ(server_->service()->stats().writers, 0u) << "a cleanly closed session is dropped";
}

TEST_P(StreamConformanceTest, SamplesContainTheData) {
  StartServer({MakeTable("t")});
  auto connection = Connect();
  auto inserts = std::make_shared<InsertWatch>();
  auto stream = OpenInsert(connection, inserts);
  const ChunkRef shared = test::MakeChunk(&loose_chunks, 7, 0, 10, 100);
  Send(*stream, *inserts,
       MessageOf(
           {MakeItem(1, "t", shared, 0, 3), MakeItem(2, "t", shared, 2, 5), MakeItem(3, "t", shared, 9, 1)}));
  ASSERT_TRUE(inserts->AwaitConfirmed(3));

  auto samples = std::make_shared<SampleWatch>();
  auto sampling = connection->OpenSample(MakeHello(2), samples);
  sampling->Send({.request_id = 5, .table = "t", .count = 1});
  sampling->Send({.request_id = 6, .table = "t", .count = 2});
  ASSERT_TRUE(samples->AwaitEnds(2));
  ASSERT_EQ(samples->samples.size(), 3u);
  // FIFO returns the first item each time.
  EXPECT_THAT(Values(samples->samples[0]), ElementsAre(100, 101, 102));
  EXPECT_EQ(samples->samples[0].key, 1001u);
  EXPECT_EQ(samples->samples[0].table_size, 3);
  EXPECT_EQ(samples->samples[2].times_sampled, 3);
  EXPECT_EQ(samples->ends[0].first, 5u);
  EXPECT_EQ(samples->ends[1].first, 6u);
  EXPECT_OK(samples->ends[1].second);
  sampling->Finish();
  ASSERT_TRUE(samples->watch.Await([&] { return samples->closed.has_value(); }));
  EXPECT_OK(*samples->closed);
  EXPECT_EQ(server_->table("t").value()->Info().counters.samples, 3);
}

TEST_P(StreamConformanceTest, ItemsAreRejectedIndividually) {
  auto per = MakeTable("per");
  per.sampler = SelectorOptions::Prioritized(1.0);
  StartServer({per});
  auto events = std::make_shared<InsertWatch>();
  auto connection = Connect();
  auto stream = OpenInsert(connection, events);
  Item negative = MakeItem(2, "per");
  negative.priority = -1;
  Send(*stream, *events,
       MessageOf({MakeItem(1, "per"), negative, MakeItem(3, "nowhere"), MakeItem(4, "per")}));
  ASSERT_TRUE(events->AwaitConfirmed(4));
  ASSERT_EQ(events->rejections.size(), 2u);
  EXPECT_EQ(events->rejections[0].number, 2u);
  EXPECT_THAT(events->rejections[0].status, StatusIs(StatusCode::kInvalidArgument, Detail::kInvalidPriority));
  EXPECT_EQ(events->rejections[1].number, 3u);
  EXPECT_THAT(events->rejections[1].status, StatusIs(StatusCode::kNotFound, HasSubstr("\"nowhere\"")));
  EXPECT_EQ(server_->table("per").value()->size(), 2) << "the others went in";
  stream->Cancel();
}

TEST_P(StreamConformanceTest, HeartbeatsExplainItemsThatWaitForTheLimiter) {
  StartServer({MakeTable("q", RateLimiterOptions::Queue(10)), MakeTable("free")});
  auto events = std::make_shared<InsertWatch>();
  auto connection = Connect();
  auto stream = OpenInsert(connection, events);
  InsertMessage message;
  for (uint64_t number = 1; number <= 50; ++number) message.items.push_back(MakeItem(number, "q"));
  message.items.push_back(MakeItem(51, "free"));
  Send(*stream, *events, std::move(message));
  // Ten are inserted and confirmed, although they arrived in one message with forty that wait.
  ASSERT_TRUE(events->AwaitConfirmed(10));
  auto free = server_->table("free").value();
  ASSERT_TRUE(events->watch.Await([&] { return free->size() == 1; })) << "another table is not held up";
  Send(*stream, *events, {.heartbeat = true});
  ASSERT_TRUE(events->watch.Await([&] { return events->waiting.has_value(); }));
  EXPECT_EQ(events->waiting->table, "q");
  EXPECT_EQ(events->waiting->reason, WaitReason::kTooManyInserts);
  EXPECT_THAT(events->waiting->text, HasSubstr("\"q\""));
  EXPECT_EQ(events->confirmed, 10u);

  auto samples = std::make_shared<SampleWatch>();
  auto sampling = connection->OpenSample(MakeHello(2), samples);
  sampling->Send({.request_id = 1, .table = "q", .count = 45});
  ASSERT_TRUE(samples->AwaitEnds(1));
  ASSERT_TRUE(events->AwaitConfirmed(51));
  EXPECT_TRUE(events->in_order);
  stream->Cancel();
  sampling->Cancel();
}

TEST_P(StreamConformanceTest, ItemsResentAfterADisconnectAreInsertedOnce) {
  StartServer({MakeTable("q", RateLimiterOptions::Queue(2))});
  auto first = std::make_shared<InsertWatch>();
  auto connection = Connect();
  auto stream = OpenInsert(connection, first, /*writer=*/9);
  Send(*stream, *first,
       MessageOf({MakeItem(1, "q"), MakeItem(2, "q"), MakeItem(3, "q"), MakeItem(4, "nowhere")}));
  ASSERT_TRUE(first->AwaitConfirmed(2));
  stream->Cancel();
  ASSERT_TRUE(first->watch.Await([&] { return first->closed.has_value(); }));

  auto second = std::make_shared<InsertWatch>();
  stream = OpenInsert(connection, second, /*writer=*/9);
  ASSERT_TRUE(second->welcome);
  EXPECT_EQ(second->welcome->applied_through, 2u);
  // Rejections that may have been lost with the connection are sent again.
  ASSERT_TRUE(second->watch.Await([&] { return !second->rejections.empty(); }));
  EXPECT_EQ(second->rejections[0].number, 4u);
  Send(*stream, *second, MessageOf({MakeItem(3, "q"), MakeItem(4, "nowhere"), MakeItem(5, "q")}));

  auto samples = std::make_shared<SampleWatch>();
  auto sampling = connection->OpenSample(MakeHello(2), samples);
  sampling->Send({.request_id = 1, .table = "q", .count = 4});
  ASSERT_TRUE(second->AwaitConfirmed(5));
  EXPECT_EQ(server_->table("q").value()->Info().counters.inserts, 4) << "1, 2, 3 and 5, each once";
  stream->Cancel();
  sampling->Cancel();
}

TEST_P(StreamConformanceTest, ANewConnectionReplacesTheOldOne) {
  StartServer({MakeTable("t")});
  auto connection = Connect();
  auto first = std::make_shared<InsertWatch>();
  auto second = std::make_shared<InsertWatch>();
  auto old_stream = OpenInsert(connection, first, 9);
  auto new_stream = OpenInsert(connection, second, 9);
  ASSERT_TRUE(first->watch.Await([&] { return first->closed.has_value(); }));
  EXPECT_THAT(*first->closed, StatusIs(StatusCode::kAborted));
  Send(*new_stream, *second, MessageOf({MakeItem(1, "t")}));
  EXPECT_TRUE(second->AwaitConfirmed(1));
  new_stream->Cancel();
}

TEST_P(StreamConformanceTest, VersionsMustOverlap) {
  StartServer({MakeTable("t")});
  auto connection = Connect();
  Hello hello = MakeHello(1);
  hello.min_version = hello.max_version = kMaxProtocolVersion + 5;
  auto inserts = std::make_shared<InsertWatch>();
  auto stream = connection->OpenInsert(hello, inserts);
  ASSERT_TRUE(inserts->watch.Await([&] { return inserts->closed.has_value(); }));
  EXPECT_THAT(*inserts->closed, StatusIs(StatusCode::kFailedPrecondition, HasSubstr("speaks versions")));
  auto samples = std::make_shared<SampleWatch>();
  auto sampling = connection->OpenSample(hello, samples);
  sampling->Send({.request_id = 1, .table = "t", .count = 1});
  ASSERT_TRUE(samples->watch.Await([&] { return samples->closed.has_value(); }));
  EXPECT_THAT(*samples->closed, StatusIs(StatusCode::kFailedPrecondition, HasSubstr("speaks versions")));
}

TEST_P(StreamConformanceTest, RequestsEndWithTheReason) {
  StartServer({MakeTable("t"), MakeTable("q", RateLimiterOptions::Queue(2))});
  auto connection = Connect();
  auto inserts = std::make_shared<InsertWatch>();
  auto stream = OpenInsert(connection, inserts);
  Send(*stream, *inserts, MessageOf({MakeItem(1, "q"), MakeItem(2, "q")}));
  ASSERT_TRUE(inserts->AwaitConfirmed(2));

  auto samples = std::make_shared<SampleWatch>();
  auto sampling = connection->OpenSample(MakeHello(2), samples);
  sampling->Send({.request_id = 1, .table = "t", .count = 1, .timeout = Duration(0)});
  sampling->Send({.request_id = 2, .table = "nowhere", .count = 1});
  sampling->Send({.request_id = 3, .table = "t", .count = 0});
  sampling->Send({.request_id = 4, .table = "q", .count = 5, .timeout = 20ms});
  ASSERT_TRUE(samples->AwaitEnds(4));
  EXPECT_THAT(samples->ends[0].second, StatusIs(StatusCode::kDeadlineExceeded, Detail::kRateLimited));
  EXPECT_THAT(samples->ends[1].second, StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(samples->ends[2].second, StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(samples->ends[3].second, StatusIs(StatusCode::kDeadlineExceeded, Detail::kRateLimited));
  EXPECT_EQ(samples->samples.size(), 2u) << "what was drawn comes before the error";
  EXPECT_FALSE(samples->closed) << "the stream goes on";
  sampling->Cancel();
  stream->Cancel();
}

TEST_P(StreamConformanceTest, ACancelledSamplerDrawsNothing) {
  StartServer({MakeTable("t")});
  auto connection = Connect();
  auto samples = std::make_shared<SampleWatch>();
  auto sampling = connection->OpenSample(MakeHello(2), samples);
  sampling->Send({.request_id = 1, .table = "t", .count = 1});  // waits: the table is empty
  auto table = server_->table("t").value();
  ASSERT_TRUE(samples->watch.Await([&] { return table->Info().waiting_samples == 1; }));
  sampling->Cancel();
  ASSERT_TRUE(samples->watch.Await([&] { return samples->closed.has_value(); }));
  ASSERT_TRUE(samples->watch.Await([&] { return table->Info().waiting_samples == 0; }));
  auto inserts = std::make_shared<InsertWatch>();
  auto stream = OpenInsert(connection, inserts);
  Send(*stream, *inserts, MessageOf({MakeItem(1, "t")}));
  ASSERT_TRUE(inserts->AwaitConfirmed(1));
  EXPECT_EQ(table->Info().counters.samples, 0);
  stream->Cancel();
}

TEST_P(StreamConformanceTest, StreamsAreLimited) {
  ServiceLimits limits;
  limits.max_streams = 2;
  StartServer({MakeTable("t")}, limits);
  auto connection = Connect();
  std::vector<std::shared_ptr<InsertWatch>> events;
  std::vector<std::shared_ptr<InsertStream>> streams;
  for (uint8_t writer = 1; writer <= 3; ++writer) {
    events.push_back(std::make_shared<InsertWatch>());
    streams.push_back(OpenInsert(connection, events.back(), writer));
  }
  ASSERT_TRUE(events[2]->closed);
  EXPECT_THAT(*events[2]->closed, StatusIs(StatusCode::kUnavailable, HasSubstr("max_streams")));
  streams[0]->Cancel();
  ASSERT_TRUE(events[0]->watch.Await([&] { return server_->service()->stats().streams == 1; }));
  auto again = std::make_shared<InsertWatch>();
  auto stream = OpenInsert(connection, again, 4);
  EXPECT_TRUE(again->welcome);
  for (auto& open : streams) open->Cancel();
  stream->Cancel();
}

TEST_P(StreamConformanceTest, StoppingEndsEverythingWithAReason) {
  StartServer({MakeTable("q", RateLimiterOptions::Queue(1)), MakeTable("empty")});
  auto connection = Connect();
  auto inserts = std::make_shared<InsertWatch>();
  auto stream = OpenInsert(connection, inserts);
  Send(*stream, *inserts, MessageOf({MakeItem(1, "q"), MakeItem(2, "q")}));  // the second waits
  ASSERT_TRUE(inserts->AwaitConfirmed(1));
  auto samples = std::make_shared<SampleWatch>();
  auto sampling = connection->OpenSample(MakeHello(2), samples);
  sampling->Send({.request_id = 1, .table = "empty", .count = 1});
  auto table = server_->table("empty").value();
  ASSERT_TRUE(samples->watch.Await([&] { return table->Info().waiting_samples == 1; }));
  const auto start = std::chrono::steady_clock::now();
  StopServer();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 20s);
  ASSERT_TRUE(inserts->watch.Await([&] { return inserts->closed.has_value(); }));
  ASSERT_TRUE(samples->watch.Await([&] { return samples->closed.has_value(); }));
  EXPECT_THAT(*inserts->closed, StatusIs(StatusCode::kUnavailable, HasSubstr("shutting down")));
  EXPECT_THAT(*samples->closed, StatusIs(StatusCode::kUnavailable, HasSubstr("shutting down")));
  auto late = std::make_shared<InsertWatch>();
  auto refused = connection->OpenInsert(MakeHello(3), late);
  ASSERT_TRUE(late->watch.Await([&] { return late->closed.has_value(); }));
  EXPECT_THAT(*late->closed, StatusIs(StatusCode::kUnavailable));
}

TEST_P(StreamConformanceTest, SingleCalls) {
  auto per = MakeTable("per");
  per.sampler = SelectorOptions::Prioritized(1.0);
  StartServer({per});
  auto connection = Connect();
  auto inserts = std::make_shared<InsertWatch>();
  auto stream = OpenInsert(connection, inserts);
  Send(*stream, *inserts, MessageOf({MakeItem(1, "per"), MakeItem(2, "per"), MakeItem(3, "per")}));
  ASSERT_TRUE(inserts->AwaitConfirmed(3));
  const WaitOptions wait{.timeout = kPatience};

  auto info = connection->Info(wait);
  ASSERT_OK(info);
  ASSERT_EQ(info->tables.size(), 1u);
  EXPECT_EQ(info->tables[0].current_size, 3);
  EXPECT_EQ(info->live_chunks, 3);
  EXPECT_EQ(info->server_life_id, server_->service()->life_id());

  EXPECT_OK(
      connection->Mutate({.table = "per", .updates = {{1001, 7.0}, {1, 5.0}}, .deletes = {1002}}, wait));
  EXPECT_THAT(connection->Mutate({.table = "per", .updates = {{1001, -7.0}}}, wait),
              StatusIs(StatusCode::kInvalidArgument, Detail::kInvalidPriority));
  EXPECT_THAT(connection->Mutate({.table = "nowhere"}, wait),
              StatusIs(StatusCode::kNotFound, HasSubstr("nowhere")));

  auto inspected = connection->Inspect({.table = "per", .count = 100}, wait);
  ASSERT_OK(inspected);
  ASSERT_EQ(inspected->items.size(), 2u);
  EXPECT_EQ(inspected->items[0].key, 1001u);
  EXPECT_EQ(inspected->items[0].priority, 7.0);
  EXPECT_THAT(Values(inspected->items[0]), ElementsAre(1));
  uint64_t cursor = 0;
  size_t seen = 0;
  do {
    auto page = connection->Inspect({.table = "per", .cursor = cursor, .count = 1}, wait);
    ASSERT_OK(page);
    seen += page->items.size();
    cursor = page->next_cursor;
  } while (cursor != 0);
  EXPECT_EQ(seen, 2u);

  EXPECT_OK(connection->SetRateLimiter({.table = "per", .options = RateLimiterOptions::MinSize(5)}, wait));
  EXPECT_EQ(connection->Info(wait)->tables[0].rate_limiter.min_size_to_sample, 5);
  EXPECT_THAT(connection->SetRateLimiter({.table = "per", .options = {.samples_per_insert = -1}}, wait),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_OK(connection->Reset("per", wait));
  EXPECT_EQ(connection->Info(wait)->tables[0].current_size, 0);
  EXPECT_THAT(connection->Reset("nowhere", wait), StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(connection->Checkpoint(wait), StatusIs(StatusCode::kInvalidArgument, HasSubstr("checkpoint")));
  stream->Cancel();
}

}  // namespace
}  // namespace reverb::internal
