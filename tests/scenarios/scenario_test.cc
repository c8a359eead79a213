// Tests clients of a server in another process when it is killed, stopped, or slow, and the server when
// clients connect and disconnect, or are slow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "reverb/client.h"
#include "scenarios/process.h"
#include "testing/effort.h"
#include "testing/status_matchers.h"
#include "testing/wait.h"

namespace reverb {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using test::ServerProcess;
using test::StatusIs;
using test::WaitUntil;
using ::testing::Lt;
using Clock = std::chrono::steady_clock;

// Long enough for a slow machine; a test that waits this long has failed.
const WaitOptions kPatience{.timeout = 60s};
constexpr int64_t kMiB = int64_t{1} << 20;

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

void Say(const std::string& text) { std::printf("    %s\n", text.c_str()); }

std::string MiB(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f MiB", static_cast<double>(bytes) / kMiB);
  return text;
}

// Returns the numbers of an item: different for each item, and incompressible.
std::vector<int32_t> Numbers(int64_t item, size_t count) {
  std::mt19937 random(static_cast<uint32_t>(item));
  std::vector<int32_t> numbers(count);
  for (int32_t& number : numbers) number = static_cast<int32_t>(random());
  numbers[0] = static_cast<int32_t>(item);
  return numbers;
}

std::vector<int32_t> ToVector(const Tensor& tensor) {
  const auto* data = reinterpret_cast<const int32_t*>(tensor.data());
  return {data, data + tensor.num_elements()};
}

Status Write(TrajectoryWriter& writer, const std::string& table, int64_t item, size_t count = 1) {
  const std::vector<int32_t> numbers = Numbers(item, count);
  const std::array<int64_t, 1> dims = {static_cast<int64_t>(count)};
  const TensorView view{DType::kInt32, dims, numbers.data()};
  REVERB_RETURN_IF_ERROR(writer.Append(std::array{ColumnValue{0, view}}));
  const CellRange newest = CellRange::One(0, writer.position() - 1);
  return writer.CreateItem(table, 1.0, std::array{ItemColumn{{&newest, 1}}});
}

Client Connect(const std::string& address, ClientOptions options = {}) {
  return Client::Connect(address, std::move(options)).value();
}

TrajectoryWriter NewWriter(const Client& client, WaitOptions wait_for_room = {}) {
  return client
      .NewTrajectoryWriter({.chunking = {.num_keep_alive_refs = 1, .max_chunk_length = 1},
                            .wait_for_room = std::move(wait_for_room)})
      .value();
}

TableInfo InfoOf(const Client& client, const std::string& table) {
  const ServerInfo info = client.Info(kPatience).value();
  for (const TableInfo& found : info.tables) {
    if (found.name == table) return found;
  }
  ADD_FAILURE() << "there is no table " << table;
  return {};
}

// Returns the items in the table in order of insertion; each item is identified by its first number.
struct Contents {
  std::vector<int64_t> items;
  std::set<uint64_t> keys;
};
Contents ContentsOf(const Client& client, const std::string& table) {
  Contents contents;
  uint64_t cursor = 0;
  do {
    const auto seen = client.Inspect(table, 1000, &cursor, kPatience);
    EXPECT_OK(seen);
    if (!seen.ok()) break;
    for (const SampledTrajectory& item : *seen) {
      contents.items.push_back(ToVector(item.column(0).value())[0]);
      contents.keys.insert(item.key());
    }
  } while (cursor != 0);
  std::sort(contents.items.begin(), contents.items.end());
  return contents;
}

std::vector<int64_t> Range(int64_t first, int64_t last) {
  std::vector<int64_t> range;
  for (int64_t i = first; i <= last; ++i) range.push_back(i);
  return range;
}

std::vector<std::string> OnPort(int port, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"--port", std::to_string(port)});
  return arguments;
}

// --- A server that is killed ---

TEST(ScenarioTest, UnconfirmedItemsSurviveAKilledServer) {
  std::optional<ServerProcess> server;
  server.emplace(std::vector<std::string>{"--table", "t:queue=5"});
  const int port = server->port();
  const Client client = Connect(server->address());
  auto writer = NewWriter(client);
  for (int64_t item = 1; item <= 20; ++item) ASSERT_OK(Write(writer, "t", item));
  // Five items fit, fifteen wait.
  ASSERT_OK(writer.Flush(15, kPatience));
  ASSERT_THAT(writer.Flush(14, {.timeout = 50ms}), StatusIs(StatusCode::kDeadlineExceeded));
  server->Kill();
  ASSERT_OK(Write(writer, "t", 21));  // no server is running, which does not matter

  const auto restarted = Clock::now();
  server.emplace(OnPort(port, {"--table", "t:queue=100"}));
  ASSERT_OK(writer.Flush(0, kPatience));
  Say("confirmed " + std::to_string(Seconds(Clock::now() - restarted)) + " s after the restart");

  const TableInfo info = InfoOf(client, "t");
  EXPECT_EQ(info.counters.inserts, 16);
  EXPECT_EQ(info.current_size, 16);
  const Contents contents = ContentsOf(client, "t");
  EXPECT_EQ(contents.items, Range(6, 21));
  EXPECT_EQ(contents.keys.size(), 16u);
}

TEST(ScenarioTest, RepeatedKillsLoseAndDuplicateNoUnconfirmedItem) {
  constexpr int64_t kItemsAtATime = 500;
  std::optional<ServerProcess> server;
  server.emplace(std::vector<std::string>{"--table", "t:fifo"});
  const int port = server->port();
  const Client client = Connect(server->address());
  auto writer = NewWriter(client);
  std::mt19937 random(7);
  int64_t written = 0;
  const int rounds = static_cast<int>(test::Effort(6, 3));
  for (int round = 0; round < rounds; ++round) {
    // Killed during this loop, at a moment that the writer does not know.
    const int64_t kill_at = written + 1 + static_cast<int64_t>(random() % kItemsAtATime);
    for (int64_t i = 0; i < kItemsAtATime; ++i) {
      ASSERT_OK(Write(writer, "t", ++written, 64));
      if (written == kill_at) server->Kill();
    }
    server.emplace(OnPort(port, {"--table", "t:fifo"}));
    ASSERT_OK(writer.Flush(0, kPatience));
    const Contents contents = ContentsOf(client, "t");
    ASSERT_FALSE(contents.items.empty());
    // All items from some item on, which must not be one that was written after the kill.
    EXPECT_LE(contents.items.front(), kill_at + 1);
    EXPECT_EQ(contents.items, Range(contents.items.front(), written));
    const TableInfo info = InfoOf(client, "t");
    EXPECT_EQ(info.counters.inserts, info.current_size);
    EXPECT_EQ(contents.keys.size(), contents.items.size());
  }
}

// --- Short-lived clients ---

// Runs one short-lived client. `kind` selects what it does and how it ends.
void ComeAndGo(const std::string& address, int64_t kind) {
  const Client client = Connect(address);
  const std::vector<int32_t> numbers = Numbers(kind, 64);
  const std::array<int64_t, 1> dims = {64};
  const TensorView step{DType::kInt32, dims, numbers.data()};
  switch (kind % 6) {
    case 0: {
      const std::array tables = {Client::TablePriority("replay", 1.0)};
      ASSERT_OK(client.Insert({&step, 1}, tables, kPatience));
      break;
    }
    case 1:
      ASSERT_OK(client.Sample("replay", 1, kPatience));
      break;
    case 2: {  // writes an item, flushes and closes
      auto writer = NewWriter(client);
      ASSERT_OK(Write(writer, "replay", kind, 64));
      ASSERT_OK(writer.EndEpisode(true, kPatience));
      writer.Close();
      break;
    }
    case 3: {  // closes while its items wait for space
      auto writer = NewWriter(client);
      for (int64_t i = 0; i < 4; ++i) ASSERT_OK(Write(writer, "full", i, 64));
      ASSERT_THAT(writer.Flush(0, {.timeout = 5ms}), StatusIs(StatusCode::kDeadlineExceeded));
      writer.Close();
      break;
    }
    case 4: {  // closes while it waits for samples
      auto sampler = client.NewSampler({.table = "empty"}).value();
      ASSERT_THAT(sampler.Next({.timeout = 5ms}), StatusIs(StatusCode::kDeadlineExceeded));
      sampler.Close();
      break;
    }
    default: {  // takes one of many prefetched samples
      auto sampler = client.NewSampler({.table = "replay", .num_workers = 2}).value();
      ASSERT_OK(sampler.Next(kPatience));
      break;
    }
  }
}

TEST(ScenarioTest, ShortLivedClientsLeakNothing) {
  // The slack covers memory that allocators retain, and memory that is being freed during the measurement.
  constexpr int64_t kSlackBytes = 16 * kMiB;
  constexpr int64_t kSlackFds = 3;
  ServerProcess server({"--table", "replay:uniform:100", "--table", "full:queue=1", "--table", "empty",
                        "--writer-memory-ms", "1000"});
  {
    const Client client = Connect(server.address());
    auto writer = NewWriter(client);
    ASSERT_OK(Write(writer, "replay", 1, 64));
    ASSERT_OK(Write(writer, "full", 1, 64));
    ASSERT_OK(writer.Flush(0, kPatience));
  }
  const auto run = [&](int64_t cycles) {
    for (int64_t i = 0; i < cycles && !::testing::Test::HasFatalFailure(); ++i)
      ComeAndGo(server.address(), i);
  };
  run(test::Effort(200, 60));
  const int64_t server_rss = server.rss_bytes();
  const int64_t server_fds = server.num_fds();
  const int64_t our_rss = test::RssBytes(getpid());
  const int64_t our_fds = test::NumFds(getpid());
  const int64_t cycles = test::Effort(2000, 240);
  const auto start = Clock::now();
  run(cycles);
  ASSERT_FALSE(::testing::Test::HasFatalFailure());
  const double took = Seconds(Clock::now() - start);
  const Client client = Connect(server.address());
  // Otherwise the clients that closed while waiting had not started to wait.
  EXPECT_GT(InfoOf(client, "full").waiting_inserts, 0);

  EXPECT_TRUE(WaitUntil([&] { return server.num_fds() <= server_fds + kSlackFds; }))
      << "the server had " << server_fds << " descriptors and has " << server.num_fds();
  EXPECT_TRUE(WaitUntil([&] { return test::NumFds(getpid()) <= our_fds + kSlackFds; }))
      << "we had " << our_fds << " descriptors and have " << test::NumFds(getpid());
  const int64_t server_growth = server.rss_bytes() - server_rss;
  const int64_t our_growth = test::RssBytes(getpid()) - our_rss;
  Say(std::to_string(cycles) + " cycles in " + std::to_string(took) + " s; server " + MiB(server_rss) + " +" +
      MiB(server_growth) + ", " + std::to_string(server_fds) + " -> " + std::to_string(server.num_fds()) +
      " descriptors; we " + MiB(our_rss) + " +" + MiB(our_growth) + ", " + std::to_string(our_fds) + " -> " +
      std::to_string(test::NumFds(getpid())));
  if (!test::kSanitized) {
    EXPECT_THAT(server_growth, Lt(kSlackBytes));
    EXPECT_THAT(our_growth, Lt(kSlackBytes));
  }
  // Waiting requests are gone. Items of abandoned writers are dropped when the next writer connects after
  // their TTL.
  EXPECT_TRUE(WaitUntil([&] { return InfoOf(client, "empty").waiting_samples == 0; }));
  EXPECT_TRUE(WaitUntil([&] {
    auto writer = NewWriter(client);
    EXPECT_OK(Write(writer, "replay", 1, 64));
    EXPECT_OK(writer.Flush(0, kPatience));
    return InfoOf(client, "full").waiting_inserts == 0;
  })) << InfoOf(client, "full").waiting_inserts
      << " inserts of writers that are gone still wait";
}

// --- Slow clients ---

TEST(ScenarioTest, AnIdleSamplerUsesNoMoreThanItsWindow) {
  constexpr size_t kNumbers = 100'000;  // 400 kB
  constexpr int64_t kItems = 170;       // 68 MB
  constexpr int64_t kItemBytes = int64_t{kNumbers} * 4;
  constexpr int64_t kWindow = 4 * kMiB;
  // One reply beyond the window, plus the buffers of gRPC and the allocator.
  constexpr int64_t kSlackBytes = 16 * kMiB;
  ServerProcess server({"--table", "t:uniform"});
  const Client client = Connect(server.address());
  auto writer = NewWriter(client);
  for (int64_t item = 0; item < kItems; ++item) ASSERT_OK(Write(writer, "t", item, kNumbers));
  ASSERT_OK(writer.Flush(0, kPatience));
  writer.Close();

  const int64_t before = server.rss_bytes();
  auto sampler =
      client
          .NewSampler(
              {.table = "t", .max_in_flight_samples_per_worker = 10'000, .receive_window_bytes = kWindow})
          .value();
  // One reply more than fits in the window, and no more.
  ASSERT_TRUE(WaitUntil([&] { return sampler.stats().waiting * kItemBytes >= kWindow; }));
  int64_t most = 0;
  const auto until = Clock::now() + 500ms;
  while (Clock::now() < until) {
    most = std::max(most, server.rss_bytes() - before);
    std::this_thread::sleep_for(5ms);  // samples the memory; nothing must grow during this time
  }
  const int64_t waiting = sampler.stats().waiting;
  EXPECT_THAT(waiting * kItemBytes, Lt(kWindow + kMiB));
  Say("server " + MiB(before) + " +" + MiB(most) + "; " + std::to_string(waiting) + " samples came");
  if (!test::kSanitized) {
    EXPECT_THAT(most, Lt(kWindow + kSlackBytes));
  }

  // The sampler continues where it stopped.
  for (int64_t i = 0; i < kItems; ++i) {
    const auto sample = sampler.Next(kPatience);
    ASSERT_OK(sample);
    const std::vector<int32_t> numbers = ToVector(sample->column(0).value());
    ASSERT_EQ(numbers, Numbers(numbers[0], kNumbers)) << "sample " << i;
  }
}

TEST(ScenarioTest, ASlowQueueConsumerStaysInOrderAndWithinItsWindow) {
  constexpr size_t kNumbers = 100'000;  // 400 kB
  constexpr int64_t kItems = 170;       // 68 MB
  constexpr int64_t kWindow = 4 * kMiB;
  ServerProcess server({"--table", "t:queue=1000"});
  const Client client = Connect(server.address());
  auto writer = NewWriter(client);
  for (int64_t item = 0; item < kItems; ++item) ASSERT_OK(Write(writer, "t", item, kNumbers));
  ASSERT_OK(writer.Flush(0, kPatience));
  auto sampler = client
                     .NewSampler({.table = "t",
                                  .max_samples = kItems,
                                  .max_in_flight_samples_per_worker = 10'000,
                                  .receive_window_bytes = kWindow})
                     .value();
  ASSERT_TRUE(WaitUntil([&] { return sampler.stats().waiting * int64_t{kNumbers} * 4 >= kWindow; }));
  // Samples that cannot be sent are not drawn: they stay in the queue for other clients.
  EXPECT_GT(InfoOf(client, "t").current_size, kItems - 20);
  for (int64_t i = 0; i < kItems; ++i) {
    const auto sample = sampler.Next(kPatience);
    ASSERT_OK(sample);
    ASSERT_EQ(ToVector(sample->column(0).value()), Numbers(i, kNumbers)) << "sample " << i;
  }
  EXPECT_THAT(sampler.Next(kPatience), StatusIs(StatusCode::kOutOfRange));
}

TEST(ScenarioTest, AFullServerLimitsWritersToTheirWindow) {
  constexpr size_t kNumbers = 25'000;  // 100 kB
  constexpr int64_t kItemBytes = int64_t{kNumbers} * 4;
  constexpr int64_t kWindow = 8 * kMiB;
  constexpr int64_t kServerWindow = 1 * kMiB;
  // Messages in flight on either side, plus the buffers of gRPC and the allocator.
  constexpr int64_t kSlackBytes = 16 * kMiB;
  ServerProcess server({"--table", "t:queue=1", "--insert-window-bytes", std::to_string(kServerWindow)});
  const Client client = Connect(server.address(), {.write_window_bytes = kWindow});
  auto writer = NewWriter(client, {.timeout = 300ms});
  ASSERT_OK(Write(writer, "t", 0, kNumbers));
  ASSERT_OK(writer.Flush(0, kPatience));  // the item that fits

  const int64_t server_before = server.rss_bytes();
  const int64_t our_before = test::RssBytes(getpid());
  int64_t written = 1;
  Status status;
  // 64 MB or more without backpressure.
  while (written < 700 && (status = Write(writer, "t", written, kNumbers)).ok()) ++written;
  ASSERT_THAT(status, StatusIs(StatusCode::kDeadlineExceeded, ::testing::HasSubstr("room")));
  EXPECT_THAT(written * kItemBytes, Lt(kWindow + kMiB));
  EXPECT_GT(written * kItemBytes, kWindow - kMiB);
  const int64_t server_growth = server.rss_bytes() - server_before;
  const int64_t our_growth = test::RssBytes(getpid()) - our_before;
  Say("stopped after " + std::to_string(written) + " items; server " + MiB(server_before) + " +" +
      MiB(server_growth) + ", we " + MiB(our_before) + " +" + MiB(our_growth));
  if (!test::kSanitized) {
    EXPECT_THAT(server_growth, Lt(kServerWindow + kSlackBytes));
    EXPECT_THAT(our_growth, Lt(kWindow + kSlackBytes));
  }

  // Nothing is lost once the items are sampled.
  auto sampler = client.NewSampler({.table = "t", .max_samples = written}).value();
  for (int64_t i = 0; i < written; ++i) {
    const auto sample = sampler.Next(kPatience);
    ASSERT_OK(sample);
    ASSERT_EQ(ToVector(sample->column(0).value()), Numbers(i, kNumbers)) << "sample " << i;
  }
  ASSERT_OK(writer.Flush(0, kPatience));
}

// --- Server shutdown ---

TEST(ScenarioTest, StoppingABusyServerFailsItsClientsAndExits) {
  ServerProcess server({"--table", "replay:uniform:1000", "--table", "full:queue=1", "--table", "empty"});
  // Otherwise they would try to reconnect indefinitely.
  const ClientOptions options{.reconnect_timeout = 0ms};
  {
    const Client client = Connect(server.address());
    auto writer = NewWriter(client);
    ASSERT_OK(Write(writer, "replay", 1, 1000));
    ASSERT_OK(Write(writer, "full", 1, 1000));
    ASSERT_OK(writer.Flush(0, kPatience));
  }
  // Each client works until the server has gone, and returns the error.
  using Work = std::function<Status(const Client&, const std::function<void()>& busy)>;
  const Work write = [](const Client& client, const auto& busy) -> Status {
    auto writer = NewWriter(client, kPatience);
    while (true) {
      REVERB_RETURN_IF_ERROR(Write(writer, "replay", 1, 1000));
      REVERB_RETURN_IF_ERROR(writer.Flush(10, kPatience));
      busy();
    }
  };
  const Work write_to_full = [](const Client& client, const auto& busy) -> Status {
    auto writer = NewWriter(client, kPatience);
    for (int64_t i = 0; i < 10; ++i) REVERB_RETURN_IF_ERROR(Write(writer, "full", i, 1000));
    busy();
    return writer.Flush(0, kPatience);
  };
  const Work sample = [](const Client& client, const auto& busy) -> Status {
    auto sampler = client.NewSampler({.table = "replay", .reconnect_timeout = 0ms}).value();
    while (true) {
      REVERB_ASSIGN_OR_RETURN(const SampledTrajectory taken, sampler.Next(kPatience));
      busy();
    }
  };
  const Work sample_from_empty = [](const Client& client, const auto& busy) -> Status {
    auto sampler = client.NewSampler({.table = "empty", .reconnect_timeout = 0ms}).value();
    busy();
    return sampler.Next(kPatience).status();
  };
  const Work* const works[] = {&write,  &write,  &write_to_full,     &write_to_full,
                               &sample, &sample, &sample_from_empty, &sample_from_empty};
  std::vector<Status> ends(std::size(works));
  std::vector<double> took(std::size(works));
  std::atomic<size_t> num_busy = 0;
  std::atomic<Clock::time_point> stopped_at{Clock::time_point()};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < std::size(works); ++i) {
    threads.emplace_back([&, i] {
      bool counted = false;
      const Client client = Connect(server.address(), options);
      ends[i] = (*works[i])(client, [&] {
        if (!std::exchange(counted, true)) ++num_busy;
      });
      took[i] = Seconds(Clock::now() - stopped_at.load());
    });
  }
  EXPECT_TRUE(WaitUntil([&] { return num_busy == std::size(works); }));
  {
    const Client client = Connect(server.address());
    EXPECT_TRUE(WaitUntil([&] {
      return InfoOf(client, "full").waiting_inserts >= 2 && InfoOf(client, "empty").waiting_samples >= 2;
    }));
  }

  stopped_at = Clock::now();
  const auto patience = test::kSanitized ? 10'000ms : 2'000ms;
  const std::optional<int> exit_status = server.Terminate(patience);
  const double stop_took = Seconds(Clock::now() - stopped_at.load());
  if (!exit_status) server.Kill();  // unblocks the clients
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(exit_status, 0) << "not stopped after " << stop_took << " s";
  Say("the server was gone after " + std::to_string(stop_took) + " s, the last client after " +
      std::to_string(*std::max_element(took.begin(), took.end())) + " s");
  for (size_t i = 0; i < ends.size(); ++i) {
    EXPECT_FALSE(ends[i].ok()) << "client " << i;
    EXPECT_THAT(ends[i], ::testing::Not(StatusIs(StatusCode::kDeadlineExceeded))) << "client " << i;
    Say("client " + std::to_string(i) + ": " + ends[i].ToString());
  }
}

TEST(ScenarioTest, StoppingAnIdleServerExitsAtOnce) {
  ServerProcess server({"--table", "t"});
  EXPECT_EQ(server.Terminate(test::kSanitized ? 10'000ms : 2'000ms), 0);
}

}  // namespace
}  // namespace reverb
