#include "api/routed_connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/fake_connection_testing.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using test::StatusIs;
using ::testing::HasSubstr;

struct ClosedBy final : InsertEvents, SampleEvents {
  std::vector<Status> closed;
  int replies = 0;
  void OnReply(InsertReply) override { ++replies; }
  void OnReply(SampleReply, uint64_t) override { ++replies; }
  void OnSent() override {}
  void OnClosed(Status status) override { closed.push_back(std::move(status)); }
};

class RoutedConnectionTest : public ::testing::Test {
 protected:
  RoutedConnectionTest() {
    local_->connected = false;
    local_->on_call = [this](const WaitOptions& wait) { return OnLocalCall(wait); };
    grpc_->on_call = [this](const WaitOptions& wait) {
      ++grpc_calls_;
      grpc_timeout_ = wait.timeout;
      return Status::Ok();
    };
  }
  std::shared_ptr<RoutedConnection> Make() {
    return std::make_shared<RoutedConnection>(
        RoutedConnection::Routes{.address = "localhost:8000",
                                 .local = local_,
                                 .find_local = [this] { return socket_; },
                                 .connect_grpc = [this]() -> Result<std::shared_ptr<Connection>> {
                                   if (!grpc_error_.ok()) return grpc_error_;
                                   ++grpc_connected_;
                                   return std::shared_ptr<Connection>(grpc_);
                                 }});
  }
  Status OnLocalCall(const WaitOptions& wait) {
    ++local_calls_;
    if (!waits_for_local_) return local_answer_;
    const Status ended = wait.on_wait();
    return ended.ok() ? Status::Internal("the wait did not end") : ended;
  }
  void RemoveEndpoint() { socket_ = Status::NotFound("no socket"); }

  const std::shared_ptr<FakeConnection> local_ = std::make_shared<FakeConnection>();
  const std::shared_ptr<FakeConnection> grpc_ = std::make_shared<FakeConnection>();
  const std::shared_ptr<ClosedBy> events_ = std::make_shared<ClosedBy>();
  Result<SocketFile> socket_ = SocketFile{.device = 1, .inode = 1};
  Status grpc_error_;
  Status local_answer_;
  bool waits_for_local_ = false;
  int local_calls_ = 0;
  int grpc_calls_ = 0;
  int grpc_connected_ = 0;
  Timeout grpc_timeout_;
  const std::shared_ptr<RoutedConnection> routed_ = Make();
};

TEST_F(RoutedConnectionTest, UsesTheLocalEndpointAndNotGrpc) {
  local_->may_block = true;
  routed_->OpenInsert({}, events_);
  routed_->OpenSample({}, events_);
  EXPECT_OK(routed_->Mutate({}, {}));
  EXPECT_EQ(local_->inserts.size(), 1u);
  EXPECT_EQ(local_->samples.size(), 1u);
  EXPECT_EQ(local_calls_, 1);
  EXPECT_EQ(grpc_connected_, 0);
  EXPECT_EQ(routed_->transport(), Transport::kLocal);
  EXPECT_TRUE(routed_->send_may_block());
}

TEST_F(RoutedConnectionTest, UsesGrpcWithoutAnEndpoint) {
  RemoveEndpoint();
  routed_->OpenInsert({}, events_);
  routed_->OpenSample({}, events_);
  EXPECT_OK(routed_->Mutate({}, {}));
  EXPECT_EQ(grpc_->inserts.size(), 1u);
  EXPECT_EQ(grpc_->samples.size(), 1u);
  EXPECT_EQ(grpc_calls_, 1);
  EXPECT_EQ(grpc_connected_, 1) << "one connection for all";
  EXPECT_EQ(local_calls_, 0);
  EXPECT_EQ(routed_->transport(), Transport::kGrpc);
}

TEST_F(RoutedConnectionTest, ReturnsToAnEndpointThatAppears) {
  RemoveEndpoint();
  routed_->OpenInsert({}, events_);
  socket_ = SocketFile{.device = 1, .inode = 2};
  routed_->OpenInsert({}, events_);
  EXPECT_EQ(grpc_->inserts.size(), 1u);
  EXPECT_EQ(local_->inserts.size(), 1u);
}

TEST_F(RoutedConnectionTest, LeavesAnEndpointThatDisappears) {
  routed_->OpenInsert({}, events_);
  RemoveEndpoint();
  routed_->OpenInsert({}, events_);
  EXPECT_EQ(local_->inserts.size(), 1u);
  EXPECT_EQ(grpc_->inserts.size(), 1u);
}

TEST_F(RoutedConnectionTest, AConnectedServerMayLoseItsSocketFile) {
  routed_->OpenInsert({}, events_);
  local_->connected = true;
  RemoveEndpoint();
  routed_->OpenInsert({}, events_);
  EXPECT_EQ(local_->inserts.size(), 2u);
  EXPECT_EQ(grpc_connected_, 0);
}

// --- Refusals ---

TEST_F(RoutedConnectionTest, ARefusedStreamIsRetriedOverGrpc) {
  routed_->OpenInsert({}, events_);
  local_->inserts[0]->Close(Status(StatusCode::kPermissionDenied, "only user 7 may connect"));
  ASSERT_EQ(events_->closed.size(), 1u);
  EXPECT_THAT(events_->closed[0], StatusIs(StatusCode::kUnavailable, HasSubstr("only user 7")))
      << "a writer tries again";
  EXPECT_THAT(routed_->why_not_local(), StatusIs(StatusCode::kPermissionDenied));
  routed_->OpenInsert({}, events_);
  EXPECT_EQ(local_->inserts.size(), 1u);
  EXPECT_EQ(grpc_->inserts.size(), 1u);
  // Another server at the same port.
  socket_ = SocketFile{.device = 1, .inode = 2};
  routed_->OpenInsert({}, events_);
  EXPECT_EQ(local_->inserts.size(), 2u);
  EXPECT_OK(routed_->why_not_local());
}

TEST_F(RoutedConnectionTest, ARefusedSampleStreamIsRetriedOverGrpc) {
  routed_->OpenSample({}, events_);
  local_->samples[0]->Close(Status::FailedPrecondition("this server is at localhost:9000"));
  ASSERT_EQ(events_->closed.size(), 1u);
  EXPECT_THAT(events_->closed[0], StatusIs(StatusCode::kUnavailable));
  routed_->OpenSample({}, events_);
  EXPECT_EQ(grpc_->samples.size(), 1u);
}

TEST_F(RoutedConnectionTest, AnErrorOfAnOpenStreamIsNoRefusal) {
  routed_->OpenInsert({}, events_);
  local_->inserts[0]->Welcome();
  local_->inserts[0]->Close(Status::FailedPrecondition("the table has no room"));
  ASSERT_EQ(events_->closed.size(), 1u);
  EXPECT_THAT(events_->closed[0], StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_EQ(events_->replies, 1);
  routed_->OpenInsert({}, events_);
  EXPECT_EQ(local_->inserts.size(), 2u);
}

TEST_F(RoutedConnectionTest, ARefusedCallContinuesOverGrpc) {
  local_answer_ = Status(StatusCode::kPermissionDenied, "only user 7 may connect");
  EXPECT_OK(routed_->Mutate({}, {}));
  EXPECT_OK(routed_->Mutate({}, {}));
  EXPECT_EQ(local_calls_, 1);
  EXPECT_EQ(grpc_calls_, 2);
  EXPECT_EQ(routed_->transport(), Transport::kGrpc);
}

TEST_F(RoutedConnectionTest, AnAnswerOfAConnectedServerIsNoRefusal) {
  local_->connected = true;
  local_answer_ = Status::FailedPrecondition("checkpoints are not available");
  EXPECT_THAT(routed_->Checkpoint({}).status(), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_EQ(grpc_calls_, 0);
}

TEST_F(RoutedConnectionTest, OtherErrorsOfCallsAreReturned) {
  local_answer_ = Status::Unavailable("the server has ended");
  EXPECT_THAT(routed_->Reset("t", {}), StatusIs(StatusCode::kUnavailable));
  EXPECT_EQ(grpc_calls_, 0) << "the server may have executed it";
}

// --- Waiting ---

TEST_F(RoutedConnectionTest, ACallThatWaitsLeavesAnEndpointThatDisappears) {
  waits_for_local_ = true;
  // Found by the choice, and gone when the call waits.
  bool is_first = true;
  const auto routed = std::make_shared<RoutedConnection>(
      RoutedConnection::Routes{.address = "localhost:8000",
                               .local = local_,
                               .find_local = [&]() -> Result<SocketFile> {
                                 if (std::exchange(is_first, false)) return SocketFile{.inode = 1};
                                 return Status::NotFound("no socket");
                               },
                               .connect_grpc = [&]() -> Result<std::shared_ptr<Connection>> {
                                 return std::shared_ptr<Connection>(grpc_);
                               }});
  EXPECT_OK(routed->Mutate({}, {.timeout = 60s}));
  EXPECT_EQ(local_calls_, 1);
  EXPECT_EQ(grpc_calls_, 1);
  ASSERT_TRUE(grpc_timeout_.has_value());
  EXPECT_LT(*grpc_timeout_, 60s);
  EXPECT_GT(*grpc_timeout_, 0s);
}

TEST_F(RoutedConnectionTest, ACallerCanCancelALocalCall) {
  waits_for_local_ = true;
  const WaitOptions wait{.on_wait = [] { return Status::Cancelled("the user has gone"); }};
  EXPECT_THAT(routed_->Mutate({}, wait), StatusIs(StatusCode::kCancelled, HasSubstr("the user has gone")));
  EXPECT_EQ(grpc_calls_, 0);
}

// --- Without gRPC ---

TEST_F(RoutedConnectionTest, StreamsEndWithTheReasonThatGrpcCannotBeUsed) {
  RemoveEndpoint();
  grpc_error_ = Status::FailedPrecondition("gRPC was in use when this process was created by fork()");
  routed_->OpenInsert({}, events_);
  routed_->OpenSample({}, events_);
  ASSERT_EQ(events_->closed.size(), 2u);
  for (const Status& status : events_->closed) {
    EXPECT_THAT(status, StatusIs(StatusCode::kFailedPrecondition, HasSubstr("fork()")));
  }
  EXPECT_THAT(routed_->Info({}).status(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("fork()")));
}

TEST_F(RoutedConnectionTest, ASocketIsTheOnlyWayToAUnixAddress) {
  const auto routed = std::make_shared<RoutedConnection>(RoutedConnection::Routes{
      .address = "unix:/x", .local = local_, .find_local = [this] { return socket_; }});
  RemoveEndpoint();
  local_answer_ = Status(StatusCode::kPermissionDenied, "only user 7 may connect");
  EXPECT_THAT(routed->Mutate({}, {}), StatusIs(StatusCode::kPermissionDenied));
  routed->OpenInsert({}, events_);
  EXPECT_EQ(local_->inserts.size(), 1u);
}

TEST(ConnectRoutedTest, ChecksAddresses) {
  EXPECT_OK(ConnectRouted("localhost:8000", {}));
  EXPECT_OK(ConnectRouted("example.com:8000", {}));
  EXPECT_OK(ConnectRouted("unix:/tmp/x.sock", {}));
  EXPECT_THAT(ConnectRouted("localhost", {}).status(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("has no port")));
  EXPECT_THAT(ConnectRouted("unix:", {}).status(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("has no path")));
  EXPECT_THAT(ConnectRouted("unix:/tmp/x.sock", {.local = false}).status(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("REVERB_LOCAL=0")));
}

}  // namespace
}  // namespace reverb::internal
