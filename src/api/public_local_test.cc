// Tests the local endpoint of a Server and its use by Clients, also in children created by fork().
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "reverb/client.h"
#include "reverb/server.h"
#include "testing/status_matchers.h"

namespace reverb {
namespace {

using namespace std::chrono_literals;
using test::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<Client::TablePriority> kIntoQueue = {{"t", 1.0}};
const WaitOptions kPatience{.timeout = 30s};

Server StartServer(LocalAccess local = LocalAccess::kSameUser, std::string path = "") {
  return Server::Start({.tables = {{.name = "t", .sampler = SelectorOptions::Fifo()}},
                        .host = "127.0.0.1",
                        .local = local,
                        .local_path = std::move(path)})
      .value();
}

Client ConnectTo(const Server& server, ClientOptions options = {.in_process = false}) {
  return Client::Connect("127.0.0.1:" + std::to_string(server.port()), std::move(options)).value();
}

Status InsertNumber(const Client& client, float value) {
  const TensorView step{.dtype = DType::kFloat32, .dims = {}, .data = &value};
  return client.Insert({&step, 1}, kIntoQueue, kPatience);
}

std::string TestSocket(const char* name) {
  return "/tmp/public-local-test-" + std::to_string(getpid()) + "-" + name;
}

// Returns the exit status of a child that runs `function`.
template <typename F>
int RunInChild(F&& function) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(function());
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

TEST(PublicLocalTest, AClientReportsItsTransport) {
  const Server server = StartServer();
  EXPECT_THAT(*ConnectTo(server, {}).Transports(kPatience), ElementsAre(Transport::kInProcess));
  EXPECT_THAT(*ConnectTo(server).Transports(kPatience), ElementsAre(Transport::kLocal));
  EXPECT_THAT(*ConnectTo(server, {.in_process = false, .local = false}).Transports(kPatience),
              ElementsAre(Transport::kGrpc));
  EXPECT_THAT(*server.in_process_client().Transports(kPatience), ElementsAre(Transport::kInProcess));
  EXPECT_EQ(TransportName(Transport::kInProcess), "in-process");
  EXPECT_EQ(TransportName(Transport::kLocal), "local");
  EXPECT_EQ(TransportName(Transport::kGrpc), "gRPC");
}

TEST(PublicLocalTest, InformationAnnouncesTheEndpoint) {
  const Server server = StartServer();
  const ServerInfo info = ConnectTo(server, {.in_process = false, .local = false}).Info(kPatience).value();
  EXPECT_EQ(info.local_path, server.local_path());
  EXPECT_FALSE(info.boot_id.empty());
  EXPECT_EQ(info.user_id, static_cast<int64_t>(geteuid()));
}

TEST(PublicLocalTest, AServerCanHaveNoEndpoint) {
  const Server server = StartServer(LocalAccess::kOff);
  EXPECT_EQ(server.local_path(), "");
  EXPECT_THAT(*ConnectTo(server).Transports(kPatience), ElementsAre(Transport::kGrpc));
  EXPECT_EQ(ConnectTo(server).Info(kPatience)->local_path, "");
  setenv("REVERB_LOCAL", "0", 1);
  const Server other = StartServer();
  unsetenv("REVERB_LOCAL");
  EXPECT_EQ(other.local_path(), "");
}

TEST(PublicLocalTest, APathOfItsOwn) {
  const std::string path = TestSocket("path");
  {
    const Server server = StartServer(LocalAccess::kAnyUser, path);
    EXPECT_EQ(server.local_path(), path);
    struct stat info {};
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0666u);
    const Client client = Client::Connect("unix:" + path, {.in_process = false}).value();
    EXPECT_OK(InsertNumber(client, 1));
    EXPECT_THAT(*client.Transports(kPatience), ElementsAre(Transport::kLocal));
    EXPECT_EQ(client.Info(kPatience)->user_id, std::nullopt) << "any user";
    EXPECT_EQ(server.table("t")->size(), 1);
  }
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

TEST(PublicLocalTest, AnotherUserConnectsToAServerForAnyUserByItsPath) {
  if (geteuid() != 0 || RunInChild([] { return setuid(65534) == 0 ? 0 : 1; }) != 0) {
    GTEST_SKIP() << "this process may not change its user";
  }
  const std::string path = TestSocket("any");
  const Server server = StartServer(LocalAccess::kAnyUser, path);
  ASSERT_OK(InsertNumber(ConnectTo(server), 7));
  EXPECT_EQ(RunInChild([&] {
              if (setuid(65534) != 0) return 1;
              const Client client = Client::Connect("unix:" + path).value();
              const auto samples = client.Sample("t", 1, kPatience);
              if (!samples.ok()) {
                fprintf(stderr, "%s\n", samples.status().ToString().c_str());
                return 2;
              }
              if (client.Transports(kPatience).value() != std::vector{Transport::kLocal}) return 3;
              return InsertNumber(client, 8).ok() ? 0 : 4;
            }),
            0);
  EXPECT_EQ(server.table("t")->size(), 2);
}

TEST(PublicLocalTest, ContradictingOptionsAreErrors) {
  EXPECT_THAT(Server::Start({.tables = {{.name = "t"}}, .local = LocalAccess::kAnyUser}).status(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("local_path")));
  EXPECT_THAT(
      Server::Start({.tables = {{.name = "t"}}, .local = LocalAccess::kOff, .local_path = "/tmp/x"}).status(),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("/tmp/x")));
}

// --- fork() ---

TEST(PublicLocalTest, AChildUsesTheClientsOfItsParent) {
  const Server server = StartServer();
  const Client used = ConnectTo(server), unused = ConnectTo(server), inner = ConnectTo(server, {});
  ASSERT_OK(InsertNumber(used, 0));
  ASSERT_OK(InsertNumber(inner, 0));
  const auto use = [&] {
    for (const Client& client : {used, unused, inner}) {
      if (!InsertNumber(client, 1).ok()) return 1;
      if (client.Transports(kPatience).value() != std::vector{Transport::kLocal}) return 2;
      if (client.Sample("t", 2, kPatience).value().size() != 2) return 3;
    }
    return 0;
  };
  EXPECT_EQ(RunInChild(use), 0);
  EXPECT_EQ(server.table("t")->size(), 5);
  EXPECT_EQ(RunInChild([&] { return RunInChild(use); }), 0) << "a grandchild";
  EXPECT_EQ(server.table("t")->size(), 8);
  EXPECT_OK(InsertNumber(used, 2));
  EXPECT_THAT(*inner.Transports(kPatience), ElementsAre(Transport::kInProcess));
}

TEST(PublicLocalTest, AChildMayDropTheClientsOfItsParent) {
  const Server server = StartServer();
  Client client = ConnectTo(server), grpc = ConnectTo(server, {.in_process = false, .local = false});
  ASSERT_OK(InsertNumber(client, 0));
  ASSERT_OK(InsertNumber(grpc, 0));
  EXPECT_EQ(RunInChild([&] {
              client = ConnectTo(server);
              grpc = client;
              return InsertNumber(client, 1).ok() ? 0 : 1;
            }),
            0);
  EXPECT_OK(InsertNumber(client, 2));
  EXPECT_OK(InsertNumber(grpc, 2));
  EXPECT_EQ(server.table("t")->size(), 5);
}

TEST(PublicLocalTest, AChildCannotUseGrpcAfterItsParent) {
  const Server server = StartServer(LocalAccess::kOff);
  const Client client = ConnectTo(server);
  ASSERT_OK(InsertNumber(client, 0));
  const auto is_refused = [](const Status& status) {
    return status.code() == StatusCode::kFailedPrecondition &&
           status.message().find("fork()") != std::string_view::npos;
  };
  EXPECT_EQ(RunInChild([&] {
              if (!is_refused(client.Info(kPatience).status())) return 1;
              if (!is_refused(InsertNumber(client, 1))) return 2;
              if (!is_refused(client.Sample("t", 1, kPatience).status())) return 3;
              if (!is_refused(Server::Start({.tables = {{.name = "t"}}}).status())) return 4;
              return 0;
            }),
            0);
  EXPECT_OK(InsertNumber(client, 2));
}

TEST(PublicLocalTest, AChildCannotUseAClientOfTheServersOwnProcess) {
  const Server server = StartServer();
  const Client client = server.in_process_client();
  EXPECT_EQ(RunInChild([&] {
              return client.Info(kPatience).status().code() == StatusCode::kFailedPrecondition ? 0 : 1;
            }),
            0);
  EXPECT_OK(client.Info(kPatience).status());
}

}  // namespace
}  // namespace reverb
