// extensions.h — the table extensions that come with the library.
//
//   auto statistics = reverb::MakeStatistics();
//   options.extensions = {statistics, reverb::MakePriorityDiffusion({.decay = 0.5, .radius = 3}).value()};
//   …
//   statistics->Get().sampled.items
//
// Each object serves one table: make one per table.
#ifndef REVERB_EXTENSIONS_H_
#define REVERB_EXTENSIONS_H_

#include <array>
#include <cstdint>
#include <memory>

#include "reverb/extension.h"
#include "reverb/status.h"
#include "reverb/table.h"

namespace reverb {

// --- Statistics ---------------------------------------------------------------------------------

// What happened in a table since it was made; a reset of the table does not set it back.
struct StatisticsSnapshot {
  struct Count {
    int64_t items = 0;
    int64_t bytes = 0;  // ItemView::bytes of those items: a chunk that n items share counts n times
    friend bool operator==(const Count&, const Count&) = default;
  };
  // Of finite priorities; all zero if there were none.
  struct PriorityRange {
    int64_t count = 0;
    double mean = 0;
    double min = 0;
    double max = 0;
    friend bool operator==(const PriorityRange&, const PriorityRange&) = default;
  };

  Count inserted;
  Count sampled;  // once per sample
  Count deleted;  // evicted, used up or deleted; not those that went in a reset
  Count updated;  // by callers; not those that extensions asked for
  int64_t resets = 0;

  PriorityRange insert_priority;
  PriorityRange update_priority;

  // How often items had been sampled when they were deleted: [0] never, [i] 2^(i-1) to 2^i - 1 times.
  std::array<int64_t, 32> times_sampled_at_delete = {};

  friend bool operator==(const StatisticsSnapshot&, const StatisticsSnapshot&) = default;
};

// Counts. Its state is part of checkpoints, so the counts go on after a restore.
class StatisticsExtension : public TableExtension {
 public:
  // From any thread, while the table works.
  virtual StatisticsSnapshot Get() const = 0;
};

std::shared_ptr<StatisticsExtension> MakeStatistics();

// --- Priority diffusion -------------------------------------------------------------------------

struct PriorityDiffusionOptions {
  enum class Rule : uint8_t {
    kMax,  // a neighbour's priority is raised to what reaches it, never lowered
    kSet,  // it becomes what reaches it
  };

  // --- Behaviour ---
  double decay = 0.5;  // in (0, 1): what is left of a priority after one neighbour
  Rule rule = Rule::kMax;

  // --- Cost ---
  // How many neighbours on each side are reached; > 0. Every update costs as many more.
  int32_t radius = 1;

  Status Validate() const;
};

// An update of an item to priority p spreads to the items of the same episode that stand next to it
// when they are ordered by first step (and by key where they start at the same step): to the d-th on
// either side, up to `radius`, comes p * decay^d. These changes spread no further, and what is not
// finite does not spread. An insert of a new item spreads nothing.
//
// Neighbours' priorities are known from inserts, updates and its own changes. What another extension
// of the same table changes stays unknown to kMax until the next update of that item.
Result<std::shared_ptr<TableExtension>> MakePriorityDiffusion(const PriorityDiffusionOptions& options);

// --- Insert on sample ---------------------------------------------------------------------------

struct InsertOnSampleCounts {
  int64_t inserted = 0;  // new in the target, or an update of an item that was there
  int64_t timed_out = 0;
  int64_t failed = 0;     // refused, target closed or gone, too many under way
  int64_t under_way = 0;  // now
};

class InsertOnSampleExtension : public TableExtension {
 public:
  // From any thread, while the table works.
  virtual InsertOnSampleCounts counts() const = 0;
};

// The first sample of an item puts a copy (same key, same data, sampled once) into `target`. The copy
// never makes the sampling caller wait; where the target makes it wait longer than `timeout` (absent =
// for ever), it is dropped, counted and logged. Keeps the target's table alive no longer than others do.
Result<std::shared_ptr<InsertOnSampleExtension>> MakeInsertOnSample(const Table& target,
                                                                    Timeout timeout = {});

}  // namespace reverb

#endif  // REVERB_EXTENSIONS_H_
