#include "transport/local/endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using test::StatusIs;
using ::testing::EndsWith;
using ::testing::HasSubstr;

std::string Folder() { return "/tmp/reverb-" + std::to_string(geteuid()); }

// A socket file in the folder of this user, at a port that no server can have.
class SocketAt {
 public:
  explicit SocketAt(std::string path) : path_(std::move(path)) {
    fd_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    unlink(path_.c_str());
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  void Listen() { EXPECT_EQ(listen(fd_, 1), 0); }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  ~SocketAt() {
    Close();
    unlink(path_.c_str());
  }
  SocketAt(const SocketAt&) = delete;
  SocketAt& operator=(const SocketAt&) = delete;

 private:
  const std::string path_;
  int fd_ = -1;
};

std::string TestPath(const char* name) {
  return Folder() + "/test-" + std::to_string(getpid()) + "-" + name + ".sock";
}

TEST(EndpointTest, LoopbackAddressesAreThisHost) {
  for (const char* host : {"localhost", "LOCALHOST", "localhost.", "127.0.0.1", "127.1.2.3", "::1", "[::1]",
                           "0.0.0.0", "[::]", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(IsThisHost(host)) << host;
  }
}

TEST(EndpointTest, TheNameOfThisHostIsThisHost) {
  char name[256] = {};
  ASSERT_EQ(gethostname(name, sizeof(name) - 1), 0);
  EXPECT_TRUE(IsThisHost(name));
}

TEST(EndpointTest, OtherHostsAreNot) {
  // 192.0.2.0/24 and 2001:db8::/32 are reserved for documentation.
  for (const char* host :
       {"192.0.2.1", "2001:db8::1", "example.com", "localhost.example.com", "", "128.0.0.1"}) {
    EXPECT_FALSE(IsThisHost(host)) << host;
  }
}

TEST(EndpointTest, AllNamesOfAPortHaveOnePath) {
  const std::string path = LocalSocketPath(8000);
  EXPECT_THAT(path, EndsWith("-8000.sock"));
  EXPECT_EQ(path, Folder() + "/" + std::to_string(NetworkNamespace()) + "-8000.sock");
  for (const char* address : {"localhost:8000", "127.0.0.1:8000", "[::1]:8000", "[::]:8000"}) {
    EXPECT_EQ(LocalSocketPath(address), path) << address;
  }
  EXPECT_NE(LocalSocketPath("localhost:8001"), path);
}

TEST(EndpointTest, AddressesWithoutALocalSocket) {
  for (const std::string_view address :
       {"192.0.2.1:8000", "example.com:8000", "localhost", "localhost:", "localhost:http", "localhost:0",
        "localhost:65536", ":8000", "unix:"}) {
    EXPECT_EQ(LocalSocketPath(address), std::nullopt) << address;
  }
}

TEST(EndpointTest, AUnixAddressNamesItsSocket) {
  EXPECT_TRUE(IsUnixAddress("unix:/run/reverb.sock"));
  EXPECT_FALSE(IsUnixAddress("localhost:8000"));
  EXPECT_EQ(LocalSocketPath("unix:/run/reverb.sock"), "/run/reverb.sock");
  EXPECT_EQ(LocalSocketPath("unix:///run/reverb.sock"), "/run/reverb.sock");
  EXPECT_EQ(LocalSocketPath("unix:relative.sock"), "relative.sock");
}

TEST(EndpointTest, TheFolderIsPrivate) {
  ASSERT_OK(PrepareLocalFolder());
  struct stat info {};
  ASSERT_EQ(stat(Folder().c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, geteuid());
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  EXPECT_OK(PrepareLocalFolder());  // exists already
}

TEST(EndpointTest, ASocketIsFoundUntilItIsRemoved) {
  ASSERT_OK(PrepareLocalFolder());
  const std::string path = TestPath("found");
  EXPECT_THAT(FindLocalSocket(path).status(), StatusIs(StatusCode::kNotFound, HasSubstr(path)));
  SocketFile first;
  {
    const SocketAt socket(path);
    ASSERT_OK(FindLocalSocket(path).status());
    first = FindLocalSocket(path).value();
    EXPECT_EQ(FindLocalSocket(path).value(), first);
  }
  const SocketAt next(path);
  EXPECT_FALSE(FindLocalSocket(path).value() == first);
}

TEST(EndpointTest, AnOrdinaryFileIsNoSocket) {
  const std::string path = "/tmp/endpoint-test-" + std::to_string(getpid());
  std::fclose(std::fopen(path.c_str(), "w"));
  EXPECT_THAT(FindLocalSocket(path).status(), StatusIs(StatusCode::kNotFound, HasSubstr("not a socket")));
  unlink(path.c_str());
}

TEST(EndpointTest, OnlyAListeningSocketIsAServer) {
  ASSERT_OK(PrepareLocalFolder());
  const std::string path = TestPath("listener");
  EXPECT_THAT(CheckLocalListener(path), StatusIs(StatusCode::kUnavailable, HasSubstr(path)));
  SocketAt socket(path);
  EXPECT_THAT(CheckLocalListener(path), StatusIs(StatusCode::kUnavailable));
  socket.Listen();
  // More connections than the backlog: a server that does not accept them yet is there nevertheless.
  for (int i = 0; i < 5; ++i) EXPECT_OK(CheckLocalListener(path)) << i;
  socket.Close();  // as a server that was killed: the file remains
  EXPECT_OK(FindLocalSocket(path).status());
  EXPECT_THAT(CheckLocalListener(path), StatusIs(StatusCode::kUnavailable, HasSubstr("refused")));
}

TEST(EndpointTest, APathThatIsTooLongIsAnError) {
  EXPECT_THAT(CheckLocalListener("/tmp/" + std::string(200, 'x')),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("at most 107")));
}

TEST(EndpointTest, AnEnvironmentVariableTurnsItOff) {
  unsetenv("REVERB_LOCAL");
  EXPECT_TRUE(IsLocalEnabled());
  for (const char* off : {"0", "off", "FALSE", "no"}) {
    setenv("REVERB_LOCAL", off, 1);
    EXPECT_FALSE(IsLocalEnabled()) << off;
  }
  for (const char* on : {"1", "on", ""}) {
    setenv("REVERB_LOCAL", on, 1);
    EXPECT_TRUE(IsLocalEnabled()) << on;
  }
  unsetenv("REVERB_LOCAL");
}

TEST(EndpointTest, TheBootAndTheNetworkNamespaceAreKnown) {
  EXPECT_FALSE(BootId().empty());
  EXPECT_EQ(BootId(), BootId());
  EXPECT_NE(NetworkNamespace(), 0u);
}

}  // namespace
}  // namespace reverb::internal
