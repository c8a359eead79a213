// The part of ColumnStore that fills, divides and encodes chunks.
#include <algorithm>
#include <utility>

#include "base/buffer.h"
#include "client/column_store.h"
#include "tensor/chunk_header.h"

namespace reverb::internal {
namespace {

// From this size on, a chunk takes over the encoder's bytes instead of copying them.
constexpr size_t kOwnPayloadBytes = 4096;
// Below this size, the memory that a payload is encoded into before it is copied to a source is kept.
constexpr size_t kMaxKeptPayloadBytes = size_t{1} << 20;
// Collected rows become a chunk when they reach this size, even without an item. A chunk consists of blocks of
// 64 kB, so that longer chunks would save little.
constexpr uint64_t kCollectedBytes = uint64_t{256} << 10;
// Rows that an item does not refer to stay in its chunk if they are between rows that it does refer to and
// take fewer bytes than this: a separate chunk would take more.
constexpr uint64_t kMaxUnusedBytes = 104;

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

// --- Adding rows ---

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

// --- Completing chunks ---

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

void ColumnStore::FindUsedRows(const Group& group, std::span<const RowRun> runs) {
  used_.clear();
  for (const RowRun& run : runs) {
    if (run.slot == group.open_slot) used_.push_back({run.offset, run.offset + run.length});
  }
  std::ranges::sort(used_, {}, &RowInterval::begin);
  const uint64_t row_bytes = group.raw_bytes / group.rows;
  const auto are_few = [&](uint32_t begin, uint32_t end) {
    return begin >= end || (end - begin) * row_bytes < kMaxUnusedBytes;
  };
  if (are_few(0, used_[0].begin)) used_[0].begin = 0;
  size_t last = 0;
  for (const RowInterval& next : used_) {
    if (are_few(used_[last].end, next.begin)) {
      used_[last].end = std::max(used_[last].end, next.end);
    } else {
      used_[++last] = next;
    }
  }
  used_.resize(last + 1);
}

Status ColumnStore::CutGroup(uint32_t index, std::span<RowRun> runs) {
  Group& group = groups_[index];
  ChunkSlot* const open = group.open_slot;
  const auto is_all = [&](const RowRun& run) { return run.slot == open && run.length == group.rows; };
  if (std::ranges::any_of(runs, is_all)) return FinishGroup(index);
  FindUsedRows(group, runs);
  uint32_t length = static_cast<uint32_t>(group.length());
  for (const RowInterval& used : used_) length = std::max(length, used.end - used.begin);
  // Divides the rows that no item needs yet into chunks of the same length, because the next items are likely
  // to be similar.
  pieces_.clear();
  uint32_t end = 0;
  const auto add = [&](uint32_t to) {
    pieces_.push_back({.begin = end, .end = to});
    end = to;
  };
  for (const RowInterval& used : used_) {
    while (end < used.begin) add(std::min(end + length, used.begin));
    add(used.end);
  }
  // Keeps the last ones open: there may be more of them.
  while (group.rows - end >= length) add(end + length);
  if (pieces_.size() == 1 && end == group.rows) return FinishGroup(index);

  REVERB_RETURN_IF_ERROR(CutPieces(group, index));
  for (RowRun& run : runs) {
    if (run.slot != open) continue;
    const auto piece = std::ranges::upper_bound(pieces_, run.offset, {}, &Piece::end);
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

// --- Encoding ---

Status ColumnStore::EncodeValue(Column& column, std::vector<uint8_t>* payload, ColumnHeader* header) {
  return column.dtype == DType::kString
             ? column.encoder->EncodeStrings(column.value->strings(), 1, payload, header)
             : column.encoder->Encode(column.value->bytes(), 1, payload, header);
}

Result<ChunkRef> ColumnStore::Encode(Group& group, uint32_t first, uint32_t rows, uint64_t raw_bytes) {
  return MakeChunk(
      group, rows, raw_bytes, group.positions[first], group.positions[first + rows - 1],
      [&](const Column& column) { return column.rows.RawRows(first, rows, group.rows); },
      [&](Column& column, std::vector<uint8_t>* payload, ColumnHeader* header) {
        return column.rows.Encode(&*column.encoder, first, rows, group.rows, &strings_, payload, header);
      });
}

Result<ChunkRef> ColumnStore::EncodeValues(Group& group, uint64_t raw_bytes) {
  return MakeChunk(
      group, 1, raw_bytes, position_, position_, [](const Column& column) { return column.value->bytes(); },
      EncodeValue);
}

template <typename RawRows>
Result<bool> ColumnStore::StoresRaw(Group& group, uint32_t rows, const RawRows& raw_rows) {
  for (const uint32_t c : group.columns) {
    if (columns_[c].dtype == DType::kString) return false;
  }
  raw_columns_.clear();
  bool is_raw = true;
  for (size_t i = 0; i < group.columns.size(); ++i) {
    Column& column = columns_[group.columns[i]];
    raw_columns_.push_back(raw_rows(column));
    REVERB_ASSIGN_OR_RETURN(const bool is_raw_column,
                            column.encoder->StoresRaw(raw_columns_.back(), rows, &group.header.columns[i]));
    is_raw &= is_raw_column;
  }
  return is_raw;
}

template <typename RawRows, typename EncodeColumn>
Result<ChunkRef> ColumnStore::MakeChunk(Group& group, uint32_t rows, uint64_t raw_bytes, int64_t first,
                                        int64_t last, const RawRows& raw_rows, const EncodeColumn& encode) {
  ChunkHeader& header = group.header;
  header.episode_id = episode_id_;
  header.first_step = first - episode_begin_;
  header.last_step = last - episode_begin_;
  header.rows = rows;
  header.columns.resize(group.columns.size());
  REVERB_ASSIGN_OR_RETURN(const bool is_raw, StoresRaw(group, rows, raw_rows));
  if (is_raw) return Chunk::CopyRaw(NextChunkId(), header, raw_columns_, {}, options_.payload_source);
  // A chunk takes over large payloads, so they need separate memory, unless they are copied to a source.
  const bool has_source = options_.payload_source != nullptr && options_.payload_source->is_enabled();
  std::vector<uint8_t> own;
  std::vector<uint8_t>* const payload =
      raw_bytes < (has_source ? kMaxKeptPayloadBytes : kOwnPayloadBytes) ? &payload_ : &own;
  payload->clear();
  if (group.columns.size() > 1) payload->reserve(raw_bytes);
  for (size_t i = 0; i < group.columns.size(); ++i) {
    REVERB_RETURN_IF_ERROR(encode(columns_[group.columns[i]], payload, &header.columns[i]));
  }
  // A vector with much unused capacity would waste it for the chunk's lifetime.
  const bool hand_over = !has_source && payload == &own && own.size() >= kOwnPayloadBytes &&
                         own.capacity() - own.size() <= own.size() / 8;
  return hand_over ? Chunk::External(NextChunkId(), header, VectorOwner::Wrap(std::move(own)))
                   : Chunk::Copy(NextChunkId(), header, *payload, {}, options_.payload_source);
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

}  // namespace reverb::internal
