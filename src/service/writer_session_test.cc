#include "service/writer_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "service/service_testing.h"
#include "testing/chunks.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""min;
using std::chrono_literals::operator""s;
using test::StatusIs;
using ::testing::HasSubstr;

class WriterSessionTest : public ServiceTest {};

TEST_F(WriterSessionTest, ReadingStopsWhileItemsWait) {
  ServiceLimits limits;
  limits.max_waiting_items = 10;
  Create({TableOptions::Queue("q", 1)}, limits);
  auto peer = std::make_shared<FakeInsertPeer>();
  auto session = service_->OpenInsert(MakeHello(1), peer).value();
  EXPECT_EQ(peer->reads, 1);
  session->OnMessage(MakeMessage(1, 5));
  EXPECT_EQ(peer->confirmed(), 1u);
  EXPECT_EQ(peer->reads, 2) << "four wait";
  session->OnMessage(MakeMessage(6, 20));
  EXPECT_EQ(peer->reads, 2) << "nineteen wait";
  std::vector<Sample> samples;
  ASSERT_OK(tables_[0]->Sample(15, true, {}, &samples));
  while (samples.size() < 15)
    ASSERT_OK(tables_[0]->Sample(15 - static_cast<int64_t>(samples.size()), true, {}, &samples));
  EXPECT_EQ(peer->reads, 3);
  EXPECT_GE(peer->confirmed(), 15u);
  session->OnGone();
}

TEST_F(WriterSessionTest, BytesCountTowardsTheWindowToo) {
  ServiceLimits limits;
  limits.insert_window_bytes = 1000;
  Create({TableOptions::Queue("q", 1)}, limits);
  auto peer = std::make_shared<FakeInsertPeer>();
  auto session = service_->OpenInsert(MakeHello(1), peer).value();
  session->OnMessage(MakeMessage(1, 50));
  EXPECT_EQ(peer->reads, 1);
  EXPECT_EQ(peer->replies.front().welcome->limits.insert_window_bytes, 1000u);
  session->OnGone();
}

TEST_F(WriterSessionTest, WhatWaitingItemsTakeBesidesTheirChunksIsUsed) {
  Create({TableOptions::Queue("q", 1)});
  auto peer = std::make_shared<FakeInsertPeer>();
  auto session = service_->OpenInsert(MakeHello(1), peer).value();
  // Many items of the same chunk: their own memory is most of it.
  const ChunkRef chunk = test::MakeChunk(store_.get(), 1, 0, 2);
  constexpr int64_t kWaiting = 1000;
  const auto message = [&](uint64_t first, uint64_t count) {
    InsertMessage items;
    for (uint64_t number = first; number < first + count; ++number) {
      Item item = MakeItem(number, "q");
      item.trajectory =
          Trajectory::Create(std::vector<ColumnSpec>{{.slices = {{chunk, 0, 0, 1}, {chunk, 0, 1, 1}}}})
              .value();
      items.items.push_back(std::move(item));
    }
    return items;
  };
  session->OnMessage(message(1, 1));
  const MemoryBudget::Usage stored = store_->budget().usage();
  session->OnMessage(message(2, kWaiting / 2));
  session->OnMessage(message(2 + kWaiting / 2, kWaiting / 2));
  const MemoryBudget::Usage usage = store_->budget().usage();
  EXPECT_EQ(usage.chunks, chunk->bytes());
  EXPECT_EQ(usage.waiting, chunk->bytes());
  EXPECT_GT(usage.sessions, stored.sessions + kWaiting * 100);
  EXPECT_EQ(usage.total() - stored.total(), usage.sessions - stored.sessions);
  EXPECT_EQ(service_->Info().value().memory.used, usage.total());
  std::vector<Sample> samples;
  while (samples.size() < kWaiting) {
    ASSERT_OK(tables_[0]->Sample(kWaiting - static_cast<int64_t>(samples.size()), true, {}, &samples));
  }
  EXPECT_EQ(store_->budget().usage().sessions, stored.sessions);
  EXPECT_EQ(store_->budget().usage().waiting, 0);
  session->OnGone();
}

TEST_F(WriterSessionTest, UnsentConfirmationsAreCombined) {
  Create({TableOptions::Queue("q", 100)});
  auto peer = std::make_shared<FakeInsertPeer>();
  auto session = service_->OpenInsert(MakeHello(1), peer).value();
  peer->ready = false;
  session->OnMessage(MakeMessage(1, 5));
  ASSERT_EQ(peer->replies.size(), 2u);
  session->OnMessage(MakeMessage(6, 9));
  session->OnMessage({.items = {MakeItem(10, "nowhere")}, .heartbeat = true});
  EXPECT_EQ(peer->replies.size(), 2u);
  session->OnWritten();
  ASSERT_EQ(peer->replies.size(), 3u);
  EXPECT_EQ(peer->confirmed(), 10u);
  EXPECT_EQ(peer->replies.back().rejections.size(), 1u);
  session->OnGone();
}

TEST_F(WriterSessionTest, ADisconnectedWriterIsDroppedAfterItsTtl) {
  ServiceLimits limits;
  limits.disconnected_session_ttl = 5min;
  Create({TableOptions::Queue("q", 1)}, limits);
  auto peer = std::make_shared<FakeInsertPeer>();
  auto session = service_->OpenInsert(MakeHello(1), peer).value();
  session->OnMessage(MakeMessage(1, 3));
  session->OnGone();
  EXPECT_EQ(service_->stats().writers, 1u);
  EXPECT_EQ(tables_[0]->Info().waiting_inserts, 1) << "what it sent still waits";
  clock_.Advance(6min);
  // A new writer makes the service drop expired sessions.
  auto other = std::make_shared<FakeInsertPeer>();
  auto another = service_->OpenInsert(MakeHello(2), other).value();
  EXPECT_EQ(service_->stats().writers, 1u);
  EXPECT_EQ(tables_[0]->Info().waiting_inserts, 0);
  another->OnGone();
}

TEST_F(WriterSessionTest, ManyDisconnectedWritersAreDroppedEarlier) {
  ServiceLimits limits;
  limits.max_writers = 16;
  Create({TableOptions::Queue("q", 1)}, limits);
  for (uint8_t writer = 1; writer <= 100; ++writer) {
    auto session = service_->OpenInsert(MakeHello(writer), std::make_shared<FakeInsertPeer>()).value();
    session->OnMessage(MakeMessage(1, 3));
    session->OnGone();
    clock_.Advance(1s);
  }
  EXPECT_LE(service_->stats().writers, 16u);
  EXPECT_LE(tables_[0]->Info().waiting_inserts, 16);
  EXPECT_LE(store_->stats().live_chunks, 16 * 3 + 1);
}

TEST_F(WriterSessionTest, RemovedTablesAreForgotten) {
  Create({TableOptions::Queue("other", 1)});
  auto peer = std::make_shared<FakeInsertPeer>();
  auto session = service_->OpenInsert(MakeHello(1), peer).value();
  std::vector<std::weak_ptr<ConcurrentTable>> removed;
  uint64_t number = 0;
  for (int i = 0; i < 5; ++i) {
    ASSERT_OK(service_->CreateTable({.table = TableOptions::Queue("q", 1).Settings(), .exist_ok = false}));
    removed.push_back(service_->FindTable("q").value());
    session->OnMessage(MakeMessage(number + 1, number + 2));  // the second waits until the table is removed
    number += 2;
    ASSERT_OK(service_->RemoveTable("q"));
    EXPECT_EQ(peer->confirmed(), number);
    EXPECT_EQ(peer->replies.back().rejections.size(), 1u);
  }
  session->OnMessage({.items = {MakeItem(++number, "other")}});
  EXPECT_EQ(tables_[0]->size(), 1);
  for (const auto& table : removed) EXPECT_TRUE(table.expired());
  session->OnGone();
}

TEST_F(WriterSessionTest, WhatWentIntoARemovedTableIsNotInsertedAgain) {
  Create({TableOptions::Queue("full", 1), TableOptions::Queue("q", 9)});
  auto peer = std::make_shared<FakeInsertPeer>();
  auto session = service_->OpenInsert(MakeHello(1), peer).value();
  session->OnMessage({.items = {MakeItem(1, "full"), MakeItem(2, "full"), MakeItem(3)}});  // 2 waits
  ASSERT_EQ(tables_[1]->size(), 1);
  ASSERT_OK(service_->RemoveTable("q"));
  const TableSettings settings = TableOptions::Queue("q", 9).Settings();
  ASSERT_OK(service_->CreateTable({.table = settings, .exist_ok = false}));
  session->OnMessage({.items = {MakeItem(4)}});
  const std::vector<SavedWriter> saved = service_->SaveWriters();
  ASSERT_EQ(saved.size(), 1u);
  EXPECT_EQ(saved[0].applied_through, 1u);
  ASSERT_OK(service_->RemoveTable("q"));
  ASSERT_OK(service_->CreateTable({.table = settings, .exist_ok = false}));
  session->OnMessage({.items = {MakeItem(5, "nowhere"), MakeItem(6, "full")}});
  const std::vector<SavedWriter> later = service_->SaveWriters();
  ASSERT_EQ(later.size(), 1u);
  EXPECT_THAT(later[0].applied, ::testing::Contains(std::pair<std::string, uint64_t>("q", 4)));
  session->OnGone();
}

TEST_F(WriterSessionTest, WritersWithoutAnIdAreRejected) {
  Create({TableOptions::Queue("q", 1)});
  EXPECT_THAT(service_->OpenInsert({}, std::make_shared<FakeInsertPeer>()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("session id")));
}

TEST_F(WriterSessionTest, SlicesCountAsMemoryToo) {
  ServiceLimits limits;
  limits.insert_window_bytes = 1 << 20;
  Create({TableOptions::Queue("q", 1)}, limits);
  auto peer = std::make_shared<FakeInsertPeer>();
  auto session = service_->OpenInsert(MakeHello(1), peer).value();
  ColumnSpec column;
  const ChunkRef chunk = test::MakeChunk(store_.get(), 1, 0, 1);
  for (int i = 0; i < 100'000; ++i) column.slices.push_back({chunk, 0, 0, 1});
  const Trajectory many = Trajectory::Create({&column, 1}).value();
  EXPECT_GE(many.memory_bytes(), 100'000 * 16);
  uint64_t number = 0;
  const auto send = [&] {
    session->OnMessage({.items = {{.number = ++number, .key = number, .table = "q", .trajectory = many}}});
  };
  send();  // inserted
  send();  // waits
  const int reads = peer->reads;
  send();
  EXPECT_EQ(peer->reads, reads) << "a chunk of some bytes with slices of megabytes";
  session->OnGone();
}

TEST_F(WriterSessionTest, ItemsThatShareAChunkCountItOnce) {
  ServiceLimits limits;
  limits.insert_window_bytes = 20'000;
  Create({TableOptions::Queue("q", 1)}, limits);
  auto peer = std::make_shared<FakeInsertPeer>();
  auto session = service_->OpenInsert(MakeHello(1), peer).value();
  const Trajectory shared =
      Trajectory::Single(test::MakeChunk(store_.get(), 1, 0, 1000), 0, 1).value();  // 8 kB
  InsertMessage message;
  for (uint64_t number = 1; number <= 30; ++number) {
    message.items.push_back({.number = number, .key = number, .table = "q", .trajectory = shared});
  }
  session->OnMessage(std::move(message));
  EXPECT_EQ(peer->reads, 2);
  session->OnGone();
}

ItemStructure DictOf(std::string key) {
  return ItemStructure::Create(Signature::Dict({{std::move(key), Signature()}}).value()).value();
}

TEST_F(WriterSessionTest, TablesKeepTheFirstLayout) {
  TableOptions with_signature = TableOptions::Queue("signed", 10);
  with_signature.signature =
      Signature::Leaf({.name = "", .dtype = DType::kInt64, .shape = Shape::UnknownRank()}).value();
  TableOptions any = TableOptions::Queue("any", 10);
  any.layout = LayoutPolicy::kAny;
  Create({TableOptions::Queue("q", 10), TableOptions::Queue("other", 10), with_signature, any});
  std::vector<std::shared_ptr<FakeInsertPeer>> peers;
  std::vector<std::shared_ptr<InsertSession>> sessions;
  uint64_t key = 0;
  // Returns whether the item was accepted.
  const auto insert = [&](size_t writer, const ItemStructure& structure, const std::string& table = "q") {
    Item item = MakeItem(++key, table);
    item.structure = structure;
    sessions[writer]->OnMessage({.items = {std::move(item)}});
    return peers[writer]->replies.back().rejections.empty();
  };
  for (uint8_t writer = 1; writer <= 2; ++writer) {
    peers.push_back(std::make_shared<FakeInsertPeer>());
    sessions.push_back(service_->OpenInsert(MakeHello(writer), peers.back()).value());
  }
  const ItemStructure x = DictOf("x");
  const std::string bytes(x.encoded());
  const auto& table = tables_[0];
  EXPECT_TRUE(insert(0, {}));
  EXPECT_EQ(table->Info().structure, std::nullopt);
  EXPECT_TRUE(insert(0, x));
  EXPECT_TRUE(insert(1, DictOf("x")));
  EXPECT_TRUE(insert(0, {}));
  EXPECT_EQ(table->Info().structure, bytes);
  EXPECT_EQ(tables_[1]->Info().structure, std::nullopt);
  EXPECT_FALSE(insert(1, DictOf("y")));
  EXPECT_THAT(peers[1]->replies.back().rejections[0].status,
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("{y: int64}, but the table has {x: int64}")));
  EXPECT_TRUE(insert(1, x));  // the other items of a writer are not affected
  EXPECT_EQ(table->Info().current_size, 5);
  // A reset lets the next item determine the layout.
  table->Reset();
  EXPECT_TRUE(insert(1, DictOf("y")));
  EXPECT_EQ(table->Info().structure, std::string(DictOf("y").encoded()));
  EXPECT_FALSE(insert(0, x));
  table->Reset();
  EXPECT_TRUE(insert(0, x));
  EXPECT_EQ(table->Info().structure, bytes);
  // Rejected items and items for a table with a signature do not set the structure.
  table->Reset();
  Item refused = MakeItem(++key);
  refused.priority = std::numeric_limits<double>::quiet_NaN();
  refused.structure = DictOf("z");
  sessions[0]->OnMessage({.items = {std::move(refused)}});
  EXPECT_EQ(table->Info().structure, bytes);
  EXPECT_TRUE(insert(0, x, "signed"));
  EXPECT_EQ(tables_[2]->Info().structure, std::nullopt);
  EXPECT_EQ(tables_[2]->Info().current_size, 1);
  EXPECT_TRUE(insert(0, x, "any"));
  EXPECT_TRUE(insert(1, DictOf("y"), "any"));
  EXPECT_EQ(tables_[3]->Info().structure, "");
  EXPECT_EQ(tables_[3]->Info().current_size, 2);
  for (auto& session : sessions) session->OnGone();
}

TEST_F(WriterSessionTest, TheReasonIsSentWhenReadingStops) {
  ServiceLimits limits;
  limits.max_waiting_items = 5;
  Create({TableOptions::Queue("q", 1)}, limits);
  auto peer = std::make_shared<FakeInsertPeer>();
  auto session = service_->OpenInsert(MakeHello(1), peer).value();
  session->OnMessage(MakeMessage(1, 20));
  EXPECT_EQ(peer->reads, 1);
  ASSERT_TRUE(peer->replies.back().waiting);
  EXPECT_THAT(peer->replies.back().waiting->text, HasSubstr("\"q\""));
  session->OnGone();
}

TEST_F(WriterSessionTest, DisconnectedWritersAreDroppedWithoutNewClients) {
  ServiceLimits limits;
  limits.disconnected_session_ttl = 5min;
  Create({TableOptions::Queue("q", 1)}, limits);
  auto session = service_->OpenInsert(MakeHello(1), std::make_shared<FakeInsertPeer>()).value();
  session->OnMessage(MakeMessage(1, 3));
  session->OnGone();
  clock_.Advance(4min);
  EXPECT_EQ(service_->stats().writers, 1u);
  clock_.Advance(7min);
  EXPECT_EQ(service_->stats().writers, 0u);
  EXPECT_EQ(tables_[0]->Info().waiting_inserts, 0);
}

TEST_F(WriterSessionTest, SessionsMayBeKeptForever) {
  ServiceLimits limits;
  limits.disconnected_session_ttl = Duration::max();
  Create({TableOptions::Queue("q", 1)}, limits);
  clock_.Advance(1min);
  auto session = service_->OpenInsert(MakeHello(1), std::make_shared<FakeInsertPeer>()).value();
  session->OnMessage(MakeMessage(1, 3));
  session->OnGone();
  clock_.Advance(24h * 1000);
  EXPECT_EQ(service_->stats().writers, 1u);
}

TEST_F(WriterSessionTest, DisconnectedWritersAreBoundedInTotalBytes) {
  ServiceLimits limits;
  limits.max_disconnected_bytes = 100'000;
  Create({TableOptions::Queue("q", 1)}, limits);
  for (uint8_t writer = 1; writer <= 20; ++writer) {
    auto session = service_->OpenInsert(MakeHello(writer), std::make_shared<FakeInsertPeer>()).value();
    InsertMessage message = MakeMessage(1, 2);
    for (uint64_t number = 3; number <= 4; ++number) {
      Item item = MakeItem(number);
      item.trajectory = Trajectory::Single(test::MakeChunk(store_.get(), 1, 0, 2000), 0, 1).value();  // 16 kB
      message.items.push_back(std::move(item));
    }
    session->OnMessage(std::move(message));
    session->OnMessage({.items = {MakeItem(5)}});
    session->OnGone();
    clock_.Advance(1s);
  }
  EXPECT_LE(store_->stats().live_bytes, 100'000 + 2 * 40'000);
}

TEST_F(WriterSessionTest, TheLongestDisconnectedAreDroppedFirst) {
  ServiceLimits limits;
  limits.max_writers = 4;
  limits.max_remembered_writers = 0;
  Create({{.name = "t"}}, limits);
  // Returns whether the server still has the writer's session.
  const auto visit = [&](int writer) {
    const auto peer = std::make_shared<FakeInsertPeer>();
    const auto session = service_->OpenInsert(MakeHello(static_cast<uint8_t>(writer)), peer).value();
    const bool is_known = peer->replies.at(0).welcome->applied_through > 0;
    session->OnMessage({.items = {MakeItem(1, "t")}});
    session->OnGone();
    clock_.Advance(1s);
    return is_known;
  };
  for (const int writer : {1, 2, 3}) EXPECT_FALSE(visit(writer));
  EXPECT_TRUE(visit(1)) << "now it has left after the others";
  EXPECT_FALSE(visit(4)) << "2 gives way";
  EXPECT_FALSE(visit(5)) << "3 gives way";
  for (const int writer : {1, 4, 5}) EXPECT_TRUE(visit(writer));
  for (const int writer : {2, 3}) EXPECT_FALSE(visit(writer));
}

TEST_F(WriterSessionTest, ItemsInsertedAfterTheDisconnectDoNotCount) {
  for (const bool drains : {false, true}) {
    ServiceLimits limits;
    limits.max_disconnected_bytes = 100'000;
    Create({TableOptions::Queue("q", 1), TableOptions::Queue("r", 1)}, limits);
    const auto leave = [&](uint8_t writer, const std::string& table) {
      const auto session =
          service_->OpenInsert(MakeHello(writer), std::make_shared<FakeInsertPeer>()).value();
      session->OnMessage({.items = {MakeItem(1, table), MakeItem(2, table)}});
      Item item = MakeItem(3, table);
      item.trajectory = Trajectory::Single(test::MakeChunk(store_.get(), 1, 0, 8000), 0, 1).value();  // 64 kB
      session->OnMessage({.items = {std::move(item)}});
      session->OnGone();
    };
    leave(1, "q");
    if (drains) {
      ASSERT_OK(tables_[0]->SetRateLimiter(RateLimiterOptions::MinSize(1)));
    }
    leave(2, "r");
    EXPECT_EQ(tables_[1]->Info().waiting_inserts, drains ? 1 : 0);
    EXPECT_EQ(service_->stats().writers, 2u);
    service_->Stop();
    for (auto& table : tables_) table->Close();
  }
}

TEST_F(WriterSessionTest, AReconnectedWriterGetsItsFirstRejection) {
  Create({TableOptions::Queue("q", 1)});
  auto session = service_->OpenInsert(MakeHello(1), std::make_shared<FakeInsertPeer>()).value();
  InsertMessage message;
  for (uint64_t number = 1; number <= 1000; ++number) message.items.push_back(MakeItem(number, "nowhere"));
  session->OnMessage(std::move(message));
  session->OnGone();
  auto peer = std::make_shared<FakeInsertPeer>();
  session = service_->OpenInsert(MakeHello(1), peer).value();
  ASSERT_FALSE(peer->replies.empty());
  const std::vector<Rejection>& rejections = peer->replies.front().rejections;
  ASSERT_GE(rejections.size(), 2u);
  EXPECT_EQ(rejections[0].number, 1u) << "the one that the client fails with";
  EXPECT_EQ(rejections[1].number, 2u);
  session->OnGone();
}

TEST_F(WriterSessionTest, RejectionsThatWereNotSentSurviveAReconnection) {
  Create({TableOptions::Queue("q", 1)});
  auto former = std::make_shared<FakeInsertPeer>();
  former->ready = false;  // accepts the welcome message and no more
  auto session = service_->OpenInsert(MakeHello(1), former).value();
  InsertMessage message;
  for (uint64_t number = 1; number <= 1000; ++number) message.items.push_back(MakeItem(number, "nowhere"));
  session->OnMessage(std::move(message));
  EXPECT_EQ(former->replies.size(), 1u);
  session->OnGone();
  auto peer = std::make_shared<FakeInsertPeer>();
  session = service_->OpenInsert(MakeHello(1), peer).value();
  uint64_t next = 1;
  for (const InsertReply& reply : peer->replies) {
    for (const Rejection& rejection : reply.rejections) EXPECT_EQ(rejection.number, next++);
  }
  EXPECT_EQ(next, 1001u);
  EXPECT_EQ(peer->confirmed(), 1000u);
  session->OnGone();
}

TEST_F(WriterSessionTest, ManyRejectionsAreSentInSeveralReplies) {
  Create({TableOptions::Queue("q", 1)});
  auto peer = std::make_shared<FakeInsertPeer>();
  auto session = service_->OpenInsert(MakeHello(1), peer).value();
  InsertMessage message;
  for (uint64_t number = 1; number <= 5000; ++number) message.items.push_back(MakeItem(number, "nowhere"));
  session->OnMessage(std::move(message));
  uint64_t told = 0;
  for (const InsertReply& reply : peer->replies) {
    EXPECT_LE(reply.rejections.size(), 1024u);
    told += reply.rejections.size();
    EXPECT_LE(reply.confirmed_through, told) << "nothing is confirmed before its rejection was told";
  }
  EXPECT_EQ(told, 5000u);
  EXPECT_EQ(peer->confirmed(), 5000u);
  session->OnGone();
}

TEST_F(WriterSessionTest, TheWindowShrinksWhileTransitTakesMuchMemory) {
  store_ = std::make_shared<ChunkStore>(ChunkStore::Options{.memory_limit = int64_t{64} << 20}, &clock_);
  Create({{.name = "t"}});
  // An eighth of the share of data in transit.
  constexpr uint64_t kMost = 1 << 20;
  EXPECT_EQ(service_->InsertWindowBytes(), kMost);
  EXPECT_EQ(service_->WindowBytes(1000), 1000u);
  MemoryCharge replies(&store_->budget(), MemoryPart::kReplies, 5 << 20);
  EXPECT_EQ(service_->InsertWindowBytes(), 256u << 10);
  EXPECT_EQ(service_->WindowBytes(1000), 1000u);
  replies.Set(9 << 20);
  EXPECT_EQ(service_->InsertWindowBytes(), 256u << 10);
  replies.Set(0);
  EXPECT_EQ(service_->InsertWindowBytes(), kMost);
}

TEST_F(WriterSessionTest, AConnectedWriterLearnsThatItsWindowHasChanged) {
  store_ = std::make_shared<ChunkStore>(ChunkStore::Options{.memory_limit = int64_t{64} << 20}, &clock_);
  Create({TableOptions::Queue("q", 100)});
  auto peer = std::make_shared<FakeInsertPeer>();
  auto session = service_->OpenInsert(MakeHello(1), peer).value();
  EXPECT_EQ(peer->replies.front().welcome->limits.insert_window_bytes, 1u << 20);
  uint64_t number = 0;
  const auto told = [&] {
    session->OnMessage(MakeMessage(number + 1, number + 1));
    EXPECT_EQ(peer->confirmed(), ++number);
    return peer->replies.back().insert_window_bytes;
  };
  EXPECT_EQ(told(), 0u) << "unchanged";
  MemoryCharge replies(&store_->budget(), MemoryPart::kReplies, 5 << 20);
  EXPECT_EQ(told(), 256u << 10);
  EXPECT_EQ(told(), 0u) << "once";
  replies.Set(0);
  EXPECT_EQ(told(), 1u << 20);
  EXPECT_EQ(told(), 0u);
  session->OnGone();
}

// Otherwise its messages are refused, and it would send them again and again.
TEST_F(WriterSessionTest, NothingIsReadWhileTransitIsFull) {
  std::vector<std::string> lines;
  SetLogSink([&lines](LogLevel, std::string_view line) { lines.emplace_back(line); });
  store_ = std::make_shared<ChunkStore>(ChunkStore::Options{.memory_limit = int64_t{64} << 20}, &clock_);
  Create({TableOptions::Queue("q", 100)});
  auto peer = std::make_shared<FakeInsertPeer>();
  auto session = service_->OpenInsert(MakeHello(1), peer).value();
  ASSERT_EQ(peer->reads, 1);
  MemoryCharge replies(&store_->budget(), MemoryPart::kReplies, store_->budget().max_transit());
  session->OnMessage(MakeMessage(1, 1));
  EXPECT_EQ(peer->confirmed(), 1u) << "what was read is inserted";
  EXPECT_EQ(peer->reads, 1);
  ASSERT_TRUE(peer->replies.back().waiting);
  EXPECT_EQ(peer->replies.back().waiting->reason, WaitReason::kMemory);
  EXPECT_THAT(peer->replies.back().waiting->text, HasSubstr("the server's memory is full: "));
  const size_t replies_before = peer->replies.size();
  clock_.Advance(std::chrono::milliseconds(500));
  EXPECT_EQ(peer->reads, 1);
  EXPECT_EQ(peer->replies.size(), replies_before) << "the reason is sent once";
  replies.Set(0);
  clock_.Advance(std::chrono::milliseconds(50));
  EXPECT_EQ(peer->reads, 2) << "there is room";
  session->OnMessage(MakeMessage(2, 2));
  EXPECT_EQ(peer->confirmed(), 2u);
  EXPECT_EQ(peer->reads, 3);
  // It is also read when there is no room for long: the message may free some.
  replies.Set(store_->budget().max_transit());
  session->OnMessage({.heartbeat = true});
  EXPECT_EQ(peer->reads, 3);
  for (int i = 0; i < 11; ++i) clock_.Advance(std::chrono::milliseconds(100));
  EXPECT_EQ(peer->reads, 4);
  SetLogSink({});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr("inserts of this process wait: the server's memory is full"));
  session->OnGone();
}

TEST_F(WriterSessionTest, ChunksThatDoNotFitIntoTransitAreRefused) {
  store_ = std::make_shared<ChunkStore>(ChunkStore::Options{.memory_limit = int64_t{64} << 20}, &clock_);
  Create({{.name = "t"}});
  const int64_t most = store_->budget().max_transit();
  EXPECT_EQ(most, 12 << 20);
  // A message, and the chunks that are copied from it.
  EXPECT_EQ(service_->limits().max_item_bytes, static_cast<uint64_t>(most / 2));
  EXPECT_EQ(service_->limits().wire.max_message_bytes, static_cast<uint64_t>(most / 2));
  EXPECT_EQ(service_->limits().max_disconnected_bytes, 4u << 20);
  const auto allocate = [&](int64_t bytes) {
    ColumnEncoder encoder(DType::kUint8, {static_cast<uint32_t>(bytes)}, CodecPolicy::kNone);
    std::vector<uint8_t> encoded;
    ChunkHeader header{.rows = 1};
    header.columns.push_back(
        encoder.Encode(std::vector<uint8_t>(static_cast<size_t>(bytes)), 1, &encoded).value());
    uint8_t* payload = nullptr;
    return service_->AllocateChunk(header, &payload);
  };
  EXPECT_THAT(allocate(most + 1).status(), StatusIs(StatusCode::kResourceExhausted, Detail::kMemoryFull));
  {
    const Result<ChunkRef> first = allocate(most / 4 * 3);
    EXPECT_OK(first.status());
    EXPECT_THAT(allocate(most / 2).status(),
                StatusIs(StatusCode::kUnavailable, HasSubstr("the server's memory is full")));
  }
  EXPECT_OK(allocate(most / 2).status());
}

}  // namespace
}  // namespace reverb::internal
