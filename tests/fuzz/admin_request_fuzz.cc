// admin_request_fuzz.cc — the parts of an HTTP request that we read ourselves: the target, and Host with Origin. A target
// that parses can be encoded and parsed again to the same; a host that is accepted is an IP address or a known name.
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "admin/host_check.h"
#include "admin/query.h"
#include "fuzz_target.h"

namespace {

std::string Encode(std::string_view text) {
  std::string encoded;
  for (const char c : text) {
    char code[4];
    std::snprintf(code, sizeof code, "%%%02X", static_cast<unsigned char>(c));
    encoded += code;
  }
  return encoded;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reverb;            // NOLINT
  using namespace reverb::internal;  // NOLINT
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t line = text.find('\n');
  const std::string_view target = text.substr(0, line);
  const std::string host(line == std::string_view::npos ? "" : text.substr(line + 1));

  const Result<RequestTarget> parsed = ParseTarget(target);
  if (parsed.ok()) {
    std::string again = "/";
    for (size_t i = 0; i < parsed->path.size(); ++i) again += Encode(parsed->path[i]) + "/";
    again += "?";
    for (const auto& [name, value] : parsed->parameters) again += "&" + Encode(name) + "=" + Encode(value);
    const Result<RequestTarget> second = ParseTarget(again);
    FUZZ_CHECK(second.ok());
    FUZZ_CHECK(second->path == parsed->path);
    FUZZ_CHECK(second->parameters == parsed->parameters);
    (void)parsed->CheckNames({"limit", "after"});
    (void)parsed->Integer("limit", 1, 1, 100);
    (void)parsed->Number("limit", 1, 0.2, 60);
    (void)parsed->Key("after");
  } else {
    FUZZ_CHECK(parsed.status().code() == StatusCode::kInvalidArgument);
    FUZZ_CHECK(parsed.status().message().size() < 700);
  }

  static const HostCheck check = HostCheck::Make("127.0.0.1", {"known.example"}).value();
  if (check.Check(host, std::nullopt).ok()) {
    std::string name =
        host.starts_with('[') ? host.substr(0, host.find(']') + 1) : host.substr(0, host.find(':'));
    for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    FUZZ_CHECK(IsIpLiteral(name) || name == "localhost" || name == "known.example");
    FUZZ_CHECK(check.Check(host, "http://" + host).ok());
    FUZZ_CHECK(!check.Check(host, "http://" + host + "x").ok());
  }
  (void)HostCheck::Make("localhost", {host});
  return 0;
}
