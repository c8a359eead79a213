#include "core/leases.h"

#include <cassert>

namespace reverb::internal {

uint64_t LeaseBook::Add(uint64_t key, Slot slot, TimePoint expires) {
  if (next_id_ == 0) ++next_id_;  // means "no lease"
  const uint64_t id = next_id_++;
  by_id_.emplace(id, LeaseRecord{.key = key, .expires = expires, .slot = slot});
  [[maybe_unused]] const bool is_new = by_slot_.emplace(slot, id).second;
  assert(is_new);
  by_expiry_.emplace(expires, id);
  return id;
}

const LeaseRecord* LeaseBook::Find(const LeaseGrant& grant) const {
  const auto it = by_id_.find(grant.id);
  return it != by_id_.end() && it->second.key == grant.key ? &it->second : nullptr;
}

void LeaseBook::Extend(uint64_t id, TimePoint expires) {
  LeaseRecord& lease = by_id_.at(id);
  by_expiry_.erase({lease.expires, id});
  lease.expires = expires;
  by_expiry_.emplace(expires, id);
}

LeaseRecord LeaseBook::Remove(uint64_t id) {
  const auto it = by_id_.find(id);
  const LeaseRecord lease = it->second;
  by_expiry_.erase({lease.expires, id});
  if (lease.slot) {
    by_slot_.erase(*lease.slot);
  } else {
    orphans_.erase(id);
  }
  by_id_.erase(it);
  return lease;
}

LeaseRecord LeaseBook::RemoveAcknowledged(uint64_t id) {
  const LeaseRecord lease = Remove(id);
  if (acknowledged_order_.size() == kMaxAcknowledged) {
    acknowledged_.erase(acknowledged_order_.front());
    acknowledged_order_.pop_front();
  }
  acknowledged_.emplace(id, lease.key);
  acknowledged_order_.push_back(id);
  return lease;
}

bool LeaseBook::WasAcknowledged(const LeaseGrant& grant) const {
  const auto it = acknowledged_.find(grant.id);
  return it != acknowledged_.end() && it->second == grant.key;
}

std::optional<uint64_t> LeaseBook::Orphan(Slot slot) {
  const auto it = by_slot_.find(slot);
  if (it == by_slot_.end()) return std::nullopt;
  const uint64_t id = it->second;
  by_id_.at(id).slot.reset();
  by_slot_.erase(it);
  orphans_.insert(id);
  return id;
}

void LeaseBook::Clear() {
  by_id_.clear();
  by_slot_.clear();
  by_expiry_.clear();
  orphans_.clear();
  acknowledged_.clear();
  acknowledged_order_.clear();
}

}  // namespace reverb::internal
