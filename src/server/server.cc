#include "server/server.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <utility>

#include "base/log.h"
#include "base/random.h"
#include "base/shared_memory.h"
#include "checkpoint/load.h"
#include "transport/inproc/inproc.h"
#include "transport/local/endpoint.h"

namespace reverb::internal {
namespace {

// How long clients have to receive the reason before the server closes their streams.
constexpr Duration kStopGrace = std::chrono::milliseconds(500);

std::function<Result<std::string>()> CheckpointFunction(const std::shared_ptr<Checkpointer>& checkpointer) {
  if (checkpointer == nullptr) return {};
  return [checkpointer] { return checkpointer->Save(); };
}

// Return the parts of "host:port". The port is 0 if there is none.
std::string HostOf(const std::string& address) { return address.substr(0, address.rfind(':')); }
int PortOf(const std::string& address) {
  int port = 0;
  const char* const end = address.data() + address.size();
  const size_t colon = address.rfind(':');
  if (colon != std::string::npos) std::from_chars(address.data() + colon + 1, end, port);
  return port;
}

// Returns the bound on gRPC's buffers. It cancels calls if they need more, so it is far above what flow control allows.
int64_t GrpcQuota(const ChunkStore::Options& store) {
  constexpr int64_t kMin = int64_t{64} << 20;
  return store.memory_limit ? std::max(*store.memory_limit / 4, kMin) : 0;
}

// Returns how many bytes of the server's memory a client process may refer to: with a limit, eight of them fill the share
// of data in transit.
uint64_t MaxPinnedBytes(uint64_t configured, const ChunkStore::Options& store) {
  if (!store.memory_limit) return configured;
  return std::min(configured, static_cast<uint64_t>(MemoryBudget::SharesOf(*store.memory_limit).transit / 8));
}

// Returns where writers of this process allocate payloads. On most systems shared memory has no huge pages, so that
// reading random rows of it takes half as long again. It is used once a client in another process reads the rows.
OnDemandSource* WriterSource() {
  static OnDemandSource source(ProcessSharedMemory());  // trivially destructible: chunks may outlive main()
  return &source;
}

}  // namespace

std::string DefaultServerName() { return "reverb " REVERB_VERSION; }

Result<std::unique_ptr<ServerImpl>> ServerImpl::Start(Options options) {
  std::unique_ptr<ServerImpl> server(new ServerImpl());
  // Clients on this host read the chunks in place.
  if (options.local) options.store.payload_source = ProcessSharedMemory();
  ChunkTierPtr tier;
  if (options.storage) {
    REVERB_ASSIGN_OR_RETURN(tier,
                            ChunkTier::Open(options.fs, *options.storage, options.store.payload_source));
  }
  server->store_ = std::make_shared<ChunkStore>(options.store, options.clock, std::move(tier));
  const ConcurrentTable::Environment environment{.store = server->store_, .clock = options.clock};
  LoadedServer loaded;
  if (options.checkpoint) REVERB_RETURN_IF_ERROR(options.checkpoint->Validate());
  if (options.checkpoint && options.checkpoint->load_latest) {
    REVERB_ASSIGN_OR_RETURN(
        loaded, LoadLatest(options.fs, *options.checkpoint, options.tables, environment, options.row_tables));
  } else {
    REVERB_ASSIGN_OR_RETURN(loaded, MakeEmpty(options.tables, options.row_tables, environment));
  }
  options.tables.clear();
  server->loaded_checkpoint_ = loaded.path;
  const uint32_t any_shard = 1 + static_cast<uint32_t>(Random(EntropySeed()).Below(kMaxShard));
  server->shard_ = options.shard.value_or(loaded.shard != 0 ? loaded.shard : any_shard);
  // The service, which is created below, provides the tables and the progress of its writers.
  const auto service_of = std::make_shared<std::weak_ptr<Service>>();
  if (options.checkpoint) {
    server->checkpointer_ = std::make_shared<Checkpointer>(
        *options.checkpoint,
        Checkpointer::Environment{.fs = options.fs,
                                  .clock = options.clock,
                                  .tables =
                                      [service_of] {
                                        const std::shared_ptr<Service> service = service_of->lock();
                                        return service ? service->tables()
                                                       : std::vector<std::shared_ptr<ConcurrentTable>>();
                                      },
                                  .row_tables =
                                      [service_of] {
                                        const std::shared_ptr<Service> service = service_of->lock();
                                        return service ? service->rows().tables()
                                                       : std::vector<std::shared_ptr<ConcurrentRows>>();
                                      },
                                  .save_writers =
                                      [service_of] {
                                        const std::shared_ptr<Service> service = service_of->lock();
                                        return service ? service->SaveWriters() : std::vector<SavedWriter>();
                                      },
                                  .shard = server->shard_,
                                  .budget = &server->store_->budget()},
        loaded.path.value_or(""), std::move(loaded.segments));
  }
  // Leaves room for single calls in addition to the streams, and for a stream of calls for each of them.
  const size_t max_streams = std::min(options.limits.max_streams, (SIZE_MAX - 1000) / 2);
  const size_t max_calls = 2 * max_streams + 1000;
  REVERB_ASSIGN_OR_RETURN(server->service_,
                          Service::Create({.tables = std::move(loaded.tables),
                                           .row_tables = std::move(loaded.row_tables),
                                           .store = server->store_,
                                           .server_name = std::move(options.name),
                                           .limits = options.limits,
                                           .checkpoint = CheckpointFunction(server->checkpointer_),
                                           .writers = std::move(loaded.writers),
                                           .writer_source = options.local ? WriterSource() : nullptr,
                                           .shard = server->shard_,
                                           .clock = options.clock}));
  *service_of = server->service_;
  server->tls_ = options.tls;
  REVERB_ASSIGN_OR_RETURN(server->access_,
                          AccessControl::Start(options.auth, server->service_, options.client_limits));
  RegisterInprocServer(server->service_);
  REVERB_RETURN_IF_ERROR(server->StartTransports(options, max_calls));
  // Last, so that a server that fails to start writes no checkpoint.
  if (options.checkpoint) {
    server->checkpoint_on_stop_ = options.checkpoint->on_stop;
    server->checkpointer_->Start();
  }
  return server;
}

Status ServerImpl::StartTransports(const Options& options, size_t max_streams) {
  // A client that finds the port open looks for the local socket at once and then uses gRPC, so the socket has
  // to be there first. The path of the socket contains the port, which is known before unless it is 0.
  const int port = options.address ? PortOf(*options.address) : 0;
  const bool local_first = options.local && (port != 0 || !options.local->path.empty());
  if (local_first) REVERB_RETURN_IF_ERROR(StartLocal(options, port, max_streams));
  if (options.address) {
    REVERB_ASSIGN_OR_RETURN(grpc_, GrpcServer::Start({.address = *options.address,
                                                      .max_streams = max_streams,
                                                      .keepalive_timeout = options.keepalive_timeout,
                                                      .memory_quota_bytes = GrpcQuota(options.store),
                                                      .tls = options.tls,
                                                      .gate = access_,
                                                      .traffic = traffic_},
                                                     service_));
  }
  if (options.local && !local_first && grpc_) {
    REVERB_RETURN_IF_ERROR(StartLocal(options, grpc_->port(), max_streams));
  }
  return Status::Ok();
}

Status ServerImpl::StartLocal(const Options& options, int port, size_t max_streams) {
  const bool is_found_by_port = options.local->path.empty();
  Result<std::unique_ptr<LocalServer>> started = [&]() -> Result<std::unique_ptr<LocalServer>> {
    if (is_found_by_port) REVERB_RETURN_IF_ERROR(PrepareLocalFolder());
    LocalServer::Options local;
    local.path = is_found_by_port ? LocalSocketPath(port) : options.local->path;
    if (options.address) local.tcp_address = HostOf(*options.address) + ":" + std::to_string(port);
    local.same_user_only = options.local->same_user_only;
    local.max_streams = max_streams;
    local.max_pinned_bytes = MaxPinnedBytes(options.local->max_pinned_bytes, options.store);
    local.stalled_client_timeout = options.local->stalled_client_timeout;
    local.gate = access_;
    local.traffic = traffic_;
    local_path_ = local.path;
    // LocalServer replaces the socket of a server that was killed.
    if (CheckLocalListener(local.path).ok()) {
      return Status(StatusCode::kAlreadyExists, "another server listens on " + local.path);
    }
    return LocalServer::Start(local, service_);
  }();
  if (started.ok()) {
    local_ = *std::move(started);
    LocalEndpoint endpoint{.path = local_path_, .boot_id = BootId(), .user_id = {}};
    if (options.local->same_user_only) endpoint.user_id = geteuid();
    service_->Announce(std::move(endpoint));
    return Status::Ok();
  }
  local_path_.clear();
  if (!is_found_by_port) return started.status();
  // Clients use gRPC instead.
  Log(LogLevel::kWarning, "clients on this host use gRPC, because there is no local endpoint: " +
                              std::string(started.status().message()));
  return Status::Ok();
}

ServerImpl::~ServerImpl() {
  if (service_) Stop();
}

std::shared_ptr<Connection> ServerImpl::Connect() const { return ConnectInproc(service_); }

void ServerImpl::Stop() {
  MutexLock lock(&mu_);
  if (std::exchange(stopped_, true)) return;
  UnregisterInprocServer(service_->life_id());
  if (checkpointer_) checkpointer_->Stop();
  service_->Stop([this] {
    for (const std::shared_ptr<ConcurrentTable>& table : service_->tables()) table->Close();
    if (!checkpoint_on_stop_) return;
    (void)checkpointer_->Save();  // logs an error
  });
  if (local_) local_->Stop(kStopGrace);
  if (grpc_) grpc_->Stop(kStopGrace);
  if (access_) access_->Stop();
  // Clients in this process may keep the store.
  if (store_->tier() != nullptr) store_->tier()->Shutdown();
}

Status ServerImpl::Reload() {
  const Status tls = tls_ ? tls_->Reload() : Status::Ok();
  const Status tokens = access_->Reload();
  return tls.ok() ? tokens : tls;
}

}  // namespace reverb::internal
