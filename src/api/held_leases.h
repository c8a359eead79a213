// held_leases.h — the leases of samples that a consumer has, and those that a Sampler handed out last.
//
// Threads: all methods may be called concurrently.
#ifndef REVERB_API_HELD_LEASES_H_
#define REVERB_API_HELD_LEASES_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "reverb/sample_lease.h"
#include "tensor/item.h"
#include "transport/messages.h"

namespace reverb::internal {

// Where leases are settled: servers by Sample::server.
struct LeaseSettler {
  std::string table;
  std::function<Result<LeaseOutcome>(uint64_t server, const SettleLeasesRequest&, const WaitOptions&)> settle;
};

class HeldLeases {
 public:
  enum class Kind : uint8_t { kAck, kRelease, kExtend };

  HeldLeases(std::shared_ptr<const LeaseSettler> settler, std::span<const Sample> samples);

  static SampleLease Make(std::shared_ptr<const LeaseSettler> settler, std::span<const Sample> samples) {
    return SampleLease(std::make_shared<HeldLeases>(std::move(settler), samples));
  }
  // Settles those of several leases that are held, with one request to each server.
  static Result<LeaseOutcome> SettleAll(std::span<const SampleLease> leases, Kind kind,
                                        const WaitOptions& wait);

  bool is_held() const { return !is_settled_.load(std::memory_order_acquire); }
  int64_t size() const { return static_cast<int64_t>(grants_.size()); }
  Result<LeaseOutcome> Extend(Duration lease, const WaitOptions& wait) const;

 private:
  struct Grant {
    uint64_t server = 0;
    LeaseGrant grant;
  };
  static Result<LeaseOutcome> Send(const LeaseSettler& settler, std::span<const Grant> grants, Kind kind,
                                   Duration extension, const WaitOptions& wait);

  const std::shared_ptr<const LeaseSettler> settler_;
  std::vector<Grant> grants_;
  std::atomic<bool> is_settled_{false};
};

// The leases of what a Sampler returned last: its next call acknowledges them.
class HandedOutLeases {
 public:
  HandedOutLeases(std::shared_ptr<const LeaseSettler> settler, Duration lease, bool auto_ack)
      : settler_(std::move(settler)), lease_(lease), auto_ack_(auto_ack) {}

  // Returns the lease of these samples.
  SampleLease HandOut(std::span<const Sample> samples) EXCLUDES(mu_);
  // Acknowledges what was handed out and is held. An error only if `wait` ended before the server answered; if
  // it cannot be reached for the time of a lease, the items go to other consumers.
  Status Acknowledge(const WaitOptions& wait) EXCLUDES(mu_);
  // Releases what was handed out and is held, as far as the server answers at once.
  void Release() EXCLUDES(mu_);
  // Releases samples that no caller gets.
  void Release(std::span<const Sample> samples) const;
  // Extends the leases of samples that wait for the next call. Returns whether all of them are in force.
  bool Renew(std::span<const Sample> samples) const;
  Duration lease() const { return lease_; }

 private:
  const std::shared_ptr<const LeaseSettler> settler_;
  const Duration lease_;
  const bool auto_ack_;
  Mutex mu_;
  std::vector<SampleLease> handed_out_ GUARDED_BY(mu_);
};

}  // namespace reverb::internal

#endif  // REVERB_API_HELD_LEASES_H_
