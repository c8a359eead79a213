#include "server/server.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "base/log.h"
#include "checkpoint/load.h"
#include "transport/inproc/inproc.h"

namespace reverb::internal {
namespace {

// How long clients have to receive the reason before the server closes their streams.
constexpr Duration kStopGrace = std::chrono::milliseconds(500);

std::function<Result<std::string>()> CheckpointFunction(const std::shared_ptr<Checkpointer>& checkpointer) {
  if (checkpointer == nullptr) return {};
  return [checkpointer] { return checkpointer->Save(); };
}

}  // namespace

std::string DefaultServerName() { return "reverb " REVERB_VERSION; }

Result<std::unique_ptr<ServerImpl>> ServerImpl::Start(Options options) {
  std::unique_ptr<ServerImpl> server(new ServerImpl());
  server->store_ = std::make_shared<ChunkStore>(options.store, options.clock);
  const ConcurrentTable::Environment environment{.store = server->store_, .clock = options.clock};
  LoadedServer loaded;
  if (options.checkpoint) REVERB_RETURN_IF_ERROR(options.checkpoint->Validate());
  if (options.checkpoint && options.checkpoint->load_latest) {
    REVERB_ASSIGN_OR_RETURN(loaded, LoadLatest(options.fs, *options.checkpoint, options.tables, environment));
  } else {
    REVERB_ASSIGN_OR_RETURN(loaded.tables, MakeTables(options.tables, environment));
  }
  options.tables.clear();
  server->loaded_checkpoint_ = loaded.path;
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
                                  .save_writers =
                                      [service_of] {
                                        const std::shared_ptr<Service> service = service_of->lock();
                                        return service ? service->SaveWriters() : std::vector<SavedWriter>();
                                      }},
        loaded.path.value_or(""), std::move(loaded.segments));
  }
  // Leaves room for single calls in addition to the streams.
  const size_t max_calls =
      options.limits.max_streams + std::min<size_t>(1000, SIZE_MAX - options.limits.max_streams);
  REVERB_ASSIGN_OR_RETURN(server->service_,
                          Service::Create({.tables = std::move(loaded.tables),
                                           .store = server->store_,
                                           .server_name = std::move(options.name),
                                           .limits = options.limits,
                                           .checkpoint = CheckpointFunction(server->checkpointer_),
                                           .writers = std::move(loaded.writers),
                                           .clock = options.clock}));
  *service_of = server->service_;
  RegisterInprocServer(server->service_);
  if (options.address) {
    REVERB_ASSIGN_OR_RETURN(
        server->grpc_, GrpcServer::Start({.address = *std::move(options.address), .max_streams = max_calls},
                                         server->service_));
  }
  // Last, so that a server that fails to start writes no checkpoint.
  if (options.checkpoint) {
    server->checkpoint_on_stop_ = options.checkpoint->on_stop;
    server->checkpointer_->Start();
  }
  return server;
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
    if (Result<std::string> path = checkpointer_->Save(); !path.ok()) {
      Log(LogLevel::kError,
          "the last checkpoint could not be written: " + std::string(path.status().message()));
    }
  });
  if (grpc_) grpc_->Stop(kStopGrace);
}

}  // namespace reverb::internal
