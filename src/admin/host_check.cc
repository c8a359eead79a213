#include "admin/host_check.h"

#include <arpa/inet.h>

#include <algorithm>

#include "view/shown_text.h"

namespace reverb::internal {
namespace {

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

// Returns the host of "host", "host:port", "[::1]" or "[::1]:port".
std::string_view WithoutPort(std::string_view text) {
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    return end == std::string_view::npos ? text : text.substr(0, end + 1);
  }
  return text.substr(0, text.find(':'));
}

}  // namespace

bool IsIpLiteral(std::string_view host) {
  in_addr v4{};
  in6_addr v6{};
  const std::string text(host);
  if (host.starts_with('[') && host.ends_with(']') && host.size() > 2) {
    return inet_pton(AF_INET6, text.substr(1, text.size() - 2).c_str(), &v6) == 1;
  }
  return inet_pton(AF_INET, text.c_str(), &v4) == 1;
}

Result<HostCheck> HostCheck::Make(const std::string& listen_host, const std::vector<std::string>& hosts) {
  HostCheck check;
  check.names_ = {"localhost", LowerCase(listen_host)};
  for (const std::string& host : hosts) {
    const auto is_bad = [](char c) {
      return static_cast<unsigned char>(c) <= ' ' || c == '/' || c == ',' || c == '"' || c == '*';
    };
    if (host.empty() || std::ranges::any_of(host, is_bad) || WithoutPort(host) != host) {
      return Status::InvalidArgument("admin: the host \"" + ShowName(host) +
                                     "\" is no name of a machine; give one without a port, such as "
                                     "\"replay.example.org\"");
    }
    check.names_.push_back(LowerCase(host));
  }
  return check;
}

Status HostCheck::Check(const std::optional<std::string>& host,
                        const std::optional<std::string>& origin) const {
  if (!host || host->empty()) {
    return Status::InvalidArgument("the request has no Host header; send the address that you connect to");
  }
  const std::string name = LowerCase(WithoutPort(*host));
  if (!IsIpLiteral(name) && std::ranges::find(names_, name) == names_.end()) {
    return {StatusCode::kPermissionDenied,
            "the admin port does not know the host \"" + ShowName(name) +
                "\"; add it to hosts of [admin], or use localhost or an IP address"};
  }
  if (!origin) return Status::Ok();
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (LowerCase(*origin) == std::string(scheme) + LowerCase(*host)) return Status::Ok();
  }
  return {StatusCode::kPermissionDenied, "the request comes from a page of another origin, \"" +
                                             ShowName(*origin) +
                                             "\"; open the admin page of this server instead"};
}

}  // namespace reverb::internal
