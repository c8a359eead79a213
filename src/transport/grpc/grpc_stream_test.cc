#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.h"
#include "testing/effort.h"
#include "testing/status_matchers.h"
#include "transport/grpc/grpc_connection.h"
#include "transport/grpc/grpc_internal.h"
#include "transport/grpc/grpc_server.h"
#include "transport/grpc/grpc_transport_testing.h"
#include "transport/transport.h"
#include "transport/wire_testing.h"

namespace reverb::internal {
namespace {

using namespace std::chrono_literals;  // NOLINT: literals only
using test::AllKinds;
using test::Contents;
using test::MakeChunk;
using test::StatusIs;
using testing::HasSubstr;

class GrpcStreamTest : public GrpcTransportTest {};

// --- Insert streams -------------------------------------------------------------------------------

TEST_F(GrpcStreamTest, AnInsertStreamCarriesItemsAndReplies) {
  StartServer();
  Insert insert = OpenInsert();
  ASSERT_NE(insert.session, nullptr);
  TAKE_OR_FAIL(hello, handler_->hellos);
  EXPECT_EQ(hello.client_name, test::ExampleHello().client_name);
  EXPECT_EQ(hello.session_id, test::ExampleHello().session_id);
  TAKE_OR_FAIL(welcome, insert.events->replies);
  ASSERT_TRUE(welcome.welcome.has_value());
  EXPECT_EQ(welcome.welcome->server_life_id, test::ExampleWelcome().server_life_id);
  ASSERT_TRUE(insert.session->written.Take());

  // Alternates between the directions; every fifth chunk, large or small, is used again.
  Random random(7);
  const auto count = static_cast<uint64_t>(test::Effort(500, 100));
  std::vector<std::string> contents;
  ChunkRef chunk;
  for (uint64_t number = 1; number <= count; ++number) {
    if (number % 5 == 1) chunk = MakeChunk(number, AllKinds(), 1 + random.Below(20), &random);
    InsertMessage message = MessageOf(number, test::RandomTrajectory({chunk}, {0, 2, 3, 6, 9}, &random));
    contents.push_back(Contents(message.items[0].trajectory));
    const uint64_t expected = insert.stream->NewBytes(message.items[0].trajectory);
    const InsertStream::Sent sent = insert.stream->Send(std::move(message));
    EXPECT_FALSE(sent.ready);
    EXPECT_NEAR(static_cast<double>(sent.bytes), static_cast<double>(expected), 500);
    ASSERT_TRUE(insert.events->sent.Take());
  }
  for (uint64_t number = 1; number <= count; ++number) {
    TAKE_OR_FAIL(message, insert.session->messages);
    ASSERT_EQ(message.items.size(), 1u);
    EXPECT_EQ(message.items[0].number, number);
    EXPECT_EQ(message.items[0].key, number * 7);
    ASSERT_EQ(Contents(message.items[0].trajectory), contents[number - 1]) << "item " << number;
    EXPECT_FALSE(insert.session->peer->Reply({.confirmed_through = number}));
    ASSERT_TRUE(insert.session->written.Take());
  }
  for (uint64_t number = 1; number <= count; ++number) {
    TAKE_OR_FAIL(reply, insert.events->replies);
    EXPECT_EQ(reply.confirmed_through, number);
  }
  insert.stream->Finish();
  EXPECT_TRUE(insert.session->done.Take());
  EXPECT_TRUE(insert.session->gone.Take());
  TAKE_OR_FAIL(status, insert.events->closed);
  EXPECT_OK(status);

  // The stream has ended: calls on either end have no effect.
  EXPECT_EQ(insert.stream->Send(Heartbeat()).bytes, 0u);
  insert.stream->Finish();
  insert.stream->Cancel();
  insert.session->peer->ReadNext();
  insert.session->peer->Reply({});
  insert.session->peer->End(Status::Ok());
}

TEST_F(GrpcStreamTest, SendMayFollowTheOpeningAtOnce) {
  StartServer();
  auto events = std::make_shared<InsertEventsFake>();
  const auto stream = connection_->OpenInsert(test::ExampleHello(), events);
  stream->Send(Heartbeat());
  stream->Finish();
  TAKE_OR_FAIL(status, events->closed);
  EXPECT_OK(status);
  TAKE_OR_FAIL(session, handler_->inserts);
  TAKE_OR_FAIL(message, session->messages);
  EXPECT_TRUE(message.heartbeat);
}

TEST_F(GrpcStreamTest, StreamsOutliveTheirConnection) {
  StartServer();
  Insert insert = OpenInsert();
  connection_.reset();
  insert.stream->Send(Heartbeat());
  EXPECT_TRUE(insert.session->messages.Take());
  insert.stream->Finish();
  TAKE_OR_FAIL(status, insert.events->closed);
  EXPECT_OK(status);
}

TEST_F(GrpcStreamTest, NothingIsReadUntilTheSessionRequestsIt) {
  handler_->prepare = [](InsertSessionFake* session) { session->keep_reading = false; };
  StartServer();
  Insert insert = OpenInsert();
  for (int i = 0; i < 5; ++i) {
    insert.stream->Send(Heartbeat());
    ASSERT_TRUE(insert.events->sent.Take());
  }
  ASSERT_TRUE(insert.session->messages.Take());
  // Meanwhile another stream on the same connection is not blocked.
  Insert other = OpenInsert();
  other.session->keep_reading = true;
  for (int i = 0; i < 20; ++i) {
    other.stream->Send(Heartbeat());
    ASSERT_TRUE(other.session->messages.Take());
    ASSERT_TRUE(other.events->sent.Take());
  }
  EXPECT_EQ(insert.session->messages.total(), 1);
  insert.session->peer->ReadNext();
  insert.session->peer->ReadNext();
  ASSERT_TRUE(insert.session->messages.Take());
  ASSERT_TRUE(insert.session->messages.Take());
  EXPECT_EQ(insert.session->messages.total(), 3);
}

TEST_F(GrpcStreamTest, MessagesAreDeliveredOneAtATime) {
  std::atomic<int> inside{0}, most{0};
  handler_->prepare = [&](InsertSessionFake* session) {
    InsertPeer* const peer = session->peer.get();
    session->keep_reading = false;
    session->on_message = [&inside, &most, peer] {
      most = std::max(most.load(), ++inside);
      peer->ReadNext();  // allows the next message, which must not arrive before this call returns
      std::this_thread::yield();
      --inside;
    };
  };
  StartServer();
  Insert insert = OpenInsert();
  for (int i = 0; i < 200; ++i) {
    insert.stream->Send(Heartbeat());
    ASSERT_TRUE(insert.events->sent.Take());
  }
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(insert.session->messages.Take());
  EXPECT_EQ(most, 1);
}

TEST_F(GrpcStreamTest, TheStreamEndsAfterTheReplyInProgress) {
  StartServer();
  for (int i = 0; i < 50; ++i) {
    Insert insert = OpenInsert();
    ASSERT_TRUE(insert.session->written.Take());
    insert.session->peer->Reply({.confirmed_through = 17});
    insert.session->peer->End(Status(StatusCode::kFailedPrecondition, "enough", Detail::kTableClosed));
    TAKE_OR_FAIL(welcome, insert.events->replies);
    EXPECT_TRUE(welcome.welcome.has_value());
    TAKE_OR_FAIL(reply, insert.events->replies);
    EXPECT_EQ(reply.confirmed_through, 17u);
    TAKE_OR_FAIL(status, insert.events->closed);
    EXPECT_THAT(status, StatusIs(StatusCode::kFailedPrecondition, Detail::kTableClosed, "enough"));
    EXPECT_TRUE(insert.session->gone.Take());
  }
}

TEST_F(GrpcStreamTest, ARefusedStreamIsClosedWithTheReason) {
  handler_->refusal = Status::FailedPrecondition("this server speaks version 9");
  StartServer();
  auto events = std::make_shared<InsertEventsFake>();
  const auto stream = connection_->OpenInsert(test::ExampleHello(), events);
  TAKE_OR_FAIL(status, events->closed);
  EXPECT_EQ(status, handler_->refusal);
}

TEST_F(GrpcStreamTest, CancelReachesTheSession) {
  StartServer();
  Insert insert = OpenInsert();
  insert.stream->Cancel();
  TAKE_OR_FAIL(status, insert.events->closed);
  EXPECT_THAT(status, StatusIs(StatusCode::kCancelled));
  EXPECT_TRUE(insert.session->gone.Take());
  EXPECT_EQ(insert.session->done.total(), 0);

  SampleEnds sample = OpenSample();
  sample.stream->Cancel();
  EXPECT_TRUE(sample.events->closed.Take());
  EXPECT_TRUE(sample.session->gone.Take());
}

TEST_F(GrpcStreamTest, ADeadClientLeavesNothingBehind) {
  StartServer();
  {
    RawStream raw(address(), kInsertMethod);
    raw.Send(EncodeInsertHello(test::ExampleHello()));
    ASSERT_TRUE(raw.Receive());
  }
  TAKE_OR_FAIL(session, handler_->inserts);
  EXPECT_TRUE(session->gone.Take());
}

TEST_F(GrpcStreamTest, AStreamToADeadAddressIsClosed) {
  const std::string address = DeadAddress();
  const auto connection = ConnectGrpc(address).value();
  auto events = std::make_shared<InsertEventsFake>();
  const auto stream = connection->OpenInsert(test::ExampleHello(), events);
  stream->Send(Heartbeat());
  TAKE_OR_FAIL(status, events->closed);
  EXPECT_THAT(status, StatusIs(StatusCode::kUnavailable, HasSubstr(address)));
  auto sample_events = std::make_shared<SampleEventsFake>();
  const auto sample = connection->OpenSample(test::ExampleHello(), sample_events);
  TAKE_OR_FAIL(sample_status, sample_events->closed);
  EXPECT_THAT(sample_status, StatusIs(StatusCode::kUnavailable, HasSubstr(address)));
}

// --- Sample streams -------------------------------------------------------------------------------

TEST_F(GrpcStreamTest, ASampleStreamCarriesRequestsAndSamples) {
  StartServer();
  SampleEnds sample = OpenSample();
  ASSERT_NE(sample.session, nullptr);
  TAKE_OR_FAIL(welcome, sample.events->replies);
  EXPECT_TRUE(welcome.reply.welcome.has_value());
  EXPECT_GT(welcome.bytes, 0u);
  ASSERT_TRUE(sample.session->written.Take());
  // Many at once: replies that cannot be sent yet are kept.
  for (uint64_t id = 1; id <= 200; ++id) {
    sample.stream->Send({.request_id = id, .table = "replay", .count = 10, .timeout = Duration(0)});
  }
  for (uint64_t id = 1; id <= 200; ++id) {
    TAKE_OR_FAIL(request, sample.session->requests);
    ASSERT_EQ(request.request_id, id);
    EXPECT_EQ(request.count, 10);
  }
  Random random(3);
  const ChunkRef chunk = MakeChunk(1, AllKinds(), 30, &random);
  for (uint64_t id = 1; id <= 20; ++id) {
    SampleReply reply{.request_id = id, .samples = test::RandomSamples({chunk}, {0, 2, 6, 9}, 8, &random)};
    const std::vector<Sample> want = reply.samples;
    const SamplePeer::Sent sent = sample.session->peer->Reply(std::move(reply));
    EXPECT_FALSE(sent.ready);
    ASSERT_TRUE(sample.session->written.Take());
    TAKE_OR_FAIL(got, sample.events->replies);
    EXPECT_EQ(got.bytes, sent.bytes) << "both sides count the same credit";
    EXPECT_EQ(got.reply.request_id, id);
    ASSERT_EQ(got.reply.samples.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(Contents(got.reply.samples[i].trajectory), Contents(want[i].trajectory));
    }
  }
  sample.stream->Finish();
  TAKE_OR_FAIL(status, sample.events->closed);
  EXPECT_OK(status);
  EXPECT_TRUE(sample.session->gone.Take());
}

TEST_F(GrpcStreamTest, TheFirstRequestMayComeWithTheGreeting) {
  StartServer();
  RawStream raw(address(), kSampleMethod);
  raw.Send(EncodeSampleRequest(test::ExampleSampleRequest()));
  TAKE_OR_FAIL(session, handler_->samples);
  TAKE_OR_FAIL(request, session->requests);
  EXPECT_EQ(request.table, test::ExampleSampleRequest().request.table);
  raw.Send(EncodeSampleRequest(test::ExampleSampleRequest()));
  EXPECT_THAT(raw.Wait(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("only the first")));
}

TEST_F(GrpcStreamTest, ALargeReplyIsSentInParts) {
  StartServer();
  SampleEnds sample = OpenSample();
  ASSERT_TRUE(sample.events->replies.Take());
  ASSERT_TRUE(sample.session->written.Take());
  Random random(3);
  const ChunkRef chunk = MakeChunk(1, {{DType::kUint8, {1 << 20}}}, 10, &random);
  for (uint64_t id = 1; id <= 3; ++id) {
    const Sample one{.trajectory = Trajectory::Single(chunk, 0, 10).value()};
    const SamplePeer::Sent sent = sample.session->peer->Reply({.request_id = id, .samples = {one}});
    TAKE_OR_FAIL(got, sample.events->replies);
    ASSERT_TRUE(sample.session->written.Take()) << "once, after the last part";
    EXPECT_EQ(sample.session->written.total(), static_cast<int64_t>(id) + 1);
    EXPECT_EQ(got.bytes, sent.bytes) << "both sides count the same credit";
    EXPECT_EQ(got.reply.request_id, id);
    EXPECT_EQ(Contents(got.reply.samples.at(0).trajectory), Contents(one.trajectory));
  }
}

// --- Damage in transit ---

TEST_F(GrpcStreamTest, DamagedAndLostMessagesEndTheStreamWithDataLoss) {
  StartServer();
  const auto corrupt = StatusIs(StatusCode::kDataLoss, Detail::kCorruptData, HasSubstr("in transit"));
  for (const bool is_lost : {false, true}) {
    RawStream raw(address(), kInsertMethod);
    raw.Send(EncodeInsertHello(test::ExampleHello()));
    TAKE_OR_FAIL(session, handler_->inserts);
    WireMessage heartbeat = InsertEncoder().Encode(Heartbeat());
    heartbeat.Seal(is_lost ? 2 : 1);
    std::string bytes = heartbeat.Flatten();
    if (!is_lost) bytes.back() = static_cast<char>(bytes.back() ^ 2);
    raw.Send(bytes);
    EXPECT_THAT(raw.Wait(), corrupt);
    EXPECT_TRUE(session->gone.Take());
    EXPECT_EQ(session->messages.total(), 0);
  }
  RawStream raw(address(), kSampleMethod);
  raw.Send(EncodeSampleRequest(test::ExampleSampleRequest()).Flatten());
  EXPECT_THAT(raw.Wait(), corrupt) << "no checksum";
  RawStream call(address(), kResetMethod);
  call.Send(EncodeResetRequest("t").Flatten());
  EXPECT_THAT(call.Wait(), corrupt) << "no checksum";
  RawStream info(address(), kInfoMethod);
  info.Send("");  // needs no checksum
  EXPECT_TRUE(info.Receive());
}

// --- Ends -----------------------------------------------------------------------------------------

TEST_F(GrpcStreamTest, EveryStreamEndsExactlyOnceOnBothSides) {
  StartServer();
  const auto count = static_cast<int>(test::Effort(200, 60));
  std::vector<Insert> inserts;
  for (int i = 0; i < count; ++i) {
    Insert insert = OpenInsert();
    ASSERT_NE(insert.session, nullptr);
    switch (i % 5) {
      case 0:
        insert.stream->Finish();
        break;
      case 1:
        insert.stream->Cancel();
        break;
      case 2:
        insert.session->peer->End(Status(StatusCode::kAborted, "enough"));
        break;
      case 3:
        insert.stream->Send(Heartbeat());
        insert.stream->Finish();
        insert.session->peer->End(Status::Ok());
        insert.session->peer->End(Status::Ok());
        break;
      case 4:
        insert.stream->Send(Heartbeat());
        insert.stream->Cancel();
        insert.session->peer->End(Status::Ok());
        insert.stream->Cancel();
        break;
    }
    ASSERT_TRUE(insert.events->closed.Take());
    ASSERT_TRUE(insert.session->gone.Take());
    inserts.push_back(std::move(insert));
  }
  server_->Stop(10s);
  connection_.reset();
  for (const Insert& insert : inserts) {
    EXPECT_EQ(insert.events->closed.total(), 1);
    EXPECT_EQ(insert.session->gone.total(), 1);
    // Both ends have released their objects; the client does so shortly after OnClosed().
    EXPECT_EQ(insert.session.use_count(), 1);
    EXPECT_TRUE(SoonUnshared(insert.events));
    EXPECT_TRUE(SoonUnshared(insert.stream));
  }
}

TEST_F(GrpcStreamTest, TheLastChannelMayBeDestroyedOnACallbackThread) {
  const std::string address = DeadAddress();
  for (int i = 0; i < 20; ++i) {
    const auto events = std::make_shared<InsertEventsFake>();
    // From here on the stream keeps itself and the channel alive.
    (void)ConnectGrpc(address).value()->OpenInsert(test::ExampleHello(), events);
    ASSERT_TRUE(events->closed.Take());
  }
}

TEST_F(GrpcStreamTest, AUnixSocketWorks) {
  const std::string path = testing::TempDir() + "reverb-" + std::to_string(getpid()) + ".sock";
  server_ = GrpcServer::Start({.address = "unix:" + path}, handler_).value();
  connection_ = ConnectGrpc("unix:" + path).value();
  EXPECT_OK(connection_->Reset("t", {.timeout = kLong}));
}

TEST_F(GrpcStreamTest, EndsMayRaceWithOtherCalls) {
  StartServer();
  const auto count = static_cast<int>(test::Effort(200, 60));
  for (int i = 0; i < count; ++i) {
    Insert insert = OpenInsert();
    ASSERT_TRUE(insert.session->written.Take());
    std::atomic<bool> go{false};
    const auto run = [&go](std::function<void()> work) {
      return std::thread([&go, work = std::move(work)] {
        while (!go) std::this_thread::yield();
        work();
      });
    };
    std::vector<std::thread> threads;
    threads.push_back(run([&] { insert.session->peer->Reply({.confirmed_through = 1}); }));
    threads.push_back(run([&] { insert.session->peer->ReadNext(); }));
    threads.push_back(run([&] { insert.stream->Send(Heartbeat()); }));
    threads.push_back(run([&] { insert.stream->Finish(); }));
    threads.push_back(run([&] {
      if (i % 2 == 0) {
        insert.stream->Cancel();
      } else {
        insert.session->peer->End(Status(StatusCode::kAborted, "enough"));
      }
    }));
    go = true;
    for (std::thread& thread : threads) thread.join();
    ASSERT_TRUE(insert.events->closed.Take());
    ASSERT_TRUE(insert.session->gone.Take());
  }
}

}  // namespace
}  // namespace reverb::internal
