#include "transport/local/endpoint.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>

namespace reverb::internal {
namespace {

constexpr std::string_view kUnixScheme = "unix:";

std::string LocalFolder() { return "/tmp/reverb-" + std::to_string(geteuid()); }

std::string ToLower(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

std::string ErrorText(int error) { return std::strerror(error); }

struct HostAndPort {
  std::string host;  // without brackets
  int port = 0;
};

std::optional<HostAndPort> SplitAddress(std::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const std::string_view digits = address.substr(colon + 1);
  int port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size() || port < 1 || port > 65535) {
    return std::nullopt;
  }
  std::string_view host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return HostAndPort{.host = std::string(host), .port = port};
}

bool IsWildcardHost(std::string_view host) { return host.empty() || host == "0.0.0.0" || host == "::"; }
bool IsLoopback4(std::string_view host) { return host == "localhost" || host.starts_with("127."); }
bool IsLoopback6(std::string_view host) {
  return host == "localhost" || host == "::1" || host == "0:0:0:0:0:0:0:1";
}

// Compares an address of an interface with a numeric host.
bool IsAddress(const sockaddr* address, int family, const void* host) {
  if (address == nullptr || address->sa_family != family) return false;
  if (family == AF_INET) {
    return std::memcmp(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr, host, sizeof(in_addr)) == 0;
  }
  return std::memcmp(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, host, sizeof(in6_addr)) == 0;
}

bool HasInterface(int family, const void* host) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return false;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(all, &freeifaddrs);
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (IsAddress(each->ifa_addr, family, host)) return true;
  }
  return false;
}

// Returns whether only this user can create files in the folder.
Status CheckFolder(const std::string& folder) {
  struct stat info {};
  if (lstat(folder.c_str(), &info) != 0) {
    return Status::NotFound("the folder " + folder +
                            " cannot be used for local sockets: " + ErrorText(errno));
  }
  if (S_ISDIR(info.st_mode) && info.st_uid == geteuid() && (info.st_mode & 077) == 0) return Status::Ok();
  return Status(StatusCode::kPermissionDenied,
                "the folder " + folder +
                    " is not used for local sockets, since other users could put one "
                    "there: it must be a folder that belongs to user " +
                    std::to_string(geteuid()) + " with mode 0700; remove it");
}

}  // namespace

bool IsUnixAddress(std::string_view address) { return address.starts_with(kUnixScheme); }

bool IsThisHost(std::string_view host) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const std::string name = ToLower(host);
  in_addr four{};
  if (inet_pton(AF_INET, name.c_str(), &four) == 1) {
    const uint32_t number = ntohl(four.s_addr);
    return number >> 24 == 127 || number == INADDR_ANY || HasInterface(AF_INET, &four);
  }
  in6_addr six{};
  if (inet_pton(AF_INET6, name.c_str(), &six) == 1) {
    if (IN6_IS_ADDR_V4MAPPED(&six)) {
      std::memcpy(&four, &six.s6_addr[12], sizeof(four));
      return ntohl(four.s_addr) >> 24 == 127 || HasInterface(AF_INET, &four);
    }
    return IN6_IS_ADDR_LOOPBACK(&six) || IN6_IS_ADDR_UNSPECIFIED(&six) || HasInterface(AF_INET6, &six);
  }
  if (name.empty()) return false;
  if (name == "localhost" || name == "localhost.") return true;
  char own[256] = {};
  if (gethostname(own, sizeof(own) - 1) != 0) return false;
  const std::string full = ToLower(own);
  return name == full || name == full.substr(0, full.find('.'));
}

std::string LocalSocketPath(int port) {
  return LocalFolder() + "/" + std::to_string(NetworkNamespace()) + "-" + std::to_string(port) + ".sock";
}

std::optional<std::string> LocalSocketPath(std::string_view address) {
  if (IsUnixAddress(address)) {
    address.remove_prefix(kUnixScheme.size());
    if (address.starts_with("///")) address.remove_prefix(2);  // unix:///path
    if (address.empty()) return std::nullopt;
    return std::string(address);
  }
  const std::optional<HostAndPort> split = SplitAddress(address);
  if (!split || !IsThisHost(split->host)) return std::nullopt;
  return LocalSocketPath(split->port);
}

bool ServesAddress(std::string_view served, std::string_view wanted) {
  if (served.empty() || wanted.empty() || wanted.starts_with("unix:") || served == wanted) return true;
  const std::optional<HostAndPort> ours = SplitAddress(served);
  const std::optional<HostAndPort> theirs = SplitAddress(wanted);
  if (!ours || !theirs || ours->port != theirs->port) return false;
  if (IsWildcardHost(ours->host) || ours->host == theirs->host) return true;
  // The client has found out that the name or address is one of this host.
  if (theirs->host == "localhost") return IsLoopback4(ours->host) || IsLoopback6(ours->host);
  if (ours->host == "localhost") return IsLoopback4(theirs->host) || IsLoopback6(theirs->host);
  return false;
}

Status PrepareLocalFolder() {
  const std::string folder = LocalFolder();
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return Status::Unavailable("the folder " + folder +
                               " for local sockets cannot be created: " + ErrorText(errno));
  }
  return CheckFolder(folder);
}

Result<SocketFile> FindLocalSocket(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    return Status::NotFound("there is no local socket " + path + ": " + ErrorText(errno));
  }
  if (!S_ISSOCK(info.st_mode)) return Status::NotFound(path + " is not a socket");
  const std::string folder = LocalFolder();
  if (path.starts_with(folder + "/")) REVERB_RETURN_IF_ERROR(CheckFolder(folder));
  return SocketFile{.device = info.st_dev,
                    .inode = info.st_ino,
                    .changed_nanos = int64_t{info.st_ctim.tv_sec} * 1'000'000'000 + info.st_ctim.tv_nsec};
}

Status CheckLocalListener(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return Status::InvalidArgument("the path of the local socket " + path + " has " +
                                   std::to_string(path.size()) + " bytes; at most " +
                                   std::to_string(sizeof(address.sun_path) - 1) + " are possible");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return Status::Unavailable("no socket could be created: " + ErrorText(errno));
  const int error =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ? 0 : errno;
  close(fd);
  // EAGAIN: the server has not accepted earlier connections yet.
  if (error == 0 || error == EAGAIN || error == EINPROGRESS) return Status::Ok();
  const bool is_forbidden = error == EACCES || error == EPERM;
  return Status(is_forbidden ? StatusCode::kPermissionDenied : StatusCode::kUnavailable,
                "no connection to the local socket " + path + ": " + ErrorText(error));
}

bool IsLocalEnabled() {
  const char* const setting = std::getenv("REVERB_LOCAL");
  if (setting == nullptr) return true;
  const std::string value = ToLower(setting);
  return value != "0" && value != "off" && value != "false" && value != "no";
}

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

uint64_t NetworkNamespace() {
  struct stat info {};
  return stat("/proc/self/ns/net", &info) == 0 ? info.st_ino : 0;
}

}  // namespace reverb::internal
