// model_table.h — a straightforward implementation of the table's contract: a list of items with linear
// search, and a few sums.
//
// Where the contract leaves a choice to chance, the model does not choose: it checks whether a choice was
// possible and how likely it was, then follows it.
//
// Not thread-safe.
#ifndef REVERB_TESTS_MODEL_MODEL_TABLE_H_
#define REVERB_TESTS_MODEL_MODEL_TABLE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "reverb/lease.h"
#include "reverb/rate_limiter.h"
#include "reverb/selector.h"
#include "reverb/table_options.h"

namespace reverb::model {

// The properties of an item's data that a table depends on.
struct ModelData {
  int id = 0;               // unique identifier
  uint32_t chunks = 0;      // bit i: uses chunk i
  uint32_t episodes = 0;    // bit i: a chunk belongs to episode i
  int64_t chunk_bytes = 0;  // total size of its distinct chunks
};

struct ModelItem {
  uint64_t key = 0;
  double priority = 0;
  int32_t times_sampled = 0;
  int64_t inserted_at = 0;
  ModelData data;
  // Set by the table.
  uint64_t inserted = 0;  // sequence number, increased by every insert and update
  uint64_t touched = 0;
  double sampler_weight = 0;  // used by prioritized selectors
  double remover_weight = 0;
  bool is_leased = false;
};

struct ModelLease {
  LeaseGrant grant;
  int64_t expires = 0;
  bool has_item = true;  // the item has not left the table
};

class ModelTable {
 public:
  enum class Role { kSampler, kRemover };

  explicit ModelTable(const TableOptions& options);

  // Returns whether both selectors accept this priority.
  bool Accepts(double priority) const;
  bool CanInsert() const;
  bool CanSample() const;
  double cursor() const;

  // Returns null if there is no such item.
  const ModelItem* Find(uint64_t key) const;
  const std::vector<ModelItem>& items() const { return items_; }  // in order of insertion
  int64_t size() const { return static_cast<int64_t>(items_.size()); }
  bool IsOverfull() const { return size() > options_.max_size; }

  // Returns the probability that a selector picks this item now; nullopt if it cannot.
  std::optional<double> ChanceOf(Role role, uint64_t key) const;

  // Adds a new key (the caller then evicts if IsOverfull(), before it calls FinishInsert()), or sets the
  // priority of an existing one. Returns true if the key was new.
  bool Insert(const ModelItem& item);
  void FinishInsert() { ++counters.inserts; }
  void Evict(uint64_t key);
  // Evicts because max_size was lowered.
  void EvictExcess(uint64_t key);
  // Removes the items that are at least this old. Times are those of inserted_at.
  void AgeOut(int64_t now, int64_t max_age);
  void SetMaxSize(int64_t max_size) { options_.max_size = max_size; }
  void SetMaxTimesSampled(int32_t times) { options_.max_times_sampled = times; }
  // Counts a sample. Returns true if the item reached its limit, and is removed.
  bool Sample(uint64_t key);
  void Update(uint64_t key, double priority);
  void Delete(uint64_t key);
  void Reset();

  // Times are those of inserted_at. Items under a lease are not sampled.
  bool CanLease(int64_t n) const;
  void Lease(const LeaseGrant& grant, int64_t expires);
  LeaseOutcome Acknowledge(const LeaseGrant& grant);
  LeaseOutcome Release(const LeaseGrant& grant);
  LeaseOutcome Extend(const LeaseGrant& grant, int64_t expires);
  void ExpireLeases(int64_t now);
  // After a restore.
  void ForgetLeases();
  int64_t num_leased() const;

  void SetRateLimiter(const RateLimiterOptions& limiter) { options_.rate_limiter = limiter; }

  int64_t num_episodes() const;
  int64_t referenced_bytes() const;
  uint32_t chunks() const;  // bit i: some item uses chunk i

  RateLimiterCounters counters;
  int64_t num_deleted_episodes = 0;
  int64_t num_unique_samples = 0;
  int64_t evictions = 0;
  int64_t expirations = 0;
  int64_t explicit_deletes = 0;
  int64_t updates = 0;
  int64_t unknown_keys = 0;
  int64_t aged_out = 0;
  LeaseCounts lease_counts;  // without `leased`

 private:
  ModelItem* FindMutable(uint64_t key);
  // Returns null, and counts, if the table does not know the lease.
  ModelLease* FindLease(const LeaseGrant& grant, LeaseOutcome* outcome);
  void EndLease(const LeaseGrant& grant);
  bool CountSample(ModelItem* item);
  void SetPriority(ModelItem* item, double priority);
  // Returns the id of the item's lease; 0 = none.
  uint64_t Remove(uint64_t key);
  // The item, which left last, can no longer be sampled.
  void WriteOff(uint64_t key, uint64_t lease_id);
  // Bounds the leases of items that left the table, after one of them has left.
  void BoundOrphans();

  TableOptions options_;
  std::vector<ModelItem> items_;
  std::vector<ModelLease> leases_;  // in the order of their grants
  std::vector<LeaseGrant> acknowledged_;
  uint64_t now_ = 0;
};

}  // namespace reverb::model

#endif  // REVERB_TESTS_MODEL_MODEL_TABLE_H_
