// snapshot.h — a table at one instant, readable while the table changes.
//
// Taking a snapshot shares the table's pages and copies no item and no payload. Items that the table removes
// meanwhile are parked here, so that everything the snapshot shows stays readable.
//
// Threads: several threads may read; a snapshot may be destroyed on any thread.
#ifndef REVERB_CORE_SNAPSHOT_H_
#define REVERB_CORE_SNAPSHOT_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/memory_budget.h"
#include "base/mutex.h"
#include "base/paged_array.h"
#include "core/parked_count.h"
#include "core/rows/row_snapshot.h"
#include "reverb/rate_limiter.h"
#include "reverb/selector.h"
#include "reverb/table_settings.h"
#include "tensor/item.h"

namespace reverb::internal {

// An item in its slot. One cache line.
struct alignas(64) SlotRecord {
  uint64_t key = 0;  // of a free slot: 1 + the next free slot, 0 = none
  double priority = 0;
  int64_t inserted_at = 0;
  uint64_t inserted = 0;  // operation numbers, see SelectorItem
  uint64_t touched = 0;
  TrajectoryHandle trajectory;  // owned; empty = the slot is free
  int32_t times_sampled = 0;

  bool is_free() const { return trajectory.bits == 0; }
  // Returns the item, with its own reference to the data. REQUIRES: !is_free().
  Sample Share() const {
    return {.key = key,
            .priority = priority,
            .inserted_at = inserted_at,
            .times_sampled = times_sampled,
            .trajectory = Trajectory::Share(trajectory)};
  }
};
static_assert(sizeof(SlotRecord) == 64);

// The slots of a table that was reset or destroyed; frees their items without the table's lock. What a snapshot shows is
// kept until the snapshot has been read, page by page.
//
// Threads: all methods may be called concurrently, except for the constructor and KeepForSnapshot().
class RetiredSlots {
 public:
  explicit RetiredSlots(PagedArray<SlotRecord>* slots);
  ~RetiredSlots();
  RetiredSlots(const RetiredSlots&) = delete;
  RetiredSlots& operator=(const RetiredSlots&) = delete;
  // A snapshot shows the items that were inserted up to an operation, except for those in `read_pages`, which no snapshot
  // needs any more. Their data counts as parked once DropItemRefs() was called.
  void KeepForSnapshot(uint64_t shown_through, std::vector<bool> read_pages);
  // Stops counting the items as stored, though a snapshot may still show them. Idempotent; the others call it too.
  void DropItemRefs() EXCLUDES(mu_);
  // Frees the items that no snapshot shows.
  void FreeUnshown() EXCLUDES(mu_);
  // Frees the items of a page, which no snapshot needs any more.
  void ReleasePage(size_t page) EXCLUDES(mu_);
  // Returns the memory of the slots.
  int64_t slot_bytes() const {
    return static_cast<int64_t>(slots_.num_pages() * PagedArray<SlotRecord>::kPageMemory);
  }

 private:
  // What a page holds.
  enum class Holds : uint8_t { kStoredItems, kItems, kShownItems, kNothing };
  struct Page {
    Holds holds = Holds::kStoredItems;
    bool was_read = false;
    ParkedCount parked;
  };

  bool IsShown(const SlotRecord& record) const { return record.inserted <= shown_through_; }
  // Calls visit(record) for each item of a page.
  template <typename Visit>
  void ForEachItem(size_t page, Visit visit) const {
    constexpr size_t kPerPage = PagedArray<SlotRecord>::kPerPage;
    const size_t end = std::min((page + 1) * kPerPage, slots_.size());
    for (size_t i = page * kPerPage; i < end; ++i) {
      if (!slots_[i].is_free()) visit(slots_[i]);
    }
  }
  void DropItemRefs(size_t page) REQUIRES(mu_);
  // Frees items of a page: those that no snapshot shows, or all.
  void Free(size_t page, bool shown_too) REQUIRES(mu_);

  PagedArray<SlotRecord> slots_;  // constant, but owns the items as `pages_` tells
  uint64_t shown_through_ = 0;
  Mutex mu_;
  std::vector<Page> pages_ GUARDED_BY(mu_);
};

// Keeps items that the table removed as long as a snapshot may show them. Each snapshot has a lot, which owns
// the items removed since it was taken and before the next one, by the page of their slots: a reader that has finished
// with a page releases it. A lot also counts the memory of slots that only the snapshot keeps.
class SnapshotParking {
 public:
  // Charges what CountSlots() counts to the budget, which must outlive the snapshots. To be called before the first one.
  void ChargeTo(MemoryBudget* budget) { budget_ = budget; }
  // Returns whether a live snapshot may show an item with this insert number, which must then be parked.
  bool IsShown(uint64_t inserted) const { return inserted <= newest_.load(std::memory_order_acquire); }
  // Returns whether any snapshot is open.
  bool is_open() const { return newest_.load(std::memory_order_acquire) != 0; }
  // Takes the trajectory of a removed item of that page, unless no snapshot needs it: then returns false. `unstored_bytes`
  // of its chunks are in no other item.
  bool Park(Trajectory* trajectory, size_t page, int64_t unstored_bytes) EXCLUDES(mu_);
  void Park(const std::shared_ptr<RetiredSlots>& retired) EXCLUDES(mu_);
  // The table has copied pages of slots, of which the last snapshot keeps the originals: `bytes` more. Does nothing if
  // there is none.
  void CountSlots(int64_t bytes) EXCLUDES(mu_);

  // Opens a lot for a new snapshot and returns its ID. `sequence` is the number of the last operation that
  // the snapshot shows.
  uint64_t Open(uint64_t sequence) EXCLUDES(mu_);
  void Close(uint64_t id) EXCLUDES(mu_);
  // The snapshot does not need items of a page any more.
  void ReleasePage(uint64_t id, size_t page) EXCLUDES(mu_);

 private:
  // Parked items of a page. Counts their bytes as parked.
  struct ParkedPage {
    void Add(ParkedPage&& other);

    std::vector<Trajectory> trajectories;
    ParkedCount counted;  // destroyed first
  };
  struct Lot {
    uint64_t sequence = 0;
    std::map<size_t, ParkedPage> pages;
    std::vector<bool> is_released;  // by page
    std::vector<std::shared_ptr<RetiredSlots>> retired_slots;
    MemoryCharge slots = {};

    bool IsReleased(size_t page) const { return page < is_released.size() && is_released[page]; }
  };
  using Lots = std::map<uint64_t, Lot>;
  // Moves a page to the next older lot that needs it. Returns what none needs, to be freed without the lock.
  ParkedPage MoveToOlder(Lots::iterator lot, size_t page, ParkedPage items) REQUIRES(mu_);
  MemoryBudget* budget_ = nullptr;
  std::atomic<uint64_t> newest_{0};  // 0 = no live snapshot
  Mutex mu_;
  uint64_t last_id_ GUARDED_BY(mu_) = 0;
  Lots lots_ GUARDED_BY(mu_);  // oldest first
};

class TableSnapshot {
 public:
  // The captured state besides the slots; filled by TableState.
  struct State : TableSettings {
    RateLimiterCounters counters = {};
    TableCounts counts = {};
    std::optional<std::string> structure = {};  // as in TableInfo
    int64_t size = 0;
    uint64_t instance = 0;   // of the table: no other one of this process has the same number
    uint64_t sequence = 0;   // of the last operation
    uint64_t free_head = 0;  // 1 + first free slot, 0 = none
    std::unique_ptr<SelectorCapture> sampler_state = {};
    std::unique_ptr<SelectorCapture> remover_state = {};
    std::vector<std::pair<std::string, std::string>> extension_states = {};  // name, state
  };

  TableSnapshot(State state, PagedArray<SlotRecord>::Capture slots, std::shared_ptr<SnapshotParking> parking,
                uint64_t parking_id);
  ~TableSnapshot();
  TableSnapshot(const TableSnapshot&) = delete;
  TableSnapshot& operator=(const TableSnapshot&) = delete;

  const State& state() const { return state_; }
  int64_t size() const { return state_.size; }
  size_t num_slots() const { return slots_.size(); }
  // Includes free slots: see is_free().
  const SlotRecord& slot(size_t i) const { return slots_[i]; }
  const PagedArray<SlotRecord>::Capture& slots() const { return slots_; }
  // Pages are the unit in which the slots are copied and written.
  static constexpr size_t kSlotsPerPage = PagedArray<SlotRecord>::kPerPage;
  size_t num_pages() const { return slots_.num_pages(); }
  // Calls visit(slot, record) for each item of a page.
  template <typename Visit>
  void ForEachItem(size_t page, Visit visit) const {
    const size_t end = std::min((page + 1) * kSlotsPerPage, num_slots());
    for (size_t i = page * kSlotsPerPage; i < end; ++i) {
      if (!slots_[i].is_free()) visit(i, slots_[i]);
    }
  }
  // The caller has finished with the items of a page: frees those that the table has removed. Neither slot() nor item()
  // may be used for them any more.
  void ReleasePage(size_t page) const { parking_->ReleasePage(parking_id_, page); }
  // Returns the item of a used slot, with its own reference to the data.
  Sample item(size_t i) const { return slots_[i].Share(); }

 private:
  const State state_;
  const PagedArray<SlotRecord>::Capture slots_;
  const std::shared_ptr<SnapshotParking> parking_;
  const uint64_t parking_id_;
};

// All tables of a server at one instant.
struct Snapshot {
  std::vector<std::unique_ptr<TableSnapshot>> tables;
  Duration locks_held{0};  // from the first lock taken to the last one released
  std::vector<std::unique_ptr<RowTableSnapshot>> row_tables = {};
  Duration row_locks_held{0};
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_SNAPSHOT_H_
