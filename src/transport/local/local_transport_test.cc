// Tests both ends of the local transport together, with a fake handler.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "testing/wait.h"
#include "transport/local/endpoint.h"
#include "transport/local/event_loop.h"
#include "transport/local/local_transport_testing.h"

namespace reverb::internal {
namespace {

using std::chrono_literals::operator""ms;
using test::Contents;
using test::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// One column of `rows` rows of 400 bytes.
Trajectory MakeTrajectory(uint32_t rows = 5, uint64_t chunk_id = 7) {
  Random random(1);
  const ChunkRef chunk =
      test::MakeChunk(chunk_id, {{DType::kFloat32, {100}, CodecPolicy::kNone}}, rows, &random);
  return Trajectory::Single(chunk, 0, rows).value();
}

TEST_F(LocalTransportTest, SingleCallsReachTheHandler) {
  handler_->inspected = {.next_cursor = 3, .items = {{.key = 1, .trajectory = MakeTrajectory()}}};
  StartServer();
  EXPECT_EQ(connection_->address(), "unix:" + path_);
  EXPECT_FALSE(connection_->in_process());
  EXPECT_FALSE(connection_->is_connected());
  const auto info = connection_->Info({});
  ASSERT_OK(info);
  EXPECT_EQ(info->server_life_id, handler_->life_id());
  EXPECT_TRUE(connection_->is_connected());
  ASSERT_OK(connection_->Mutate({.table = "per", .updates = {{7, 1.5}}, .deletes = {8}}, {}));
  TAKE_OR_FAIL(mutation, handler_->mutations);
  EXPECT_EQ(mutation.updates[0].key, 7u);
  EXPECT_EQ(mutation.deletes[0], 8u);
  ASSERT_OK(connection_->Reset("t", {}));
  EXPECT_EQ(handler_->texts.Take(), "t");
  ASSERT_OK(connection_->RemoveTable("r", {}));
  EXPECT_EQ(handler_->texts.Take(), "r");
  const auto inspected = connection_->Inspect({.table = "i", .count = 1}, {});
  ASSERT_OK(inspected);
  EXPECT_EQ(inspected->next_cursor, 3u);
  EXPECT_EQ(Contents(inspected->items[0].trajectory), Contents(handler_->inspected.items[0].trajectory));
  EXPECT_THAT(connection_->Checkpoint({}), test::IsOkAndHolds("/tmp/checkpoint-1"));
}

TEST_F(LocalTransportTest, ErrorsKeepTheirDetail) {
  handler_->answer = Status(StatusCode::kDeadlineExceeded, "table \"per\": no room", Detail::kRateLimited);
  StartServer();
  EXPECT_EQ(connection_->Reset("per", {.timeout = kLong}), handler_->answer);
  EXPECT_EQ(connection_->Reset("per", {.timeout = kLong}), handler_->answer) << "the socket is used again";
}

TEST_F(LocalTransportTest, ConcurrentCallsDoNotWaitForEachOther) {
  Mailbox<bool> started, release;
  handler_->on_checkpoint = [&] {
    started.Put(true);
    (void)release.Take();
  };
  StartServer();
  auto checkpoint = std::async(std::launch::async, [&] { return connection_->Checkpoint({}); });
  ASSERT_TRUE(started.Take());
  EXPECT_OK(connection_->Reset("t", {}));
  release.Put(true);
  EXPECT_OK(checkpoint.get());
}

// Of many calls on one socket: a loop serves them, and other sockets.
TEST_F(LocalTransportTest, CallsThatReadADiskAreNotServedByALoop) {
  handler_->inspect_blocks = true;
  StartServer();
  RawSocket raw(path_);
  raw.Greet();
  ASSERT_TRUE(
      raw.Send(MakeCallFrame(FrameKind::kCall, 1, EncodeInspectRequest({.table = "t"}), Method::kInspect)));
  std::optional<IncomingFrame> frame = raw.Receive();
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->header.kind, FrameKind::kFailure);
  // A socket of its own carries it.
  EXPECT_OK(connection_->Inspect({.table = "t", .count = 1}, {}));
  EXPECT_EQ(handler_->texts.total(), 1);
}

TEST_F(LocalTransportTest, ACallMayFollowACheckpointAtOnce) {
  StartServer();
  for (int i = 0; i < 500; ++i) {
    ASSERT_OK(connection_->Checkpoint({}));
    ASSERT_OK(connection_->Reset("t", {}));  // over the same socket
  }
}

TEST_F(LocalTransportTest, ACallThatIsNotAnsweredEndsAtItsDeadline) {
  Mailbox<bool> release;
  handler_->on_info = [&] { (void)release.Take(); };
  StartServer();
  EXPECT_THAT(connection_->Info({.timeout = 100ms}),
              StatusIs(StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("Info"), HasSubstr(path_), Not(HasSubstr("could not be reached")))));
  release.Put(true);
  EXPECT_OK(connection_->Reset("t", {})) << "the late reply does not disturb other calls";
}

TEST_F(LocalTransportTest, CallsWaitForTheServerToStart) {
  const auto connection = ConnectLocal({.path = path_}).value();
  EXPECT_THAT(connection->Info({.timeout = 50ms}),
              StatusIs(StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("could not be reached"), HasSubstr("nothing listens at " + path_))));
  EXPECT_THAT(connection->Reset("t", {.timeout = Duration(0)}),
              StatusIs(StatusCode::kUnavailable, HasSubstr("nothing listens")));
  int calls = 0;
  EXPECT_OK(connection->Reset("t", {.timeout = kLong, .on_wait = [&] {
                                      if (++calls == 3) StartServer();
                                      return Status::Ok();
                                    }}));
  EXPECT_GE(calls, 3);
  server_.reset();
  EXPECT_THAT(
      connection->Reset("t", {.timeout = {}, .on_wait = [] { return Status::Cancelled("a signal came"); }}),
      StatusIs(StatusCode::kCancelled, "a signal came"));
}

TEST_F(LocalTransportTest, CallsFollowARestartedServer) {
  StartServer();
  ASSERT_OK(connection_->Reset("t", {}));
  const auto connection = connection_;
  server_.reset();
  StartServer();
  EXPECT_OK(connection->Reset("t", {.timeout = kLong}));
}

TEST_F(LocalTransportTest, InsertStreamsCarryItems) {
  StartServer();
  Insert insert = OpenInsert();
  TAKE_OR_FAIL(welcome, insert.events->replies);
  EXPECT_TRUE(welcome.welcome);
  const Trajectory trajectory = MakeTrajectory(2000);  // larger than the socket's buffer
  const InsertStream::Sent sent = insert.stream->Send(MessageOf(1, trajectory));
  EXPECT_GT(sent.bytes, 0u);
  if (!sent.ready) {
    ASSERT_TRUE(insert.events->sent.Take());
  }
  TAKE_OR_FAIL(message, insert.session->messages);
  EXPECT_EQ(Contents(message.items[0].trajectory), Contents(trajectory));
  insert.session->peer->Reply({.confirmed_through = 1});
  TAKE_OR_FAIL(reply, insert.events->replies);
  EXPECT_EQ(reply.confirmed_through, 1u);
  insert.stream->Finish();
  TAKE_OR_FAIL(closed, insert.events->closed);
  EXPECT_OK(closed);
  EXPECT_TRUE(insert.session->gone.Take());
  EXPECT_EQ(insert.stream->Send(Heartbeat()).bytes, 0u);
}

TEST_F(LocalTransportTest, SampleStreamsCarrySamples) {
  StartServer();
  SampleEnds sample = OpenSample();
  TAKE_OR_FAIL(welcome, sample.events->replies);
  EXPECT_TRUE(welcome.reply.welcome);
  sample.stream->Send({.request_id = 3, .table = "t", .count = 2});
  TAKE_OR_FAIL(request, sample.session->requests);
  EXPECT_EQ(request.request_id, 3u);
  SampleReply reply{.request_id = 3};
  reply.samples.push_back({.key = 5, .trajectory = MakeTrajectory(4000)});
  const std::string contents = Contents(reply.samples[0].trajectory);
  const SamplePeer::Sent sent = sample.session->peer->Reply(reply);
  if (!sent.ready) {
    ASSERT_TRUE(sample.session->written.Take());
  }
  TAKE_OR_FAIL(got, sample.events->replies);
  EXPECT_EQ(got.bytes, sent.bytes);
  EXPECT_EQ(Contents(got.reply.samples[0].trajectory), contents);
  sample.stream->Cancel();
  TAKE_OR_FAIL(closed, sample.events->closed);
  EXPECT_THAT(closed, StatusIs(StatusCode::kCancelled));
  EXPECT_TRUE(sample.session->gone.Take());
  EXPECT_EQ(sample.session->peer->Reply(reply).bytes, 0u);
}

TEST_F(LocalTransportTest, ASessionThatReadsNothingHoldsTheWriterBack) {
  handler_->prepare = [](InsertSessionFake* session) { session->keep_reading = false; };
  StartServer();
  Insert insert = OpenInsert();
  uint64_t sent = 0;
  bool is_ready = true;
  while (is_ready) {
    ++sent;
    is_ready = insert.stream->Send(MessageOf(sent, MakeTrajectory(50, sent))).ready;
    ASSERT_LT(sent, 100'000u) << "the socket takes everything";
  }
  ASSERT_TRUE(test::WaitUntil([&] { return insert.session->messages.total() > 0; }));
  EXPECT_EQ(insert.session->messages.total(), 1);
  insert.session->keep_reading = true;
  insert.session->peer->ReadNext();
  ASSERT_TRUE(insert.events->sent.Take());
  for (uint64_t number = 1; number <= sent; ++number) {
    TAKE_OR_FAIL(message, insert.session->messages);
    EXPECT_EQ(message.items[0].number, number);
  }
  // A client that disconnects is noticed although nothing is read.
  insert.session->keep_reading = false;
  for (int i = 0; i < 3; ++i) (void)insert.stream->Send(Heartbeat());  // at most one of them is read
  insert.stream->Cancel();
  EXPECT_TRUE(insert.session->gone.Take());
}

TEST_F(LocalTransportTest, RefusalsAreReported) {
  handler_->refusal = Status::ResourceExhausted("no more writers");
  StartServer();
  auto events = std::make_shared<InsertEventsFake>();
  auto stream = connection_->OpenInsert(test::ExampleHello(), events);
  EXPECT_EQ(events->closed.Take(), handler_->refusal);
}

TEST_F(LocalTransportTest, AServerOfAnotherAddressRefuses) {
  StartServer({.path = {}, .tcp_address = "127.0.0.1:8000"});
  const auto probe = [&](const std::string& wanted) {
    return ProbeLocal({.path = path_, .wanted_address = wanted, .limits = {}}, kLong);
  };
  EXPECT_THAT(probe("localhost:8000"), test::IsOkAndHolds(handler_->life_id()));
  EXPECT_OK(probe("127.0.0.1:8000"));
  EXPECT_OK(probe("unix:" + path_));
  EXPECT_THAT(probe("localhost:8001"),
              StatusIs(StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("127.0.0.1:8000"), HasSubstr("localhost:8001"))));
  EXPECT_THAT(probe("[::1]:8000"), StatusIs(StatusCode::kFailedPrecondition));
  const auto refused =
      ConnectLocal({.path = path_, .wanted_address = "localhost:8001", .limits = {}}).value();
  EXPECT_THAT(refused->Info({.timeout = kLong}), StatusIs(StatusCode::kFailedPrecondition));
  auto events = std::make_shared<SampleEventsFake>();
  auto stream = refused->OpenSample(test::ExampleHello(), events);
  TAKE_OR_FAIL(closed, events->closed);
  EXPECT_THAT(closed, StatusIs(StatusCode::kFailedPrecondition));
}

TEST(ServesAddressTest, LoopbackAndWildcard) {
  EXPECT_TRUE(ServesAddress("[::]:80", "localhost:80"));
  EXPECT_TRUE(ServesAddress("0.0.0.0:80", "myhost:80"));
  EXPECT_TRUE(ServesAddress("localhost:80", "127.0.0.1:80"));
  EXPECT_TRUE(ServesAddress("[::1]:80", "localhost:80"));
  EXPECT_TRUE(ServesAddress("", "localhost:80"));
  EXPECT_TRUE(ServesAddress("192.0.2.1:80", "192.0.2.1:80"));
  EXPECT_FALSE(ServesAddress("[::]:80", "localhost:81"));
  EXPECT_FALSE(ServesAddress("127.0.0.1:80", "[::1]:80"));
  EXPECT_FALSE(ServesAddress("127.0.0.1:80", "myhost:80"));
  EXPECT_FALSE(ServesAddress("127.0.0.1:80", "nonsense"));
}

TEST_F(LocalTransportTest, TheNumberOfSocketsIsLimited) {
  StartServer({.path = {}, .max_streams = 2});
  Insert first = OpenInsert();
  Insert second = OpenInsert();
  auto events = std::make_shared<InsertEventsFake>();
  auto refused = connection_->OpenInsert(test::ExampleHello(), events);
  TAKE_OR_FAIL(closed, events->closed);
  EXPECT_THAT(closed, StatusIs(StatusCode::kResourceExhausted, HasSubstr("max_streams")));
  first.stream->Cancel();
  ASSERT_TRUE(first.session->gone.Take());
  EXPECT_TRUE(test::WaitUntil([&] { return connection_->Reset("t", {.timeout = kLong}).ok(); }));
}

TEST_F(LocalTransportTest, StoppingEndsStreamsAndWaitsForCalls) {
  Mailbox<bool> started;
  std::atomic<bool> finished{false};
  handler_->on_checkpoint = [&] {
    started.Put(true);
    std::this_thread::sleep_for(50ms);  // simulates writing
    finished = true;
  };
  StartServer();
  Insert insert = OpenInsert();
  SampleEnds sample = OpenSample();
  ASSERT_OK(connection_->Reset("t", {}));  // leaves an idle socket
  auto checkpoint = std::async(std::launch::async, [&] { return connection_->Checkpoint({}); });
  ASSERT_TRUE(started.Take());
  server_->Stop(kLong);  // does not wait for idle sockets
  EXPECT_TRUE(finished);
  EXPECT_OK(checkpoint.get());
  TAKE_OR_FAIL(inserted, insert.events->closed);
  EXPECT_THAT(inserted, StatusIs(StatusCode::kUnavailable, HasSubstr("stopping")));
  TAKE_OR_FAIL(sampled, sample.events->closed);
  EXPECT_THAT(sampled, StatusIs(StatusCode::kUnavailable, HasSubstr("stopping")));
  EXPECT_TRUE(insert.session->gone.Take());
  EXPECT_TRUE(sample.session->gone.Take());
  EXPECT_FALSE(insert.session->peer->Reply({})) << "a peer that outlives the server does nothing";
  struct stat status = {};
  EXPECT_NE(stat(path_.c_str(), &status), 0) << "the socket is removed";
  server_.reset();
  EXPECT_TRUE(SoonUnshared(handler_)) << "nothing keeps the handler";
}

TEST_F(LocalTransportTest, TheSocketIsPrivate) {
  StartServer();
  struct stat status = {};
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(LocalTransportTest, AServerThatWasReplacedLeavesTheSocketOfTheNewOne) {
  StartServer();
  auto old = std::move(server_);
  StartServer();
  old.reset();
  EXPECT_OK(connection_->Reset("t", {.timeout = kLong}));
}

TEST_F(LocalTransportTest, NothingIsLeftOpen) {
  const size_t before = NumDescriptorsForTesting();
  StartServer();
  {
    Insert insert = OpenInsert();
    SampleEnds sample = OpenSample();
    ASSERT_OK(connection_->Reset("t", {}));
    insert.stream->Cancel();
    ASSERT_TRUE(insert.events->closed.Take());
    sample.session->peer->End(Status::Ok());
    ASSERT_TRUE(sample.events->closed.Take());
  }
  server_.reset();
  connection_.reset();
  // The loops of clients stay: an epoll and an eventfd each.
  const size_t loops = 2 * static_cast<size_t>(DefaultLoopThreads());
  EXPECT_TRUE(test::WaitUntil([&] { return NumDescriptorsForTesting() <= before + loops; }))
      << NumDescriptorsForTesting() << " instead of " << before << " + " << loops;
}

TEST_F(LocalTransportTest, AClientWithoutDescriptorsReportsThat) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UBSan needs a descriptor to check whether memory is readable";
#endif
  StartServer();
  ASSERT_OK(connection_->Reset("t", {}));
  rlimit old = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  const int first_free = dup(0);  // the system assigns the lowest number
  close(first_free);
  const rlimit none = {.rlim_cur = static_cast<rlim_t>(first_free), .rlim_max = old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  auto events = std::make_shared<InsertEventsFake>();
  auto stream = connection_->OpenInsert(test::ExampleHello(), events);
  const auto closed = events->closed.Take();
  const Status call = connection_->Reset("t", {});
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
  ASSERT_TRUE(closed);
  EXPECT_THAT(*closed, StatusIs(StatusCode::kUnavailable, HasSubstr("ulimit -n")));
  EXPECT_OK(call) << "over the idle socket";
}

TEST_F(LocalTransportTest, AClientThatTakesNothingIsDisconnected) {
  WarningsForTest warnings;
  StartServer({.path = {}, .stalled_client_timeout = 200ms, .max_pinned_bytes = 0});
  RawSocket raw(path_);
  raw.Open(Method::kSample, EncodeSampleRequest({.hello = test::ExampleHello(), .request = {}}));
  TAKE_OR_FAIL(session, handler_->samples);
  SampleReply reply;
  reply.samples.push_back({.key = 5, .trajectory = MakeTrajectory(1000)});
  while (session->peer->Reply(reply).ready) {
  }
  EXPECT_TRUE(session->gone.Take()) << "the memory of what was not sent is freed";
  TAKE_OR_FAIL(logged, warnings.messages);
  EXPECT_THAT(logged,
              AllOf(HasSubstr("disconnected the client"), HasSubstr("pid " + std::to_string(getpid())),
                    HasSubstr("it has taken nothing of what was sent to it for 0.2 s")));
  SampleEnds other = OpenSample();
  EXPECT_TRUE(other.events->replies.Take()) << "others are served";
}

// --- Damage ---

TEST_F(LocalTransportTest, WrongFramesEndOnlyTheirSocket) {
  StartServer();
  Insert witness = OpenInsert();
  const auto header = [](uint8_t kind, uint64_t bytes = 0, uint32_t references = 0,
                         uint16_t announcements = 0) {
    FrameHeader value;
    value.kind = static_cast<FrameKind>(kind);
    value.inline_bytes = bytes;
    value.num_references = references;
    value.num_announcements = announcements;
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
  };
  FrameHeader body;
  body.kind = FrameKind::kMessage;
  body.body = 0;
  const std::string with_body(reinterpret_cast<const char*>(&body), sizeof body);
  struct Case {
    std::string bytes;
    StatusCode code;
    std::string text;
  };
  const std::vector<Case> cases = {
      {header(0), StatusCode::kInvalidArgument, "unknown kind 0"},
      {header(99), StatusCode::kInvalidArgument, "unknown kind 99"},
      {header(3), StatusCode::kInvalidArgument, "outside of a stream"},
      {header(4), StatusCode::kInvalidArgument, "before its greeting"},
      {header(5), StatusCode::kInvalidArgument, "kind 5"},
      {header(1), StatusCode::kInvalidArgument, "greeted twice"},
      {header(2), StatusCode::kUnimplemented, "no method with the number 0"},
      {header(2, UINT64_MAX), StatusCode::kResourceExhausted, "more than"},
      {header(2, 0, UINT32_MAX), StatusCode::kResourceExhausted, "references"},
      {header(2, 0, 0, UINT16_MAX), StatusCode::kInvalidArgument, "announcements"},
      {std::string(sizeof(FrameHeader), '\xff'), StatusCode::kInvalidArgument, "unknown kind"},
      {with_body, StatusCode::kInvalidArgument, "a body in shared memory is not accepted here"},
  };
  for (const Case& wrong : cases) {
    RawSocket raw(path_);
    raw.Greet();
    (void)raw.Send(wrong.bytes);
    EXPECT_THAT(raw.ReceiveStatus(), StatusIs(wrong.code, HasSubstr(wrong.text)));
    EXPECT_FALSE(raw.Receive()) << "the socket is closed";
  }
  EXPECT_OK(connection_->Reset("t", {.timeout = kLong}));
  (void)witness.stream->Send(Heartbeat());
  EXPECT_TRUE(witness.session->messages.Take());
}

TEST_F(LocalTransportTest, ARequestNeedsAGreeting) {
  StartServer();
  RawSocket raw(path_);
  raw.Send(MakeFrame(FrameKind::kRequest, EncodeEmpty(), Method::kInfo));
  EXPECT_THAT(raw.ReceiveStatus(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("before the greeting")));
}

TEST_F(LocalTransportTest, OtherVersionsAndHostsAreRefused) {
  StartServer();
  {
    RawSocket raw(path_);
    LocalHello hello{.version = 9, .identity = OwnIdentity(), .wanted_address = {}};
    raw.Send(MakeFrame(FrameKind::kGreeting, EncodeLocalHello(hello)));
    EXPECT_THAT(raw.ReceiveStatus(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("version 9")));
  }
  RawSocket raw(path_);
  LocalHello hello{.identity = OwnIdentity(), .wanted_address = {}};
  hello.identity.boot_id = "another";
  raw.Send(MakeFrame(FrameKind::kGreeting, EncodeLocalHello(hello)));
  EXPECT_THAT(raw.ReceiveStatus(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("another host")));
}

TEST_F(LocalTransportTest, ClientsThatStopInTheMiddleLeaveNothing) {
  StartServer();
  std::string all;
  const auto append = [&](const OutgoingFrame& frame) {
    all += frame.head;
    for (const Buffer& part : frame.parts)
      all.append(reinterpret_cast<const char*>(part.data()), part.size());
  };
  LocalHello hello;
  hello.identity = OwnIdentity();
  append(MakeFrame(FrameKind::kGreeting, EncodeLocalHello(hello)));
  append(MakeFrame(FrameKind::kRequest, EncodeInsertHello(test::ExampleHello()), Method::kInsert));
  InsertEncoder encoder;
  append(MakeFrame(FrameKind::kMessage, encoder.Encode(MessageOf(1, MakeTrajectory(100)))));
  const size_t before = NumDescriptorsForTesting();
  const size_t step = all.size() / 200 + 1;
  for (size_t cut = 0; cut < all.size(); cut += cut < 300 ? 1 : step) {
    RawSocket raw(path_);
    raw.Send(all.substr(0, cut));
  }
  EXPECT_TRUE(test::WaitUntil([&] { return handler_->inserts.total() > 0; }));
  EXPECT_TRUE(test::WaitUntil([&] { return NumDescriptorsForTesting() == before; }));
  while (auto session = handler_->inserts.Take(Duration(0))) EXPECT_TRUE((*session)->gone.Take());
  EXPECT_OK(connection_->Reset("t", {.timeout = kLong}));
}

TEST_F(LocalTransportTest, FramesInSmallPiecesAreJoined) {
  StartServer();
  RawSocket raw(path_);
  raw.Greet();
  const OutgoingFrame frame = MakeFrame(FrameKind::kRequest, EncodeResetRequest("slow"), Method::kReset);
  std::string bytes = frame.head;
  for (const Buffer& part : frame.parts)
    bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
  for (const char byte : bytes) ASSERT_TRUE(raw.Send(std::string(1, byte)));
  EXPECT_EQ(handler_->texts.Take(), "slow");
  const auto reply = raw.Receive();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->header.kind, FrameKind::kMessage);
}

TEST_F(LocalTransportTest, RandomBytesAreRefused) {
  StartServer();
  Random random(5);
  for (int i = 0; i < 200; ++i) {
    RawSocket raw(path_);
    if (i % 2 == 0) raw.Greet();
    std::string bytes(random.Below(200), '\0');
    for (char& byte : bytes) byte = static_cast<char>(random.Next());
    if (!bytes.empty()) bytes[0] = static_cast<char>(random.Below(8));
    (void)raw.Send(bytes);
  }
  EXPECT_OK(connection_->Reset("t", {.timeout = kLong}));
}

}  // namespace
}  // namespace reverb::internal
