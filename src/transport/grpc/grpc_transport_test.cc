#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/memory_budget.h"
#include "base/random.h"
#include "testing/status_matchers.h"
#include "testing/wait.h"
#include "transport/grpc/grpc_connection.h"
#include "transport/grpc/grpc_internal.h"
#include "transport/grpc/grpc_server.h"
#include "transport/grpc/grpc_transport_testing.h"
#include "transport/single_calls.h"
#include "transport/transport.h"
#include "transport/wire_calls.h"
#include "transport/wire_testing.h"

namespace reverb::internal {
namespace {

using namespace std::chrono_literals;  // NOLINT: literals only
using test::AllKinds;
using test::Contents;
using test::MakeChunk;
using test::StatusIs;
using testing::AllOf;
using testing::HasSubstr;

// --- Single calls ---------------------------------------------------------------------------------

TEST_F(GrpcTransportTest, SingleCallsMakeTheRoundTrip) {
  Random random(1);
  const ChunkRef chunk = MakeChunk(1, AllKinds(), 10, &random);
  handler_->inspected = {.next_cursor = 3, .items = test::RandomSamples({chunk}, {0, 3, 6}, 2, &random)};
  StartServer();
  const auto info = connection_->Info({});
  ASSERT_OK(info);
  EXPECT_EQ(test::Describe(*info), test::Describe(test::Filled<ServerInfo>()));

  ASSERT_OK(connection_->Mutate(test::Filled<MutateRequest>(), {}));
  TAKE_OR_FAIL(mutation, handler_->mutations);
  EXPECT_EQ(test::Describe(mutation), test::Describe(test::Filled<MutateRequest>()));

  ASSERT_OK(connection_->Reset("some table", {.timeout = kLong}));
  EXPECT_EQ(handler_->texts.Take(), "some table");
  ASSERT_OK(connection_->SetRateLimiter(test::Filled<SetRateLimiterRequest>(), {.timeout = Duration(0)}));
  EXPECT_EQ(handler_->texts.Take(), test::Filled<SetRateLimiterRequest>().table);
  ASSERT_OK(connection_->CreateTable(test::Filled<CreateTableRequest>(), {}));
  EXPECT_EQ(handler_->texts.Take(), test::Describe(test::Filled<CreateTableRequest>()));
  ASSERT_OK(connection_->RemoveTable("another table", {}));
  EXPECT_EQ(handler_->texts.Take(), "another table");
  ASSERT_OK(connection_->ChangeTable(test::Filled<ChangeTableRequest>(), {}));
  EXPECT_EQ(handler_->texts.Take(), test::Describe(test::Filled<ChangeTableRequest>()));

  const auto inspected = connection_->Inspect(test::Filled<InspectRequest>(), {});
  ASSERT_OK(inspected);
  EXPECT_EQ(inspected->next_cursor, 3u);
  ASSERT_EQ(inspected->items.size(), 2u);
  EXPECT_EQ(Contents(inspected->items[1].trajectory), Contents(handler_->inspected.items[1].trajectory));

  EXPECT_THAT(connection_->Checkpoint({}), test::IsOkAndHolds("/tmp/checkpoint-1"));
  EXPECT_EQ(connection_->address(), address());
  EXPECT_FALSE(connection_->in_process());
}

TEST_F(GrpcTransportTest, ErrorsKeepTheirDetail) {
  handler_->answer =
      Status(StatusCode::kDeadlineExceeded, "table \"per\": no room, grüße", Detail::kRateLimited);
  StartServer();
  EXPECT_EQ(connection_->Reset("per", {.timeout = kLong}), handler_->answer);
}

TEST_F(GrpcTransportTest, VeryLongErrorTextsAreCut) {
  std::string text = "x";
  for (int i = 0; i < 40'000; ++i) text += "ü";
  handler_->answer = Status(StatusCode::kInvalidArgument, text, Detail::kInvalidPriority);
  StartServer();
  const Status status = connection_->Reset("per", {});
  EXPECT_THAT(status, StatusIs(StatusCode::kInvalidArgument, Detail::kInvalidPriority));
  EXPECT_GT(status.message().size(), 1000u);
  EXPECT_TRUE(text.starts_with(status.message()));
  EXPECT_EQ(status.message().size() % 2, 1u) << "cut inside a character";
}

TEST_F(GrpcTransportTest, ACallToADeadAddressEndsAtItsDeadline) {
  const std::string address = DeadAddress();
  const auto connection = ConnectGrpc(address).value();
  EXPECT_THAT(connection->Info({.timeout = 200ms}),
              StatusIs(StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("Info"), HasSubstr(address), HasSubstr("within 0.2 s"),
                             HasSubstr("could not be reached"))));
  EXPECT_THAT(connection->Reset("t", {.timeout = Duration(0)}),
              StatusIs(StatusCode::kUnavailable, HasSubstr(address)));
}

TEST_F(GrpcTransportTest, ACallThatIsNotAnsweredEndsAtItsDeadline) {
  Mailbox<bool> release;
  handler_->on_info = [&] { (void)release.Take(); };
  StartServer();
  ASSERT_OK(connection_->Reset("t", {}));  // connected
  EXPECT_THAT(connection_->Info({.timeout = 100ms}),
              StatusIs(StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr(address()), Not(HasSubstr("could not be reached")))));
  release.Put(true);
  server_->Stop(Duration(0));  // waits for the handler, which uses `release`
}

TEST_F(GrpcTransportTest, OnWaitMayCancel) {
  const auto connection = ConnectGrpc(DeadAddress()).value();
  int calls = 0;
  const auto caller = std::this_thread::get_id();
  const Status status =
      connection->Reset("t", {.timeout = {}, .on_wait = [&] {
                                EXPECT_EQ(std::this_thread::get_id(), caller);
                                return ++calls < 3 ? Status::Ok() : Status::Cancelled("a signal came");
                              }});
  EXPECT_THAT(status, StatusIs(StatusCode::kCancelled, "a signal came"));
  EXPECT_EQ(calls, 3);
}

TEST_F(GrpcTransportTest, ACallWaitsForTheServerToStart) {
  const std::string address = DeadAddress();
  const auto connection = ConnectGrpc(address).value();
  const Status status = connection->Reset("t", {.timeout = kLong, .on_wait = [&] {
                                                  if (server_ != nullptr) return Status::Ok();
                                                  auto server =
                                                      GrpcServer::Start({.address = address}, handler_);
                                                  if (!server.ok()) return server.status();
                                                  server_ = *std::move(server);
                                                  return Status::Ok();
                                                }});
  EXPECT_OK(status);
}

// --- Invalid messages -----------------------------------------------------------------------------

TEST_F(GrpcTransportTest, GarbageEndsItsStreamAndNoOther) {
  StartServer();
  Insert good = OpenInsert();
  RawStream raw(address(), kInsertMethod);
  raw.Send(EncodeInsertHello(test::ExampleHello()));
  ASSERT_TRUE(raw.Receive());
  raw.Send("\xff\xff\xff\xff garbage");
  EXPECT_THAT(raw.Wait(), StatusIs(StatusCode::kDataLoss, Detail::kCorruptData, HasSubstr("checksum")));
  TAKE_OR_FAIL(session, handler_->inserts);
  EXPECT_TRUE(session->gone.Take());

  good.stream->Send(Heartbeat());
  EXPECT_TRUE(good.session->messages.Take());

  RawStream call(address(), kInfoMethod);
  call.Send("\x0b");
  EXPECT_THAT(call.Wait(), StatusIs(StatusCode::kDataLoss));
}

TEST_F(GrpcTransportTest, AStreamMustStartWithAHello) {
  StartServer();
  {
    RawStream raw(address(), kInsertMethod);
    raw.Send(WireMessage());
    EXPECT_THAT(raw.Wait(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("greet")));
  }
  {
    RawStream raw(address(), kInsertMethod);
    raw.Close();
    EXPECT_THAT(raw.Wait(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("greeting")));
  }
  {
    RawStream raw(address(), kSampleMethod);
    raw.Send(EncodeSampleRequest({.hello = std::nullopt, .request = {.table = "t"}}));
    EXPECT_THAT(raw.Wait(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("greet")));
  }
  EXPECT_EQ(handler_->hellos.total(), 0);
}

TEST_F(GrpcTransportTest, UnknownMethodsAndMissingRequestsAreRefused) {
  StartServer();
  RawStream unknown(address(), "/reverb.v1.Reverb/Frobnicate");
  EXPECT_THAT(unknown.Wait(),
              StatusIs(StatusCode::kUnimplemented, HasSubstr("/reverb.v1.Reverb/Frobnicate")));
  RawStream empty(address(), kInfoMethod);
  empty.Close();
  EXPECT_THAT(empty.Wait(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("has no request")));
}

TEST_F(GrpcTransportTest, MessagesBeyondTheLimitAreRefused) {
  handler_->limits.max_message_bytes = 10'000;
  StartServer();
  for (const size_t bytes : {size_t{20'000}, size_t{1'000'000}}) {
    WireWriter writer;
    writer.Bytes(1000, std::string(bytes, 'x'));
    const WireMessage large = writer.Finish();
    RawStream raw(address(), kInsertMethod);
    raw.Send(large);
    EXPECT_THAT(raw.Wait(), StatusIs(StatusCode::kResourceExhausted, HasSubstr("10000"))) << bytes;
    RawStream call(address(), kResetMethod);
    call.Send(large);
    EXPECT_THAT(call.Wait(), StatusIs(StatusCode::kResourceExhausted, HasSubstr("10000"))) << bytes;
  }
  EXPECT_OK(connection_->Reset("t", {}));
}

TEST_F(GrpcTransportTest, AMessageBeyondTheLimitIsNoHalfClose) {
  handler_->limits.max_message_bytes = 10'000;
  StartServer();
  Random random(6);
  const ChunkRef chunk = MakeChunk(1, {{DType::kUint8, {1000}}}, 200, &random);
  for (int i = 0; i < 20; ++i) {
    Insert insert = OpenInsert();
    insert.stream->Send(MessageOf(1, Trajectory::Single(chunk, 0, 200).value()));
    TAKE_OR_FAIL(status, insert.events->closed);
    EXPECT_THAT(status, StatusIs(StatusCode::kResourceExhausted));
    ASSERT_TRUE(insert.session->gone.Take());
    EXPECT_EQ(insert.session->done.total(), 0);  // a session would forget the client's progress
  }
}

TEST_F(GrpcTransportTest, RepliesBeyondTheClientsLimitsEndTheStream) {
  StartServer();
  for (const uint64_t limit : {uint64_t{100}, uint64_t{1000}}) {
    connection_ = ConnectGrpc(address(), {.limits = {.max_message_bytes = limit}}).value();
    Insert insert = OpenInsert();
    ASSERT_TRUE(insert.session->written.Take());
    InsertReply reply;
    // Just beyond the first limit, and beyond what gRPC accepts with the second.
    const size_t rejections = limit == 100 ? 10 : 10'000;
    for (size_t i = 0; i < rejections; ++i) reply.rejections.push_back({i, Status::NotFound("not here")});
    insert.session->peer->Reply(std::move(reply));
    TAKE_OR_FAIL(status, insert.events->closed);
    EXPECT_THAT(status, StatusIs(StatusCode::kResourceExhausted));
    EXPECT_TRUE(insert.session->gone.Take());
  }
}

TEST_F(GrpcTransportTest, MoreStreamsThanAllowedAreRefused) {
  StartServer({.address = "127.0.0.1:0", .max_streams = 2});
  Insert first = OpenInsert();
  Insert second = OpenInsert();
  auto events = std::make_shared<InsertEventsFake>();
  const auto third = connection_->OpenInsert(test::ExampleHello(), events);
  TAKE_OR_FAIL(status, events->closed);
  EXPECT_THAT(status, StatusIs(StatusCode::kResourceExhausted, HasSubstr("max_streams")));
  EXPECT_THAT(connection_->Reset("t", {}), StatusIs(StatusCode::kResourceExhausted));
  first.stream->Cancel();
  ASSERT_TRUE(first.session->gone.Take());
  // The slot becomes free shortly after OnGone().
  const Status freed = connection_->Reset("t", {});
  EXPECT_TRUE(freed.ok() || freed.code() == StatusCode::kResourceExhausted);
  EXPECT_EQ(handler_->inserts.total(), 2);
}

// --- Health ---------------------------------------------------------------------------------------

// HealthCheckRequest and HealthCheckResponse, encoded by hand.
std::string HealthRequest(std::string_view service) {
  return service.empty() ? ""
                         : std::string("\x0a") + static_cast<char>(service.size()) + std::string(service);
}
constexpr char kServing[] = "\x08\x01";
constexpr char kNotServing[] = "\x08\x02";
constexpr char kServiceUnknown[] = "\x08\x03";

TEST_F(GrpcTransportTest, HealthIsReported) {
  StartServer();
  for (const char* service : {"", "reverb.v1.Reverb"}) {
    RawStream check(address(), kHealthCheckMethod);
    check.Send(HealthRequest(service));
    EXPECT_EQ(check.Receive(), kServing);
    EXPECT_OK(check.Wait());
  }
  RawStream unknown(address(), kHealthCheckMethod);
  unknown.Send(HealthRequest("other"));
  EXPECT_THAT(unknown.Wait(), StatusIs(StatusCode::kNotFound, HasSubstr("other")));

  RawStream watch_unknown(address(), kHealthWatchMethod);
  watch_unknown.Send(HealthRequest("other"));
  EXPECT_EQ(watch_unknown.Receive(), kServiceUnknown);
  RawStream watch(address(), kHealthWatchMethod);
  watch.Send(HealthRequest(""));
  EXPECT_EQ(watch.Receive(), kServing);
  server_->Stop(10s);
  EXPECT_EQ(watch.Receive(), kNotServing);
  EXPECT_THAT(watch.Wait(), StatusIs(StatusCode::kUnavailable));
}

// --- Starting and stopping ------------------------------------------------------------------------

TEST_F(GrpcTransportTest, ATakenPortIsAnError) {
  StartServer();
  EXPECT_THAT(
      GrpcServer::Start({.address = address()}, handler_),
      StatusIs(StatusCode::kFailedPrecondition, AllOf(HasSubstr(address()), HasSubstr("another port"))));
}

TEST_F(GrpcTransportTest, AddressesNeedAPort) {
  for (const char* address : {"", "localhost", "localhost:", "localhost:http", ":80"}) {
    EXPECT_THAT(ConnectGrpc(address), StatusIs(StatusCode::kInvalidArgument, HasSubstr("host:port")))
        << address;
  }
  EXPECT_OK(ConnectGrpc("[::1]:80"));
  EXPECT_OK(ConnectGrpc("unix:/tmp/reverb"));
}

TEST_F(GrpcTransportTest, StopEndsQuietStreams) {
  StartServer();
  Insert insert = OpenInsert();
  SampleEnds sample = OpenSample();
  server_->Stop(10s);
  TAKE_OR_FAIL(status, insert.events->closed);
  EXPECT_THAT(status, StatusIs(StatusCode::kUnavailable, HasSubstr("stopping")));
  TAKE_OR_FAIL(sample_status, sample.events->closed);
  EXPECT_THAT(sample_status, StatusIs(StatusCode::kUnavailable));
  // Called before Stop() returned.
  EXPECT_EQ(insert.session->gone.total(), 1);
  EXPECT_EQ(sample.session->gone.total(), 1);
  server_->Stop(10s);
  server_.reset();
  insert.session->peer->ReadNext();
  insert.session->peer->Reply({});
  insert.session->peer->End(Status::Ok());
}

TEST_F(GrpcTransportTest, StopEndsBusyStreamsSoon) {
  StartServer();
  Random random(5);
  const ChunkRef chunk = MakeChunk(1, {{DType::kUint8, {1000}}}, 10, &random);
  std::vector<Insert> inserts;
  std::vector<SampleEnds> samples;
  for (int i = 0; i < 4; ++i) {
    Insert insert = OpenInsert();
    InsertStream* const stream = insert.stream.get();
    auto next = std::make_shared<std::atomic<uint64_t>>(1);
    insert.events->on_sent = [stream, next, chunk] {
      InsertMessage message = MessageOf((*next)++, Trajectory::Single(chunk, 0, 10).value());
      message.forget_chunks = {1};  // so that it is sent every time
      stream->Send(std::move(message));
    };
    insert.events->on_sent();
    inserts.push_back(std::move(insert));

    SampleEnds sample = OpenSample();
    ASSERT_TRUE(sample.session->written.Take());
    SamplePeer* const peer = sample.session->peer.get();
    sample.session->on_written = [peer] { peer->Reply({.request_id = 1}); };
    sample.session->on_written();
    samples.push_back(std::move(sample));
  }
  for (Insert& insert : inserts) {
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(insert.session->messages.Take());
  }
  for (SampleEnds& sample : samples) {
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(sample.events->replies.Take());
  }
  const auto begin = std::chrono::steady_clock::now();
  server_->Stop(500ms);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 2s);
  for (Insert& insert : inserts) {
    EXPECT_EQ(insert.session->gone.total(), 1);
    TAKE_OR_FAIL(status, insert.events->closed);
    EXPECT_THAT(status, StatusIs(StatusCode::kUnavailable));
  }
  for (SampleEnds& sample : samples) {
    EXPECT_EQ(sample.session->gone.total(), 1);
    TAKE_OR_FAIL(status, sample.events->closed);
    EXPECT_THAT(status, StatusIs(StatusCode::kUnavailable));
  }
}

TEST_F(GrpcTransportTest, StopWithoutGraceCancels) {
  handler_->prepare = [](InsertSessionFake* session) { session->end_when_done = false; };
  StartServer();
  Insert insert = OpenInsert();
  server_->Stop(Duration(0));
  TAKE_OR_FAIL(status, insert.events->closed);
  EXPECT_THAT(status, StatusIs(StatusCode::kUnavailable));
  EXPECT_EQ(insert.session->gone.total(), 1);
}

TEST_F(GrpcTransportTest, StopWaitsForACheckpoint) {
  Mailbox<bool> begun, release;
  std::atomic<bool> written{false};
  handler_->on_checkpoint = [&] {
    begun.Put(true);
    (void)release.Take();
    written = true;
  };
  StartServer();
  // The client gives up once the checkpoint has started; the server completes it.
  EXPECT_THAT(
      connection_->Checkpoint(
          {.timeout = kLong,
           .on_wait = [&] { return begun.total() == 0 ? Status::Ok() : Status::Cancelled("enough"); }}),
      StatusIs(StatusCode::kCancelled, "enough"));
  EXPECT_OK(connection_->Reset("t", {}));  // gRPC's threads are free
  std::thread stopper([&] {
    server_->Stop(Duration(0));
    EXPECT_TRUE(written);
  });
  release.Put(true);
  stopper.join();
}

// --- Memory ---

class GrpcMemoryTest : public GrpcTransportTest {
 protected:
  GrpcMemoryTest() {
    handler_->budget = &budget_;
    Random random(1);
    const ChunkRef chunk = MakeChunk(7, {{DType::kFloat32, {100}, CodecPolicy::kNone}}, kRows, &random);
    large_.push_back({.key = 5, .trajectory = Trajectory::Single(chunk, 0, kRows).value()});
    handler_->inspected.items = large_;
    StartServer();
  }
  // Before the budget is destroyed.
  void TearDown() override {
    connection_.reset();
    server_.reset();
  }
  int64_t replies() const { return budget_.usage().replies; }

  static constexpr uint32_t kRows = 20'000;
  static constexpr int64_t kReplyBytes = int64_t{400} * kRows;
  MemoryBudget budget_;
  std::vector<Sample> large_;
};

TEST_F(GrpcMemoryTest, RepliesThatAreNotTakenCount) {
  const WireMessage inspect = EncodeInspectRequest({.table = "t", .count = 1});
  const struct {
    std::string method;
    WireMessage request;
  } cases[] = {
      {std::string(kServicePrefix) + "Inspect", inspect},
      {kCallsMethod,
       EncodeCallRequest({.method = static_cast<uint32_t>(Method::kInspect), .request = inspect.Flatten()})},
  };
  for (const auto& [method, request] : cases) {
    SCOPED_TRACE(method);
    {
      RawStream raw(address(), method, /*reads=*/false);
      raw.Send(request);
      EXPECT_TRUE(test::WaitUntil([&] { return replies() > kReplyBytes; })) << replies();
      EXPECT_LT(replies(), 2 * kReplyBytes);
    }
    EXPECT_TRUE(test::WaitUntil([&] { return replies() == 0; })) << replies();
  }
}

TEST_F(GrpcMemoryTest, SamplesAreChargedByTheirSession) {
  RawStream raw(address(), kSampleMethod, /*reads=*/false);
  raw.Send(EncodeSampleRequest({.hello = test::ExampleHello(), .request = {}}));
  TAKE_OR_FAIL(session, handler_->samples);
  ASSERT_TRUE(session->written.Take()) << "the welcome";
  EXPECT_GT(session->peer->Reply({.request_id = 1, .samples = large_}).bytes,
            static_cast<size_t>(kReplyBytes));
  EXPECT_EQ(replies(), 0);
}

}  // namespace
}  // namespace reverb::internal
