// structured_writer.h — creates items from patterns.
//
// Evaluates every config after each append: if its conditions are satisfied and all cells of its pattern
// exist, it creates the item. Patterns count rows from the newest step, so they map to positions of the
// underlying TrajectoryWriterImpl. Values for conditions and TD errors are extracted from the leaves as they
// arrive, so no chunk is ever read back; a leaf that only conditions use is not stored at all.
//
// Threads: one at a time.
#ifndef REVERB_CLIENT_STRUCTURED_WRITER_H_
#define REVERB_CLIENT_STRUCTURED_WRITER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "client/item_sink.h"
#include "client/ring.h"
#include "client/trajectory_writer.h"
#include "reverb/status.h"
#include "reverb/wait.h"
#include "reverb/writer.h"

namespace reverb::internal {

class StructuredWriterImpl {
 public:
  // REQUIRES: valid options.
  StructuredWriterImpl(StructuredWriterOptions options, std::unique_ptr<ItemSink> sink);

  // These methods are documented in reverb/writer.h.
  Status Append(std::span<const std::optional<TensorView>> leaves) { return Append(leaves, true); }
  Status AppendPartial(std::span<const std::optional<TensorView>> leaves) { return Append(leaves, false); }
  Status Flush(int64_t block_until_num_items, const WaitOptions& wait) {
    return writer_.Flush(block_until_num_items, wait);
  }
  Status EndEpisode(bool clear, const WaitOptions& wait);
  int64_t Close() { return writer_.Close(); }
  bool step_is_open() const { return writer_.columns().step_is_open(); }
  bool may_wait() { return writer_.sink().may_wait(); }

 private:
  struct Config {
    StructuredConfig config;
    int64_t steps_since_applied = 0;
    int64_t last_applied = -1;  // a position
    int64_t last_checked = -1;
  };
  // A number extracted from a leaf at one step.
  struct Number {
    int64_t position = -1;
    bool valid = false;
    double value = 0;
  };
  struct Leaf {
    bool in_pattern = false;
    bool in_condition = false;
    bool in_td_error = false;
    bool is_used() const { return in_pattern || in_condition; }

    int64_t condition_position = -1;  // of the value below
    std::optional<int64_t> condition_value;
    Ring<Number> td_errors;  // of the newest steps
  };

  Status Append(std::span<const std::optional<TensorView>> leaves, bool closes_step);
  void Observe(Leaf& leaf, const TensorView& value, int64_t position);
  // Creates the items that are due at `newest`.
  Status Apply(int64_t newest, bool ends_episode);
  bool ConditionsHold(const Config& config, int64_t newest, bool ends_episode) const;
  // Resolves the pattern into ranges_. Returns false if a cell is missing.
  bool ResolvePattern(const Config& config, int64_t newest);
  Result<double> PriorityOf(const Config& config) const;

  std::vector<Config> configs_;
  std::vector<Leaf> leaves_;  // up to the last one that is used
  std::optional<size_t> num_leaves_;
  int64_t max_age_;
  TrajectoryWriterImpl writer_;

  // Reused between calls.
  std::vector<ColumnValue> values_;
  std::vector<CellRange> ranges_;
  std::vector<ItemColumn> columns_;
};

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_STRUCTURED_WRITER_H_
