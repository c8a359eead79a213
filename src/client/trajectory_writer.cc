#include "client/trajectory_writer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/log.h"
#include "client/tensor_text.h"
#include "client/unconfirmed.h"
#include "transport/wire.h"

namespace reverb {

Status TrajectoryWriterOptions::Validate() const { return chunking.Validate(); }

namespace internal {
namespace {

Status InColumn(size_t column, const Status& status) {
  return status.Prefixed("Error in column " + std::to_string(column));
}

bool IsEmpty(const CellRange& range) {
  return range.begin == range.end || (range.begin < range.end) != (range.stride > 0);
}

}  // namespace

TrajectoryWriterImpl::TrajectoryWriterImpl(const TrajectoryWriterOptions& options,
                                           std::unique_ptr<ItemSink> sink, ColumnStore::Packing packing,
                                           ColumnStore::ErrorStyle error_style)
    : sink_(std::move(sink)),
      signatures_(options.signatures),
      wait_for_room_(options.wait_for_room),
      random_(options.seed ? *options.seed : EntropySeed()),
      columns_({.chunking = options.chunking,
                .codec = PolicyOf(options.compression),
                .packing = packing,
                .error_style = error_style,
                .payload_source = sink_->payload_source()},
               random_.Next(), sink_.get()) {}

TrajectoryWriterImpl::~TrajectoryWriterImpl() {
  if (is_closed_) return;
  // Errors cannot be returned from here: flushes for a limited time, and logs what was lost.
  Status status = FinishWaiting(waiting_.size());
  if (status.ok()) status = sink_->AwaitPending(0, {.timeout = kDestructorTimeout});
  if (const int64_t discarded = Close(); discarded > 0) {
    Log(LogLevel::kWarning,
        "a writer was destroyed with " + std::to_string(discarded) +
            " items that are not confirmed, without Close() or Flush(): " + status.ToString());
  }
}

int64_t TrajectoryWriterImpl::Close() {
  if (std::exchange(is_closed_, true)) return 0;
  const int64_t discarded = sink_->pending_items() + waiting_items();
  DropWaiting();
  sink_->Close();
  return discarded;
}

Status TrajectoryWriterImpl::CheckUsable() const {
  if (is_closed_) return Status::Cancelled("TrajectoryWriter::Close has been called.");
  return sink_->status();
}

Status TrajectoryWriterImpl::Append(std::span<const ColumnValue> values, bool closes_step) {
  REVERB_RETURN_IF_ERROR(CheckUsable());
  REVERB_RETURN_IF_ERROR(columns_.Append(values, closes_step));
  return waiting_.empty() ? Status::Ok() : Drain();
}

Status TrajectoryWriterImpl::AppendSequence(std::span<const ColumnValue> values) {
  REVERB_RETURN_IF_ERROR(CheckUsable());
  REVERB_RETURN_IF_ERROR(columns_.AppendSequence(values));
  return waiting_.empty() ? Status::Ok() : Drain();
}

// --- Items ---

Status TrajectoryWriterImpl::CreateItem(std::string_view table, double priority,
                                        std::span<const ItemColumn> columns, const ItemStructure& structure) {
  REVERB_RETURN_IF_ERROR(PrepareItem(table, priority, columns));
  // Waits before accepting the item, so that a timeout has no effect.
  if (sink_->is_full()) [[unlikely]] {
    REVERB_RETURN_IF_ERROR(FinishWaiting(waiting_.size()));
    REVERB_RETURN_IF_ERROR(sink_->WaitForRoom(wait_for_room_));
  }
  return CreatePrepared(table, priority, structure);
}

Status TrajectoryWriterImpl::CreateItem(std::string_view table, double priority,
                                        std::span<const NamedColumn> columns) {
  if (!std::ranges::equal(columns, names_.names, {}, &NamedColumn::name)) {
    Names names;
    for (const NamedColumn& column : columns) names.names.emplace_back(column.name);
    names.order.resize(columns.size());
    std::iota(names.order.begin(), names.order.end(), size_t{0});
    std::ranges::sort(names.order, {}, [&](size_t i) { return columns[i].name; });
    REVERB_ASSIGN_OR_RETURN(names.structure, ItemStructure::Named(names.names));
    names_ = std::move(names);
  }
  ordered_.clear();
  for (const size_t i : names_.order) ordered_.push_back(columns[i].column);
  return CreateItem(table, priority, ordered_, names_.structure);
}

Status TrajectoryWriterImpl::PrepareItem(std::string_view table, double priority,
                                         std::span<const ItemColumn> columns) {
  const auto is_empty = [](const ItemColumn& column) { return std::ranges::all_of(column.cells, IsEmpty); };
  if (std::ranges::all_of(columns, is_empty)) {
    return Status::InvalidArgument("trajectory must not be empty.");
  }
  if (std::isnan(priority)) return Status::InvalidArgument("`priority` must not be nan.");
  REVERB_RETURN_IF_ERROR(CheckUsable());
  REVERB_RETURN_IF_ERROR(MakePlan(columns));
  return signatures_ ? signatures_.CheckItem(table, item_specs_) : Status::Ok();
}

Status TrajectoryWriterImpl::CreatePrepared(std::string_view table, double priority,
                                            const ItemStructure& structure) {
  const uint64_t key = random_.Next();
  // Not when it is sent: then there may be newer rows.
  columns_.CountItem(plan_.runs);
  const auto is_complete = [](const RowRun& run) { return static_cast<bool>(run.slot->chunk); };
  bool all_complete = std::ranges::all_of(plan_.runs, is_complete);
  if (!all_complete) {
    REVERB_RETURN_IF_ERROR(columns_.CutCollectedRows(plan_.runs));
    all_complete = std::ranges::all_of(plan_.runs, is_complete);
  }
  if (waiting_.empty() && all_complete) {
    return Send(key, table, priority, structure, plan_);
  }
  WaitingItem& item = waiting_.push_back();
  item.key = key;
  item.table = table;
  item.priority = priority;
  item.structure = structure;
  item.complete_runs = 0;
  std::swap(item.plan, plan_);
  for (const RowRun& run : item.plan.runs) columns_.Ref(run.slot);
  return Status::Ok();
}

Status TrajectoryWriterImpl::MakePlan(std::span<const ItemColumn> columns) {
  plan_.runs.clear();
  plan_.columns.clear();
  item_specs_.clear();
  for (size_t i = 0; i < columns.size(); ++i) {
    const ItemColumn& column = columns[i];
    const size_t first = plan_.runs.size();
    int64_t rows = 0;
    for (const CellRange& range : column.cells) {
      const Status status = columns_.Resolve(range, first, &plan_.runs, &rows);
      if (!status.ok()) [[unlikely]]
        return InColumn(i, status);
    }
    if (rows == 0) {
      return InColumn(i, Status::InvalidArgument("Column must not be empty next to others that are not."));
    }
    if (column.squeeze && rows != 1) {
      return InColumn(
          i, Status::InvalidArgument("Column must contain exactly one row when squeeze is set but got " +
                                     std::to_string(rows) + "."));
    }
    if (column.cells.size() > 1) {
      const Status status = CheckSameSpec(column);
      if (!status.ok()) return InColumn(i, status);
    }
    plan_.columns.push_back({.end_run = static_cast<uint32_t>(plan_.runs.size()), .squeeze = column.squeeze});
    if (signatures_) {
      const auto source = std::ranges::find_if_not(column.cells, IsEmpty)->column;
      item_specs_.push_back({.dtype = columns_.dtype(source),
                             .row_dims = columns_.dims(source),
                             .length = column.squeeze ? std::nullopt : std::optional(rows)});
    }
  }
  return Status::Ok();
}

Status TrajectoryWriterImpl::CheckSameSpec(const ItemColumn& column) const {
  const CellRange* first = nullptr;
  for (const CellRange& range : column.cells) {
    if (IsEmpty(range)) continue;
    if (first == nullptr) first = &range;
    if (columns_.dtype(first->column) != columns_.dtype(range.column)) {
      return Status::InvalidArgument("Column references tensors with different dtypes: " +
                                     std::string(TensorFlowName(columns_.dtype(first->column))) + " != " +
                                     std::string(TensorFlowName(columns_.dtype(range.column))) + ".");
    }
    if (columns_.dims(first->column) != columns_.dims(range.column)) {
      return Status::InvalidArgument(
          "Column references tensors with incompatible shapes: " + ShapeText(columns_.dims(first->column)) +
          " not compatible with " + ShapeText(columns_.dims(range.column)) + ".");
    }
  }
  return Status::Ok();
}

Status TrajectoryWriterImpl::Send(uint64_t key, std::string_view table, double priority,
                                  const ItemStructure& structure, const Plan& plan) {
  REVERB_ASSIGN_OR_RETURN(Trajectory trajectory, MakeTrajectory(plan));
  // An item that had to wait for its chunks was already accepted: the server rejects it.
  if (&plan == &plan_) {
    if (const Status status = CheckItemSize(trajectory, sink_->max_item_bytes()); !status.ok()) [[unlikely]] {
      return Status(status.code(), "the item for table \"" + std::string(table) + "\" " +
                                       std::string(status.message()) + "; it was not created");
    }
  }
  columns_.RecordItem(plan.runs);
  REVERB_RETURN_IF_ERROR(sink_->Add({.key = key,
                                     .table = std::string(table),
                                     .priority = priority,
                                     .trajectory = std::move(trajectory),
                                     .structure = structure}));
  for (const RowRun& run : plan.runs) run.slot->was_sent = true;
  return Status::Ok();
}

Result<Trajectory> TrajectoryWriterImpl::MakeTrajectory(const Plan& plan) {
  if (plan.runs.size() == 1 && plan.runs[0].chunk_column == 0) {
    const RowRun& run = plan.runs[0];
    return Trajectory::Single(run.slot->chunk, run.offset, run.length, plan.columns[0].squeeze);
  }
  if (specs_.size() < plan.columns.size()) specs_.resize(plan.columns.size());
  size_t next = 0;
  for (size_t i = 0; i < plan.columns.size(); ++i) {
    specs_[i].squeeze = plan.columns[i].squeeze;
    for (; next < plan.columns[i].end_run; ++next) {
      const RowRun& run = plan.runs[next];
      specs_[i].slices.push_back({.chunk = run.slot->chunk,
                                  .chunk_column = run.chunk_column,
                                  .offset = run.offset,
                                  .length = run.length});
    }
  }
  Result<Trajectory> trajectory = Trajectory::Create(std::span(specs_).first(plan.columns.size()));
  for (size_t i = 0; i < plan.columns.size(); ++i) specs_[i].slices.clear();
  return trajectory;
}

Status TrajectoryWriterImpl::Drain() {
  while (!waiting_.empty()) {
    WaitingItem& item = waiting_.front();
    const std::vector<RowRun>& runs = item.plan.runs;
    while (item.complete_runs < runs.size() && runs[item.complete_runs].slot->chunk) ++item.complete_runs;
    if (item.complete_runs < runs.size()) break;
    REVERB_RETURN_IF_ERROR(Send(item.key, item.table, item.priority, item.structure, item.plan));
    for (const RowRun& run : runs) columns_.Unref(run.slot);
    waiting_.pop_front();
  }
  return Status::Ok();
}

Status TrajectoryWriterImpl::FinishWaiting(size_t items) {
  for (size_t i = 0; i < items; ++i) {
    for (const RowRun& run : waiting_[i].plan.runs) REVERB_RETURN_IF_ERROR(columns_.Finish(run.slot));
  }
  return Drain();
}

void TrajectoryWriterImpl::DropWaiting() {
  while (!waiting_.empty()) {
    for (const RowRun& run : waiting_.front().plan.runs) columns_.Unref(run.slot);
    waiting_.pop_front();
  }
}

// --- Flushing and ending ---

Status TrajectoryWriterImpl::Flush(int64_t block_until_num_items, const WaitOptions& wait) {
  if (block_until_num_items < 0) {
    return Status::InvalidArgument("`block_until_num_items` must be >= 0, got " +
                                   std::to_string(block_until_num_items) + ".");
  }
  Status status = CheckUsable();
  if (status.ok()) status = FinishAllBut(static_cast<uint64_t>(block_until_num_items));
  if (status.ok()) status = sink_->AwaitPending(block_until_num_items - waiting_items(), wait);
  return WithUnconfirmed(std::move(status), unconfirmed_items());
}

Status TrajectoryWriterImpl::EndEpisode(bool clear, const WaitOptions& wait) {
  // The items have all their chunks, so the episode ends even if the wait fails.
  Status status = StartEpisode(clear);
  if (status.ok()) status = sink_->AwaitPending(0, wait);
  return WithUnconfirmed(std::move(status), unconfirmed_items());
}

Status TrajectoryWriterImpl::StartEpisode(bool clear) {
  REVERB_RETURN_IF_ERROR(CheckUsable());
  REVERB_RETURN_IF_ERROR(FinishWaiting(waiting_.size()));
  return columns_.StartEpisode(random_.Next(), clear);
}

}  // namespace internal
}  // namespace reverb
