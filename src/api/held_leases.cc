#include "api/held_leases.h"

#include <algorithm>
#include <map>

#include "base/log.h"

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

}  // namespace

HeldLeases::HeldLeases(std::shared_ptr<const LeaseSettler> settler, std::span<const Sample> samples)
    : settler_(std::move(settler)) {
  grants_.reserve(samples.size());
  for (const Sample& sample : samples) {
    if (sample.lease_id != 0) grants_.push_back({sample.server, {sample.key, sample.lease_id}});
  }
  is_settled_ = grants_.empty();
}

Result<LeaseOutcome> HeldLeases::Send(const LeaseSettler& settler, std::span<const Grant> grants, Kind kind,
                                      Duration extension, const WaitOptions& wait) {
  std::map<uint64_t, SettleLeasesRequest> requests;
  for (const Grant& grant : grants) {
    SettleLeasesRequest& request = requests[grant.server];
    (kind == Kind::kAck       ? request.acks
     : kind == Kind::kRelease ? request.releases
                              : request.extends)
        .push_back(grant.grant);
  }
  LeaseOutcome outcome;
  Status status;
  for (auto& [server, request] : requests) {
    request.table = settler.table;
    request.extension = extension;
    const Result<LeaseOutcome> result = settler.settle(server, request, wait);
    if (result.ok()) {
      outcome += *result;
    } else if (status.ok()) {
      status = result.status();
    }
  }
  if (!status.ok()) return status;
  return outcome;
}

Result<LeaseOutcome> HeldLeases::SettleAll(std::span<const SampleLease> leases, Kind kind,
                                           const WaitOptions& wait) {
  std::vector<HeldLeases*> settled;
  std::vector<Grant> grants;
  for (const SampleLease& lease : leases) {
    if (lease.held_ == nullptr || lease.held_->is_settled_.exchange(true)) continue;
    settled.push_back(lease.held_.get());
    grants.insert(grants.end(), settled.back()->grants_.begin(), settled.back()->grants_.end());
  }
  if (grants.empty()) return LeaseOutcome{};
  Result<LeaseOutcome> outcome = Send(*settled.front()->settler_, grants, kind, {}, wait);
  if (!outcome.ok()) {
    for (HeldLeases* held : settled) held->is_settled_ = false;
  }
  return outcome;
}

Result<LeaseOutcome> HeldLeases::Extend(Duration lease, const WaitOptions& wait) const {
  if (lease <= Duration(0)) {
    return Status::InvalidArgument("a lease is extended by " + std::to_string(lease.count()) +
                                   " ns; give a positive time, or release it");
  }
  if (!is_held()) {
    return Status::FailedPrecondition("the lease was acknowledged or released; it cannot be extended");
  }
  return Send(*settler_, grants_, Kind::kExtend, lease, wait);
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
  if (outcome.ok() && outcome->expired == 0) return Status::Ok();
  if (outcome.ok()) {
    Log(LogLevel::kWarning, "table \"" + settler_->table + "\": " + std::to_string(outcome->expired) +
                                " samples were acknowledged after their lease had expired, so other "
                                "consumers may have got them too; take longer leases, or extend them");
    return Status::Ok();
  }
  const bool was_cut_short =
      (wait.timeout && *wait.timeout < lease_) || outcome.status().code() == StatusCode::kCancelled;
  if (was_cut_short) {
    MutexLock lock(&mu_);
    handed_out_.insert(handed_out_.end(), leases.begin(), leases.end());
    return outcome.status();
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

bool HandedOutLeases::Renew(std::span<const Sample> samples) const {
  const HeldLeases held(settler_, samples);
  const Result<LeaseOutcome> outcome = held.Extend(lease_, {.timeout = kSettleTimeout});
  return outcome.ok() && outcome->expired == 0;
}

}  // namespace internal
}  // namespace reverb
