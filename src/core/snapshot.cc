#include "core/snapshot.h"

#include <iterator>
#include <utility>

namespace reverb::internal {

RetiredSlots::~RetiredSlots() {
  DropItemRefs();
  // First: the accounts may belong to another store once the last chunk is gone.
  if (parked_bytes_ != 0) ledger_->CountParked(-parked_bytes_);
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i].is_free()) Trajectory::Adopt(slots_[i].trajectory);  // frees it
  }
}

void RetiredSlots::DropItemRefs() {
  if (std::exchange(item_refs_dropped_, true)) return;
  for (size_t i = 0; i < slots_.size(); ++i) {
    Trajectory::ForEachChunk(slots_[i].trajectory, [&](Chunk* chunk) {
      if (!chunk->DropItemRef() || !is_parked_) return;
      ledger_ = chunk->ledger();
      parked_bytes_ += chunk->own_bytes();
      if (chunk->is_tiered()) chunk->tiered().tier->OnParked(chunk);
    });
  }
  if (parked_bytes_ != 0) ledger_->CountParked(parked_bytes_);
}

SnapshotParking::ParkedPage::ParkedPage(ParkedPage&& other) noexcept
    : trajectories(std::move(other.trajectories)),
      ledger(other.ledger),
      bytes(std::exchange(other.bytes, 0)) {}

SnapshotParking::ParkedPage& SnapshotParking::ParkedPage::operator=(ParkedPage&& other) noexcept {
  std::swap(trajectories, other.trajectories);
  std::swap(ledger, other.ledger);
  std::swap(bytes, other.bytes);
  return *this;
}

SnapshotParking::ParkedPage::~ParkedPage() {
  // Before the chunks are freed: see RetiredSlots.
  if (bytes != 0) ledger->CountParked(-bytes);
}

void SnapshotParking::ParkedPage::Add(ParkedPage&& other) {
  if (trajectories.empty()) {
    trajectories.swap(other.trajectories);
  } else {
    std::move(other.trajectories.begin(), other.trajectories.end(), std::back_inserter(trajectories));
  }
  if (other.ledger != nullptr) ledger = other.ledger;
  bytes += std::exchange(other.bytes, 0);
}

bool SnapshotParking::Park(Trajectory* trajectory, size_t page, int64_t unstored_bytes) {
  MutexLock lock(&mu_);
  // The snapshot may have been destroyed since IsShown(), or have released the page.
  for (auto lot = lots_.rbegin(); lot != lots_.rend(); ++lot) {
    if (lot->second.IsReleased(page)) continue;
    ParkedPage& parked = lot->second.pages[page];
    if (unstored_bytes > 0) {
      Trajectory::ForEachChunk(trajectory->handle(), [&](Chunk* chunk) {
        parked.ledger = chunk->ledger();
        if (chunk->is_tiered()) chunk->tiered().tier->OnParked(chunk);
      });
      parked.ledger->CountParked(unstored_bytes);
      parked.bytes += unstored_bytes;
    }
    parked.trajectories.push_back(std::move(*trajectory));
    return true;
  }
  return false;
}

void SnapshotParking::Park(std::shared_ptr<RetiredSlots> retired) {
  MutexLock lock(&mu_);
  if (!lots_.empty()) lots_.rbegin()->second.retired_slots.push_back(std::move(retired));
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
  MutexLock lock(&mu_);
  const auto lot = lots_.find(id);
  if (lot == lots_.end() || lot->second.IsReleased(page)) return;
  std::vector<bool>& is_released = lot->second.is_released;
  if (page >= is_released.size()) is_released.resize(page + 1);
  is_released[page] = true;
  const auto parked = lot->second.pages.find(page);
  if (parked == lot->second.pages.end()) return;
  ParkedPage items = std::move(parked->second);
  lot->second.pages.erase(parked);
  dropped = MoveToOlder(lot, page, std::move(items));
}

uint64_t SnapshotParking::Open(uint64_t sequence) {
  MutexLock lock(&mu_);
  lots_[++last_id_].sequence = sequence;
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
