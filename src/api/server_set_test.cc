// Tests what a set keeps, and which addresses it uses; public_set_test.cc tests what clients see of it.
#include "api/server_set.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reverb/log.h"
#include "reverb/server.h"
#include "testing/wait.h"

namespace reverb::internal {
namespace {

// Finds the given servers.
class ListResolver final : public Resolver {
 public:
  explicit ListResolver(std::vector<ResolvedServer> servers) : servers_(std::move(servers)) {}
  Result<std::vector<ResolvedServer>> Resolve(TimePoint) override { return servers_; }

 private:
  const std::vector<ResolvedServer> servers_;
};

std::shared_ptr<ServerSet> CreateSet(std::vector<ResolvedServer> servers) {
  return ServerSet::Create("dns:///test:1", {}, std::make_unique<ListResolver>(std::move(servers)),
                           {.in_process = false})
      .value();
}

TEST(ServerSetTest, SamplersThatAreGoneAreForgotten) {
  const auto set = ServerSet::Create("", {"127.0.0.1:1", "127.0.0.1:2"}, nullptr, {}).value();
  std::vector<std::shared_ptr<SetSampler>> kept;
  for (int i = 0; i < 1000; ++i) {
    auto sampler = set->NewSampler({.table = "t"}).value();
    sampler->Close();
    if (i % 100 == 0) kept.push_back(std::move(sampler));
  }
  EXPECT_GE(set->num_tracked_samplers(), kept.size());
  EXPECT_LE(set->num_tracked_samplers(), 40u);
}

TEST(ServerSetTest, AServerWithTwoAddressesIsOneServer) {
  // 127.0.0.2 stands for the address of IPv6, which some machines lack.
  std::atomic<bool> is_skipped = false;
  SetLogSink([&](LogLevel, std::string_view message) {
    if (message.ends_with("are the same")) is_skipped = true;
  });
  const auto server = Server::Start({.tables = {{.name = "t"}}, .host = "0.0.0.0", .port = 0}).value();
  const std::string port = std::to_string(server.port());
  {
    const auto set = CreateSet(
        {{.address = "127.0.0.1:" + port}, {.address = "127.0.0.2:" + port, .is_alternative = true}});
    EXPECT_TRUE(test::WaitUntil([&] { return is_skipped.load(); }));
    ASSERT_EQ(set->links().size(), 1u);
    EXPECT_EQ(set->links().front()->address(), "127.0.0.1:" + port);
  }
  SetLogSink({});
}

TEST(ServerSetTest, AlternativeAddressesOfOtherServersJoin) {
  const auto first = Server::Start({.tables = {{.name = "t"}}, .host = "127.0.0.1", .port = 0}).value();
  const auto second = Server::Start({.tables = {{.name = "t"}}, .host = "127.0.0.2", .port = 0}).value();
  const auto set =
      CreateSet({{.address = "127.0.0.1:" + std::to_string(first.port())},
                 {.address = "127.0.0.2:1", .is_alternative = true},  // does not answer
                 {.address = "127.0.0.2:" + std::to_string(second.port()), .is_alternative = true}});
  EXPECT_TRUE(test::WaitUntil([&] { return set->links().size() == 2; }));
  EXPECT_EQ(set->links().back()->address(), "127.0.0.2:" + std::to_string(second.port()));
}

}  // namespace
}  // namespace reverb::internal
