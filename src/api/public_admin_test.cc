// ServerOptions::admin: the port of a server that starts, runs, loads and stops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "admin/http_client_testing.h"
#include "reverb/client.h"
#include "reverb/rows.h"
#include "reverb/server.h"
#include "testing/status_matchers.h"

namespace reverb {
namespace {

using ::reverb::internal::HttpGet;
using ::reverb::test::StatusIs;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

int PortOfAddress(const std::string& address) {
  return std::atoi(address.substr(address.rfind(':') + 1).c_str());
}

class PublicAdminTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("public_admin_test." + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  ServerOptions Options() const {
    ServerOptions options{.tables = {{.name = "t"}}, .host = "127.0.0.1", .local = LocalAccess::kOff};
    options.admin = AdminOptions{.listen = "127.0.0.1:0"};
    return options;
  }

  std::filesystem::path folder_;
};

TEST_F(PublicAdminTest, HasNoPortUnlessAsked) {
  ServerOptions options = Options();
  options.admin.reset();
  const Server server = Server::Start(std::move(options)).value();
  EXPECT_THAT(server.admin_address(), IsEmpty());
}

TEST_F(PublicAdminTest, AnswersUntilItIsStopped) {
  Server server = Server::Start(Options()).value();
  const int port = PortOfAddress(server.admin_address());
  EXPECT_THAT(HttpGet(port, "/readyz"), AllOf(StartsWith("HTTP/1.1 200 "), EndsWith("ready\n")));
  EXPECT_THAT(HttpGet(port, "/api/v1/info"), HasSubstr("\"name\":\"t\""));
  server.Stop();
  EXPECT_FALSE(internal::TestHttpClient(port).is_connected());
  server.Stop();
}

TEST_F(PublicAdminTest, LargeRowsAreListedWithoutTheirData) {
  ServerOptions options = Options();
  options.row_tables.push_back({.name = "rows"});
  Server server = Server::Start(std::move(options)).value();
  const Rows rows = server.in_process_client().RowTable("rows").value();
  for (const size_t bytes : {size_t{100}, size_t{64} << 20 | 1}) {
    const std::string text(bytes, 'x');
    const std::string_view value = text;
    const TensorView tensor{.dtype = DType::kString, .dims = {}, .data = &value};
    ASSERT_OK(rows.Put({.columns = {"text"}},
                       std::vector<NewRow>{{.key = std::to_string(bytes), .values = {tensor}}},
                       {.timeout = std::chrono::seconds(60)}));
  }
  const std::string answer =
      HttpGet(PortOfAddress(server.admin_address()), "/api/v1/tables/rows/items?values=1");
  EXPECT_THAT(answer, HasSubstr("\"key\":\"67108865\""));
  const size_t large = answer.find("\"key\":\"67108865\"");
  EXPECT_THAT(answer.substr(0, large), HasSubstr("\"name\":\"text\""));
  EXPECT_THAT(answer.substr(large), HasSubstr("\"columns\":[]"));
}

// The callback runs while the checkpoint is being loaded.
TEST_F(PublicAdminTest, ReportsThatACheckpointIsBeingLoaded) {
  ServerOptions options = Options();
  options.checkpoint = CheckpointOptions{.path = folder_.string(), .on_stop = true};
  {
    Server server = Server::Start(options).value();
    const Client client = server.in_process_client();
    const float value = 1;
    const TensorView step{.dtype = DType::kFloat32, .dims = {}, .data = &value};
    const std::vector<std::pair<std::string, double>> tables{{"t", 1.0}};
    ASSERT_OK(client.Insert({&step, 1}, tables));
    server.Stop();
  }
  std::vector<std::string> answers;
  int port = 0;
  options.admin->on_listening = [&](const std::string& address) {
    port = PortOfAddress(address);
    return Status::Ok();
  };
  options.checkpoint->restore.progress = [&](const CheckpointProgress&) {
    if (!answers.empty()) return;
    for (const char* path : {"/healthz", "/readyz", "/api/v1/info", "/metrics", "/"}) {
      answers.push_back(HttpGet(port, path));
    }
  };
  const Server server = Server::Start(options).value();
  ASSERT_EQ(answers.size(), 5u);
  EXPECT_THAT(answers[0], AllOf(StartsWith("HTTP/1.1 200 "), EndsWith("ok\n")));
  EXPECT_THAT(answers[1], AllOf(StartsWith("HTTP/1.1 503 "), HasSubstr("loads a checkpoint")));
  EXPECT_THAT(answers[2], AllOf(StartsWith("HTTP/1.1 503 "), HasSubstr("{\"error\":")));
  EXPECT_THAT(answers[3], StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(answers[4], StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(HttpGet(port, "/readyz"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(PublicAdminTest, ATakenPortIsAnErrorUnlessAnyWillDo) {
  const Server first = Server::Start(Options()).value();
  ServerOptions options = Options();
  options.admin->listen = first.admin_address();
  EXPECT_THAT(Server::Start(options).status(),
              StatusIs(StatusCode::kAlreadyExists, HasSubstr(first.admin_address())));
  options.admin->any_port_if_taken = true;
  const Server second = Server::Start(options).value();
  EXPECT_NE(second.admin_address(), first.admin_address());
  EXPECT_THAT(HttpGet(PortOfAddress(second.admin_address()), "/healthz"), EndsWith("ok\n"));
}

TEST_F(PublicAdminTest, AnErrorOfTheCallbackEndsTheStart) {
  ServerOptions options = Options();
  int port = 0;
  options.admin->on_listening = [&](const std::string& address) {
    port = PortOfAddress(address);
    return Status::Unavailable("no room for the port file");
  };
  EXPECT_THAT(Server::Start(options).status(), StatusIs(StatusCode::kUnavailable, HasSubstr("port file")));
  EXPECT_FALSE(internal::TestHttpClient(port).is_connected());
}

TEST_F(PublicAdminTest, StrictServersDoNotExposeThePort) {
  ServerOptions options = Options();
  options.admin->listen = "0.0.0.0:0";
  options.strict = true;
  EXPECT_THAT(Server::Start(options).status(),
              StatusIs(StatusCode::kFailedPrecondition, AllOf(HasSubstr("0.0.0.0"), HasSubstr("strict"))));
}

}  // namespace
}  // namespace reverb
