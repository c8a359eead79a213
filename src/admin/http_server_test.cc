#include "admin/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "testing/status_matchers.h"
#include "testing/wait.h"

namespace reverb::internal {
namespace {

using ::reverb::test::StatusIs;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A client that sends what it is told.
class TestClient {
 public:
  explicit TestClient(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    const timeval patience{.tv_sec = 30, .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    is_connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~TestClient() { close(fd_); }
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;

  bool is_connected() const { return is_connected_; }
  void Send(const std::string& text) { (void)send(fd_, text.data(), text.size(), MSG_NOSIGNAL); }
  // Reads until the text contains `part`, or the server has closed the connection.
  std::string ReadUntil(const std::string& part) {
    std::string text;
    char bytes[4096];
    ssize_t size = 0;
    while (text.find(part) == std::string::npos && (size = recv(fd_, bytes, sizeof bytes, 0)) > 0) {
      text.append(bytes, static_cast<size_t>(size));
    }
    return text;
  }
  std::string ReadAll() { return ReadUntil("\xff no text has this"); }

 private:
  const int fd_;
  bool is_connected_ = false;
};

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
  TestClient client(server->port());
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
  TestClient slow(server->port());
  slow.Send("GET /slow HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(test::WaitUntil([&] { return is_entered.load(); }));
  TestClient quick(server->port());
  quick.Send("GET /quick HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(quick.ReadAll(), EndsWith("done"));
  is_released = true;
  EXPECT_THAT(slow.ReadAll(), EndsWith("done"));
}

TEST(HttpServerTest, BoundsHeadersAndExplains) {
  HttpOptions options = EchoOptions();
  options.max_header_bytes = 1000;
  const auto server = HttpServer::Start(options).value();
  TestClient large(server->port());
  large.Send("GET / HTTP/1.1\r\nX: " + std::string(2000, 'x') + "\r\n\r\n");
  EXPECT_THAT(large.ReadAll(), StartsWith("HTTP/1.1 431 "));
  TestClient garbage(server->port());
  garbage.Send("hello\r\n\r\n");
  EXPECT_THAT(garbage.ReadAll(), StartsWith("HTTP/1.1 400 "));
}

TEST(HttpServerTest, EndsSlowAndIdleConnections) {
  HttpOptions options = EchoOptions();
  options.header_timeout = std::chrono::milliseconds(50);
  options.idle_timeout = std::chrono::milliseconds(50);
  const auto server = HttpServer::Start(options).value();
  TestClient slow(server->port());
  slow.Send("GET / HT");
  EXPECT_EQ(slow.ReadAll(), "");
  TestClient idle(server->port());
  idle.Send(kGet);
  EXPECT_THAT(idle.ReadAll(), HasSubstr("GET /x here"));  // and then the end
  EXPECT_TRUE(test::WaitUntil([&] { return server->stats().connections == 0; }));
}

TEST(HttpServerTest, IdleConnectionsGiveWayToNewOnes) {
  HttpOptions options = EchoOptions();
  options.max_connections = 4;
  const auto server = HttpServer::Start(options).value();
  std::vector<std::unique_ptr<TestClient>> idle;
  for (int i = 0; i < 20; ++i) idle.push_back(std::make_unique<TestClient>(server->port()));
  TestClient client(server->port());
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
  TestClient client(server->port());
  client.Send(kGet);
  EXPECT_THAT(client.ReadUntil("data: 3\n\n"), HasSubstr("Content-Type: text/event-stream\r\n"));
  EXPECT_EQ(server->stats().event_streams, 1u);
  server->Stop();
  (void)client.ReadAll();  // ends
  EXPECT_FALSE(TestClient(server->port()).is_connected());
}

TEST(HttpServerTest, EventStreamsOfClientsThatLeftAreForgotten) {
  std::atomic<int> events{0};
  HttpOptions options = EventOptions(&events);
  options.max_event_streams = 1;
  const auto server = HttpServer::Start(options).value();
  {
    TestClient first(server->port());
    first.Send(kGet);
    EXPECT_THAT(first.ReadUntil("data: 1\n\n"), HasSubstr("data: 1"));
    TestClient second(server->port());
    second.Send(kGet);
    EXPECT_THAT(second.ReadUntil("}"), StartsWith("HTTP/1.1 503 "));
  }
  EXPECT_TRUE(test::WaitUntil([&] { return server->stats().event_streams == 0; }));
  TestClient third(server->port());
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
  TestClient client(port);
  client.Send(kGet);
  EXPECT_THAT(client.ReadUntil("here"), HasSubstr("GET /x"));
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(pipe_ends[1]);
    char byte = 0;
    (void)!read(pipe_ends[0], &byte, 1);  // lives until the parent is done
    _exit(0);
  }
  close(pipe_ends[0]);
  server->Stop();
  server.reset();
  EXPECT_EQ(client.ReadAll(), "");  // the child does not keep the connection open
  EXPECT_FALSE(TestClient(port).is_connected());
  close(pipe_ends[1]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
}

}  // namespace
}  // namespace reverb::internal
