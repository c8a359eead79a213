#include "api/writer_route.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "testing/wait.h"

namespace reverb::internal {
namespace {

using std::chrono_literals::operator""s;

// A port of this host that accepts connections and never answers, like a host that is gone.
class SilentPort {
 public:
  SilentPort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(socket_, reinterpret_cast<const sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(socket_, 16), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  ~SilentPort() { close(socket_); }
  SilentPort(const SilentPort&) = delete;
  SilentPort& operator=(const SilentPort&) = delete;
  const std::string& address() const { return address_; }

 private:
  const int socket_;
  std::string address_;
};

struct Events final : InsertEvents {
  std::atomic<bool> is_closed = false;
  void OnReply(InsertReply) override {}
  void OnSent() override {}
  void OnClosed(Status) override { is_closed = true; }
};

class WriterRouteTest : public ::testing::Test {
 protected:
  WriterRouteTest() {
    const ClientOptions options{.in_process = false, .local = false, .lost_server_timeout = 30s};
    set_ = ServerSet::Create("", {ports_[0].address(), ports_[1].address()}, nullptr, options).value();
    route_ = std::make_shared<WriterRoute>(set_, &clock_);
  }
  // Tries for `duration` to open a stream, and returns the address that was tried.
  std::string Try(Duration duration) {
    auto events = std::make_shared<Events>();
    const std::shared_ptr<InsertStream> stream = route_->OpenInsert(hello_, events);
    std::string address = route_->address();
    clock_.Advance(duration);
    stream->Cancel();
    EXPECT_TRUE(test::WaitUntil([&] { return events->is_closed.load(); }));
    return address;
  }
  std::shared_ptr<ServerLink> Link(const std::string& address) const {
    for (const auto& link : set_->links()) {
      if (link->address() == address) return link;
    }
    return nullptr;
  }

  const SilentPort ports_[2];
  const Hello hello_{.session_id = {1}};
  ManualClock clock_;
  std::shared_ptr<ServerSet> set_;
  std::shared_ptr<WriterRoute> route_;
};

TEST_F(WriterRouteTest, TheFirstAttemptCountsTowardsTheTimeout) {
  const std::string home = Try(30s);
  EXPECT_NE(Try(1s), home);
}

TEST_F(WriterRouteTest, TheAttemptsAtTheNextServerCountFromItsChoiceOn) {
  const std::string home = Try(30s);
  const std::string next = Try(29s);
  EXPECT_NE(next, home);
  EXPECT_EQ(Try(1s), next);
}

TEST_F(WriterRouteTest, StaysWithAServerThatIsLostForOtherCalls) {
  const std::string home = Try(1s);
  set_->MarkLost(Link(home));
  EXPECT_EQ(Try(28s), home);
  EXPECT_EQ(Try(1s), home);
  EXPECT_NE(Try(1s), home);
}

TEST_F(WriterRouteTest, UsesTheFirstServerThatReturnsWhenAllAreLost) {
  const std::string home = Try(30s);
  const std::string next = Try(30s);
  EXPECT_EQ(Try(1s), home) << "all are lost";
  Link(next)->SetLost(false);
  EXPECT_EQ(Try(1s), next);
}

}  // namespace
}  // namespace reverb::internal
