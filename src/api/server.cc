// The handle of include/reverb/server.h over src/server.
#include "reverb/server.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "access/tls_files.h"
#include "admin/admin_port.h"
#include "api/admin_source.h"
#include "api/client_rep.h"
#include "api/client_security.h"
#include "api/sample_factory.h"
#include "base/duration_text.h"
#include "base/machine_memory.h"
#include "base/memory_budget.h"
#include "base/mutex.h"
#include "base/server_registry.h"
#include "server/server.h"
#include "transport/grpc/grpc_connection.h"
#include "transport/local/endpoint.h"

namespace reverb {

struct Server::Rep {
  std::unique_ptr<internal::ServerImpl> server;
  std::unique_ptr<internal::AdminPort> admin;  // uses the server; null if there is none
  internal::Mutex mu;
  std::unique_ptr<internal::ServerRegistration> registration GUARDED_BY(mu);
};

namespace {

constexpr int64_t kMinMemoryLimit = int64_t{16} << 20;

internal::ServiceLimits ToServiceLimits(const ServerLimits& limits) {
  internal::ServiceLimits to;
  to.wire.max_message_bytes = limits.max_message_bytes;
  to.wire.max_chunk_bytes = limits.max_chunk_bytes;
  to.max_item_bytes = limits.max_item_bytes;
  to.wire.max_decoded_item_bytes = limits.max_decoded_item_bytes;
  to.insert_window_bytes = limits.insert_window_bytes;
  to.max_waiting_items = limits.max_waiting_items;
  to.sample_window_bytes = limits.sample_window_bytes;
  to.max_streams = limits.max_streams;
  to.disconnected_session_ttl = limits.disconnected_session_ttl;
  to.max_disconnected_bytes = limits.max_disconnected_bytes;
  to.sequence_number_ttl = limits.sequence_number_ttl;
  to.max_remembered_writers = limits.max_remembered_writers;
  to.wire.max_window_bytes = limits.max_window_bytes;
  return to;
}

// `memory_limit`: of the server.
Result<internal::ChunkTier::Options> ToTierOptions(StorageOptions options, int64_t memory_limit) {
  const int64_t kept = internal::MemoryBudget::SharesOf(memory_limit).kept;
  if (options.memory_limit && *options.memory_limit > kept) {
    return Status::InvalidArgument(
        "storage: memory_limit is " + std::to_string(*options.memory_limit) + ", more than the " +
        std::to_string(kept) + " bytes that the memory_limit of the server, " + std::to_string(memory_limit) +
        ", leaves for data; lower it, leave it out, or raise that of the server");
  }
  if (options.disk_limit && *options.disk_limit < 1) {
    return Status::InvalidArgument("storage: disk_limit is " + std::to_string(*options.disk_limit) +
                                   "; give the bytes that the files may take, or leave it out");
  }
  return internal::ChunkTier::Options{.path = std::move(options.path),
                                      .memory_limit = options.memory_limit.value_or(kept / 4 * 3),
                                      .disk_limit = options.disk_limit.value_or(0)};
}

std::string AdvertisedAddress(const std::string& host, int port) {
  const bool is_any = host == "[::]" || host == "0.0.0.0";
  char name[256] = {};
  if (is_any && gethostname(name, sizeof name - 1) == 0)
    return std::string(name) + ":" + std::to_string(port);
  return (is_any ? "localhost" : host) + ":" + std::to_string(port);
}

// The address is a line of the registry's file, and clients must be able to connect to it.
Status CheckAdvertisedAddress(const std::string& address) {
  Status status = internal::CheckGrpcAddress(address);
  const auto is_forbidden = [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == ','; };
  if (status.ok() && std::ranges::any_of(address, is_forbidden)) {
    status = Status::InvalidArgument(
        "address \"" + address +
        "\" contains a space, a comma or a control character; give one address as host:port");
  }
  return status.ok() ? status : status.Prefixed("advertised_address");
}

// Returns why a server must not listen with these options; OK unless others could use or overhear it.
Status CheckExposure(const ServerOptions& options) {
  std::string host = options.host;
  if (!options.port || internal::IsThisMachine(host)) {
    if (!options.admin) return Status::Ok();
    REVERB_ASSIGN_OR_RETURN(const internal::HostAndPort admin, internal::SplitAddress(options.admin->listen));
    host = admin.host;
    if (internal::IsThisMachine(host)) return Status::Ok();
  }
  const bool authenticates = options.auth || (options.tls && !options.tls->client_ca.empty());
  if (authenticates && options.tls) return Status::Ok();
  return Status::FailedPrecondition(
      "the server would listen on " + host + ", which other machines reach, " +
      (authenticates
           ? "and others could read what is sent; give it a certificate (tls)"
           : std::string("and everybody there could read, change and delete its tables; give it tokens "
                         "(auth)") +
                 (options.tls ? " or the authority of its clients' certificates (client_ca)"
                              : " and a certificate (tls)")) +
      ", let it listen on 127.0.0.1, or start it without strict");
}

std::string HexadecimalId(const internal::Id128& id) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : id) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace

Result<Server> Server::Start(ServerOptions options) {
  if (options.strict) REVERB_RETURN_IF_ERROR(CheckExposure(options));
  internal::ServerImpl::Options inner;
  if (options.tls) {
    REVERB_ASSIGN_OR_RETURN(inner.tls, internal::TlsFiles::Load(*std::move(options.tls)));
  }
  inner.auth = std::move(options.auth);
  inner.tables = std::move(options.tables);
  inner.row_tables = std::move(options.row_tables);
  inner.store.max_bytes = options.store.max_bytes;
  inner.store.policy =
      options.store.evict_when_full ? internal::MemoryPolicy::kEvict : internal::MemoryPolicy::kBlock;
  if (options.memory_limit && *options.memory_limit < kMinMemoryLimit) {
    return Status::InvalidArgument("memory_limit is " + std::to_string(*options.memory_limit) +
                                   " bytes; it must be at least " + std::to_string(kMinMemoryLimit) +
                                   ", or absent for 80 % of the machine's memory");
  }
  inner.store.memory_limit = options.memory_limit.value_or(internal::DefaultMemoryLimit());
  if (options.storage) {
    REVERB_ASSIGN_OR_RETURN(inner.storage,
                            ToTierOptions(*std::move(options.storage), *inner.store.memory_limit));
  }
  inner.limits = ToServiceLimits(options.limits);
  inner.client_limits = options.limits.client;
  if (options.keepalive_timeout && *options.keepalive_timeout < std::chrono::seconds(1)) {
    return Status::InvalidArgument("keepalive_timeout (" +
                                   internal::DurationText(*options.keepalive_timeout) +
                                   ") must be at least 1 s, or absent to wait forever");
  }
  inner.keepalive_timeout = options.keepalive_timeout;
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
  if (options.shard) {
    if (*options.shard < 1 || *options.shard > static_cast<int>(internal::kMaxShard)) {
      return Status::InvalidArgument("shard is " + std::to_string(*options.shard) +
                                     "; it must be from 1 to " + std::to_string(internal::kMaxShard) +
                                     ", or absent for a random one");
    }
    inner.shard = static_cast<uint32_t>(*options.shard);
  }
  std::string folder;
  if (!options.register_at.empty()) {
    REVERB_ASSIGN_OR_RETURN(folder, internal::RegistryFolder(options.register_at));
    if (!options.port) {
      return Status::InvalidArgument("register_at is \"" + options.register_at +
                                     "\", but the server does not listen; give it a port");
    }
    if (!options.advertised_address.empty()) {
      REVERB_RETURN_IF_ERROR(CheckAdvertisedAddress(options.advertised_address));
    }
  }
  auto rep = std::make_unique<Rep>();
  // Before a checkpoint is loaded, which the port reports.
  if (options.admin) {
    REVERB_ASSIGN_OR_RETURN(rep->admin,
                            internal::AdminPort::Start({.listen = options.admin->listen,
                                                        .any_port_if_taken = options.admin->any_port_if_taken,
                                                        .hosts = options.admin->hosts,
                                                        .tls = inner.tls}));
    if (options.admin->on_listening) {
      REVERB_RETURN_IF_ERROR(options.admin->on_listening(rep->admin->address()));
    }
  }
  REVERB_ASSIGN_OR_RETURN(rep->server, internal::ServerImpl::Start(std::move(inner)));
  if (!folder.empty()) {
    const std::string address = options.advertised_address.empty()
                                    ? AdvertisedAddress(options.host, rep->server->port())
                                    : options.advertised_address;
    internal::MutexLock lock(&rep->mu);
    REVERB_ASSIGN_OR_RETURN(rep->registration,
                            internal::ServerRegistration::Start(
                                folder, {.address = address,
                                         .shard = rep->server->shard(),
                                         .life_id = HexadecimalId(rep->server->service()->life_id())}));
  }
  if (rep->admin) {
    const std::string address =
        options.port ? options.host + ":" + std::to_string(rep->server->port()) : std::string();
    rep->admin->Serve(internal::MakeAdminSource(rep->server.get(), address, options.admin->commit));
  }
  return Server(std::move(rep));
}

Server::Server(std::unique_ptr<Rep> rep) : rep_(std::move(rep)) {}
Server::Server(Server&&) noexcept = default;
Server& Server::operator=(Server&&) noexcept = default;
Server::~Server() = default;

int Server::port() const { return rep_->server->port(); }
std::string Server::local_path() const { return rep_->server->local_path(); }
int64_t Server::live_bytes() const { return rep_->server->live_bytes(); }
std::string Server::admin_address() const { return rep_->admin ? rep_->admin->address() : ""; }
int Server::shard() const { return static_cast<int>(rep_->server->shard()); }

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
  rep->only = internal::ServerLink::Pinned(rep_->server->Connect(), std::move(options));
  return Client(rep);
}

Status Server::Reload() { return rep_->server->Reload(); }

void Server::Stop() {
  std::unique_ptr<internal::ServerRegistration> registration;
  {
    internal::MutexLock lock(&rep_->mu);
    registration = std::move(rep_->registration);
  }
  registration.reset();  // first, so that clients do not look for the server
  if (rep_->admin) rep_->admin->NotReady("the server is stopping");
  rep_->server->Stop();
  if (rep_->admin) rep_->admin->Stop();
}

}  // namespace reverb
