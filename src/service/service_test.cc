#include "service/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <memory>

#include "reverb/log.h"
#include "service/sample_stream_session.h"
#include "testing/chunks.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""min;
using std::chrono_literals::operator""s;
using test::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A client that a test plays by hand: it takes replies when told to.
struct FakeInsertPeer final : InsertPeer {
  int reads = 0;
  bool ready = true;
  std::vector<InsertReply> replies;
  std::optional<Status> end;
  void ReadNext() override { ++reads; }
  bool Reply(InsertReply reply) override {
    replies.push_back(std::move(reply));
    return ready;
  }
  void End(Status status) override { end = std::move(status); }
  uint64_t confirmed() const { return replies.back().confirmed_through; }
};

struct FakeSamplePeer final : SamplePeer {
  int reads = 0;
  bool ready = true;
  uint64_t bytes_per_sample = 100;
  std::vector<SampleReply> replies;
  std::optional<Status> end;
  void ReadNext() override { ++reads; }
  Sent Reply(SampleReply reply) override {
    const uint64_t bytes = reply.samples.size() * bytes_per_sample;
    replies.push_back(std::move(reply));
    return {bytes, ready};
  }
  void End(Status status) override { end = std::move(status); }
  size_t samples() const {
    size_t count = 0;
    for (const SampleReply& reply : replies) count += reply.samples.size();
    return count;
  }
};

class ServiceTest : public ::testing::Test {
 protected:
  void Create(std::vector<TableOptions> tables, ServiceLimits limits = {}) {
    Service::Options options;
    for (TableOptions& table : tables) {
      options.tables.push_back(ConcurrentTable::Create(table, {.store = store_, .clock = &clock_}).value());
    }
    tables_ = options.tables;
    options.store = store_;
    options.limits = limits;
    options.clock = &clock_;
    service_ = Service::Create(std::move(options)).value();
  }
  ~ServiceTest() override {
    if (service_) service_->Stop();
    for (auto& table : tables_) table->Close();
  }
  static Hello MakeHello(uint8_t writer) {
    Hello hello;
    hello.session_id.fill(writer);
    return hello;
  }
  InsertItem MakeItem(uint64_t number, std::string table = "q") {
    return {.number = number,
            .key = number,
            .table = std::move(table),
            .priority = 1,
            .trajectory = Trajectory::Single(test::MakeChunk(store_.get(), 1, 0, 1), 0, 1).value()};
  }
  InsertMessage MakeMessage(uint64_t first, uint64_t last) {
    InsertMessage message;
    for (uint64_t number = first; number <= last; ++number) message.items.push_back(MakeItem(number));
    return message;
  }

  ManualClock clock_;
  std::shared_ptr<ChunkStore> store_ = std::make_shared<ChunkStore>(ChunkStore::Options{}, &clock_);
  std::vector<std::shared_ptr<ConcurrentTable>> tables_;
  std::shared_ptr<Service> service_;
};

TEST_F(ServiceTest, TablesHaveNamesOfTheirOwn) {
  auto table = ConcurrentTable::Create(TableOptions::Queue("q", 1), {.store = store_}).value();
  Service::Options options;
  options.tables = {table, table};
  options.store = store_;
  EXPECT_THAT(Service::Create(std::move(options)),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("\"q\"")));
}

TEST_F(ServiceTest, TablesMustFitIntoWhatClientsAccept) {
  // A signature of about so many bytes.
  const auto create = [this](size_t bytes) {
    const TensorSpec spec{
        .name = std::string(Signature::kMaxNameLength, 'x'), .dtype = DType::kInt64, .shape = Shape({1})};
    const std::vector<Signature> leaves(bytes / Signature::kMaxNameLength, Signature::Leaf(spec).value());
    Service::Options options;
    options.store = store_;
    options.tables.push_back(
        ConcurrentTable::Create({.name = "t", .signature = Signature::List(leaves).value()},
                                {.store = store_})
            .value());
    return Service::Create(std::move(options)).status();
  };
  EXPECT_OK(create(size_t{15} << 20));
  EXPECT_THAT(create(size_t{17} << 20),
              StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("1 tables"), HasSubstr("signatures"))));
}

TEST_F(ServiceTest, AWriterWhoseItemsWaitIsNotReadFurther) {
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
  std::vector<SampledItem> samples;
  ASSERT_OK(tables_[0]->Sample(15, true, {}, &samples));
  while (samples.size() < 15)
    ASSERT_OK(tables_[0]->Sample(15 - static_cast<int64_t>(samples.size()), true, {}, &samples));
  EXPECT_EQ(peer->reads, 3);
  EXPECT_GE(peer->confirmed(), 15u);
  session->OnGone();
}

TEST_F(ServiceTest, BytesCountTowardsTheWindowToo) {
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

TEST_F(ServiceTest, ConfirmationsThatCannotLeaveGatherInOne) {
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

TEST_F(ServiceTest, AWriterThatStaysAwayIsForgotten) {
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
  // Somebody else comes: the house is swept.
  auto other = std::make_shared<FakeInsertPeer>();
  auto another = service_->OpenInsert(MakeHello(2), other).value();
  EXPECT_EQ(service_->stats().writers, 1u);
  EXPECT_EQ(tables_[0]->Info().waiting_inserts, 0);
  another->OnGone();
}

TEST_F(ServiceTest, ManyVanishedWritersAreForgottenEarlier) {
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

TEST_F(ServiceTest, DrawsOnlyAsFarAsThereIsCredit) {
  TableOptions table;
  table.name = "t";
  Create({table});
  auto writer = std::make_shared<FakeInsertPeer>();
  auto inserts = service_->OpenInsert(MakeHello(1), writer).value();
  inserts->OnMessage({.items = {MakeItem(1, "t")}});
  auto peer = std::make_shared<FakeSamplePeer>();
  Hello hello = MakeHello(2);
  hello.receive_window_bytes = 1000;
  auto session = service_->OpenSample(hello, peer).value();
  session->OnRequest({.request_id = 1, .table = "t", .count = 1'000'000});
  const size_t first = peer->samples();
  EXPECT_GE(first, 10u);
  EXPECT_LE(first, 16u + 64u);
  EXPECT_LE(tables_[0]->Info().counters.samples, static_cast<int64_t>(first)) << "nothing is drawn for later";
  session->OnRequest({.taken_bytes = first * 100});
  EXPECT_GT(peer->samples(), first);
  session->OnGone();
  inserts->OnGone();
  EXPECT_EQ(service_->stats().undelivered_samples, 0);
}

TEST_F(ServiceTest, SamplesOfAQueueThatCannotBeSentAreCountedAndLogged) {
  std::vector<std::string> lines;
  SetLogSink([&lines](LogLevel, std::string_view line) { lines.emplace_back(line); });
  TableOptions replay;
  replay.name = "replay";
  Create({TableOptions::Queue("q", 10), replay});
  auto inserts = service_->OpenInsert(MakeHello(1), std::make_shared<FakeInsertPeer>()).value();
  inserts->OnMessage(MakeMessage(1, 5));
  inserts->OnMessage({.items = {MakeItem(6, "replay")}});
  for (const char* table : {"q", "replay"}) {
    auto peer = std::make_shared<FakeSamplePeer>();
    peer->ready = false;  // the greeting is still being written
    Hello hello = MakeHello(2);
    hello.client_name = "learner";
    auto session = service_->OpenSample(hello, peer).value();
    session->OnRequest({.request_id = 1, .table = table, .count = 3});
    session->OnGone();
    EXPECT_EQ(peer->samples(), 0u);
  }
  EXPECT_EQ(tables_[0]->size(), 2) << "three were drawn";
  EXPECT_EQ(service_->stats().undelivered_samples, 6);
  ASSERT_EQ(lines.size(), 1u) << "the items of the other table are still there";
  EXPECT_THAT(lines[0], HasSubstr("table \"q\": the client learner went away"));
  EXPECT_THAT(lines[0], HasSubstr("drawn and not sent: 3"));
  SetLogSink({});
  inserts->OnGone();
}

TEST_F(ServiceTest, ARequestThatWaitsEndsWithItsClient) {
  TableOptions table;
  table.name = "t";
  Create({table});
  auto peer = std::make_shared<FakeSamplePeer>();
  auto session = service_->OpenSample(MakeHello(2), peer).value();
  session->OnRequest({.request_id = 1, .table = "t", .count = 5});
  EXPECT_EQ(tables_[0]->Info().waiting_samples, 1);
  session->OnGone();
  EXPECT_EQ(tables_[0]->Info().waiting_samples, 0);
  EXPECT_EQ(service_->stats().streams, 0u);
}

TEST_F(ServiceTest, InfoTellsWhoWaits) {
  Create({TableOptions::Queue("q", 1), TableOptions::Queue("empty", 1)});
  EXPECT_TRUE(service_->Info()->waiters.empty());
  Hello actor = MakeHello(1);
  actor.client_name = "actor";
  auto inserts = service_->OpenInsert(actor, std::make_shared<FakeInsertPeer>()).value();
  inserts->OnMessage(MakeMessage(1, 4));  // one goes in
  clock_.Advance(std::chrono::seconds(3));
  Hello learner = MakeHello(2);
  learner.client_name = "learner";
  auto samples = service_->OpenSample(learner, std::make_shared<FakeSamplePeer>()).value();
  samples->OnRequest({.request_id = 1, .table = "empty", .count = 5});
  clock_.Advance(std::chrono::seconds(1));

  const std::vector<WaiterInfo> waiters = service_->Info()->waiters;
  ASSERT_EQ(waiters.size(), 2u);
  EXPECT_EQ(waiters[0].client_name, "actor");
  EXPECT_EQ(waiters[0].table, "q");
  EXPECT_TRUE(waiters[0].is_insert);
  EXPECT_EQ(waiters[0].reason, WaitReason::kTooManyInserts);
  EXPECT_EQ(waiters[0].count, 3);
  EXPECT_EQ(waiters[0].waited_nanos, 4'000'000'000);
  EXPECT_EQ(waiters[1].client_name, "learner");
  EXPECT_EQ(waiters[1].table, "empty");
  EXPECT_FALSE(waiters[1].is_insert);
  EXPECT_EQ(waiters[1].reason, WaitReason::kMinSize);
  EXPECT_EQ(waiters[1].count, 5);
  EXPECT_EQ(waiters[1].waited_nanos, 1'000'000'000);

  samples->OnGone();
  inserts->OnGone();
  EXPECT_EQ(service_->Info()->waiters.size(), 1u) << "a writer that may come back still waits";
}

TEST_F(ServiceTest, StrangeNumbersDoNoHarm) {
  TableOptions table;
  table.name = "t";
  Create({table});
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  auto writer = std::make_shared<FakeInsertPeer>();
  auto inserts = service_->OpenInsert(MakeHello(1), writer).value();
  inserts->OnMessage({.items = {MakeItem(kMax, "t")}});
  EXPECT_EQ(writer->confirmed(), kMax);
  inserts->OnMessage({.items = {MakeItem(1, "t")}, .forget_chunks = {1, kMax}});
  EXPECT_EQ(tables_[0]->size(), 1) << "numbers only grow";

  auto peer = std::make_shared<FakeSamplePeer>();
  Hello hello = MakeHello(2);
  hello.receive_window_bytes = kMax;
  auto session = service_->OpenSample(hello, peer).value();
  session->OnRequest(
      {.request_id = kMax, .table = "t", .count = std::numeric_limits<int64_t>::max(), .taken_bytes = kMax});
  session->OnRequest({.request_id = 1, .table = "t", .count = -1});
  EXPECT_FALSE(peer->end);
  session->OnGone();

  auto second = std::make_shared<FakeSamplePeer>();
  second->ready = false;
  auto flood = service_->OpenSample(MakeHello(3), second).value();
  for (int i = 0; i < 2000 && !second->end; ++i)
    flood->OnRequest({.request_id = 1, .table = "t", .count = 1});
  ASSERT_TRUE(second->end);
  EXPECT_THAT(*second->end, StatusIs(StatusCode::kResourceExhausted, HasSubstr("requests wait")));
  flood->OnGone();
  inserts->OnGone();
}

TEST_F(ServiceTest, WritersWithoutAnIdAreRefused) {
  Create({TableOptions::Queue("q", 1)});
  EXPECT_THAT(service_->OpenInsert({}, std::make_shared<FakeInsertPeer>()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("session id")));
}

TEST_F(ServiceTest, CheckpointsAreTheServersBusiness) {
  Service::Options options;
  options.store = store_;
  options.checkpoint = [] { return Result<std::string>("/somewhere"); };
  EXPECT_THAT(Service::Create(std::move(options)).value()->Checkpoint(), test::IsOkAndHolds("/somewhere"));
}

TEST_F(ServiceTest, BatchesAreBoundedWhateverIsAskedFor) {
  TableOptions table;
  table.name = "t";
  Create({table});
  auto inserts = service_->OpenInsert(MakeHello(1), std::make_shared<FakeInsertPeer>()).value();
  inserts->OnMessage({.items = {MakeItem(1, "t")}});
  auto peer = std::make_shared<FakeSamplePeer>();
  Hello hello = MakeHello(2);
  hello.receive_window_bytes = 1;  // credit for one reply
  auto session = service_->OpenSample(hello, peer).value();
  session->OnRequest({.request_id = 1,
                      .table = "t",
                      .count = std::numeric_limits<int64_t>::max(),
                      .batch = std::numeric_limits<uint32_t>::max()});
  EXPECT_GT(peer->samples(), 0u);
  EXPECT_LE(peer->samples(), 4096u + 64u);
  EXPECT_LE(tables_[0]->Info().counters.samples, 4096 + 64);
  session->OnGone();
  inserts->OnGone();
}

TEST_F(ServiceTest, RepliesAreWrittenAsTheRequestAllows) {
  TableOptions table;
  table.name = "t";
  Create({table});
  auto inserts = service_->OpenInsert(MakeHello(1), std::make_shared<FakeInsertPeer>()).value();
  inserts->OnMessage({.items = {MakeItem(1, "t")}});
  auto peer = std::make_shared<FakeSamplePeer>();
  auto session = service_->OpenSample(MakeHello(2), peer).value();
  for (const bool even : {true, false}) {
    const size_t before = peer->samples();
    session->OnRequest({.request_id = 1, .table = "t", .count = 5, .even_columns = even});
    EXPECT_EQ(peer->samples(), before + 5);
    EXPECT_EQ(peer->replies.back().even_columns, even);
  }
  session->OnGone();
  inserts->OnGone();
}

TEST_F(ServiceTest, CreditMayComeBackBeforeTheReplyWasCounted) {
  // A client so quick that its credit is there before the reply's own call has returned.
  struct QuickPeer final : SamplePeer {
    std::weak_ptr<SampleSession> session;
    size_t samples = 0;
    void ReadNext() override {}
    Sent Reply(SampleReply reply) override {
      samples += reply.samples.size();
      if (auto self = session.lock()) self->OnRequest({.taken_bytes = 1000});
      return {1000, true};
    }
    void End(Status) override {}
  };
  TableOptions table;
  table.name = "t";
  Create({table});
  auto inserts = service_->OpenInsert(MakeHello(1), std::make_shared<FakeInsertPeer>()).value();
  inserts->OnMessage({.items = {MakeItem(1, "t")}});
  auto peer = std::make_shared<QuickPeer>();
  Hello hello = MakeHello(2);
  hello.receive_window_bytes = 1000;
  auto session = service_->OpenSample(hello, peer).value();
  peer->session = session;
  session->OnRequest({.taken_bytes = 1000});  // for the greeting
  session->OnRequest({.request_id = 1, .table = "t", .count = 10'000});
  EXPECT_EQ(peer->samples, 10'000u);
  session->OnGone();
  inserts->OnGone();
}

TEST_F(ServiceTest, SlicesCountAsMemoryToo) {
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
  send();  // goes in
  send();  // waits
  const int reads = peer->reads;
  send();
  EXPECT_EQ(peer->reads, reads) << "a chunk of some bytes with slices of megabytes";
  session->OnGone();
}

TEST_F(ServiceTest, ItemsThatShareAChunkCountItOnce) {
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

ItemStructure ListOf(size_t leaves) {
  return ItemStructure::Create(Signature::List(std::vector<Signature>(leaves)).value()).value();
}

TEST_F(ServiceTest, TablesLearnTheStructureOfTheirItems) {
  TableOptions with_signature = TableOptions::Queue("signed", 10);
  with_signature.signature =
      Signature::Leaf({.name = "", .dtype = DType::kInt64, .shape = Shape::UnknownRank()}).value();
  Create({TableOptions::Queue("q", 10), TableOptions::Queue("other", 10), with_signature});
  std::vector<std::shared_ptr<InsertSession>> sessions;
  uint64_t key = 0;
  const auto insert = [&](size_t writer, const ItemStructure& structure, const std::string& table = "q") {
    InsertItem item = MakeItem(++key, table);
    item.structure = structure;
    sessions[writer]->OnMessage({.items = {std::move(item)}});
  };
  for (uint8_t writer = 1; writer <= 2; ++writer) {
    sessions.push_back(service_->OpenInsert(MakeHello(writer), std::make_shared<FakeInsertPeer>()).value());
  }
  const ItemStructure one = ListOf(1);
  const std::string bytes(one.encoded());
  const auto& table = tables_[0];
  insert(0, {});
  EXPECT_EQ(table->Info().structure, std::nullopt);
  insert(0, one);
  insert(1, ListOf(1));
  insert(0, {});
  EXPECT_EQ(table->Info().structure, bytes);
  EXPECT_EQ(tables_[1]->Info().structure, std::nullopt);
  // A writer says it once; after a reset it is asked again.
  table->Reset();
  insert(1, ListOf(2));
  EXPECT_EQ(table->Info().structure, std::string(ListOf(2).encoded()));
  insert(0, one);
  EXPECT_EQ(table->Info().structure, "");
  table->Reset();
  EXPECT_EQ(table->Info().structure, std::nullopt);
  insert(0, one);
  EXPECT_EQ(table->Info().structure, bytes);
  // An item that is refused says nothing, nor does one for a table that knows better.
  InsertItem refused = MakeItem(++key);
  refused.priority = std::numeric_limits<double>::quiet_NaN();
  refused.structure = ListOf(2);
  sessions[0]->OnMessage({.items = {std::move(refused)}});
  EXPECT_EQ(table->Info().structure, bytes);
  insert(0, one, "signed");
  EXPECT_EQ(tables_[2]->Info().structure, std::nullopt);
  EXPECT_EQ(tables_[2]->Info().current_size, 1);
  for (auto& session : sessions) session->OnGone();
}

TEST_F(ServiceTest, TheReasonIsToldWhenNothingMoreIsRead) {
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

TEST_F(ServiceTest, AStreamThatIsRefusedLeavesNothing) {
  ServiceLimits limits;
  limits.max_streams = 1;
  Create({TableOptions::Queue("q", 1)}, limits);
  auto session = service_->OpenInsert(MakeHello(1), std::make_shared<FakeInsertPeer>()).value();
  for (uint8_t writer = 2; writer < 50; ++writer) {
    EXPECT_THAT(service_->OpenInsert(MakeHello(writer), std::make_shared<FakeInsertPeer>()),
                StatusIs(StatusCode::kUnavailable));
  }
  EXPECT_EQ(service_->stats().writers, 1u);
  session->OnGone();
  service_->Stop();
  EXPECT_THAT(service_->OpenInsert(MakeHello(9), std::make_shared<FakeInsertPeer>()),
              StatusIs(StatusCode::kUnavailable));
  EXPECT_EQ(service_->stats().writers, 0u);
  session.reset();
  const std::weak_ptr<Service> weak = service_;
  service_.reset();
  EXPECT_TRUE(weak.expired()) << "nothing holds a service that was stopped";
}

TEST_F(ServiceTest, VanishedWritersAreSweptWithoutAVisitor) {
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

TEST_F(ServiceTest, WritersMayBeRememberedForEver) {
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

TEST_F(ServiceTest, VanishedWritersTogetherAreBoundedInBytes) {
  ServiceLimits limits;
  limits.max_disconnected_bytes = 100'000;
  Create({TableOptions::Queue("q", 1)}, limits);
  for (uint8_t writer = 1; writer <= 20; ++writer) {
    auto session = service_->OpenInsert(MakeHello(writer), std::make_shared<FakeInsertPeer>()).value();
    InsertMessage message = MakeMessage(1, 2);
    for (uint64_t number = 3; number <= 4; ++number) {
      InsertItem item = MakeItem(number);
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

TEST_F(ServiceTest, TheLongestAwayAreForgottenFirst) {
  ServiceLimits limits;
  limits.max_writers = 4;
  Create({{.name = "t"}}, limits);
  // Whether the server still knows what the writer has sent.
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

TEST_F(ServiceTest, WhatWentInMeanwhileNoLongerCountsAsWaiting) {
  for (const bool drains : {false, true}) {
    ServiceLimits limits;
    limits.max_disconnected_bytes = 100'000;
    Create({TableOptions::Queue("q", 1), TableOptions::Queue("r", 1)}, limits);
    const auto leave = [&](uint8_t writer, const std::string& table) {
      const auto session =
          service_->OpenInsert(MakeHello(writer), std::make_shared<FakeInsertPeer>()).value();
      session->OnMessage({.items = {MakeItem(1, table), MakeItem(2, table)}});
      InsertItem item = MakeItem(3, table);
      item.trajectory = Trajectory::Single(test::MakeChunk(store_.get(), 1, 0, 8000), 0, 1).value();  // 64 kB
      session->OnMessage({.items = {std::move(item)}});
      session->OnGone();
    };
    leave(1, "q");
    if (drains) {
      ASSERT_OK(tables_[0]->SetRateLimiter(RateLimiterOptions::MinSize(1)));
    }
    leave(2, "r");
    EXPECT_EQ(service_->stats().writers, drains ? 2u : 1u);
    service_->Stop();
    for (auto& table : tables_) table->Close();
  }
}

TEST_F(ServiceTest, LimitsMustMakeSense) {
  Service::Options options;
  options.store = store_;
  options.limits.insert_window_bytes = 0;
  EXPECT_THAT(Service::Create(options),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("insert_window_bytes")));
  options.limits.insert_window_bytes = std::numeric_limits<uint64_t>::max();
  EXPECT_OK(Service::Create(options));
}

TEST_F(ServiceTest, AWriterThatComesBackHearsOfItsFirstRejection) {
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

TEST_F(ServiceTest, RejectionsThatWereNotSentSurviveAReconnection) {
  Create({TableOptions::Queue("q", 1)});
  auto former = std::make_shared<FakeInsertPeer>();
  former->ready = false;  // takes the greeting and no more
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

TEST_F(ServiceTest, ManyRejectionsGoInSeveralReplies) {
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

}  // namespace
}  // namespace reverb::internal
