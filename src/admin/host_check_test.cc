#include "admin/host_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "testing/status_matchers.h"

namespace reverb::internal {
namespace {

using ::reverb::test::StatusIs;
using ::testing::HasSubstr;

TEST(HostCheckTest, AcceptsItsNamesAndIpAddresses) {
  const HostCheck check = HostCheck::Make("Node7", {"replay.example.org"}).value();
  for (const char* host :
       {"localhost", "LOCALHOST:8001", "127.0.0.1", "127.9.9.9:1", "[::1]", "[::1]:80", "10.0.0.7:8001",
        "[fe80::1]:80", "node7:8001", "replay.example.org", "Replay.Example.Org:443"}) {
    EXPECT_OK(check.Check(host, std::nullopt)) << host;
    EXPECT_OK(check.Check(host, std::string("http://") + host)) << host;
    EXPECT_OK(check.Check(host, std::string("https://") + host)) << host;
  }
}

TEST(HostCheckTest, RefusesOtherNames) {
  const HostCheck check = HostCheck::Make("127.0.0.1", {}).value();
  for (const char* host : {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "node7",
                           "127.0.0.1@evil", "127.1", "0x7f000001", "[::1", "localhost@evil:1"}) {
    EXPECT_THAT(check.Check(host, std::nullopt), StatusIs(StatusCode::kPermissionDenied, HasSubstr("hosts")))
        << host;
  }
  EXPECT_THAT(check.Check(std::nullopt, std::nullopt),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("Host")));
  EXPECT_THAT(check.Check("", std::nullopt), StatusIs(StatusCode::kInvalidArgument, HasSubstr("Host")));
}

TEST(HostCheckTest, RefusesOtherOrigins) {
  const HostCheck check = HostCheck::Make("127.0.0.1", {}).value();
  for (const char* origin :
       {"null", "http://evil.example", "http://localhost:8002", "http://localhost", "localhost:8001",
        "file://", "http://localhost:8001.evil", "chrome-extension://localhost:8001", ""}) {
    EXPECT_THAT(check.Check("localhost:8001", origin),
                StatusIs(StatusCode::kPermissionDenied, HasSubstr("another origin")))
        << origin;
  }
}

TEST(HostCheckTest, RefusesHostsThatAreNone) {
  for (const char* host : {"", "a b", "a/b", "a:80", "*", "*.example.org", "http://a", "[::1]:80"}) {
    EXPECT_THAT(HostCheck::Make("localhost", {host}),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("no name of a machine")))
        << host;
  }
}

}  // namespace
}  // namespace reverb::internal
