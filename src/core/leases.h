// leases.h — which items of a table are leased, under which id, and until when.
//
// A LeaseBook only keeps the leases; TableState has the rules (table_leases.cc). An item has at most one lease.
// A lease whose item has left the table stays in the book without it until it is settled or expires, because
// the consumer holds the data and will acknowledge that it used it. TableState bounds the number of these.
//
// The book remembers the last acknowledged leases, so that an acknowledgement that is repeated after a broken
// connection is recognized.
//
// Threads: needs the table's lock.
#ifndef REVERB_CORE_LEASES_H_
#define REVERB_CORE_LEASES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "reverb/lease.h"
#include "reverb/selector.h"

namespace reverb::internal {

struct LeaseRecord {
  uint64_t key = 0;
  TimePoint expires = {};
  std::optional<Slot> slot = {};  // absent: the item has left the table
};

class LeaseBook {
 public:
  // The number of acknowledged leases that are remembered.
  static constexpr size_t kMaxAcknowledged = 4096;

  // Ids continue from `first_id`. A random one keeps the ids of former runs of a server apart from new ones.
  explicit LeaseBook(uint64_t first_id) : next_id_(first_id) {}

  bool empty() const { return by_id_.empty(); }
  int64_t size() const { return static_cast<int64_t>(by_id_.size()); }
  bool IsLeased(Slot slot) const { return by_slot_.contains(slot); }

  // Returns the id of a new lease. REQUIRES: !IsLeased(slot).
  uint64_t Add(uint64_t key, Slot slot, TimePoint expires);
  // Returns null if there is no such lease.
  const LeaseRecord* Find(const LeaseGrant& grant) const;
  void Extend(uint64_t id, TimePoint expires);
  // Removes a lease, which must be present, and returns it.
  LeaseRecord Remove(uint64_t id);
  // The same for one that was acknowledged, which is remembered.
  LeaseRecord RemoveAcknowledged(uint64_t id);
  // Returns whether this lease is one of the last that were acknowledged.
  bool WasAcknowledged(const LeaseGrant& grant) const;
  // The item of the slot leaves the table. Returns the id of its lease, which stays; nullopt if it has none.
  std::optional<uint64_t> Orphan(Slot slot);
  // Leases whose items have left the table: their number, and the one that was granted first.
  int64_t num_orphans() const { return static_cast<int64_t>(orphans_.size()); }
  uint64_t OldestOrphan() const { return *orphans_.begin(); }
  void Clear();
  // Returns about how much memory the book takes.
  int64_t memory_bytes() const {
    constexpr size_t kPerOrderedEntry = 24;  // of a B-tree
    return static_cast<int64_t>(by_id_.capacity() * (sizeof(uint64_t) + sizeof(LeaseRecord) + 1) +
                                (by_slot_.capacity() + acknowledged_.capacity()) *
                                    (2 * sizeof(uint64_t) + 1) +
                                (by_expiry_.size() + orphans_.size()) * kPerOrderedEntry +
                                acknowledged_order_.size() * sizeof(uint64_t));
  }

  // Returns the lease that expires first.
  std::optional<std::pair<TimePoint, uint64_t>> First() const {
    if (by_expiry_.empty()) return std::nullopt;
    return *by_expiry_.begin();
  }
  // Calls f(slot) for each leased item, in the order of their grants' expiry.
  template <typename F>
  void ForEachSlot(F f) const {
    for (const auto& [expires, id] : by_expiry_) {
      if (const LeaseRecord& lease = by_id_.at(id); lease.slot) f(*lease.slot);
    }
  }

 private:
  uint64_t next_id_;
  absl::flat_hash_map<uint64_t, LeaseRecord> by_id_;
  absl::flat_hash_map<Slot, uint64_t> by_slot_;
  absl::btree_set<std::pair<TimePoint, uint64_t>> by_expiry_;
  absl::btree_set<uint64_t> orphans_;
  absl::flat_hash_map<uint64_t, uint64_t> acknowledged_;  // keys, by id
  std::deque<uint64_t> acknowledged_order_;               // their ids, oldest first
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_LEASES_H_
