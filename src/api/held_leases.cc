#include "api/held_leases.h"

#include <algorithm>
#include <map>

#include "base/log.h"
#include "base/wait_loop.h"

namespace reverb {

bool SampleLease::is_held() const { return held_ != nullptr && held_->is_held(); }

int64_t SampleLease::size() const { return held_ == nullptr ? 0 : held_->size(); }

Result<LeaseOutcome> SampleLease::Ack(const WaitOptions& wait) const {
  return internal::HeldLeases::SettleAll({this, 1}, internal::HeldLeases::Kind::kAck, wait);
}

Result<LeaseOutcome> SampleLease::Release(const WaitOptions& wait) const {
  return internal::HeldLeases::SettleAll({this, 1}, internal::HeldLeases::Kind::kRelease, wait);
}

Result<LeaseOutcome> SampleLease::Extend(std::chrono::nanoseconds lease, const WaitOptions& wait) const {
  if (held_ == nullptr) return Status::FailedPrecondition("this sample is not leased; nothing to extend");
  return held_->Extend(lease, wait);
}

namespace internal {
namespace {

// Bounds calls of a consumer that stops or tries once.
constexpr std::chrono::seconds kSettleTimeout{1};

// How long the first of several servers may take before the next one is called.
constexpr std::chrono::milliseconds kFirstPatience{200};

}  // namespace

HeldLeases::HeldLeases(std::shared_ptr<const LeaseSettler> settler, std::span<const Sample> samples)
    : settler_(std::move(settler)) {
  std::map<uint64_t, std::vector<LeaseGrant>> grants;
  for (const Sample& sample : samples) {
    if (sample.lease_id != 0) grants[sample.server].push_back({sample.key, sample.lease_id});
  }
  for (auto& [server, leases] : grants) {
    size_ += static_cast<int64_t>(leases.size());
    targets_.push_back({.server = server, .link = settler_->find(server), .grants = std::move(leases)});
  }
  is_settled_ = size_ == 0;
}

Status HeldLeases::Send(const std::string& table, Kind kind, Duration extension, const WaitOptions& wait,
                        std::vector<Target>* targets, LeaseOutcome* outcome) {
  // Those that are known to be connected come first. Each gets a short time, and a longer one if it has not answered:
  // the leases of the others run meanwhile.
  std::stable_partition(targets->begin(), targets->end(), [](const Target& target) {
    return target.link != nullptr && !target.link->is_lost() && target.link->was_reached();
  });
  WaitLoop loop(wait);
  std::vector<Target> failed;
  Status status;
  for (Duration patience = kFirstPatience;; patience *= 2) {
    failed.clear();
    status = Status::Ok();
    bool has_timed_out = false;
    for (size_t i = 0; i < targets->size(); ++i) {
      Target& target = (*targets)[i];
      SettleLeasesRequest request{.table = table, .extension = extension};
      (kind == Kind::kAck       ? request.acks
       : kind == Kind::kRelease ? request.releases
                                : request.extends) = target.grants;
      WaitOptions turn = wait;
      if (wait.timeout) turn.timeout = std::max(*wait.timeout - loop.waited(), Duration(0));
      const bool is_bounded = targets->size() > 1 && (!turn.timeout || *turn.timeout > patience);
      if (is_bounded) turn.timeout = patience;
      const Result<LeaseOutcome> result =
          target.link ? target.link->SettleLeases(request, turn)
                      : Result<LeaseOutcome>(Status::Unavailable(
                            "the server of the leased samples does not belong to the set any more"));
      if (result.ok()) {
        *outcome += *result;
        continue;
      }
      has_timed_out |= is_bounded && result.status().code() == StatusCode::kDeadlineExceeded;
      const bool is_cancelled = result.status().code() == StatusCode::kCancelled;
      if (status.ok() || is_cancelled) status = result.status();
      failed.push_back(std::move(target));
      if (!is_cancelled) continue;
      for (++i; i < targets->size(); ++i) failed.push_back(std::move((*targets)[i]));
    }
    targets->swap(failed);
    if (!has_timed_out || status.code() == StatusCode::kCancelled) return status;
  }
}

Result<LeaseOutcome> HeldLeases::SettleAll(std::span<const SampleLease> leases, Kind kind,
                                           const WaitOptions& wait) {
  std::vector<HeldLeases*> settled;
  std::map<uint64_t, Target> by_server;
  for (const SampleLease& lease : leases) {
    if (lease.held_ == nullptr || lease.held_->is_settled_.exchange(true)) continue;
    settled.push_back(lease.held_.get());
    MutexLock lock(&lease.held_->mu_);
    for (const Target& target : lease.held_->targets_) {
      Target& sum =
          by_server.try_emplace(target.server, Target{target.server, target.link, {}}).first->second;
      sum.grants.insert(sum.grants.end(), target.grants.begin(), target.grants.end());
    }
  }
  LeaseOutcome outcome;
  if (settled.empty()) return outcome;
  std::vector<Target> targets;
  for (auto& [server, target] : by_server) targets.push_back(std::move(target));
  const Status status = Send(settled.front()->settler_->table, kind, {}, wait, &targets, &outcome);
  for (HeldLeases* held : settled) {
    MutexLock lock(&held->mu_);
    outcome += std::exchange(held->outcome_, {});
    std::erase_if(held->targets_, [&](const Target& target) {
      return std::ranges::find(targets, target.server, &Target::server) == targets.end();
    });
    if (!held->targets_.empty()) held->is_settled_ = false;
  }
  if (status.ok()) return outcome;
  // The next attempt, which settles the rest, reports it.
  for (HeldLeases* held : settled) {
    MutexLock lock(&held->mu_);
    if (held->targets_.empty()) continue;
    held->outcome_ = outcome;
    break;
  }
  return status;
}

Result<LeaseOutcome> HeldLeases::Extend(Duration lease, const WaitOptions& wait) const {
  if (lease <= Duration(0)) {
    return Status::InvalidArgument("a lease is extended by " + std::to_string(lease.count()) +
                                   " ns; give a positive time, or release it");
  }
  if (!is_held()) {
    return Status::FailedPrecondition("the lease was acknowledged or released; it cannot be extended");
  }
  std::vector<Target> targets;
  {
    MutexLock lock(&mu_);
    targets = targets_;
  }
  LeaseOutcome outcome;
  REVERB_RETURN_IF_ERROR(Send(settler_->table, Kind::kExtend, lease, wait, &targets, &outcome));
  return outcome;
}

SampleLease HandedOutLeases::HandOut(std::span<const Sample> samples) {
  SampleLease lease = HeldLeases::Make(settler_, samples);
  if (auto_ack_) {
    MutexLock lock(&mu_);
    handed_out_.push_back(lease);
  }
  return lease;
}

Status HandedOutLeases::Acknowledge(const WaitOptions& wait) {
  const TimePoint now = RealClock()->Now();
  std::vector<SampleLease> leases;
  {
    MutexLock lock(&mu_);
    leases.swap(handed_out_);
  }
  if (leases.empty()) return Status::Ok();
  WaitOptions bounded = wait;
  // An acknowledgement takes one round trip, for which also a caller that tries once has time.
  bounded.timeout =
      std::min<Duration>(std::max<Duration>(wait.timeout.value_or(lease_), kSettleTimeout), lease_);
  const Result<LeaseOutcome> outcome = HeldLeases::SettleAll(leases, HeldLeases::Kind::kAck, bounded);
  const StatusCode code = outcome.status().code();
  {
    MutexLock lock(&mu_);
    if (!outcome.ok() && !failing_since_) failing_since_ = now;
    // The next call tries again, as long as the leases may be in force.
    if ((code == StatusCode::kDeadlineExceeded || code == StatusCode::kCancelled) &&
        RealClock()->Now() - *failing_since_ < lease_) {
      handed_out_.insert(handed_out_.end(), leases.begin(), leases.end());
      return outcome.status();
    }
    failing_since_.reset();
  }
  if (outcome.ok() && outcome->expired == 0) return Status::Ok();
  if (outcome.ok()) {
    Log(LogLevel::kWarning, "table \"" + settler_->table + "\": " + std::to_string(outcome->expired) +
                                " samples were acknowledged after their lease had expired, so other "
                                "consumers may have got them too; take longer leases, or extend them");
    return Status::Ok();
  }
  Log(LogLevel::kWarning, "table \"" + settler_->table +
                              "\": samples could not be acknowledged, so other consumers may get them too: " +
                              outcome.status().ToString());
  return Status::Ok();
}

void HandedOutLeases::Release() {
  std::vector<SampleLease> leases;
  {
    MutexLock lock(&mu_);
    leases.swap(handed_out_);
  }
  (void)HeldLeases::SettleAll(leases, HeldLeases::Kind::kRelease, {.timeout = kSettleTimeout});
}

void HandedOutLeases::Release(std::span<const Sample> samples) const {
  if (samples.empty()) return;
  const SampleLease lease = HeldLeases::Make(settler_, samples);
  (void)lease.Release({.timeout = kSettleTimeout});
}

}  // namespace internal
}  // namespace reverb
