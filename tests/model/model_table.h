// model_table.h — a table as the contract describes it, as plainly as can be: a list of items, looked
// through from end to end, and a few sums.
//
// Where the contract leaves the choice to chance, the model does not choose: it judges whether a
// choice was possible and how likely it was, then follows it.
//
// Threads: a value; one thread at a time.
#ifndef REVERB_TESTS_MODEL_MODEL_TABLE_H_
#define REVERB_TESTS_MODEL_MODEL_TABLE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "reverb/rate_limiter.h"
#include "reverb/selector.h"
#include "reverb/table_options.h"

namespace reverb::model {

// What an item's data is, as far as a table cares.
struct ModelData {
  int id = 0;               // names it
  uint32_t chunks = 0;      // bit i: it uses chunk i
  uint32_t episodes = 0;    // bit i: one of its chunks is of episode i
  int64_t chunk_bytes = 0;  // of its distinct chunks together
};

struct ModelItem {
  uint64_t key = 0;
  double priority = 0;
  int32_t times_sampled = 0;
  int64_t inserted_at = 0;
  ModelData data;
  // Set by the table.
  uint64_t inserted = 0;  // numbers that grow with every insert and update
  uint64_t touched = 0;
  double sampler_weight = 0;  // used by prioritized selectors
  double remover_weight = 0;
};

class ModelTable {
 public:
  enum class Role { kSampler, kRemover };

  explicit ModelTable(const TableOptions& options);

  // Whether both selectors take this priority.
  bool Accepts(double priority) const;
  bool CanInsert() const;
  bool CanSample() const;
  double cursor() const;

  // Null if there is none.
  const ModelItem* Find(uint64_t key) const;
  const std::vector<ModelItem>& items() const { return items_; }  // in order of insertion
  int64_t size() const { return static_cast<int64_t>(items_.size()); }
  bool IsOverfull() const { return size() > options_.max_size; }

  // How likely a selector picks this item now; absent if it cannot.
  std::optional<double> ChanceOf(Role role, uint64_t key) const;

  // A new key is added (the caller evicts if IsOverfull() then, before it calls FinishInsert()); of one
  // that is there the priority is set. True if it was new.
  bool Insert(const ModelItem& item);
  void FinishInsert() { ++counters.inserts; }
  void Evict(uint64_t key);
  // Counts a sample; true if it used the item up, which is then gone.
  bool Sample(uint64_t key);
  void Update(uint64_t key, double priority);
  void Delete(uint64_t key);
  void Reset();
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

 private:
  ModelItem* FindMutable(uint64_t key);
  void SetPriority(ModelItem* item, double priority);
  void Remove(uint64_t key);

  TableOptions options_;
  std::vector<ModelItem> items_;
  uint64_t now_ = 0;
};

}  // namespace reverb::model

#endif  // REVERB_TESTS_MODEL_MODEL_TABLE_H_
