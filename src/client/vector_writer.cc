#include "client/vector_writer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "base/random.h"
#include "client/row_buffer.h"
#include "client/tensor_text.h"
#include "client/unconfirmed.h"

namespace reverb {

Status VectorWriterOptions::Validate() const {
  if (num_environments < 1 || num_environments > kMaxEnvironments) {
    return Status::InvalidArgument("num_environments must be between 1 and " +
                                   std::to_string(kMaxEnvironments) + " but got " +
                                   std::to_string(num_environments) + ".");
  }
  return chunking.Validate();
}

namespace internal {
namespace {

bool IsSelected(EnvironmentMask mask, size_t environment) { return mask.empty() || mask[environment] != 0; }

Status InEnvironment(size_t environment, const Status& status) {
  return status.Prefixed("environment " + std::to_string(environment));
}

// Returns whether the range is empty for episodes of any length.
bool IsAlwaysEmpty(const StepRange& range) {
  if (!range.end) return false;
  const bool up = range.stride > 0;
  if (*range.end == (up ? 0 : -1)) return true;
  if (!range.begin || (*range.begin < 0) != (*range.end < 0)) return false;
  return up ? *range.end <= *range.begin : *range.end >= *range.begin;
}

// Resolves the range for an episode of `length` steps that begins at `first`; returns false if steps are
// missing, or if the range is empty.
bool ResolveRange(const StepRange& range, int64_t first, int64_t length, CellRange* cells) {
  const auto at = [length](int64_t position) { return position < 0 ? position + length : position; };
  const bool up = range.stride > 0;
  const int64_t begin = range.begin ? at(*range.begin) : (up ? 0 : length - 1);
  const int64_t end = range.end ? at(*range.end) : (up ? length : -1);
  if (begin < 0 || begin >= length || (up ? end <= begin : end >= begin)) return false;
  // The distance from the first to the last step; unsigned arithmetic cannot overflow here.
  const auto from = static_cast<uint64_t>(begin);
  const auto to = static_cast<uint64_t>(end);
  const auto stride = static_cast<uint64_t>(range.stride);
  const uint64_t step = up ? stride : 0 - stride;
  const uint64_t reach = ((up ? to - from : from - to) - 1) / step * step;
  if (reach > (up ? static_cast<uint64_t>(length) - 1 - from : from)) return false;
  const int64_t last = up ? begin + static_cast<int64_t>(reach) : begin - static_cast<int64_t>(reach);
  *cells = {range.column, first + begin, first + (up ? last + 1 : last - 1), range.stride};
  return true;
}

// Like ResolveRange(), for a stack, which takes at most as many ranges as steps: one for each repetition of the
// first step, and one for the others. Writes them to `cells` from `*next` on.
bool ResolveStack(const StepRange& range, int64_t first, int64_t length, std::span<CellRange> cells,
                  size_t* next) {
  const int64_t end = range.end ? (*range.end < 0 ? *range.end + length : *range.end) : length;
  if (end <= 0 || end > length) return false;
  int64_t begin = end - range.stack;
  for (; begin < 0; ++begin) cells[(*next)++] = CellRange::One(range.column, first);
  if (begin == end) return true;
  cells[(*next)++] = {range.column, first + begin, first + end};
  return true;
}

}  // namespace

// --- The sink that environments use ---

class VectorWriterImpl::EnvironmentSink final : public ItemSink {
 public:
  EnvironmentSink(CallOutput* output, ItemSink* sink) : output_(output), sink_(sink) {}

  Status Add(Item item) override {
    output_->items.push_back(std::move(item));
    return Status::Ok();
  }
  void Forget(uint64_t chunk_id) override { output_->forgotten.push_back(chunk_id); }
  int64_t pending_items() const override {
    return sink_->pending_items() + static_cast<int64_t>(output_->items.size());
  }
  bool is_full() const override { return sink_->is_full(); }
  Status WaitForRoom(const WaitOptions& wait) override { return sink_->WaitForRoom(wait); }
  Status AwaitPending(int64_t at_most, const WaitOptions& wait) override {
    return sink_->AwaitPending(at_most, wait);
  }
  PayloadSource* payload_source() const override { return sink_->payload_source(); }
  Status status() const override { return output_->health; }
  void Close() override {}  // other environments may continue

 private:
  CallOutput* const output_;
  ItemSink* const sink_;
};

VectorWriterImpl::VectorWriterImpl(const VectorWriterOptions& options, std::unique_ptr<ItemSink> sink)
    : sink_(std::move(sink)), wait_for_room_(options.wait_for_room) {
  Random random(options.seed ? *options.seed : EntropySeed());
  TrajectoryWriterOptions each{
      .chunking = options.chunking, .compression = options.compression, .signatures = options.signatures};
  for (int64_t i = 0; i < options.num_environments; ++i) {
    each.seed = random.Next();
    environments_.emplace_back(each, std::make_unique<EnvironmentSink>(&output_, sink_.get()));
  }
}

VectorWriterImpl::~VectorWriterImpl() {
  if (is_closed_) return;
  // Errors cannot be returned from here: flushes for a limited time, and logs what was lost.
  Status status = FinishWaiting(0);
  if (Status sent = SendOutput(); status.ok()) status = std::move(sent);
  if (status.ok()) status = sink_->AwaitPending(0, {.timeout = kDestructorTimeout});
  if (const int64_t discarded = Close(); discarded > 0) {
    Log(LogLevel::kWarning,
        "a writer was destroyed with " + std::to_string(discarded) +
            " items that are not confirmed, without Close() or Flush(): " + status.ToString());
  }
}

int64_t VectorWriterImpl::Close() {
  if (std::exchange(is_closed_, true)) return 0;
  const int64_t discarded =
      sink_->pending_items() + static_cast<int64_t>(output_.items.size()) + waiting_items();
  for (TrajectoryWriterImpl& environment : environments_) (void)environment.Close();
  output_.items.clear();
  sink_->Close();
  return discarded;
}

Status VectorWriterImpl::Begin(EnvironmentMask mask) {
  if (is_closed_) return Status::Cancelled("VectorWriter::Close has been called.");
  if (!mask.empty() && mask.size() != environments_.size()) {
    return Status::InvalidArgument("the mask has " + std::to_string(mask.size()) + " values but there are " +
                                   std::to_string(environments_.size()) + " environments; pass one for each");
  }
  output_.health = sink_->status();
  return output_.health;
}

Status VectorWriterImpl::SendOutput() {
  Status status;
  if (!output_.items.empty()) {
    status = sink_->AddAll(output_.items);
    output_.items.clear();
  }
  for (const uint64_t chunk : output_.forgotten) sink_->Forget(chunk);
  output_.forgotten.clear();
  return status;
}

// --- Steps ---

std::string VectorWriterImpl::Describe(uint32_t column) const {
  return column < columns_.size() && !columns_[column].path.empty() ? columns_[column].path
                                                                    : std::to_string(column);
}

Status VectorWriterImpl::Configure(uint32_t column, const ChunkingOptions& options) {
  REVERB_RETURN_IF_ERROR(options.Validate());
  for (size_t i = 0; i < environments_.size(); ++i) {
    if (environments_[i].can_configure(column)) continue;
    return InEnvironment(i, Status::FailedPrecondition("Flush must be called before ApplyConfig."));
  }
  for (TrajectoryWriterImpl& environment : environments_) {
    REVERB_RETURN_IF_ERROR(environment.Configure(column, options));
  }
  return Status::Ok();
}

Status VectorWriterImpl::NameColumn(uint32_t column, std::string path) {
  for (TrajectoryWriterImpl& environment : environments_) {
    REVERB_RETURN_IF_ERROR(environment.NameColumn(column, path));
  }
  if (column >= columns_.size()) columns_.resize(column + 1);
  columns_[column].path = std::move(path);
  return Status::Ok();
}

// Checks what an environment cannot detect alone: a column is the same in all environments, including those
// that have no values yet.
Status VectorWriterImpl::CheckValues(std::span<const ColumnValue> values) const {
  const auto count = static_cast<int64_t>(environments_.size());
  for (const auto& [index, value] : values) {
    if (value.dims.empty() || value.dims[0] != count) [[unlikely]] {
      return Status::InvalidArgument(
          "column " + Describe(index) + ": got shape " + ShapeText(value.dims) +
          " but expected a first dimension of " + std::to_string(count) +
          ", one row for each environment (also for those that a mask leaves out)");
    }
    if (index >= columns_.size() || !columns_[index].known) continue;
    const Column& column = columns_[index];
    if (value.dtype != column.dtype) [[unlikely]] {
      return Status::InvalidArgument("Tensor of wrong dtype provided for column " + Describe(index) +
                                     ". Got " + std::string(TensorFlowName(value.dtype)) + " but expected " +
                                     std::string(TensorFlowName(column.dtype)) + ".");
    }
    if (!std::ranges::equal(value.dims.subspan(1), column.dims)) [[unlikely]] {
      return Status::InvalidArgument("Tensor of incompatible shape provided for column " + Describe(index) +
                                     ". Got rows of " + ShapeText(value.dims.subspan(1)) +
                                     " which are incompatible with " + ShapeText(column.dims) + ".");
    }
  }
  return Status::Ok();
}

void VectorWriterImpl::LearnColumns(std::span<const ColumnValue> values) {
  for (const auto& [index, value] : values) {
    if (index >= columns_.size()) columns_.resize(index + 1);
    Column& column = columns_[index];
    if (column.known) continue;
    column.known = true;
    column.dtype = value.dtype;
    column.dims.assign(value.dims.begin() + 1, value.dims.end());
  }
}

void VectorWriterImpl::SelectRows(std::span<const ColumnValue> values, size_t environment) {
  for (size_t i = 0; i < values.size(); ++i) {
    TensorView row = rows_[i].value;
    row.data = values[i].value.data;
    rows_[i].value.data = RowAt(row, static_cast<int64_t>(environment));
  }
}

Status VectorWriterImpl::Append(std::span<const ColumnValue> values, EnvironmentMask mask, bool closes_step) {
  REVERB_RETURN_IF_ERROR(Begin(mask));
  REVERB_RETURN_IF_ERROR(CheckValues(values));
  rows_.clear();
  for (const auto& [column, value] : values) {
    rows_.push_back({column, {.dtype = value.dtype, .dims = value.dims.subspan(1), .data = value.data}});
  }
  // Rows of strings differ in size, so some of them may be too large; open steps differ in their columns.
  const auto is_string = [](const ColumnValue& value) { return value.value.dtype == DType::kString; };
  if (has_partial_steps_ || std::ranges::any_of(values, is_string)) {
    for (size_t i = 0; i < environments_.size(); ++i) {
      if (!IsSelected(mask, i)) continue;
      SelectRows(values, i);
      const Status status = environments_[i].CheckStep(rows_);
      if (!status.ok()) return InEnvironment(i, status);
    }
  }
  has_partial_steps_ |= !closes_step;
  Status status = AppendRows(values, mask, closes_step);
  Status sent = SendOutput();
  return status.ok() ? sent : status;
}

Status VectorWriterImpl::AppendRows(std::span<const ColumnValue> values, EnvironmentMask mask,
                                    bool closes_step) {
  bool is_first = true;
  for (size_t i = 0; i < environments_.size(); ++i) {
    if (!IsSelected(mask, i)) continue;
    SelectRows(values, i);
    REVERB_RETURN_IF_ERROR(environments_[i].Append(rows_, closes_step));
    if (std::exchange(is_first, false)) LearnColumns(values);
  }
  return Status::Ok();
}

// --- Items ---

Status VectorWriterImpl::CheckItems(std::span<const double> priorities,
                                    std::span<const VectorItemColumn> columns) const {
  if (priorities.size() != 1 && priorities.size() != environments_.size()) {
    return Status::InvalidArgument("got " + std::to_string(priorities.size()) + " priorities for " +
                                   std::to_string(environments_.size()) +
                                   " environments; pass one for all, or one for each");
  }
  if (columns.empty()) return Status::InvalidArgument("trajectory must not be empty.");
  for (const VectorItemColumn& column : columns) {
    if (column.steps.empty()) return Status::InvalidArgument("trajectory must not have an empty column.");
    for (const StepRange& range : column.steps) REVERB_RETURN_IF_ERROR(CheckRange(range));
  }
  return Status::Ok();
}

Status VectorWriterImpl::CheckRange(const StepRange& range) const {
  const std::string name = "column " + Describe(range.column);
  if (range.column >= columns_.size() || !columns_[range.column].known) {
    return Status::InvalidArgument(name + " has no values; append some before referring to them");
  }
  const ColumnStore& store = environments_.front().columns();
  const auto kept = [](int64_t keep) {
    return "the last " + std::to_string(keep) + " steps that the writer keeps (num_keep_alive_refs)";
  };
  if (range.stack != 0) {
    if (range.stack < 1 || range.begin || range.stride != 1) {
      return Status::InvalidArgument(name +
                                     ": the number of stacked steps must be > 0, without a begin and "
                                     "with stride 1, but got " +
                                     std::to_string(range.stack) + ".");
    }
    // A stack needs each of its steps. Rejects it also while episodes are short.
    const int64_t keep = store.keep_alive_refs(range.column);
    const int64_t back = range.end && *range.end < 0 ? -std::max(*range.end, -keep - 1) : 0;
    if (range.stack > keep - back) {
      return Status::InvalidArgument(name + ": a stack of " + std::to_string(range.stack) + " steps" +
                                     (back > 0 ? " that ends at " + std::to_string(*range.end) : "") +
                                     " reaches back further than " + kept(keep));
    }
  }
  if (range.stride == 0) {
    return Status::InvalidArgument(name + ": the stride of a range of steps must not be 0");
  }
  if (IsAlwaysEmpty(range)) {
    return Status::InvalidArgument(
        name + ": the range from " + (range.begin ? std::to_string(*range.begin) : "its start") + " to " +
        std::to_string(*range.end) +
        " names no step, however long an episode is; leave the end out to reach the newest step");
  }
  // A column without a value at each step keeps older ones, so this does not depend on the column.
  if (const int64_t keep = store.max_keep_alive_refs(); range.begin && *range.begin < -keep) {
    return Status::InvalidArgument(name + ": step " + std::to_string(*range.begin) + " is older than " +
                                   kept(keep));
  }
  return Status::Ok();
}

bool VectorWriterImpl::ResolveColumns(const TrajectoryWriterImpl& environment,
                                      std::span<const VectorItemColumn> columns) {
  const int64_t length = environment.history_length();
  const int64_t first = environment.columns().history_begin();
  size_t next = 0;
  for (size_t c = 0; c < columns.size(); ++c) {
    const size_t begin = next;
    for (const StepRange& range : columns[c].steps) {
      const bool exists = range.stack > 0 ? ResolveStack(range, first, length, cells_, &next)
                                          : ResolveRange(range, first, length, &cells_[next++]);
      if (!exists) return false;
    }
    item_columns_[c] = {std::span(cells_).subspan(begin, next - begin), columns[c].squeeze};
  }
  return true;
}

Status VectorWriterImpl::PrepareItems(std::string_view table, std::span<const double> priorities,
                                      std::span<const VectorItemColumn> columns, EnvironmentMask mask) {
  size_t ranges = 0;
  for (const VectorItemColumn& column : columns) {
    for (const StepRange& range : column.steps)
      ranges += static_cast<size_t>(std::max<int64_t>(range.stack, 1));
  }
  cells_.resize(ranges);
  item_columns_.resize(columns.size());
  prepared_.clear();
  for (size_t i = 0; i < environments_.size(); ++i) {
    if (!IsSelected(mask, i) || !ResolveColumns(environments_[i], columns)) continue;
    const double priority = priorities[priorities.size() == 1 ? 0 : i];
    const Status status = environments_[i].PrepareItem(table, priority, item_columns_);
    if (!status.ok()) [[unlikely]]
      return InEnvironment(i, status);
    prepared_.push_back(i);
  }
  return Status::Ok();
}

Status VectorWriterImpl::WaitForRoom() {
  const Status status = FinishWaiting(0);
  const Status sent = SendOutput();
  REVERB_RETURN_IF_ERROR(status);
  REVERB_RETURN_IF_ERROR(sent);
  return sink_->WaitForRoom(wait_for_room_);
}

Result<std::vector<uint8_t>> VectorWriterImpl::CreateItems(std::string_view table,
                                                           std::span<const double> priorities,
                                                           std::span<const VectorItemColumn> columns,
                                                           EnvironmentMask mask,
                                                           const ItemStructure& structure) {
  REVERB_RETURN_IF_ERROR(Begin(mask));
  REVERB_RETURN_IF_ERROR(CheckItems(priorities, columns));
  REVERB_RETURN_IF_ERROR(PrepareItems(table, priorities, columns, mask));
  // Waits before accepting the items, so that a timeout has no effect.
  if (!prepared_.empty() && sink_->is_full()) [[unlikely]]
    REVERB_RETURN_IF_ERROR(WaitForRoom());
  std::vector<uint8_t> made(environments_.size());
  Status status;
  for (const size_t i : prepared_) {
    status = environments_[i].CreatePrepared(table, priorities[priorities.size() == 1 ? 0 : i], structure);
    if (!status.ok()) break;
    made[i] = 1;
  }
  const Status sent = SendOutput();
  REVERB_RETURN_IF_ERROR(status);
  REVERB_RETURN_IF_ERROR(sent);
  return made;
}

// --- Flushing and ending ---

int64_t VectorWriterImpl::waiting_items() const {
  int64_t count = 0;
  for (const TrajectoryWriterImpl& environment : environments_) count += environment.waiting_items();
  return count;
}

Status VectorWriterImpl::FinishWaiting(size_t keep) {
  for (TrajectoryWriterImpl& environment : environments_) {
    REVERB_RETURN_IF_ERROR(environment.FinishAllBut(keep));
  }
  return Status::Ok();
}

Status VectorWriterImpl::Flush(int64_t block_until_num_items, const WaitOptions& wait) {
  if (block_until_num_items < 0) {
    return Status::InvalidArgument("`block_until_num_items` must be >= 0, got " +
                                   std::to_string(block_until_num_items) + ".");
  }
  Status status = Begin({});
  if (status.ok() && waiting_items() > block_until_num_items) {
    status = FinishWaiting(static_cast<uint64_t>(block_until_num_items) / environments_.size());
    if (Status sent = SendOutput(); status.ok()) status = std::move(sent);
  }
  if (status.ok()) status = sink_->AwaitPending(block_until_num_items - waiting_items(), wait);
  return WithUnconfirmed(std::move(status), unconfirmed_items());
}

Status VectorWriterImpl::EndEpisode(EnvironmentMask mask) {
  REVERB_RETURN_IF_ERROR(Begin(mask));
  Status status;
  for (size_t i = 0; i < environments_.size() && status.ok(); ++i) {
    if (IsSelected(mask, i)) status = environments_[i].StartEpisode(/*clear=*/true);
  }
  const Status sent = SendOutput();
  return status.ok() ? sent : status;
}

}  // namespace internal
}  // namespace reverb
