// server_set.h — the servers of a client of several: which there are, which of them are lost, and which one a
// writer uses.
//
// The servers are given, or found again every few seconds by a resolver. Samplers and writers that exist
// follow the changes. A server that could not be reached for a while is lost: updates for it are
// dropped, and writers choose another one. A thread of the set tests lost servers until they answer again.
//
// Ownership: shared by the client and its writers; samplers hold only links. Threads: all methods may be called
// concurrently.
#ifndef REVERB_API_SERVER_SET_H_
#define REVERB_API_SERVER_SET_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "api/resolver.h"
#include "api/server_link.h"
#include "base/log.h"
#include "base/mutex.h"
#include "client/item_sink.h"
#include "client/set_sampler.h"
#include "reverb/client.h"

namespace reverb::internal {

class ServerSet final : public std::enable_shared_from_this<ServerSet> {
 public:
  using Links = std::vector<std::shared_ptr<ServerLink>>;

  // `address`: that of the set, for messages. `resolver`: null if the servers are only those of SetAddresses().
  static Result<std::shared_ptr<ServerSet>> Create(std::string address,
                                                   const std::vector<std::string>& addresses,
                                                   std::unique_ptr<Resolver> resolver,
                                                   const ClientOptions& options);
  ~ServerSet();

  // Returns the present servers; may be empty if they are found by a resolver.
  Links links() const EXCLUDES(mu_);
  // Waits until there is a server. DEADLINE_EXCEEDED or UNAVAILABLE otherwise.
  Result<Links> AwaitLinks(const WaitOptions& wait) const EXCLUDES(mu_);
  // Replaces the servers: keeps the links of those that stay. INVALID_ARGUMENT, without a change, if one of the
  // addresses is invalid.
  Status SetAddresses(const std::vector<std::string>& addresses) EXCLUDES(update_mu_, mu_);

  // Returns the server of a writer by rendezvous hashing: the choice is spread evenly, is the same in all
  // processes, and changes only for the writers of a server that leaves. Chooses a lost one only if all are.
  // Null if there is none.
  std::shared_ptr<ServerLink> Home(const Id128& session) const EXCLUDES(mu_);
  bool Contains(const ServerLink& link) const EXCLUDES(mu_);
  // Returns the next server that is not lost; null if there is none.
  std::shared_ptr<ServerLink> NextInTurn() EXCLUDES(mu_);
  // How long a server of several may be unreachable before writers choose another one.
  Duration lost_timeout() const { return lost_timeout_; }
  void MarkLost(const std::shared_ptr<ServerLink>& link) EXCLUDES(mu_);

  std::unique_ptr<ItemSink> NewSink();
  Result<std::shared_ptr<SetSampler>> NewSampler(SamplerImpl::Options options) EXCLUDES(update_mu_, mu_);
  // Returns how many samplers the set tracks, some of which may be gone.
  size_t num_tracked_samplers() const EXCLUDES(mu_);
  // Appends n samples; fewer if it returns an error.
  Status Sample(std::string_view table, int64_t n, const WaitOptions& wait, bool timesteps,
                std::vector<internal::Sample>* out) EXCLUDES(mu_);

  // Returns the address of the server of this shard that has left the set; empty if there is none.
  std::string FormerAddress(uint32_t shard) const EXCLUDES(mu_);
  // Counts and logs updates and deletes that were dropped because the server at this address is lost, or has left
  // the set: `why`.
  void CountDropped(const std::string& address, std::string_view why, int64_t updates);
  int64_t dropped_updates() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  static constexpr Duration kResolveInterval = std::chrono::seconds(3);
  static constexpr Duration kProbeInterval = std::chrono::seconds(1);
  static constexpr Duration kAlternativeInterval = std::chrono::seconds(30);

  ServerSet(std::string address, std::unique_ptr<Resolver> resolver, const ClientOptions& options);
  // Removes alternative addresses that do not answer, or that lead to a server that has another address. Returns the
  // links of those that are new. `probes`: whether to ask those that are not known; otherwise they are removed.
  Links ChooseAlternatives(bool probes, std::vector<ResolvedServer>* servers) EXCLUDES(update_mu_, mu_);
  // Returns the links of these servers: the present ones, those of `made`, and new ones. `skips_invalid`: logs invalid
  // addresses and leaves them out.
  Result<Links> LinksOf(const std::vector<ResolvedServer>& servers, const Links& made, bool skips_invalid)
      REQUIRES(update_mu_) EXCLUDES(mu_);
  void SetLinks(const Links& links) REQUIRES(update_mu_) EXCLUDES(mu_);
  // Describes that there is no server, and why.
  std::string NoServerText() const REQUIRES(mu_);
  void StartThread() REQUIRES(mu_);
  void Run() EXCLUDES(mu_);
  // Returns whether alternative addresses wait to be probed.
  bool Resolve(bool probes_alternatives) EXCLUDES(update_mu_, mu_);
  void ProbeLost() EXCLUDES(mu_);
  bool is_stopped() const EXCLUDES(mu_);

  const std::string address_;
  const ClientOptions options_;
  const Duration lost_timeout_;
  const std::unique_ptr<Resolver> resolver_;  // used by the thread, and by Create() before it starts
  // The alternative addresses that are not used, and when to probe them again. Used like resolver_.
  struct Alternative {
    std::shared_ptr<ServerLink> link;
    std::chrono::steady_clock::time_point probe_at;
  };
  std::map<std::string, Alternative> alternatives_;
  std::chrono::steady_clock::time_point lives_checked_at_;
  std::atomic<size_t> turn_{0};
  std::atomic<int64_t> dropped_{0};
  LogEvery dropped_log_;
  LogEvery resolve_log_;

  Mutex
      update_mu_;  // held while samplers are given the servers, so that they end up with the last ones; before mu_
  mutable Mutex mu_;
  mutable CondVar changed_;
  Links links_ GUARDED_BY(mu_);
  std::map<uint32_t, std::string> departed_ GUARDED_BY(mu_);  // the addresses of servers that left, by shard
  std::vector<std::weak_ptr<SetSampler>> samplers_ GUARDED_BY(mu_);
  size_t prune_samplers_at_ GUARDED_BY(mu_) = 16;  // the size at which those that are gone are removed
  using IdleSamplers = std::map<std::string, std::vector<std::shared_ptr<SetSampler>>, std::less<>>;
  std::array<IdleSamplers, 2> idle_samplers_ GUARDED_BY(mu_);  // [1]: with the rule `timesteps`
  std::string resolve_error_ GUARDED_BY(mu_);                  // of the last attempt; empty if it succeeded
  bool is_stopped_ GUARDED_BY(mu_) = false;
  bool resolve_now_ GUARDED_BY(mu_) = false;
  bool has_thread_ GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace reverb::internal

#endif  // REVERB_API_SERVER_SET_H_
