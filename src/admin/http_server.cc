#include "admin/http_server.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <list>
#include <set>
#include <thread>

// The timers use std::chrono.
#define BOOST_ASIO_DISABLE_BOOST_DATE_TIME
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/serializer.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>

#include "base/log.h"
#include "base/mutex.h"

namespace reverb::internal {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;
using PlainStream = beast::tcp_stream;
using TlsStream = beast::ssl_stream<beast::tcp_stream>;

// A comment is sent on event streams at least this often, which finds out that the client is gone.
constexpr Duration kMaxSilence = std::chrono::seconds(5);

// The sockets of all servers of the process, which a child created by fork() closes.
struct AdminSockets {
  Mutex mu;
  std::set<int> fds GUARDED_BY(mu);
};
AdminSockets& AllAdminSockets();

void LockAdminSockets() NO_THREAD_SAFETY_ANALYSIS { AllAdminSockets().mu.Lock(); }
void UnlockAdminSockets() NO_THREAD_SAFETY_ANALYSIS { AllAdminSockets().mu.Unlock(); }
void CloseAdminSocketsInChild() NO_THREAD_SAFETY_ANALYSIS {
  AdminSockets& all = AllAdminSockets();
  for (const int fd : all.fds) (void)close(fd);
  all.fds.clear();
  all.mu.Unlock();
}
AdminSockets& AllAdminSockets() {
  static AdminSockets* const all = [] {
    (void)pthread_atfork(LockAdminSockets, UnlockAdminSockets, CloseAdminSocketsInChild);
    return new AdminSockets();  // never destroyed, since servers may stop late
  }();
  return *all;
}

// Registers a socket. Outlived by the socket.
class OpenSocket {
 public:
  explicit OpenSocket(int fd) : fd_(fd) {
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    AdminSockets& all = AllAdminSockets();
    MutexLock lock(&all.mu);
    all.fds.insert(fd);
  }
  ~OpenSocket() {
    AdminSockets& all = AllAdminSockets();
    MutexLock lock(&all.mu);
    all.fds.erase(fd_);
  }
  OpenSocket(const OpenSocket&) = delete;
  OpenSocket& operator=(const OpenSocket&) = delete;

 private:
  const int fd_;
};

Result<std::shared_ptr<asio::ssl::context>> MakeTlsContext(const ServerTlsTexts& texts) {
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  ErrorCode error;
  context->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_sslv2 |
                           asio::ssl::context::no_sslv3 | asio::ssl::context::no_tlsv1 |
                           asio::ssl::context::no_tlsv1_1,
                       error);
  if (!error) context->use_certificate_chain(asio::buffer(texts.certificate), error);
  if (!error) context->use_private_key(asio::buffer(texts.key), asio::ssl::context::pem, error);
  if (!error && !texts.client_ca.empty()) {
    context->add_certificate_authority(asio::buffer(texts.client_ca), error);
    if (!error) {
      context->set_verify_mode(asio::ssl::verify_peer | asio::ssl::verify_fail_if_no_peer_cert, error);
    }
  }
  if (error) return Status::InvalidArgument("TLS: OpenSSL refuses the server's files: " + error.message());
  return context;
}

std::string_view View(beast::string_view text) { return {text.data(), text.size()}; }

// Returns the value of a header that must not occur twice.
std::optional<std::string> OnlyValue(const http::fields& fields, http::field name, bool* has_conflicts) {
  const auto [first, last] = fields.equal_range(name);
  if (first == last) return std::nullopt;
  if (std::next(first) != last) *has_conflicts = true;
  return std::string(View(first->value()));
}

}  // namespace

class HttpServer::Impl {
 public:
  explicit Impl(HttpOptions options) : options_(std::move(options)) {}

  Status Listen();
  void Run();
  void Stop();
  int port() const { return port_; }
  Stats stats() const {
    return {.connections = num_connections_.load(), .event_streams = num_event_streams_.load()};
  }

  // --- For the connections, on the connections' thread ---

  class AnyConnection {
   public:
    virtual ~AnyConnection() = default;
    virtual void Close() = 0;
    bool is_idle = true;  // no request is being answered
  };
  using Entry = std::list<AnyConnection*>::iterator;
  // In the order of their last activity.
  Entry Add(AnyConnection* connection) {
    num_connections_.fetch_add(1);
    return connections_.insert(connections_.end(), connection);
  }
  void Remove(Entry entry) {
    num_connections_.fetch_sub(1);
    connections_.erase(entry);
  }
  void Touch(Entry entry) { connections_.splice(connections_.end(), connections_, entry); }
  bool EnterEventStream() {
    if (num_event_streams_.load() >= options_.max_event_streams) return false;
    num_event_streams_.fetch_add(1);
    return true;
  }
  void LeaveEventStream() { num_event_streams_.fetch_sub(1); }

  asio::io_context& io() { return io_; }
  asio::io_context& worker() { return worker_; }
  const HttpOptions& options() const { return options_; }

 private:
  void Accept();
  void Admit(tcp::socket socket);
  std::shared_ptr<asio::ssl::context> TlsContext();

  const HttpOptions options_;
  int port_ = 0;
  std::atomic<size_t> num_connections_{0};
  std::atomic<size_t> num_event_streams_{0};
  std::list<AnyConnection*> connections_;
  std::shared_ptr<const ServerTlsTexts> tls_texts_;
  std::shared_ptr<asio::ssl::context> tls_context_;

  // Handlers own the connections, which use the lists above: destroyed first.
  asio::io_context io_{1};
  asio::io_context worker_{1};
  tcp::acceptor acceptor_{io_};
  std::optional<OpenSocket> listening_;
  asio::steady_timer retry_{io_};
  std::thread io_thread_;
  std::thread worker_thread_;
  Mutex mu_;
  bool is_stopped_ GUARDED_BY(mu_) = false;
};

namespace {

// One connection. The handlers that are pending own it. All methods run on the connections' thread.
template <typename Stream>
class HttpConnection final : public HttpServer::Impl::AnyConnection,
                             public std::enable_shared_from_this<HttpConnection<Stream>> {
 public:
  HttpConnection(HttpServer::Impl* server, Stream stream, std::shared_ptr<asio::ssl::context> context)
      : server_(server),
        context_(std::move(context)),
        stream_(std::move(stream)),
        registered_(Socket().native_handle()),
        timer_(server->io()),
        entry_(server->Add(this)) {}
  ~HttpConnection() override {
    if (in_event_stream_) server_->LeaveEventStream();
    server_->Remove(entry_);
  }

  void Start() {
    if constexpr (std::is_same_v<Stream, TlsStream>) {
      Lowest().expires_after(server_->options().handshake_timeout);
      stream_.async_handshake(asio::ssl::stream_base::server,
                              [self = this->shared_from_this()](ErrorCode error) {
                                if (!error) self->Read(self->server_->options().header_timeout);
                              });
    } else {
      Read(server_->options().header_timeout);
    }
  }

  void Close() override {
    ErrorCode ignored;
    Socket().shutdown(tcp::socket::shutdown_both, ignored);
    Lowest().cancel();
    timer_.cancel();
  }

 private:
  beast::tcp_stream& Lowest() { return beast::get_lowest_layer(stream_); }
  tcp::socket& Socket() { return Lowest().socket(); }

  void Read(Duration timeout) {
    is_idle = true;
    server_->Touch(entry_);
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(server_->options().max_header_bytes));
    Lowest().expires_after(timeout);
    http::async_read_header(
        stream_, buffer_, *parser_,
        [self = this->shared_from_this()](ErrorCode error, size_t /*size*/) { self->OnRead(error); });
  }

  void OnRead(ErrorCode error) {
    if (error) {
      HttpResponse response{.status = error == http::error::header_limit ? 431 : 400};
      if (error == http::error::end_of_stream || error == http::error::partial_message) return Finish();
      if (error.category() != http::make_error_code(http::error::bad_method).category()) return;
      response.body = error == http::error::header_limit
                          ? "the header of the request is larger than " +
                                std::to_string(server_->options().max_header_bytes) + " bytes\n"
                          : "this is no HTTP request: " + error.message() + "\n";
      return Respond(std::move(response), /*keeps_alive=*/false, /*is_head=*/false, 11);
    }
    is_idle = false;
    const http::request<http::empty_body>& header = parser_->get();
    HttpRequest request;
    request.method = std::string(View(header.method_string()));
    request.target = std::string(View(header.target()));
    request.host = OnlyValue(header, http::field::host, &request.has_conflicts);
    request.origin = OnlyValue(header, http::field::origin, &request.has_conflicts);
    request.authorization = OnlyValue(header, http::field::authorization, &request.has_conflicts);
    // The content of a request is never read, so nothing can follow it.
    const bool has_content = parser_->chunked() || parser_->content_length().value_or(0) > 0;
    const bool keeps_alive = header.keep_alive() && !has_content;
    const bool is_head = header.method() == http::verb::head;
    const unsigned version = header.version();
    if (server_->options().is_quick && server_->options().is_quick(request)) {
      return Respond(server_->options().handler(request), keeps_alive, is_head, version);
    }
    Lowest().expires_never();
    asio::post(server_->worker(), [self = this->shared_from_this(), request = std::move(request), keeps_alive,
                                   is_head, version]() mutable {
      HttpResponse response = self->server_->options().handler(request);
      HttpServer::Impl* const server = self->server_;
      asio::post(server->io(),
                 [self = std::move(self), response = std::move(response), keeps_alive, is_head,
                  version]() mutable { self->Respond(std::move(response), keeps_alive, is_head, version); });
    });
  }

  void Respond(HttpResponse response, bool keeps_alive, bool is_head, unsigned version) {
    // A client that sends bad requests may disagree with us about where the next one begins.
    if (response.status == 400) keeps_alive = false;
    const bool is_stream = response.next_event != nullptr && !is_head;
    if (is_stream && !server_->EnterEventStream()) {
      response = {.status = 503,
                  .content_type = "application/json",
                  .body = "{\"error\":\"there are " + std::to_string(server_->options().max_event_streams) +
                          " event streams, which is the limit; close one\"}\n"};
    } else if (is_stream) {
      in_event_stream_ = true;
      next_event_ = std::move(response.next_event);
      interval_ = response.interval;
      keeps_alive = false;
    }
    response_.emplace();
    response_->result(static_cast<unsigned>(response.status));
    response_->version(version);
    response_->set(http::field::content_type, response.content_type);
    for (const auto& [name, value] : response.headers) response_->set(name, value);
    response_->keep_alive(keeps_alive);
    // A stream has no length: it ends with the connection.
    if (!in_event_stream_) response_->content_length(response.body.size());
    if (!is_head) response_->body() = std::move(response.body);
    serializer_.emplace(*response_);
    Lowest().expires_after(server_->options().write_timeout);
    const auto done = [self = this->shared_from_this(), keeps_alive](ErrorCode error, size_t /*size*/) {
      if (error) return;
      if (self->in_event_stream_) return self->RequestEvent();
      self->response_.reset();
      if (keeps_alive) return self->Read(self->server_->options().idle_timeout);
      self->Finish();
    };
    if (is_head || in_event_stream_) {
      http::async_write_header(stream_, *serializer_, done);
    } else {
      http::async_write(stream_, *serializer_, done);
    }
  }

  // --- Event streams ---

  // Computes an event on the worker's thread, and sends it.
  void RequestEvent() {
    asio::post(server_->worker(), [self = this->shared_from_this()]() mutable {
      std::optional<std::string> event = self->next_event_();
      HttpServer::Impl* const server = self->server_;
      asio::post(server->io(), [self = std::move(self), event = std::move(event)]() mutable {
        if (!event) return self->Finish();
        self->next_time_ = std::chrono::steady_clock::now() + self->interval_;
        self->Send(*std::move(event));
      });
    });
  }

  void Send(std::string text) {
    event_ = std::move(text);
    Lowest().expires_after(server_->options().write_timeout);
    asio::async_write(stream_, asio::buffer(event_),
                      [self = this->shared_from_this()](ErrorCode error, size_t /*size*/) {
                        if (!error) self->AwaitNext();
                      });
  }

  void AwaitNext() {
    Lowest().expires_never();
    const auto now = std::chrono::steady_clock::now();
    timer_.expires_at(std::min(next_time_, now + kMaxSilence));
    timer_.async_wait([self = this->shared_from_this()](ErrorCode error) {
      if (error) return;
      if (std::chrono::steady_clock::now() >= self->next_time_) return self->RequestEvent();
      self->Send(":\n\n");
    });
  }

  // Ends the connection after what was sent.
  void Finish() {
    if constexpr (std::is_same_v<Stream, TlsStream>) {
      Lowest().expires_after(std::chrono::seconds(2));
      stream_.async_shutdown([self = this->shared_from_this()](ErrorCode /*error*/) {});
    } else {
      ErrorCode ignored;
      Socket().shutdown(tcp::socket::shutdown_send, ignored);
      Drain();
    }
  }

  // Reads what the client still sends, for a moment: closing a socket with unread bytes would reset the connection,
  // and the client could lose the response.
  void Drain() {
    constexpr int kMostReads = 16;
    if (++drained_ > kMostReads) return;
    buffer_.clear();
    Lowest().expires_after(std::chrono::seconds(1));
    Lowest().async_read_some(buffer_.prepare(4096),
                             [self = this->shared_from_this()](ErrorCode error, size_t) {
                               if (!error) self->Drain();
                             });
  }

  HttpServer::Impl* const server_;
  const std::shared_ptr<asio::ssl::context> context_;  // of the stream; null without TLS
  Stream stream_;
  const OpenSocket registered_;
  asio::steady_timer timer_;
  const HttpServer::Impl::Entry entry_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::empty_body>> parser_;
  std::optional<http::response<http::string_body>> response_;
  std::optional<http::response_serializer<http::string_body>> serializer_;
  int drained_ = 0;

  bool in_event_stream_ = false;
  std::function<std::optional<std::string>()> next_event_;
  Duration interval_{};
  std::chrono::steady_clock::time_point next_time_{};
  std::string event_;
};

}  // namespace

Result<HostAndPort> SplitAddress(std::string_view address) {
  const size_t colon = address.rfind(':');
  HostAndPort parts;
  const std::string_view digits = colon == std::string_view::npos ? "" : address.substr(colon + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), parts.port);
  parts.host = std::string(address.substr(0, colon));
  const bool is_v6 = parts.host.starts_with('[') && parts.host.ends_with(']');
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size() || parts.port < 0 ||
      parts.port > 65535 || parts.host.empty() || (!is_v6 && parts.host.find(':') != std::string::npos)) {
    return Status::InvalidArgument("the address \"" + std::string(address.substr(0, 200)) +
                                   "\" of the admin port is not HOST:PORT; give one like 127.0.0.1:8001, "
                                   "[::]:8001 for all interfaces, or port 0 for any that is free");
  }
  return parts;
}

Status HttpServer::Impl::Listen() {
  REVERB_ASSIGN_OR_RETURN(const HostAndPort address, SplitAddress(options_.address));
  std::string host = address.host;
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  ErrorCode error;
  tcp::resolver resolver(io_);
  const auto found = resolver.resolve(host, std::to_string(address.port), tcp::resolver::passive, error);
  if (error || found.empty()) {
    return Status::InvalidArgument("the host \"" + host +
                                   "\" of the admin port is unknown: " + error.message());
  }
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error && endpoint.address().is_v6() && endpoint.address().is_unspecified()) {
    acceptor_.set_option(asio::ip::v6_only(false), error);
  }
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error == asio::error::address_in_use) {
    return {StatusCode::kAlreadyExists, "the admin port " + options_.address +
                                            " is taken by another program; choose another one, or port 0 for "
                                            "any that is free"};
  }
  if (error) {
    return Status::InvalidArgument("the admin port " + options_.address +
                                   " cannot be opened: " + error.message() + "; choose another address");
  }
  port_ = acceptor_.local_endpoint(error).port();
  listening_.emplace(acceptor_.native_handle());
  if (options_.tls && TlsContext() == nullptr) {
    return MakeTlsContext(*options_.tls->Current()).status();
  }
  return Status::Ok();
}

void HttpServer::Impl::Run() {
  Accept();
  const auto run = [](asio::io_context* context, const char* name) {
    return std::thread([context, name] {
      pthread_setname_np(pthread_self(), name);
      const auto work = asio::make_work_guard(*context);
      context->run();
    });
  };
  io_thread_ = run(&io_, "rv-admin");
  worker_thread_ = run(&worker_, "rv-admin-work");
}

void HttpServer::Impl::Stop() {
  MutexLock lock(&mu_);
  if (std::exchange(is_stopped_, true)) return;
  asio::post(io_, [this] {
    ErrorCode ignored;
    listening_.reset();
    acceptor_.close(ignored);
    for (AnyConnection* const connection : connections_) connection->Close();
    io_.stop();
  });
  if (io_thread_.joinable()) io_thread_.join();
  worker_.stop();
  if (worker_thread_.joinable()) worker_thread_.join();
}

void HttpServer::Impl::Accept() {
  acceptor_.async_accept([this](ErrorCode error, tcp::socket socket) {
    if (error == asio::error::operation_aborted || !acceptor_.is_open()) return;
    if (error) {
      // Out of descriptors or memory: connections that end make room.
      retry_.expires_after(std::chrono::milliseconds(100));
      retry_.async_wait([this](ErrorCode failed) {
        if (!failed) Accept();
      });
      return;
    }
    Admit(std::move(socket));
    Accept();
  });
}

void HttpServer::Impl::Admit(tcp::socket socket) {
  if (connections_.size() >= options_.max_connections) {
    const auto idle = std::find_if(connections_.begin(), connections_.end(),
                                   [](const auto* each) { return each->is_idle; });
    if (idle == connections_.end()) return;  // closes the new one
    // Its handlers run later: it must not be chosen again until then.
    (*idle)->is_idle = false;
    (*idle)->Close();
  }
  ErrorCode ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  if (!options_.tls) {
    std::make_shared<HttpConnection<PlainStream>>(this, PlainStream(std::move(socket)), nullptr)->Start();
    return;
  }
  std::shared_ptr<asio::ssl::context> context = TlsContext();
  if (context == nullptr) return;
  TlsStream stream(PlainStream(std::move(socket)), *context);
  std::make_shared<HttpConnection<TlsStream>>(this, std::move(stream), std::move(context))->Start();
}

std::shared_ptr<asio::ssl::context> HttpServer::Impl::TlsContext() {
  std::shared_ptr<const ServerTlsTexts> texts = options_.tls->Current();
  if (texts == tls_texts_) return tls_context_;
  Result<std::shared_ptr<asio::ssl::context>> context = MakeTlsContext(*texts);
  if (context.ok()) {
    tls_context_ = *std::move(context);
  } else {
    Log(LogLevel::kError, "admin port: " + std::string(context.status().message()));
  }
  tls_texts_ = std::move(texts);
  return tls_context_;
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() { Stop(); }

Result<std::unique_ptr<HttpServer>> HttpServer::Start(HttpOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  REVERB_RETURN_IF_ERROR(impl->Listen());
  impl->Run();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

int HttpServer::port() const { return impl_->port(); }
void HttpServer::Stop() { impl_->Stop(); }
HttpServer::Stats HttpServer::stats() const { return impl_->stats(); }

}  // namespace reverb::internal
