// What the server keeps of disconnected writers: pending items, sessions and sequence numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "service/service_testing.h"
#include "testing/chunks.h"
#include "testing/status_matchers.h"
#include "testing/wait.h"

namespace reverb::internal {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""min;
using std::chrono_literals::operator""s;

class DisconnectedWritersTest : public ServiceTest {
 protected:
  // Returns an item of about 64 kB.
  Item MakeLargeItem(uint64_t number, std::string table = "q") {
    Item item = MakeItem(number, std::move(table));
    item.trajectory = Trajectory::Single(test::MakeChunk(store_.get(), 1, 0, 8000), 0, 1).value();
    return item;
  }
  // Connects, sends the items that the server does not have, and disconnects. Returns its sequence number.
  uint64_t Visit(uint8_t writer, std::vector<Item> items = {}) {
    const auto peer = std::make_shared<FakeInsertPeer>();
    const auto session = service_->OpenInsert(MakeHello(writer), peer).value();
    const uint64_t applied = peer->replies.at(0).welcome->applied_through;
    std::erase_if(items, [&](const Item& item) { return item.number <= applied; });
    if (!items.empty()) session->OnMessage({.items = std::move(items)});
    session->OnGone();
    clock_.Advance(1s);
    return applied;
  }
  std::vector<Item> Items(Item first, Item second) {
    std::vector<Item> items;
    items.push_back(std::move(first));
    items.push_back(std::move(second));
    return items;
  }
  std::vector<uint64_t> Drain(size_t table) {
    std::vector<uint64_t> keys;
    std::vector<Sample> samples;
    while (tables_[table]->Sample(1, true, {.timeout = Duration(0)}, &samples).ok() && !samples.empty()) {
      keys.push_back(samples.back().key);
      samples.clear();
    }
    return keys;
  }
};

TEST_F(DisconnectedWritersTest, WritersWithoutPendingItemsSurviveTheMemoryBound) {
  ServiceLimits limits;
  limits.max_disconnected_bytes = 100'000;
  Create({TableOptions::Queue("q", 1), {.name = "t"}}, limits);
  for (uint8_t writer = 1; writer <= 10; ++writer) Visit(writer, Items(MakeItem(1, "t"), MakeItem(2, "t")));
  Visit(99, Items(MakeItem(1), MakeLargeItem(2)));  // the queue is full from here on
  for (uint8_t writer = 100; writer < 110; ++writer) Visit(writer, Items(MakeLargeItem(1), MakeLargeItem(2)));
  EXPECT_LE(store_->stats().live_bytes, 200'000);
  for (uint8_t writer = 1; writer <= 10; ++writer) EXPECT_EQ(Visit(writer), 2u) << int{writer};
}

TEST_F(DisconnectedWritersTest, AFleetThatALimiterBlocksLosesNothing) {
  ServiceLimits limits;
  limits.max_disconnected_bytes = 300'000;
  Create({TableOptions::Queue("q", 1)}, limits);
  constexpr uint8_t kWriters = 20;
  const auto items = [this](uint8_t writer) {
    std::vector<Item> both = Items(MakeLargeItem(1), MakeLargeItem(2));
    for (Item& item : both) item.key = writer * uint64_t{10} + item.number;
    return both;
  };
  for (uint8_t writer = 1; writer <= kWriters; ++writer) Visit(writer, items(writer));
  EXPECT_LE(store_->stats().live_bytes, 500'000);
  EXPECT_EQ(service_->stats().writers, kWriters);
  EXPECT_GE(tables_[0]->Info().waiting_inserts, 1) << "the longest disconnected keep their items";
  std::map<uint64_t, int> seen;
  for (int visit = 0; visit < 3 * kWriters && seen.size() < 2 * kWriters; ++visit) {
    for (const uint64_t key : Drain(0)) ++seen[key];
    for (uint8_t writer = 1; writer <= kWriters; ++writer) Visit(writer, items(writer));
  }
  EXPECT_EQ(seen.size(), size_t{2} * kWriters);
  for (const auto& [key, times] : seen) EXPECT_EQ(times, 1) << key;
}

TEST_F(DisconnectedWritersTest, ItemsInsertedAfterADroppedOneAreNotInsertedAgain) {
  ServiceLimits limits;
  limits.max_disconnected_bytes = 0;
  Create({TableOptions::Queue("q", 1), TableOptions::Queue("r", 10)}, limits);
  const auto items = [this] {
    std::vector<Item> all = Items(MakeItem(1), MakeLargeItem(2));
    all.push_back(MakeItem(3, "r"));
    all.push_back(MakeItem(4, "nowhere"));
    return all;
  };
  EXPECT_EQ(Visit(1, items()), 0u);
  EXPECT_EQ(tables_[0]->Info().waiting_inserts, 0) << "2 was dropped";
  EXPECT_EQ(tables_[1]->size(), 1);
  const std::vector<SavedWriter> saved = service_->SaveWriters();
  ASSERT_EQ(saved.size(), 1u);
  EXPECT_EQ(saved[0].applied_through, 1u);
  ASSERT_OK(tables_[0]->SetRateLimiter(RateLimiterOptions::MinSize(1)));
  const auto peer = std::make_shared<FakeInsertPeer>();
  const auto session = service_->OpenInsert(MakeHello(1), peer).value();
  EXPECT_EQ(peer->replies.at(0).welcome->applied_through, 1u);
  session->OnMessage({.items = items()});
  EXPECT_EQ(peer->confirmed(), 4u);
  size_t rejections = 0;
  for (const InsertReply& reply : peer->replies) rejections += reply.rejections.size();
  EXPECT_EQ(rejections, 1u);
  EXPECT_EQ(tables_[0]->Info().counters.inserts, 2);
  EXPECT_EQ(tables_[1]->Info().counters.inserts, 1) << "3 was inserted once";
  session->OnGone();
}

TEST_F(DisconnectedWritersTest, PendingItemsOfADisconnectedWriterAreLogged) {
  std::vector<std::string> lines;
  SetLogSink([&](LogLevel, std::string_view text) { lines.emplace_back(text); });
  Create({TableOptions::Queue("q", 1)});
  Visit(1, Items(MakeItem(1), MakeItem(2)));
  Visit(2);
  SetLogSink({});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], ::testing::HasSubstr("table \"q\": the writer disconnected with 1 items"));
}

TEST_F(DisconnectedWritersTest, SequenceNumbersOutliveTheSession) {
  ServiceLimits limits;
  limits.disconnected_session_ttl = 5min;
  limits.sequence_number_ttl = 24h;
  Create({TableOptions::Queue("q", 2)}, limits);
  std::vector<Item> items = Items(MakeItem(1), MakeItem(2));
  items.push_back(MakeItem(3));
  Visit(1, std::move(items));
  clock_.Advance(10min);
  EXPECT_EQ(service_->stats().writers, 0u);
  EXPECT_EQ(service_->stats().remembered_writers, 1u);
  EXPECT_EQ(tables_[0]->Info().waiting_inserts, 0);
  const std::vector<SavedWriter> saved = service_->SaveWriters();
  ASSERT_EQ(saved.size(), 1u) << "checkpoints have it too";
  EXPECT_EQ(saved[0].applied_through, 2u);
  clock_.Advance(23h);
  EXPECT_EQ(Visit(1), 2u);
  clock_.Advance(23h);
  EXPECT_EQ(Visit(1), 2u) << "its age counts from the last disconnect";
  clock_.Advance(25h);
  EXPECT_EQ(service_->stats().remembered_writers, 0u) << "dropped without new clients";
  EXPECT_EQ(Visit(1), 0u);
}

TEST_F(DisconnectedWritersTest, TheOldestSequenceNumbersAreForgottenFirst) {
  ServiceLimits limits;
  limits.disconnected_session_ttl = 0s;
  limits.max_remembered_writers = 3;
  Create({{.name = "t"}}, limits);
  for (uint8_t writer = 1; writer <= 4; ++writer) {
    std::vector<Item> items;
    items.push_back(MakeItem(1, "t"));
    EXPECT_EQ(Visit(writer, std::move(items)), 0u);
  }
  EXPECT_EQ(service_->stats().remembered_writers, 3u);
  for (const uint8_t writer : {2, 3, 4}) EXPECT_EQ(Visit(writer), 1u);
  EXPECT_EQ(Visit(1), 0u);
}

TEST_F(DisconnectedWritersTest, ARejectionOutlivesTheSession) {
  ServiceLimits limits;
  limits.disconnected_session_ttl = 0s;
  Create({{.name = "t"}}, limits);
  Visit(1, Items(MakeItem(1, "t"), MakeItem(2, "nowhere")));
  EXPECT_EQ(service_->stats().writers, 0u);
  const auto peer = std::make_shared<FakeInsertPeer>();
  const auto session = service_->OpenInsert(MakeHello(1), peer).value();
  ASSERT_EQ(peer->replies.at(0).rejections.size(), 1u);
  EXPECT_EQ(peer->replies[0].rejections[0].number, 2u);
  session->OnGone();
}

// A peer that tables call from other threads.
struct ConcurrentPeer final : InsertPeer {
  mutable Mutex mu;
  std::optional<uint64_t> applied GUARDED_BY(mu);
  uint64_t confirmed GUARDED_BY(mu) = 0;
  void ReadNext() override {}
  bool Reply(InsertReply reply) override {
    MutexLock lock(&mu);
    if (reply.welcome) applied = reply.welcome->applied_through;
    confirmed = reply.confirmed_through;
    return true;
  }
  void End(Status) override {}
  std::optional<uint64_t> applied_through() const {
    MutexLock lock(&mu);
    return applied;
  }
};

TEST_F(DisconnectedWritersTest, ItemsDroppedWhileTheyAreInsertedArriveOnce) {
  ServiceLimits limits;
  limits.max_disconnected_bytes = 0;
  Create({TableOptions::Queue("q", 2)}, limits);
  constexpr uint64_t kItems = 2000;
  std::map<uint64_t, int> seen;
  std::thread consumer([&] {
    std::vector<Sample> samples;
    while (seen.size() < kItems && tables_[0]->Sample(1, true, {}, &samples).ok()) {
      for (const Sample& sample : samples) ++seen[sample.key];
      samples.clear();
    }
  });
  uint64_t applied = 0;
  while (applied < kItems) {
    const auto peer = std::make_shared<ConcurrentPeer>();
    const auto session = service_->OpenInsert(MakeHello(1), peer).value();
    ASSERT_TRUE(test::WaitUntil([&] { return peer->applied_through().has_value(); }));
    applied = *peer->applied_through();
    const uint64_t last = std::min(applied + 20, kItems);
    if (applied < last) session->OnMessage(MakeMessage(applied + 1, last));
    session->OnGone();
  }
  consumer.join();
  EXPECT_EQ(seen.size(), kItems);
  for (const auto& [key, times] : seen) EXPECT_EQ(times, 1) << key;
  EXPECT_EQ(tables_[0]->size(), 0);
}

}  // namespace
}  // namespace reverb::internal
