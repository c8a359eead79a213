// access_control.h — decides which client may do what, by its token.
//
// AccessControl authenticates callers and gives each a CheckedHandler (checked_handler.h), which checks every call. The
// tokens come from a file that is read again when it changes. A stream whose token is removed, changed or expired ends
// within about a second.
//
// Ownership: handlers, open streams and its thread keep the AccessControl alive; the owner calls Stop(), which ends the
// thread.
// Threads: all methods may be called concurrently.
#ifndef REVERB_ACCESS_ACCESS_CONTROL_H_
#define REVERB_ACCESS_ACCESS_CONTROL_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>

#include "access/rights.h"
#include "access/token_file.h"
#include "access/usage.h"
#include "base/mutex.h"
#include "reverb/access.h"
#include "reverb/server_info.h"
#include "reverb/status.h"
#include "transport/access_gate.h"
#include "transport/transport.h"

namespace reverb::internal {

// A token of the file. The object is replaced when its line changes.
class AccessToken {
 public:
  AccessToken(TokenOptions options, const TokenDigest& digest);

  const std::string& name() const { return options_.name; }
  const TokenOptions& options() const { return options_; }
  const TokenDigest& digest() const { return digest_; }
  const std::shared_ptr<UsageMeter>& meter() const { return meter_; }

  bool is_for_all_tables() const { return is_for_all_tables_; }
  bool MayUse(std::string_view table) const;
  // Removes the tables that the token is not for, and what waits for them.
  void HideOtherTables(ServerInfo* info) const;
  bool Has(Right right) const;
  bool is_expired() const;
  // PERMISSION_DENIED names the token, the right and the table; UNAUTHENTICATED if the token has expired. An empty
  // table is not checked.
  Status Check(const Need& need, std::string_view action, std::string_view table) const;

 private:
  const TokenOptions options_;
  const TokenDigest digest_;
  const bool is_for_all_tables_;
  const std::shared_ptr<UsageMeter> meter_;
};

class AccessControl final : public AccessGate, public std::enable_shared_from_this<AccessControl> {
 public:
  // Without `auth`, everybody has all rights; admin actions are logged all the same. `client_limits` apply to all
  // clients of one name together, with or without tokens. Fails if the tokens cannot be read.
  static Result<std::shared_ptr<AccessControl>> Start(std::optional<AuthOptions> auth,
                                                      std::shared_ptr<RequestHandler> handler,
                                                      const UsageLimits& client_limits = {});
  ~AccessControl() override;

  Result<std::shared_ptr<RequestHandler>> Admit(const Caller& caller) override;
  // Returns the token with this text; UNAUTHENTICATED without one, and for one that is unknown or expired. For ports
  // that do not use the handlers: AccessToken::Check() then checks each request. Null if no tokens are configured.
  Result<std::shared_ptr<const AccessToken>> Authenticate(std::string_view text) const EXCLUDES(mu_);
  // Reads the file again now. After an error, the former tokens stay in use.
  Status Reload() EXCLUDES(mu_, reload_mu_);
  // The file is no longer read, and no stream is ended any more.
  void Stop() EXCLUDES(mu_);

  // --- For the handlers ---

  // Returns the present state of a token that was authenticated earlier.
  Result<std::shared_ptr<const AccessToken>> Find(const TokenDigest& digest, const std::string& name) const
      EXCLUDES(mu_);
  // Returns what a client counts in: its token's meter, if it has one, and that of its name, if those are limited.
  Usage UsageOf(const std::shared_ptr<const AccessToken>& token, const std::string& client_name)
      EXCLUDES(mu_);
  // Registers a stream, which is ended by calling `end` when its token ends. An error if it has ended already.
  Result<uint64_t> AddStream(const std::shared_ptr<const AccessToken>& token, std::function<void(Status)> end)
      EXCLUDES(mu_);
  void RemoveStream(uint64_t id) EXCLUDES(mu_);

  size_t num_streams() const EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    return streams_.size();
  }

 private:
  using Tokens = std::map<TokenDigest, std::shared_ptr<const AccessToken>>;
  struct Stream {
    std::shared_ptr<const AccessToken> token;
    std::function<void(Status)> end;
  };
  // Identifies a version of a file.
  struct FileStamp {
    int64_t inode = -1;
    int64_t bytes = -1;
    int64_t changed_nanos = -1;
    friend bool operator==(const FileStamp&, const FileStamp&) = default;
  };

  AccessControl(std::optional<AuthOptions> auth, std::shared_ptr<RequestHandler> handler,
                const UsageLimits& client_limits)
      : auth_(std::move(auth)), handler_(std::move(handler)), client_limits_(client_limits) {}

  FileStamp StampOfFile() const;
  Status Load() REQUIRES(reload_mu_) EXCLUDES(mu_);
  // Ends the streams of tokens that are gone, changed or expired.
  void EndStreams() EXCLUDES(mu_);
  void Run() EXCLUDES(mu_, reload_mu_);

  const std::optional<AuthOptions> auth_;
  const std::shared_ptr<RequestHandler> handler_;
  const UsageLimits client_limits_;
  std::thread thread_;

  Mutex reload_mu_;  // held while the file is read
  FileStamp stamp_ GUARDED_BY(reload_mu_);

  mutable Mutex mu_;
  CondVar stopping_;
  bool is_stopped_ GUARDED_BY(mu_) = false;
  Tokens tokens_ GUARDED_BY(mu_);
  std::map<std::string, std::shared_ptr<UsageMeter>, std::less<>> clients_ GUARDED_BY(mu_);  // by name
  uint64_t last_stream_ GUARDED_BY(mu_) = 0;
  std::unordered_map<uint64_t, Stream> streams_ GUARDED_BY(mu_);
};

}  // namespace reverb::internal

#endif  // REVERB_ACCESS_ACCESS_CONTROL_H_
