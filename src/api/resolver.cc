#include "api/resolver.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <system_error>
#include <utility>

#include "base/server_registry.h"

namespace reverb::internal {
namespace {

constexpr std::string_view kDnsScheme = "dns:///";
constexpr std::string_view kFileScheme = "file://";

class DnsResolver final : public Resolver {
 public:
  DnsResolver(std::string host, std::string port) : host_(std::move(host)), port_(std::move(port)) {}

  Result<std::vector<ResolvedServer>> Resolve(TimePoint) override {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int error = getaddrinfo(host_.c_str(), port_.c_str(), &hints, &found); error != 0) {
      return Status::Unavailable("\"" + host_ + "\" has no address: " + gai_strerror(error));
    }
    std::vector<std::string> v4, v6;
    for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
      char text[INET6_ADDRSTRLEN] = {};
      if (one->ai_family == AF_INET) {
        const auto* address = reinterpret_cast<const sockaddr_in*>(one->ai_addr);
        if (inet_ntop(AF_INET, &address->sin_addr, text, sizeof text) != nullptr) {
          v4.push_back(std::string(text) + ":" + port_);
        }
      } else if (one->ai_family == AF_INET6) {
        const auto* address = reinterpret_cast<const sockaddr_in6*>(one->ai_addr);
        if (inet_ntop(AF_INET6, &address->sin6_addr, text, sizeof text) != nullptr) {
          v6.push_back("[" + std::string(text) + "]:" + port_);
        }
      }
    }
    freeaddrinfo(found);
    std::vector<ResolvedServer> servers;
    for (std::vector<std::string>* addresses : {&v4, &v6}) {
      std::ranges::sort(*addresses);
      addresses->erase(std::unique(addresses->begin(), addresses->end()), addresses->end());
      // A server may have addresses of both families.
      const bool is_alternative = addresses == &v6 && !v4.empty();
      for (const std::string& address : *addresses) {
        servers.push_back({.address = address, .is_alternative = is_alternative});
      }
    }
    return servers;
  }

 private:
  const std::string host_;
  const std::string port_;
};

class FolderResolver final : public Resolver {
 public:
  explicit FolderResolver(std::string folder) : reader_(std::move(folder)) {}

  Result<std::vector<ResolvedServer>> Resolve(TimePoint now) override {
    REVERB_ASSIGN_OR_RETURN(const std::vector<RegisteredServer> registered, reader_.Read(now));
    std::vector<ResolvedServer> servers;
    for (const RegisteredServer& one : registered) {
      const auto known = std::ranges::find(servers, one.address, &ResolvedServer::address);
      if (known == servers.end()) {
        servers.push_back({.address = one.address, .shard = one.shard});
      } else if (known->shard != one.shard) {
        known->shard = 0;  // one of the two files belongs to a life that has ended
      }
    }
    return servers;
  }

 private:
  RegistryReader reader_;
};

bool IsPort(std::string_view text) {
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port > 0;
}

}  // namespace

std::vector<std::string> SplitAddresses(std::string_view list) {
  std::vector<std::string> addresses;
  while (true) {
    const size_t comma = list.find(',');
    std::string_view one = list.substr(0, comma);
    while (one.starts_with(' ')) one.remove_prefix(1);
    while (one.ends_with(' ')) one.remove_suffix(1);
    addresses.emplace_back(one);
    if (comma == std::string_view::npos) return addresses;
    list.remove_prefix(comma + 1);
  }
}

bool IsResolvedAddress(std::string_view address) {
  return address.starts_with("dns:") || address.starts_with(kFileScheme);
}

Result<std::unique_ptr<Resolver>> MakeResolver(const std::string& address) {
  if (address.starts_with(kFileScheme)) {
    REVERB_ASSIGN_OR_RETURN(std::string folder, RegistryFolder(address));
    return std::unique_ptr<Resolver>(std::make_unique<FolderResolver>(std::move(folder)));
  }
  const size_t colon = address.rfind(':');
  const bool is_valid = address.starts_with(kDnsScheme) && colon > kDnsScheme.size() &&
                        address.find(',') == std::string::npos && IsPort(address.substr(colon + 1));
  if (!is_valid) {
    return Status::InvalidArgument("address \"" + address +
                                   "\" is not one of a set of servers; give it as dns:///name:port, for "
                                   "example dns:///replay.default.svc:8000");
  }
  return std::unique_ptr<Resolver>(std::make_unique<DnsResolver>(
      address.substr(kDnsScheme.size(), colon - kDnsScheme.size()), address.substr(colon + 1)));
}

}  // namespace reverb::internal
