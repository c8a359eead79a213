#include "api/server_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <climits>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/fake_connection_testing.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using test::StatusIs;
using ::testing::HasSubstr;

const WaitOptions kPatience{.timeout = 60s};

class ServerLinkTest : public ::testing::Test {
 protected:
  ServerLinkTest() {
    connection_->on_call = [this](const WaitOptions& wait) { return Answer(wait); };
    connection_->on_info = [this] { connection_->info = ToInfo(Answer({})); };
  }
  static Result<ServerInfo> ToInfo(Status status) {
    if (!status.ok()) return status;
    return ServerInfo();
  }
  // Fails `failures_` times, then succeeds.
  Status Answer(const WaitOptions& wait) {
    ++calls_;
    timeouts_.push_back(wait.timeout);
    return calls_ <= failures_ ? failure_ : Status::Ok();
  }

  // Waits for a response as a real connection does.
  static Status WaitFor(std::chrono::nanoseconds duration, const WaitOptions& wait) {
    const auto end = std::chrono::steady_clock::now() + duration;
    Status status;
    while (status.ok() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(5ms);  // simulates the wait for a response
      status = wait.on_wait();
    }
    return status;
  }

  std::shared_ptr<FakeConnection> connection_ = std::make_shared<FakeConnection>();
  ServerLink link_{connection_, {.in_process = false}};
  int calls_ = 0;
  int failures_ = 0;
  Status failure_ = Status::Unavailable("the connection was cut");
  std::vector<Timeout> timeouts_;
};

TEST_F(ServerLinkTest, IdempotentCallsAreRetriedWhenTheConnectionBreaks) {
  const std::vector<std::function<Status()>> calls = {
      [this] { return link_.Info(kPatience).status(); },
      [this] { return link_.Mutate({}, kPatience); },
      [this] { return link_.SetRateLimiter({}, kPatience); },
      [this] { return link_.ChangeTable({}, kPatience); },
      [this] { return link_.CreateTable({.table = {}, .exist_ok = true}, kPatience); },
      [this] { return link_.Inspect({}, kPatience).status(); },
  };
  failures_ = 2;
  for (const auto& call : calls) {
    calls_ = 0;
    EXPECT_OK(call());
    EXPECT_EQ(calls_, 3);
  }
}

TEST_F(ServerLinkTest, RetriesShareOneTimeout) {
  failures_ = 1;
  ASSERT_OK(link_.Mutate({}, kPatience));
  ASSERT_EQ(timeouts_.size(), 2u);
  EXPECT_LT(*timeouts_[1], *timeouts_[0]);
  EXPECT_LE(*timeouts_[0], 60s);
}

TEST_F(ServerLinkTest, WithoutATimeoutCallsAreRetriedIndefinitely) {
  failures_ = 3;
  EXPECT_OK(link_.Mutate({}, {}));
  EXPECT_EQ(calls_, 4);
  EXPECT_EQ(timeouts_.back(), Timeout());
}

TEST_F(ServerLinkTest, ATimeoutEndsTheAttempts) {
  failures_ = INT_MAX;
  EXPECT_THAT(link_.Mutate({}, {.timeout = 10ms}),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("the connection was cut")));
  EXPECT_GE(calls_, 1);
}

TEST_F(ServerLinkTest, ATimeoutOfZeroTriesOnce) {
  failures_ = 1;
  EXPECT_THAT(link_.Mutate({}, {.timeout = 0ms}), StatusIs(StatusCode::kUnavailable));
  EXPECT_EQ(calls_, 1);
}

TEST_F(ServerLinkTest, ResetAndCheckpointAreNotRetried) {
  failures_ = 1;
  EXPECT_THAT(link_.Reset("t", kPatience),
              StatusIs(StatusCode::kUnavailable, HasSubstr("may have carried it out")));
  calls_ = 0;
  EXPECT_THAT(link_.Checkpoint(kPatience),
              StatusIs(StatusCode::kUnavailable, HasSubstr("may have carried it out")));
  EXPECT_EQ(calls_, 1);
}

TEST_F(ServerLinkTest, OtherErrorsAreFinal) {
  failures_ = 1;
  failure_ = Status::NotFound("no such table");
  EXPECT_THAT(link_.Mutate({}, kPatience), StatusIs(StatusCode::kNotFound));
  EXPECT_EQ(calls_, 1);
}

TEST_F(ServerLinkTest, ACallerCanCancelBetweenAttempts) {
  failures_ = INT_MAX;
  int looks = 0;
  const WaitOptions impatient{
      .on_wait = [&looks] { return ++looks < 3 ? Status::Ok() : Status::Unavailable("the user has gone"); }};
  EXPECT_THAT(link_.Mutate({}, impatient),
              StatusIs(StatusCode::kUnavailable, HasSubstr("the user has gone")));
  EXPECT_EQ(looks, 3);
}

TEST_F(ServerLinkTest, CallsToAnInProcessServerAreNotRetried) {
  connection_->is_in_process = true;
  failures_ = 1;
  EXPECT_THAT(link_.Mutate({}, kPatience), StatusIs(StatusCode::kUnavailable));
  EXPECT_EQ(calls_, 1);
}

TEST_F(ServerLinkTest, AnUnreachableServerFailsAfterTheReconnectTimeout) {
  ServerLink link(connection_, {.reconnect_timeout = 1s, .in_process = false});
  connection_->connected = false;
  connection_->on_call = [](const WaitOptions& wait) { return WaitFor(60s, wait); };
  const auto text = HasSubstr("the server at fake:1 could not be reached for 1.");
  // Concurrently: each call takes a second.
  auto without_timeout = std::async(std::launch::async, [&] { return link.Mutate({}, {}); });
  EXPECT_THAT(link.Mutate({}, kPatience), StatusIs(StatusCode::kUnavailable, text));
  EXPECT_THAT(without_timeout.get(), StatusIs(StatusCode::kUnavailable, text));
}

TEST_F(ServerLinkTest, ALostServerOfSeveralFailsAfterATimeout) {
  connection_->connected = false;
  connection_->on_call = [](const WaitOptions& wait) { return WaitFor(60s, wait); };
  ServerLink link(connection_, {.in_process = false}, /*change_timeout=*/1s);
  EXPECT_THAT(link.Reset("t", {}),
              StatusIs(StatusCode::kUnavailable, HasSubstr("could not be reached for 1.0 s")));
}

TEST_F(ServerLinkTest, AConnectedServerHasNoReconnectTimeout) {
  ServerLink link(connection_, {.reconnect_timeout = 1ms, .in_process = false});
  connection_->on_call = [](const WaitOptions& wait) { return WaitFor(1100ms, wait); };
  EXPECT_OK(link.Mutate({}, {}));
}

}  // namespace
}  // namespace reverb::internal
