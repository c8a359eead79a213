// row_state.h — the rules of a row table, without locks.
//
// Rows are stored in slots; one lookup finds the slot of a key. A write adds a part to a row: a chunk with the
// values of some columns. For each consumer and each set of columns that it needs there is a view: the units
// (rows, or complete groups) that a claim may take now, in the order of the table. Every change of a row updates
// the views, so that a claim without a condition takes time in proportion to what it takes. docs/rows.md
// describes the rules from the caller's side.
//
// Nothing here waits: an operation that has to wait says so and changes nothing. Data that must not be freed under
// the table's lock is collected in RowEffects.
//
// Ownership: owns rows and leases, shares chunks. Threads: needs the table's lock, except for options().
#ifndef REVERB_CORE_ROWS_ROW_STATE_H_
#define REVERB_CORE_ROWS_ROW_STATE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "base/clock.h"
#include "core/rows/row_head.h"
#include "core/rows/row_snapshot.h"
#include "core/rows/where.h"
#include "reverb/lease.h"
#include "reverb/row_table_options.h"
#include "reverb/status.h"
#include "tensor/chunk.h"
#include "tensor/row.h"

namespace reverb::internal {

// What became of the write of one row.
enum class RowFate : uint8_t {
  kStored,
  kRefused,  // the row is stale or gone: its producer can stop
  kWaits,    // nothing was done: see RowState::wait_reason()
};

// Why a new row or a reservation has to wait.
enum class RowWaitReason : uint8_t {
  kNone,
  kFull,    // max_rows
  kAhead,   // producers are ahead of the trainer
  kBusy,    // max_running
  kMemory,  // max_bytes of the server
};

struct ClaimedRows {
  uint64_t lease = 0;
  int64_t version = 0;               // of the table
  std::vector<std::string> columns;  // those needed, then those selected
  std::vector<RowRecord> rows;
  std::optional<int64_t> step = {};  // of a claim with ranks
};

// Freed by the caller, without the table's lock.
struct RowEffects {
  std::vector<ChunkRef> released;
};

class RowState {
 public:
  // Ids of leases continue from `first_id`; see LeaseBook.
  static Result<std::unique_ptr<RowState>> Create(RowTableOptions options, uint64_t first_id = 1);
  ~RowState();
  RowState(const RowState&) = delete;
  RowState& operator=(const RowState&) = delete;

  const RowTableOptions& options() const { return options_; }  // any thread
  int64_t size() const { return static_cast<int64_t>(by_key_.size()); }
  int64_t version() const { return version_; }

  // Ends the leases and reservations that have expired. To be called before each operation.
  void AdvanceTo(TimePoint now, RowEffects* effects);
  // Returns a time at which AdvanceTo() has something to do; none before.
  std::optional<TimePoint> NextExpiry() const;

  // --- Writing ---
  // A checked write: names have numbers.
  struct Write {
    RowWriteMode mode;
    uint32_t layout = 0;
    std::optional<uint16_t> same_length_as = {};
  };
  // Checks all that does not depend on the rows that are stored.
  Result<Write> Prepare(RowWriteMode mode, std::span<const RowWrite> rows);
  // Returns the error that Store() would return now.
  Status Check(const Write& write, const RowWrite& row) const;
  // Stores a row, unless it has to wait. After an error nothing has changed.
  Result<RowFate> Store(const Write& write, RowWrite* row, RowEffects* effects);
  // Why the last Store() or Reserve() has to wait.
  RowWaitReason wait_reason() const { return wait_reason_; }
  // Returns whether the row is written without waiting for anything, memory included: it exists, it is not to be created,
  // or it joins a group that exists. A table that is full of incomplete groups could not go on otherwise.
  bool NeverWaits(const Write& write, const RowWrite& row) const {
    return !write.mode.create || JoinsGroup(row) || Find(row.key).has_value();
  }
  // Changes whenever a row that had to wait might no longer do so because its group exists now.
  uint64_t groups_created() const { return groups_created_; }
  // Closes, aborts or requeues open rows. Returns the keys of rows that are gone. FAILED_PRECONDITION, and nothing
  // is done, if a row is not open; closing a closed row is no error.
  Result<std::vector<std::string>> End(std::span<const std::string> keys, RowEnding ending,
                                       RowEffects* effects);

  // --- Reading ---
  // Returns the rows that exist, in the order of the keys. `columns`: to be returned.
  std::vector<RowRecord> Get(std::span<const std::string> keys, std::span<const std::string> columns) const;
  // Returns rows without data, but with the names of their columns. `*cursor`: 0 = from the start; afterwards where
  // to continue, 0 = there are no more. A row that stays in the table is listed once. With the state of each row.
  std::vector<RowRecord> List(const Where* where, int64_t limit, uint64_t* cursor) const;
  // Both return the number of deleted rows. The second deletes whole groups, if the condition holds for each row.
  int64_t Delete(std::span<const std::string> keys, RowEffects* effects);
  int64_t DeleteWhere(const Where& where, RowEffects* effects);

  // --- Claiming ---
  // INVALID_ARGUMENT or NOT_FOUND if the claim can never succeed.
  Status CheckClaim(const RowClaim& claim);
  // Returns nothing if the claim has to wait. `where`: that of the claim, parsed; null = all rows.
  // REQUIRES: CheckClaim().
  Result<std::optional<ClaimedRows>> Claim(const RowClaim& claim, const Where* where = nullptr);
  // Returns a number that changes when rows became ready that a claim like this might take.
  uint64_t Generation(const RowClaim& claim);
  // Returns why the claim waits: `12 rows lack "advantages", 40 are stale, …`.
  std::string Explain(const RowClaim& claim, const Where* where = nullptr);
  // Settles rows of a lease: those with these keys, or all if `keys` is empty. An unknown lease counts the keys as
  // expired, at least one. `extension`: from now on; kExtend only, and for the whole lease.
  LeaseOutcome Settle(uint64_t id, std::span<const std::string> keys, RowSettlement settlement,
                      Duration extension, RowEffects* effects);

  // Divides a lease into several: one for each of `parts`, the indices of its rows, with a holder. The rows of no part are
  // released. Returns the ids; 0 for a part without rows. REQUIRES: the lease was just granted.
  std::vector<uint64_t> SplitLease(uint64_t id, std::span<const std::vector<size_t>> parts,
                                   std::span<const std::string> holders, RowEffects* effects);
  bool HasLease(uint64_t id) const { return leases_.contains(id); }
  // Returns the rows of a lease that were neither settled nor deleted.
  std::vector<RowRecord> LeasedRows(uint64_t id, std::span<const std::string> columns) const;
  // Returns whether a claim takes whole groups.
  bool TakesGroups(const RowClaim& claim) const { return WholeGroups(claim); }

  // --- Versions and admission ---
  // FAILED_PRECONDITION if the version would decrease.
  Status SetVersion(int64_t version, RowEffects* effects);
  // Returns the rows that may still be reserved; the largest number if that is unbounded.
  int64_t Capacity() const;
  // Returns the id of a reservation of n rows, or 0 if it has to wait. FAILED_PRECONDITION if rows of `version` are
  // stale already; INVALID_ARGUMENT if so many can never be reserved.
  Result<uint64_t> Reserve(int64_t n, std::optional<int64_t> version, Duration lease);
  // Gives back what is left of a reservation. Returns whether it was known.
  bool CancelReservation(uint64_t id);

  // --- The caller's state ---
  // Returns the bytes that the caller keeps with the table; null if none were set.
  const std::shared_ptr<const std::string>& user_state() const { return user_state_; }
  // Returns the former ones, to be freed without the table's lock.
  std::shared_ptr<const std::string> SetUserState(std::shared_ptr<const std::string> state) {
    return std::exchange(user_state_, std::move(state));
  }

  // --- Checkpoints (row_snapshot.cc) ---
  // Fills a new snapshot, which stays readable while the table changes and after it is destroyed.
  // What the snapshot keeps later is charged to the budget, which may be null.
  void Capture(RowTableSnapshot* snapshot, MemoryBudget* budget = nullptr);
  // Restore a table without rows: BeginRestore(), RestoreRow() for each row, FinishRestore(). DATA_LOSS if the saved
  // table is not consistent; the object can only be destroyed then. Acknowledgements are kept for consumers of the same
  // name. The settings are those of this object; `group_size` must be the saved one.
  Status BeginRestore(SavedRowTable saved);
  Status RestoreRow(SavedRow row);
  Status FinishRestore(RowEffects* effects);

  RowCounts Counts() const;
  // For each consumer: rows that are leased, and ready for the claim that it made last.
  std::vector<RowConsumerInfo> CountConsumers() const;
  // Returns the memory of all rows beyond their chunks, approximately.
  int64_t memory_bytes() const;
  // The same without what rows of several parts take: does not look at all rows.
  int64_t index_bytes() const;

 private:
  using SlotIndex = uint32_t;
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr size_t kMaxViews = 32;

  // The values of some columns of a row.
  struct Part {
    ChunkRef chunk;
    uint32_t layout : 31;
    uint32_t replaces : 1;  // earlier values of these columns do not count
    int32_t lag;            // version of the part - that of the row
  };
  struct Row {
    RowHead head;
    absl::InlinedVector<Part, 1> parts;
    uint64_t sequence = 0;  // number of its creation; 0 = the slot is free
    int64_t version = 0;
    uint32_t group = kNone;
    uint32_t done : 31 = 0;  // consumers that have acknowledged it
    bool is_open : 1 = false;
    uint32_t leased : 31 = 0;  // consumers that have it
    bool is_requeued : 1 = false;
    uint32_t views = 0;  // that have it
  };
  static_assert(RowTableOptions::kMaxConsumers <= 30, "a bit for each, and one for \"resume\"");
  static_assert(sizeof(Row) == 64, "paid once per row: keep it small");
  struct Group {
    std::string name;
    std::vector<SlotIndex> rows;
    uint64_t sequence = 0;  // of its first row
    int64_t version = 0;    // the oldest of its rows
    uint32_t views = 0;     // that have it
  };
  // A unit that is ready: a row or a group.
  struct Entry {
    int64_t major = 0;
    uint64_t minor = 0;
    uint32_t unit = 0;
    friend bool operator<(const Entry& a, const Entry& b) {
      return std::tie(a.major, a.minor, a.unit) < std::tie(b.major, b.minor, b.unit);
    }
  };
  struct View {
    uint32_t consumer = 0;
    std::vector<uint16_t> needs;  // sorted
    bool whole_groups = false;
    absl::btree_set<Entry> ready;
    uint64_t generation = 0;  // unique among those of all views
    uint64_t last_used = 0;
    bool is_new = false;  // while it is being filled
    // Order kReady only: the operation that first made each unit ready, by its sequence number.
    absl::flat_hash_map<uint64_t, uint64_t> ready_since;
  };
  struct LeasedRow {
    SlotIndex slot;
    uint64_t sequence;  // of the row: another one may be in the slot
  };
  struct Lease {
    uint32_t consumer = 0;
    std::string holder;
    TimePoint expires;
    std::vector<LeasedRow> rows;
  };
  struct Reservation {
    int64_t rows = 0;  // left
    TimePoint expires;
  };
  // The slots are found by the keys of their rows, without a copy of these.
  struct KeyHash {
    using is_transparent = void;
    const std::deque<Row>* rows;
    size_t operator()(std::string_view key) const { return std::hash<std::string_view>()(key); }
    size_t operator()(SlotIndex slot) const { return (*this)((*rows)[slot].head.key()); }
  };
  struct KeyEqual {
    using is_transparent = void;
    const std::deque<Row>* rows;
    bool operator()(SlotIndex a, SlotIndex b) const { return a == b; }
    bool operator()(SlotIndex slot, std::string_view key) const { return (*rows)[slot].head.key() == key; }
    bool operator()(std::string_view key, SlotIndex slot) const { return (*this)(slot, key); }
  };
  enum class Why : uint8_t { kConsumed, kStale, kDeleted };
  class RowsOfUnit;

  explicit RowState(RowTableOptions options, uint64_t first_id);

  // --- row_state.cc ---
  Status Error(std::string_view key, const std::string& what, StatusCode code) const;
  std::optional<SlotIndex> Find(std::string_view key) const;
  bool JoinsGroup(const RowWrite& row) const { return !row.group.empty() && by_group_.contains(row.group); }
  Result<RowFate> Judge(const Write& write, const RowWrite& row, RowWaitReason* reason) const;
  Status CheckColumns(const Write& write, const RowWrite& row, const Row* existing) const;
  SlotIndex AddRow(const Write& write, const RowWrite& row);
  void AddPart(SlotIndex slot, const Write& write, ChunkRef chunk, RowEffects* effects);
  void ReleasePart(SlotIndex slot, Part* part, RowEffects* effects);
  // Free what the table no longer needs, or keep it as long as a snapshot may show it. `is_unstored`: nothing else stores
  // the chunk.
  void Discard(SlotIndex slot, ChunkRef chunk, bool is_unstored, RowEffects* effects);
  void Discard(SlotIndex slot, RowHead head);
  void Drop(SlotIndex slot, Why why, RowEffects* effects);
  void DropUnit(SlotIndex slot, Why why, RowEffects* effects);
  // Drops a row, which may have been what others of its group waited for to be dropped.
  void DeleteRow(SlotIndex slot, RowEffects* effects);
  // Drops the row, or its group, if it is consumed or stale and nobody has it.
  void DropIfDone(SlotIndex slot, RowEffects* effects);
  bool IsConsumed(const Row& row) const { return all_ != 0 && (row.done & all_) == all_; }
  bool IsStale(int64_t version) const;
  // Returns by how many versions the table is ahead; the largest or smallest number if there are more.
  int64_t LagOf(int64_t version) const;
  bool IsUnitStale(const Row& row) const {
    return IsStale(row.group == kNone ? row.version : groups_[row.group].version);
  }
  bool DropsStale() const { return options_.staleness && options_.staleness->when_stale == WhenStale::kDrop; }
  bool HasColumn(const Row& row, uint16_t column) const;
  std::optional<int64_t> Length(const Row& row, uint16_t column) const;
  // Calls visit(segment) for the segments of a column, in order.
  template <typename Visit>
  void ForEachSegment(const Row& row, uint16_t column, Visit visit) const;
  RowRecord Describe(const Row& row) const;
  void AddColumns(const Row& row, std::span<const std::optional<uint16_t>> columns, RowRecord* record) const;
  std::vector<std::optional<uint16_t>> Numbers(std::span<const std::string> names) const;
  bool IsComplete(const Group& group) const;

  // --- row_claims.cc ---
  std::optional<uint32_t> FindConsumer(std::string_view name) const;
  std::string_view ConsumerName(uint32_t consumer) const;
  View* FindView(const RowClaim& claim);
  // Adds an empty view, in place of the least recently used one if there are too many.
  View& AddView(uint32_t consumer, std::vector<uint16_t> needs, bool whole_groups);
  // Adds the rows that are ready. `are_old`: in the order kReady they come before those that become ready later.
  void FillView(View* view, bool are_old);
  bool IsReady(const View& view, const Row& row) const;
  bool IsGroupReady(const View& view, const Group& group) const;
  bool HasNeeds(const View& view, const Row& row) const;
  Entry EntryOf(View* view, uint32_t unit);
  // Updates all views for a row that has changed, and its group.
  void Refresh(SlotIndex slot);
  void RefreshIn(View* view, uint32_t bit, SlotIndex slot);
  void SetInView(View* view, uint32_t bit, uint32_t unit, uint32_t* views, bool is_ready);
  bool WholeGroups(const RowClaim& claim) const {
    return claim.consumer != kResumeConsumer && claim.whole_groups.value_or(options_.group_size > 0);
  }
  // Returns the rows of a unit. Borrows from `unit`, if that is a row.
  std::span<const SlotIndex> UnitRows(const View& view, const uint32_t& unit) const;
  // Returns whether the condition is true for all of these rows. `names`: the numbers of where.names().
  bool Matches(const Where& where, std::span<const std::optional<uint16_t>> names,
               std::span<const SlotIndex> rows) const;
  // Returns the rows that a claim needs at least.
  int64_t AtLeast(const RowClaim& claim) const;
  void EndLease(uint64_t id, RowEffects* effects);
  LeaseOutcome SettleRow(const LeasedRow& leased, uint32_t consumer, RowSettlement settlement,
                         RowEffects* effects);
  TimePoint After(Duration time) const;

  const RowTableOptions options_;
  const uint32_t all_;     // a bit for each consumer
  const uint32_t resume_;  // number of the consumer "resume"

  RowNames names_;
  std::vector<std::vector<uint16_t>> layouts_;  // columns of writes
  absl::flat_hash_map<std::vector<uint16_t>, uint32_t> layout_numbers_;

  std::deque<Row> rows_;   // by slot; elements stay where they are
  size_t head_bytes_ = 0;  // of rows_
  std::vector<SlotIndex> free_;
  absl::flat_hash_set<SlotIndex, KeyHash, KeyEqual> by_key_;
  std::deque<Group> groups_;
  std::vector<uint32_t> free_groups_;
  absl::flat_hash_map<std::string, uint32_t> by_group_;
  uint64_t groups_created_ = 0;
  uint64_t sequence_ = 0;

  std::vector<View> views_;
  uint64_t tick_ = 0;       // counts uses and changes of views
  uint64_t operation_ = 1;  // counts operations that may make rows ready

  TimePoint now_{};
  uint64_t next_id_;
  absl::flat_hash_map<uint64_t, Lease> leases_;
  absl::flat_hash_map<uint64_t, Reservation> reservations_;
  absl::btree_set<std::pair<TimePoint, uint64_t>> expiries_;  // of both

  int64_t version_ = 0;
  int64_t first_version_ = 0;  // where counting for admission starts
  bool has_started_ = false;   // a row was accepted or reserved
  mutable RowWaitReason wait_reason_ = RowWaitReason::kNone;
  RowCounts counts_;  // what is not computed by Counts()
  std::shared_ptr<const std::string> user_state_;
  std::weak_ptr<ParkedRows> parked_;  // of the snapshots that exist
  // What is known while rows are being restored.
  struct Restoring {
    SavedRowTable saved;
    std::vector<std::optional<uint32_t>> consumers;  // by number in the saved table: that in this one
    std::vector<uint32_t> groups;                    // by index of the saved table
  };
  std::unique_ptr<Restoring> restoring_;  // between BeginRestore() and FinishRestore()
};

}  // namespace reverb::internal

#endif  // REVERB_CORE_ROWS_ROW_STATE_H_
