#include "client/column_store.h"

#include <algorithm>
#include <limits>

#include "base/buffer.h"
#include "client/tensor_text.h"
#include "tensor/chunk_header.h"

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
// From this size on, a chunk takes over the encoder's bytes instead of copying them.
constexpr size_t kOwnPayloadBytes = 4096;
// Collected rows become a chunk when they reach this size, even without an item. A chunk consists of blocks of
// 64 kB, so that longer chunks would save little.
constexpr uint64_t kCollectedBytes = uint64_t{256} << 10;
// Rows that an item does not refer to stay in its chunk if they are between rows that it does refer to and
// take fewer bytes than this: a separate chunk would take more.
constexpr uint64_t kMaxUnusedBytes = 104;

std::string Number(int64_t value) { return std::to_string(value); }

// Returns the data of the row that is `rows` after the one of the view.
const void* RowAt(const TensorView& row, int64_t rows) {
  if (row.data == nullptr) return nullptr;
  const size_t element = row.dtype == DType::kString ? sizeof(std::string_view) : ItemSize(row.dtype);
  return static_cast<const uint8_t*>(row.data) + static_cast<size_t>(rows) * row.num_elements() * element;
}

class VectorOwner final : public BufferOwner {
 public:
  static Buffer Wrap(std::vector<uint8_t> bytes) {
    auto* const owner = new VectorOwner(std::move(bytes));
    return Buffer(owner, owner->bytes_.data(), owner->bytes_.size());
  }

 private:
  explicit VectorOwner(std::vector<uint8_t> bytes) : bytes_(std::move(bytes)) {}
  const std::vector<uint8_t> bytes_;
};

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

Status ColumnStore::AddRow(uint32_t index) {
  Group* group = &groups_[index];
  uint64_t raw_bytes = 0;
  for (const uint32_t c : group->columns) {
    const Column& column = columns_[c];
    raw_bytes += column.row_bytes;
    if (column.dtype != DType::kString) [[likely]]
      continue;
    for (const std::string_view element : column.value->strings()) raw_bytes += StringBytes(element);
  }
  // Enforces the limits of a chunk, whatever length was configured.
  constexpr DecodeLimits limits;
  if (group->open_slot != nullptr && (IsFull(*group) || group->raw_bytes + raw_bytes > limits.raw_bytes())) {
    REVERB_RETURN_IF_ERROR(FinishGroup(index));
  }

  if (group->tuner) group->tuner->AddRows(1);
  if (group->open_slot == nullptr && group->length() <= 1 && !group->collects_rows()) {
    REVERB_ASSIGN_OR_RETURN(ChunkRef chunk, EncodeValues(*group, raw_bytes));
    ChunkSlot* const slot = NewSlot(index);
    slot->chunk = std::move(chunk);
    uint32_t chunk_column = 0;
    for (const uint32_t c : group->columns) PushCell(columns_[c], slot, 0, chunk_column++);
    return Status::Ok();
  }

  OpenChunk(index);
  group->positions.push_back(position_);
  group->raw_bytes += raw_bytes;
  uint32_t chunk_column = 0;
  for (const uint32_t c : group->columns) {
    Column& column = columns_[c];
    column.rows.Append(*column.value);
    PushCell(column, group->open_slot, group->rows, chunk_column++);
  }
  ++group->rows;
  return IsFull(*group) && !IsCollecting(*group) ? FinishGroup(index) : Status::Ok();
}

void ColumnStore::OpenChunk(uint32_t index) {
  Group& group = groups_[index];
  if (group.open_slot != nullptr) return;
  group.open_slot = NewSlot(index);
  Ref(group.open_slot);
  group.rows = 0;
  group.raw_bytes = 0;
  group.positions.clear();
}

Status ColumnStore::AddRows(uint32_t index, int64_t rows) {
  // The columns refer to views of the next row.
  std::vector<TensorView> next;
  next.reserve(groups_[index].columns.size());
  for (const uint32_t c : groups_[index].columns) {
    next.push_back(*columns_[c].value);
    columns_[c].value = &next.back();
  }
  const int64_t begin = position_;
  const int64_t end = begin + rows;
  Status status;
  while (position_ < end) {
    const Group& group = groups_[index];
    if (group.open_slot != nullptr && IsFull(group)) status = FinishGroup(index);
    if (!status.ok()) break;
    const int64_t count = RowsThatFit(group, end - position_);
    status = count == 1 ? AddRow(index) : AddBlock(index, count);
    if (!status.ok()) break;
    for (TensorView& row : next) row.data = RowAt(row, count);
    position_ += count;
  }
  position_ = begin;
  return status;
}

int64_t ColumnStore::RowsThatFit(const Group& group, int64_t rows) const {
  constexpr DecodeLimits limits;
  uint64_t row_bytes = 0;
  for (const uint32_t c : group.columns) {
    if (columns_[c].dtype == DType::kString) return 1;
    row_bytes += columns_[c].row_bytes;
  }
  const bool is_open = group.open_slot != nullptr;
  const int64_t old_rows = is_open ? group.rows : 0;
  const uint64_t old_bytes = is_open ? group.raw_bytes : 0;
  // Collects the rows of a sequence, even if items of the previous rows were created one by one.
  const bool collects = group.tuner && !(is_open && group.open_slot->is_awaited);
  int64_t fit = std::min(rows, (collects ? group.tuner->max_length() : group.length()) - old_rows);
  fit = std::min<int64_t>(fit, limits.max_rows - old_rows);
  const uint64_t max_bytes = collects ? kCollectedBytes : limits.raw_bytes();
  if (row_bytes > 0) {
    const uint64_t room = max_bytes > old_bytes ? (max_bytes - old_bytes) / row_bytes : 0;
    fit = static_cast<int64_t>(std::min(static_cast<uint64_t>(std::max<int64_t>(fit, 1)), room));
  }
  return std::max<int64_t>(fit, 1);
}

Status ColumnStore::AddBlock(uint32_t index, int64_t rows) {
  OpenChunk(index);
  Group& group = groups_[index];
  if (group.tuner) group.tuner->AddRows(rows);
  const auto count = static_cast<size_t>(rows);
  const int64_t begin = position_;
  uint32_t chunk_column = 0;
  for (const uint32_t c : group.columns) {
    Column& column = columns_[c];
    column.rows.Append({static_cast<const uint8_t*>(column.value->data), count * column.row_bytes});
    group.raw_bytes += count * column.row_bytes;
    for (uint32_t i = 0; i < count; ++i, ++position_) {
      PushCell(column, group.open_slot, group.rows + i, chunk_column);
    }
    position_ = begin;
    ++chunk_column;
  }
  for (int64_t i = 0; i < rows; ++i) group.positions.push_back(begin + i);
  group.rows += static_cast<uint32_t>(rows);
  return IsFull(group) && !IsCollecting(group) ? FinishGroup(index) : Status::Ok();
}

bool ColumnStore::IsCollecting(const Group& group) {
  return group.collects_rows() && !group.open_slot->is_awaited;
}

bool ColumnStore::IsFull(const Group& group) {
  if (group.rows >= DecodeLimits{}.max_rows) return true;
  if (!IsCollecting(group)) return group.rows >= group.length();
  return group.rows >= group.tuner->max_length() ||
         (group.raw_bytes >= kCollectedBytes && group.rows >= group.length());
}

Status ColumnStore::FinishGroup(uint32_t index) {
  Group& group = groups_[index];
  if (group.open_slot == nullptr) return Status::Ok();
  REVERB_ASSIGN_OR_RETURN(ChunkRef chunk, Encode(group, 0, group.rows, group.raw_bytes));
  ChunkSlot* const slot = std::exchange(group.open_slot, nullptr);
  slot->chunk = std::move(chunk);
  slot->was_collected = group.tuner && group.rows > group.length();
  for (const uint32_t c : group.columns) columns_[c].rows.Clear();
  Unref(slot);
  return Status::Ok();
}

Status ColumnStore::CutCollectedRows(std::span<RowRun> runs) {
  cut_groups_.clear();
  for (const RowRun& run : runs) {
    if (run.slot->chunk) continue;
    Group& group = groups_[run.slot->group];
    if (!group.tuner || std::ranges::find(cut_groups_, run.slot->group) != cut_groups_.end()) continue;
    group.tuner->AddCreatedItem();
    if (group.rows < group.length()) {
      run.slot->is_awaited = true;
    } else if (run.slot->is_awaited) {
      // The tuned length became smaller. Other items refer to the rows, so the chunk cannot be divided.
      REVERB_RETURN_IF_ERROR(FinishGroup(run.slot->group));
    } else {
      cut_groups_.push_back(run.slot->group);
    }
  }
  for (const uint32_t group : cut_groups_) REVERB_RETURN_IF_ERROR(CutGroup(group, runs));
  return Status::Ok();
}

Status ColumnStore::CutGroup(uint32_t index, std::span<RowRun> runs) {
  Group& group = groups_[index];
  ChunkSlot* const open = group.open_slot;
  const auto is_all = [&](const RowRun& run) { return run.slot == open && run.length == group.rows; };
  if (std::ranges::any_of(runs, is_all)) return FinishGroup(index);
  // Finds the rows that the item refers to, in order.
  pieces_.clear();
  for (const RowRun& run : runs) {
    if (run.slot == open) pieces_.push_back({.begin = run.offset, .end = run.offset + run.length});
  }
  std::ranges::sort(pieces_, {}, &Piece::begin);
  const uint64_t row_bytes = group.raw_bytes / group.rows;
  const auto is_gap = [&](uint32_t begin, uint32_t end) {
    return end > begin && (end - begin) * row_bytes >= kMaxUnusedBytes;
  };
  // Merges them, and adds the gaps that become separate chunks.
  const std::vector<Piece> used = std::exchange(pieces_, {});
  uint32_t end = 0;
  for (const Piece& piece : used) {
    if (is_gap(end, piece.begin)) {
      pieces_.push_back({.begin = end, .end = piece.begin});
      pieces_.push_back({.begin = piece.begin, .end = piece.end});
    } else if (pieces_.empty()) {
      pieces_.push_back({.begin = 0, .end = piece.end});
    } else {
      pieces_.back().end = std::max(pieces_.back().end, piece.end);
    }
    end = std::max(end, piece.end);
  }
  if (pieces_.size() == 1 && end == group.rows) return FinishGroup(index);

  REVERB_RETURN_IF_ERROR(CutPieces(group, index));
  for (RowRun& run : runs) {
    if (run.slot != open) continue;
    const auto piece =
        std::ranges::find_if(pieces_, [&](const Piece& each) { return run.offset < each.end; });
    run.slot = piece->slot;
    run.offset -= piece->begin;
  }
  for (const Piece& piece : pieces_) Unref(piece.slot);
  if (group.rows == 0) Unref(std::exchange(group.open_slot, nullptr));
  return Status::Ok();
}

Status ColumnStore::CutPieces(Group& group, uint32_t index) {
  const uint64_t row_bytes = group.raw_bytes / group.rows;
  for (Piece& piece : pieces_) {
    const uint32_t rows = piece.end - piece.begin;
    REVERB_ASSIGN_OR_RETURN(piece.chunk, Encode(group, piece.begin, rows, rows * row_bytes));
  }
  for (Piece& piece : pieces_) {
    piece.slot = NewSlot(index);
    piece.slot->chunk = std::move(piece.chunk);
    piece.slot->was_collected = piece.end - piece.begin > group.length();
    Ref(piece.slot);  // until the runs refer to it
  }
  const uint32_t cut = pieces_.back().end;
  for (const uint32_t c : group.columns) {
    Column& column = columns_[c];
    // The newest cells are those of the open chunk, unless they were dropped already.
    auto piece = pieces_.begin();
    const size_t cells = column.cells.size();
    for (size_t i = cells - std::min<size_t>(cells, group.rows); i < cells; ++i) {
      Cell& cell = column.cells[i];
      while (piece != pieces_.end() && cell.row >= piece->end) ++piece;
      if (piece == pieces_.end()) {
        cell.row -= cut;
        continue;
      }
      Unref(cell.slot);
      cell.slot = piece->slot;
      cell.row -= piece->begin;
      Ref(cell.slot);
    }
    group.raw_bytes -= column.row_bytes * cut + column.rows.FirstStringBytes(cut, group.rows);
    column.rows.RemoveFirst(cut, group.rows);
  }
  group.positions.erase(group.positions.begin(), group.positions.begin() + cut);
  group.rows -= cut;
  return Status::Ok();
}

Status ColumnStore::Finish(ChunkSlot* slot) {
  if (slot->chunk) return Status::Ok();
  return FinishGroup(slot->group);
}

Result<ColumnHeader> ColumnStore::EncodeValue(Column& column, std::vector<uint8_t>* payload) {
  return column.dtype == DType::kString ? column.encoder->EncodeStrings(column.value->strings(), 1, payload)
                                        : column.encoder->Encode(column.value->bytes(), 1, payload);
}

Result<ChunkRef> ColumnStore::Encode(Group& group, uint32_t first, uint32_t rows, uint64_t raw_bytes) {
  return MakeChunk(group, rows, raw_bytes, group.positions[first], group.positions[first + rows - 1],
                   [&](Column& column, std::vector<uint8_t>* payload) {
                     return column.rows.Encode(&*column.encoder, first, rows, group.rows, &strings_, payload);
                   });
}

Result<ChunkRef> ColumnStore::EncodeValues(Group& group, uint64_t raw_bytes) {
  return MakeChunk(group, 1, raw_bytes, position_, position_, EncodeValue);
}

template <typename EncodeColumn>
Result<ChunkRef> ColumnStore::MakeChunk(Group& group, uint32_t rows, uint64_t raw_bytes, int64_t first,
                                        int64_t last, EncodeColumn&& encode) {
  header_.episode_id = episode_id_;
  header_.first_step = first - episode_begin_;
  header_.last_step = last - episode_begin_;
  header_.rows = rows;
  header_.columns.clear();
  // A chunk takes over large payloads, so they need separate memory.
  std::vector<uint8_t> own;
  std::vector<uint8_t>* const payload = raw_bytes < kOwnPayloadBytes ? &payload_ : &own;
  payload->clear();
  if (group.columns.size() > 1) payload->reserve(raw_bytes);
  for (const uint32_t c : group.columns) {
    REVERB_ASSIGN_OR_RETURN(ColumnHeader header, encode(columns_[c], payload));
    header_.columns.push_back(std::move(header));
  }
  // A vector with much unused capacity would waste it for the chunk's lifetime.
  const bool hand_over =
      payload == &own && own.size() >= kOwnPayloadBytes && own.capacity() - own.size() <= own.size() / 8;
  return hand_over ? Chunk::External(NextChunkId(), header_, VectorOwner::Wrap(std::move(own)))
                   : Chunk::Copy(NextChunkId(), header_, *payload);
}

// --- Cells and slots ---

ChunkSlot* ColumnStore::NewSlot(uint32_t group) {
  if (free_slots_.empty()) free_slots_.push_back(&slots_.emplace_back());
  ChunkSlot* const slot = free_slots_.back();
  free_slots_.pop_back();
  slot->group = group;
  return slot;
}

void ColumnStore::Release(ChunkSlot* slot) {
  if (slot->was_sent) sink_->Forget(slot->chunk->id());
  *slot = {};
  free_slots_.push_back(slot);
}

void ColumnStore::PushCell(Column& column, ChunkSlot* slot, uint32_t row, uint32_t chunk_column) {
  column.cells.push_back() = {.position = position_, .slot = slot, .row = row, .chunk_column = chunk_column};
  Ref(slot);
  Trim(column);
}

void ColumnStore::Trim(Column& column) {
  while (column.cells.size() > static_cast<size_t>(column.keep)) {
    Unref(column.cells.front().slot);
    column.cells.pop_front();
  }
}

Status ColumnStore::StartEpisode(uint64_t episode_id, bool clear) {
  Status status;
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    if (group.open_slot == nullptr) continue;
    size_t cells = 0;  // cells that refer to the slot
    if (clear) {
      for (const uint32_t c : group.columns) cells += std::min<size_t>(group.rows, columns_[c].cells.size());
    }
    if (!clear || group.open_slot->refs > cells + 1) {
      if (Status finished = FinishGroup(g); status.ok()) status = std::move(finished);
      continue;
    }
    for (const uint32_t c : group.columns) columns_[c].rows.Clear();
    Unref(std::exchange(group.open_slot, nullptr));
  }
  position_ += step_is_open_;
  step_is_open_ = false;
  if (clear) {
    for (Column& column : columns_) {
      while (!column.cells.empty()) {
        Unref(column.cells.front().slot);
        column.cells.pop_front();
      }
    }
    history_begin_ = position_;
  }
  episode_begin_ = position_;
  episode_id_ = episode_id;
  if (!status.ok()) failure_ = status;  // rows of the last episode remain
  return status;
}

void ColumnStore::RecordItem(std::span<const RowRun> runs) {
  const uint64_t item = ++items_recorded_;
  recorded_groups_.clear();
  for (const RowRun& run : runs) {
    Group& group = groups_[run.slot->group];
    if (!group.tuner) continue;
    if (group.item != item) {
      group.item = item;
      group.tuner->AddCreatedItem();
      group.references = group.counted = 0;
      group.has_collected = false;
      group.counted_column = run.chunk_column;
      recorded_groups_.push_back(run.slot->group);
    }
    // The columns of a group are sent together: counts its steps, not its cells. Runs of one column are
    // consecutive.
    if (group.counted_column != run.chunk_column) {
      group.counted_column = run.chunk_column;
      group.counted = 0;
    }
    group.counted += run.length;
    group.references = std::max(group.references, group.counted);
    if (run.slot->last_item == item) continue;
    run.slot->last_item = item;
    if (run.slot->was_collected) {
      group.has_collected = true;
      continue;
    }
    const Chunk& chunk = *run.slot->chunk;
    group.tuner->AddChunk(chunk.id(), chunk.header().rows(), chunk.bytes());
  }
  for (const uint32_t index : recorded_groups_) {
    Group& group = groups_[index];
    if (group.has_collected) {
      group.tuner->SkipItem();
    } else {
      group.tuner->AddItem(group.references);
    }
  }
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
