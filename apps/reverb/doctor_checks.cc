// The checks that only need answers of the server.
#include "doctor_checks.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>
#include <utility>

#include "text.h"
#include "version.h"

namespace reverb::program {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int kRoundTrips = 5;

std::string ShowMillis(std::chrono::nanoseconds time) {
  return Format("%.2f ms", std::chrono::duration<double, std::milli>(time).count());
}

// Splits host:port. The host has no brackets.
std::pair<std::string, std::string> SplitAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return {host, colon == std::string::npos ? "" : address.substr(colon + 1)};
}

std::string ShowSocketAddress(const addrinfo& at) {
  char host[NI_MAXHOST] = "?";
  (void)getnameinfo(at.ai_addr, at.ai_addrlen, host, sizeof(host), nullptr, 0, NI_NUMERICHOST);
  return host;
}

// Returns the time that a TCP connection takes, or why there is none.
Result<std::chrono::nanoseconds> ConnectTime(const addrinfo& at, std::chrono::milliseconds timeout) {
  const int descriptor = socket(at.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return Status::Unavailable(std::strerror(errno));
  const SteadyClock::time_point start = SteadyClock::now();
  int error = connect(descriptor, at.ai_addr, at.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd ready{.fd = descriptor, .events = POLLOUT, .revents = 0};
    socklen_t size = sizeof(error);
    error = ETIMEDOUT;
    if (poll(&ready, 1, static_cast<int>(timeout.count())) > 0) {
      getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size);
    }
  }
  const auto took = SteadyClock::now() - start;
  close(descriptor);
  if (error != 0) return Status::Unavailable(std::strerror(error));
  return took;
}

std::string ReadFirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

bool IsThisHost(const ServerInfo& info) {
  return !info.boot_id.empty() && info.boot_id == ReadFirstLine("/proc/sys/kernel/random/boot_id");
}

// "reverb 0.1.0 (commit …)" -> "0.1.0".
std::string VersionNumber(const std::string& text) {
  const size_t begin = text.find_first_of("0123456789");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_first_not_of("0123456789.", begin) - begin);
}

Finding CompareVersions(const std::string& server, const std::string& program) {
  Finding finding{.check = "version", .text = "server " + ShowName(server) + ", this program " + program};
  if (VersionNumber(server) != VersionNumber(program)) {
    finding.verdict = Verdict::kWarning;
    finding.advice = "use the same release on both sides; docs/operations.md describes upgrades";
  }
  return finding;
}

// The skew of the server's clock, between two bounds.
struct Skew {
  std::chrono::nanoseconds least = std::chrono::nanoseconds::min();
  std::chrono::nanoseconds most = std::chrono::nanoseconds::max();
};

Finding JudgeSkew(const Skew& skew) {
  // Ages in checkpoints and of items come from the wall clock.
  constexpr std::chrono::seconds kMaxSkew(1);
  const auto middle = skew.least + (skew.most - skew.least) / 2;
  const auto uncertainty = (skew.most - skew.least) / 2;
  Finding finding{
      .check = "clock",
      .text = "the server's clock differs by " + ShowMillis(middle) + ", within " + ShowMillis(uncertainty)};
  if (skew.least > kMaxSkew || skew.most < -kMaxSkew) {
    finding.verdict = Verdict::kWarning;
    finding.advice =
        "synchronize the clocks of both machines (NTP): time stamps of logs and ages of items do not agree";
  }
  return finding;
}

}  // namespace

const char* VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kSkipped:
      return "skipped";
    case Verdict::kWarning:
      return "warning";
    case Verdict::kFailure:
      return "failure";
  }
  return "failure";
}

Findings CheckReachability(const std::string& address, std::chrono::milliseconds timeout) {
  if (address.starts_with("unix:")) {
    const std::string path = address.substr(std::strlen("unix:"));
    struct stat status {};
    if (stat(path.c_str(), &status) == 0)
      return {{.check = "address", .text = "the socket " + path + " exists"}};
    return {{.check = "address",
             .verdict = Verdict::kFailure,
             .text = path + ": " + std::strerror(errno),
             .advice = "start a server whose configuration has this path as its local_path"}};
  }
  const auto [host, port] = SplitAddress(address);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const SteadyClock::time_point start = SteadyClock::now();
  const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  const auto took = SteadyClock::now() - start;
  if (error != 0) {
    return {{.check = "dns",
             .verdict = Verdict::kFailure,
             .text = ShowName(host) + ": " + gai_strerror(error),
             .advice = "check the name, and the resolver of this machine (/etc/resolv.conf, /etc/hosts)"}};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(found, &freeaddrinfo);
  Findings findings;
  std::vector<std::string> names;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) names.push_back(ShowSocketAddress(*at));
  findings.push_back(
      {.check = "dns", .text = ShowName(host) + " is " + Join(names, ", ") + " (" + ShowMillis(took) + ")"});
  constexpr std::chrono::milliseconds kSlowName(500);
  if (took > kSlowName) {
    findings.back().verdict = Verdict::kWarning;
    findings.back().advice = "resolving the name is slow; check the resolver, or use an address";
  }
  std::string reason;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const Result<std::chrono::nanoseconds> connected = ConnectTime(*at, timeout);
    if (connected.ok()) {
      findings.push_back({.check = "connect",
                          .text = "a TCP connection to " + ShowSocketAddress(*at) + " port " +
                                  ShowName(port) + " takes " + ShowMillis(*connected)});
      return findings;
    }
    reason = connected.status().message();
  }
  findings.push_back({.check = "connect",
                      .verdict = Verdict::kFailure,
                      .text = "no connection to " + ShowName(address) + ": " + reason,
                      .advice =
                          "is a server running there, does it listen on this address (--host), and does a "
                          "firewall allow the port?"});
  return findings;
}

Result<Findings> CheckServer(const Client& client, const Remote& remote, ServerInfo* info) {
  Skew skew;
  auto fastest = std::chrono::nanoseconds::max();
  for (int i = 0; i < kRoundTrips; ++i) {
    const auto start = SteadyClock::now();
    const auto before = std::chrono::system_clock::now().time_since_epoch();
    REVERB_ASSIGN_OR_RETURN(*info, client.Info(remote.wait()));
    const auto after = std::chrono::system_clock::now().time_since_epoch();
    fastest = std::min<std::chrono::nanoseconds>(fastest, SteadyClock::now() - start);
    if (info->now_nanos == 0) continue;
    // The server read its clock between the two moments; it is accurate to some milliseconds.
    constexpr std::chrono::milliseconds kResolution(5);
    const std::chrono::nanoseconds server(info->now_nanos);
    skew.least = std::max<std::chrono::nanoseconds>(skew.least, server - after - kResolution);
    skew.most = std::min<std::chrono::nanoseconds>(skew.most, server - before + kResolution);
  }
  Findings findings;
  findings.push_back({.check = "answer", .text = "the server answers in " + ShowMillis(fastest)});
  findings.push_back(CompareVersions(info->server_name, "reverb " + Version()));
  if (info->now_nanos != 0) findings.push_back(JudgeSkew(skew));
  return findings;
}

Findings CheckTransport(const Client& client, const Remote& remote, const ServerInfo& info) {
  const Result<std::vector<Transport>> transports = client.Transports(remote.wait());
  if (!transports.ok()) return {};
  const Transport used = transports->front();
  Finding finding{.check = "transport", .text = "this program uses " + std::string(TransportName(used))};
  if (used == Transport::kGrpc && IsThisHost(info) && !info.local_path.empty()) {
    finding.verdict = Verdict::kWarning;
    finding.text += ", although the server is on this host";
    if (info.user_id && *info.user_id != static_cast<int64_t>(geteuid())) {
      finding.advice = "shared memory is for processes of the server's user (" +
                       std::to_string(*info.user_id) +
                       "); run clients as that user, or set local = \"any user\" and local_path";
    } else {
      finding.advice = "the socket " + ShowName(info.local_path) +
                       " cannot be reached: share its folder with the clients' containers, and check "
                       "REVERB_LOCAL; docs/same_host.md has the details";
    }
  } else if (used == Transport::kGrpc && IsThisHost(info)) {
    finding.verdict = Verdict::kWarning;
    finding.text += ", because the server has no local endpoint";
    finding.advice =
        "remove local = false from its configuration; its log says why if it could not create one";
  }
  return {finding};
}

Findings CheckEncryption(const std::string& address) {
  if (address.starts_with("unix:")) return {{.check = "tls", .text = "a local socket needs no encryption"}};
  const std::string host = SplitAddress(address).first;
  if (host == "localhost" || host == "::1" || host.starts_with("127.")) {
    return {{.check = "tls", .text = "the connection is not encrypted; it does not leave this machine"}};
  }
  return {
      {.check = "tls",
       .verdict = Verdict::kWarning,
       .text = "the connection is not encrypted, and every client that reaches the port may do everything",
       .advice = "keep the port on a private network"}};
}

Findings CheckTables(const ServerInfo& info) {
  constexpr std::chrono::minutes kLong(1);
  Findings findings;
  for (const TableInfo& table : info.tables) {
    const std::string name = "table " + Quote(table.name);
    if (table.closed) {
      findings.push_back({.check = "tables",
                          .verdict = Verdict::kWarning,
                          .text = name + " is closed",
                          .advice = "restart the server, or remove the table"});
    }
    if (std::chrono::nanoseconds(table.longest_wait_nanos) < kLong) continue;
    const bool inserts = table.waiting_inserts > 0;
    findings.push_back(
        {.check = "tables",
         .verdict = Verdict::kWarning,
         .text = name + ": " + ShowCount(table.waiting_inserts + table.waiting_samples, "call") +
                 " waiting, the first for " +
                 ShowDuration(std::chrono::nanoseconds(table.longest_wait_nanos)) + ": " +
                 std::string(WaitReasonName(inserts ? table.insert_wait_reason : table.sample_wait_reason)),
         .advice = "`reverb top` shows who waits; docs/why_does_it_wait.md has the remedies"});
  }
  if (findings.empty()) {
    findings.push_back({.check = "tables",
                        .text = ShowCount(static_cast<int64_t>(info.tables.size()), "table") +
                                ", no call waits for longer than a minute"});
  }
  return findings;
}

}  // namespace reverb::program
