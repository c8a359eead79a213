// routed_connection.h — a connection to a server by its address: over the local transport if the server has an
// endpoint on this host that this process may use, over gRPC otherwise.
//
// The choice is made anew for every stream and single call, so that a server that restarts with or without its
// endpoint, or is replaced by another one at the same port, is used in the way that it offers. While the local
// transport is connected, choosing costs nothing. gRPC is not initialized before it is needed: a process that
// never needs it can fork().
//
// Ownership: streams may outlive the connection.
// Threads: all methods may be called concurrently.
#ifndef REVERB_API_ROUTED_CONNECTION_H_
#define REVERB_API_ROUTED_CONNECTION_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/mutex.h"
#include "reverb/client.h"
#include "transport/local/endpoint.h"
#include "transport/transport.h"

namespace reverb::internal {

class RoutedConnection final : public Connection, public std::enable_shared_from_this<RoutedConnection> {
 public:
  // The two ways to one server; at least one is given.
  struct Routes {
    std::string address;                // for messages
    std::shared_ptr<Connection> local;  // null: gRPC only
    // Returns the socket if a process listens on the local endpoint now; does not block.
    std::function<Result<SocketFile>()> find_local = {};
    // Null: the local transport only. Called once, when gRPC is first needed.
    std::function<Result<std::shared_ptr<Connection>>()> connect_grpc = {};
  };

  explicit RoutedConnection(Routes routes) : routes_(std::move(routes)) {}

  // Returns the transport that a stream or call would use now.
  Transport transport() EXCLUDES(mu_);
  // Returns why the endpoint that exists is not used; OK if there is none, or if it is used.
  Status why_not_local() const EXCLUDES(mu_);

  std::string address() const override { return routes_.address; }
  bool in_process() const override { return false; }
  bool send_may_block() const override { return send_may_block_.load(std::memory_order_relaxed); }
  bool is_connected() const override EXCLUDES(mu_);
  bool is_local_connected() const { return routes_.local && routes_.local->is_connected(); }
  // A server on this host reads shared memory.
  PayloadSource* payload_source() override EXCLUDES(mu_);

  std::shared_ptr<InsertStream> OpenInsert(const Hello& hello, std::shared_ptr<InsertEvents> events) override;
  std::shared_ptr<SampleStream> OpenSample(const Hello& hello, std::shared_ptr<SampleEvents> events) override;

  Result<ServerInfo> Info(const WaitOptions& wait) override;
  Status Mutate(const MutateRequest& request, const WaitOptions& wait) override;
  Status Reset(std::string_view table, const WaitOptions& wait) override;
  Status SetRateLimiter(const SetRateLimiterRequest& request, const WaitOptions& wait) override;
  Status CreateTable(const CreateTableRequest& request, const WaitOptions& wait) override;
  Status RemoveTable(std::string_view table, const WaitOptions& wait) override;
  Status ChangeTable(const ChangeTableRequest& request, const WaitOptions& wait) override;
  Result<InspectReply> Inspect(const InspectRequest& request, const WaitOptions& wait) override;
  Result<LeaseOutcome> SettleLeases(const SettleLeasesRequest& request, const WaitOptions& wait) override;
  Result<RowsReply> Rows(const RowsRequest& request, const WaitOptions& wait) override;
  // After a refusal UNAVAILABLE: the next attempt uses gRPC.
  std::shared_ptr<PendingCall> StartRows(RowsRequest request, RowsReplied done) override;
  Result<std::string> Checkpoint(const WaitOptions& wait) override;

  // Returns whether an error of the local transport means that the server does not accept this client there: it
  // belongs to another user, has another protocol version, or does not serve the wanted address.
  static bool IsRefusal(const Status& status);
  // The endpoint has refused this client: uses gRPC until another server creates a socket.
  void RecordRefusal(const Status& status) EXCLUDES(mu_);

 private:
  // Returns the connection to use now: routes_.local, or gRPC's. An error if gRPC cannot be used.
  Result<std::shared_ptr<Connection>> Choose() EXCLUDES(mu_);
  bool CanUseLocal() REQUIRES(mu_);
  Result<std::shared_ptr<Connection>> Grpc() REQUIRES(mu_);
  // Runs call(connection, wait), again over gRPC if the local endpoint refuses it or vanishes before it is sent.
  template <typename F>
  auto Call(const WaitOptions& wait, F&& call) -> decltype(call(std::declval<Connection&>(), wait));

  const Routes routes_;
  std::atomic<bool> send_may_block_{true};

  mutable Mutex mu_;
  std::shared_ptr<Connection> grpc_ GUARDED_BY(mu_);
  std::optional<SocketFile> seen_ GUARDED_BY(mu_);     // the socket of the last check
  std::optional<SocketFile> refused_ GUARDED_BY(mu_);  // the socket whose server has refused this client
  Status refusal_ GUARDED_BY(mu_);
};

// Connects to a server by its address, as the options allow. INVALID_ARGUMENT for an invalid address, and for
// unix:/path if the local transport is off. Does not connect yet.
Result<std::shared_ptr<RoutedConnection>> ConnectRouted(const std::string& address,
                                                        const ClientOptions& options);

}  // namespace reverb::internal

#endif  // REVERB_API_ROUTED_CONNECTION_H_
