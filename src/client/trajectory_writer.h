// trajectory_writer.h — cells become items, and items go to the sink in order.
//
// An item whose chunks are complete goes to the sink at once, unless others wait before it. The rest
// waits in a queue here until an append, a flush or the end of the episode completes the chunks: the
// first of the queue holds up those behind it.
//
// The other writers are built on this one. Threads: one at a time.
#ifndef REVERB_CLIENT_TRAJECTORY_WRITER_H_
#define REVERB_CLIENT_TRAJECTORY_WRITER_H_

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

class TrajectoryWriterImpl {
 public:
  // REQUIRES: valid options.
  TrajectoryWriterImpl(const TrajectoryWriterOptions& options, std::unique_ptr<ItemSink> sink,
                       ColumnStore::Packing packing = ColumnStore::Packing::kSmall,
                       ColumnStore::Texts texts = ColumnStore::Texts::kTrajectory);
  ~TrajectoryWriterImpl();
  TrajectoryWriterImpl(const TrajectoryWriterImpl&) = delete;
  TrajectoryWriterImpl& operator=(const TrajectoryWriterImpl&) = delete;

  // All as in reverb/writer.h.
  Status Append(std::span<const ColumnValue> values) { return Append(values, true); }
  Status AppendPartial(std::span<const ColumnValue> values) { return Append(values, false); }
  Status CreateItem(std::string_view table, double priority, std::span<const ItemColumn> columns,
                    const ItemStructure& structure = {});
  Status Flush(int64_t block_until_num_items, const WaitOptions& wait);
  Status EndEpisode(bool clear, const WaitOptions& wait);
  int64_t Close();

  // In parts, for writers that are several of these.
  // What Append() would say about the values, unless memory lacks.
  Status CheckStep(std::span<const ColumnValue> values) { return columns_.Check(values); }
  // All that CreateItem() can find wrong; then the item can be made, as long as nothing else is written.
  Status PrepareItem(std::string_view table, double priority, std::span<const ItemColumn> columns);
  // Makes the item that was prepared last. Does not wait for room.
  Status CreatePrepared(std::string_view table, double priority, const ItemStructure& structure);
  // Completes the chunks of all but the newest `keep` items that wait, and hands them over.
  Status FinishAllBut(size_t keep) {
    return FinishWaiting(waiting_.size() > keep ? waiting_.size() - keep : 0);
  }
  // EndEpisode() that waits for nothing.
  Status StartEpisode(bool clear);

  bool is_closed() const { return is_closed_; }

  Status Configure(uint32_t column, const ChunkingOptions& options) {
    return columns_.Configure(column, options);
  }
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
  ItemSink& sink() { return *sink_; }

 private:
  struct ColumnEnd {
    uint32_t end_run = 0;
    bool squeeze = false;
  };
  // What an item consists of, before and while it waits. Columns' runs lie one after the other.
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
    size_t complete_runs = 0;  // the first of them are known to be
  };

  Status Append(std::span<const ColumnValue> values, bool closes_step);
  Status CheckUsable() const;
  // Fills plan_. Errors have the prefix.
  Status MakePlan(std::span<const ItemColumn> columns);
  Status CheckAlike(const ItemColumn& column) const;
  Status Send(uint64_t key, std::string_view table, double priority, const ItemStructure& structure,
              const Plan& plan);
  Result<Trajectory> MakeTrajectory(const Plan& plan);
  // Hands over what is complete, up to the first item that is not.
  Status Drain();
  // Completes the chunks of the first `items` waiting items, and hands over.
  Status FinishWaiting(size_t items);
  void DropWaiting();

  const std::unique_ptr<ItemSink> sink_;
  const std::shared_ptr<const TableSignatures> signatures_;
  const WaitOptions wait_for_room_;
  Random random_;
  ColumnStore columns_;
  Ring<WaitingItem> waiting_;
  bool is_closed_ = false;

  // Reused from item to item.
  Plan plan_;
  std::vector<ColumnSpec> specs_;
  std::vector<ItemColumnSpec> item_specs_;
};

}  // namespace reverb::internal

#endif  // REVERB_CLIENT_TRAJECTORY_WRITER_H_
