// server_link.h — one server as a client knows it: how to reach it, and what is kept warm for it.
#ifndef REVERB_API_SERVER_LINK_H_
#define REVERB_API_SERVER_LINK_H_

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
#include "transport/grpc/grpc_connection.h"
#include "transport/transport.h"

namespace reverb::internal {

// What a client's options mean for its connections.
GrpcOptions NetworkOptions(const ClientOptions& options);

// Threads: all methods may be called concurrently.
class ServerLink {
 public:
  // Over the network, unless the server turns out to be in this process and the options allow that.
  // `change_timeout`: how long calls that change a table wait for a server that cannot be reached, where
  // neither they nor the options have a time-out; absent = for ever.
  ServerLink(std::shared_ptr<Connection> network, ClientOptions options, Timeout change_timeout = {})
      : options_(std::move(options)), change_timeout_(change_timeout), network_(std::move(network)) {}
  // A server at hand.
  static std::unique_ptr<ServerLink> Pinned(std::shared_ptr<Connection> inproc, ClientOptions options);
  ~ServerLink();
  ServerLink(const ServerLink&) = delete;
  ServerLink& operator=(const ServerLink&) = delete;

  // For people.
  std::string address() const;
  // The connection to use now: without a socket where the server turns out to be in this process.
  // Finding that out takes no longer than `wait` allows.
  std::shared_ptr<Connection> Connect(const WaitOptions& wait = {}) EXCLUDES(mu_);
  // The same, with a socket of its own.
  std::shared_ptr<Connection> OwnConnection() EXCLUDES(mu_);
  std::unique_ptr<ItemSink> NewSink(bool reconnects = true);

  // Single calls, as those of a Connection. Calls that can be repeated are repeated, within `wait`, when the
  // connection breaks. UNAVAILABLE when the server cannot be reached for reconnect_timeout. Reset() and
  // Checkpoint() are not: the server may have carried them out, and a second time is not the same as once.
  Result<ServerInfo> Info(const WaitOptions& wait) EXCLUDES(mu_);
  Status Mutate(const MutateRequest& request, const WaitOptions& wait) EXCLUDES(mu_);
  Status Reset(std::string_view table, const WaitOptions& wait) EXCLUDES(mu_);
  Status SetRateLimiter(const SetRateLimiterRequest& request, const WaitOptions& wait) EXCLUDES(mu_);
  Result<InspectReply> Inspect(const InspectRequest& request, const WaitOptions& wait) EXCLUDES(mu_);
  Result<std::string> Checkpoint(const WaitOptions& wait) EXCLUDES(mu_);

  Status Insert(std::span<const TensorView> step, std::span<const Client::TablePriority> tables,
                const WaitOptions& wait, const ItemStructure& structure) EXCLUDES(mu_);
  // Appends n samples; on an error fewer.
  Status Sample(std::string_view table, int64_t n, const WaitOptions& wait,
                std::vector<internal::Sample>* out) EXCLUDES(mu_);

 private:
  using SingleCall = std::function<Status(Connection&, const WaitOptions&)>;
  struct CallKind {
    const char* name;
    bool can_repeat = true;
    bool is_change = true;
  };
  Status Call(const CallKind& kind, const WaitOptions& wait, const SingleCall& call) EXCLUDES(mu_);
  // The same, for a call with an answer.
  template <typename T, typename F>
  Result<T> CallFor(const CallKind& kind, const WaitOptions& wait, F&& call) EXCLUDES(mu_);

  std::shared_ptr<SamplerImpl> TakeIdleSampler(std::string_view table) EXCLUDES(mu_);
  void KeepIdleSampler(std::string_view table, std::shared_ptr<SamplerImpl> sampler) EXCLUDES(mu_);

  // Set once.
  const ClientOptions options_;
  const Timeout change_timeout_;
  const std::shared_ptr<Connection> network_;  // null for a server at hand
  bool is_pinned_ = false;

  Mutex mu_;
  bool is_elsewhere_ GUARDED_BY(mu_) = false;  // the server was asked, and is in another process
  TimePoint ask_again_ GUARDED_BY(mu_);        // it could not be asked
  std::shared_ptr<Connection> inproc_ GUARDED_BY(mu_);
  Id128 life_id_ GUARDED_BY(mu_){};
  // For single operations.
  std::vector<Writer> idle_writers_ GUARDED_BY(mu_);
  std::map<std::string, std::vector<std::shared_ptr<SamplerImpl>>, std::less<>> idle_samplers_
      GUARDED_BY(mu_);
};

}  // namespace reverb::internal

#endif  // REVERB_API_SERVER_LINK_H_
