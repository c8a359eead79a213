#include "core/snapshot.h"

#include <iterator>
#include <utility>

namespace reverb::internal {

RetiredSlots::~RetiredSlots() {
  DropItemRefs();
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i].is_free()) Trajectory::Adopt(slots_[i].trajectory);  // frees it
  }
}

void RetiredSlots::DropItemRefs() {
  if (std::exchange(item_refs_dropped_, true)) return;
  for (size_t i = 0; i < slots_.size(); ++i) {
    Trajectory::ForEachChunk(slots_[i].trajectory, [](Chunk* chunk) { chunk->DropItemRef(); });
  }
}

void SnapshotParking::Park(Trajectory trajectory) {
  MutexLock lock(&mu_);
  // The snapshot may have been destroyed since IsShown(): then the trajectory is not needed.
  if (!lots_.empty()) lots_.rbegin()->second.trajectories.push_back(std::move(trajectory));
}

void SnapshotParking::Park(std::shared_ptr<RetiredSlots> retired) {
  MutexLock lock(&mu_);
  if (!lots_.empty()) lots_.rbegin()->second.retired_slots.push_back(std::move(retired));
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
    Lot& older = std::prev(it)->second;
    std::move(dropped.trajectories.begin(), dropped.trajectories.end(),
              std::back_inserter(older.trajectories));
    std::move(dropped.retired_slots.begin(), dropped.retired_slots.end(),
              std::back_inserter(older.retired_slots));
    dropped = {};
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
