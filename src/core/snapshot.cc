#include "core/snapshot.h"

#include <iterator>
#include <utility>

namespace reverb::internal {

RetiredSlots::RetiredSlots(PagedArray<SlotRecord>* slots) {
  slots_.Swap(*slots);
  MutexLock lock(&mu_);
  pages_.resize(slots_.num_pages());
}

RetiredSlots::~RetiredSlots() {
  MutexLock lock(&mu_);
  for (size_t page = 0; page < pages_.size(); ++page) Free(page, /*shown_too=*/true);
}

void RetiredSlots::KeepForSnapshot(uint64_t shown_through, std::vector<bool> read_pages) {
  shown_through_ = shown_through;
  MutexLock lock(&mu_);
  for (size_t page = 0; page < std::min(pages_.size(), read_pages.size()); ++page) {
    pages_[page].was_read = read_pages[page];
  }
}

// One page at a time: a checkpoint that releases a page does not wait for all of them.
void RetiredSlots::DropItemRefs() {
  for (size_t page = 0; page < slots_.num_pages(); ++page) {
    MutexLock lock(&mu_);
    DropItemRefs(page);
  }
}

void RetiredSlots::FreeUnshown() {
  for (size_t page = 0; page < slots_.num_pages(); ++page) {
    MutexLock lock(&mu_);
    Free(page, /*shown_too=*/pages_[page].was_read);
  }
}

void RetiredSlots::ReleasePage(size_t page) {
  MutexLock lock(&mu_);
  if (page < pages_.size()) Free(page, /*shown_too=*/true);
}

void RetiredSlots::DropItemRefs(size_t page) {
  Page& to = pages_[page];
  if (to.holds != Holds::kStoredItems) return;
  to.holds = Holds::kItems;
  ForEachItem(page, [&](const SlotRecord& record) {
    Trajectory::ForEachChunk(record.trajectory, [&](Chunk* chunk) {
      if (!chunk->DropItemRef() || !IsShown(record)) return;
      to.parked.Add(chunk->ledger(), chunk->own_bytes());
      if (chunk->is_tiered()) chunk->tiered().tier->OnParked(chunk);
    });
  });
}

void RetiredSlots::Free(size_t page, bool shown_too) {
  DropItemRefs(page);
  Page& from = pages_[page];
  const bool has_unshown = from.holds == Holds::kItems;
  if (from.holds == Holds::kNothing || (!has_unshown && !shown_too)) return;
  if (shown_too) from.parked.Clear();  // before the chunks are freed
  ForEachItem(page, [&](const SlotRecord& record) {
    if (IsShown(record) ? shown_too : has_unshown) Trajectory::Adopt(record.trajectory);
  });
  from.holds = shown_too ? Holds::kNothing : Holds::kShownItems;
}

void SnapshotParking::ParkedPage::Add(ParkedPage&& other) {
  if (trajectories.empty()) {
    trajectories.swap(other.trajectories);
  } else {
    std::move(other.trajectories.begin(), other.trajectories.end(), std::back_inserter(trajectories));
  }
  counted.Add(std::move(other.counted));
}

bool SnapshotParking::Park(Trajectory* trajectory, size_t page, int64_t unstored_bytes) {
  MutexLock lock(&mu_);
  // The snapshot may have been destroyed since IsShown(), or have released the page.
  for (auto lot = lots_.rbegin(); lot != lots_.rend(); ++lot) {
    if (lot->second.IsReleased(page)) continue;
    ParkedPage& parked = lot->second.pages[page];
    if (unstored_bytes > 0) {
      ChunkLedger* ledger = nullptr;
      Trajectory::ForEachChunk(trajectory->handle(), [&](Chunk* chunk) {
        ledger = chunk->ledger();
        if (chunk->is_tiered()) chunk->tiered().tier->OnParked(chunk);
      });
      parked.counted.Add(ledger, unstored_bytes);
    }
    parked.trajectories.push_back(std::move(*trajectory));
    return true;
  }
  return false;
}

void SnapshotParking::Park(const std::shared_ptr<RetiredSlots>& retired) {
  MutexLock lock(&mu_);
  if (lots_.empty()) return;
  std::vector<bool> read_pages = lots_.begin()->second.is_released;
  for (const auto& [id, lot] : lots_) {
    for (size_t page = 0; page < read_pages.size(); ++page) {
      read_pages[page] = read_pages[page] && lot.IsReleased(page);
    }
  }
  Lot& newest = lots_.rbegin()->second;
  retired->KeepForSnapshot(newest.sequence, std::move(read_pages));
  newest.retired_slots.push_back(retired);
  newest.slots.Set(newest.slots.bytes() + retired->slot_bytes());
}

void SnapshotParking::CountSlots(int64_t bytes) {
  MutexLock lock(&mu_);
  if (lots_.empty()) return;
  MemoryCharge& slots = lots_.rbegin()->second.slots;
  slots.Set(slots.bytes() + bytes);
}

SnapshotParking::ParkedPage SnapshotParking::MoveToOlder(Lots::iterator lot, size_t page, ParkedPage items) {
  while (lot != lots_.begin()) {
    --lot;
    if (lot->second.IsReleased(page)) continue;
    lot->second.pages[page].Add(std::move(items));
    return {};
  }
  return items;
}

void SnapshotParking::ReleasePage(uint64_t id, size_t page) {
  ParkedPage dropped;  // freed after the lock
  std::vector<std::shared_ptr<RetiredSlots>> retired;
  {
    MutexLock lock(&mu_);
    const auto lot = lots_.find(id);
    if (lot == lots_.end() || lot->second.IsReleased(page)) return;
    std::vector<bool>& is_released = lot->second.is_released;
    if (page >= is_released.size()) is_released.resize(page + 1);
    is_released[page] = true;
    if (const auto parked = lot->second.pages.find(page); parked != lot->second.pages.end()) {
      ParkedPage items = std::move(parked->second);
      lot->second.pages.erase(parked);
      dropped = MoveToOlder(lot, page, std::move(items));
    }
    // Older snapshots may show what was retired since.
    for (const auto& [other, each] : lots_) {
      if (!each.IsReleased(page)) break;
      retired.insert(retired.end(), each.retired_slots.begin(), each.retired_slots.end());
    }
  }
  for (const std::shared_ptr<RetiredSlots>& slots : retired) slots->ReleasePage(page);
}

uint64_t SnapshotParking::Open(uint64_t sequence) {
  MutexLock lock(&mu_);
  Lot& lot = lots_[++last_id_];
  lot.sequence = sequence;
  lot.slots = MemoryCharge(budget_, MemoryPart::kIndex);
  newest_.store(sequence, std::memory_order_release);
  return last_id_;
}

void SnapshotParking::Close(uint64_t id) {
  Lot dropped;  // freed after the lock
  MutexLock lock(&mu_);
  const auto it = lots_.find(id);
  dropped = std::move(it->second);
  if (it != lots_.begin()) {
    // Older snapshots may show what was removed after this one was taken.
    for (auto& [page, items] : dropped.pages) items = MoveToOlder(it, page, std::move(items));
    Lot& older = std::prev(it)->second;
    std::move(dropped.retired_slots.begin(), dropped.retired_slots.end(),
              std::back_inserter(older.retired_slots));
    dropped.retired_slots.clear();
    older.slots.Set(older.slots.bytes() + dropped.slots.bytes());
  }
  lots_.erase(it);
  newest_.store(lots_.empty() ? 0 : lots_.rbegin()->second.sequence, std::memory_order_release);
}

TableSnapshot::TableSnapshot(State state, PagedArray<SlotRecord>::Capture slots,
                             std::shared_ptr<SnapshotParking> parking, uint64_t parking_id)
    : state_(std::move(state)),
      slots_(std::move(slots)),
      parking_(std::move(parking)),
      parking_id_(parking_id) {}

TableSnapshot::~TableSnapshot() { parking_->Close(parking_id_); }

}  // namespace reverb::internal
