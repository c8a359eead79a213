// Tests clients and servers when bits flip on the wire: no wrong data is inserted or sampled, and each item
// is inserted once.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "reverb/client.h"
#include "reverb/server.h"
#include "testing/seed.h"
#include "testing/status_matchers.h"

namespace reverb {
namespace {

using std::chrono_literals::operator""s;

// Long enough for a slow machine; a test that waits this long has failed.
const WaitOptions kPatience{.timeout = 100s};

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

// Forwards bytes between clients and a server. In one direction, flips a random bit about every `period`
// bytes, up to `max_flips` bits.
class FlippingProxy {
 public:
  struct Options {
    int server_port;
    bool upstream;
    int64_t period;
    int64_t max_flips;
    uint64_t seed;
  };

  explicit FlippingProxy(const Options& options) : options_(options), random_(options.seed) {
    next_flip_ = NextDistance();
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_, 64), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~FlippingProxy() {
    shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    close(listener_);
    for (Link& link : links_) link.Break();
    for (Link& link : links_) {
      link.up.join();
      link.down.join();
      close(link.client);
      close(link.server);
    }
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  int64_t flips() const { return flips_; }

 private:
  struct Link {
    int client;
    int server;
    std::thread up, down;
    void Break() const {
      shutdown(client, SHUT_RDWR);
      shutdown(server, SHUT_RDWR);
    }
  };

  void Accept() {
    while (true) {
      const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (client < 0) return;
      const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const sockaddr_in address = Loopback(options_.server_port);
      EXPECT_EQ(connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
      Link& link = links_.emplace_back();
      link.client = client;
      link.server = server;
      link.up = std::thread([this, &link] { Pump(link, link.client, link.server, options_.upstream); });
      link.down = std::thread([this, &link] { Pump(link, link.server, link.client, !options_.upstream); });
    }
  }

  void Pump(const Link& link, int from, int to, bool flips) {
    std::vector<uint8_t> bytes(64 << 10);
    while (true) {
      const ssize_t got = read(from, bytes.data(), bytes.size());
      if (got <= 0) break;
      if (flips) Flip(bytes.data(), got);
      for (ssize_t sent = 0; sent < got;) {
        const ssize_t n = send(to, bytes.data() + sent, static_cast<size_t>(got - sent), MSG_NOSIGNAL);
        if (n <= 0) return link.Break();
        sent += n;
      }
    }
    link.Break();
  }

  int64_t NextDistance() { return std::uniform_int_distribution<int64_t>(1, 2 * options_.period)(random_); }
  void Flip(uint8_t* bytes, int64_t size) {
    const std::lock_guard lock(mu_);
    while (next_flip_ < size && flips_ < options_.max_flips) {
      bytes[next_flip_] ^= static_cast<uint8_t>(1 << random_() % 8);
      ++flips_;
      next_flip_ += NextDistance();
    }
    next_flip_ -= std::min(next_flip_, size);
  }

  const Options options_;
  int listener_ = -1;
  int port_ = 0;
  std::thread acceptor_;
  std::list<Link> links_;  // accessed by the acceptor thread, then by the destructor

  std::mutex mu_;
  std::mt19937_64 random_;
  int64_t next_flip_ = 0;
  std::atomic<int64_t> flips_ = 0;
};

class DamageTest : public ::testing::Test {
 protected:
  DamageTest() {
    ServerOptions options;
    TableOptions table;
    table.name = "t";
    table.max_size = 1'000'000;
    options.tables = {table};
    options.host = "127.0.0.1";
    server_.emplace(Server::Start(std::move(options)).value());
  }
  FlippingProxy::Options Flips(bool upstream, int64_t period, int64_t max_flips) {
    return {.server_port = server_->port(),
            .upstream = upstream,
            .period = period,
            .max_flips = max_flips,
            .seed = seed_};
  }
  static Client Through(const FlippingProxy& proxy) {
    return Client::Connect(proxy.address(), {.in_process = false}).value();
  }

  // Returns the content of item `i`: a long row of bytes and a number.
  static std::vector<uint8_t> Row(int64_t i) {
    std::mt19937_64 random(static_cast<uint64_t>(i));
    std::vector<uint8_t> row(static_cast<size_t>(i % 3 == 0 ? 4000 : 60));
    for (uint8_t& byte : row) byte = static_cast<uint8_t>(random());
    return row;
  }
  // One writer for each row length, because a column has one shape.
  static Status Write(TrajectoryWriter& writer, int64_t i) {
    const std::vector<uint8_t> row = Row(i);
    const std::array<int64_t, 1> dims = {static_cast<int64_t>(row.size())};
    REVERB_RETURN_IF_ERROR(writer.Append(std::array{ColumnValue{0, {DType::kUint8, dims, row.data()}},
                                                    ColumnValue{1, {DType::kInt64, {}, &i}}}));
    const CellRange bytes = CellRange::One(0, writer.position() - 1);
    const CellRange number = CellRange::One(1, writer.position() - 1);
    return writer.CreateItem("t", static_cast<double>(i) + 0.5,
                             std::array{ItemColumn{{&bytes, 1}}, ItemColumn{{&number, 1}}});
  }
  static int64_t CheckItem(const SampledTrajectory& item) {
    const Tensor number = item.column(1).value();
    const int64_t i = *reinterpret_cast<const int64_t*>(number.data());
    const Tensor bytes = item.column(0).value();
    EXPECT_EQ(std::vector<uint8_t>(bytes.data(), bytes.data() + bytes.num_elements()), Row(i)) << i;
    EXPECT_EQ(item.priority(), static_cast<double>(i) + 0.5) << i;
    return i;
  }

  const uint64_t seed_ = test::Seed();
  ::testing::ScopedTrace trace_{__FILE__, __LINE__, test::SeedTrace(seed_)};
  std::optional<Server> server_;
};

TEST_F(DamageTest, EveryItemIsInsertedOnceAndUnchanged) {
  constexpr int64_t kItems = 3000;
  const FlippingProxy proxy(Flips(/*upstream=*/true, /*period=*/100'000, /*max_flips=*/30));
  const Client client = Through(proxy);
  const TrajectoryWriterOptions options{.chunking = {.num_keep_alive_refs = 1, .max_chunk_length = 1}};
  TrajectoryWriter long_rows = client.NewTrajectoryWriter(options).value();
  TrajectoryWriter short_rows = client.NewTrajectoryWriter(options).value();
  for (int64_t i = 0; i < kItems; ++i) ASSERT_OK(Write(i % 3 == 0 ? long_rows : short_rows, i));
  ASSERT_OK(long_rows.Flush(0, kPatience));
  ASSERT_OK(short_rows.Flush(0, kPatience));
  EXPECT_GT(proxy.flips(), 5);

  const Client near = server_->in_process_client();
  std::map<int64_t, int> seen;
  uint64_t cursor = 0;
  do {
    const auto items = near.Inspect("t", 1000, &cursor, kPatience);
    ASSERT_OK(items);
    for (const SampledTrajectory& item : *items) ++seen[CheckItem(item)];
  } while (cursor != 0);
  EXPECT_EQ(seen.size(), static_cast<size_t>(kItems));
  for (const auto& [i, times] : seen) EXPECT_EQ(times, 1) << i;
}

TEST_F(DamageTest, SamplesAreCorrectOrMissing) {
  constexpr int64_t kItems = 300;
  {
    const Client near = server_->in_process_client();
    const TrajectoryWriterOptions options{.chunking = {.num_keep_alive_refs = 1, .max_chunk_length = 1}};
    TrajectoryWriter long_rows = near.NewTrajectoryWriter(options).value();
    TrajectoryWriter short_rows = near.NewTrajectoryWriter(options).value();
    for (int64_t i = 0; i < kItems; ++i) ASSERT_OK(Write(i % 3 == 0 ? long_rows : short_rows, i));
    ASSERT_OK(long_rows.Flush(0, kPatience));
    ASSERT_OK(short_rows.Flush(0, kPatience));
  }
  const FlippingProxy proxy(Flips(/*upstream=*/false, /*period=*/30'000, /*max_flips=*/20));
  const Client client = Through(proxy);
  std::optional<Sampler> sampler = client.NewSampler({.table = "t"}).value();
  for (int64_t i = 0; i < 2000; ++i) {
    const auto sample = sampler->Next({.timeout = 5s});
    if (sample.status().code() == StatusCode::kDeadlineExceeded) {
      // HTTP/2 frames are not covered: a flip in a frame length may stall a stream.
      sampler = client.NewSampler({.table = "t"}).value();
      continue;
    }
    ASSERT_OK(sample);
    EXPECT_LT(CheckItem(*sample), kItems);
  }
  EXPECT_GT(proxy.flips(), 5);
}

TEST_F(DamageTest, SingleCallsAreRetried) {
  constexpr int64_t kItems = 1000;
  const Client near = server_->in_process_client();
  TrajectoryWriter writer =
      near.NewTrajectoryWriter({.chunking = {.num_keep_alive_refs = 1, .max_chunk_length = 1}}).value();
  for (int64_t i = 0; i < kItems; ++i) ASSERT_OK(Write(writer, 3 * i + 1));
  ASSERT_OK(writer.Flush(0, kPatience));
  const auto all_items = [&] {
    std::vector<SampledTrajectory> all;
    uint64_t cursor = 0;
    do {
      std::vector<SampledTrajectory> page = near.Inspect("t", kItems, &cursor, kPatience).value();
      std::ranges::move(page, std::back_inserter(all));
    } while (cursor != 0);
    return all;
  };
  std::vector<KeyPriority> updates;
  for (const SampledTrajectory& item : all_items()) updates.push_back({item.key(), 0});
  ASSERT_EQ(updates.size(), static_cast<size_t>(kItems));

  const FlippingProxy proxy(Flips(/*upstream=*/true, /*period=*/100'000, /*max_flips=*/40));
  const Client client = Through(proxy);
  int64_t num_set = 0;
  for (int64_t i = 0; i < 100; ++i) {
    for (KeyPriority& update : updates) update.priority = static_cast<double>(i);
    const Status status = client.UpdatePriorities("t", updates, {.timeout = std::chrono::seconds(10)});
    // HTTP/2 frames are not covered: a flip there may fail the call, or leave both ends waiting for more bytes, but does
    // not change data.
    if (!status.ok()) continue;
    ++num_set;
    for (const SampledTrajectory& item : all_items()) ASSERT_EQ(item.priority(), static_cast<double>(i));
  }
  EXPECT_GE(num_set, 85);
  EXPECT_GT(proxy.flips(), 5);
}

}  // namespace
}  // namespace reverb
