// Peers that vanish without closing their connection.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <climits>
#include <memory>
#include <string>

#include "testing/status_matchers.h"
#include "testing/tcp_proxy.h"
#include "testing/wait.h"
#include "transport/grpc/grpc_transport_testing.h"
#include "transport/grpc/keepalive.h"

namespace reverb::internal {
namespace {

using std::chrono_literals::operator""s;
using test::StatusIs;
using ::testing::HasSubstr;

class GrpcKeepaliveTest : public GrpcTransportTest {
 protected:
  // Connects through a proxy.
  void Start(Timeout of_server, Timeout of_client) {
    StartServer({.keepalive_timeout = of_server});
    proxy_ = std::make_unique<test::TcpProxy>(server_->port());
    connection_ = ConnectGrpc(proxy_->address(), {.keepalive_timeout = of_client}).value();
  }

  std::unique_ptr<test::TcpProxy> proxy_;
};

TEST(KeepaliveTest, TheTimeToThePingAndTheTimeToItsAnswerAddUp) {
  EXPECT_EQ(SplitKeepalive(20s).time, 5'000);
  EXPECT_EQ(SplitKeepalive(20s).timeout, 15'000);
  EXPECT_EQ(SplitKeepalive({}).time, INT_MAX);
  EXPECT_EQ(SplitKeepalive(std::chrono::nanoseconds::max()).timeout, INT_MAX);
  EXPECT_EQ(SplitKeepalive(std::chrono::nanoseconds(1)).time, 1);
}

TEST_F(GrpcKeepaliveTest, AClientNoticesThatTheServerVanished) {
  Start(/*of_server=*/{}, /*of_client=*/1s);
  const auto events = std::make_shared<InsertEventsFake>();
  const auto stream = connection_->OpenInsert(test::ExampleHello(), events);
  ASSERT_TRUE(events->replies.Take());
  proxy_->BlackHole();
  TAKE_OR_FAIL(closed, events->closed);
  EXPECT_THAT(closed, StatusIs(StatusCode::kUnavailable,
                               HasSubstr("has not answered for 1.0 s (keepalive_timeout)")));
  // A call that begins before gRPC has given up the connection ends with it.
  EXPECT_TRUE(test::WaitUntil([&] { return connection_->Reset("t", {.timeout = kLong}).ok(); }));
  EXPECT_GE(proxy_->num_connections(), 2);
}

TEST_F(GrpcKeepaliveTest, ASingleCallEndsWhenTheServerVanishes) {
  Start(/*of_server=*/{}, /*of_client=*/1s);
  ASSERT_OK(connection_->Reset("t", {.timeout = kLong}));
  proxy_->BlackHole();
  EXPECT_THAT(connection_->Reset("t", {.timeout = kLong}),
              StatusIs(StatusCode::kUnavailable, HasSubstr("keepalive_timeout")));
}

TEST_F(GrpcKeepaliveTest, TheServerNoticesThatAClientVanished) {
  Start(/*of_server=*/1s, /*of_client=*/{});
  const auto events = std::make_shared<InsertEventsFake>();
  const auto stream = connection_->OpenInsert(test::ExampleHello(), events);
  ASSERT_TRUE(events->replies.Take());
  TAKE_OR_FAIL(session, handler_->inserts);
  proxy_->BlackHole();
  EXPECT_TRUE(session->gone.Take());
  EXPECT_EQ(events->closed.total(), 0) << "the client does not know";
}

}  // namespace
}  // namespace reverb::internal
