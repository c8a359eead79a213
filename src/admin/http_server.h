// http_server.h — a small HTTP/1.1 server: GET requests without a body, answers in one piece, and event streams.
//
// One thread serves all connections (Boost.Asio and Boost.Beast, which only http_server.cc includes). A second thread
// runs the handler, so that a slow answer does not delay health checks. Bounds hold for everything that a client can
// make the server keep: the size of a request, the time for a handshake, a request and a response, the number of
// connections and of event streams. When there are too many connections, the one that has been idle for longest is
// closed for a new one.
//
// Ownership: Stop(), or the destructor, closes all connections and ends both threads.
// fork(): a child loses the sockets at once, so that neither the port nor a connection outlives the parent.
// Threads: all methods may be called concurrently; the handler is called on one thread at a time for ordinary requests,
// and on another one for those that HttpOptions::is_quick accepts.
#ifndef REVERB_ADMIN_HTTP_SERVER_H_
#define REVERB_ADMIN_HTTP_SERVER_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "access/tls_files.h"
#include "base/clock.h"
#include "reverb/status.h"

namespace reverb::internal {

struct HttpRequest {
  std::string method = {};  // "GET"
  std::string target = {};  // as sent: "/metrics?x=1"
  // Absent: the request has no such header; has_conflicts: it has it twice.
  std::optional<std::string> host = {};
  std::optional<std::string> origin = {};
  std::optional<std::string> authorization = {};
  bool has_conflicts = false;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
  // Set: the response is a stream of events. Called every `interval` for the text of the next one, on the handler's
  // thread; absent ends the stream.
  std::function<std::optional<std::string>()> next_event = {};
  Duration interval = std::chrono::seconds(1);
};

struct HttpOptions {
  std::string address = "127.0.0.1:0";      // "host:port", "[::1]:port"; port 0 takes any that is free
  std::shared_ptr<TlsFiles> tls = nullptr;  // null: plaintext
  std::function<HttpResponse(const HttpRequest&)> handler = {};
  // Returns whether the handler answers without waiting for anything; then it is called on the connections' thread.
  std::function<bool(const HttpRequest&)> is_quick = {};

  size_t max_connections = 256;
  size_t max_event_streams = 64;
  size_t max_header_bytes = size_t{16} << 10;
  Duration handshake_timeout = std::chrono::seconds(10);  // of TLS
  Duration header_timeout = std::chrono::seconds(10);     // for the first request of a connection
  Duration idle_timeout = std::chrono::seconds(30);       // for each further request
  Duration write_timeout = std::chrono::seconds(30);      // for a response, or an event
};

class HttpServer {
 public:
  // Listens when this returns. ALREADY_EXISTS if the port is taken; INVALID_ARGUMENT for an address that is none.
  static Result<std::unique_ptr<HttpServer>> Start(HttpOptions options);
  ~HttpServer();  // Stop()
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  // Idempotent. Waits for an answer that is being computed. Not to be called by the handler.
  void Stop();

  struct Stats {
    size_t connections = 0;
    size_t event_streams = 0;
  };
  Stats stats() const;

  class Impl;

 private:
  explicit HttpServer(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

// Returns the host and the port of "host:port" or "[::1]:port"; the host keeps its brackets. INVALID_ARGUMENT otherwise.
struct HostAndPort {
  std::string host;
  int port = 0;
};
Result<HostAndPort> SplitAddress(std::string_view address);

}  // namespace reverb::internal

#endif  // REVERB_ADMIN_HTTP_SERVER_H_
