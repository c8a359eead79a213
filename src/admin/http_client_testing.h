// http_client_testing.h — a client of the admin port for tests.
#ifndef REVERB_ADMIN_HTTP_CLIENT_TESTING_H_
#define REVERB_ADMIN_HTTP_CLIENT_TESTING_H_

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <string>

namespace reverb::internal {

// A client that sends what it is told.
class TestHttpClient {
 public:
  explicit TestHttpClient(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    const timeval patience{.tv_sec = 30, .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    is_connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~TestHttpClient() { close(fd_); }
  TestHttpClient(const TestHttpClient&) = delete;
  TestHttpClient& operator=(const TestHttpClient&) = delete;

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

// Sends a request and returns the whole answer, with its header.
inline std::string HttpGet(int port, const std::string& path, const std::string& headers = "") {
  TestHttpClient client(port);
  client.Send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + headers + "\r\n");
  return client.ReadAll();
}

}  // namespace reverb::internal

#endif  // REVERB_ADMIN_HTTP_CLIENT_TESTING_H_
