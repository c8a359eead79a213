// Single calls over a stream: what the client does when all is well and when not, and what the server accepts.
#include <gmock/gmock.h>
#include <grpcpp/generic/async_generic_service.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "testing/status_matchers.h"
#include "testing/tcp_proxy.h"
#include "testing/wait.h"
#include "transport/grpc/grpc_internal.h"
#include "transport/grpc/grpc_transport_testing.h"
#include "transport/single_calls.h"
#include "transport/wire_calls.h"
#include "transport/wire_seal.h"

namespace reverb::internal {
namespace {

using namespace std::chrono_literals;  // NOLINT: literals only
using test::StatusIs;
using testing::AllOf;
using testing::HasSubstr;

constexpr char kMutateMethod[] = "/reverb.v1.Reverb/MutatePriorities";

// A gRPC server that records the methods that are called. It answers MutatePriorities, and calls over a stream
// unless it is told to refuse them.
class MethodRecorder final : public grpc::CallbackGenericService {
 public:
  MethodRecorder() {
    grpc::ServerBuilder builder;
    builder.RegisterCallbackGenericService(this);
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    server_ = builder.BuildAndStart();
  }
  ~MethodRecorder() override { server_->Shutdown(std::chrono::system_clock::now()); }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
    methods.Put(context->method());
    const bool is_stream = context->method() == kCallsMethod;
    return new Reactor(is_stream ? refusal : Status::Ok(), is_stream);
  }

  Status refusal;  // of streams
  Mailbox<std::string> methods;

 private:
  // Answers each message with an empty one.
  class Reactor final : public grpc::ServerGenericBidiReactor {
   public:
    Reactor(const Status& refusal, bool is_stream) : is_stream_(is_stream) {
      if (refusal.ok()) {
        StartRead(&in_);
      } else {
        Finish(ToGrpcStatus(refusal));
      }
    }
    void OnReadDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::OK);
      WireMessage reply = EncodeEmpty();
      reply.Seal(num_written_++);
      out_ = ToByteBuffer(reply);
      if (is_stream_) return StartWrite(&out_);
      StartWriteAndFinish(&out_, {}, grpc::Status::OK);
    }
    void OnWriteDone(bool ok) override {
      if (ok && is_stream_) StartRead(&in_);
    }
    void OnDone() override { delete this; }

   private:
    const bool is_stream_;
    uint64_t num_written_ = 0;
    grpc::ByteBuffer in_, out_;
  };

  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

MutateRequest Update(uint64_t key) { return {.table = "t", .updates = {{.key = key, .priority = 1}}}; }

class GrpcCallStreamTest : public GrpcTransportTest {
 protected:
  // Starts a server and makes the first call, after which calls use a stream.
  void Connect() {
    StartServer();
    ASSERT_OK(connection_->Mutate(Update(0), {.timeout = kLong}));
    (void)handler_->mutations.Take();
  }
};

TEST_F(GrpcCallStreamTest, FrequentCallsShareAStream) {
  MethodRecorder server;
  const auto connection = ConnectGrpc(server.address()).value();
  for (uint64_t i = 0; i < 10; ++i) ASSERT_OK(connection->Mutate(Update(i), {.timeout = kLong}));
  EXPECT_EQ(server.methods.Take(), kMutateMethod) << "the first call waits for the server";
  EXPECT_EQ(server.methods.Take(), kCallsMethod);
  EXPECT_EQ(server.methods.total(), 2);
  // Others are calls of their own.
  ASSERT_OK(connection->Reset("t", {.timeout = kLong}));
  EXPECT_EQ(server.methods.Take(), kResetMethod);
}

TEST_F(GrpcCallStreamTest, LargeRequestsAreCallsOfTheirOwn) {
  MethodRecorder server;
  const auto connection = ConnectGrpc(server.address()).value();
  ASSERT_OK(connection->Mutate(Update(1), {.timeout = kLong}));
  MutateRequest large = Update(1);
  large.deletes.assign(20'000, 7);
  ASSERT_OK(connection->Mutate(large, {.timeout = kLong}));
  EXPECT_EQ(server.methods.Take(), kMutateMethod);
  EXPECT_EQ(server.methods.Take(), kMutateMethod);
}

TEST_F(GrpcCallStreamTest, AServerWithoutSuchStreamsIsCalledWithoutThem) {
  for (const StatusCode code : {StatusCode::kUnimplemented, StatusCode::kPermissionDenied}) {
    MethodRecorder server;
    server.refusal = Status(code, "no");
    const auto connection = ConnectGrpc(server.address()).value();
    for (uint64_t i = 0; i < 10; ++i) ASSERT_OK(connection->Mutate(Update(i), {.timeout = kLong}));
    int streams = 0;
    for (int i = 0; i < 11; ++i) streams += server.methods.Take() == kCallsMethod ? 1 : 0;
    EXPECT_EQ(streams, 1) << "tried once";
  }
}

TEST_F(GrpcCallStreamTest, ErrorsOfACallKeepTheirDetailAndDoNotEndTheStream) {
  Connect();
  const Status answer(StatusCode::kNotFound, "table \"per\": grüße" + std::string(10'000, '.'),
                      Detail::kRateLimited);
  handler_->answer = answer;
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(connection_->Mutate(Update(i), {.timeout = kLong}), answer);
  handler_->answer = Status::Ok();
  EXPECT_OK(connection_->Mutate(Update(5), {.timeout = kLong}));
}

TEST_F(GrpcCallStreamTest, RequestsAndRepliesArriveUnchanged) {
  Connect();
  ASSERT_OK(connection_->Mutate(test::Filled<MutateRequest>(), {.timeout = kLong}));
  TAKE_OR_FAIL(mutation, handler_->mutations);
  EXPECT_EQ(test::Describe(mutation), test::Describe(test::Filled<MutateRequest>()));
  SettleLeasesRequest settle{.table = "t", .acks = {{.key = 1, .id = 2}, {.key = 3, .id = 4}}};
  settle.extends = {{.key = 5, .id = 6}};
  const auto outcome = connection_->SettleLeases(settle, {.timeout = kLong});
  ASSERT_OK(outcome);
  EXPECT_EQ(outcome->settled, 2);
  EXPECT_EQ(outcome->expired, 1);
}

TEST_F(GrpcCallStreamTest, ManyThreadsCallAtTheSameTime) {
  Connect();
  constexpr int kThreads = 12;
  constexpr uint64_t kCalls = 50;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t] {
      for (uint64_t i = 0; i < kCalls; ++i) {
        EXPECT_OK(connection_->Mutate(Update(t * 1000 + i), {.timeout = kLong}));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<uint64_t> next(kThreads, 0);
  for (uint64_t i = 0; i < kThreads * kCalls; ++i) {
    TAKE_OR_FAIL(mutation, handler_->mutations);
    const uint64_t key = mutation.updates.at(0).key;
    EXPECT_EQ(key % 1000, next.at(key / 1000)++);
  }
}

TEST_F(GrpcCallStreamTest, ACallThatIsNotAnsweredEndsAtItsDeadline) {
  Mailbox<bool> release;
  std::atomic<bool> is_blocked{false};
  handler_->on_mutate = [&] {
    if (is_blocked) (void)release.Take();
  };
  Connect();
  ASSERT_OK(connection_->Mutate(Update(1), {.timeout = kLong}));  // over a stream
  is_blocked = true;
  EXPECT_THAT(connection_->Mutate(Update(2), {.timeout = 100ms}),
              StatusIs(StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("MutatePriorities"), HasSubstr(address()), HasSubstr("within 0.1 s"),
                             Not(HasSubstr("could not be reached")))));
  is_blocked = false;
  release.Put(true);
  EXPECT_OK(connection_->Mutate(Update(3), {.timeout = kLong}));
  server_->Stop(Duration(0));  // waits for the handler, which uses `release`
}

TEST_F(GrpcCallStreamTest, OnWaitMayCancel) {
  Mailbox<bool> release;
  std::atomic<bool> is_blocked{false};
  handler_->on_mutate = [&] {
    if (is_blocked) (void)release.Take();
  };
  Connect();
  ASSERT_OK(connection_->Mutate(Update(1), {.timeout = kLong}));
  is_blocked = true;
  int calls = 0;
  const Status status = connection_->Mutate(
      Update(2), {.timeout = {}, .on_wait = [&] {
                    return ++calls < 3 ? Status::Ok() : Status::Cancelled("a signal came");
                  }});
  EXPECT_THAT(status, StatusIs(StatusCode::kCancelled, "a signal came"));
  release.Put(true);
  server_->Stop(Duration(0));
}

TEST_F(GrpcCallStreamTest, ARestartedServerIsFound) {
  Connect();
  ASSERT_OK(connection_->Mutate(Update(1), {.timeout = kLong}));
  for (int i = 0; i < 3; ++i) {
    const std::string address = this->address();
    server_.reset();
    auto server = GrpcServer::Start({.address = address}, handler_);
    ASSERT_OK(server);
    server_ = *std::move(server);
    // A call may meet the end of the old connection.
    EXPECT_TRUE(test::WaitUntil([&] { return connection_->Mutate(Update(2), {.timeout = kLong}).ok(); }));
    EXPECT_OK(connection_->Mutate(Update(3), {.timeout = kLong}));
  }
}

TEST_F(GrpcCallStreamTest, AConnectionThatBreaksDuringACallIsUnavailable) {
  Mailbox<bool> begun, release;
  std::atomic<bool> is_blocked{false};
  handler_->on_mutate = [&] {
    if (!is_blocked) return;
    begun.Put(true);
    (void)release.Take();
  };
  StartServer();
  auto proxy = std::make_unique<test::TcpProxy>(server_->port());
  connection_ = ConnectGrpc(proxy->address()).value();
  for (int i = 0; i < 2; ++i) ASSERT_OK(connection_->Mutate(Update(1), {.timeout = kLong}));
  is_blocked = true;
  std::thread cutter([&] {
    EXPECT_TRUE(begun.Take());
    proxy.reset();
  });
  EXPECT_THAT(connection_->Mutate(Update(2), {.timeout = kLong}), StatusIs(StatusCode::kUnavailable));
  cutter.join();
  release.Put(true);
  server_->Stop(Duration(0));
}

TEST_F(GrpcCallStreamTest, StopAnswersTheCallInProgressAndEndsIdleStreams) {
  Mailbox<bool> begun, release;
  std::atomic<bool> is_blocked{false};
  handler_->on_mutate = [&] {
    if (!is_blocked) return;
    begun.Put(true);
    (void)release.Take();
  };
  Connect();
  const auto idle = ConnectGrpc(address()).value();
  for (int i = 0; i < 2; ++i) ASSERT_OK(idle->Mutate(Update(1), {.timeout = kLong}));
  ASSERT_OK(connection_->Mutate(Update(1), {.timeout = kLong}));
  is_blocked = true;
  std::thread caller([&] { EXPECT_OK(connection_->Mutate(Update(2), {.timeout = kLong})); });
  EXPECT_TRUE(begun.Take());
  std::thread stopper([&] { server_->Stop(kLong); });
  // New calls are refused when the server has begun to stop.
  EXPECT_TRUE(test::WaitUntil(
      [&] { return connection_->Reset("t", {.timeout = Duration(0)}).code() == StatusCode::kUnavailable; }));
  release.Put(true);
  caller.join();
  stopper.join();
}

// --- The server -----------------------------------------------------------------------------------

CallOutcome Answer(RawStream* stream, uint64_t number) {
  const std::string bytes = stream->Receive().value_or("");
  std::vector<ByteSlice> slices{ByteSlice(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size())};
  EXPECT_OK(Unseal(number, &slices));
  return DecodeCallReply(slices).value();
}

TEST_F(GrpcCallStreamTest, TheServerRefusesWhatItCannotAnswerAtOnce) {
  StartServer();
  RawStream raw(address(), kCallsMethod);
  uint64_t number = 0;
  for (const uint32_t method : {0u, 1u, 2u, 11u, 13u, 200u, 259u, 0xFFFFFFFFu}) {
    raw.Send(EncodeCallRequest({.method = method}));
    EXPECT_THAT(Answer(&raw, number++).status,
                StatusIs(StatusCode::kUnimplemented, HasSubstr("method " + std::to_string(method) + " ")));
  }
  // The stream goes on.
  raw.Send(EncodeCallRequest({.method = static_cast<uint32_t>(Method::kReset),
                              .request = EncodeResetRequest("some table").Flatten()}));
  EXPECT_OK(Answer(&raw, number++).status);
  EXPECT_EQ(handler_->texts.Take(), "some table");
  raw.Send(EncodeCallRequest({.method = static_cast<uint32_t>(Method::kMutate), .request = "\xFF"}));
  EXPECT_THAT(Answer(&raw, number++).status, StatusIs(StatusCode::kDataLoss, Detail::kCorruptData));
  raw.Close();
  EXPECT_OK(raw.Wait());
}

// gRPC has few threads, which serve all streams.
TEST_F(GrpcCallStreamTest, CallsThatReadADiskHaveThreadsOfTheirOwn) {
  handler_->inspect_blocks = true;
  Mailbox<std::thread::id> inspections;
  Mailbox<bool> release;
  handler_->on_inspect = [&] {
    inspections.Put(std::this_thread::get_id());
    (void)release.Take();
  };
  StartServer();
  const std::string inspect = EncodeInspectRequest({.table = "some table", .count = 1}).Flatten();
  const CallMessage request{.method = static_cast<uint32_t>(Method::kInspect), .request = inspect};
  // TaskThreads allows so many.
  std::vector<std::unique_ptr<RawStream>> streams;
  std::set<std::thread::id> threads;
  for (int i = 0; i < 16; ++i) {
    streams.push_back(std::make_unique<RawStream>(address(), kCallsMethod));
    streams.back()->Send(EncodeCallRequest(request));
    TAKE_OR_FAIL(thread, inspections);
    threads.insert(thread);
  }
  EXPECT_EQ(threads.size(), 16u);
  RawStream one_more(address(), kCallsMethod);
  one_more.Send(EncodeCallRequest(request));
  EXPECT_THAT(Answer(&one_more, 0).status, StatusIs(StatusCode::kUnavailable, HasSubstr("too many calls")));
  // The stream goes on.
  one_more.Send(EncodeCallRequest({.method = static_cast<uint32_t>(Method::kInfo)}));
  EXPECT_OK(Answer(&one_more, 1).status);
  for (size_t i = 0; i < streams.size(); ++i) release.Put(true);
  for (auto& stream : streams) {
    EXPECT_OK(Answer(stream.get(), 0).status);
    stream->Close();
    EXPECT_OK(stream->Wait());
  }
}

TEST_F(GrpcCallStreamTest, DamagedMessagesEndTheStream) {
  StartServer();
  {
    RawStream raw(address(), kCallsMethod);
    raw.Send(std::string("garbage"));
    EXPECT_THAT(raw.Wait(), StatusIs(StatusCode::kDataLoss, Detail::kCorruptData));
  }
  {
    RawStream raw(address(), kCallsMethod);
    WireMessage again = EncodeCallRequest({.method = static_cast<uint32_t>(Method::kInfo)});
    raw.Send(again);
    EXPECT_OK(Answer(&raw, 0).status);
    again.Seal(0);  // repeated
    raw.Send(again.Flatten());
    EXPECT_THAT(raw.Wait(), StatusIs(StatusCode::kDataLoss, Detail::kCorruptData));
  }
  EXPECT_EQ(handler_->mutations.total(), 0);
}

TEST_F(GrpcCallStreamTest, RequestsThatDoNotWaitForTheirAnswersAreExecutedInOrder) {
  StartServer();
  RawStream raw(address(), kCallsMethod);
  constexpr uint64_t kRequests = 50;
  for (uint64_t i = 0; i < kRequests; ++i) {
    raw.Send(EncodeCallRequest({.method = static_cast<uint32_t>(Method::kMutate),
                                .request = EncodeMutateRequest(Update(i)).Flatten()}));
  }
  for (uint64_t i = 0; i < kRequests; ++i) {
    EXPECT_OK(Answer(&raw, i).status);
    TAKE_OR_FAIL(mutation, handler_->mutations);
    EXPECT_EQ(mutation.updates.at(0).key, i);
  }
}

}  // namespace
}  // namespace reverb::internal
