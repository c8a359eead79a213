#include "service/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/shared_memory.h"
#include "service/service_testing.h"
#include "testing/status_matchers.h"
#include "testing/wait.h"

namespace reverb::internal {
namespace {

using test::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(ServiceTest, TableNamesMustBeUnique) {
  auto table = ConcurrentTable::Create(TableOptions::Queue("q", 1), {.store = store_}).value();
  Service::Options options;
  options.tables = {table, table};
  options.store = store_;
  EXPECT_THAT(Service::Create(std::move(options)),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("\"q\"")));
}

TEST_F(ServiceTest, WritersOfItsProcessUseSharedMemoryOnceASamplerReadsIt) {
  OnDemandSource source(ProcessSharedMemory());
  Service::Options options;
  options.tables = {ConcurrentTable::Create(TableOptions::Queue("q", 1), {.store = store_}).value()};
  options.store = store_;
  options.writer_source = &source;
  const std::shared_ptr<Service> service = Service::Create(std::move(options)).value();
  PayloadSource* const given = service->payload_source();
  ASSERT_EQ(given, &source);
  auto copying = std::make_shared<FakeSamplePeer>();
  const auto first = service->OpenSample(MakeHello(1), copying).value();
  EXPECT_FALSE(given->is_enabled());
  EXPECT_EQ(given->Allocate(1000), nullptr);
  auto mapping = std::make_shared<FakeSamplePeer>();
  mapping->by_reference = true;
  const auto second = service->OpenSample(MakeHello(2), mapping).value();
  EXPECT_TRUE(given->is_enabled());
  uint8_t* const block = given->Allocate(1000);
  ASSERT_NE(block, nullptr);
  EXPECT_TRUE(ProcessSharedMemory()->Contains(block));
  given->Free(block, 1000);
  first->OnGone();
  second->OnGone();
  service->Stop();
}

TEST_F(ServiceTest, InspectionOfCompressedItemsIsBoundedByTheirDecodedSize) {
  constexpr uint64_t kItems = 10;
  Create({TableOptions::Queue("q", 100)});
  const ChunkRef chunk = test::MakeCompressedChunk(store_.get(), 64 << 20);
  for (uint64_t key = 1; key <= kItems; ++key)
    ASSERT_OK(tables_[0]->Insert(test::MakeItem(key, 1, chunk), {}));
  InspectRequest request{.table = "q", .count = kItems};
  size_t items = 0;
  do {
    const InspectReply reply = service_->Inspect(request).value();
    ASSERT_LE(reply.items.size(), 4u) << "256 MiB";
    ASSERT_FALSE(reply.items.empty());
    items += reply.items.size();
    request.cursor = reply.next_cursor;
  } while (items < kItems);
  EXPECT_EQ(items, kItems);
}

TEST_F(ServiceTest, TheDescriptionOfTablesMustFitIntoAMessage) {
  // A table bounds its signature; the server rejects tables whose description exceeds a message.
  const TensorSpec spec{
      .name = std::string(Signature::kMaxNameLength, 'x'), .dtype = DType::kInt64, .shape = Shape({1})};
  const std::vector<Signature> leaves((size_t{15} << 20) / Signature::kMaxNameLength,
                                      Signature::Leaf(spec).value());
  const Signature signature = Signature::List(leaves).value();
  const auto create = [&](size_t num_tables) {
    Service::Options options;
    options.store = store_;
    for (size_t i = 0; i < num_tables; ++i) {
      options.tables.push_back(
          ConcurrentTable::Create({.name = std::to_string(i), .signature = signature}, {.store = store_})
              .value());
    }
    return Service::Create(std::move(options)).status();
  };
  EXPECT_OK(create(2));
  EXPECT_THAT(create(18), StatusIs(StatusCode::kInvalidArgument,
                                   AllOf(HasSubstr("18 tables"), HasSubstr("smaller signatures"))));
}

TEST_F(ServiceTest, TablesThatAreCreatedTogetherFitTogether) {
  // 16 of these can be described in a message, 17 cannot; see above.
  const TensorSpec spec{
      .name = std::string(Signature::kMaxNameLength, 'x'), .dtype = DType::kInt64, .shape = Shape({1})};
  const std::vector<Signature> leaves((size_t{15} << 20) / Signature::kMaxNameLength,
                                      Signature::Leaf(spec).value());
  const Signature signature = Signature::List(leaves).value();
  const auto table = [&](int number) {
    return TableOptions{.name = std::to_string(number), .signature = signature};
  };
  std::vector<TableOptions> tables;
  for (int i = 0; i < 15; ++i) tables.push_back(table(i));
  Create(tables);
  Status created[2];
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      created[i] = service_->CreateTable({.table = table(15 + i).Settings(), .exist_ok = false});
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_NE(created[0].ok(), created[1].ok());
  EXPECT_THAT(created[created[0].ok() ? 1 : 0],
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("17 tables")));
  EXPECT_EQ(service_->tables().size(), 16u);
  // One that exists is found although no other would fit.
  EXPECT_OK(service_->CreateTable({.table = table(0).Settings(), .exist_ok = true}));
  EXPECT_THAT(service_->CreateTable({.table = table(0).Settings(), .exist_ok = false}),
              StatusIs(StatusCode::kAlreadyExists));
}

TEST_F(ServiceTest, AWorkerThatRestartsFindsATableWhoseLimitsWereChanged) {
  Create({});
  const TableSettings wanted = TableOptions::Queue("jobs", 10).Settings();
  ASSERT_OK(service_->CreateTable({.table = wanted, .exist_ok = true}));
  const TableChanges changes{
      .max_size = 20, .max_age = std::chrono::hours(1), .rate_limiter = RateLimiterOptions::Queue(20)};
  ASSERT_OK(service_->ChangeTable({.table = "jobs", .changes = changes}));
  EXPECT_OK(service_->CreateTable({.table = wanted, .exist_ok = true})) << "as it was created";
  TableOptions changed = TableOptions::Queue("jobs", 20);
  changed.max_age = std::chrono::hours(1);
  EXPECT_OK(service_->CreateTable({.table = changed.Settings(), .exist_ok = true})) << "as it is";
  EXPECT_EQ(service_->tables().front()->Info().max_size, 20) << "the changes stay";
  EXPECT_THAT(service_->CreateTable({.table = TableOptions::Queue("jobs", 30).Settings(), .exist_ok = true}),
              StatusIs(StatusCode::kAlreadyExists, HasSubstr("max_size is 20, not 30")));
}

TEST_F(ServiceTest, TablesOfOtherLayoutsAreNotTheSame) {
  Create({});
  TableOptions options{.name = "t"};
  ASSERT_OK(service_->CreateTable({.table = options.Settings(), .exist_ok = true}));
  options.layout = options.layout == LayoutPolicy::kAny ? LayoutPolicy::kFirst : LayoutPolicy::kAny;
  EXPECT_THAT(service_->CreateTable({.table = options.Settings(), .exist_ok = true}),
              StatusIs(StatusCode::kAlreadyExists, HasSubstr("layout is first, not any")));
  // A limit that was changed since is not the reason.
  ASSERT_OK(service_->ChangeTable({.table = "t", .changes = {.max_size = 3}}));
  EXPECT_THAT(service_->CreateTable({.table = options.Settings(), .exist_ok = true}),
              StatusIs(StatusCode::kAlreadyExists, HasSubstr("layout is first, not any")));
}

TEST_F(ServiceTest, InfoListsWaitingClients) {
  Create({TableOptions::Queue("q", 1), TableOptions::Queue("empty", 1)});
  EXPECT_TRUE(service_->Info()->waiters.empty());
  Hello actor = MakeHello(1);
  actor.client_name = "actor";
  auto inserts = service_->OpenInsert(actor, std::make_shared<FakeInsertPeer>()).value();
  inserts->OnMessage(MakeMessage(1, 4));  // one is inserted
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

TEST_F(ServiceTest, ExtremeNumbersAreHandled) {
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

TEST_F(ServiceTest, CheckpointsAreDelegatedToTheServer) {
  Service::Options options;
  options.store = store_;
  options.checkpoint = [] { return Result<std::string>("/somewhere"); };
  EXPECT_THAT(Service::Create(std::move(options)).value()->Checkpoint(), test::IsOkAndHolds("/somewhere"));
}

TEST_F(ServiceTest, ChangesAfterTheLastCheckpointAreRefused) {
  Create({TableOptions::Queue("q", 2)});
  auto session = service_->OpenInsert(MakeHello(1), std::make_shared<FakeInsertPeer>()).value();
  session->OnMessage(MakeMessage(1, 2));
  std::vector<Sample> samples;
  ASSERT_OK(tables_[0]->Sample(1, false, {}, &samples, {.lease = std::chrono::hours(1)}));
  const LeaseGrant grant{.key = samples[0].key, .id = samples[0].lease_id};
  bool was_called = false;
  // Writes the last checkpoint in a server.
  service_->Stop([&] {
    was_called = true;
    const auto is_refused = StatusIs(StatusCode::kUnavailable, HasSubstr("shutting down"));
    const KeyPriority update{.key = 2, .priority = 5};
    EXPECT_THAT(service_->SettleLeases({.table = "q", .acks = {grant}}), is_refused);
    EXPECT_THAT(service_->Mutate({.table = "q", .updates = {update}}), is_refused);
    EXPECT_THAT(service_->Mutate({.table = "q", .deletes = {2}}), is_refused);
    EXPECT_THAT(service_->Reset("q"), is_refused);
    EXPECT_THAT(service_->SetRateLimiter({.table = "q", .options = RateLimiterOptions::Queue(9)}),
                is_refused);
    EXPECT_THAT(service_->ChangeTable({.table = "q", .changes = {.max_size = 1}}), is_refused);
    EXPECT_THAT(service_->CreateTable({.table = TableOptions::Queue("r", 1).Settings(), .exist_ok = true}),
                is_refused);
    EXPECT_THAT(service_->RemoveTable("q"), is_refused);
    EXPECT_OK(service_->Info());
  });
  EXPECT_TRUE(was_called);
  const TableInfo info = tables_[0]->Info();
  EXPECT_EQ(info.current_size, 2);
  EXPECT_EQ(info.leases.leased, 1);
  EXPECT_EQ(info.updates, 0);
  session->OnGone();
}

TEST_F(ServiceTest, StopWaitsForChangesThatHaveBegun) {
  // An extension that blocks a priority update until the test lets it continue.
  struct Blocker final : TableExtension {
    std::atomic<bool> has_begun{false}, may_end{false};
    std::string name() const override { return "blocker"; }
    void OnUpdate(const ItemView&, Context&) override {
      has_begun = true;
      EXPECT_TRUE(test::WaitUntil([this] { return may_end.load(); }));
    }
  };
  const auto blocker = std::make_shared<Blocker>();
  Create({{.name = "q", .extensions = {blocker}}});
  auto session = service_->OpenInsert(MakeHello(1), std::make_shared<FakeInsertPeer>()).value();
  session->OnMessage(MakeMessage(1, 1));
  Status updated;
  std::thread update(
      [&] { updated = service_->Mutate({.table = "q", .updates = {{.key = 1, .priority = 5}}}); });
  ASSERT_TRUE(test::WaitUntil([&] { return blocker->has_begun.load(); }));
  std::atomic<bool> is_saved{false};
  int64_t updates_in_checkpoint = -1;
  std::thread stop([&] {
    service_->Stop([&] {
      is_saved = true;
      updates_in_checkpoint = tables_[0]->Info().updates;
    });
  });
  ASSERT_TRUE(test::WaitUntil([&] { return service_->Reset("nowhere").code() == StatusCode::kUnavailable; }));
  EXPECT_FALSE(is_saved);
  blocker->may_end = true;
  update.join();
  stop.join();
  EXPECT_OK(updated);
  EXPECT_EQ(updates_in_checkpoint, 1);
  session->OnGone();
}

TEST_F(ServiceTest, ARejectedStreamLeavesNothingBehind) {
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

TEST_F(ServiceTest, InvalidLimitsAreRejected) {
  Service::Options options;
  options.store = store_;
  options.limits.insert_window_bytes = 0;
  EXPECT_THAT(Service::Create(options),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("insert_window_bytes")));
  options.limits.insert_window_bytes = std::numeric_limits<uint64_t>::max();
  EXPECT_OK(Service::Create(options));
}

}  // namespace
}  // namespace reverb::internal
