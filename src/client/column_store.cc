#include "client/column_store.h"

#include <algorithm>
#include <limits>

#include "client/tensor_text.h"

namespace reverb {

Status ChunkingOptions::Validate() const {
  const auto number = [](int64_t n) { return std::to_string(n); };
  if (num_keep_alive_refs <= 0) {
    return Status::InvalidArgument("num_keep_alive_refs must be > 0 but got " + number(num_keep_alive_refs) +
                                   ".");
  }
  if (max_chunk_length && *max_chunk_length <= 0) {
    return Status::InvalidArgument("max_chunk_length must be > 0 but got " + number(*max_chunk_length) + ".");
  }
  if (max_chunk_length && num_keep_alive_refs < *max_chunk_length) {
    return Status::InvalidArgument("num_keep_alive_refs (" + number(num_keep_alive_refs) +
                                   ") must be >= max_chunk_length (" + number(*max_chunk_length) + ").");
  }
  if (!(throughput_weight >= 0)) {  // also rejects NaN
    return Status::InvalidArgument("throughput_weight must be >= 0 but got " +
                                   std::to_string(throughput_weight) + ".");
  }
  return Status::Ok();
}

namespace internal {
namespace {

// Smaller rows share a chunk with others: a separate chunk costs about 200 bytes on the wire.
constexpr uint64_t kSmallRowBytes = 1024;

std::string Number(int64_t value) { return std::to_string(value); }

}  // namespace

CodecPolicy PolicyOf(Compression compression) {
  switch (compression) {
    case Compression::kAuto:
      return CodecPolicy::kAuto;
    case Compression::kNone:
      return CodecPolicy::kNone;
    case Compression::kLz4:
      return CodecPolicy::kLz4;
    case Compression::kZstd:
      return CodecPolicy::kZstd;
    case Compression::kSnappy:
      return CodecPolicy::kSnappy;
  }
  return CodecPolicy::kAuto;
}

ColumnStore::ColumnStore(const Options& options, uint64_t episode_id, ItemSink* sink)
    : options_(options),
      sink_(sink),
      episode_id_(episode_id),
      max_keep_(options_.chunking.num_keep_alive_refs) {}

// --- Columns ---

Status ColumnStore::EnsureColumn(uint32_t column) {
  constexpr uint32_t kMaxColumns = DecodeLimits{}.max_columns;
  if (column < columns_.size()) return Status::Ok();
  if (column >= kMaxColumns) {
    return Status::InvalidArgument("column " + std::to_string(column) +
                                   " is out of range: a writer has at most " + std::to_string(kMaxColumns) +
                                   " columns; number them from 0");
  }
  columns_.resize(column + 1);
  return Status::Ok();
}

std::string ColumnStore::Describe(uint32_t column) const {
  const std::string& path = columns_[column].path;
  if (options_.error_style == ErrorStyle::kStructured) {
    return std::to_string(column) + " (path=" + (path.empty() ? std::to_string(column) : path) + ")";
  }
  return path.empty() ? std::to_string(column) : path;
}

Status ColumnStore::NameColumn(uint32_t column, std::string path) {
  REVERB_RETURN_IF_ERROR(EnsureColumn(column));
  columns_[column].path = std::move(path);
  return Status::Ok();
}

Status ColumnStore::Discard(uint32_t column) {
  REVERB_RETURN_IF_ERROR(EnsureColumn(column));
  columns_[column].discarded = true;
  return Status::Ok();
}

Status ColumnStore::Configure(uint32_t index, const ChunkingOptions& options) {
  REVERB_RETURN_IF_ERROR(options.Validate());
  REVERB_RETURN_IF_ERROR(EnsureColumn(index));
  Column& column = columns_[index];
  if (column.group != kNoGroup) {
    if (!can_configure(index)) {
      return Status::FailedPrecondition("Flush must be called before ApplyConfig.");
    }
    REVERB_RETURN_IF_ERROR(FinishGroup(column.group));
    std::erase(groups_[column.group].columns, index);
    column.group = NewGroup(options);
    groups_[column.group].columns.push_back(index);
    column.keep = options.num_keep_alive_refs;
    Trim(column);
  }
  column.own_options = options;
  max_keep_ = std::max(max_keep_, options.num_keep_alive_refs);
  return Status::Ok();
}

bool ColumnStore::can_configure(uint32_t index) const {
  if (index >= columns_.size() || columns_[index].group == kNoGroup) return true;
  const Group& group = groups_[columns_[index].group];
  // Rows that are merely collected can become a chunk at any time.
  return group.open_slot == nullptr || (group.tuner && group.rows >= group.length());
}

// --- Appending ---

Status ColumnStore::CheckValue(const ColumnValue& value, uint64_t* cost) {
  REVERB_RETURN_IF_ERROR(EnsureColumn(value.column));
  const TensorView& tensor = value.value;
  Column& column = columns_[value.column];
  if (column.value != nullptr || (step_is_open_ && column.last_position == position_)) {
    if (options_.error_style == ErrorStyle::kStructured) {
      return Status::FailedPrecondition(
          "Append/AppendPartial called with data containing column that was present in previous "
          "AppendPartial call: column " +
          Describe(value.column) + ".");
    }
    return Status::InvalidArgument("Field " + Describe(value.column) +
                                   " has already been set in the active step by a previous (partial) append; "
                                   "leave it out or close the step first.");
  }
  if (column.known) [[likely]] {
    if (tensor.dtype != column.dtype) {
      return Status::InvalidArgument("Tensor of wrong dtype provided for column " + Describe(value.column) +
                                     ". Got " + std::string(TensorFlowName(tensor.dtype)) + " but expected " +
                                     std::string(TensorFlowName(column.dtype)) + ".");
    }
    if (!std::ranges::equal(tensor.dims, column.dims)) {
      return Status::InvalidArgument("Tensor of incompatible shape provided for column " +
                                     Describe(value.column) + ". Got " + ShapeText(tensor.dims) +
                                     " which is incompatible with " + ShapeText(column.dims) + ".");
    }
    *cost = column.row_bytes;
    if (column.dtype != DType::kString) [[likely]]
      return Status::Ok();
  } else {
    if (!IsKnownDType(static_cast<uint8_t>(tensor.dtype))) {
      return Status::InvalidArgument("column " + Describe(value.column) + ": dtype number " +
                                     std::to_string(static_cast<int>(tensor.dtype)) +
                                     " is not known; use one of those in reverb/tensor.h");
    }
    if (tensor.dims.size() > kMaxRowRank) {
      return Status::InvalidArgument("column " + Describe(value.column) + ": " +
                                     std::to_string(tensor.dims.size()) + " dimensions, at most " +
                                     std::to_string(kMaxRowRank) + " are allowed");
    }
    uint64_t elements = 1;
    bool overflow = false;
    for (const int64_t dim : tensor.dims) {
      if (dim < 0 || dim > std::numeric_limits<uint32_t>::max()) {
        return Status::InvalidArgument("column " + Describe(value.column) + ": dimension " + Number(dim) +
                                       " of shape " + ShapeText(tensor.dims) + " is out of range");
      }
      overflow |= __builtin_mul_overflow(elements, static_cast<uint64_t>(dim), &elements);
    }
    const uint64_t item_size = tensor.dtype == DType::kString ? kMinStringBytes : ItemSize(tensor.dtype);
    overflow |= __builtin_mul_overflow(elements, item_size, cost);
    if (overflow) *cost = std::numeric_limits<uint64_t>::max();
  }
  if (tensor.data == nullptr && *cost > 0) {
    return Status::InvalidArgument("column " + Describe(value.column) + ": a tensor of shape " +
                                   ShapeText(tensor.dims) + " was given without data");
  }
  const uint64_t limit = DecodeLimits{}.raw_bytes();
  if (*cost <= limit && tensor.dtype == DType::kString) {
    *cost = 0;
    for (const std::string_view element : tensor.strings()) {
      *cost += StringBytes(element);
      if (*cost > limit) break;
    }
  }
  if (*cost > limit) {
    return Status::InvalidArgument("column " + Describe(value.column) + ": a value of shape " +
                                   ShapeText(tensor.dims) + " takes more than the " + std::to_string(limit) +
                                   " bytes allowed in a chunk; use smaller tensors");
  }
  return Status::Ok();
}

void ColumnStore::ClearValues(std::span<const ColumnValue> values) {
  for (const ColumnValue& value : values) {
    if (value.column < columns_.size()) columns_[value.column].value = nullptr;
  }
}

Status ColumnStore::SetValues(std::span<const ColumnValue> values) {
  uint64_t total = 0;
  for (const ColumnValue& value : values) {
    uint64_t cost = 0;
    Status status = CheckValue(value, &cost);
    total += cost;
    if (status.ok() && options_.packing == Packing::kAll && total > DecodeLimits{}.raw_bytes()) {
      status =
          Status::InvalidArgument("a step takes more than the " + std::to_string(DecodeLimits{}.raw_bytes()) +
                                  " bytes allowed in a chunk; use smaller tensors");
    }
    if (!status.ok()) [[unlikely]] {
      ClearValues(values);
      return status;
    }
    columns_[value.column].value = &value.value;
  }
  return Status::Ok();
}

Status ColumnStore::Check(std::span<const ColumnValue> values) {
  REVERB_RETURN_IF_ERROR(failure_);
  REVERB_RETURN_IF_ERROR(SetValues(values));
  ClearValues(values);
  return Status::Ok();
}

Status ColumnStore::Append(std::span<const ColumnValue> values, bool closes_step) {
  REVERB_RETURN_IF_ERROR(failure_);
  REVERB_RETURN_IF_ERROR(SetValues(values));  // before anything is kept
  return Store(values, 1, closes_step);
}

Status ColumnStore::AppendSequence(std::span<const ColumnValue> values) {
  REVERB_RETURN_IF_ERROR(failure_);
  REVERB_RETURN_IF_ERROR(SetSequence(values));
  int64_t steps = values[0].value.dims[0];
  REVERB_RETURN_IF_ERROR(SetValues(sequence_));
  if (step_is_open_ && steps > 1) {
    // Closes the step first: the other columns of its groups have a value in it, but not in the next ones.
    REVERB_RETURN_IF_ERROR(Store(sequence_, 1, true));
    for (ColumnValue& row : sequence_) row.value.data = RowAt(row.value, 1);
    --steps;
    REVERB_RETURN_IF_ERROR(SetValues(sequence_));
  }
  return Store(sequence_, steps, true);
}

Status ColumnStore::SetSequence(std::span<const ColumnValue> values) {
  if (values.empty()) return Status::InvalidArgument("a sequence must have at least one column");
  sequence_.clear();
  for (const auto& [index, value] : values) {
    REVERB_RETURN_IF_ERROR(EnsureColumn(index));
    if (value.dims.empty()) {
      return Status::InvalidArgument("column " + Describe(index) +
                                     ": a sequence needs a first dimension for the steps, got a value "
                                     "without dimensions; append it as a step instead");
    }
    if (value.dims[0] < 1) {
      return Status::InvalidArgument("column " + Describe(index) +
                                     ": a sequence must have at least one step, "
                                     "got shape " +
                                     ShapeText(value.dims));
    }
    if (value.dims[0] != values[0].value.dims[0]) {
      return Status::InvalidArgument("column " + Describe(index) + " has " + Number(value.dims[0]) +
                                     " steps but column " + Describe(values[0].column) + " has " +
                                     Number(values[0].value.dims[0]) +
                                     "; all columns of a sequence need the same number");
    }
    sequence_.push_back({index, {.dtype = value.dtype, .dims = value.dims.subspan(1), .data = value.data}});
    if (value.dtype != DType::kString) continue;
    // Rows of strings differ in size, so some of them may be too large.
    ColumnValue row = sequence_.back();
    for (int64_t i = 0; i < value.dims[0]; ++i) {
      uint64_t cost = 0;
      REVERB_RETURN_IF_ERROR(CheckValue(row, &cost));
      row.value.data = RowAt(row.value, 1);
    }
  }
  return Status::Ok();
}

Status ColumnStore::Store(std::span<const ColumnValue> values, int64_t steps, bool closes_step) {
  new_columns_.clear();
  touched_groups_.clear();
  for (const ColumnValue& value : values) {
    Column& column = columns_[value.column];
    column.last_position = position_ + steps - 1;
    if (!column.known) [[unlikely]] {
      column.known = true;
      column.dtype = value.value.dtype;
      column.dims.assign(value.value.dims.begin(), value.value.dims.end());
      column.row_bytes = value.value.num_bytes();
      if (!column.discarded) new_columns_.push_back(value.column);
    } else if (column.group != kNoGroup) {
      if (groups_[column.group].num_values++ == 0) touched_groups_.push_back(column.group);
    }
  }
  if (!new_columns_.empty()) [[unlikely]]
    FormGroups();

  Status status;
  const size_t touched = touched_groups_.size();
  for (size_t i = 0; i < touched; ++i) {
    const uint32_t group = touched_groups_[i];
    if (groups_[group].num_values != groups_[group].columns.size()) [[unlikely]] {
      if (Status split = Split(group); status.ok()) status = std::move(split);
    }
  }
  for (const uint32_t group : touched_groups_) {
    groups_[group].num_values = 0;
    if (status.ok()) status = steps == 1 ? AddRow(group) : AddRows(group, steps);
  }
  ClearValues(values);
  step_is_open_ = !closes_step;
  position_ += closes_step ? steps : 0;
  if (!status.ok()) [[unlikely]]
    failure_ = status;
  return status;
}

// --- Groups ---

uint32_t ColumnStore::NewGroup(const ChunkingOptions& options) {
  Group& group = groups_.emplace_back();
  if (options.max_chunk_length) {
    group.fixed_length = *options.max_chunk_length;
  } else {
    group.tuner.emplace(options.num_keep_alive_refs, options.throughput_weight);
  }
  return static_cast<uint32_t>(groups_.size() - 1);
}

void ColumnStore::FormGroups() {
  uint32_t shared = kNoGroup;
  for (const uint32_t index : new_columns_) {
    Column& column = columns_[index];
    std::vector<uint32_t> row_shape(column.dims.begin(), column.dims.end());
    column.encoder.emplace(column.dtype, std::move(row_shape), options_.codec);
    const ChunkingOptions& chunking = column.own_options ? *column.own_options : options_.chunking;
    column.keep = chunking.num_keep_alive_refs;
    // Strings can have any size, so they do not count as small.
    const bool is_small = column.dtype != DType::kString && column.row_bytes < kSmallRowBytes;
    if (options_.packing == Packing::kAll || (is_small && !column.own_options)) {
      if (shared == kNoGroup) shared = NewGroup(options_.chunking);
      column.group = shared;
    } else {
      column.group = NewGroup(chunking);
    }
    Group& group = groups_[column.group];
    group.columns.push_back(index);
    if (group.num_values++ == 0) touched_groups_.push_back(column.group);
  }
}

Status ColumnStore::Split(uint32_t index) {
  REVERB_RETURN_IF_ERROR(FinishGroup(index));
  groups_.emplace_back();  // the others; may reallocate groups_
  Group& group = groups_[index];
  Group& others = groups_.back();
  others.fixed_length = group.fixed_length;
  others.tuner = group.tuner;
  const auto has_value = [&](uint32_t column) { return columns_[column].value != nullptr; };
  const auto first_other = std::stable_partition(group.columns.begin(), group.columns.end(), has_value);
  others.columns.assign(first_other, group.columns.end());
  group.columns.erase(first_other, group.columns.end());
  for (const uint32_t column : others.columns) {
    columns_[column].group = static_cast<uint32_t>(groups_.size() - 1);
  }
  return Status::Ok();
}

// --- Reading ---

int64_t ColumnStore::IndexOf(const Column& column, int64_t position) {
  const Ring<Cell>& cells = column.cells;
  if (cells.empty() || position < cells.front().position || position > cells.back().position) return -1;
  const auto guess = static_cast<size_t>(position - cells.front().position);
  if (guess < cells.size() && cells[guess].position == position) return static_cast<int64_t>(guess);
  // The column lacks some steps, so the cell is before the guess.
  size_t low = 0;
  size_t high = std::min(guess, cells.size());
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (cells[middle].position < position) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < cells.size() && cells[low].position == position ? static_cast<int64_t>(low) : -1;
}

Status ColumnStore::Resolve(const CellRange& range, size_t first, std::vector<RowRun>* runs,
                            int64_t* rows) const {
  if (range.stride == 0) {
    return Status::InvalidArgument("the stride of a range of cells must not be 0");
  }
  if (range.begin == range.end || (range.begin < range.end) != (range.stride > 0)) return Status::Ok();
  if (!is_known(range.column)) {
    return Status::InvalidArgument("column " + std::to_string(range.column) +
                                   " has no values; append some before referring to them");
  }
  const Column& column = columns_[range.column];
  const Ring<Cell>& cells = column.cells;
  int64_t index = IndexOf(column, range.begin);
  for (int64_t position = range.begin;;) {
    if (index < 0 || index >= static_cast<int64_t>(cells.size()) || cells[index].position != position) {
      index = IndexOf(column, position);
    }
    if (index < 0) [[unlikely]] {
      const bool may_have_expired = cells.empty() || position < cells.front().position;
      if (position >= 0 && position < position_ + step_is_open_ && may_have_expired) {
        return Status::InvalidArgument("Column contains expired CellRef.");
      }
      return Status::InvalidArgument("Column cannot contain any None: column " + Describe(range.column) +
                                     " has no value at position " + Number(position) + ".");
    }
    const Cell& cell = cells[index];
    if (runs->size() > first && runs->back().slot == cell.slot &&
        runs->back().chunk_column == cell.chunk_column &&
        runs->back().offset + runs->back().length == cell.row) {
      ++runs->back().length;
    } else {
      runs->push_back(
          {.slot = cell.slot, .chunk_column = cell.chunk_column, .offset = cell.row, .length = 1});
    }
    ++*rows;
    if (__builtin_add_overflow(position, range.stride, &position)) break;
    if (range.stride > 0 ? position >= range.end : position <= range.end) break;
    if (__builtin_add_overflow(index, range.stride, &index)) index = -1;
  }
  return Status::Ok();
}

Result<std::vector<CellRange>> ColumnStore::Stack(uint32_t index, int64_t rows,
                                                  std::optional<int64_t> end) const {
  if (!is_known(index)) {
    return Status::InvalidArgument("column " +
                                   (index < columns_.size() ? Describe(index) : std::to_string(index)) +
                                   " has no values; append some before stacking them");
  }
  const std::string name = "column " + Describe(index);
  if (rows < 1) {
    return Status::InvalidArgument(name + ": the number of stacked steps must be > 0 but got " +
                                   Number(rows) + ".");
  }
  if (rows > columns_[index].keep) {
    return Status::InvalidArgument(name + ": cannot stack " + Number(rows) + " steps, the newest " +
                                   Number(columns_[index].keep) + " are kept (num_keep_alive_refs)");
  }
  const int64_t steps = position_ + step_is_open_ - episode_begin_;
  const int64_t last = (end ? *end - episode_begin_ : steps) - 1;  // in the episode, like the ones below
  if (last < 0 || last >= steps) {
    return Status::InvalidArgument(name + ": step " + Number(last) +
                                   " of the episode does not exist, it has " + Number(steps) + " steps");
  }
  const int64_t first = last - rows + 1;
  for (int64_t step = std::max<int64_t>(first, 0); step <= last; ++step) {
    if (HasCell(index, episode_begin_ + step)) continue;
    return Status::InvalidArgument(name + ": step " + Number(step) +
                                   " of the episode has no value, or it is older than the newest " +
                                   Number(columns_[index].keep) + " that are kept (num_keep_alive_refs)");
  }
  std::vector<CellRange> ranges;
  for (int64_t step = first; step < 0; ++step) ranges.push_back(CellRange::One(index, episode_begin_));
  ranges.push_back({index, episode_begin_ + std::max<int64_t>(first, 0), episode_begin_ + last + 1});
  return ranges;
}

bool ColumnStore::HasCell(uint32_t index, int64_t position) const {
  if (!is_known(index)) return false;
  const Column& column = columns_[index];
  return column.discarded ? column.last_position == position && position >= history_begin_
                          : IndexOf(column, position) >= 0;
}

Result<Tensor> ColumnStore::Read(uint32_t index, int64_t position) const {
  const int64_t found = is_known(index) ? IndexOf(columns_[index], position) : -1;
  if (found < 0) {
    return Status::FailedPrecondition(
        "column " + (index < columns_.size() ? Describe(index) : std::to_string(index)) +
        ": the cell at position " + Number(position) + " has expired or never had a value; the newest " +
        Number(is_known(index) ? columns_[index].keep : max_keep_) +
        " of the column are kept (num_keep_alive_refs)");
  }
  const Column& column = columns_[index];
  const Cell& cell = column.cells[found];
  REVERB_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(column.dtype, column.dims));
  if (cell.slot->chunk) {
    const ColumnView view = cell.slot->chunk->header().column(cell.chunk_column);
    const std::span<const uint8_t> payload = cell.slot->chunk->column_payload(cell.chunk_column);
    if (column.dtype == DType::kString) {
      tensor.strings().clear();
      REVERB_RETURN_IF_ERROR(DecodeStringRows(view, payload, cell.row, 1, &tensor.strings()));
    } else {
      REVERB_RETURN_IF_ERROR(DecodeRows(view, payload, cell.row, 1, tensor.bytes()));
    }
    return tensor;
  }
  column.rows.Read(cell.row, &tensor);
  return tensor;
}

}  // namespace internal
}  // namespace reverb
