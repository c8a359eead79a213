// trajectory_writer.h — turns cells into items, and passes items to the sink in order.
//
// Creating an item completes its chunks of collected rows (column_store.h). An item whose chunks are then all
// complete goes to the sink immediately, unless other items wait. All others wait in a queue until an append,
// a flush or the end of the episode completes their chunks: the first item of the queue blocks those after it.
//
// The other writers are based on this one. Threads: one at a time.
#ifndef REVERB_CLIENT_TRAJECTORY_WRITER_H_
#define REVERB_CLIENT_TRAJECTORY_WRITER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "client/column_store.h"
#include "client/item_signature.h"
#include "client/item_sink.h"
#include "client/ring.h"
#include "reverb/status.h"
#include "reverb/wait.h"
#include "reverb/writer.h"
#include "tensor/trajectory.h"

namespace reverb::internal {

// Limits how long the destructors of writers wait for confirmations.
inline constexpr std::chrono::seconds kDestructorTimeout{10};

class TrajectoryWriterImpl {
 public:
  // REQUIRES: valid options.
  TrajectoryWriterImpl(const TrajectoryWriterOptions& options, std::unique_ptr<ItemSink> sink,
                       ColumnStore::Packing packing = ColumnStore::Packing::kSmall,
                       ColumnStore::ErrorStyle error_style = ColumnStore::ErrorStyle::kTrajectory);
  ~TrajectoryWriterImpl();
  TrajectoryWriterImpl(const TrajectoryWriterImpl&) = delete;
  TrajectoryWriterImpl& operator=(const TrajectoryWriterImpl&) = delete;

  // These methods are documented in reverb/writer.h.
  Status Append(std::span<const ColumnValue> values) { return Append(values, true); }
  Status AppendPartial(std::span<const ColumnValue> values) { return Append(values, false); }
  Status AppendSequence(std::span<const ColumnValue> values);
  Status CreateItem(std::string_view table, double priority, std::span<const ItemColumn> columns,
                    const ItemStructure& structure = {});
  Status CreateItem(std::string_view table, double priority, std::span<const NamedColumn> columns);
  Status Flush(int64_t block_until_num_items, const WaitOptions& wait);
  Status EndEpisode(bool clear, const WaitOptions& wait);
  int64_t Close();

  // The steps of the methods above, for writers that consist of several of these.
  Status Append(std::span<const ColumnValue> values, bool closes_step);
  // Returns the error that Append() would return for the values, except for running out of memory.
  Status CheckStep(std::span<const ColumnValue> values) { return columns_.Check(values); }
  // Performs all checks of CreateItem(); creating the item then succeeds, as long as nothing else is written.
  Status PrepareItem(std::string_view table, double priority, std::span<const ItemColumn> columns);
  // Creates the item that was prepared last. Does not wait for space.
  Status CreatePrepared(std::string_view table, double priority, const ItemStructure& structure);
  // Completes the chunks of all waiting items except the newest `keep`, and passes the items to the sink.
  Status FinishAllBut(size_t keep) {
    return FinishWaiting(waiting_.size() > keep ? waiting_.size() - keep : 0);
  }
  // Same as EndEpisode(), without waiting.
  Status StartEpisode(bool clear);

  bool is_closed() const { return is_closed_; }

  Status Configure(uint32_t column, const ChunkingOptions& options) {
    return columns_.Configure(column, options);
  }
  bool can_configure(uint32_t column) const { return columns_.can_configure(column); }
  Status NameColumn(uint32_t column, std::string path) {
    return columns_.NameColumn(column, std::move(path));
  }
  Status Discard(uint32_t column) { return columns_.Discard(column); }

  const ColumnStore& columns() const { return columns_; }
  int64_t episode_steps() const { return columns_.position() - columns_.episode_begin(); }
  int64_t history_length() const {
    return columns_.position() + columns_.step_is_open() - columns_.history_begin();
  }
  int64_t waiting_items() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t unconfirmed_items() const { return waiting_items() + sink_->pending_items(); }
  ItemSink& sink() { return *sink_; }

 private:
  struct ColumnEnd {
    uint32_t end_run = 0;
    bool squeeze = false;
  };
  // The contents of an item, before and while it waits. The runs of its columns are consecutive.
  struct Plan {
    std::vector<RowRun> runs;
    std::vector<ColumnEnd> columns;
  };
  struct WaitingItem {
    uint64_t key = 0;
    std::string table;
    double priority = 0;
    ItemStructure structure;
    Plan plan;
    size_t complete_runs = 0;  // number of leading runs that are known to be complete
  };

  Status CheckUsable() const;
  // Fills plan_. Error messages have the prefix.
  Status MakePlan(std::span<const ItemColumn> columns);
  Status CheckSameSpec(const ItemColumn& column) const;
  Status Send(uint64_t key, std::string_view table, double priority, const ItemStructure& structure,
              const Plan& plan);
  Result<Trajectory> MakeTrajectory(const Plan& plan);
  // Sends complete items, up to the first incomplete one.
  Status Drain();
  // Completes the chunks of the first `items` waiting items, and sends them.
  Status FinishWaiting(size_t items);
  void DropWaiting();

  const std::unique_ptr<ItemSink> sink_;
  SignatureCheck signatures_;
  const WaitOptions wait_for_room_;
  Random random_;
  ColumnStore columns_;
  Ring<WaitingItem> waiting_;
  bool is_closed_ = false;

  // The names of the last item with named columns, and what follows from them.
  struct Names {
    std::vector<std::string> names;
    std::vector<size_t> order;  // of the columns, by sorted name
    ItemStructure structure;
  };
  Names names_;

  // Reused between items.
  std::vector<ItemColumn> ordered_;
  Plan plan_;
  std::vector<ColumnSpec> specs_;
  std::vector<ItemColumnSpec> item_specs_;
};

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_TRAJECTORY_WRITER_H_
