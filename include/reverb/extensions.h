// extensions.h — the table extensions that come with the library.
//
//   auto statistics = reverb::MakeStatistics();
//   auto diffusion = reverb::MakePriorityDiffusion({.decay = 0.5, .radius = 3}).value();
//   reverb::TableOptions options{.name = "replay", .extensions = {statistics, diffusion}};
//   // ...
//   int64_t sampled = statistics->Get().sampled.items;
//
// An extension object belongs to one table: create one per table.
#ifndef REVERB_EXTENSIONS_H_
#define REVERB_EXTENSIONS_H_

#include <array>
#include <cstdint>
#include <memory>

#include "reverb/extension.h"
#include "reverb/status.h"
#include "reverb/wait.h"

namespace reverb {

class Table;

// --- Statistics ---------------------------------------------------------------------------------

// Counts the operations of a table since its creation; a reset of the table does not reset the counts.
struct StatisticsSnapshot {
  struct Count {
    int64_t items = 0;
    int64_t bytes = 0;  // ItemView::bytes of those items: a chunk that n items share counts n times
    friend bool operator==(const Count&, const Count&) = default;
  };
  // Covers finite priorities; all zero if there were none.
  struct PriorityRange {
    int64_t count = 0;
    double mean = 0;
    double min = 0;
    double max = 0;
    friend bool operator==(const PriorityRange&, const PriorityRange&) = default;
  };

  Count inserted;
  Count sampled;  // once per sample
  Count deleted;  // evicted, expired by max_times_sampled or deleted; not by a reset
  Count updated;  // by callers; not by extensions
  int64_t resets = 0;

  PriorityRange insert_priority;
  PriorityRange update_priority;

  // Histogram of times_sampled of deleted items: [0] never, [i] 2^(i-1) to 2^i - 1 times.
  std::array<int64_t, 32> times_sampled_at_delete = {};

  friend bool operator==(const StatisticsSnapshot&, const StatisticsSnapshot&) = default;
};

// Collects statistics. Checkpoints contain its state, so the counts continue after a restore.
class StatisticsExtension : public TableExtension {
 public:
  // May be called from any thread while the table is in use.
  virtual StatisticsSnapshot Get() const = 0;
};

std::shared_ptr<StatisticsExtension> MakeStatistics();

// --- Priority diffusion -------------------------------------------------------------------------

struct PriorityDiffusionOptions {
  enum class Rule : uint8_t {
    kMax,  // raises a neighbour's priority to the diffused value, never lowers it
    kSet,  // sets a neighbour's priority to the diffused value
  };

  // --- Behaviour ---
  double decay = 0.5;  // in (0, 1): the factor per neighbour
  Rule rule = Rule::kMax;

  // --- Cost ---
  // Number of neighbours on each side; > 0. Every update causes up to 2 * radius further updates.
  int32_t radius = 1;

  Status Validate() const;
};

// Diffuses priority updates to neighbours: the items of the same episode, ordered by first step, then by key.
// An update to priority p gives the d-th neighbour on either side, up to `radius`, the value p * decay^d.
// These changes do not diffuse further. Priorities that are not finite and inserts of new items do not
// diffuse.
//
// The extension knows its neighbours' priorities from inserts, updates and its own changes. With kMax it does
// not see changes by another extension of the same table until the next update of that item.
Result<std::shared_ptr<TableExtension>> MakePriorityDiffusion(const PriorityDiffusionOptions& options);

// --- Insert on sample ---------------------------------------------------------------------------

struct InsertOnSampleCounts {
  int64_t inserted = 0;  // new items of the target, or updates of existing ones
  int64_t timed_out = 0;
  int64_t failed = 0;     // rejected, target closed or destroyed, too many in progress
  int64_t under_way = 0;  // now in progress
};

class InsertOnSampleExtension : public TableExtension {
 public:
  // May be called from any thread while the table is in use.
  virtual InsertOnSampleCounts counts() const = 0;
};

// Inserts a copy of an item (same key, same data, times_sampled = 1) into `target` when the item is first
// sampled. The sampling caller does not wait for the insert. A copy that has to wait for the target longer
// than `timeout` (absent = forever) is dropped, counted and logged. Does not keep the target table alive.
Result<std::shared_ptr<InsertOnSampleExtension>> MakeInsertOnSample(const Table& target,
                                                                    Timeout timeout = {});

}  // namespace reverb

#endif  // REVERB_EXTENSIONS_H_
