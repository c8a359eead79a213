#include "remote.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "exit_codes.h"
#include "terminal.h"
#include "text.h"

namespace reverb::program {
namespace {

constexpr std::string_view kUnknownHost = " is a host name that is not known here";
constexpr std::string_view kRefused =
    "the server closes new connections; its log should state the reason, such as no file descriptors left";

std::string PortOf(const std::string& address) {
  const size_t colon = address.rfind(':');
  return colon == std::string::npos ? "8000" : address.substr(colon + 1);
}

// Returns why the server does not respond on a new connection; empty if it does or if that is unknown. A gRPC
// server sends its settings immediately; one that accepts no more connections closes it.
std::string WhyClosed(int descriptor, std::chrono::milliseconds timeout) {
  constexpr std::chrono::milliseconds kMaxWait(200);  // other servers may wait for the client
  pollfd ready{.fd = descriptor, .events = POLLIN, .revents = 0};
  if (poll(&ready, 1, static_cast<int>(std::min(timeout, kMaxWait).count())) <= 0) return "";
  char first = 0;
  const ssize_t got = recv(descriptor, &first, 1, MSG_DONTWAIT);
  if (got > 0 || (got < 0 && errno == EAGAIN)) return "";
  return std::string(kRefused);
}

// Returns why no connection to any of a host's addresses succeeds; empty if one does or if that is unknown.
std::string WhyNot(const addrinfo& at, std::chrono::milliseconds timeout) {
  const int descriptor = socket(at.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return std::strerror(errno);
  int error = connect(descriptor, at.ai_addr, at.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd ready{.fd = descriptor, .events = POLLOUT, .revents = 0};
    socklen_t size = sizeof(error);
    error = 0;
    if (poll(&ready, 1, static_cast<int>(timeout.count())) > 0) {
      getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size);
    }
  }
  const std::string reason = error == 0 ? WhyClosed(descriptor, timeout) : std::strerror(error);
  close(descriptor);
  return reason;
}

// A client retries until the timeout. This check reports a mistyped address immediately.
Status Probe(const std::string& address, std::chrono::milliseconds timeout) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return Status::Ok();
  if (address.starts_with("unix:")) {
    const std::string path = address.substr(colon + 1);
    return access(path.c_str(), F_OK) == 0 ? Status::Ok() : Status::Unavailable(std::strerror(errno));
  }
  for (const char* proxy : {"grpc_proxy", "https_proxy", "http_proxy"}) {
    if (std::getenv(proxy) != nullptr) return Status::Ok();  // gRPC connects through the proxy
  }
  std::string host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found); error != 0) {
    return Status::Unavailable(std::string(gai_strerror(error)) + ": " + Quote(host) +
                               std::string(kUnknownHost));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(found, &freeaddrinfo);
  std::string reason;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    reason = WhyNot(*at, timeout);
    if (reason.empty()) return Status::Ok();
  }
  return Status::Unavailable(reason);
}

// Returns the part after the last colon of gRPC's chain of reasons: "Connection refused".
std::string LastReason(std::string_view message) {
  const size_t colon = message.rfind(": ");
  return ShowName(colon == std::string_view::npos ? message : message.substr(colon + 2));
}

}  // namespace

CLI::Validator SecondsBetween(double least, double most) {
  const auto check = [least, most](std::string& text) -> std::string {
    const Result<double> seconds = ParseNumber(text);
    if (seconds.ok() && *seconds >= least && *seconds <= most) return "";
    return "expected a time from " + ShowNumber(least) + " to " + ShowNumber(most) + " seconds; got " +
           Quote(text);
  };
  return CLI::Validator(check, "");
}

bool IsSet(std::string_view address) {
  return address.find(',') != std::string_view::npos || address.starts_with("dns:") ||
         address.starts_with("file:");
}

void Remote::AddTo(CLI::App* app) {
  command = app->get_name();
  app->add_option("ADDRESS", address,
                  "The server, as host:port or unix:path; several, separated by commas, dns:///name:port or "
                  "file:///path are used as one")
      ->required()
      ->type_name("");
  app->add_option("--timeout", timeout_seconds, "How long to wait for an answer")
      ->type_name("SECONDS")
      ->check(SecondsBetween(0.001, 1e6))
      ->capture_default_str();
  const auto add_file = [app](const std::string& name, std::string* to, const std::string& help) {
    app->add_option(name, *to, help)->type_name("FILE")->group("TLS and tokens");
  };
  add_file(
      "--tls-ca", &tls.ca,
      "Speak TLS: the authorities that may sign the server's certificate, in PEM (default: the environment "
      "variable REVERB_TLS_CA; none)");
  add_file("--tls-certificate", &tls.certificate,
           "This client's certificate, if the server requires one (default: REVERB_TLS_CERTIFICATE)");
  add_file("--tls-key", &tls.key, "Its key (default: REVERB_TLS_KEY)");
  app->add_option(
         "--tls-server-name", tls.server_name,
         "The name that the server's certificate must have (default: REVERB_TLS_SERVER_NAME; the host of "
         "ADDRESS)")
      ->type_name("NAME")
      ->group("TLS and tokens");
  add_file("--token-file", &token_file,
           "A file whose first line is the client's token (default: REVERB_TOKEN, REVERB_TOKEN_FILE)");
}

Result<ClientOptions> Remote::Options() const {
  ClientOptions options{.in_process = false, .name = "reverb " + command};
  if (!tls.ca.empty() || !tls.certificate.empty() || !tls.key.empty() || !tls.server_name.empty()) {
    ClientTls chosen = tls;
    const auto fill = [](std::string* field, const char* variable) {
      const char* const value = field->empty() ? std::getenv(variable) : nullptr;
      if (value != nullptr) *field = value;
    };
    fill(&chosen.ca, "REVERB_TLS_CA");
    fill(&chosen.certificate, "REVERB_TLS_CERTIFICATE");
    fill(&chosen.key, "REVERB_TLS_KEY");
    fill(&chosen.server_name, "REVERB_TLS_SERVER_NAME");
    options.tls = std::move(chosen);
  }
  if (!token_file.empty()) {
    std::ifstream file(token_file);
    if (!std::getline(file, options.token) || options.token.empty()) {
      return Status::InvalidArgument("--token-file " + token_file +
                                     ": cannot be read, or its first line is empty; it should be a token");
    }
    while (options.token.ends_with('\r') || options.token.ends_with(' ')) options.token.pop_back();
  }
  return options;
}

Result<Client> Remote::Connect() const {
  REVERB_ASSIGN_OR_RETURN(ClientOptions options, Options());
  REVERB_ASSIGN_OR_RETURN(Client client, Client::Connect(address, std::move(options)));
  if (IsSet(address)) return client;  // some of its servers may be down
  REVERB_RETURN_IF_ERROR(
      Probe(address, std::chrono::duration_cast<std::chrono::milliseconds>(*wait().timeout)));
  return client;
}

Result<RemoteTable> Remote::Find(const std::string& table) const {
  REVERB_ASSIGN_OR_RETURN(Client client, Connect());
  REVERB_ASSIGN_OR_RETURN(ServerInfo server, client.Info(wait()));
  REVERB_ASSIGN_OR_RETURN(TableInfo found, FindTable(server, table));
  return RemoteTable{.client = std::move(client), .server = std::move(server), .table = std::move(found)};
}

Result<RemoteTable> Remote::FindAny(const std::string& table) const {
  REVERB_ASSIGN_OR_RETURN(Client client, Connect());
  REVERB_ASSIGN_OR_RETURN(ServerInfo server, client.Info(wait()));
  RemoteTable found{.client = std::move(client), .server = std::move(server), .table = {}};
  found.rows = FindRowTable(found.server, table);
  if (found.rows) return found;
  REVERB_ASSIGN_OR_RETURN(found.table, FindTable(found.server, table));
  return found;
}

bool Remote::MayChange(bool yes, const std::string& question) const {
  if (yes || Confirm(question)) return true;
  std::fprintf(stderr, "reverb %s: nothing was changed%s\n", command.c_str(),
               IsTerminal(0) ? "" : ": standard input is not a terminal, and --yes was not given");
  return false;
}

WaitOptions Remote::wait() const {
  return {.timeout = std::chrono::duration_cast<std::chrono::nanoseconds>(
              std::chrono::duration<double>(timeout_seconds))};
}

int Remote::Fail(const Status& status) const {
  const std::string who = "reverb " + command + ": ";
  const std::string message(status.message());
  const std::string start = address.starts_with("unix:")
                                ? "Is a server running whose configuration has this path as its local_path?"
                                : "Is a server running there? To start one:\n  reverb serve --port " +
                                      PortOf(address) + " --table replay:uniform:fifo:1000000";
  const auto say = [](const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); };
  const bool is_limited = status.detail() == Detail::kRateLimited || status.detail() == Detail::kMemoryFull ||
                          status.detail() == Detail::kQueued;
  // The message names the servers of a set that failed, and those that did not.
  const bool names_servers = IsSet(address);
  const std::string all_reasons = ShowName(message, 4000) + ".";
  switch (status.code()) {
    case StatusCode::kUnavailable:
      if (names_servers) {
        say(who + all_reasons);
      } else if (message.ends_with(kUnknownHost)) {
        say(who + message + ". Check the address, " + address + ".");
      } else if (message == kRefused) {
        say(who + address + ": " + message);
      } else {
        say(who + "no server at " + address + ": " + LastReason(message) + ". " + start);
      }
      return kUnreachable;
    case StatusCode::kDeadlineExceeded:
      if (is_limited) {
        say(who + message + ".\nUse a longer --timeout to wait longer.");
        return kTimedOut;
      }
      say(who +
          (names_servers
               ? all_reasons
               : "no answer from " + address + " in " + ShowNumber(timeout_seconds) + " s. " + start) +
          "\nOn a slow network a longer --timeout may help.");
      return kUnreachable;
    case StatusCode::kUnimplemented:
      say(who +
          (names_servers
               ? all_reasons
               : "the server at " + address + " does not speak this protocol (" + ShowName(message) + ").") +
          " It may be a server of dm-reverb or another program.");
      return kUnreachable;
    case StatusCode::kNotFound:
      say(who + message);
      return kNotFound;
    case StatusCode::kInvalidArgument:
      say(who + message);
      return kBadUsage;
    case StatusCode::kUnauthenticated:
    case StatusCode::kPermissionDenied:
      say(who + message);
      return kFailed;
    default:
      say(who + status.ToString());
      return kFailed;
  }
}

std::string WhyNoSample(const TableInfo& table) {
  const RateLimiterOptions& limiter = table.rate_limiter;
  if (table.current_size < limiter.min_size_to_sample) {
    return "it holds " + ShowCount(table.current_size, "item") + ", and sampling waits for " +
           ShowCount(limiter.min_size_to_sample);
  }
  return "the limiter waits for inserts: the cursor is " + ShowNumber(table.cursor) +
         ", its lower bound is " + ShowNumber(limiter.min_diff);
}

void AddTableName(CLI::App* app, std::string* table) {
  app->add_option("TABLE", *table, "The table's name; `reverb info` lists them")->required()->type_name("");
}

Result<TableInfo> FindTable(const ServerInfo& info, const std::string& table) {
  std::vector<std::string> names;
  for (const TableInfo& known : info.tables) {
    if (known.name == table) return known;
    names.push_back(ShowName(known.name));
  }
  for (const RowTableInfo& known : info.row_tables) {
    if (known.settings.name == table) {
      return Status::NotFound(Quote(table) +
                              " is a row table, and this command is for tables of items. `reverb info`, "
                              "`peek`, `delete`, `reset` and `table remove` work on row tables.");
    }
    names.push_back(ShowName(known.settings.name));
  }
  return Status::NotFound("there is no table " + Quote(table) + " on this server." +
                          (names.empty() ? " It has none." : Suggest(table, names)));
}

std::optional<RowTableInfo> FindRowTable(const ServerInfo& info, const std::string& table) {
  for (const RowTableInfo& known : info.row_tables) {
    if (known.settings.name == table) return known;
  }
  return std::nullopt;
}

}  // namespace reverb::program
