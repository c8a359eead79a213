// held_leases.h — the leases of samples that a consumer has, and those that a Sampler handed out last.
//
// Threads: all methods may be called concurrently.
#ifndef REVERB_API_HELD_LEASES_H_
#define REVERB_API_HELD_LEASES_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "api/server_link.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "reverb/sample_lease.h"
#include "tensor/item.h"
#include "transport/messages.h"

namespace reverb::internal {

// Where leases are settled.
struct LeaseSettler {
  std::string table;
  // Returns the server of Sample::server; null if it has left the set.
  std::function<std::shared_ptr<ServerLink>(uint64_t server)> find;
};

class HeldLeases {
 public:
  enum class Kind : uint8_t { kAck, kRelease, kExtend };

  HeldLeases(std::shared_ptr<const LeaseSettler> settler, std::span<const Sample> samples);

  static SampleLease Make(std::shared_ptr<const LeaseSettler> settler, std::span<const Sample> samples) {
    return SampleLease(std::make_shared<HeldLeases>(std::move(settler), samples));
  }
  // Settles those of several leases that are held, with one request to each server. A server that does not answer
  // does not delay the others. After an error, the leases of servers that did not answer are held.
  static Result<LeaseOutcome> SettleAll(std::span<const SampleLease> leases, Kind kind,
                                        const WaitOptions& wait);

  bool is_held() const { return !is_settled_.load(std::memory_order_acquire); }
  int64_t size() const { return size_; }
  Result<LeaseOutcome> Extend(Duration lease, const WaitOptions& wait) const;

 private:
  // The leases of one server. Keeps the link to it, also if it leaves the set.
  struct Target {
    uint64_t server = 0;
    std::shared_ptr<ServerLink> link;  // null: has left the set
    std::vector<LeaseGrant> grants;
  };
  // Sends the grants of each target, and removes the targets that answered.
  static Status Send(const std::string& table, Kind kind, Duration extension, const WaitOptions& wait,
                     std::vector<Target>* targets, LeaseOutcome* outcome);

  const std::shared_ptr<const LeaseSettler> settler_;
  int64_t size_ = 0;
  std::atomic<bool> is_settled_{false};
  mutable Mutex mu_;
  std::vector<Target> targets_ GUARDED_BY(mu_);  // those that have not settled their leases
  LeaseOutcome outcome_ GUARDED_BY(mu_);         // of those that have, while others have not
};

// The leases of what a Sampler returned last: its next call acknowledges them.
class HandedOutLeases {
 public:
  HandedOutLeases(std::shared_ptr<const LeaseSettler> settler, Duration lease, bool auto_ack)
      : settler_(std::move(settler)), lease_(lease), auto_ack_(auto_ack) {}

  // Returns the lease of these samples.
  SampleLease HandOut(std::span<const Sample> samples) EXCLUDES(mu_);
  // Acknowledges what was handed out and is held. An error only if `wait` ended before a server answered; if it
  // cannot be reached for the time of a lease, the items go to other consumers.
  Status Acknowledge(const WaitOptions& wait) EXCLUDES(mu_);
  // Releases what was handed out and is held, as far as the server answers at once.
  void Release() EXCLUDES(mu_);
  // Releases samples that no caller gets.
  void Release(std::span<const Sample> samples) const;

 private:
  const std::shared_ptr<const LeaseSettler> settler_;
  const Duration lease_;
  const bool auto_ack_;
  Mutex mu_;
  std::vector<SampleLease> handed_out_ GUARDED_BY(mu_);
  std::optional<TimePoint> failing_since_ GUARDED_BY(mu_);  // acknowledgements of handed_out_
};

}  // namespace reverb::internal

#endif  // REVERB_API_HELD_LEASES_H_
