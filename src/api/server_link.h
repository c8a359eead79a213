// server_link.h — a client's access to one server: its connections, and streams kept for reuse.
#ifndef REVERB_API_SERVER_LINK_H_
#define REVERB_API_SERVER_LINK_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "client/item_sink.h"
#include "client/sampler.h"
#include "reverb/client.h"
#include "transport/transport.h"

namespace reverb::internal {

// Threads: all methods may be called concurrently.
class ServerLink {
 public:
  // Uses the network, unless the server is in this process and the options allow direct access.
  // `change_timeout`: how long calls that change a table wait for an unreachable server if neither they nor
  // the options have a timeout; absent = forever.
  ServerLink(std::shared_ptr<Connection> network, ClientOptions options, Timeout change_timeout = {})
      : options_(std::move(options)), change_timeout_(change_timeout), network_(std::move(network)) {}
  // Always uses this connection, to a server of this process.
  static std::unique_ptr<ServerLink> Pinned(std::shared_ptr<Connection> inproc, ClientOptions options);
  ~ServerLink();
  ServerLink(const ServerLink&) = delete;
  ServerLink& operator=(const ServerLink&) = delete;

  // Returns a number that no other link of this process has.
  uint64_t id() const { return id_; }
  // Returns the server's address, for messages.
  std::string address() const;
  // For a server of a set: its shard, 0 if it is not known yet; and whether it could not be reached of late.
  uint32_t shard() const { return shard_.load(std::memory_order_relaxed); }
  void SetShard(uint32_t shard) { shard_.store(shard, std::memory_order_relaxed); }
  // Returns which life of the server answered Info() last; zeros if none did.
  Id128 last_life_id() const EXCLUDES(mu_);
  // Returns whether the server is connected, as far as this side knows.
  bool was_reached() { return ConnectNow()->is_connected(); }
  bool is_lost() const { return is_lost_.load(std::memory_order_relaxed); }
  void SetLost(bool is_lost) { is_lost_.store(is_lost, std::memory_order_relaxed); }
  // Returns the connection to use now, without a socket if the server is in this process. The detection takes
  // at most as long as `wait` allows.
  std::shared_ptr<Connection> Connect(const WaitOptions& wait = {}) EXCLUDES(mu_);
  // The same without detection: does not wait.
  std::shared_ptr<Connection> ConnectNow() EXCLUDES(mu_);
  // Like Connect(), but a network connection is not shared.
  std::shared_ptr<Connection> OwnConnection() EXCLUDES(mu_);
  // `reconnect_timeout`: instead of that of the options.
  std::unique_ptr<ItemSink> NewSink(bool reconnects = true, Timeout reconnect_timeout = {});
  // Returns how the server is reached now.
  Transport transport(const WaitOptions& wait = {}) EXCLUDES(mu_);
  // See Connection::payload_source().
  PayloadSource* payload_source(const WaitOptions& wait = {}) EXCLUDES(mu_);

  // Single calls, like those of a Connection. Idempotent calls are retried, within `wait`, when the
  // connection fails. UNAVAILABLE if the server is unreachable for reconnect_timeout. Reset(),
  // Checkpoint(), RemoveTable() and CreateTable() without exist_ok are not retried: the server may have
  // executed them, and executing them twice has another effect.
  Result<ServerInfo> Info(const WaitOptions& wait) EXCLUDES(mu_);
  // `lost_timeout`: how long to wait for an unreachable server, unless `wait` has a timeout.
  Status Mutate(const MutateRequest& request, const WaitOptions& wait, Timeout lost_timeout = {})
      EXCLUDES(mu_);
  Status Reset(std::string_view table, const WaitOptions& wait) EXCLUDES(mu_);
  Status SetRateLimiter(const SetRateLimiterRequest& request, const WaitOptions& wait) EXCLUDES(mu_);
  Status CreateTable(const CreateTableRequest& request, const WaitOptions& wait) EXCLUDES(mu_);
  Status RemoveTable(std::string_view table, const WaitOptions& wait) EXCLUDES(mu_);
  Status ChangeTable(const ChangeTableRequest& request, const WaitOptions& wait) EXCLUDES(mu_);
  Result<InspectReply> Inspect(const InspectRequest& request, const WaitOptions& wait) EXCLUDES(mu_);
  // Repeated after a broken connection, it may count leases as expired that its first attempt released.
  Result<LeaseOutcome> SettleLeases(const SettleLeasesRequest& request, const WaitOptions& wait)
      EXCLUDES(mu_);
  Result<std::string> Checkpoint(const WaitOptions& wait) EXCLUDES(mu_);
  // Operations that only read, settle or set a version are repeated after a broken connection. A claim is too: what its
  // first attempt may have got comes back when the lease expires.
  Result<RowsReply> Rows(const RowsRequest& request, const WaitOptions& wait) EXCLUDES(mu_);
  // The same without a thread that waits, for a link that is shared. `done` is called once, on any thread, possibly
  // before this returns; after Cancel() too, with what the operation has got before.
  static std::shared_ptr<PendingCall> StartRows(std::shared_ptr<ServerLink> link, RowsRequest request,
                                                Timeout timeout, std::function<void(Result<RowsReply>)> done);

  Status Insert(std::span<const TensorView> step, std::span<const Client::TablePriority> tables,
                const WaitOptions& wait, const ItemStructure& structure) EXCLUDES(mu_);
  // Appends n samples; fewer if it returns an error. `timesteps`: see BatchRules.
  Status Sample(std::string_view table, int64_t n, const WaitOptions& wait, bool timesteps,
                std::vector<internal::Sample>* out) EXCLUDES(mu_);

 private:
  friend class LinkCall;

  static uint64_t NextId();
  using SingleCall = std::function<Status(Connection&, const WaitOptions&)>;
  struct CallKind {
    const char* name;
    bool can_repeat = true;
    bool is_change = true;
    Timeout lost_timeout = {};  // instead of change_timeout_
  };
  static CallKind KindOf(const RowsCall& call);
  Status Call(const CallKind& kind, const WaitOptions& wait, const SingleCall& call) EXCLUDES(mu_);
  // Returns how long an unreachable server is waited for.
  Timeout LostTimeout(const CallKind& kind, const Timeout& timeout) const;
  // Passes the connection to use now, here, or on another thread if a server of this process has to be detected.
  static void ConnectThen(std::shared_ptr<ServerLink> link,
                          std::function<void(std::shared_ptr<Connection>)> then);
  // Like Call(), for a call that returns a value.
  template <typename T, typename F>
  Result<T> CallFor(const CallKind& kind, const WaitOptions& wait, F&& call) EXCLUDES(mu_);

  std::shared_ptr<SamplerImpl> TakeIdleSampler(std::string_view table, bool timesteps) EXCLUDES(mu_);
  void KeepIdleSampler(std::string_view table, bool timesteps, std::shared_ptr<SamplerImpl> sampler)
      EXCLUDES(mu_);

  // Set in the constructor or in Pinned().
  const uint64_t id_ = NextId();
  std::atomic<uint32_t> shard_{0};
  std::atomic<bool> is_lost_{false};
  const ClientOptions options_;
  const Timeout change_timeout_;
  const std::shared_ptr<Connection> network_;  // null if pinned
  bool is_pinned_ = false;

  mutable Mutex mu_;
  bool is_remote_ GUARDED_BY(mu_) = false;       // the server is known to be in another process
  TimePoint detect_not_before_ GUARDED_BY(mu_);  // after a failed detection
  bool is_detecting_ GUARDED_BY(mu_) = false;    // for the following
  std::vector<std::function<void(std::shared_ptr<Connection>)>> await_detection_ GUARDED_BY(mu_);
  std::shared_ptr<Connection> inproc_ GUARDED_BY(mu_);
  Id128 life_id_ GUARDED_BY(mu_){};
  Id128 last_life_id_ GUARDED_BY(mu_){};
  // Kept for further single operations.
  std::vector<Writer> idle_writers_ GUARDED_BY(mu_);
  using IdleSamplers = std::map<std::string, std::vector<std::shared_ptr<SamplerImpl>>, std::less<>>;
  std::array<IdleSamplers, 2> idle_samplers_ GUARDED_BY(mu_);  // [1]: with the rule `timesteps`
};

}  // namespace reverb::internal

#endif  // REVERB_API_SERVER_LINK_H_
