// A thread of gRPC in reserve: it sleeps when there is little to do, and is there when it is needed.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "testing/status_matchers.h"
#include "testing/wait.h"
#include "transport/grpc/callback_threads.h"
#include "transport/grpc/grpc_internal.h"
#include "transport/grpc/grpc_transport_testing.h"

namespace reverb::internal {
namespace {

class CallbackThreadsTest : public GrpcTransportTest {
 protected:
  // Starts a server, and makes calls until a thread is in reserve.
  void StartWithReserve() {
    StartServer();
    CallbackThreads::Get().KeepReserve(&RunOnCallbackThread, /*always=*/true);
    WaitForReserve();
  }
  void WaitForReserve() {
    ASSERT_TRUE(test::WaitUntil([&] {
      EXPECT_OK(connection_->Reset("t", {.timeout = kLong}));
      return CallbackThreads::Get().has_reserve();
    }));
  }
};

TEST_F(CallbackThreadsTest, CallsAndStreamsWorkWithAThreadInReserve) {
  StartWithReserve();
  for (int i = 0; i < 20; ++i) ASSERT_OK(connection_->Reset("t", {.timeout = kLong}));
  for (int i = 0; i < 5; ++i) {
    Insert insert = OpenInsert();
    ASSERT_NE(insert.session, nullptr);
    ASSERT_TRUE(insert.events->replies.Take());
    insert.stream->Send(Heartbeat());
    ASSERT_TRUE(insert.session->messages.Take());
    insert.stream->Finish();
    ASSERT_TRUE(insert.events->closed.Take());
    ASSERT_TRUE(insert.session->gone.Take());
  }
  server_->Stop(kLong);
}

TEST_F(CallbackThreadsTest, AHandlerThatBlocksDoesNotDelayOthers) {
  Mailbox<bool> begun, release;
  handler_->on_info = [&] {
    begun.Put(true);
    (void)release.Take();
  };
  StartWithReserve();
  for (int i = 0; i < 3; ++i) {
    std::thread blocked([&] { EXPECT_OK(connection_->Info({.timeout = kLong})); });
    EXPECT_TRUE(begun.Take());
    // Nothing else releases the thread that executes Info().
    for (int call = 0; call < 20; ++call) EXPECT_OK(connection_->Reset("t", {.timeout = kLong}));
    release.Put(true);
    blocked.join();
    WaitForReserve();
  }
  server_->Stop(Duration(0));
}

TEST_F(CallbackThreadsTest, ManyClientsAreServed) {
  StartWithReserve();
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([this] {
      const auto connection = ConnectGrpc(address()).value();
      for (int i = 0; i < 200; ++i) EXPECT_OK(connection->Reset("t", {.timeout = kLong}));
    });
  }
  for (std::thread& thread : threads) thread.join();
  WaitForReserve();
}

}  // namespace
}  // namespace reverb::internal
