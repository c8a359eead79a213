#include "transport/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "reverb/log.h"
#include "testing/effort.h"
#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::StatusIs;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

// Far longer than any operation takes; a test that waits this long has failed.
constexpr auto kLong = std::chrono::seconds(60);

// A list that other threads append to, and that a test waits for.
template <typename T>
class Gathered {
 public:
  void Add(T value) {
    MutexLock lock(&mu_);
    values_.push_back(std::move(value));
    changed_.NotifyAll();
  }
  // Returns all values once there are `count`.
  std::vector<T> AwaitCount(size_t count) {
    const auto deadline = std::chrono::steady_clock::now() + kLong;
    MutexLock lock(&mu_);
    while (values_.size() < count && std::chrono::steady_clock::now() < deadline) {
      changed_.WaitFor(&mu_, std::chrono::seconds(1));
    }
    return values_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<T> values_ GUARDED_BY(mu_);
};

int NewSocket(int family) {
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval timeout{.tv_sec = 60, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  return fd;
}

bool ConnectTo(int fd, int port, int family = AF_INET) {
  if (family == AF_INET) {
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0;
  }
  sockaddr_in6 to = {};
  to.sin6_family = AF_INET6;
  to.sin6_port = htons(static_cast<uint16_t>(port));
  to.sin6_addr = in6addr_loopback;
  return connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0;
}

bool HasIpv6() {
  sockaddr_in6 to = {};
  to.sin6_family = AF_INET6;
  to.sin6_addr = in6addr_loopback;
  const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool can_bind = fd >= 0 && bind(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0;
  if (fd >= 0) close(fd);
  return can_bind;
}

// Limits the process to `limit` descriptors, and occupies the free ones.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t limit) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit fewer = before_;
    fewer.rlim_cur = limit;
    setrlimit(RLIMIT_NOFILE, &fewer);
  }
  ~FewDescriptors() {
    Release(taken_.size());
    setrlimit(RLIMIT_NOFILE, &before_);
  }
  void TakeAll() {
    while (true) {
      const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
      if (fd < 0) return;
      taken_.push_back(fd);
    }
  }
  void Release(size_t count) {
    for (; count > 0 && !taken_.empty(); --count) {
      close(taken_.back());
      taken_.pop_back();
    }
  }

 private:
  rlimit before_ = {};
  std::vector<int> taken_;
};

class ListenerTest : public testing::Test {
 protected:
  void SetUp() override {
    SetLogSink([this](LogLevel level, std::string_view line) {
      if (level >= LogLevel::kWarning) lines_.Add(std::string(line));
    });
  }
  void TearDown() override {
    listener_.reset();
    SetLogSink(nullptr);
    for (const int fd : accepted_.AwaitCount(0)) close(fd);
  }
  void Listen(const std::string& address) {
    auto listener = Listener::Bind(address);
    ASSERT_OK(listener);
    listener_ = *std::move(listener);
    ASSERT_OK(listener_->Start([this](int fd) { accepted_.Add(fd); }));
  }

  std::unique_ptr<Listener> listener_;
  Gathered<int> accepted_;
  Gathered<std::string> lines_;
};

TEST_F(ListenerTest, WildcardsAreAllInterfacesOfBothFamilies) {
  size_t accepted = 0;
  for (const char* const address : {"0.0.0.0:0", "[::]:0"}) {
    Listen(address);
    ASSERT_GT(listener_->port(), 0);
    for (const int family : {AF_INET, AF_INET6}) {
      if (family == AF_INET6 && !HasIpv6()) continue;
      const int fd = NewSocket(family);
      EXPECT_TRUE(ConnectTo(fd, listener_->port(), family)) << address;
      EXPECT_EQ(accepted_.AwaitCount(++accepted).size(), accepted) << address;
      close(fd);
    }
  }
}

TEST_F(ListenerTest, OneAddressIsThatAddressAlone) {
  Listen("127.0.0.1:0");
  const int fd = NewSocket(AF_INET);
  EXPECT_TRUE(ConnectTo(fd, listener_->port()));
  close(fd);
  if (!HasIpv6()) return;
  const int other = NewSocket(AF_INET6);
  EXPECT_FALSE(ConnectTo(other, listener_->port(), AF_INET6));
  close(other);
  Listen("[::1]:0");
  const int third = NewSocket(AF_INET6);
  EXPECT_TRUE(ConnectTo(third, listener_->port(), AF_INET6));
  close(third);
}

TEST_F(ListenerTest, AHostWithSeveralAddressesHasOnePort) {
  Listen("localhost:0");
  const int fd = NewSocket(AF_INET);
  EXPECT_TRUE(ConnectTo(fd, listener_->port()));
  EXPECT_EQ(accepted_.AwaitCount(1).size(), 1);
  close(fd);
  const std::string same = "127.0.0.1:" + std::to_string(listener_->port());
  EXPECT_THAT(Listener::Bind(same),
              StatusIs(StatusCode::kFailedPrecondition, AllOf(HasSubstr(same), HasSubstr("taken"))));
}

TEST_F(ListenerTest, BadAddressesAreErrors) {
  for (const std::string address : {"", "localhost", ":80", "localhost:", "localhost:http", "localhost:70000",
                                    "localhost:-1", "::1:80", "unix:"}) {
    EXPECT_THAT(Listener::Bind(address),
                StatusIs(StatusCode::kFailedPrecondition, HasSubstr("cannot listen on \"" + address + "\"")));
  }
  EXPECT_THAT(Listener::Bind("unix:" + std::string(200, 'x')),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("200")));
  // An address reserved for documentation, which this machine does not have.
  EXPECT_THAT(Listener::Bind("192.0.2.1:0"),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("192.0.2.1:0")));
}

TEST_F(ListenerTest, AUnixSocketReplacesADeadOneAndIsRemoved) {
  const std::string path = testing::TempDir() + "reverb-listener-" + std::to_string(getpid()) + ".sock";
  sockaddr_un to = {};
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path, path.data(), path.size());
  const int dead = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(dead, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  close(dead);
  Listen("unix:" + path);
  const int fd = NewSocket(AF_UNIX);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  EXPECT_EQ(accepted_.AwaitCount(1).size(), 1);
  close(fd);
  listener_->Stop();
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

TEST_F(ListenerTest, AcceptsAgainAfterDescriptorsRanOut) {
  // UBSan opens a pipe to inspect an object's type, and reports a false error when it cannot.
  if (test::kSanitized) GTEST_SKIP() << "sanitizers need file descriptors";
  Listen("127.0.0.1:0");
  const int fd = NewSocket(AF_INET);
  FewDescriptors descriptors(256);
  descriptors.TakeAll();
  ASSERT_TRUE(ConnectTo(fd, listener_->port()));  // waits in the queue of the listening socket
  EXPECT_THAT(
      lines_.AwaitCount(1),
      Contains(AllOf(HasSubstr("127.0.0.1:" + std::to_string(listener_->port())), HasSubstr("ulimit -n"))));
  EXPECT_EQ(accepted_.AwaitCount(0).size(), 0);
  descriptors.Release(200);
  EXPECT_EQ(accepted_.AwaitCount(1).size(), 1);
  close(fd);
}

TEST_F(ListenerTest, RefusesConnectionsBeforeDescriptorsRunOut) {
  Listen("127.0.0.1:0");
  const int fd = NewSocket(AF_INET);
  FewDescriptors descriptors(256);
  descriptors.TakeAll();
  descriptors.Release(5);  // of 256, 32 are reserved
  ASSERT_TRUE(ConnectTo(fd, listener_->port()));
  char none = 0;
  EXPECT_LE(recv(fd, &none, 1, 0), 0) << "the connection is closed";
  EXPECT_THAT(lines_.AwaitCount(1), Contains(HasSubstr(" of at most 256 file descriptors")));
  EXPECT_EQ(accepted_.AwaitCount(0).size(), 0);
  close(fd);
  descriptors.Release(200);
  const int next = NewSocket(AF_INET);
  ASSERT_TRUE(ConnectTo(next, listener_->port()));
  EXPECT_EQ(accepted_.AwaitCount(1).size(), 1);
  close(next);
}

TEST_F(ListenerTest, StopMayComeBeforeStartAndTwice) {
  auto never_started = Listener::Bind("127.0.0.1:0");
  ASSERT_OK(never_started);
  const int port = (*never_started)->port();
  (*never_started)->Stop();
  Listen("127.0.0.1:" + std::to_string(port));
  listener_->Stop();
  listener_->Stop();
  const int fd = NewSocket(AF_INET);
  EXPECT_FALSE(ConnectTo(fd, port));
  close(fd);
}

}  // namespace
}  // namespace reverb::internal
