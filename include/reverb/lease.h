// lease.h — leases of sampled items.
//
// A sample that is drawn under a lease is not consumed yet. Its item stays in the table, but no sampler gets it,
// until the consumer acknowledges it (it was consumed: the table counts the sample), releases it, or the
// lease expires (it was not: other consumers get it). So a consumer that dies loses nothing.
#ifndef REVERB_LEASE_H_
#define REVERB_LEASE_H_

#include <cstdint>

namespace reverb {

// One grant of an item. Every grant has an id of its own, so that a late acknowledgement of an earlier grant
// cannot settle a later one.
struct LeaseGrant {
  uint64_t key = 0;  // of the item
  uint64_t id = 0;   // 0 = none

  friend bool operator==(const LeaseGrant&, const LeaseGrant&) = default;
};

// What became of leases that were acknowledged, released or extended.
struct LeaseOutcome {
  int64_t settled = 0;  // the lease was in force
  int64_t gone = 0;     // the lease was in force, but the item had left the table: evicted, deleted, aged
  // The table does not know the lease. It expired or was released before, or the table was reset or restored:
  // another consumer may have got the item. An acknowledgement that is repeated counts as settled, if it is one of
  // the last few thousand.
  int64_t expired = 0;

  LeaseOutcome& operator+=(const LeaseOutcome& other) {
    settled += other.settled;
    gone += other.gone;
    expired += other.expired;
    return *this;
  }
  friend bool operator==(const LeaseOutcome&, const LeaseOutcome&) = default;
};

// The leases of a table. Counted since the server started: checkpoints do not keep them.
struct LeaseCounts {
  int64_t leased = 0;        // items that are leased now
  int64_t granted = 0;       // leases
  int64_t acknowledged = 0;  // in time
  int64_t expired = 0;       // neither acknowledged nor released in time
  int64_t late = 0;          // acknowledged, released or extended when the table no longer knew the lease
};

}  // namespace reverb

#endif  // REVERB_LEASE_H_
