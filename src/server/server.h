// server.h — assembles a server: tables and their store, the service, the transports, checkpoints.
//
// Threads: all methods may be called concurrently.
#ifndef REVERB_SERVER_SERVER_H_
#define REVERB_SERVER_SERVER_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "access/access_control.h"
#include "access/tls_files.h"
#include "base/file_system.h"
#include "base/mutex.h"
#include "checkpoint/checkpointer.h"
#include "core/chunk_store.h"
#include "core/table.h"
#include "reverb/status.h"
#include "reverb/table_options.h"
#include "service/service.h"
#include "storage/chunk_tier.h"
#include "transport/grpc/grpc_server.h"
#include "transport/local/local_server.h"
#include "transport/traffic.h"
#include "transport/transport.h"

namespace reverb::internal {

// Returns the default server name: "reverb" and the version.
std::string DefaultServerName();

class ServerImpl {
 public:
  struct Options {
    std::vector<TableOptions> tables;
    std::vector<RowTableOptions> row_tables = {};
    ChunkStore::Options store;
    // Absent: all data is in memory. disk_limit 0: most of the free space.
    std::optional<ChunkTier::Options> storage = {};
    std::optional<std::string> address;                    // host:port; absent: no gRPC
    Timeout keepalive_timeout = kDefaultKeepaliveTimeout;  // of gRPC's connections
    // The socket for clients on this host: at local_path or, if that is empty, where they look for a server of
    // this port. Absent: none.
    struct Local {
      std::string path = {};
      bool same_user_only = true;
      // See ServerLimits.
      uint64_t max_pinned_bytes = uint64_t{256} << 20;
      Duration stalled_client_timeout = std::chrono::minutes(1);
    };
    std::optional<Local> local = {};
    std::shared_ptr<TlsFiles> tls = nullptr;  // of gRPC; null: plaintext
    std::optional<AuthOptions> auth = {};     // absent: everybody has all rights
    std::string name = DefaultServerName();
    // 1 to 65535; absent: that of the checkpoint that is loaded, or else a random one.
    std::optional<uint32_t> shard = {};
    ServiceLimits limits;
    UsageLimits client_limits = {};               // of all clients of one name
    std::optional<CheckpointOptions> checkpoint;  // absent: the tables exist in memory only
    FileSystem* fs = PosixFileSystem();
    Clock* clock = RealClock();
  };

  static Result<std::unique_ptr<ServerImpl>> Start(Options options);
  ~ServerImpl();  // Stop()
  ServerImpl(const ServerImpl&) = delete;
  ServerImpl& operator=(const ServerImpl&) = delete;

  uint32_t shard() const { return shard_; }
  TrafficCounters::Totals traffic() const { return traffic_->totals(); }
  int64_t live_bytes() const { return store_->stats().live_bytes; }
  int port() const { return grpc_ ? grpc_->port() : 0; }
  // Returns the path of the local socket; empty if there is none.
  const std::string& local_path() const { return local_path_; }
  Result<std::shared_ptr<ConcurrentTable>> table(std::string_view name) const {
    return service_->FindTable(name);
  }
  const std::shared_ptr<Service>& service() const { return service_; }
  const std::shared_ptr<ChunkStore>& store() const { return store_; }
  // The path of the checkpoint that the tables were loaded from.
  const std::optional<std::string>& loaded_checkpoint() const { return loaded_checkpoint_; }
  // Null without checkpoints.
  const std::shared_ptr<Checkpointer>& checkpointer() const { return checkpointer_; }
  // Returns a connection within this process.
  std::shared_ptr<Connection> Connect() const;

  // Decides who may do what over the transports; also for ports that others open.
  const std::shared_ptr<AccessControl>& access() const { return access_; }
  const std::shared_ptr<TlsFiles>& tls() const { return tls_; }
  // Reads certificates and tokens again. An error names the file; what was read before stays in use.
  Status Reload();

  // Ends all sessions, writes a last checkpoint if the options require it, and stops the transports.
  void Stop() EXCLUDES(mu_);

 private:
  ServerImpl() = default;

  Status StartTransports(const Options& options, size_t max_streams);
  Status StartLocal(const Options& options, int port, size_t max_streams);

  // Set by Start().
  std::shared_ptr<ChunkStore> store_;
  std::shared_ptr<Checkpointer> checkpointer_;
  bool checkpoint_on_stop_ = false;
  std::optional<std::string> loaded_checkpoint_;
  std::shared_ptr<Service> service_;
  std::shared_ptr<AccessControl> access_;
  std::shared_ptr<TlsFiles> tls_;
  std::unique_ptr<GrpcServer> grpc_;
  std::unique_ptr<LocalServer> local_;
  std::string local_path_;
  uint32_t shard_ = 0;
  const std::shared_ptr<TrafficCounters> traffic_ = std::make_shared<TrafficCounters>();

  Mutex mu_;
  bool stopped_ GUARDED_BY(mu_) = false;
};

}  // namespace reverb::internal

#endif  // REVERB_SERVER_SERVER_H_
