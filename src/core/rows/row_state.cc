#include "core/rows/row_state.h"

#include <algorithm>
#include <cassert>
#include <limits>

#include "base/utf8.h"

namespace reverb {

std::string_view RowOrderName(RowOrder order) {
  switch (order) {
    case RowOrder::kVersion:
      return "version";
    case RowOrder::kReady:
      return "ready";
    default:
      return "fifo";
  }
}

std::string_view WhenStaleName(WhenStale when) {
  switch (when) {
    case WhenStale::kKeep:
      return "keep";
    case WhenStale::kWait:
      return "wait";
    default:
      return "drop";
  }
}

Status RowTableOptions::Validate() const {
  const auto invalid = [&](const std::string& what) {
    return Status::InvalidArgument("row table \"" + name + "\": " + what);
  };
  const auto number = [](int64_t value) { return std::to_string(value); };
  if (name.empty() || name.size() > 1024 || !internal::IsUtf8(name)) {
    return Status::InvalidArgument("the name of a row table must have 1 to 1024 bytes of UTF-8, not " +
                                   std::to_string(name.size()));
  }
  if (max_rows < 1 || max_rows > kMaxRows) {
    return invalid("max_rows is " + number(max_rows) + ", but must be 1 to " + number(kMaxRows));
  }
  if (group_size < 0 || group_size > std::min(kMaxGroupSize, max_rows)) {
    return invalid("group_size is " + number(group_size) + ", but must be 0 (no groups) to " +
                   number(std::min(kMaxGroupSize, max_rows)));
  }
  if (consumers.size() > kMaxConsumers) {
    return invalid("there are " + std::to_string(consumers.size()) + " consumers, more than " +
                   std::to_string(kMaxConsumers));
  }
  for (size_t i = 0; i < consumers.size(); ++i) {
    const std::string& consumer = consumers[i];
    if (consumer.empty() || consumer.size() > kMaxKeyBytes || !internal::IsUtf8(consumer)) {
      return invalid("the name of a consumer must have 1 to " + std::to_string(kMaxKeyBytes) +
                     " bytes of UTF-8");
    }
    if (consumer == kResumeConsumer) {
      return invalid(
          "every row table has the consumer \"resume\", which gets requeued rows; use another name");
    }
    if (std::find(consumers.begin(), consumers.begin() + static_cast<ptrdiff_t>(i), consumer) !=
        consumers.begin() + static_cast<ptrdiff_t>(i)) {
      return invalid("the consumer \"" + consumer + "\" is listed twice");
    }
  }
  if (max_running < 0) return invalid("max_running is " + number(max_running) + ", but must not be negative");
  if (!staleness) return Status::Ok();
  if (staleness->max_lag < 0) {
    return invalid("max_lag is " + number(staleness->max_lag) + ", but must not be negative");
  }
  if (staleness->batch < 0) {
    return invalid("the batch of the staleness is " + number(staleness->batch) +
                   ", but must not be negative");
  }
  if (staleness->when_stale == WhenStale::kWait && staleness->batch == 0) {
    return invalid("when_stale=\"wait\" needs the number of rows for each version: set batch");
  }
  return Status::Ok();
}

namespace internal {
namespace {

std::string Quoted(std::string_view name) { return "\"" + std::string(name) + "\""; }

// The data of rows stays in memory: they are consumed soon. REQUIRES: the data is there, as that of a new row is.
void CountStoredChunk(const ChunkRef& chunk) {
  if (chunk->is_tiered()) static_cast<void>(chunk->tiered().tier->Pin(chunk.get()));
  if (chunk->ledger() != nullptr) chunk->AddItemRef();
}

}  // namespace

Result<std::unique_ptr<RowState>> RowState::Create(RowTableOptions options, uint64_t first_id) {
  REVERB_RETURN_IF_ERROR(options.Validate());
  return std::unique_ptr<RowState>(new RowState(std::move(options), first_id));
}

RowState::RowState(RowTableOptions options, uint64_t first_id)
    : options_(std::move(options)),
      all_((uint32_t{1} << options_.consumers.size()) - 1),
      resume_(static_cast<uint32_t>(options_.consumers.size())),
      by_key_(0, KeyHash{&rows_}, KeyEqual{&rows_}),
      next_id_(first_id) {}

RowState::~RowState() {
  RowEffects effects;
  for (SlotIndex slot = 0; slot < rows_.size(); ++slot) {
    for (Part& part : rows_[slot].parts) ReleasePart(slot, &part, &effects);
    Discard(slot, std::move(rows_[slot].head));
  }
}

Status RowState::Error(std::string_view key, const std::string& what, StatusCode code) const {
  return Status(code, "table " + Quoted(options_.name) + ": row " + Quoted(key) + " " + what);
}

std::optional<RowState::SlotIndex> RowState::Find(std::string_view key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? std::nullopt : std::optional(*found);
}

// --- Columns --------------------------------------------------------------------------------------

bool RowState::HasColumn(const Row& row, uint16_t column) const {
  return std::ranges::any_of(row.parts, [&](const Part& part) {
    return std::ranges::find(layouts_[part.layout], column) != layouts_[part.layout].end();
  });
}

template <typename Visit>
void RowState::ForEachSegment(const Row& row, uint16_t column, Visit visit) const {
  const auto index_in = [&](const Part& part) -> std::optional<uint32_t> {
    const std::vector<uint16_t>& layout = layouts_[part.layout];
    const auto found = std::ranges::find(layout, column);
    if (found == layout.end()) return std::nullopt;
    return static_cast<uint32_t>(found - layout.begin());
  };
  size_t first = 0;
  for (size_t i = row.parts.size(); i-- > 0;) {
    if (row.parts[i].replaces != 0 && index_in(row.parts[i])) {
      first = i;
      break;
    }
  }
  for (size_t i = first; i < row.parts.size(); ++i) {
    if (const std::optional<uint32_t> index = index_in(row.parts[i])) visit(row.parts[i], *index);
  }
}

std::optional<int64_t> RowState::Length(const Row& row, uint16_t column) const {
  std::optional<int64_t> length;
  ForEachSegment(row, column, [&](const Part& part, uint32_t index) {
    const ColumnView view = part.chunk->header().column(index);
    length = length.value_or(0) + (view.row_shape.empty() ? 1 : view.row_shape[0]);
  });
  return length;
}

std::vector<std::optional<uint16_t>> RowState::Numbers(std::span<const std::string> names) const {
  std::vector<std::optional<uint16_t>> numbers;
  numbers.reserve(names.size());
  for (const std::string& name : names) numbers.push_back(names_.Find(name));
  return numbers;
}

void RowState::AddColumns(const Row& row, std::span<const std::optional<uint16_t>> columns,
                          RowRecord* record) const {
  for (const std::optional<uint16_t>& column : columns) {
    uint32_t count = 0;
    if (column) {
      ForEachSegment(row, *column, [&](const Part& part, uint32_t index) {
        record->segments.push_back({.chunk = part.chunk, .chunk_column = index});
        ++count;
      });
    }
    record->num_segments.push_back(count);
  }
}

RowRecord RowState::Describe(const Row& row) const {
  return {.key = std::string(row.head.key()),
          .group = row.group == kNone ? "" : groups_[row.group].name,
          .version = row.version,
          .is_open = row.is_open,
          .tags = row.head.Tags(names_.all())};
}

// --- Writing --------------------------------------------------------------------------------------

Result<RowState::Write> RowState::Prepare(RowWriteMode mode, std::span<const RowWrite> rows) {
  const std::string table = "table " + Quoted(options_.name);
  const auto invalid = [&](const std::string& what) { return Status::InvalidArgument(table + ": " + what); };
  if (mode.append && mode.overwrite) return invalid("a write cannot both append and overwrite");
  for (size_t i = 0; i < mode.columns.size(); ++i) {
    if (Status status = CheckRowName("column", mode.columns[i]); !status.ok()) return status.Prefixed(table);
    const std::span<const std::string> before = std::span(mode.columns).first(i);
    if (std::ranges::find(before, mode.columns[i]) != before.end()) {
      return invalid("the column " + Quoted(mode.columns[i]) + " is given twice");
    }
  }
  absl::flat_hash_set<std::string_view> keys;
  for (const RowWrite& row : rows) {
    Status status = CheckRowName("key", row.key);
    if (status.ok() && !row.group.empty()) status = CheckRowName("group", row.group);
    if (status.ok()) status = CheckRowTags(row.tags);
    if (!status.ok()) return status.Prefixed(table);
    if (!keys.insert(row.key).second) return invalid("the key " + Quoted(row.key) + " is given twice");
    const uint32_t num_columns = row.chunk ? row.chunk->header().num_columns() : 0;
    if (num_columns != mode.columns.size() || (row.chunk && row.chunk->header().rows() != 1)) {
      return Error(row.key,
                   "has a chunk of " + std::to_string(num_columns) + " columns, but the write names " +
                       std::to_string(mode.columns.size()),
                   StatusCode::kInvalidArgument);
    }
  }
  // Names are added last: a write that is refused adds none.
  std::vector<uint16_t> layout;
  for (const std::string& column : mode.columns) {
    Result<uint16_t> number = names_.Add(column);
    if (!number.ok()) return number.status().Prefixed(table);
    layout.push_back(*number);
  }
  for (const RowWrite& row : rows) {
    for (const RowTag& tag : row.tags) {
      Result<uint16_t> number = names_.Add(tag.name);
      if (!number.ok()) return number.status().Prefixed(table);
    }
  }
  Write write;
  if (!mode.same_length_as.empty()) write.same_length_as = names_.Find(mode.same_length_as);
  const auto [found, is_new] = layout_numbers_.try_emplace(layout, static_cast<uint32_t>(layouts_.size()));
  if (is_new) layouts_.push_back(std::move(layout));
  write.layout = found->second;
  write.mode = std::move(mode);
  return write;
}

Status RowState::CheckColumns(const Write& write, const RowWrite& row, const Row* existing) const {
  const std::vector<uint16_t>& layout = layouts_[write.layout];
  for (uint32_t i = 0; i < layout.size(); ++i) {
    if (existing == nullptr || !HasColumn(*existing, layout[i])) continue;
    const std::string column = "column " + Quoted(names_[layout[i]]);
    if (write.mode.append) {
      Status status;
      const ColumnView added = row.chunk->header().column(i);
      ForEachSegment(*existing, layout[i], [&](const Part& part, uint32_t index) {
        const ColumnView present = part.chunk->header().column(index);
        const bool fits = present.dtype == added.dtype && !present.row_shape.empty() &&
                          present.row_shape.size() == added.row_shape.size() &&
                          std::ranges::equal(present.row_shape.subspan(1), added.row_shape.subspan(1));
        if (!fits) {
          status =
              Error(row.key, "cannot append to " + column + ": dtype, rank or the later dimensions differ",
                    StatusCode::kInvalidArgument);
        }
      });
      REVERB_RETURN_IF_ERROR(status);
    } else if (!write.mode.overwrite) {
      return Error(row.key, "has " + column + " already; pass overwrite to replace it",
                   StatusCode::kAlreadyExists);
    }
  }
  if (write.mode.same_length_as.empty()) return Status::Ok();
  // The length of the column after the write, wherever it comes from.
  const auto own = std::ranges::find(write.mode.columns, write.mode.same_length_as);
  std::optional<int64_t> wanted;
  const auto length_of = [&](uint32_t index) -> int64_t {
    const ColumnView view = row.chunk->header().column(index);
    return view.row_shape.empty() ? 1 : view.row_shape[0];
  };
  if (own != write.mode.columns.end()) {
    wanted = length_of(static_cast<uint32_t>(own - write.mode.columns.begin()));
  } else if (existing != nullptr && write.same_length_as) {
    wanted = Length(*existing, *write.same_length_as);
  }
  if (!wanted) {
    return Error(row.key,
                 "has no column " + Quoted(write.mode.same_length_as) +
                     ", whose length others should have (same_length_as)",
                 StatusCode::kFailedPrecondition);
  }
  for (uint32_t i = 0; i < layout.size(); ++i) {
    if (length_of(i) == *wanted) continue;
    return Error(row.key,
                 "gets " + std::to_string(length_of(i)) + " elements of column " + Quoted(names_[layout[i]]) +
                     ", but column " + Quoted(write.mode.same_length_as) + " has " + std::to_string(*wanted),
                 StatusCode::kInvalidArgument);
  }
  return Status::Ok();
}

// Decides what a write does to a row, and changes nothing.
Result<RowFate> RowState::Judge(const Write& write, const RowWrite& row, RowWaitReason* reason) const {
  *reason = RowWaitReason::kNone;
  if (const std::optional<SlotIndex> slot = Find(row.key)) {
    const Row& existing = rows_[*slot];
    if (!row.group.empty() && (existing.group == kNone || groups_[existing.group].name != row.group)) {
      return Error(row.key, "is not in group " + Quoted(row.group) + "; a row cannot change its group",
                   StatusCode::kInvalidArgument);
    }
    if (DropsStale() && IsUnitStale(existing)) return RowFate::kRefused;
    if (write.mode.append && !existing.is_open) {
      return Error(row.key, "is closed; only open rows can be appended to", StatusCode::kFailedPrecondition);
    }
    REVERB_RETURN_IF_ERROR(CheckColumns(write, row, &existing));
    return RowFate::kStored;
  }
  if (!write.mode.create || (write.mode.append && !write.mode.open)) return RowFate::kRefused;
  if (options_.group_size == 0 && !row.group.empty()) {
    return Error(row.key, "has a group, but the table has none; create the table with group_size",
                 StatusCode::kInvalidArgument);
  }
  // A late column for a row that was dropped.
  if (options_.group_size > 0 && row.group.empty()) return RowFate::kRefused;
  const auto group = by_group_.find(row.group);
  const bool joins_group = group != by_group_.end();
  if (joins_group && std::ssize(groups_[group->second].rows) >= options_.group_size) {
    return Error(row.key,
                 "would be one more than the " + std::to_string(options_.group_size) + " rows of group " +
                     Quoted(row.group),
                 StatusCode::kAlreadyExists);
  }
  if (DropsStale() && IsStale(write.mode.version.value_or(version_))) return RowFate::kRefused;
  REVERB_RETURN_IF_ERROR(CheckColumns(write, row, nullptr));
  // Rows that complete a group never wait: a table that is full of incomplete groups could not go on.
  if (joins_group) return RowFate::kStored;
  const auto reservation = reservations_.find(write.mode.reservation);
  const bool is_reserved = reservation != reservations_.end() && reservation->second.rows > 0;
  if (size() >= options_.max_rows) {
    *reason = RowWaitReason::kFull;
  } else if (!is_reserved && options_.staleness && options_.staleness->when_stale == WhenStale::kWait &&
             Capacity() < 1) {
    *reason = RowWaitReason::kAhead;
  }
  return *reason == RowWaitReason::kNone ? RowFate::kStored : RowFate::kWaits;
}

Status RowState::Check(const Write& write, const RowWrite& row) const {
  RowWaitReason reason = RowWaitReason::kNone;
  return Judge(write, row, &reason).status();
}

Result<RowFate> RowState::Store(const Write& write, RowWrite* row, RowEffects* effects) {
  ++operation_;
  REVERB_ASSIGN_OR_RETURN(const RowFate fate, Judge(write, *row, &wait_reason_));
  if (fate == RowFate::kRefused) ++counts_.refused;
  if (fate != RowFate::kStored) return fate;
  std::optional<SlotIndex> slot = Find(row->key);
  if (slot) {
    RowHead& head = rows_[*slot].head;
    head_bytes_ -= head.memory_bytes();
    Discard(*slot, head.SetTags(row->tags, names_));
    head_bytes_ += head.memory_bytes();
    ++counts_.updated;
  } else {
    slot = AddRow(write, *row);
  }
  if (row->chunk) AddPart(*slot, write, std::move(row->chunk), effects);
  Refresh(*slot);
  return RowFate::kStored;
}

RowState::SlotIndex RowState::AddRow(const Write& write, const RowWrite& row) {
  SlotIndex slot = static_cast<SlotIndex>(rows_.size());
  if (free_.empty()) {
    rows_.emplace_back();
  } else {
    slot = free_.back();
    free_.pop_back();
  }
  Row& added = rows_[slot];
  added.head = RowHead(row.key, row.tags, names_);
  head_bytes_ += added.head.memory_bytes();
  added.sequence = ++sequence_;
  added.version = write.mode.version.value_or(version_);
  added.is_open = write.mode.open;
  by_key_.insert(slot);
  if (!row.group.empty()) {
    auto [found, is_new] = by_group_.try_emplace(row.group, static_cast<uint32_t>(groups_.size()));
    if (is_new) {
      if (free_groups_.empty()) {
        groups_.emplace_back();
      } else {
        found->second = free_groups_.back();
        free_groups_.pop_back();
      }
      ++groups_created_;
      Group& group = groups_[found->second];
      group.name = row.group;
      group.sequence = added.sequence;
      group.version = added.version;
    }
    Group& group = groups_[found->second];
    group.rows.push_back(slot);
    added.group = found->second;
    if (added.version < group.version) {
      // The others may be stale with it.
      group.version = added.version;
      for (const SlotIndex other : group.rows) Refresh(other);
    }
  }
  const auto reservation = reservations_.find(write.mode.reservation);
  if (reservation != reservations_.end() && --reservation->second.rows == 0) {
    expiries_.erase({reservation->second.expires, reservation->first});
    reservations_.erase(reservation);
  }
  has_started_ = true;
  ++counts_.created;
  ++counts_.accepted;
  return slot;
}

void RowState::AddPart(SlotIndex slot, const Write& write, ChunkRef chunk, RowEffects* effects) {
  Row* const row = &rows_[slot];
  CountStoredChunk(chunk);
  counts_.bytes += static_cast<int64_t>(chunk->bytes());
  const int64_t lag = write.mode.version.value_or(row->version) - row->version;
  row->parts.push_back({.chunk = std::move(chunk),
                        .layout = write.layout,
                        .replaces = write.mode.overwrite ? 1u : 0u,
                        .lag = static_cast<int32_t>(std::clamp<int64_t>(
                            lag, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()))});
  if (!write.mode.overwrite) return;
  // Parts of which no column counts any more are freed.
  for (size_t i = row->parts.size() - 1; i-- > 0;) {
    const bool is_hidden = std::ranges::all_of(layouts_[row->parts[i].layout], [&](uint16_t column) {
      bool is_used = false;
      ForEachSegment(*row, column, [&](const Part& part, uint32_t) { is_used |= &part == &row->parts[i]; });
      return !is_used;
    });
    if (!is_hidden) continue;
    ReleasePart(slot, &row->parts[i], effects);
    row->parts.erase(row->parts.begin() + static_cast<ptrdiff_t>(i));
  }
}

void RowState::ReleasePart(SlotIndex slot, Part* part, RowEffects* effects) {
  counts_.bytes -= static_cast<int64_t>(part->chunk->bytes());
  const bool is_unstored = part->chunk->ledger() != nullptr && part->chunk->DropItemRef();
  Discard(slot, std::move(part->chunk), is_unstored, effects);
}

Result<std::vector<std::string>> RowState::End(std::span<const std::string> keys, RowEnding ending,
                                               RowEffects* effects) {
  ++operation_;
  std::vector<std::string> gone;
  for (const std::string& key : keys) {
    const std::optional<SlotIndex> slot = Find(key);
    if (!slot || rows_[*slot].is_open || ending == RowEnding::kClose) continue;
    return Error(key,
                 std::string("is closed; only open rows can be ") +
                     (ending == RowEnding::kAbort ? "aborted: delete it instead" : "requeued"),
                 StatusCode::kFailedPrecondition);
  }
  const uint32_t resume_bit = uint32_t{1} << resume_;
  for (const std::string& key : keys) {
    const std::optional<SlotIndex> slot = Find(key);
    if (!slot || (DropsStale() && IsUnitStale(rows_[*slot]))) {
      gone.push_back(key);
      ++counts_.refused;
    }
    if (!slot) continue;
    if (ending == RowEnding::kAbort) {
      DeleteRow(*slot, effects);
      continue;
    }
    Row& row = rows_[*slot];
    if (!row.is_open) continue;
    row.is_open = ending != RowEnding::kClose;
    row.is_requeued = ending == RowEnding::kRequeue;
    row.leased &= ~resume_bit;
    Refresh(*slot);
    DropIfDone(*slot, effects);
  }
  return gone;
}

// --- Dropping -------------------------------------------------------------------------------------

bool RowState::IsStale(int64_t version) const {
  return options_.staleness && options_.staleness->when_stale != WhenStale::kWait &&
         LagOf(version) > options_.staleness->max_lag;
}

int64_t RowState::LagOf(int64_t version) const {
  int64_t lag = 0;
  if (!__builtin_sub_overflow(version_, version, &lag)) return lag;
  return version < 0 ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min();
}

bool RowState::IsComplete(const Group& group) const {
  return std::ssize(group.rows) == options_.group_size &&
         std::ranges::none_of(group.rows, [&](SlotIndex slot) { return rows_[slot].is_open; });
}

void RowState::Drop(SlotIndex slot, Why why, RowEffects* effects) {
  Row& row = rows_[slot];
  const bool was_consumed = IsConsumed(row);
  const uint32_t group = row.group;
  // Not ready for anything from here on.
  row.leased = UINT32_MAX >> 1;
  Refresh(slot);
  for (View& view : views_) view.ready_since.erase(row.sequence);
  by_key_.erase(slot);
  for (Part& part : row.parts) ReleasePart(slot, &part, effects);
  head_bytes_ -= row.head.memory_bytes();
  Discard(slot, std::move(row.head));
  row = Row();
  free_.push_back(slot);
  if (group != kNone) {
    Group& found = groups_[group];
    std::erase(found.rows, slot);
    if (found.rows.empty()) {
      for (View& view : views_) view.ready_since.erase(found.sequence);
      by_group_.erase(found.name);
      found = Group();
      free_groups_.push_back(group);
    }
  }
  if (!was_consumed) --counts_.accepted;
  if (why == Why::kStale) ++counts_.dropped_stale;
  if (why == Why::kDeleted) ++counts_.deleted;
}

void RowState::DropUnit(SlotIndex slot, Why why, RowEffects* effects) {
  if (rows_[slot].group == kNone) return Drop(slot, why, effects);
  const std::vector<SlotIndex> rows = groups_[rows_[slot].group].rows;
  for (const SlotIndex each : rows) Drop(each, why, effects);
}

void RowState::DeleteRow(SlotIndex slot, RowEffects* effects) {
  const uint32_t group = rows_[slot].group;
  const bool leaves_others = group != kNone && groups_[group].rows.size() > 1;
  Drop(slot, Why::kDeleted, effects);
  if (leaves_others) DropIfDone(groups_[group].rows.front(), effects);
}

void RowState::DropIfDone(SlotIndex slot, RowEffects* effects) {
  const Row& row = rows_[slot];
  const auto all_rows = [&](auto holds) {
    if (row.group == kNone) return holds(row);
    return std::ranges::all_of(groups_[row.group].rows, [&](SlotIndex each) { return holds(rows_[each]); });
  };
  if (!all_rows([](const Row& each) { return each.leased == 0; })) return;
  if (options_.drop_consumed &&
      all_rows([&](const Row& each) { return IsConsumed(each) && !each.is_open; }) &&
      (row.group == kNone || IsComplete(groups_[row.group]))) {
    return DropUnit(slot, Why::kConsumed, effects);
  }
  if (DropsStale() && IsUnitStale(row)) DropUnit(slot, Why::kStale, effects);
}

int64_t RowState::Delete(std::span<const std::string> keys, RowEffects* effects) {
  int64_t deleted = 0;
  for (const std::string& key : keys) {
    const std::optional<SlotIndex> slot = Find(key);
    if (!slot) continue;
    DeleteRow(*slot, effects);
    ++deleted;
  }
  return deleted;
}

// --- Versions and admission -----------------------------------------------------------------------

Status RowState::SetVersion(int64_t version, RowEffects* effects) {
  if (version < version_) {
    return Status::FailedPrecondition("table " + Quoted(options_.name) + ": the version is " +
                                      std::to_string(version_) + " already and cannot become " +
                                      std::to_string(version));
  }
  const int64_t before = std::exchange(version_, version);
  if (!has_started_) first_version_ = version;
  for (View& view : views_) view.generation = ++tick_;
  if (!options_.staleness || options_.staleness->when_stale == WhenStale::kWait || version == before) {
    return Status::Ok();
  }
  for (SlotIndex slot = 0; slot < rows_.size(); ++slot) {
    if (rows_[slot].sequence == 0 || !IsUnitStale(rows_[slot])) continue;
    Refresh(slot);
    DropIfDone(slot, effects);
  }
  return Status::Ok();
}

int64_t RowState::Capacity() const {
  int64_t running = 0;
  for (const auto& [id, reservation] : reservations_) running += reservation.rows;
  int64_t capacity = std::numeric_limits<int64_t>::max();
  if (options_.max_running > 0) capacity = options_.max_running - running;
  if (!options_.staleness || options_.staleness->batch == 0) return capacity;
  int64_t allowed = 0;
  int64_t versions = 0;
  if (__builtin_add_overflow(options_.staleness->max_lag, LagOf(first_version_), &versions) ||
      __builtin_add_overflow(versions, 1, &versions) ||
      __builtin_mul_overflow(versions, options_.staleness->batch, &allowed)) {
    return capacity;
  }
  return std::min(capacity, allowed - (counts_.accepted + running));
}

Result<uint64_t> RowState::Reserve(int64_t n, std::optional<int64_t> version, Duration lease) {
  wait_reason_ = RowWaitReason::kNone;
  const std::string table = "table " + Quoted(options_.name) + ": ";
  if (n < 1)
    return Status::InvalidArgument(table + "cannot reserve " + std::to_string(n) + " rows; give 1 or more");
  if (lease <= Duration(0)) return Status::InvalidArgument(table + "a reservation needs a positive lease");
  if (options_.max_running > 0 && n > options_.max_running) {
    return Status::InvalidArgument(table + "cannot reserve " + std::to_string(n) +
                                   " rows, more than max_running = " + std::to_string(options_.max_running));
  }
  if (version && IsStale(*version)) {
    return Status::FailedPrecondition(table + "rows of version " + std::to_string(*version) +
                                      " are stale: the table is at version " + std::to_string(version_) +
                                      "; get the current policy");
  }
  if (Capacity() < n) {
    int64_t running = 0;
    for (const auto& [id, reservation] : reservations_) running += reservation.rows;
    const bool is_busy = options_.max_running > 0 && options_.max_running - running < n;
    wait_reason_ = is_busy ? RowWaitReason::kBusy : RowWaitReason::kAhead;
    return uint64_t{0};
  }
  if (next_id_ == 0) ++next_id_;
  const uint64_t id = next_id_++;
  const TimePoint expires = After(lease);
  reservations_.emplace(id, Reservation{.rows = n, .expires = expires});
  expiries_.emplace(expires, id);
  has_started_ = true;
  return id;
}

bool RowState::CancelReservation(uint64_t id) {
  const auto found = reservations_.find(id);
  if (found == reservations_.end()) return false;
  expiries_.erase({found->second.expires, id});
  reservations_.erase(found);
  return true;
}

// --- Counting -------------------------------------------------------------------------------------

RowCounts RowState::Counts() const {
  RowCounts counts = counts_;
  counts.rows = size();
  for (const Row& row : rows_) {
    if (row.sequence == 0) continue;
    counts.open += row.is_open ? 1 : 0;
    counts.stale += IsUnitStale(row) ? 1 : 0;
  }
  for (const auto& [name, group] : by_group_) {
    ++counts.groups;
    counts.complete_groups += IsComplete(groups_[group]) ? 1 : 0;
  }
  for (const auto& [id, reservation] : reservations_) counts.running += reservation.rows;
  counts.leases = std::ssize(leases_);
  return counts;
}

int64_t RowState::index_bytes() const {
  size_t bytes = rows_.size() * sizeof(Row) + by_key_.capacity() * (sizeof(SlotIndex) + 1) + head_bytes_;
  for (const View& view : views_) bytes += view.ready.size() * sizeof(Entry);
  return static_cast<int64_t>(bytes);
}

int64_t RowState::memory_bytes() const {
  size_t bytes = static_cast<size_t>(index_bytes());
  for (const Row& row : rows_) {
    if (row.parts.capacity() > 1) bytes += row.parts.capacity() * sizeof(Part);
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace internal
}  // namespace reverb
