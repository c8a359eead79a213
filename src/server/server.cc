#include "server/server.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "transport/inproc/inproc.h"

namespace reverb::internal {
namespace {

// What clients get to read the reason in before their streams are cut.
constexpr Duration kStopGrace = std::chrono::milliseconds(500);

}  // namespace

std::string DefaultServerName() { return "reverb " REVERB_VERSION; }

Result<std::unique_ptr<Server>> Server::Start(Options options) {
  std::unique_ptr<Server> server(new Server());
  server->store_ = std::make_shared<ChunkStore>(options.store, options.clock);
  for (TableOptions& table : options.tables) {
    REVERB_ASSIGN_OR_RETURN(
        std::shared_ptr<Table> made,
        Table::Create(std::move(table), {.store = server->store_, .clock = options.clock}));
    server->tables_.push_back(std::move(made));
  }
  // Single calls have room beside the streams.
  const size_t max_calls =
      options.limits.max_streams + std::min<size_t>(1000, SIZE_MAX - options.limits.max_streams);
  REVERB_ASSIGN_OR_RETURN(server->service_, Service::Create({.tables = server->tables_,
                                                             .store = server->store_,
                                                             .server_name = std::move(options.name),
                                                             .limits = options.limits,
                                                             .clock = options.clock}));
  RegisterInprocServer(server->service_);
  if (options.address) {
    REVERB_ASSIGN_OR_RETURN(
        server->grpc_, GrpcServer::Start({.address = *std::move(options.address), .max_streams = max_calls},
                                         server->service_));
  }
  return server;
}

Server::~Server() {
  if (service_) Stop();
}

std::shared_ptr<Connection> Server::Connect() const { return ConnectInproc(service_); }

void Server::Stop() {
  MutexLock lock(&mu_);
  if (std::exchange(stopped_, true)) return;
  UnregisterInprocServer(service_->life_id());
  service_->Stop();
  for (const std::shared_ptr<Table>& table : tables_) table->Close();
  if (grpc_) grpc_->Stop(kStopGrace);
}

}  // namespace reverb::internal
