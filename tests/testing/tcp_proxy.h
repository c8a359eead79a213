// tcp_proxy.h — a proxy on loopback that lets one end of a TCP connection vanish for the other. Header-only.
#ifndef REVERB_TESTS_TESTING_TCP_PROXY_H_
#define REVERB_TESTS_TESTING_TCP_PROXY_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace reverb::test {

// Forwards bytes between clients and a server on 127.0.0.1. Threads: all methods may be called concurrently.
class TcpProxy {
 public:
  explicit TcpProxy(int server_port) : server_port_(server_port) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof address;
    (void)bind(listener_, reinterpret_cast<const sockaddr*>(&address), size);
    (void)listen(listener_, 16);
    (void)getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Run(); });
  }
  ~TcpProxy() {
    is_stopping_ = true;
    thread_.join();
    close(listener_);
  }
  TcpProxy(const TcpProxy&) = delete;
  TcpProxy& operator=(const TcpProxy&) = delete;

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  int num_connections() const { return num_connections_; }
  // Drops silently, from now on, what either side sends over the present connections, and that it closes them.
  void BlackHole() { black_holes_before_ = num_connections_.load(); }

 private:
  struct Relay {
    int number = 0;
    std::array<int, 2> ends = {-1, -1};
    std::array<bool, 2> is_open = {true, true};
  };

  static sockaddr_in Loopback(int port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

  void Accept() {
    Relay relay;
    relay.ends[0] = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (relay.ends[0] < 0) return;
    relay.ends[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = Loopback(server_port_);
    (void)connect(relay.ends[1], reinterpret_cast<const sockaddr*>(&address), sizeof address);
    relay.number = ++num_connections_;
    relays_.push_back(relay);
  }
  // Returns false when the relay is over.
  bool Forward(Relay* relay, size_t from) const {
    std::array<char, 1 << 16> bytes;
    const ssize_t received = recv(relay->ends[from], bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (relay->number <= black_holes_before_) {
      if (received <= 0) relay->is_open[from] = false;
      return true;
    }
    if (received <= 0) return false;
    ssize_t sent = 0;
    while (sent < received) {
      const ssize_t more = send(relay->ends[1 - from], bytes.data() + sent,
                                static_cast<size_t>(received - sent), MSG_NOSIGNAL);
      if (more <= 0) return false;
      sent += more;
    }
    return true;
  }
  void Run() {
    constexpr int kPollMillis = 5;  // bounds the time until a change by another thread is seen
    while (!is_stopping_) {
      std::vector<pollfd> polled = {{.fd = listener_, .events = POLLIN, .revents = 0}};
      for (const Relay& relay : relays_) {
        for (size_t i = 0; i < 2; ++i) {
          // poll() ignores a negative descriptor.
          polled.push_back({.fd = relay.is_open[i] ? relay.ends[i] : -1, .events = POLLIN, .revents = 0});
        }
      }
      if (poll(polled.data(), polled.size(), kPollMillis) <= 0) continue;
      std::vector<Relay> remaining;
      for (size_t i = 0; i < relays_.size(); ++i) {
        bool goes_on = true;
        for (size_t end = 0; end < 2; ++end) {
          if (goes_on && polled[1 + 2 * i + end].revents != 0) goes_on = Forward(&relays_[i], end);
        }
        if (goes_on) {
          remaining.push_back(relays_[i]);
        } else {
          CloseEnds(relays_[i]);
        }
      }
      relays_ = std::move(remaining);
      if (polled[0].revents != 0) Accept();
    }
    for (const Relay& relay : relays_) CloseEnds(relay);
  }
  static void CloseEnds(const Relay& relay) {
    for (const int fd : relay.ends) close(fd);
  }

  const int server_port_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> is_stopping_{false};
  std::atomic<int> num_connections_{0};
  std::atomic<int> black_holes_before_{0};  // connections up to this number
  std::vector<Relay> relays_;               // used by the thread
  std::thread thread_;
};

}  // namespace reverb::test

#endif  // REVERB_TESTS_TESTING_TCP_PROXY_H_
