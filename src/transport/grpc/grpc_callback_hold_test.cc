// Callback threads sleep while a process makes single calls only, and are there when they are needed.
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "testing/status_matchers.h"
#include "testing/wait.h"
#include "transport/grpc/callback_hold.h"
#include "transport/grpc/grpc_internal.h"
#include "transport/grpc/grpc_transport_testing.h"

namespace reverb::internal {
namespace {

constexpr int kThreads = 3;

// Threads that run functions one after the other, as gRPC's do.
class FakeCallbackThreads {
 public:
  FakeCallbackThreads() {
    for (int i = 0; i < kThreads; ++i) {
      threads_.emplace_back([this] {
        while (true) {
          const std::optional<std::function<void()>> next = functions_.Take();
          if (!next || *next == nullptr) return;
          (*next)();
        }
      });
    }
  }
  ~FakeCallbackThreads() {
    for (int i = 0; i < kThreads; ++i) functions_.Put(nullptr);
    for (std::thread& thread : threads_) thread.join();
  }
  void Run(std::function<void()> function) { functions_.Put(std::move(function)); }

 private:
  Mailbox<std::function<void()>> functions_;
  std::vector<std::thread> threads_;
};

class CallbackHoldTest : public testing::Test {
 protected:
  // Makes calls until all threads sleep.
  void MakeCallsUntilHeld() {
    ASSERT_TRUE(test::WaitUntil([&] {
      for (int i = 0; i < 20; ++i) hold_.CountCall();
      return hold_.num_held() == kThreads;
    }));
  }
  // Makes calls on a thread of its own until it is destroyed.
  class Caller {
   public:
    explicit Caller(CallbackHold* hold)
        : thread_([this, hold] {
            while (!is_done_) {
              hold->CountCall();
              std::this_thread::yield();
            }
          }) {}
    ~Caller() {
      is_done_ = true;
      thread_.join();
    }

   private:
    std::atomic<bool> is_done_{false};
    std::thread thread_;
  };

  bool RunsOnThread() {
    Mailbox<bool> ran;
    threads_->Run([&] { ran.Put(true); });
    return ran.Take().has_value();
  }

  std::unique_ptr<FakeCallbackThreads> threads_ = std::make_unique<FakeCallbackThreads>();
  // More than there are, as on a machine whose processors are counted differently.
  CallbackHold hold_{
      [threads = threads_.get()](std::function<void()> function) { threads->Run(std::move(function)); },
      kThreads + 1};

  void TearDown() override {
    const CallbackHold::User user(&hold_);
    threads_.reset();
  }
};

TEST_F(CallbackHoldTest, FewCallsHoldNoThread) {
  for (int i = 0; i < 10; ++i) hold_.CountCall();
  EXPECT_FALSE(hold_.is_holding());
  EXPECT_TRUE(RunsOnThread());
}

TEST_F(CallbackHoldTest, ThreadsReturnWhenThereAreNoMoreCalls) {
  for (int i = 0; i < 3; ++i) {
    MakeCallsUntilHeld();
    EXPECT_TRUE(test::WaitUntil([&] { return hold_.num_held() == 0; }));
    EXPECT_FALSE(hold_.is_holding());
    EXPECT_TRUE(RunsOnThread());
  }
}

TEST_F(CallbackHoldTest, ThreadsReturnWhenTheyAreNeeded) {
  for (int i = 0; i < 3; ++i) {
    MakeCallsUntilHeld();
    {
      const Caller caller(&hold_);
      const CallbackHold::User user(&hold_);
      EXPECT_FALSE(hold_.is_holding());
      EXPECT_TRUE(test::WaitUntil([&] { return hold_.num_held() == 0; }));
      for (int call = 0; call < 1000; ++call) hold_.CountCall();
      EXPECT_FALSE(hold_.is_holding());
      EXPECT_TRUE(RunsOnThread());
    }
  }
}

TEST_F(CallbackHoldTest, OtherCallbacksRunDuringAHold) {
  MakeCallsUntilHeld();
  const Caller caller(&hold_);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(RunsOnThread());
}

TEST_F(CallbackHoldTest, ACallbackThatBlocksDoesNotStopOthers) {
  MakeCallsUntilHeld();
  const Caller caller(&hold_);
  Mailbox<bool> begun, release, ended;
  threads_->Run([&] {
    begun.Put(true);
    (void)release.Take();
    ended.Put(true);
  });
  EXPECT_TRUE(begun.Take());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(RunsOnThread());
  release.Put(true);
  EXPECT_TRUE(ended.Take());  // it uses the mailboxes until then
}

TEST_F(CallbackHoldTest, AThreadThatRunsCallbacksInPlaceIsNotHeld) {
  int num_run = 0;
  CallbackHold hold(
      [&](const std::function<void()>& function) {
        ++num_run;
        function();
      },
      2);
  ASSERT_TRUE(test::WaitUntil([&] {
    for (int i = 0; i < 20; ++i) hold.CountCall();
    return num_run > 0;
  }));
  EXPECT_EQ(num_run, 2);
  EXPECT_FALSE(hold.is_holding());
  EXPECT_EQ(hold.num_held(), 0);
}

TEST_F(CallbackHoldTest, UsersComeAndGoDuringCalls) {
  const Caller caller(&hold_);
  constexpr int kUsers = 4;
  std::atomic<int> num_run{0};
  for (int round = 1; round <= 20; ++round) {
    // The users come as a hold begins.
    ASSERT_TRUE(test::WaitUntil([&] { return hold_.is_holding(); }));
    std::vector<std::thread> users;
    for (int t = 0; t < kUsers; ++t) {
      users.emplace_back([&] {
        for (int i = 0; i < 10; ++i) {
          const CallbackHold::User user(&hold_);
          if (RunsOnThread()) ++num_run;
        }
      });
    }
    for (std::thread& user : users) user.join();
    EXPECT_EQ(num_run, round * kUsers * 10);
  }
}

TEST_F(CallbackHoldTest, NoThreadIsHeldIfNoneMayBe) {
  std::atomic<int> num_run{0};
  CallbackHold hold([&](const std::function<void()>&) { ++num_run; }, 0);
  const Caller caller(&hold);
  MakeCallsUntilHeld();  // meanwhile
  EXPECT_FALSE(hold.is_holding());
  EXPECT_EQ(num_run, 0);
}

// --- With gRPC's threads --------------------------------------------------------------------------

// A server that uses no callback threads. It welcomes writers, and confirms all of their items. It answers other
// messages with an empty one.
class QueueServer {
 public:
  QueueServer() {
    grpc::ServerBuilder builder;
    builder.RegisterAsyncGenericService(&service_);
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    events_ = builder.AddCompletionQueue();
    server_ = builder.BuildAndStart();
    Call::Request(this);
    thread_ = std::thread([this] {
      void* tag = nullptr;
      bool is_ok = false;
      while (events_->Next(&tag, &is_ok)) static_cast<Call*>(tag)->OnEvent(is_ok);
    });
  }
  ~QueueServer() {
    server_->Shutdown(std::chrono::system_clock::now());
    // Calls must not start operations on a queue that was shut down.
    EXPECT_TRUE(test::WaitUntil([this] { return num_calls_ == 0; }));
    events_->Shutdown();
    thread_.join();
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  // One operation at a time.
  class Call {
   public:
    static void Request(QueueServer* server) {
      auto* const call = new Call(server);
      server->service_.RequestCall(&call->context_, &call->stream_, server->events_.get(),
                                   server->events_.get(), call);
    }
    void OnEvent(bool is_ok) {
      switch (state_) {
        case State::kRequested:
          if (!is_ok) break;  // the server has stopped
          Request(server_);
          return Read();
        case State::kReading:
          return is_ok ? Write() : Finish();
        case State::kWriting:
          return is_ok && (context_.method() == kCallsMethod || is_insert()) ? Read() : Finish();
        case State::kFinishing:
          break;
      }
      delete this;
    }

   private:
    enum class State : uint8_t { kRequested, kReading, kWriting, kFinishing };
    explicit Call(QueueServer* server) : server_(server), stream_(&context_) { ++server_->num_calls_; }
    ~Call() { --server_->num_calls_; }
    bool is_insert() const { return context_.method() == kInsertMethod; }
    void Read() {
      state_ = State::kReading;
      stream_.Read(&in_, this);
    }
    void Write() {
      state_ = State::kWriting;
      WireMessage reply = EncodeEmpty();
      if (is_insert()) {
        reply = EncodeInsertReply(num_written_ == 0 ? InsertReply{.welcome = test::ExampleWelcome()}
                                                    : InsertReply{.confirmed_through = 1'000'000});
      }
      reply.Seal(num_written_++);
      stream_.Write(ToByteBuffer(reply), this);
    }
    void Finish() {
      state_ = State::kFinishing;
      stream_.Finish(grpc::Status::OK, this);
    }

    QueueServer* const server_;
    State state_ = State::kRequested;
    uint64_t num_written_ = 0;
    grpc::GenericServerContext context_;
    grpc::GenericServerAsyncReaderWriter stream_;
    grpc::ByteBuffer in_;
  };

  int port_ = 0;
  std::atomic<int> num_calls_{0};
  grpc::AsyncGenericService service_;
  std::unique_ptr<grpc::ServerCompletionQueue> events_;
  std::unique_ptr<grpc::Server> server_;
  std::thread thread_;
};

MutateRequest OneUpdate() { return {.table = "t", .updates = {{.key = 1, .priority = 1}}}; }

class GrpcCallbackHoldTest : public GrpcTransportTest {
 protected:
  void SetUp() override {
    ASSERT_OK(InitGrpc());
    queue_server_ = std::make_unique<QueueServer>();
    caller_ = ConnectGrpc(queue_server_->address()).value();
  }
  // One of two threads may be in reserve, after a server (callback_threads.h).
  void MakeCallsUntilHeld() {
    ASSERT_TRUE(test::WaitUntil([&] {
      for (int i = 0; i < 50; ++i) EXPECT_OK(caller_->Mutate(OneUpdate(), {.timeout = kLong}));
      return CallbackHold::Get().num_held() > 0;
    }));
  }

  std::unique_ptr<QueueServer> queue_server_;
  std::shared_ptr<Connection> caller_;
};

TEST_F(GrpcCallbackHoldTest, FrequentCallsLetCallbackThreadsSleep) {
  MakeCallsUntilHeld();
  // Each finds its server without them.
  for (int i = 0; i < 3; ++i) {
    const auto other = ConnectGrpc(queue_server_->address()).value();
    for (int call = 0; call < 20; ++call) {
      EXPECT_OK(other->Mutate(OneUpdate(), {.timeout = kLong}));
      EXPECT_OK(other->Reset("t", {.timeout = kLong}));
    }
  }
  EXPECT_TRUE(test::WaitUntil([] { return CallbackHold::Get().num_held() == 0; })) << "without calls";
}

TEST_F(GrpcCallbackHoldTest, AServerGetsItsThreadsDuringCalls) {
  std::atomic<bool> is_done{false};
  std::thread calls([&] {
    while (!is_done) EXPECT_OK(caller_->Mutate(OneUpdate(), {.timeout = kLong}));
  });
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(test::WaitUntil([] { return CallbackHold::Get().num_held() > 0; }));
    StartServer();
    EXPECT_FALSE(CallbackHold::Get().is_holding());
    Insert insert = OpenInsert();
    EXPECT_NE(insert.session, nullptr);
    EXPECT_TRUE(insert.events->replies.Take());
    insert.stream->Finish();
    EXPECT_TRUE(insert.events->closed.Take());
    EXPECT_OK(connection_->Reset("t", {.timeout = kLong}));
    server_.reset();
  }
  is_done = true;
  calls.join();
}

TEST_F(GrpcCallbackHoldTest, AStreamGetsItsThreadsWhenItIsUsed) {
  Random random(1);
  const ChunkRef chunk = test::MakeChunk(1, {{DType::kUint8, {10}}}, 10, &random);
  std::atomic<bool> is_done{false};
  std::thread calls([&] {
    while (!is_done) EXPECT_OK(caller_->Mutate(OneUpdate(), {.timeout = kLong}));
  });
  for (int i = 0; i < 5; ++i) {
    const auto events = std::make_shared<InsertEventsFake>();
    const std::shared_ptr<InsertStream> stream = caller_->OpenInsert(test::ExampleHello(), events);
    EXPECT_TRUE(events->replies.Take());
    for (uint64_t number = 1; number <= 5; ++number) {
      // All is answered.
      EXPECT_TRUE(test::WaitUntil([] { return CallbackHold::Get().num_held() > 0; }));
      stream->Send(MessageOf(number, Trajectory::Single(chunk, 0, 10).value()));
      EXPECT_TRUE(events->sent.Take());
      EXPECT_TRUE(events->replies.Take());
    }
    EXPECT_TRUE(test::WaitUntil([] { return CallbackHold::Get().num_held() > 0; }));
    stream->Cancel();
    EXPECT_TRUE(events->closed.Take());
  }
  is_done = true;
  calls.join();
}

}  // namespace
}  // namespace reverb::internal
