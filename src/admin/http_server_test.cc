#include "admin/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "admin/http_client_testing.h"
#include "testing/status_matchers.h"
#include "testing/wait.h"

namespace reverb::internal {
namespace {

using ::reverb::test::StatusIs;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

HttpOptions EchoOptions() {
  HttpOptions options;
  options.handler = [](const HttpRequest& request) {
    return HttpResponse{.body = request.method + " " + request.target + " " + request.host.value_or("none")};
  };
  return options;
}

constexpr char kGet[] = "GET /x HTTP/1.1\r\nHost: here\r\n\r\n";
constexpr char kLastGet[] = "GET /last HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n";

TEST(HttpServerTest, AnswersRequestsInOrder) {
  const auto server = HttpServer::Start(EchoOptions()).value();
  TestHttpClient client(server->port());
  client.Send(std::string(kGet) + kLastGet);
  const std::string text = client.ReadAll();
  EXPECT_THAT(text, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(text, HasSubstr("GET /x here"));
  EXPECT_THAT(text, EndsWith("GET /last here"));
}

TEST(HttpServerTest, QuickAnswersDoNotWaitForSlowOnes) {
  std::atomic<bool> is_released{false};
  std::atomic<bool> is_entered{false};
  HttpOptions options;
  options.handler = [&](const HttpRequest& request) {
    if (request.target == "/slow") {
      is_entered = true;
      EXPECT_TRUE(test::WaitUntil([&] { return is_released.load(); }));
    }
    return HttpResponse{.body = "done"};
  };
  options.is_quick = [](const HttpRequest& request) { return request.target == "/quick"; };
  const auto server = HttpServer::Start(options).value();
  TestHttpClient slow(server->port());
  slow.Send("GET /slow HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(test::WaitUntil([&] { return is_entered.load(); }));
  TestHttpClient quick(server->port());
  quick.Send("GET /quick HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(quick.ReadAll(), EndsWith("done"));
  is_released = true;
  EXPECT_THAT(slow.ReadAll(), EndsWith("done"));
}

TEST(HttpServerTest, BoundsHeadersAndExplains) {
  HttpOptions options = EchoOptions();
  options.max_header_bytes = 1000;
  const auto server = HttpServer::Start(options).value();
  TestHttpClient large(server->port());
  large.Send("GET / HTTP/1.1\r\nX: " + std::string(2000, 'x') + "\r\n\r\n");
  EXPECT_THAT(large.ReadAll(), StartsWith("HTTP/1.1 431 "));
  TestHttpClient garbage(server->port());
  garbage.Send("hello\r\n\r\n");
  EXPECT_THAT(garbage.ReadAll(), StartsWith("HTTP/1.1 400 "));
}

TEST(HttpServerTest, ABadRequestEndsItsConnection) {
  HttpOptions options;
  options.handler = [](const HttpRequest& request) {
    return HttpResponse{.status = request.target == "/bad" ? 400 : 404};
  };
  const auto server = HttpServer::Start(options).value();
  TestHttpClient client(server->port());
  client.Send(kGet);
  EXPECT_THAT(client.ReadUntil("\r\n\r\n"), Not(HasSubstr("Connection: close\r\n")));
  client.Send("GET /bad HTTP/1.1\r\nHost: here\r\n\r\n");
  EXPECT_THAT(client.ReadUntil("\r\n\r\n"), HasSubstr("Connection: close\r\n"));
  EXPECT_EQ(client.ReadAll(), "");  // the end, long before the connection has been idle for too long
}

TEST(HttpServerTest, EndsSlowAndIdleConnections) {
  HttpOptions options = EchoOptions();
  options.header_timeout = std::chrono::milliseconds(50);
  options.idle_timeout = std::chrono::milliseconds(50);
  const auto server = HttpServer::Start(options).value();
  TestHttpClient slow(server->port());
  slow.Send("GET / HT");
  EXPECT_EQ(slow.ReadAll(), "");
  TestHttpClient idle(server->port());
  idle.Send(kGet);
  EXPECT_THAT(idle.ReadAll(), HasSubstr("GET /x here"));  // and then the end
  EXPECT_TRUE(test::WaitUntil([&] { return server->stats().connections == 0; }));
}

TEST(HttpServerTest, IdleConnectionsGiveWayToNewOnes) {
  HttpOptions options = EchoOptions();
  options.max_connections = 4;
  const auto server = HttpServer::Start(options).value();
  std::vector<std::unique_ptr<TestHttpClient>> idle;
  for (int i = 0; i < 20; ++i) idle.push_back(std::make_unique<TestHttpClient>(server->port()));
  TestHttpClient client(server->port());
  client.Send(kLastGet);
  EXPECT_THAT(client.ReadAll(), EndsWith("GET /last here"));
  EXPECT_EQ(idle.front()->ReadAll(), "");
  EXPECT_LE(server->stats().connections, 5u);
}

HttpOptions EventOptions(std::atomic<int>* events) {
  HttpOptions options;
  options.handler = [events](const HttpRequest&) {
    HttpResponse response{.content_type = "text/event-stream"};
    response.interval = std::chrono::milliseconds(1);
    response.next_event = [events] { return std::optional("data: " + std::to_string(++*events) + "\n\n"); };
    return response;
  };
  return options;
}

TEST(HttpServerTest, EventStreamsEndWithTheServer) {
  std::atomic<int> events{0};
  const auto server = HttpServer::Start(EventOptions(&events)).value();
  TestHttpClient client(server->port());
  client.Send(kGet);
  EXPECT_THAT(client.ReadUntil("data: 3\n\n"), HasSubstr("Content-Type: text/event-stream\r\n"));
  EXPECT_EQ(server->stats().event_streams, 1u);
  server->Stop();
  (void)client.ReadAll();  // ends
  EXPECT_FALSE(TestHttpClient(server->port()).is_connected());
}

TEST(HttpServerTest, EventStreamsOfClientsThatLeftAreForgotten) {
  std::atomic<int> events{0};
  HttpOptions options = EventOptions(&events);
  options.max_event_streams = 1;
  const auto server = HttpServer::Start(options).value();
  {
    TestHttpClient first(server->port());
    first.Send(kGet);
    EXPECT_THAT(first.ReadUntil("data: 1\n\n"), HasSubstr("data: 1"));
    TestHttpClient second(server->port());
    second.Send(kGet);
    EXPECT_THAT(second.ReadUntil("}"), StartsWith("HTTP/1.1 503 "));
  }
  EXPECT_TRUE(test::WaitUntil([&] { return server->stats().event_streams == 0; }));
  TestHttpClient third(server->port());
  third.Send(kGet);
  EXPECT_THAT(third.ReadUntil("data: "), StartsWith("HTTP/1.1 200 "));
}

TEST(HttpServerTest, TakenAndBadAddressesAreErrors) {
  const auto server = HttpServer::Start(EchoOptions()).value();
  HttpOptions options = EchoOptions();
  options.address = "127.0.0.1:" + std::to_string(server->port());
  EXPECT_THAT(HttpServer::Start(options), StatusIs(StatusCode::kAlreadyExists, HasSubstr(options.address)));
  for (const char* address :
       {"", "127.0.0.1", ":80", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "::1:80", "127.0.0.1:-1"}) {
    options.address = address;
    EXPECT_THAT(HttpServer::Start(options), StatusIs(StatusCode::kInvalidArgument, HasSubstr("HOST:PORT")))
        << address;
  }
}

TEST(HttpServerTest, AChildOfForkKeepsNoSocket) {
  auto server = HttpServer::Start(EchoOptions()).value();
  const int port = server->port();
  TestHttpClient client(port);
  client.Send(kGet);
  EXPECT_THAT(client.ReadUntil("here"), HasSubstr("GET /x"));
  int begun[2], pipe_ends[2];
  ASSERT_EQ(pipe(begun), 0);
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(pipe_ends[1]);
    char byte = 0;
    (void)!write(begun[1], &byte, 1);
    (void)!read(pipe_ends[0], &byte, 1);  // lives until the parent is done
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(begun[0], &byte, 1), 1);  // fork() may return here before the child runs
  close(begun[0]);
  close(begun[1]);
  close(pipe_ends[0]);
  server->Stop();
  server.reset();
  EXPECT_EQ(client.ReadAll(), "");  // the child does not keep the connection open
  EXPECT_FALSE(TestHttpClient(port).is_connected());
  close(pipe_ends[1]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
}

}  // namespace
}  // namespace reverb::internal
