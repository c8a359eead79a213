// Captures a row table for a checkpoint, and restores it.
#include "core/rows/row_snapshot.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/rows/row_state.h"

namespace reverb::internal {

void ParkedRows::Share() {
  MutexLock lock(&mu_);
  is_shared_ = true;
  first_page_ = 0;  // the other snapshot shows all slots
}

ParkedRows::Page* ParkedRows::PageOf(uint32_t slot) {
  const uint32_t page = slot >> kSlotsPerPageShift;
  return page < first_page_ ? nullptr : &pages_[page];
}

ChunkRef ParkedRows::Park(uint32_t slot, ChunkRef chunk, bool is_unstored) {
  MutexLock lock(&mu_);
  Page* const page = PageOf(slot);
  if (page == nullptr) return chunk;
  if (is_unstored) {
    // The payload of a tiered chunk was pinned by its row, and stays in memory.
    page->counted.Add(chunk->ledger(), chunk->own_bytes() + (chunk->is_tiered() ? chunk->bytes() : 0));
  }
  page->chunks.push_back(std::move(chunk));
  return {};
}

RowHead ParkedRows::Park(uint32_t slot, RowHead head) {
  MutexLock lock(&mu_);
  Page* const page = PageOf(slot);
  if (page == nullptr) return head;
  if (page->heads.empty()) page->heads_charge = MemoryCharge(budget_, MemoryPart::kIndex);
  page->heads_charge.Set(page->heads_charge.bytes() + static_cast<int64_t>(head.memory_bytes()));
  page->heads.push_back(std::move(head));
  return {};
}

void ParkedRows::ReleaseBefore(uint32_t end) {
  std::vector<Page> released;  // freed after the lock
  MutexLock lock(&mu_);
  if (is_shared_) return;
  first_page_ = std::max(first_page_, end >> kSlotsPerPageShift);
  while (!pages_.empty() && pages_.begin()->first < first_page_) {
    released.push_back(std::move(pages_.begin()->second));
    pages_.erase(pages_.begin());
  }
}

void RowTableSnapshot::ChargeTo(MemoryBudget* budget) {
  charge_ = MemoryCharge(
      budget, MemoryPart::kIndex,
      static_cast<int64_t>(records_.capacity() * sizeof(Record) + parts_.capacity() * sizeof(Part)));
}

RowTableSnapshot::RowTableSnapshot(int64_t expected_rows) {
  // Filled and emptied: the system provides memory when it is first written to.
  const auto rows = static_cast<size_t>(expected_rows + expected_rows / 8 + 16);
  records_.resize(rows);
  parts_.resize(2 * rows);
  records_.clear();
  parts_.clear();
}

SavedRow RowTableSnapshot::row(size_t index) const {
  const Record& record = records_[index];
  const RowHead head = RowHead::Copy(record.head);
  SavedRow row{.slot = record.slot,
               .key = std::string(head.key()),
               .tags = head.Tags(table_.names),
               .sequence = record.sequence,
               .version = record.version,
               .done = record.done,
               .is_open = record.is_open,
               .is_requeued = record.is_requeued};
  if (record.group != UINT32_MAX) row.group = record.group;
  row.parts.reserve(record.num_parts);
  for (size_t i = record.first_part; i < record.first_part + record.num_parts; ++i) {
    const Part& part = parts_[i];
    row.parts.push_back({.chunk = ChunkRef::Share(part.chunk),
                         .layout = part.layout >> 1,
                         .replaces = (part.layout & 1) != 0,
                         .lag = part.lag});
  }
  return row;
}

// --- Capturing ------------------------------------------------------------------------------------

void RowState::Capture(RowTableSnapshot* snapshot, MemoryBudget* budget) {
  if ((snapshot->parked_ = parked_.lock()) != nullptr) {
    snapshot->parked_->Share();
  } else {
    parked_ = snapshot->parked_ = std::make_shared<ParkedRows>(budget);
  }
  SavedRowTable& table = snapshot->table_;
  table.settings = options_;
  table.counts = counts_;
  table.counts.rows = size();
  // Leases end with the server.
  for (const auto& [id, lease] : leases_) {
    const uint32_t bit = uint32_t{1} << lease.consumer;
    table.counts.expired += std::ranges::count_if(lease.rows, [&](const LeasedRow& each) {
      return rows_[each.slot].sequence == each.sequence && (rows_[each.slot].leased & bit) != 0;
    });
  }
  table.version = version_;
  table.first_version = first_version_;
  table.has_started = has_started_;
  table.sequence = sequence_;
  table.operation = operation_;
  table.free_slots = free_;
  table.names = names_.all();
  table.layouts = layouts_;
  table.user_state = user_state_;
  std::vector<const View*> views;
  for (const View& view : views_) views.push_back(&view);
  std::ranges::sort(views, {}, &View::last_used);
  for (const View* view : views) {
    SavedRowView& saved = table.views.emplace_back();
    saved = {.consumer = view->consumer,
             .needs = view->needs,
             .whole_groups = view->whole_groups,
             .ready_since = {}};
    if (options_.order == RowOrder::kReady)
      saved.ready_since.assign(view->ready_since.begin(), view->ready_since.end());
  }
  std::vector<uint32_t> group_index(groups_.size(), kNone);
  table.groups.reserve(by_group_.size());
  for (size_t i = 0; i < groups_.size(); ++i) {
    const Group& group = groups_[i];
    if (group.rows.empty()) continue;
    group_index[i] = static_cast<uint32_t>(table.groups.size());
    table.groups.push_back({.name = group.name, .sequence = group.sequence, .version = group.version});
  }
  constexpr size_t kAhead = 16;
  for (size_t slot = 0; slot < rows_.size(); ++slot) {
    // Several parts are elsewhere in memory.
    if (slot + kAhead < rows_.size()) __builtin_prefetch(rows_[slot + kAhead].parts.data());
    const Row& row = rows_[slot];
    if (row.sequence == 0) continue;
    snapshot->records_.push_back({.head = row.head.block(),
                                  .sequence = row.sequence,
                                  .version = row.version,
                                  .first_part = snapshot->parts_.size(),
                                  .num_parts = static_cast<uint32_t>(row.parts.size()),
                                  .slot = static_cast<uint32_t>(slot),
                                  .group = row.group == kNone ? kNone : group_index[row.group],
                                  .done = row.done,
                                  .is_open = row.is_open,
                                  .is_requeued = row.is_requeued});
    for (const Part& part : row.parts) {
      snapshot->parts_.push_back(
          {.chunk = part.chunk.get(),
           .layout = static_cast<uint32_t>(part.layout) << 1 | static_cast<uint32_t>(part.replaces),
           .lag = part.lag});
    }
  }
}

void RowState::Discard(SlotIndex slot, ChunkRef chunk, bool is_unstored, RowEffects* effects) {
  if (const std::shared_ptr<ParkedRows> parked = parked_.lock()) {
    chunk = parked->Park(slot, std::move(chunk), is_unstored);
  }
  if (chunk) effects->released.push_back(std::move(chunk));
}

void RowState::Discard(SlotIndex slot, RowHead head) {
  if (head.block() == nullptr) return;
  if (const std::shared_ptr<ParkedRows> parked = parked_.lock()) parked->Park(slot, std::move(head));
}

// --- Restoring ------------------------------------------------------------------------------------

namespace {

Status DamagedRows(const std::string& table, const std::string& what) {
  return Status::DataLoss("row table \"" + table + "\": " + what).WithDetail(Detail::kCorruptData);
}

// Returns whether a counter of a saved table can be one.
bool IsCount(int64_t value) { return value >= 0 && value <= std::numeric_limits<int64_t>::max() / 4; }

}  // namespace

Status RowState::BeginRestore(SavedRowTable saved) {
  const auto damaged = [&](const std::string& what) { return DamagedRows(options_.name, what); };
  const RowCounts& counts = saved.counts;
  for (const int64_t count : {counts.rows, counts.accepted, counts.created, counts.updated, counts.consumed,
                              counts.dropped_stale, counts.deleted, counts.refused, counts.claimed,
                              counts.acknowledged, counts.released, counts.expired}) {
    if (!IsCount(count)) return damaged("it has a counter of " + std::to_string(count));
  }
  if (saved.names.size() > RowNames::kMaxNames) {
    return damaged("it has " + std::to_string(saved.names.size()) + " names of columns and tags");
  }
  for (const std::string& name : saved.names) {
    if (!CheckRowName("name", name).ok() || names_.Find(name)) {
      return damaged("a name of a column or tag is not valid, or is there twice");
    }
    REVERB_RETURN_IF_ERROR(names_.Add(name).status());
  }
  const auto is_name = [&](uint16_t number) { return number < saved.names.size(); };
  for (const std::vector<uint16_t>& layout : saved.layouts) {
    std::vector<uint16_t> sorted = layout;
    std::ranges::sort(sorted);
    if (!std::ranges::all_of(layout, is_name) || std::ranges::adjacent_find(sorted) != sorted.end() ||
        !layout_numbers_.try_emplace(layout, static_cast<uint32_t>(layouts_.size())).second) {
      return damaged("a layout of columns is not valid, or is there twice");
    }
    layouts_.push_back(layout);
  }
  auto restoring = std::make_unique<Restoring>();
  for (const std::string& consumer : saved.settings.consumers) {
    restoring->consumers.push_back(FindConsumer(consumer));
  }
  restoring->consumers.emplace_back(resume_);
  if (options_.group_size == 0 && !saved.groups.empty()) return damaged("it has groups, but no group_size");
  for (const SavedRowGroup& group : saved.groups) {
    const auto number = static_cast<uint32_t>(groups_.size());
    if (!CheckRowName("group", group.name).ok() || !by_group_.try_emplace(group.name, number).second) {
      return damaged("a group has a name that is not valid, or is there twice");
    }
    ++groups_created_;
    groups_.emplace_back();
    groups_.back().name = group.name;
    groups_.back().sequence = group.sequence;
    groups_.back().version = group.version;
    restoring->groups.push_back(number);
  }
  if (saved.views.size() > kMaxViews)
    return damaged("it has " + std::to_string(saved.views.size()) + " kinds of claims");
  for (const SavedRowView& view : saved.views) {
    if (view.consumer >= restoring->consumers.size() || !std::ranges::all_of(view.needs, is_name) ||
        !std::ranges::is_sorted(view.needs) || std::ranges::adjacent_find(view.needs) != view.needs.end() ||
        (view.whole_groups && options_.group_size == 0)) {
      return damaged("a kind of claim is not valid");
    }
  }
  if (saved.first_version > saved.version) return damaged("its versions are not valid");
  if (saved.user_state != nullptr && saved.user_state->size() > RowTableOptions::kMaxStateBytes) {
    return damaged("the state of the caller has " + std::to_string(saved.user_state->size()) + " bytes");
  }
  version_ = saved.version;
  first_version_ = saved.first_version;
  has_started_ = saved.has_started;
  sequence_ = saved.sequence;
  operation_ = saved.operation;
  user_state_ = saved.user_state;
  const int64_t bytes = counts_.bytes;
  counts_ = saved.counts;
  counts_.bytes = bytes;
  counts_.rows = 0;
  const size_t num_slots = static_cast<size_t>(saved.counts.rows) + saved.free_slots.size();
  if (num_slots > kNone) return damaged("it has " + std::to_string(num_slots) + " slots");
  restoring->saved = std::move(saved);
  restoring_ = std::move(restoring);
  return Status::Ok();
}

Status RowState::RestoreRow(SavedRow row) {
  const SavedRowTable& saved = restoring_->saved;
  const size_t num_slots = static_cast<size_t>(saved.counts.rows) + saved.free_slots.size();
  const auto damaged = [&](const std::string& what) {
    return DamagedRows(options_.name, "row \"" + row.key.substr(0, 256) + "\" " + what);
  };
  if (!CheckRowName("key", row.key).ok() || Find(row.key))
    return damaged("has a key that is not valid, or is there twice");
  if (row.slot >= num_slots || (row.slot < rows_.size() && rows_[row.slot].sequence != 0)) {
    return damaged("has a slot that is not valid");
  }
  if (row.sequence == 0 || row.sequence > saved.sequence) return damaged("has a number that is not valid");
  if (!CheckRowTags(row.tags).ok()) return damaged("has tags that are not valid");
  if (row.group.has_value() != (options_.group_size > 0) ||
      (row.group && *row.group >= restoring_->groups.size())) {
    return damaged("has a group that is not valid");
  }
  if (row.is_requeued && !row.is_open) return damaged("is requeued, but closed");
  if (row.done >> saved.settings.consumers.size() != 0) return damaged("was consumed by an unknown consumer");
  for (const SavedRowPart& part : row.parts) {
    if (part.layout >= layouts_.size() || !part.chunk ||
        part.chunk->header().num_columns() != layouts_[part.layout].size() ||
        part.chunk->header().rows() != 1) {
      return damaged("has data that does not fit to its columns");
    }
  }
  if (row.slot >= rows_.size()) rows_.resize(row.slot + 1);
  Row& to = rows_[row.slot];
  if (row.group) {
    Group& group = groups_[restoring_->groups[*row.group]];
    if (std::ssize(group.rows) >= options_.group_size) return damaged("is one more than its group has");
    group.rows.push_back(row.slot);
    to.group = restoring_->groups[*row.group];
  }
  to.head = RowHead(row.key, row.tags, names_);
  head_bytes_ += to.head.memory_bytes();
  to.sequence = row.sequence;
  to.version = row.version;
  to.is_open = row.is_open;
  to.is_requeued = row.is_requeued;
  for (size_t i = 0; i < saved.settings.consumers.size(); ++i) {
    if ((row.done >> i & 1) != 0 && restoring_->consumers[i])
      to.done |= uint32_t{1} << *restoring_->consumers[i];
  }
  by_key_.insert(row.slot);
  for (SavedRowPart& part : row.parts) {
    if (part.chunk->is_tiered()) REVERB_RETURN_IF_ERROR(part.chunk->tiered().tier->Pin(part.chunk.get()));
    if (part.chunk->ledger() != nullptr) part.chunk->AddItemRef();
    counts_.bytes += part.chunk->bytes();
    to.parts.push_back({.chunk = std::move(part.chunk),
                        .layout = part.layout,
                        .replaces = part.replaces ? 1u : 0u,
                        .lag = part.lag});
  }
  return Status::Ok();
}

Status RowState::FinishRestore(RowEffects* effects) {
  const std::unique_ptr<Restoring> restoring = std::move(restoring_);
  const SavedRowTable& saved = restoring->saved;
  const auto damaged = [&](const std::string& what) { return DamagedRows(options_.name, what); };
  if (size() != saved.counts.rows) {
    return damaged("it should have " + std::to_string(saved.counts.rows) + " rows and has " +
                   std::to_string(size()));
  }
  rows_.resize(static_cast<size_t>(size()) + saved.free_slots.size());
  std::vector<bool> is_free(rows_.size());
  for (const uint32_t slot : saved.free_slots) {
    if (slot >= rows_.size() || rows_[slot].sequence != 0 || is_free[slot])
      return damaged("a free slot is not valid");
    is_free[slot] = true;
  }
  free_ = saved.free_slots;
  for (Group& group : groups_) {
    if (group.rows.empty()) return damaged("group \"" + group.name + "\" has no rows");
    std::ranges::sort(group.rows, {}, [&](SlotIndex slot) { return rows_[slot].sequence; });
    for (const SlotIndex slot : group.rows) group.version = std::min(group.version, rows_[slot].version);
  }
  // Rows that were leased become ready now.
  ++operation_;
  for (const SavedRowView& view : saved.views) {
    if (!restoring->consumers[view.consumer]) continue;
    View& added = AddView(*restoring->consumers[view.consumer], view.needs, view.whole_groups);
    if (options_.order == RowOrder::kReady && saved.settings.order == RowOrder::kReady) {
      for (const auto& [sequence, operation] : view.ready_since) {
        added.ready_since.emplace(sequence, std::min<uint64_t>(operation, saved.operation));
      }
    }
    FillView(&added, /*are_old=*/false);
  }
  // What only leases had kept.
  for (SlotIndex slot = 0; slot < rows_.size(); ++slot) {
    if (rows_[slot].sequence != 0) DropIfDone(slot, effects);
  }
  return Status::Ok();
}

}  // namespace reverb::internal
