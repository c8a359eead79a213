#include "access/access_control.h"

#include <pthread.h>
#include <sys/stat.h>

#include <algorithm>
#include <vector>

#include "access/checked_handler.h"
#include "access/glob.h"
#include "base/log.h"

namespace reverb::internal {
namespace {

// How often the file is looked at, and expired tokens are looked for.
constexpr std::chrono::seconds kPollInterval{1};
// How many names of clients are remembered although no client of that name is connected.
constexpr size_t kMaxClients = 4096;

Status Unauthenticated(std::string text) { return Status(StatusCode::kUnauthenticated, std::move(text)); }
Status Denied(std::string text) { return Status(StatusCode::kPermissionDenied, std::move(text)); }

std::string TokenText(const std::string& name) { return "token \"" + name + "\""; }

// Table names come from clients.
std::string Shortened(std::string_view text) {
  constexpr size_t kMost = 200;
  return text.size() <= kMost ? std::string(text) : std::string(text.substr(0, kMost)) + "…";
}

std::string List(const std::vector<std::string>& patterns) {
  constexpr size_t kMaxListed = 10;
  std::string text;
  for (size_t i = 0; i < std::min(patterns.size(), kMaxListed); ++i) {
    text += (i == 0 ? "\"" : ", \"") + Shortened(patterns[i]) + "\"";
  }
  return patterns.size() > kMaxListed ? text + ", …" : text;
}

Status Expired(const AccessToken& token) {
  return Unauthenticated(TokenText(token.name()) + " expired at " + TimeText(*token.options().expires) +
                         "; use a new one (`reverb token new`)");
}
Status Removed(const std::string& name) {
  return Unauthenticated(TokenText(name) + " was removed from the server's tokens file; use another one");
}

}  // namespace

// --- One token ------------------------------------------------------------------------------------

AccessToken::AccessToken(TokenOptions options, const TokenDigest& digest)
    : options_(std::move(options)),
      digest_(digest),
      is_for_all_tables_(std::ranges::find(options_.tables, "*") != options_.tables.end()),
      meter_(std::make_shared<UsageMeter>(TokenText(options_.name),
                                          UsageLimits{.max_streams = options_.max_streams,
                                                      .max_bytes_per_second = options_.max_bytes_per_second,
                                                      .max_waiting_bytes = options_.max_waiting_bytes})) {}

bool AccessToken::MayUse(std::string_view table) const {
  return is_for_all_tables_ || std::ranges::any_of(options_.tables, [table](const std::string& pattern) {
           return MatchesGlob(pattern, table);
         });
}

void AccessToken::HideOtherTables(ServerInfo* info) const {
  if (is_for_all_tables_) return;
  std::erase_if(info->tables, [this](const TableInfo& table) { return !MayUse(table.name); });
  std::erase_if(info->row_tables, [this](const RowTableInfo& table) { return !MayUse(table.settings.name); });
  std::erase_if(info->waiters, [this](const WaiterInfo& waiter) { return !MayUse(waiter.table); });
}

bool AccessToken::Has(Right right) const {
  switch (right) {
    case Right::kRead:
      return options_.read;
    case Right::kWrite:
      return options_.write;
    case Right::kAdmin:
      return options_.admin;
  }
  return false;
}

bool AccessToken::is_expired() const {
  return options_.expires && std::chrono::system_clock::now() >= *options_.expires;
}

Status AccessToken::Check(const Need& need, std::string_view action, std::string_view table) const {
  if (is_expired()) return Expired(*this);
  const std::string what(action);
  if (need.needs_right && !Has(need.right)) {
    return Denied(what + (table.empty() ? "" : " of table \"" + Shortened(table) + "\"") + ": " +
                  TokenText(name()) + " lacks the right \"" + std::string(RightName(need.right)) +
                  "\"; use a token that has it");
  }
  if (need.for_all_tables && !is_for_all_tables_) {
    return Denied(what + ": " + TokenText(name()) + " is for the tables " + List(options_.tables) +
                  " only, and this concerns all tables; use a token for \"*\"");
  }
  if (!table.empty() && !MayUse(table)) {
    return Denied(what + " of table \"" + Shortened(table) + "\": " + TokenText(name()) +
                  " is for the tables " + List(options_.tables) + " only; use a token for this table");
  }
  return Status::Ok();
}

// --- All tokens -----------------------------------------------------------------------------------

Result<std::shared_ptr<AccessControl>> AccessControl::Start(std::optional<AuthOptions> auth,
                                                            std::shared_ptr<RequestHandler> handler,
                                                            const UsageLimits& client_limits) {
  REVERB_RETURN_IF_ERROR(client_limits.Validate().Prefixed("the limits of clients"));
  std::shared_ptr<AccessControl> control(
      new AccessControl(std::move(auth), std::move(handler), client_limits));
  if (!control->auth_) return control;
  if (control->auth_->tokens_file.empty()) {
    return Status::InvalidArgument("auth needs the path of a tokens file; `reverb token new` creates one");
  }
  {
    MutexLock lock(&control->reload_mu_);
    REVERB_RETURN_IF_ERROR(control->Load());
  }
  control->thread_ = std::thread([control] { control->Run(); });
  return control;
}

AccessControl::~AccessControl() { Stop(); }

void AccessControl::Stop() {
  {
    MutexLock lock(&mu_);
    is_stopped_ = true;
    stopping_.NotifyAll();
  }
  if (!thread_.joinable()) return;
  // The thread's reference may be the last one.
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

Result<std::shared_ptr<RequestHandler>> AccessControl::Admit(const Caller& caller) {
  const auto self = shared_from_this();
  if (!auth_) return std::shared_ptr<RequestHandler>(CheckedHandler::Trusted(self, handler_, caller.address));
  // A client that sends a token is held to it, wherever it runs.
  if (caller.token.empty() && caller.is_this_process) {
    return std::shared_ptr<RequestHandler>(CheckedHandler::Trusted(self, handler_, "the server's process"));
  }
  if (caller.token.empty() && auth_->trust_same_user && caller.is_same_user) {
    return std::shared_ptr<RequestHandler>(
        CheckedHandler::Trusted(self, handler_, "the server's user, " + caller.address));
  }
  const Result<std::shared_ptr<const AccessToken>> token = Authenticate(caller.token);
  if (!token.ok()) {
    CountRefusal(token.status());
    return token.status();
  }
  return std::shared_ptr<RequestHandler>(CheckedHandler::Of(self, handler_, *token, caller.address));
}

Result<std::shared_ptr<const AccessToken>> AccessControl::Authenticate(std::string_view text) const {
  if (!auth_) return std::shared_ptr<const AccessToken>();
  if (text.empty()) {
    return Unauthenticated(
        "the server needs a token, and the client has sent none; give the client one (token, REVERB_TOKEN, "
        "--token-file)");
  }
  const Status unknown = Unauthenticated(
      "the server does not know the client's token; it may have been removed, or belong to another server");
  if (text.size() > kMaxTokenBytes) return unknown;
  const TokenDigest digest = HashToken(text);
  std::shared_ptr<const AccessToken> found;
  {
    MutexLock lock(&mu_);
    // All of them, so that the time does not tell which digits are right.
    for (const auto& [known, token] : tokens_) {
      if (SameDigest(known, digest)) found = token;
    }
  }
  if (found == nullptr) return unknown;
  if (found->is_expired()) return Expired(*found);
  return found;
}

Result<std::shared_ptr<const AccessToken>> AccessControl::Find(const TokenDigest& digest,
                                                               const std::string& name) const {
  std::shared_ptr<const AccessToken> found;
  {
    MutexLock lock(&mu_);
    const auto entry = tokens_.find(digest);
    if (entry != tokens_.end()) found = entry->second;
  }
  if (found == nullptr) return Removed(name);
  if (found->is_expired()) return Expired(*found);
  return found;
}

// --- Streams ---

Usage AccessControl::UsageOf(const std::shared_ptr<const AccessToken>& token,
                             const std::string& client_name) {
  Usage usage;
  if (token != nullptr) usage.Add(token->meter());
  if (client_limits_.empty()) return usage;
  MutexLock lock(&mu_);
  std::shared_ptr<UsageMeter>& meter = clients_[client_name];
  if (meter == nullptr) {
    meter = std::make_shared<UsageMeter>(
        client_name.empty() ? "clients without a name" : "client \"" + Shortened(client_name) + "\"",
        client_limits_);
  }
  usage.Add(meter);
  // Names come from clients: those that need not be remembered are forgotten, and the others if there are too many.
  if (clients_.size() > kMaxClients) {
    const TimePoint now = RealClock()->Now();
    std::erase_if(clients_, [now](const auto& client) {
      return client.second.use_count() == 1 && client.second->IsIdle(now);
    });
  }
  if (clients_.size() > kMaxClients) {
    std::erase_if(clients_, [](const auto& client) { return client.second.use_count() == 1; });
  }
  return usage;
}

Result<uint64_t> AccessControl::AddStream(const std::shared_ptr<const AccessToken>& token,
                                          std::function<void(Status)> end) {
  MutexLock lock(&mu_);
  const auto entry = tokens_.find(token->digest());
  if (entry == tokens_.end()) return Removed(token->name());
  if (entry->second != token) return Status::Unavailable(TokenText(token->name()) + " has just changed");
  streams_.emplace(++last_stream_, Stream{.token = token, .end = std::move(end)});
  return last_stream_;
}

void AccessControl::RemoveStream(uint64_t id) {
  Stream removed;  // destroyed without the lock
  MutexLock lock(&mu_);
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  removed = std::move(found->second);
  streams_.erase(found);
}

void AccessControl::EndStreams() {
  std::vector<std::pair<Stream, Status>> ended;
  {
    MutexLock lock(&mu_);
    for (auto stream = streams_.begin(); stream != streams_.end();) {
      const AccessToken& token = *stream->second.token;
      const auto present = tokens_.find(token.digest());
      Status why;
      if (present == tokens_.end()) {
        why = Removed(token.name());
      } else if (token.is_expired()) {
        why = Expired(token);
      } else if (present->second.get() != &token) {
        // The client connects again, and has the new rights then.
        why = Status::Unavailable(TokenText(token.name()) + " has changed in the server's tokens file");
      }
      if (why.ok()) {
        ++stream;
        continue;
      }
      ended.emplace_back(std::move(stream->second), std::move(why));
      stream = streams_.erase(stream);
    }
  }
  for (auto& [stream, why] : ended) stream.end(std::move(why));
}

// --- The file ---

AccessControl::FileStamp AccessControl::StampOfFile() const {
  struct stat about {};
  if (stat(auth_->tokens_file.c_str(), &about) != 0) return {};
  constexpr int64_t kNanos = 1'000'000'000;
  return {.inode = static_cast<int64_t>(about.st_ino),
          .bytes = static_cast<int64_t>(about.st_size),
          .changed_nanos = about.st_ctim.tv_sec * kNanos + about.st_ctim.tv_nsec};
}

Status AccessControl::Load() {
  stamp_ = StampOfFile();  // first: a change while the file is read is seen later
  uint32_t mode = 0;
  REVERB_ASSIGN_OR_RETURN(const std::string text, ReadTokensFile(auth_->tokens_file, &mode));
  if ((mode & 0002) != 0) {
    return Status::InvalidArgument("tokens file \"" + auth_->tokens_file +
                                   "\" can be written by all users; change its mode (chmod 600)");
  }
  Result<std::vector<TokenEntry>> entries = ParseTokens(text);
  if (!entries.ok()) return entries.status().Prefixed("tokens file \"" + auth_->tokens_file + "\"");
  Tokens tokens;
  for (TokenEntry& entry : *entries) {
    REVERB_ASSIGN_OR_RETURN(const TokenDigest digest, ParseDigest(entry.sha256));
    tokens.emplace(digest, std::make_shared<const AccessToken>(std::move(entry.options), digest));
  }
  MutexLock lock(&mu_);
  for (auto& [digest, token] : tokens) {
    const auto former = tokens_.find(digest);
    if (former == tokens_.end()) continue;
    // An unchanged token keeps its counts of streams and bytes.
    const auto line = [](const AccessToken& of) { return FormatTokens({{of.options(), ""}}); };
    if (line(*former->second) == line(*token)) token = former->second;
  }
  tokens_.swap(tokens);
  return Status::Ok();
}

Status AccessControl::Reload() {
  if (!auth_) return Status::Ok();
  Status status;
  {
    MutexLock lock(&reload_mu_);
    status = Load();
  }
  if (status.ok()) EndStreams();
  return status;
}

void AccessControl::Run() {
  pthread_setname_np(pthread_self(), "rv-access");
  while (true) {
    {
      MutexLock lock(&mu_);
      if (!is_stopped_) stopping_.WaitFor(&mu_, kPollInterval);
      if (is_stopped_) return;
    }
    {
      MutexLock lock(&reload_mu_);
      if (StampOfFile() != stamp_) {
        const Status status = Load();
        Log(status.ok() ? LogLevel::kInfo : LogLevel::kError,
            status.ok() ? "read the tokens file \"" + auth_->tokens_file + "\" again"
                        : std::string(status.message()) + "; the tokens that were read before stay in use");
      }
    }
    EndStreams();
  }
}

}  // namespace reverb::internal
