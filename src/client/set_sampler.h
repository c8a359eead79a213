// set_sampler.h — samples of a table that is spread over several servers, as if it were one table.
//
// The server of each sample is chosen before it is requested (shard_chooser.h): a ticket. Samples are returned
// in the order of the tickets, so that a slow server changes neither the shares of the servers nor the mixture
// within a batch. A server that cannot sample now (rate limiter, empty, unreachable) is blocked: its
// tickets are dropped, others take its place, and one request at a time tests whether it can sample again.
// Samples that arrive from it later serve its next tickets.
//
// With all_or_nothing and with leases, a server draws its share of a batch together, and rejects one that can
// never be drawn together. Its share may be too large only because other servers are missing. It then waits for
// them. If none is missing, sampling ends.
//
// Servers report the masses of their tables with every reply. Figures that are older than kMassTtl are
// requested again while samples are taken.
//
// Ownership: shares one SamplerImpl for each server. Threads: all methods may be called concurrently. No lock
// is held while calling a SamplerImpl that may send.
#ifndef REVERB_CLIENT_SET_SAMPLER_H_
#define REVERB_CLIENT_SET_SAMPLER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/strand.h"
#include "client/sample_source.h"
#include "client/sampler.h"
#include "client/shard_chooser.h"
#include "reverb/status.h"
#include "reverb/wait.h"

namespace reverb::internal {

class SetSampler final : public SampleSource, public std::enable_shared_from_this<SetSampler> {
 public:
  // How long a rate limiter may block a request before the samples come from other servers; and the same
  // for a server that was blocked of late.
  static constexpr Duration kPatience = std::chrono::milliseconds(100);
  static constexpr Duration kShortPatience = std::chrono::milliseconds(5);
  static constexpr Duration kSuspicionTime = std::chrono::seconds(5);
  // The timeout of the request that tests a blocked server.
  static constexpr Duration kProbeTimeout = std::chrono::seconds(1);
  static constexpr Duration kProbeInterval = std::chrono::milliseconds(20);  // after one that has failed
  // How long a server may take to answer, while none of its samples is left here, before the samples come from
  // other servers.
  static constexpr Duration kStallTimeout = std::chrono::seconds(1);
  // How long a new sampler waits for servers that have not answered yet.
  static constexpr Duration kStartTimeout = std::chrono::milliseconds(500);
  static constexpr Duration kMassTtl = std::chrono::milliseconds(200);
  // Nothing is chosen by older figures.
  static constexpr Duration kMaxMassAge = std::chrono::seconds(1);
  // When to start again with a server whose sampler has failed.
  static constexpr Duration kRetryInterval = std::chrono::seconds(2);
  // When servers that refused their shares of a batch are tried again, unless others have joined them; and how many
  // refusals in a row end sampling if no server is missing. Shares are random, so the next one may be smaller.
  static constexpr Duration kRefusalInterval = std::chrono::seconds(1);
  static constexpr int kMaxRefusals = 4;

  // One server. `create` returns a sampler with the given options.
  struct Server {
    uint64_t id = 0;  // unique
    std::string address;
    std::function<Result<std::shared_ptr<SamplerImpl>>(SamplerImpl::Options)> create;
    std::function<void(const Welcome&)> on_welcome = {};
  };
  struct Options {
    SamplerImpl::Options sampler;
    uint64_t seed = 0;  // of the choice of servers
  };

  static Result<std::shared_ptr<SetSampler>> Create(std::vector<Server> servers, Options options);
  ~SetSampler() override;

  // Replaces the servers: keeps the samplers of those that stay.
  void SetServers(std::vector<Server> servers) EXCLUDES(mu_);

  void Close() override EXCLUDES(mu_);
  Stats stats() const override EXCLUDES(mu_);
  int64_t batch_size() const override { return options_.sampler.batch_size; }

 private:
  struct Shard {
    Server server;
    std::shared_ptr<SamplerImpl> sampler;  // null: it could not be created
    SamplerImpl::State state;              // as of the last step
    std::deque<Sample> ready;              // taken from the sampler, for the next tickets
    int64_t tickets = 0;
    bool is_blocked = false;      // by its rate limiter, or the table is empty
    bool is_stalled = false;      // has not answered for kStallTimeout
    double share = 1;             // of the mass, when samples were last requested
    bool was_taken_from = false;  // since the last step: credit may have to be returned
    TimePoint progress_at;        // last reply or delivery, or nothing was awaited
    TimePoint suspicious_until;
    TimePoint probe_at;  // not before
    uint64_t seen_replies = 0;
    uint64_t seen_timeouts = 0;
    Status failure;  // of the last sampler that failed, until the server has answered again
    TimePoint retry_at;
    // With all_or_nothing or leases: the share of a batch was too large for the server, whose failure says why, and
    // as many servers had shares; 0 if that is not so.
    size_t refused_among = 0;
    int refusals = 0;  // in a row, while no server was missing
    bool has_refused() const { return refused_among > 0; }
    bool has_failed() const { return !failure.ok() && !has_refused(); }
    int64_t available() const { return static_cast<int64_t>(ready.size()) + state.queued; }
    bool can_sample() const { return state.is_connected && !is_blocked && !is_stalled; }
  };
  struct Action {
    std::shared_ptr<SamplerImpl> sampler;
    int64_t total = 0;  // 0 = only returns credit
    Timeout timeout;
    bool wants_mass = false;
  };

  explicit SetSampler(Options options);
  Status Start(std::vector<Server> servers) EXCLUDES(mu_);

  Status Take(int64_t least, int64_t most, const WaitOptions& wait, std::vector<Sample>* out) override
      EXCLUDES(mu_);
  bool is_leased() const { return options_.sampler.lease > Duration(0); }
  // Returns whether Deliver() may return samples to a consumer that needs at least this many. Leased samples are
  // returned together: until then they stay with the SamplerImpl, which knows when their leases expire.
  bool MayDeliver(int64_t least) const REQUIRES(mu_);
  // Returns whether max_samples leaves fewer than a consumer needs.
  bool IsAtEnd(int64_t least) const REQUIRES(mu_);
  // Releases samples that have waited for too long. Releases the lock meanwhile.
  void ReleaseExpired() REQUIRES(mu_);
  // Returns samples by their tickets, as far as they have arrived.
  int64_t Deliver(int64_t most, std::vector<Sample>* out) REQUIRES(mu_);
  void GrowWindow() REQUIRES(mu_);

  void OnChange() EXCLUDES(mu_);
  Strand::Next Step() REQUIRES(mu_);
  // Does not count the time since the last step as silence of the servers if no consumer called.
  void SkipPause(TimePoint now) REQUIRES(mu_);
  void UpdateShard(Shard* shard, TimePoint now) REQUIRES(mu_);
  // Gives up the sampler of a shard; another one is created later.
  void FailShard(Shard* shard, Status failure, TimePoint now) REQUIRES(mu_);
  // Returns whether `used` servers are all that have not failed.
  bool IsComplete(size_t used) const REQUIRES(mu_);
  // Replaces the sampler of a shard whose share of a batch was too large. Waits for more servers to share it.
  void RefuseShare(Shard* shard, Status refusal, TimePoint now) REQUIRES(mu_);
  void SetCandidates(TimePoint now) REQUIRES(mu_);
  // Returns whether the figures of all servers that answer are known and new.
  bool KnowsMasses(TimePoint now) const REQUIRES(mu_);
  // Drops the last tickets of a shard, so that `keep` remain.
  void DropTickets(size_t index, int64_t keep) REQUIRES(mu_);
  // Returns whether there was one to issue.
  bool IssueTickets() REQUIRES(mu_);
  // Whether a server draws all samples of a request or none, and rejects a request that its table cannot fulfil.
  bool draws_together() const;
  int64_t Wanted() const REQUIRES(mu_);
  std::vector<Action> NextActions(TimePoint now) REQUIRES(mu_);
  // Ends sampling if all servers have failed, or if their limiters block the consumer for too long.
  void CheckEnd(TimePoint now) REQUIRES(mu_);
  // Create a sampler that is missing, and close one that has failed. Return whether there was one; release the
  // lock meanwhile.
  bool CreateSampler(TimePoint now) REQUIRES(mu_);
  bool CloseFailed() REQUIRES(mu_);
  Timeout LimiterTimeout(Duration most) const;
  WaitExplanation DescribeWait(Duration waited, const WaitOptions& wait) REQUIRES(mu_);

  const Options options_;

  mutable Mutex mu_;
  CondVar changed_;
  int waiters_ GUARDED_BY(mu_) = 0;
  Strand strand_ GUARDED_BY(mu_);
  std::vector<Shard> shards_ GUARDED_BY(mu_);
  ShardChooser chooser_ GUARDED_BY(mu_);
  std::deque<uint64_t> tickets_ GUARDED_BY(mu_);  // ids of servers
  bool reads_ahead_ GUARDED_BY(mu_) = false;
  int64_t in_flight_ GUARDED_BY(mu_) = 1;
  int64_t by_consumer_ GUARDED_BY(mu_) = 0;  // what waiting calls lack
  int64_t delivered_ GUARDED_BY(mu_) = 0;
  TimePoint started_ GUARDED_BY(mu_);
  TimePoint stepped_at_ GUARDED_BY(mu_);
  TimePoint refused_until_ GUARDED_BY(mu_);
  TimePoint waiting_since_ GUARDED_BY(mu_);                           // for a sample
  Status status_ GUARDED_BY(mu_);                                     // final
  Stats former_ GUARDED_BY(mu_);                                      // of samplers that are gone
  std::vector<std::shared_ptr<SamplerImpl>> failed_ GUARDED_BY(mu_);  // to be closed
};

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_SET_SAMPLER_H_
