// The handle of include/reverb/server.h over src/server.
#include "reverb/server.h"

#include <utility>

#include "api/client_rep.h"
#include "api/sample_factory.h"
#include "server/server.h"
#include "transport/local/endpoint.h"

namespace reverb {

struct Server::Rep {
  std::unique_ptr<internal::ServerImpl> server;
};

namespace {

internal::ServiceLimits ToServiceLimits(const ServerLimits& limits) {
  internal::ServiceLimits to;
  to.wire.max_message_bytes = limits.max_message_bytes;
  to.wire.max_chunk_bytes = limits.max_chunk_bytes;
  to.max_item_bytes = limits.max_item_bytes;
  to.insert_window_bytes = limits.insert_window_bytes;
  to.max_waiting_items = limits.max_waiting_items;
  to.sample_window_bytes = limits.sample_window_bytes;
  to.max_streams = limits.max_streams;
  to.disconnected_session_ttl = limits.disconnected_session_ttl;
  to.max_disconnected_bytes = limits.max_disconnected_bytes;
  to.wire.max_window_bytes = limits.max_window_bytes;
  return to;
}

}  // namespace

Result<Server> Server::Start(ServerOptions options) {
  internal::ServerImpl::Options inner;
  inner.tables = std::move(options.tables);
  inner.store.max_bytes = options.store.max_bytes;
  inner.store.policy =
      options.store.evict_when_full ? internal::MemoryPolicy::kEvict : internal::MemoryPolicy::kBlock;
  inner.limits = ToServiceLimits(options.limits);
  inner.checkpoint = std::move(options.checkpoint);
  if (options.port) {
    if (*options.port < 0 || *options.port > 65535) {
      return Status::InvalidArgument("port " + std::to_string(*options.port) +
                                     " does not exist; give one from 1 to 65535, or 0 for any that is free");
    }
    inner.address = options.host + ":" + std::to_string(*options.port);
  }
  if (options.local == LocalAccess::kAnyUser && options.local_path.empty()) {
    return Status::InvalidArgument(
        "local access for any user needs a socket that other users can reach: give its path (local_path), "
        "and "
        "let their clients connect to unix:PATH");
  }
  if (options.local == LocalAccess::kOff && !options.local_path.empty()) {
    return Status::InvalidArgument("local_path is \"" + options.local_path +
                                   "\", but local access is off; leave one of them out");
  }
  if (options.local != LocalAccess::kOff && internal::IsLocalEnabled()) {
    inner.local = {.path = std::move(options.local_path),
                   .same_user_only = options.local == LocalAccess::kSameUser,
                   .max_pinned_bytes = options.limits.max_pinned_bytes,
                   .stalled_client_timeout = options.limits.stalled_client_timeout};
  }
  auto rep = std::make_unique<Rep>();
  REVERB_ASSIGN_OR_RETURN(rep->server, internal::ServerImpl::Start(std::move(inner)));
  return Server(std::move(rep));
}

Server::Server(std::unique_ptr<Rep> rep) : rep_(std::move(rep)) {}
Server::Server(Server&&) noexcept = default;
Server& Server::operator=(Server&&) noexcept = default;
Server::~Server() = default;

int Server::port() const { return rep_->server->port(); }
std::string Server::local_path() const { return rep_->server->local_path(); }

Result<Table> Server::table(std::string_view name) const {
  REVERB_ASSIGN_OR_RETURN(std::shared_ptr<internal::ConcurrentTable> table, rep_->server->table(name));
  return internal::TableFactory::Make(std::move(table));
}

std::optional<std::string> Server::loaded_checkpoint() const { return rep_->server->loaded_checkpoint(); }

Client Server::in_process_client(ClientOptions options) const {
  const std::shared_ptr<Client::Rep> rep(new Client::Rep(), Client::Rep::Delete());
  rep->address = "this process";
  rep->is_pinned = true;
  rep->options = options;
  rep->servers.push_back(internal::ServerLink::Pinned(rep_->server->Connect(), std::move(options)));
  return Client(rep);
}

void Server::Stop() { rep_->server->Stop(); }

}  // namespace reverb
