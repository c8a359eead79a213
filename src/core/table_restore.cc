// The part of TableState that restores a table from a checkpoint.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/huge_pages.h"
#include "core/table_state.h"

namespace reverb::internal {
namespace {

// Far above the counters of any real table; sums of two cannot overflow.
constexpr int64_t kLargestCount = int64_t{1} << 61;

Status Corrupt(const std::string& table, const std::string& what) {
  return Status::DataLoss("restoring table \"" + table + "\": " + what).WithDetail(Detail::kCorruptData);
}

// Items arrive in the order of slots. That is the order of age in a table that was never full. In one that
// evicts the oldest, it is the order of age rotated: from some slot on, then from the first slot.
void SortByAge(std::vector<SelectorItem>& items) {
  const auto is_before = [](const SelectorItem& a, const SelectorItem& b) { return a.inserted < b.inserted; };
  const auto oldest = std::is_sorted_until(items.begin(), items.end(), is_before);
  if (oldest == items.end()) return;
  if (is_before(items.back(), items.front()) && std::is_sorted(oldest, items.end(), is_before)) {
    std::rotate(items.begin(), oldest, items.end());
    return;
  }
  std::sort(items.begin(), items.end(), is_before);
}

}  // namespace

void TableState::BeginRestore(uint64_t num_slots, uint64_t num_items) {
  AdviseHugePagesForNext(num_slots * sizeof(SlotRecord));
  slots_.Resize(num_slots);
  num_items = std::min(num_items, num_slots);
  AdviseHugePagesForNext(num_items * KeyIndex::kBytesPerKey);
  index_.Reserve(num_items);
}

Status TableState::RestoreItem(SavedItem item) {
  const auto corrupt = [&](const std::string& what) {
    return Corrupt(options_.name, "item " + std::to_string(item.key) + " " + what);
  };
  if (item.trajectory.empty()) return corrupt("has no data");
  if (item.times_sampled < 0) {
    return corrupt("was sampled " + std::to_string(item.times_sampled) + " times");
  }
  Slot slot = 0;
  if (item.slot) {
    slot = *item.slot;
    if (slot >= slots_.size() || !slots_[slot].is_free()) {
      return corrupt("is in slot " + std::to_string(slot) + ", which " +
                     (slot < slots_.size() ? "another item uses" : "does not exist"));
    }
    if (item.inserted == 0 || item.touched < item.inserted) return corrupt("has invalid operation numbers");
  } else {
    if (slots_.size() >= std::numeric_limits<int32_t>::max())
      return corrupt("exceeds the maximum number of slots");
    slot = static_cast<Slot>(slots_.size());
    item.inserted = item.touched = sequence_ + 1;
  }
  if (!index_.FindOrInsert(item.key, slot).second) return corrupt("is present twice");
  if (!item.slot) slots_.PushBack(SlotRecord());
  SlotRecord& record = slots_.Mutable(slot);
  record.key = item.key;
  record.priority = item.priority;
  record.inserted_at = item.inserted_at;
  record.inserted = item.inserted;
  record.touched = item.touched;
  record.times_sampled = item.times_sampled;
  record.trajectory = item.trajectory.Release();
  sequence_ = std::max(sequence_, item.touched);
  ++size_;
  slices_bytes_ += Trajectory::MemoryBytes(record.trajectory);
  Trajectory::ForEachChunk(record.trajectory, [&](Chunk* chunk) {
    chunk->AddItemRef();
    referenced_bytes_ += chunk->bytes();
    episodes_.Increment(chunk->header().episode_id());
    if (chunk_uses_) HoldChunk(chunk);
  });
  return Status::Ok();
}

Status TableState::FinishRestore(const SavedTableState& state, Effects* effects, const ClockReading& now) {
  REVERB_RETURN_IF_ERROR(RestoreFreeSlots(state));
  REVERB_RETURN_IF_ERROR(RestoreCounters(state.counters));
  if (Status status = layout_.RestoreStructure(state.structure); !status.ok()) {
    return Corrupt(options_.name, std::string(status.message()));
  }
  counts_ = state.counts;
  sequence_ = std::max(sequence_, state.sequence);

  std::vector<SelectorItem> items;
  items.reserve(static_cast<size_t>(size_));
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    const SlotRecord& record = slots_[slot];
    if (record.is_free()) continue;
    items.push_back({.slot = static_cast<Slot>(slot),
                     .priority = record.priority,
                     .inserted = record.inserted,
                     .touched = record.touched});
  }
  SortByAge(items);
  if (!items.empty()) layout_.RestoreDTypes(Trajectory::Share(slots_[items.front().slot].trajectory));
  const auto same_age = std::ranges::adjacent_find(items, {}, &SelectorItem::inserted);
  if (same_age != items.end()) {
    return Corrupt(options_.name,
                   "two items were inserted by operation " + std::to_string(same_age->inserted));
  }
  const auto in_table = [&](const Status& status) {
    return status.Prefixed("table \"" + options_.name + "\"");
  };
  if (Status status = sampler_->Restore(items, state.sampler_state); !status.ok()) return in_table(status);
  if (Status status = remover_->Restore(items, state.remover_state); !status.ok()) return in_table(status);
  REVERB_RETURN_IF_ERROR(RestoreExtensions(items, state));
  if (has_max_age()) {
    RebuildAges(now);
    AdvanceTo(now.now, effects);
  }
  EvictExcess(size_, effects);
  return Status::Ok();
}

Status TableState::RestoreFreeSlots(const SavedTableState& state) {
  if (state.free_slots.size() + static_cast<size_t>(size_) != slots_.size()) {
    return Corrupt(options_.name,
                   std::to_string(size_) + " items and " + std::to_string(state.free_slots.size()) +
                       " free slots do not add up to " + std::to_string(slots_.size()) + " slots");
  }
  std::vector<bool> is_listed(state.free_slots.empty() ? 0 : slots_.size());
  for (const Slot slot : state.free_slots) {
    if (slot >= slots_.size() || !slots_[slot].is_free() || is_listed[slot]) {
      return Corrupt(options_.name, "slot " + std::to_string(slot) + " is listed as free, but is not");
    }
    is_listed[slot] = true;
  }
  free_head_ = 0;
  for (auto slot = state.free_slots.rbegin(); slot != state.free_slots.rend(); ++slot) {
    slots_.Mutable(*slot).key = free_head_;
    free_head_ = uint64_t{*slot} + 1;
  }
  return Status::Ok();
}

Status TableState::RestoreCounters(const RateLimiterCounters& counters) {
  for (const int64_t count :
       {counters.inserts, counters.samples, counters.deletes, counters.uncounted_inserts}) {
    if (count < 0 || count > kLargestCount) {
      return Corrupt(options_.name, "a counter of its limiter is " + std::to_string(count));
    }
  }
  if (counters.inserts - counters.deletes != size_) {
    return Corrupt(options_.name, "its limiter counted " + std::to_string(counters.inserts) +
                                      " inserts and " + std::to_string(counters.deletes) +
                                      " deletes, but there are " + std::to_string(size_) + " items");
  }
  if (counters.uncounted_inserts > counters.deletes) {
    return Corrupt(options_.name, "its limiter does not count " + std::to_string(counters.uncounted_inserts) +
                                      " inserts, but only " + std::to_string(counters.deletes) +
                                      " items have left");
  }
  limiter_.set_counters(counters);
  return Status::Ok();
}

Status TableState::RestoreExtensions(std::span<const SelectorItem> items_by_age,
                                     const SavedTableState& state) {
  if (options_.extensions.empty()) return Status::Ok();
  for (const SelectorItem& item : items_by_age) {
    const SlotRecord& record = slots_[item.slot];
    const Trajectory trajectory = Trajectory::Share(record.trajectory);
    const ItemView view = ViewOf(record, trajectory);
    for (const auto& extension : options_.extensions) extension->OnRestore(view);
  }
  // Match by name: the n-th extension of a name gets the n-th state of that name.
  std::vector<bool> used(state.extension_states.size());
  for (const auto& extension : options_.extensions) {
    for (size_t i = 0; i < state.extension_states.size(); ++i) {
      if (used[i] || state.extension_states[i].first != extension->name()) continue;
      used[i] = true;
      if (state.extension_states[i].second.empty()) break;
      if (Status status = extension->LoadState(state.extension_states[i].second); !status.ok()) {
        return status.Prefixed("restoring table \"" + options_.name + "\"");
      }
      break;
    }
  }
  return Status::Ok();
}

}  // namespace reverb::internal
