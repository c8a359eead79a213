// row_snapshot.h — a row table at one instant, and what a checkpoint keeps of it.
//
// A snapshot holds what outlives a server: rows with their parts, tags, groups, order and acknowledgements, versions,
// counters, and the state of the caller. Leases and reservations end with the server, so a snapshot shows their rows
// as given back: not consumed, in their old place.
//
// Taking a snapshot copies the records of rows, which refer to keys, tags and chunks where they are. What the table
// drops or replaces meanwhile is parked for the snapshot (ParkedRows), until that has been read, so that this stays
// readable and the table's lock is held for a copy of contiguous memory only.
//
// Threads: a RowTableSnapshot is immutable; several threads may read it, and it may be destroyed on any thread.
#ifndef REVERB_CORE_ROWS_ROW_SNAPSHOT_H_
#define REVERB_CORE_ROWS_ROW_SNAPSHOT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/memory_budget.h"
#include "base/mutex.h"
#include "core/parked_count.h"
#include "core/rows/row_head.h"
#include "reverb/row_table_options.h"
#include "tensor/chunk.h"

namespace reverb::internal {

// A group of a saved table. Its rows refer to it by its index.
struct SavedRowGroup {
  std::string name;
  uint64_t sequence = 0;  // of its first row
  int64_t version = 0;    // the oldest of its rows
};

// A kind of claim that was made: keeps the order in which rows became ready for it.
struct SavedRowView {
  uint32_t consumer = 0;        // index of RowTableOptions::consumers; one more: "resume"
  std::vector<uint16_t> needs;  // numbers of names, ascending
  bool whole_groups = false;
  // Order kReady only: the sequence number of a row or group, and the operation that first made it ready.
  std::vector<std::pair<uint64_t, uint64_t>> ready_since;
};

// A row table without its rows.
struct SavedRowTable {
  RowTableOptions settings;
  bool created_by_client = false;
  RowCounts counts;  // `rows`, and those over the lifetime
  int64_t version = 0;
  int64_t first_version = 0;
  bool has_started = false;
  uint64_t sequence = 0;
  uint64_t operation = 0;
  std::vector<uint32_t> free_slots;            // in the order of their use: the last one first
  std::vector<std::string> names;              // of columns and tags, by number
  std::vector<std::vector<uint16_t>> layouts;  // of parts: numbers of names
  std::vector<SavedRowGroup> groups;
  std::vector<SavedRowView> views;                // the least recently used first
  std::shared_ptr<const std::string> user_state;  // null = none
};

struct SavedRowPart {
  ChunkRef chunk;
  uint32_t layout = 0;
  bool replaces = false;
  int32_t lag = 0;
};

struct SavedRow {
  uint32_t slot = 0;
  std::string key = {};
  std::vector<RowTag> tags = {};
  uint64_t sequence = 0;
  int64_t version = 0;
  std::optional<uint32_t> group = {};  // index of SavedRowTable::groups
  uint32_t done = 0;                   // a bit for each consumer that has acknowledged it
  bool is_open = false;
  bool is_requeued = false;
  std::vector<SavedRowPart> parts = {};
};

// Keeps what a table no longer needs and a snapshot may show, by the slots of the rows: a reader releases those that it has
// finished with. Snapshots that exist at a time share one object, which then keeps everything until the last one is gone.
// Counts the bytes of chunks as parked, and charges the rest to the index.
class ParkedRows {
 public:
  // `budget` may be null, and must outlive the snapshots.
  explicit ParkedRows(MemoryBudget* budget) : budget_(budget) {}
  ParkedRows(const ParkedRows&) = delete;
  ParkedRows& operator=(const ParkedRows&) = delete;
  // Another snapshot uses this object.
  void Share() EXCLUDES(mu_);
  // Each returns what no snapshot needs, to be freed by the caller. `is_unstored`: nothing else stores the chunk any more.
  ChunkRef Park(uint32_t slot, ChunkRef chunk, bool is_unstored) EXCLUDES(mu_);
  RowHead Park(uint32_t slot, RowHead head) EXCLUDES(mu_);
  // The snapshot does not need the rows of slots below `end` any more. Slots must not decrease.
  void ReleaseBefore(uint32_t end) EXCLUDES(mu_);

 private:
  static constexpr int kSlotsPerPageShift = 10;
  struct Page {
    std::vector<ChunkRef> chunks;
    std::vector<RowHead> heads;
    MemoryCharge heads_charge;
    ParkedCount counted;  // destroyed first
  };
  // Returns null if no snapshot needs the slot.
  Page* PageOf(uint32_t slot) REQUIRES(mu_);

  MemoryBudget* const budget_;
  Mutex mu_;
  bool is_shared_ GUARDED_BY(mu_) = false;
  uint32_t first_page_ GUARDED_BY(mu_) = 0;  // those before were released
  std::map<uint32_t, Page> pages_ GUARDED_BY(mu_);
};

class RowTableSnapshot {
 public:
  // Allocates memory for about so many rows, so that this need not happen under the table's lock.
  explicit RowTableSnapshot(int64_t expected_rows);

  const SavedRowTable& table() const { return table_; }
  SavedRowTable& mutable_table() { return table_; }
  size_t num_rows() const { return records_.size(); }
  // Returns a copy of a row; slots ascend.
  SavedRow row(size_t index) const;
  // The caller has finished with the rows up to `index`: frees what the table has removed of them. They must not be read
  // any more.
  void ReleaseThrough(size_t index) const {
    parked_->ReleaseBefore(index + 1 == records_.size() ? UINT32_MAX : records_[index + 1].slot);
  }
  // Charges the memory of this object to the budget, which must outlive it.
  void ChargeTo(MemoryBudget* budget);
  // Calls visit(chunk) for each chunk of each row.
  template <typename Visit>
  void ForEachChunk(Visit visit) const {
    for (const Part& part : parts_) visit(*part.chunk);
  }

 private:
  friend class RowState;
  struct Part {
    Chunk* chunk = nullptr;  // of the table, or parked
    uint32_t layout = 0;     // << 1 | replaces
    int32_t lag = 0;
  };
  struct Record {
    const char* head = nullptr;  // the block of a RowHead, of the table or parked
    uint64_t sequence = 0;
    int64_t version = 0;
    uint64_t first_part = 0;
    uint32_t num_parts = 0;
    uint32_t slot = 0;
    uint32_t group = UINT32_MAX;  // index of table_.groups
    uint32_t done = 0;
    bool is_open = false;
    bool is_requeued = false;
  };

  SavedRowTable table_;
  std::vector<Record> records_;
  std::vector<Part> parts_;
  std::shared_ptr<ParkedRows> parked_;
  MemoryCharge charge_;
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_ROWS_ROW_SNAPSHOT_H_
