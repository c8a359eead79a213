#include "api/client_security.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "base/log.h"

namespace reverb::internal {
namespace {

constexpr size_t kMaxClientTokenBytes = 512;

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Result<std::string> TokenFromFile(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) {
    return Status::InvalidArgument(
        "the file \"" + path + "\" (REVERB_TOKEN_FILE) cannot be read, or has no token in its first line");
  }
  while (line.ends_with('\r') || line.ends_with(' ')) line.pop_back();
  return line;
}

Status CheckToken(const std::string& token) {
  if (token.size() > kMaxClientTokenBytes) {
    return Status::InvalidArgument("the client's token has " + std::to_string(token.size()) +
                                   " bytes; tokens have 512 at most");
  }
  // It is sent in a header of HTTP.
  if (std::ranges::any_of(token, [](char c) { return c <= ' ' || c > '~'; })) {
    return Status::InvalidArgument(
        "the client's token has a space, a line break or another character that tokens do not have");
  }
  return Status::Ok();
}

}  // namespace

Result<ClientOptions> WithEnvironment(ClientOptions options) {
  if (!options.tls) {
    ClientTls tls{.ca = Variable("REVERB_TLS_CA"),
                  .certificate = Variable("REVERB_TLS_CERTIFICATE"),
                  .key = Variable("REVERB_TLS_KEY"),
                  .server_name = Variable("REVERB_TLS_SERVER_NAME")};
    const std::string chosen = Variable("REVERB_TLS");
    if (chosen == "1" || (chosen.empty() && !(tls.ca.empty() && tls.certificate.empty()))) {
      options.tls = std::move(tls);
    } else if (!chosen.empty() && chosen != "0") {
      return Status::InvalidArgument("the environment variable REVERB_TLS is \"" + chosen +
                                     "\"; set it to 1 or 0");
    }
  }
  if (options.token.empty()) options.token = Variable("REVERB_TOKEN");
  if (options.token.empty()) {
    if (const std::string path = Variable("REVERB_TOKEN_FILE"); !path.empty()) {
      REVERB_ASSIGN_OR_RETURN(options.token, TokenFromFile(path));
    }
  }
  REVERB_RETURN_IF_ERROR(CheckToken(options.token));
  return options;
}

bool IsThisMachine(std::string_view host) {
  return host.starts_with("127.") || host == "localhost" || host == "[::1]" || host == "::1";
}

Status CheckPlaintextToken(const std::string& address, bool is_sent, PlaintextToken policy) {
  if (!is_sent || policy == PlaintextToken::kAllow || address.starts_with("unix:") ||
      IsThisMachine(address.substr(0, address.rfind(':')))) {
    return Status::Ok();
  }
  const std::string text = "the client's token is sent to the server at " + address +
                           " in plaintext, where others can read it; use TLS";
  if (policy == PlaintextToken::kRefuse) {
    return Status::FailedPrecondition(text +
                                      " (tls, REVERB_TLS_CA, --tls-ca), or permit it (plaintext_token)");
  }
  static LogEvery log(RealClock(), std::chrono::hours(1));
  log.Log(LogLevel::kWarning, address, text);
  return Status::Ok();
}

}  // namespace reverb::internal
