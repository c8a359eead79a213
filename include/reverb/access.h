// access.h — who may use a server: TLS for its port, and tokens with rights.
//
//   const std::string token = reverb::AddToken("tokens", {.name = "actors", .write = true}).value();
//   auto server = reverb::Server::Start({.tables = {{.name = "replay"}}, .auth = {{.tokens_file = "tokens"}}}).value();
//   auto client = reverb::Client::Connect("localhost:8000", {.token = token}).value();
//
// A token is 256 random bits. The file has its SHA-256 only: nobody can guess such a token, so that a slow hash, which
// passwords need, would add nothing. docs/operations.md describes the security model.
//
// Threads: values and free functions. Two processes must not change a tokens file at the same time.
#ifndef REVERB_ACCESS_H_
#define REVERB_ACCESS_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reverb/status.h"

namespace reverb {

// The files of a server that speaks TLS, in PEM. The server reads them again when they change.
struct ServerTls {
  std::string certificate = {};  // with those of intermediate authorities after it
  std::string key = {};          // of the certificate
  // Clients must have a certificate signed by one of these authorities; empty: clients need no certificate.
  std::string client_ca = {};
};

// How a client speaks TLS. It reads the files when it connects first.
struct ClientTls {
  std::string ca = {};  // the authorities that may sign the server's certificate; empty: those of the system
  // The client's own, for servers that require one; both or neither.
  std::string certificate = {};
  std::string key = {};
  // The name that the server's certificate must have; empty: the host of the address.
  std::string server_name = {};
};

// What a token permits.
enum class Right : uint8_t {
  kRead,   // sample, peek, claim rows
  kWrite,  // insert, update priorities, write rows
  kAdmin,  // reset, delete, create, remove and change tables, write checkpoints
};
// Returns "read", "write" or "admin".
std::string_view RightName(Right right);

// What several clients may take together; absent = no limit.
struct UsageLimits {
  std::optional<int64_t> max_streams = {};  // further ones are refused
  std::optional<int64_t> max_bytes_per_second =
      {};  // of items and rows in both directions; clients are slowed down
  std::optional<int64_t> max_waiting_bytes = {};  // received data that is not in its table yet; writers wait

  bool empty() const { return !max_streams && !max_bytes_per_second && !max_waiting_bytes; }
  // INVALID_ARGUMENT names the field.
  [[nodiscard]] Status Validate() const;
};

struct TokenOptions {
  std::string name = {};  // 1 to 64 letters, digits, ".", "_" and "-"; appears in errors and logs
  bool read = false;
  bool write = false;
  bool admin = false;
  // Patterns of the names of tables: "*" stands for any characters, "?" for one.
  std::vector<std::string> tables = {"*"};
  std::optional<std::chrono::system_clock::time_point> expires = {};
  // Limits for all clients that use the token, together; absent = none.
  std::optional<int64_t> max_streams = {};  // further ones are refused
  std::optional<int64_t> max_bytes_per_second =
      {};  // of items and rows in both directions; faster clients are slowed down
  std::optional<int64_t> max_waiting_bytes =
      {};  // received items and rows that are not in their tables yet; writers wait

  // INVALID_ARGUMENT names the field.
  [[nodiscard]] Status Validate() const;
};

struct TokenEntry {
  TokenOptions options;
  std::string sha256;  // of the token, 64 hexadecimal digits
};

// Adds a token to a file, which is created with mode 0600 if there is none, and returns its text. That is the only
// time that it can be seen. ALREADY_EXISTS if the file has a token of that name.
Result<std::string> AddToken(const std::string& path, const TokenOptions& options);
// NOT_FOUND if the file has no such token.
Status RemoveToken(const std::string& path, const std::string& name);
// INVALID_ARGUMENT names the line that is damaged.
Result<std::vector<TokenEntry>> ReadTokens(const std::string& path);

struct AuthOptions {
  std::string tokens_file = {};
  // Processes of the server's host that run as its user have all rights without a token. They could read the
  // server's memory anyway; without this, a mistake in one of them needs a token too.
  bool trust_same_user = false;
};

// What a client does that has a token for a server on another host and does not use TLS: anybody on the way
// could read the token.
enum class PlaintextToken : uint8_t {
  kWarn,    // logs it once
  kRefuse,  // fails
  kAllow,
};

}  // namespace reverb

#endif  // REVERB_ACCESS_H_
