// The part of TableState that leases items.
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "core/table_state.h"

namespace reverb::internal {
namespace {

// Calls settle(id) for each grant that is in force. Counts the others, and those whose item has left the table.
template <typename Settle>
LeaseOutcome ForEachLease(const LeaseBook* leases, std::span<const LeaseGrant> grants, const Settle& settle) {
  LeaseOutcome outcome;
  for (const LeaseGrant& grant : grants) {
    const LeaseRecord* const found = leases == nullptr ? nullptr : leases->Find(grant);
    if (found == nullptr) {
      ++outcome.expired;
      continue;
    }
    ++(found->slot ? outcome.settled : outcome.gone);
    settle(grant.id);
  }
  return outcome;
}

}  // namespace

internal::Sample TableState::Grant(const Selection& pick, bool rate_limited, TimePoint expires) {
  if (leases_ == nullptr) {
    leases_ = std::make_unique<LeaseBook>(EntropySeed());
    inserted_of_ = [this](Slot slot) { return slots_[slot].inserted; };
  }
  const SlotRecord& record = slots_[pick.slot];
  internal::Sample sample = record.Share();
  sample.probability = pick.probability;
  sample.table_size = size_;
  if (sample.times_sampled < std::numeric_limits<int32_t>::max()) ++sample.times_sampled;
  sample.rate_limited = rate_limited;
  sample.lease_id = leases_->Add(record.key, pick.slot, expires);
  sampler_->Delete(pick.slot);
  limiter_.ReserveSample();
  ++leased_;
  ++lease_counts_.granted;
  return sample;
}

void TableState::EndLease(uint64_t id, bool was_acknowledged) {
  const LeaseRecord lease = was_acknowledged ? leases_->RemoveAcknowledged(id) : leases_->Remove(id);
  limiter_.UnreserveSample();
  if (!lease.slot) return;
  --leased_;
  sampler_->Reinsert(EntryOf(*lease.slot), inserted_of_);
}

Result<int64_t> TableState::SampleLeased(int64_t n, const BatchRules& rules, const Trajectory* first,
                                         bool whole, bool rate_limited, TimePoint expires,
                                         std::vector<internal::Sample>* out) {
  // Each item is drawn once, and leased items stay in the table: the limiter allows as many now as one by one.
  if (whole && (size_ - leased_ < n || limiter_.MaxSamples(n) < n)) return 0;
  const size_t before = out->size();
  const bool is_checked = !rules.empty() && removes_sampled_items();
  Trajectory first_drawn;
  Status status;
  for (int64_t drawn = 0; drawn < n && CanSample(); ++drawn) {
    Selection pick;
    sampler_->Sample({&pick, 1});
    if (is_checked) {
      const SlotRecord& record = slots_[pick.slot];
      const Trajectory item = Trajectory::Share(record.trajectory);
      status = CheckBatchRules(rules, static_cast<int64_t>(out->size()), record.key, item, first,
                               [this] { return ColumnNames(); });
      if (!status.ok()) break;
      if (first == nullptr) {
        first_drawn = item;
        first = &first_drawn;
      }
    }
    out->push_back(Grant(pick, rate_limited, expires));
  }
  if (status.ok()) return static_cast<int64_t>(out->size() - before);
  for (size_t i = before; i < out->size(); ++i) {
    EndLease((*out)[i].lease_id);
    --lease_counts_.granted;
  }
  out->resize(before);
  return Status::InvalidArgument("table \"" + options_.name + "\": " + std::string(status.message()) +
                                 "; no item was removed from the table");
}

Status TableState::CheckWholeLease(int64_t n) const {
  const RateLimiterOptions& limiter = limiter_.options();
  if (static_cast<double>(n) <= limiter.max_diff - limiter.min_diff && n <= max_size_) return Status::Ok();
  return Status::InvalidArgument("table \"" + options_.name + "\": " + std::to_string(n) +
                                 " samples can never be leased together: " + DescribeLimits() +
                                 "; request fewer, or change the table");
}

LeaseOutcome TableState::Acknowledge(std::span<const LeaseGrant> grants, Effects* effects) {
  LeaseOutcome outcome;
  for (const LeaseGrant& grant : grants) {
    const LeaseRecord* const found = leases_ == nullptr ? nullptr : leases_->Find(grant);
    if (found == nullptr) {
      // Repeated, because its caller did not get the first answer.
      const bool was_acknowledged = leases_ != nullptr && leases_->WasAcknowledged(grant);
      ++(was_acknowledged ? outcome.settled : outcome.expired);
      continue;
    }
    ++lease_counts_.acknowledged;
    limiter_.CountSamples(1);
    if (!found->slot) {
      EndLease(grant.id, /*was_acknowledged=*/true);
      ++outcome.gone;
      continue;
    }
    ++outcome.settled;
    const Slot slot = *found->slot;
    SlotRecord& record = slots_.Mutable(slot);
    CountSampled(&record);
    const bool used_up = removes_sampled_items() && record.times_sampled >= max_times_sampled_;
    // The item is still leased: priorities that the hooks set do not reach the sampler.
    RunHooks(&TableExtension::OnSample, record, effects);
    if (used_up) Remove(slot, Removal::kExpired, effects);  // leaves the lease without an item
    EndLease(grant.id, /*was_acknowledged=*/true);
  }
  lease_counts_.late += outcome.expired;
  return outcome;
}

LeaseOutcome TableState::Release(std::span<const LeaseGrant> grants) {
  const LeaseOutcome outcome = ForEachLease(leases_.get(), grants, [&](uint64_t id) { EndLease(id); });
  lease_counts_.late += outcome.expired;
  return outcome;
}

LeaseOutcome TableState::Extend(std::span<const LeaseGrant> grants, TimePoint expires) {
  const LeaseOutcome outcome =
      ForEachLease(leases_.get(), grants, [&](uint64_t id) { leases_->Extend(id, expires); });
  lease_counts_.late += outcome.expired;
  return outcome;
}

void TableState::BoundOrphanedLeases() {
  // Two for each item that leaves, so that the number shrinks after max_size was lowered.
  for (int i = 0; i < 2 && leases_->num_orphans() > max_size_; ++i) {
    EndLease(leases_->OldestOrphan());
    ++lease_counts_.expired;
  }
}

bool TableState::ExpireLeases(int64_t* most) {
  while (const auto first = leases_->First()) {
    if (first->first > now_) return false;
    if ((*most)-- <= 0) return true;
    EndLease(first->second);
    ++lease_counts_.expired;
  }
  return false;
}

std::optional<TimePoint> TableState::NextLeaseExpiry() const {
  if (!has_leases()) return std::nullopt;
  const TimePoint first = leases_->First()->first;
  return first == TimePoint::max() ? std::nullopt : std::optional(first);
}

WaitReason TableState::SampleWaitReason() const {
  const WaitReason reason = limiter_.SampleWaitReason();
  return reason == WaitReason::kNone && size_ == leased_ ? WaitReason::kLeased : reason;
}

std::unique_ptr<SelectorCapture> TableState::CaptureSampler() {
  if (leased_ == 0) return sampler_->Capture();
  std::vector<Slot> hidden;
  hidden.reserve(static_cast<size_t>(leased_));
  leases_->ForEachSlot([&](Slot slot) { hidden.push_back(slot); });
  for (const Slot slot : hidden) sampler_->Reinsert(EntryOf(slot), inserted_of_);
  std::unique_ptr<SelectorCapture> capture = sampler_->Capture();
  for (auto slot = hidden.rbegin(); slot != hidden.rend(); ++slot) sampler_->Delete(*slot);
  return capture;
}

}  // namespace reverb::internal
