#include "transport/listener.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/detached_thread.h"

namespace reverb::internal {
namespace {

// How long to wait after accept() failed.
constexpr std::chrono::milliseconds kPause(100);
// A port that is free for one address of a host may be in use for another one: then try a new port.
constexpr int kPortAttempts = 16;

std::string ErrorText(int error) {
  std::string text = std::strerror(error);
  if (error == EADDRINUSE) text += ", the port is taken; choose another port, or 0 for any that is free";
  return text;
}

// An address of any family.
struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;

  SocketAddress() = default;
  SocketAddress(const void* from, size_t bytes) : size(static_cast<socklen_t>(bytes)) {
    std::memcpy(&storage, from, std::min(bytes, sizeof(storage)));
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  sockaddr_in* v4() { return reinterpret_cast<sockaddr_in*>(&storage); }
  sockaddr_in6* v6() { return reinterpret_cast<sockaddr_in6*>(&storage); }
  bool operator==(const SocketAddress& other) const {
    return size == other.size && std::memcmp(&storage, &other.storage, size) == 0;
  }

  void SetPort(int port) {
    (family() == AF_INET ? v4()->sin_port : v6()->sin6_port) = htons(static_cast<uint16_t>(port));
  }
  int port() { return ntohs(family() == AF_INET ? v4()->sin_port : v6()->sin6_port); }
  bool IsWildcard() {
    if (family() == AF_INET) return v4()->sin_addr.s_addr == htonl(INADDR_ANY);
    return family() == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&v6()->sin6_addr);
  }
};

SocketAddress Wildcard(int family) {
  if (family == AF_INET) {
    sockaddr_in any = {};
    any.sin_family = AF_INET;
    return SocketAddress(&any, sizeof(any));
  }
  sockaddr_in6 any = {};
  any.sin6_family = AF_INET6;
  return SocketAddress(&any, sizeof(any));
}

bool IsNotOnThisMachine(int error) {
  return error == EADDRNOTAVAIL || error == EAFNOSUPPORT || error == EPROTONOSUPPORT;
}

// Returns a listening socket, or an errno as a negative number.
int Listen(const SocketAddress& address, unsigned unix_mode = Listener::kDefaultUnixMode) {
  const int family = address.family();
  const int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -errno;
  const auto set = [fd](int level, int option, int value) {
    (void)setsockopt(fd, level, option, &value, sizeof(value));
  };
  if (family == AF_INET || family == AF_INET6) {
    set(SOL_SOCKET, SO_REUSEADDR, 1);
    // Accepted sockets inherit these.
    set(IPPROTO_TCP, TCP_NODELAY, 1);
    set(IPPROTO_TCP, TCP_USER_TIMEOUT, 20'000);
  }
  // Linux creates the file with this mode, less the umask, so that it is never accessible to more users.
  if (family == AF_UNIX) (void)fchmod(fd, unix_mode);
  if (family == AF_INET6) set(IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (bind(fd, address.get(), address.size) != 0 || listen(fd, SOMAXCONN) != 0) {
    const int error = errno;
    close(fd);
    return -error;
  }
  return fd;
}

// Returns the distinct addresses of a host.
Result<std::vector<SocketAddress>> Resolve(const std::string& host) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), "0", &hints, &found); error != 0) {
    return Status::FailedPrecondition("the host cannot be resolved: " + std::string(gai_strerror(error)));
  }
  std::vector<SocketAddress> addresses;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const SocketAddress address(at->ai_addr, at->ai_addrlen);
    if (std::ranges::find(addresses, address) == addresses.end()) addresses.push_back(address);
  }
  freeaddrinfo(found);
  return addresses;
}

struct HostPort {
  std::string host;
  int port = 0;
};

std::optional<HostPort> SplitHostPort(std::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return std::nullopt;
  std::string_view host = address.substr(0, colon);
  const std::string_view digits = address.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return std::nullopt;  // an IPv6 address without brackets: its last number may be the port or not
  }
  HostPort split{.host = std::string(host)};
  const char* const end = digits.data() + digits.size();
  const auto [at, error] = std::from_chars(digits.data(), end, split.port);
  if (error != std::errc() || at != end || split.port < 0 || split.port > 65535) return std::nullopt;
  return split;
}

// --- Errors of accept() ---------------------------------------------------------------------------

// Returns whether the error of accept() concerns a single connection only.
bool IsConnectionError(int error) {
  switch (error) {
    case EINTR:
    case ECONNABORTED:
    // Linux reports network errors of the new connection here.
    case EPROTO:
    case ENOPROTOOPT:
    case ENETDOWN:
    case ENETUNREACH:
    case ENONET:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case EOPNOTSUPP:
    case EPERM:
      return true;
    default:
      return false;
  }
}

}  // namespace

// --- Refusing -------------------------------------------------------------------------------------

std::optional<std::string> DescriptorShortage(int fd, bool is_brief) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  const rlim_t reserved = std::min<rlim_t>(limit.rlim_cur / 8, 64) / (is_brief ? 2 : 1);
  const rlim_t in_use = static_cast<rlim_t>(fd) + 1;
  if (in_use + reserved <= limit.rlim_cur) return std::nullopt;
  return std::to_string(in_use) + " of at most " + std::to_string(limit.rlim_cur) +
         " file descriptors are in use, and the rest is reserved for files";
}

// --- Binding --------------------------------------------------------------------------------------

Result<std::unique_ptr<Listener>> Listener::Bind(const std::string& address, unsigned unix_mode) {
  std::unique_ptr<Listener> listener(new Listener(address));
  Status status;
  if (address.starts_with("unix:")) {
    std::string_view path = std::string_view(address).substr(5);
    if (path.starts_with("//")) path.remove_prefix(2);
    status = listener->BindUnix(std::string(path), unix_mode);
  } else if (const std::optional<HostPort> split = SplitHostPort(address)) {
    status = listener->BindTcp(split->host, split->port);
  } else {
    status = Status::FailedPrecondition(
        "expected host:port with a port from 0 to 65535, and an IPv6 address in brackets, such as "
        "[::1]:8000");
  }
  if (status.ok()) status = listener->OpenWakeUp();
  if (!status.ok()) {
    return status.Prefixed("cannot listen on \"" + address + "\"");
  }
  return listener;
}

Status Listener::OpenWakeUp() {
  wake_up_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return wake_up_fd_ >= 0 ? Status::Ok() : Status::FailedPrecondition(ErrorText(errno));
}

Status Listener::BindUnix(const std::string& path, unsigned mode) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return Status::FailedPrecondition("the path of a unix socket has 1 to " +
                                      std::to_string(sizeof(address.sun_path) - 1) + " bytes, this one " +
                                      std::to_string(path.size()));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  // A server that was killed has left its socket behind.
  struct stat status = {};
  if (stat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode)) unlink(path.c_str());
  const int fd = Listen(SocketAddress(&address, sizeof(address)), mode);
  if (fd < 0) return Status::FailedPrecondition(ErrorText(-fd));
  fds_.push_back(fd);
  unix_path_ = path;
  if (mode != kDefaultUnixMode) (void)chmod(path.c_str(), mode);  // not less than the umask allows
  if (stat(path.c_str(), &status) == 0) unix_inode_ = status.st_ino;
  return Status::Ok();
}

Status Listener::BindTcp(const std::string& host, int port) {
  REVERB_ASSIGN_OR_RETURN(std::vector<SocketAddress> addresses, Resolve(host));
  // The IPv6 wildcard serves IPv4 too; the other one is for machines without IPv6.
  const bool is_wildcard = std::ranges::any_of(addresses, &SocketAddress::IsWildcard);
  if (is_wildcard) addresses = {Wildcard(AF_INET6), Wildcard(AF_INET)};
  int error = EADDRNOTAVAIL;
  for (int attempt = 0; attempt < (port == 0 ? kPortAttempts : 1); ++attempt) {
    port_ = port;
    error = EADDRNOTAVAIL;
    for (SocketAddress& address : addresses) {
      address.SetPort(port_);
      const int fd = Listen(address);
      if (fd < 0) {
        error = -fd;
        if (IsNotOnThisMachine(error)) continue;
        break;
      }
      fds_.push_back(fd);
      error = 0;
      SocketAddress bound;
      bound.size = sizeof(bound.storage);
      if (getsockname(fd, bound.get(), &bound.size) == 0) port_ = bound.port();
      if (is_wildcard) break;
    }
    if (!fds_.empty() && (error == 0 || IsNotOnThisMachine(error))) {
      address_ =
          (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + std::to_string(port_);
      return Status::Ok();
    }
    for (const int fd : std::exchange(fds_, {})) close(fd);
    if (error != EADDRINUSE) break;
  }
  return Status::FailedPrecondition(ErrorText(error));
}

// --- Accepting ------------------------------------------------------------------------------------

Status Listener::Start(OnConnection on_connection) {
  on_connection_ = std::move(on_connection);
  MutexLock lock(&mu_);
  const auto run = [](void* listener) -> void* {
    auto* const self = static_cast<Listener*>(listener);
    self->Run();
    self->thread_ended_.Unpark();
    return nullptr;
  };
  if (!StartDetachedThread("rv-accept", run, this)) {
    return Status::ResourceExhausted("cannot listen on " + address_ + ": the system has no thread left");
  }
  is_running_ = true;
  return Status::Ok();
}

Listener::~Listener() { Stop(); }

void Listener::Stop() {
  MutexLock lock(&mu_);
  if (std::exchange(is_running_, false)) {
    const uint64_t one = 1;
    (void)!write(wake_up_fd_, &one, sizeof(one));
    thread_ended_.Park();
  }
  CloseAll();
}

void Listener::CloseAll() {
  for (const int fd : std::exchange(fds_, {})) close(fd);
  if (wake_up_fd_ >= 0) close(std::exchange(wake_up_fd_, -1));
  const std::string path = std::exchange(unix_path_, {});
  struct stat status = {};
  if (!path.empty() && stat(path.c_str(), &status) == 0 && status.st_ino == unix_inode_) unlink(path.c_str());
}

void Listener::Run() {
  std::vector<pollfd> polled{{.fd = wake_up_fd_, .events = POLLIN, .revents = 0}};
  for (const int fd : fds_) polled.push_back({.fd = fd, .events = POLLIN, .revents = 0});
  while (true) {
    (void)poll(polled.data(), polled.size(), -1);
    if (polled[0].revents != 0) return;
    bool has_failed = false;
    for (size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents != 0 && !AcceptOne(polled[i].fd)) has_failed = true;
    }
    // Stop() ends the pause.
    if (has_failed) (void)poll(polled.data(), 1, static_cast<int>(kPause.count()));
  }
}

bool Listener::AcceptOne(int listening_fd) {
  const int fd = accept4(listening_fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) {
    const int error = errno;
    if (error == EAGAIN || IsConnectionError(error)) return true;
    log_.Log(LogLevel::kError, "accept",
             "cannot accept connections on " + address_ + ": " + std::strerror(error) +
                 (error == EMFILE ? "; close connections, or raise the limit of file descriptors (ulimit -n, "
                                    "or LimitNOFILE of systemd)"
                                  : "") +
                 "; clients that connect wait until it works again");
    return false;
  }
  if (const std::optional<std::string> why = DescriptorShortage(fd)) {
    // Closes the connection without a reason: gRPC's clients then back off and report an error. A client that
    // receives an HTTP/2 GOAWAY with a reason reconnects immediately, forever, and never reports the reason.
    log_.Log(LogLevel::kWarning, "refuse",
             "refused a connection to " + address_ + ": " + *why +
                 "; close connections, or raise the limit (ulimit -n, or LimitNOFILE of systemd)",
             {{"event", kEventRefusal}, {"endpoint", address_}});
    close(fd);
    return true;
  }
  on_connection_(fd);
  return true;
}

}  // namespace reverb::internal
